"""One large-scale run: certified components, and EigenGame and pPCA during training."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from primedpca._core.arrays import dtype_name, to_numpy
from primedpca._core.orthonormal import basis_of
from primedpca._core.units import as_bytes
from primedpca._operator.operator import Centred
from primedpca._planning.plan import make_plan
from primedpca._solve.driver import Goal, solve
from primedpca._solve.prime import prime
from primedpca._solve.refine import refine_span
from primedpca.priming import EigenGame
from primedpca.protocols import Array, DataSource
from primedpca.result import Solution
from primedpca.sources import as_source
from primedpca.sources.memory.dense import DenseSource
from primedpca.sources.wrappers.on_device import on_device, torch_on
from primedpca_paper.large_scale.measures import Measured, measure
from primedpca_paper.large_scale.results import Evaluation, RunFolder
from primedpca_paper.large_scale.thumbnails import Gallery
from primedpca_paper.records import machine_of, versions

__all__ = ["SHOWN", "run_large_scale"]

#: Steps after which images of the components are kept, besides the last one.
SHOWN = (30, 300)
TOL = np.pi / 1024
#: Number of evaluations of a run at which refining is timed; the median counts for all.
TIMED = 3


def run_large_scale(
    source: Any,
    folder: str | Path,
    *,
    name: str,
    n_components: int = 8,
    extra: int = 0,
    steps: int = 300,
    batch_size: int = 1024,
    learning_rate: float | str = "auto",
    share: float = 0.1,
    seed: int | Sequence[int] = 0,
    n_evaluations: int = 40,
    device: str = "cpu",
    max_memory: Any = None,
    resume: bool = False,
    progress: Callable[[str], None] = lambda words: None,
) -> Path:
    """Train EigenGame on data of any width and measure the captured variance.

    First the components are found and certified with ``priming="auto"``.  Then EigenGame is
    trained as in the paper's section on large-scale data.  After some of its steps the variance
    along its vectors is measured: raw, refined with all rows (pPCA), and refined with some of the
    rows.  One pass over the data measures all three.

    Parameters
    ----------
    source : anything that :func:`primedpca.as_source` reads
        The data.  Images of the components are kept if the source has an ``image_shape``
        ``(height, width, channels)``.
    folder : path
        Results folder.  A folder that holds results is refused unless ``resume`` is set.
    name : str
        Name of the data in figures.
    n_components : int, default=8
        Number of components k; 8 in the paper.
    extra : int, default=0
        Number of extra directions l; 0 in the paper.
    steps : int, default=300
        Number of steps of EigenGame; with 0 the components are only certified.
    batch_size : int, default=1024
        Rows in a mini-batch.
    learning_rate : float or "auto", default="auto"
        Learning rate of EigenGame.
    share : float, default=0.1
        Fraction of the rows for the cheaper refining; 0.1 in the paper.
    seed : int or sequence of int, default=0
        Seeds, with one training run for each.
    n_evaluations : int, default=40
        Number of evaluations at evenly spaced steps, with more after steps 1, 30 and 300.
    device : str, default="cpu"
        ``"cpu"``, or a CUDA device, to which all data are moved.
    max_memory : str or number, optional
        Memory limit for the certified components, as for the estimator.
    resume : bool, default=False
        Continue in a folder that holds results; finished parts are not repeated.
    progress : callable, optional
        Function that is called with a sentence on each step of the work.

    Returns
    -------
    Path
        The results folder.
    """
    given = as_source(source)
    if device != "cpu":
        torch_on(device)
    seeds = (seed,) if isinstance(seed, int) else tuple(seed)
    settings = {
        "name": name,
        "shape": list(given.shape),
        "dtype": dtype_name(given.dtype),
        "image_shape": list(getattr(given, "image_shape", None) or ()) or None,
        "n_components": n_components,
        "extra": extra,
        "steps": steps,
        "batch_size": batch_size,
        "learning_rate": learning_rate,
        "share": share,
        "seeds": list(seeds),
        "evaluations": _evaluations(steps, n_evaluations),
        "machine": machine_of(device),
    }
    _check(settings)
    results = RunFolder(Path(folder), settings, resume)
    gallery = Gallery(results, settings["image_shape"])
    shown = held_on(given, device)
    if results.certified is None:
        progress(f"{name}: certifying {n_components} components of {given.shape[1]:,} features")
        _certify(shown, results, gallery, max_memory)
    truth = results.arrays("certified")["scores"]
    if not steps:
        return results.path
    training = _Training(Centred(shown), results, truth, gallery if gallery.wanted else None)
    for number in seeds:
        if not results.rows_of(number).is_file():
            results.write_rows(number, training.run(number, progress))
    return results.path


def _check(settings: dict[str, Any]) -> None:
    """Validate the settings before anything is written."""
    n, d = settings["shape"]
    p = settings["n_components"] + settings["extra"]
    if settings["n_components"] < 1 or settings["extra"] < 0 or p > min(n, d):
        raise ValueError(
            f"`n_components`={settings['n_components']} and `extra`={settings['extra']} must be "
            f"at least 1 and 0, and together at most min(n, d)={min(n, d)}."
        )
    if not 0 < settings["share"] <= 1:
        raise ValueError(f"`share`={settings['share']} must lie in (0, 1].")
    if settings["steps"] < 0:
        raise ValueError(f"`steps`={settings['steps']} must be at least 0.")
    if settings["steps"]:
        EigenGame(learning_rate=settings["learning_rate"], steps=settings["steps"])


def _evaluations(steps: int, count: int) -> list[int]:
    if steps < 1:
        return []
    spaced = np.linspace(1, steps, min(count, steps)).round().astype(int)
    return sorted({*spaced.tolist(), *(step for step in SHOWN if step <= steps)})


def _certify(source: Any, results: RunFolder, gallery: Gallery, max_memory: Any) -> None:
    data = Centred(source)
    k = results.settings["n_components"]
    clock = time.perf_counter()
    plan = make_plan(data, k, "auto", "auto", tol=TOL, max_memory=as_bytes(max_memory))
    solution = solve(data, plan, Goal(tol=TOL))
    seconds = time.perf_counter() - clock
    found = solution.decomposition
    gallery.keep_data(source, found.mean)
    gallery.keep("certified", found.components)
    data = Centred.given(source, found.mean)
    scores = to_numpy(data.forward(found.components.T)).astype(np.float64)
    facts = _facts(solution) | {"plan": str(plan), "seconds": seconds, "versions": versions()}
    results.write_certified(facts | {"max_memory": max_memory}, scores)


def _facts(solution: Solution) -> dict[str, Any]:
    found, proof = solution.decomposition, solution.certificate
    assert proof is not None
    return {
        "explained_variance": found.explained_variance.tolist(),
        "total_variance": found.total_variance,
        "angle_bounds": proof.angle_bounds.tolist(),
        "eigenvalue_bounds": proof.eigenvalue_bounds.tolist(),
        "clusters": [list(run) for run in proof.clusters],
        "kind": proof.kind,
        "failure_probability": proof.failure_probability,
        "certificate": str(proof),
        "status": str(solution.status),
        "passes": solution.passes,
    }


@dataclass
class _Training:
    data: Centred
    results: RunFolder
    truth: np.ndarray
    gallery: Gallery | None

    def run(self, seed: int, progress: Callable[[str], None]) -> list[Evaluation]:
        """Return all evaluations of one seed; images are kept for the first seed."""
        refinings: dict[str, list[float]] = {"eigengame": [0.0], "ppca": [], "ppca_share": []}
        rows = [
            replace(row, seconds=row.seconds + float(np.median(refinings[row.method])))
            for row in list(self._follow(seed, progress, refinings))
        ]
        if self.gallery is not None and seed == self.results.settings["seeds"][0]:
            self.gallery.write("pictures")
        return rows

    def _follow(
        self, seed: int, progress: Callable[[str], None], refinings: dict[str, list[float]]
    ) -> Iterator[Evaluation]:
        settings, name = self.results.settings, self.results.settings["name"]
        game = EigenGame(learning_rate=settings["learning_rate"], steps=settings["steps"])
        p, looks = settings["n_components"] + settings["extra"], set(settings["evaluations"])
        drawn = np.random.default_rng((seed, 2)).permutation(self.data.shape[0])
        chosen = np.sort(drawn[: max(2, round(settings["share"] * drawn.size))])
        trained, clock = 0.0, time.perf_counter()
        options = {"batch_size": settings["batch_size"], "random_state": seed}
        for snapshot in prime(self.data, game, p, **options):
            if snapshot.step not in looks:
                continue
            _finish(snapshot.directions)
            trained, clock = trained + time.perf_counter() - clock, time.perf_counter()
            found = measure(self.data, snapshot.directions, settings["n_components"], chosen)
            if len(refinings["ppca"]) < TIMED:
                self._time_refinings(snapshot.directions, seed, refinings)
            for method, variances in found.variances.items():
                angles = found.angles(method, self.truth)
                yield Evaluation(method, seed, snapshot.step, trained, variances, angles)
            self._keep(found, snapshot, seed)
            share = found.variances["ppca"].sum() / self.data.total
            progress(f"{name}: seed {seed}, step {snapshot.step}, {100 * share:.1f} % captured")
            clock = time.perf_counter()

    def _time_refinings(
        self, directions: Array, seed: int, refinings: dict[str, list[float]]
    ) -> None:
        """Refine with all rows and with some of them, and keep the seconds of each.

        The measurements of an evaluation share one pass, so that they cannot be timed one by one.
        """
        k, share = self.results.settings["n_components"], self.results.settings["share"]
        for method, part in (("ppca", 1.0), ("ppca_share", share)):
            clock = time.perf_counter()
            refined = refine_span(self.data, basis_of(directions), k, seed, part)
            _finish(refined.components)
            refinings[method].append(time.perf_counter() - clock)

    def _keep(self, found: Measured, snapshot: Any, seed: int) -> None:
        last = self.results.settings["steps"]
        if self.gallery is None or seed != self.results.settings["seeds"][0]:
            return
        if snapshot.step in (*SHOWN, last):
            for method in ("eigengame", "ppca"):
                vectors = found.components(method, snapshot.directions)
                self.gallery.keep(f"{method} {snapshot.step}", vectors)


def _finish(vectors: Array) -> None:
    """Wait for the device, which works asynchronously."""
    if "cuda" in str(vectors.device):
        import torch

        torch.cuda.synchronize()


def held_on(source: DataSource, device: Any) -> DataSource:
    """``source`` copied to ``device`` whole, block by block if it is not in memory."""
    if source.device is not None and str(source.device).split(":")[0] == str(device).split(":")[0]:
        return source  # "cuda" is the card that the source chose; a copy of it all might not fit
    if device is None or str(device) == "cpu" or source.traits.array is not None:
        return on_device(source, device)
    if source.axis == 1:
        raise ValueError(f"`device`={device!r} takes data read in rows, not {source!r}.")
    torch, held = torch_on(device), None
    for i, block in source.scan():
        start, stop = source.blocks[i]
        part = block if isinstance(block, torch.Tensor) else torch.as_tensor(np.array(block))
        if held is None:
            held = torch.empty(source.shape, dtype=part.dtype, device=device)
        held[start:stop] = part
    return DenseSource(held)
