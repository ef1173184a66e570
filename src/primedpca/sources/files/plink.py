"""PLINK genotypes: ``.bed`` with its ``.bim`` and ``.fam``, individuals by variants."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from primedpca.protocols import Block
from primedpca.sources.base import BlockSource, cut_evenly, read_only
from primedpca.sources.files.common import stamp_of, whole_lines
from primedpca.sources.files.regular_files import check_regular, open_regular

__all__ = ["Genotypes", "is_plink"]

READ_BYTES = 2**22  # as float32
LEAST = 64  # variants of a block: with fewer, adding up scores costs more than the products
MAGIC = b"\x6c\x1b\x01"


class Genotypes(BlockSource):
    """Copies of each variant's first allele (0, 1 or 2) that each individual has, as float32.

    Parameters
    ----------
    path : path
        The ``.bed`` file; ``.bim`` and ``.fam`` of the same name lie beside it.
    missing : {"mean", "error"}, default="mean"
        Replace missing genotypes by the mean of their variant, in :meth:`PrimedPCA.fit` and
        :meth:`PrimedPCA.transform`, or refuse them.
    standardise : bool, default=False
        Divide each variant by sqrt(2 p (1 - p)), where p is the frequency of its first allele
        among the fitted individuals: its standard deviation under random mating.  It costs a pass.
        A fitted model keeps these numbers as ``scale_`` and uses them for new individuals.

    Attributes
    ----------
    frequencies : ndarray of shape (d,)
        Frequencies of the first alleles, if ``standardise`` is true.
    scale : ndarray of shape (d,) or None
        Numbers that columns are divided by unless the estimator is given a ``scale``.
    row_names, feature_names : ndarray of str
        Individuals of the ``.fam`` and variants of the ``.bim`` file.
    """

    library = "numpy"

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        missing: str = "mean",
        standardise: bool = False,
    ) -> None:
        if missing not in ("mean", "error"):
            raise ValueError(f"`missing`={missing!r} must be 'mean' or 'error'.")
        self.path, self.missing = os.fspath(path), missing
        check_regular(self.path)
        n, d = (_lines(Path(self.path).with_suffix(end)) for end in (".fam", ".bim"))
        self.shape, self.dtype, self.axis = (n, d), np.dtype(np.float32), 1
        self._stamp = stamp_of(self.path)
        self._check_file()
        self.blocks = cut_evenly(d, max(LEAST, READ_BYTES // (4 * max(n, 1))))
        if standardise:
            means = [_means(block) for _, block in self.scan()]
            self.frequencies = np.concatenate(means) / 2
            spread = np.sqrt(2 * self.frequencies * (1 - self.frequencies))
            # A constant variant is zero after centring, whatever it is divided by.
            self.scale = np.where(spread > 0, spread, 1.0)

    def _check_file(self) -> None:
        """Compare the size of the file with the two others; it may have changed since."""
        n, d = self.shape
        with open_regular(self.path) as file:
            magic, size = file.read(3), os.fstat(file.fileno()).st_size
        if magic[:2] != MAGIC[:2]:
            raise ValueError(f"{self.path} is not a PLINK .bed file: it begins with {magic!r}.")
        if magic != MAGIC:
            raise ValueError(
                f"{self.path} is not stored variant by variant. Convert it with plink --make-bed."
            )
        wanted = 3 + -(-n // 4) * d
        if size != wanted:
            raise ValueError(
                f"{self.path} has {size} bytes, but {n} individuals (.fam) and {d} variants (.bim) "
                f"take {wanted}: the three files do not belong together, or it is truncated."
            )

    def read(self, i: int) -> Block:
        """Variants of the block, missing genotypes as NaN."""
        start, stop = self.blocks[i]
        self._check_file()
        self._stamp.check(stamp_of(self.path), self.path, f"variants {start}:{stop}")
        try:
            with self._opened() as file:
                block = file.read(np.s_[:, start:stop], dtype="float32", order="F", num_threads=1)
        except (OSError, ValueError, RuntimeError) as error:
            raise ValueError(
                f"{self.path} cannot be read, variants {start}:{stop}: {error}."
            ) from error
        return read_only(block)

    def _opened(self) -> Any:
        try:
            from bed_reader import open_bed
        except ImportError as error:
            raise ImportError(
                "Reading PLINK files needs bed-reader: pip install 'primedpca[disk]'."
            ) from error
        n, d = self.shape
        return open_bed(self.path, iid_count=n, sid_count=d, properties={}, num_threads=1)

    @property
    def row_names(self) -> np.ndarray:
        """Names of the individuals, of shape (n,)."""
        return _column(Path(self.path).with_suffix(".fam"), 1)

    @property
    def feature_names(self) -> np.ndarray:
        """Names of the variants, of shape (d,)."""
        return _column(Path(self.path).with_suffix(".bim"), 1)

    def __repr__(self) -> str:
        n, d = self.shape
        how = "" if self.scale is None else ", standardised"
        return f"Genotypes({self.path!r}, {n} individuals x {d} variants{how})"


def is_plink(x: Any) -> bool:
    """Whether ``x`` names a ``.bed`` file."""
    return isinstance(x, (str, os.PathLike)) and os.fspath(x).lower().endswith(".bed")


def _means(block: np.ndarray) -> np.ndarray:
    """Mean of the present values of every column; zero where there are none."""
    there = ~np.isnan(block)
    totals = np.where(there, block, 0).sum(axis=0, dtype=np.float64)
    means: np.ndarray = totals / np.maximum(there.sum(axis=0), 1)
    return means


def _lines(path: Path) -> int:
    """Number of lines that are not blank."""
    if not os.path.lexists(path):
        raise FileNotFoundError(f"File not found: {path}. A .bed file needs its .bim and .fam.")
    with open_regular(path) as file:
        pieces = (piece for _, piece in whole_lines(file, str(path)))
        return sum(1 for piece in pieces for line in piece.split(b"\n") if line.strip())


def _column(path: Path, number: int) -> np.ndarray:
    found: list[str] = []
    with open_regular(path) as file:
        for _, piece in whole_lines(file, str(path)):
            for line in piece.split(b"\n"):
                words = line.split(None, number + 1)
                if 0 < len(words) <= number:
                    raise ValueError(
                        f"{path} is damaged: entry {len(found)} has fewer than {number + 1} "
                        "columns."
                    )
                if words:
                    found.append(words[number].decode("utf-8", "replace"))
    return np.array(found, dtype=object)
