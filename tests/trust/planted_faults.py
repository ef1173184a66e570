"""Thirty faults planted in the numerical core by hand: each must be caught by quick tests.

    python tests/trust/planted_faults.py            # all of them; exit code 0: all caught
    python tests/trust/planted_faults.py 3 17       # some of them, counted from 1

Every fault is a wrong sign, an off-by-one, a dropped rounding term, a swapped gap or something like
these that a reviewer could overlook.  It is applied to a copy of the sources, never to the sources.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).parent))
from mutation import PACKAGE, ROOT, Copy

BOUNDS = ["tests/certify/test_bounds.py", "tests/certify/test_certify.py"]
INERTIA = ["tests/certify/test_inertia.py", "tests/certify/test_certify.py"]
PROBES = ["tests/certify/test_probes.py", "tests/certify/test_certify.py"]
CHECKS = ["tests/certify/test_checked.py", "tests/certify/test_explicit.py"]
STREAMS = ["tests/session/test_streaming.py", "tests/priming/test_streams.py"]
OPERATOR = ["tests/operator", "tests/trust/test_properties.py"]
PROPERTIES = ["tests/solve/test_refine.py", "tests/trust/test_properties.py"]
#: File, text, text with the fault, tests.
FAULTS = [
    # _certify/bounds.py: lower and upper bounds on variances
    ("_certify/bounds.py", "np.maximum(evidence.values - evidence.rounding, 0.0)",
     "np.maximum(evidence.values + evidence.rounding, 0.0)", BOUNDS),
    ("_certify/bounds.py", "np.maximum(top, mu) + 2 * evidence.rounding, mu",
     "np.maximum(top, mu), mu", BOUNDS),
    ("_certify/bounds.py", "mu * np.eye(q) - (0.0 if", "mu * np.eye(q) - 4 * (0.0 if", CHECKS),
    ("_certify/bounds.py", "eigvalsh(whole)[::-1][:p], theta)", "eigvalsh(whole)[:p], theta)",
     BOUNDS),
    # angles: gaps, sizes, second order
    ("_certify/bounds.py", "gap = theta[:k] - up[1 : k + 1]",
     "gap = theta[:k] - np.append(theta[1:k], up[k])", BOUNDS),
    ("_certify/bounds.py", "np.minimum(theta[: k - 1] - e - theta[1:k], gap[1:])", "gap[1:]",
     BOUNDS),
    ("_certify/bounds.py", "return found + np.linalg.norm(evidence.residual, axis=0) if",
     "return np.linalg.norm(evidence.residual, axis=0) if", BOUNDS),
    ("_certify/bounds.py", "sines = np.hypot(inside, z)", "sines = z", BOUNDS),
    ("_certify/bounds.py", "theta[b] - up[b + 1])) - 4 * evidence.rounding",
     "theta[b] - up[b + 1]))", BOUNDS),
    ("_certify/bounds.py", "size * math.sqrt(1 + kappa**2) / safe", "size / safe", BOUNDS),
    ("_certify/bounds.py", "up[1 : p + 1]) + 1).tolist()", "up[1 : p + 1])).tolist()", BOUNDS),
    ("_certify/bounds.py", "axis=(-2, -1)) ** (1 / 32)", "axis=(-2, -1)) ** (1 / 16)", BOUNDS),
    ("_certify/bounds.py", "best = min(best, rho + size**2)", "best = min(best, rho)",
     BOUNDS),
    # _certify/inertia.py: proofs by Cholesky
    ("_certify/inertia.py", "((m + 2) * trace + forming)", "forming", INERTIA),
    ("_certify/inertia.py", "math.nextafter(found + error, math.inf)",
     "math.nextafter(found, math.inf)", INERTIA),
    ("_certify/inertia.py", "bounds[j:] = _bound", "bounds[j - 1 :] = _bound", INERTIA),
    ("_certify/inertia.py", "return info == 0 and bool(np.all(diagonal > 0))", "return True",
     INERTIA),
    # _certify/probes.py and checks.py: random vectors
    ("_certify/probes.py", "gammaincinv(COUNT / 2, failure)", "gammaincinv(COUNT / 2, 1 - failure)",
     PROBES),
    ("_certify/probes.py", "(middle, high) if value < height", "(middle, high) if value > height",
     PROBES),
    ("_certify/probes.py", "np.linalg.norm(now, ord=2)) / tau",
     "np.linalg.norm(now, ord=2)) / self.norm", PROBES),
    ("_certify/checks.py", "return math.sqrt(s * low)", "return math.sqrt(s * high) * 2", CHECKS),
    ("_certify/checks.py", "found = self.vz[:m] - projected @ self.vo[:m]",
     "found = self.vz[:m] + projected @ self.vo[:m]", CHECKS),
    # streams
    ("_certify/sketch_bounds.py", "(left + state.loss + state.rounding)", "(left + state.rounding)",
     STREAMS),
    ("priming/sketch.py", "loss=one.loss + other.loss", "loss=one.loss", STREAMS),
    ("priming/sketch.py", "loss=state.loss + lost", "loss=state.loss", STREAMS),
    # refining, means, divisors
    ("_solve/refine.py", "turn[:, :n_components]", "turn[:, -n_components:]", PROPERTIES),
    ("_operator/statistics.py", "max(0.0, total - float(away @ away))",
     "max(0.0, total + float(away @ away))", OPERATOR),
    ("_operator/kernels.py", "y = y - (lift if root is None else root[:, None] * lift)",
     "y = y - (lift if root is None else lift)", OPERATOR),
    ("_operator/scaling.py", "variances * (data.weight / (data.weight - 1))",
     "variances * ((data.weight - 1) / data.weight)", OPERATOR),
    ("_core/outward_rounding.py", "* (1 + 8 * LAST_BITS)", "* (1 - 8 * LAST_BITS)",
     ["tests/core/test_outward.py"]),
]  # fmt: skip
FUZZ = 150  # problems, where no test fails


def main() -> int:
    """Plant each fault, and print what caught it."""
    chosen = [int(word) for word in sys.argv[1:]] or range(1, len(FAULTS) + 1)
    missed = 0
    with TemporaryDirectory() as folder:
        copy = Copy(folder)
        for number in chosen:
            file, old, new, tests = FAULTS[number - 1]
            text = (ROOT / "src" / PACKAGE / file).read_text(encoding="utf-8")
            assert text.count(old) == 1, f"{number}: {file} has {text.count(old)} times {old!r}"
            begun = time.monotonic()
            caught = copy.judged(file, text.replace(old, new).encode(), tests, FUZZ)
            missed += not caught
            taken = time.monotonic() - begun
            print(f"{number}: {caught or 'NOT CAUGHT'} ({taken:.0f} s): {file}: {new}", flush=True)
    print(f"{len(chosen) - missed} of {len(chosen)} planted faults caught")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
