"""Fits on one GPU beside the fastest peers there: ``python benchmarks/gpu.py [SECTION ...]``.

Data are on the card unless a section says otherwise.  Every fit gets a newly allocated copy, so
that nothing prepared for an earlier one is used again; the first fit is printed beside the median
of at least nine.  Peers are tried over a grid of settings, and the fastest that is within pi/128
of the truth counts.  Every check has a limit, printed beside what was measured.

``--out FOLDER`` gets ``gpu.json`` (all rows), ``gpu.csv`` and ``gpu.md``.  Data sets are read from
the folder that PRIMEDPCA_DATA names; those that are not there are left out.
"""

import argparse
import csv
import json
import math
import os
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import torch

from primedpca import PrimedPCA, prime
from primedpca.metrics import angles

K, REPEATS, WANTED = 16, 9, math.pi / 128
ROWS = []
QUICK = False


def note(section, what, method, value, unit="ms", limit=None, **more):
    """Print and keep one result, with its limit."""
    row = {"section": section, "data": what, "method": method, "value": value, "unit": unit}
    row |= {"limit": limit, "met": None if limit is None else bool(value <= limit), **more}
    ROWS.append(row)
    end = "" if limit is None else f"  limit {limit:.4g}: {'met' if row['met'] else 'MISSED'}"
    extra = "".join(f"  {name} {_short(found)}" for name, found in more.items())
    print(f"{section:8s} {what:24s} {method:38s} {value:10.4g} {unit}{extra}{end}", flush=True)
    return row


def _short(value):
    return f"{value:.3g}" if isinstance(value, float) else value


# -- data --------------------------------------------------------------------------------------


def folder():
    """The folder of the data sets."""
    return Path(os.environ.get("PRIMEDPCA_DATA", "."))


def falling(n, d, power):
    """Gaussian rows whose standard deviations fall as a power, in a random basis."""
    made = torch.Generator(device="cuda").manual_seed(0)
    scales = torch.arange(1, d + 1, device="cuda", dtype=torch.float32) ** -power
    basis, _ = torch.linalg.qr(torch.randn(d, d, generator=made, device="cuda"))
    return (torch.randn(n, d, generator=made, device="cuda") * scales) @ basis.T


