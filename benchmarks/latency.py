"""Time of `transform` for one row and for many, against scikit-learn, in one run.

    python benchmarks/latency.py [--columns 768] [--components 64] [--repeats 2000]

A service reduces one embedding at a time: then the checks around the product take longer than the
product.  Rounds of calls of both libraries alternate, so that a busy machine slows both, and the
median of all calls counts.  Single calls do not alternate: after a product in several threads,
those of OpenBLAS keep the processors busy for some time and slow whatever comes next.  For the
same reason a round begins with calls that do not count.
"""

import argparse
import time

import numpy as np
from sklearn.decomposition import PCA

from primedpca import PrimedPCA

ROWS = (1, 10, 100, 1000)
ROUNDS, FIRST = 3, 40
REST = 0.2  # seconds after which the threads of OpenBLAS sleep


def medians(calls, repeats):
    """Return the median time of each call in microseconds."""
    spent = [[] for _ in calls]
    for _ in range(ROUNDS):
        for call, times in zip(calls, spent, strict=True):
            time.sleep(REST)
            for _ in range(FIRST):
                call()
            for _ in range(-(-repeats // ROUNDS)):
                start = time.perf_counter()
                call()
                times.append(time.perf_counter() - start)
    return [1e6 * float(np.median(times)) for times in spent]


def measure(columns, components, repeats, dtype):
    """Yield rows, scikit-learn's time and ours."""
    rng = np.random.default_rng(0)
    X = (rng.normal(size=(5000, columns)) / np.sqrt(np.arange(1, columns + 1)) + 1).astype(dtype)
    theirs = PCA(components, svd_solver="full").fit(X)
    ours = PrimedPCA(components, random_state=0, tol=0.05).fit(X)
    for rows in ROWS:
        few = X[:rows]
        np.testing.assert_allclose(
            np.abs(ours.transform(few)), np.abs(theirs.transform(few)), atol=0.1
        )
        calls = [lambda few=few: theirs.transform(few), lambda few=few: ours.transform(few)]
        yield rows, *medians(calls, max(200, repeats // rows))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--columns", type=int, default=768)
    parser.add_argument("--components", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=2000)
    given = parser.parse_args()
    print(f"{given.columns} columns to {given.components} components, median time in microseconds")
    print(f"{'dtype':<8} {'rows':>6} {'scikit-learn':>13} {'primedpca':>10} {'ratio':>6}")
    for dtype in ("float64", "float32"):
        for rows, theirs, ours in measure(given.columns, given.components, given.repeats, dtype):
            print(f"{dtype:<8} {rows:>6} {theirs:>13.0f} {ours:>10.0f} {ours / theirs:>6.2f}")


if __name__ == "__main__":
    main()
