"""PLINK genotypes: ``.bed`` with its ``.bim`` and ``.fam``, individuals by variants."""

import os
from collections.abc import Iterator
from pathlib import Path
from zlib import crc32

import numpy as np

from primedpca.protocols import Block
from primedpca.sources.base import cut_evenly, read_only
from primedpca.sources.files import common

READ_BYTES = 2**22  # as float32
LEAST = 64  # variants of a block: with fewer, adding up scores costs more than the products
MAGIC = b"\x6c\x1b\x01"


class Genotypes(common.FileSource):
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
    layout : str
        Number of variants and checksum of their first alleles.  A model refuses genotypes that
        count other alleles.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, missing: str = "mean", standardise: bool = False
    ) -> None:
        if missing not in ("mean", "error"):
            raise ValueError(f"`missing`={missing!r} must be 'mean' or 'error'.")
        self.path, self.missing = os.fspath(path), missing
        n, d, alleles = sum(1 for _ in self._lines(".fam")), 0, 0
        for line in self._lines(".bim"):
            alleles = crc32(b" ".join(line.split()[4:5]).upper() + b"\n", alleles)
            d += 1
        self.layout = f"{d} variants, first alleles {alleles:08x}"
        self.shape, self.dtype, self.axis = (n, d), np.dtype(np.float32), 1
        self._stamp = common.stamp_of(self.path)
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
        with common.open_regular(self.path) as file:
            magic, size = file.read(3), os.fstat(file.fileno()).st_size
        if magic != MAGIC:
            raise ValueError(
                f"{self.path} is not a PLINK .bed file, variant by variant: it begins with "
                f"{magic!r}. Convert it with plink --make-bed."
            )
        wanted = 3 + -(-n // 4) * d
        if size != wanted:
            raise ValueError(
                f"{self.path} has {size} bytes, but {n} individuals (.fam) and {d} variants (.bim) "
                f"take {wanted}: the three files do not belong together, or it is truncated."
            )

    def read(self, i: int) -> Block:
        """Variants of the block, missing genotypes as NaN."""
        (start, stop), (n, d), where = self.blocks[i], self.shape, self._place(i)
        self._check_file()
        self._check_same(where)
        opened = common.need("bed_reader", "PLINK files").open_bed
        with (
            common.reading(self.path, where, ValueError),
            opened(self.path, iid_count=n, sid_count=d, properties={}, num_threads=1) as file,
        ):
            block = file.read(np.s_[:, start:stop], dtype="float32", order="F", num_threads=1)
        return read_only(block)

    @property
    def row_names(self) -> np.ndarray:
        """Names of the individuals, of shape (n,)."""
        return self._names(".fam")

    @property
    def feature_names(self) -> np.ndarray:
        """Names of the variants, of shape (d,)."""
        return self._names(".bim")

    def _lines(self, suffix: str) -> Iterator[bytes]:
        """Yield the lines of another file that are not blank."""
        path = Path(self.path).with_suffix(suffix)
        if not os.path.lexists(path):
            raise FileNotFoundError(f"File not found: {path}. A .bed file needs its .bim and .fam.")
        with common.open_regular(path) as file:
            for _, piece in common.whole_lines(file, str(path)):
                yield from filter(bytes.strip, piece.split(b"\n"))

    def _names(self, suffix: str) -> np.ndarray:
        """The second column of another file."""
        words = [line.split(None, 2) for line in self._lines(suffix)]
        short = next((i for i, line in enumerate(words) if len(line) < 2), None)
        if short is not None:
            path = Path(self.path).with_suffix(suffix)
            raise ValueError(f"{path} is damaged: entry {short} has fewer than 2 columns.")
        return np.array([line[1].decode("utf-8", "replace") for line in words], dtype=object)

    def __repr__(self) -> str:
        n, d = self.shape
        how = "" if self.scale is None else ", standardised"
        return f"Genotypes({self.path!r}, {n} individuals x {d} variants{how})"


def _means(block: np.ndarray) -> np.ndarray:
    """Mean of the present values of every column; zero where there are none."""
    there = ~np.isnan(block)
    totals = np.where(there, block, 0).sum(axis=0, dtype=np.float64)
    means: np.ndarray = totals / np.maximum(there.sum(axis=0), 1)
    return means