def planted(n, d, rank, dtype=torch.float32):
    """Rows with a falling spectrum of a rank, plus noise, made in slices of the longer side."""
    made = torch.Generator(device="cuda").manual_seed(0)
    scales = torch.arange(1, rank + 1, device="cuda", dtype=torch.float32) ** -0.8
    left = torch.randn(n, rank, generator=made, device="cuda") * scales
    x = torch.empty(n, d, dtype=dtype, device="cuda")
    step = max(1, 2**28 // n)
    for a in range(0, d, step):
        right = torch.randn(rank, min(step, d - a), generator=made, device="cuda")
        part = left @ right
        part += 0.3 * torch.randn(part.shape, generator=made, device="cuda")
        if dtype == torch.uint8:
            part = (25 * part + 128).round_().clamp_(0, 255)
        x[:, a : a + step] = part.to(dtype)
    return x


def mnist():
    """Rows of MNIST."""
    with np.load(folder() / "mnist_train.npz") as file:
        images = file[file.files[0]].reshape(60000, -1).astype("float32")
    return torch.tensor(images, device="cuda")


def cifar():
    """Rows of CIFAR-10."""
    parts = []
    for name in "abc":
        with np.load(folder() / f"cifar10_train_{name}.npz") as file:
            found = file[file.files[0]]
            parts.append(found.reshape(len(found), -1))
    return torch.tensor(np.concatenate(parts).astype("float32"), device="cuda")


#: name -> (data, limit in ms without a proof, limit in ms with one)
SETS = {
    "MNIST": (mnist, 4.5, 5.5),
    "50000x3072": (lambda: falling(50_000, 3_072, 1.0), 6.0, 7.5),
    "400000x4096": (lambda: falling(400_000, 4_096, 0.7), 25.0, 37.0),
    "CIFAR-10": (cifar, None, None),
    "2000x2000000": (lambda: planted(2_000, 2_000_000, 200), None, None),
    "100000x20000 float16": (lambda: planted(100_000, 20_000, 200, torch.float16), None, None),
}


# -- methods -----------------------------------------------------------------------------------


def ours(k=K, **options):
    """The estimator, with these options."""
    return lambda x: PrimedPCA(k, random_state=0, **options).fit(x).components_


def centred(x):
    """Centred rows in float32, as every peer but pca_lowrank needs them."""
    x = x.float()
    return x - x.mean(dim=0)


def covariance_eigh(x):
    """All eigenvectors of the smaller of the covariance and the Gram matrix."""
    away = centred(x)
    if x.shape[0] < x.shape[1]:
        left = torch.linalg.eigh(away @ away.T)[1][:, -K:].flip(1)
        return torch.nn.functional.normalize(away.T @ left, dim=0).T
    return torch.linalg.eigh(away.T @ away)[1][:, -K:].flip(1).T


def lobpcg(x):
    """The leading eigenvectors of the covariance matrix, by LOBPCG."""
    away = centred(x)
    return torch.lobpcg(away.T @ away, k=K, niter=40)[1].T


def svds(x):
    """CuPy's Lanczos iteration on the centred rows."""
    import cupy
    from cupyx.scipy.sparse.linalg import svds as lanczos

    return torch.from_dlpack(lanczos(cupy.from_dlpack(centred(x)), k=K)[2][::-1].copy())


def eigsh(x):
    """CuPy's eigsh on the covariance matrix."""
    import cupy
    from cupyx.scipy.sparse.linalg import eigsh as lanczos

    away = centred(x)
    square = cupy.from_dlpack(away.T @ away)
    return torch.from_dlpack(cupy.ascontiguousarray(lanczos(square, k=K)[1][:, ::-1].T))


def peers(shape):
    """Yield name and function of every peer and setting for data of this shape."""
    n, d = shape
    for q in (K + 8,) if QUICK else (K + 4, 2 * K, 3 * K):
        for passes in (2, 4) if QUICK else (2, 4, 8, 15):
            setting = f"(q={q}, niter={passes})"
            yield (
                "torch.pca_lowrank" + setting,
                lambda x, q=q, n=passes: torch.pca_lowrank(x.float(), q=q, niter=n)[2][:, :K].T,
            )
    yield (
        "torch.svd_lowrank(q=32, niter=4)",
        lambda x: torch.svd_lowrank(centred(x), q=32, niter=4)[2][:, :K].T,
    )
    if min(n, d) <= 8192:
        yield "covariance + eigh", covariance_eigh
    if d <= n:
        yield "torch.lobpcg", lobpcg
        yield "CuPy eigsh", eigsh
    yield "CuPy svds", svds


def leading(square):
    """The leading eigenvectors of a matrix in float64, ``(K, order)``."""
    if square.shape[0] <= 8192:
        return torch.linalg.eigh(square)[1][:, -K:].flip(1).T
    made = torch.Generator(device="cuda").manual_seed(1)
    basis = torch.randn(len(square), 96, generator=made, device="cuda", dtype=torch.float64)
    for _ in range(60):  # far more than the planted spectra need
        basis = torch.linalg.qr(square @ basis)[0]
    turn = torch.linalg.eigh(basis.T @ square @ basis)[1][:, -K:].flip(1)
    return (basis @ turn).T


def truth(x):
    """Components in float64, from a covariance or Gram matrix that is summed in float64."""
    n, d = x.shape
    if n < d:
        square = torch.zeros(n, n, dtype=torch.float64, device="cuda")
        for part in x.split(100_000, dim=1):
            away = part.double()
            away -= away.mean(dim=0)
            square += away @ away.T
        left = leading(square).T
        right = torch.cat([(p.double() - p.double().mean(0)).T @ left for p in x.split(100_000, 1)])
        return torch.nn.functional.normalize(right, dim=0).T.cpu().numpy()
    mean = sum(part.double().sum(dim=0) for part in x.split(20_000)) / n
    square = torch.zeros(d, d, dtype=torch.float64, device="cuda")
    for part in x.split(20_000):
        away = part.double() - mean
        square += away.T @ away
    return leading(square).cpu().numpy()


def timed(fit, x, repeats, fresh=torch.clone):
    """Milliseconds of the first fit and the median of the others, and the components."""
    times = []
    for _ in range(repeats + 1):
        own = fresh(x)
        torch.cuda.synchronize()
        begun = time.perf_counter()
        found = fit(own)
        torch.cuda.synchronize()
        times.append(1e3 * (time.perf_counter() - begun))
        del own
        if len(times) > 1 and times[-1] > 3000:  # a slow one needs no median
            break
    found = found.detach().cpu().numpy() if torch.is_tensor(found) else found
    return times[0], float(np.median(times[1:] or times)), found.astype("float64")


# -- sections ----------------------------------------------------------------------------------


def fits(asked):
    """Fits of dense data that are on the card, with and without a proof, and the peers."""
    for name in asked.sets or SETS:
        make, bare, proven = SETS[name]
        try:
            x = make()
        except FileNotFoundError as error:
            print(f"fits     {name}: left out, {error}")
            continue
        true = truth(x)
        methods = [
            ("primedpca, certificate='none'", ours(certificate="none", tol=WANTED), bare),
            ("primedpca, default (proven)", ours(), proven),
        ]
        if not asked.no_peers:
            methods += [(*peer, None) for peer in peers(x.shape)]
        best = {}
        for what, fit, limit in methods:
            try:
                first, median, found = timed(fit, x, asked.repeats)
            except Exception as error:  # a peer that cannot do it is left out, with its own words
                words = f"{type(error).__name__}: {str(error)[:70]}"
                print(f"fits     {name:24s} {what:38s} failed: {words}", flush=True)
                torch.cuda.empty_cache()
                continue
            worst = float(angles(found, true).max())
            note("fits", name, what, median, limit=limit, first=first, worst=worst)
            if worst <= WANTED:
                kind = "ours" if "default" in what else "bare" if "primedpca" in what else "peer"
                if kind not in best or median < best[kind][0]:
                    best[kind] = (median, what)
        if {"ours", "peer"} <= best.keys():
            ratio = best["ours"][0] / best["peer"][0]
            note("fits", name, "proven / best peer", ratio, "times", 1 / 1.3, peer=best["peer"][1])
        del x, true
        torch.cuda.empty_cache()


def passes(asked):
    """One pass over the data: two products with some columns."""
    from primedpca._operator.operator import Centred

    def one(what, x, columns, limit, floor):
        data = Centred(x).implicitly_centred()
        v = torch.linalg.qr(torch.randn(x.shape[1], columns, device="cuda"))[0]
        for _ in range(3):
            data.covariance_product(v)
        torch.cuda.synchronize()
        times = []
        for _ in range(asked.repeats):
            begun = time.perf_counter()
            found = data.covariance_product(v)
            torch.cuda.synchronize()
            times.append(1e3 * (time.perf_counter() - begun))
        mean = sum(p.double().sum(dim=0) for p in x.split(20_000)) / x.shape[0]
        wanted = 0
        for part in x.split(20_000):
            away = part.double() - mean
            wanted = wanted + away.T @ (away @ v.double())
        error = float((found.double() * x.shape[0] - wanted).norm() / wanted.norm())
        note("passes", what, f"{columns} columns", float(np.median(times)), limit=limit,
             error=error, reads=floor)  # fmt: skip

    x = falling(400_000, 4_096, 0.7)
    two = 2 * x.nbytes / 4.2e9
    one("400000x4096 float32", x, 20, 5.0, two)
    one("400000x4096 float32", x, 32, 5.0, two)
    del x
    x = planted(200_000, 20_000, 100, torch.uint8)
    two = 2 * x.nbytes / 4.2e9
    one("200000x20000 uint8", x, 20, 2.5 * two, two)


def sparse_sets():
    """Yield name and SciPy matrix of every sparse set."""
    import scipy.sparse as sp

    def read(name):
        with np.load(folder() / name) as file:
            parts = (file["data"], file["indices"], file["indptr"])
            return sp.csr_array(parts, shape=tuple(file["shape"])).astype("float32")

    for title, name in (("20 Newsgroups", "newsgroups20_bow.npz"), ("PBMC3k", "pbmc3k_counts.npz")):
        try:
            x = read(name)
        except (FileNotFoundError, KeyError) as error:
            print(f"sparse   {title}: left out, {error}")
            continue
        yield f"{title} counts", x
        sums = np.asarray(x.sum(axis=1)).ravel()
        if title == "PBMC3k":
            scaled = sp.csr_array(x.multiply((1e4 / np.maximum(sums, 1))[:, None]))
            scaled.data = np.log1p(scaled.data)
            yield "PBMC3k log-normalised", scaled.astype("float32")
        else:
            seen = np.bincount(x.indices, minlength=x.shape[1])
            weights = (np.log((1 + x.shape[0]) / (1 + seen)) + 1).astype("float32")
            found = sp.csr_array(x.multiply(weights[None]))
            size = np.sqrt(np.asarray(found.multiply(found).sum(axis=1)).ravel())
            yield (
                "20 Newsgroups TF-IDF",
                sp.csr_array(found.multiply(1 / np.maximum(size, 1e-9)[:, None])).astype("float32"),
            )


def sparse(asked):
    """Sparse data, k = 50, proven; our own fit on two cores, and CuPy's svds."""
    from primedpca.engines import LocalEngine

    def lanczos(x):
        """CuPy's svds of an implicitly centred matrix."""
        import cupy
        import cupyx.scipy.sparse as cs
        from cupyx.scipy.sparse.linalg import LinearOperator
        from cupyx.scipy.sparse.linalg import svds as found

        there = cs.csr_matrix(x)
        back, mean = there.T.tocsr(), cupy.asarray(np.asarray(x.mean(axis=0)).ravel())
        operator = LinearOperator(
            x.shape,
            matvec=lambda v: there @ v.ravel() - mean @ v.ravel(),
            rmatvec=lambda u: back @ u.ravel() - mean * u.sum(),
            dtype=np.float32,
        )
        return found(operator, k=50)[2][::-1].get()

    for name, x in sparse_sets():
        tries = min(asked.repeats, 5)
        begun = time.perf_counter()
        host = PrimedPCA(50, random_state=0, engine=LocalEngine(2)).fit(x)
        near = 1e3 * (time.perf_counter() - begun)
        note("sparse", name, "primedpca on two cores", near, status=host.status_.name)
        for certificate in ("auto", "none"):
            fit = ours(50, device="cuda", certificate=certificate)
            first, median, found = timed(fit, x, tries, lambda x: x.copy())
            worst = float(angles(found, host.components_.astype("f8")).max())
            limit = near / 4 if certificate == "auto" else None
            words = "default (proven)" if limit else "certificate='none'"
            note("sparse", name, f"primedpca, {words}", median, limit=limit, first=first,
                 from_host=worst)  # fmt: skip
        try:
            first, median, found = timed(lanczos, x, 1, lambda x: x)
            worst = float(angles(found.astype("f8"), host.components_.astype("f8")).max())
            note("sparse", name, "CuPy svds, centred implicitly", median, from_host=worst)
        except Exception as error:
            print(f"sparse   {name}: CuPy svds failed: {str(error)[:80]}", flush=True)


def steps(asked):
    """Steps of the stochastic primings of the library."""
    from primedpca.priming import EigenGame, MuEigenGame, Oja

    x = mnist()
    for kind in (EigenGame, Oja, MuEigenGame):
        times = []
        for _ in range(3):
            run = prime(x.clone(), kind(steps=2000), K, batch_size=1000, random_state=0)
            for _ in range(500):
                next(run)
            torch.cuda.synchronize()
            begun = time.perf_counter()
            for _ in range(1000):
                next(run)
            torch.cuda.synchronize()
            times.append(time.perf_counter() - begun)  # seconds of 1,000 steps: ms of one
        note("steps", "MNIST, batches of 1,000", kind.__name__, min(times), limit=0.08)


def pinned_rate(size=2**31):
    """Bytes a second from page-locked memory to the card."""
    host = torch.empty(size, dtype=torch.uint8, pin_memory=True)
    card = torch.empty(size, dtype=torch.uint8, device="cuda")
    best = math.inf
    for _ in range(3):
        torch.cuda.synchronize()
        begun = time.perf_counter()
        card.copy_(host, non_blocking=True)
        torch.cuda.synchronize()
        best = min(best, time.perf_counter() - begun)
    return size / best


def streamed(asked):
    """Data from host memory and from disk, with the card's memory limited."""
    rate = pinned_rate()
    note("streamed", "2 GiB", "page-locked copy", rate / 1e9, "GB/s")
    d = 4096
    size = asked.stream_gb * 1e9

    def fill(n):
        x = np.empty((n, d), dtype=np.float32)
        some = falling(20_000, d, 0.7).cpu().numpy()
        for a in range(0, n, len(some)):
            x[a : a + len(some)] = some[: min(len(some), n - a)]
        return x

    def fit(x, what, limit_gb, certificate):
        torch.cuda.reset_peak_memory_stats()
        begun = time.perf_counter()
        options = {"max_memory": f"{limit_gb:.3g}GB", "certificate": certificate}
        pca = PrimedPCA(K, device="cuda", random_state=0, **options).fit(x)
        torch.cuda.synchronize()
        seconds = time.perf_counter() - begun
        peak = torch.cuda.max_memory_allocated() / 1e9
        ideal = pca.n_passes_ * size / rate
        what = f"{size / 1e9:.0f} GB from {what}"
        note("streamed", what, f"{pca.n_passes_:.0f} passes, {certificate}", seconds, "s",
             1.3 * ideal, status=pca.status_.name, peak_gb=peak)  # fmt: skip

    x = fill(int(size / (4 * d)))
    limit = asked.stream_gb / 3
    for certificate in ("none", "auto"):
        fit(x, "memory", limit, certificate)
    with tempfile.TemporaryDirectory(dir=asked.scratch) as place:
        path = Path(place) / "x.npy"
        np.save(path, x)
        del x
        fit(path, "disk", limit, "auto")


def lobsters(asked):
    """The size of the paper's largest set: bytes, 100 GB on the card."""
    n, d = 6_654, int(15_116_544 * asked.lobster_share)
    begun = time.perf_counter()
    x = planted(n, d, 64, torch.uint8)
    torch.cuda.synchronize()
    print(f"lobsters made in {time.perf_counter() - begun:.1f} s", flush=True)
    from primedpca._operator.gpu_products import counted_square

    torch.cuda.reset_peak_memory_stats()
    for certificate in ("auto", "none"):
        times = []
        for _ in range(2):
            begun = time.perf_counter()
            pca = PrimedPCA(K, certificate=certificate, random_state=0).fit(x)
            torch.cuda.synchronize()
            times.append(time.perf_counter() - begun)
        peak = torch.cuda.max_memory_allocated() / 1e9
        words = f"{type(pca.plan_.priming).__name__}, certificate={certificate!r}"
        note("lobsters", f"{n}x{d} uint8", words, min(times), "s",
             3.0 * asked.lobster_share if certificate == "auto" else None,
             first=times[0], status=pca.status_.name, peak_gb=peak)  # fmt: skip
    # The reference: the exact Gram matrix, centred and decomposed here.
    square = torch.zeros(n, n, dtype=torch.float64, device="cuda")
    for part in x.split(2**16, dim=1):
        square += counted_square(part)[0]
    square -= square.mean(dim=0)
    square -= square.mean(dim=1)[:, None]
    values = torch.linalg.eigvalsh(square)[-K:].flip(0).cpu().numpy() / (n - 1)
    off = float(np.abs(pca.explained_variance_ / values - 1).max())
    note("lobsters", f"{n}x{d} uint8", "variances from the reference", off, "", 1e-5)


def agree(asked):
    """Random problems of all types: bounds hold, and repeated fits have the same bits."""
    rng = np.random.default_rng(0)
    kinds = ["float32", "float64", "float16", "uint8", "int8"]
    violated = different = unproven = 0
    for i in range(asked.problems):
        n, d = int(rng.integers(50, 3000)), int(rng.integers(20, 600))
        power, kind = rng.choice([0.3, 0.7, 1.5, 3.0]), kinds[i % len(kinds)]
        scale = np.arange(1.0, d + 1) ** -power
        basis = np.linalg.qr(rng.standard_normal((d, d)))[0]
        x = rng.standard_normal((n, d)) * scale @ basis + rng.choice([0.0, 3.0])
        if "int" in kind:
            info = np.iinfo(kind)
            middle = (info.min + info.max) / 2
            x = np.clip(np.rint(x * 30 / x.std() + middle), info.min, info.max)
        x = x.astype(kind)
        wide = x.astype("float64") - x.astype("float64").mean(axis=0)
        true = np.linalg.eigh(wide.T @ wide)[1][:, ::-1][:, :8].T
        given = torch.tensor(x, device="cuda")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            one, two = (PrimedPCA(8, random_state=i).fit(given) for _ in range(2))
        different += one.components_.tobytes() != two.components_.tobytes()
        unproven += one.status_.name not in ("CERTIFIED", "EXACT")
        found = one.components_.astype("float64")
        found /= np.linalg.norm(found, axis=1)[:, None]
        # By the sine: the cosine of a small angle cannot be told from 1.
        rest = found - np.einsum("ij,ij->i", found, true)[:, None] * true
        turned = np.arcsin(np.minimum(np.linalg.norm(rest, axis=1), 1.0))
        violated += bool((turned > one.angle_bounds_ + 1e-8).any())
    what = f"{asked.problems} random problems"
    note("agree", what, "violated bounds", violated, "", 0)
    note("agree", what, "repeated fits with other bits", different, "", 0)
    note("agree", what, "not proven", unproven, "")


SECTIONS = {
    function.__name__: function
    for function in (steps, fits, passes, sparse, agree, streamed, lobsters)
}


# -- tables ------------------------------------------------------------------------------------


def table(rows):
    """A Markdown table of all rows."""
    lines = ["| section | data | method | measured | limit |", "|---|---|---|---|---|"]
    for row in rows:
        limit = "" if row["limit"] is None else f"{row['limit']:.3g}"
        limit += "" if row["met"] in (None, True) else " (missed)"
        cells = [row["section"], row["data"], row["method"]]
        lines.append(f"| {' | '.join(cells)} | {row['value']:.3g} {row['unit']} | {limit} |")
    return "\n".join(lines) + "\n"


def write(out):
    """Write all rows as JSON, CSV and Markdown."""
    out.mkdir(parents=True, exist_ok=True)
    (out / "gpu.json").write_text(json.dumps(ROWS, indent=1) + "\n")
    head = ["section", "data", "method", "value", "unit", "limit", "met"]
    with (out / "gpu.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, head, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(ROWS)
    words = (
        f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, {time.strftime('%Y-%m-%d')}"
    )
    (out / "gpu.md").write_text(f"{words}\n\n{table(ROWS)}")


def main():
    """Read the arguments, run the sections, and write the rows after each."""
    global QUICK
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=", ".join(SECTIONS))
    parser.add_argument("--sets", nargs="*", choices=list(SETS), help="of section fits")
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument("--quick", action="store_true", help="few settings of the peers")
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--problems", type=int, default=100, help="of section agree")
    parser.add_argument("--stream-gb", type=float, default=60.0, help="of section streamed")
    parser.add_argument("--scratch", type=Path, help="folder for the file of section streamed")
    parser.add_argument("--lobster-share", type=float, default=1.0, help="share of the columns")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    QUICK = asked.quick
    warnings.simplefilter("ignore")
    print(torch.cuda.get_device_name(), "torch", torch.__version__, flush=True)
    for name in asked.sections or SECTIONS:
        begun = time.perf_counter()
        try:
            SECTIONS[name](asked)
        except Exception as error:  # the others are still measured
            print(f"{name} failed: {type(error).__name__}: {error}", flush=True)
            import traceback

            traceback.print_exc()
        torch.cuda.empty_cache()
        print(f"-- {name}: {time.perf_counter() - begun:.0f} s", flush=True)
        if asked.out is not None:
            write(asked.out)


if __name__ == "__main__":
    main()
