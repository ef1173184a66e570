"""PLINK genotypes: ``.bed`` with its ``.bim`` and ``.fam``, individuals by variants."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from primedpca.protocols import Block
from primedpca.sources.base import BlockSource, cut_evenly
from primedpca.sources.files.common import stamp_of, whole_lines
from primedpca.sources.files.regular_files import check_regular, open_regular

__all__ = ["Genotypes", "is_plink"]

READ_BYTES = 2**22  # as float32
LEAST = 64  # variants, below which adding up what individuals get costs more than the products
MAGIC = b"\x6c\x1b\x01"


class Genotypes(BlockSource):
    """How many copies of a variant's first allele (0, 1, 2) each individual has, as float32.

    Parameters
    ----------
    path : path
        The ``.bed`` file; ``.bim`` and ``.fam`` of the same name lie beside it.
    missing : {"mean", "error"}
        Genotypes that are missing take the mean of their variant, in :meth:`PrimedPCA.fit` and
        :meth:`PrimedPCA.transform`, or are refused.
    standardise : bool
        Divide each variant by sqrt(2 p (1 - p)), with p the frequency of its first allele among
        those fitted: the spread that random mating would give it.  It costs a pass.  A fitted
        model keeps these numbers as ``scale_`` and uses them for new individuals.

    Attributes
    ----------
    frequencies : ndarray of shape (d,)
        Of the first allele, where ``standardise`` asked for them.
    scale : ndarray of shape (d,) or None
        What the columns are divided by unless the estimator is given a ``scale``.
    row_names, feature_names : ndarray of str
        Individuals of the ``.fam`` and variants of the ``.bim`` file.
    """

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
        self.scale: np.ndarray | None = None
        if standardise:
            means = [_means(block) for _, block in self.scan()]
            self.frequencies = np.concatenate(means) / 2
            spread = np.sqrt(2 * self.frequencies * (1 - self.frequencies))
            # Where all are alike nothing is left after centring, whatever it is divided by.
            self.scale = np.where(spread > 0, spread, 1.0)

    def _check_file(self) -> None:
        """Compare the size of the file with the other two; they may have changed since."""
        n, d = self.shape
        with open_regular(self.path) as file:
            magic, size = file.read(3), os.fstat(file.fileno()).st_size
        if magic[:2] != MAGIC[:2]:
            raise ValueError(f"{self.path} is no PLINK .bed file: it begins with {magic!r}.")
        if magic != MAGIC:
            raise ValueError(
                f"{self.path} is not stored variant by variant; convert it with plink --make-bed."
            )
        wanted = 3 + -(-n // 4) * d
        if size != wanted:
            raise ValueError(
                f"{self.path} has {size} bytes, but {n} individuals (.fam) and {d} variants (.bim) "
                f"take {wanted}: the three files do not belong together, or it was truncated."
            )

    def read(self, i: int) -> Block:
        """The variants of the block, missing genotypes as NaN."""
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
        block.flags.writeable = False
        return block

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
        """The individuals, of shape (n,)."""
        return _column(Path(self.path).with_suffix(".fam"), 1)

    @property
    def feature_names(self) -> np.ndarray:
        """The variants, of shape (d,)."""
        return _column(Path(self.path).with_suffix(".bim"), 1)

    def __repr__(self) -> str:
        n, d = self.shape
        how = "" if self.scale is None else ", standardised"
        return f"Genotypes({self.path!r}, {n} individuals x {d} variants{how})"


def is_plink(x: Any) -> bool:
    """Whether ``x`` names a ``.bed`` file."""
    return isinstance(x, (str, os.PathLike)) and os.fspath(x).lower().endswith(".bed")


def _means(block: np.ndarray) -> np.ndarray:
    """The mean of what is there in every column; zero where nothing is."""
    there = ~np.isnan(block)
    totals = np.where(there, block, 0).sum(axis=0, dtype=np.float64)
    return totals / np.maximum(there.sum(axis=0), 1)


def _lines(path: Path) -> int:
    """How many lines hold something."""
    if not os.path.lexists(path):
        raise FileNotFoundError(f"{path} is not there; a .bed file needs its .bim and .fam.")
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
