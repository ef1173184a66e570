"""Frames of first passes are those that ``operator_record.py`` wrote, and products those of M."""

import json
import warnings
from functools import cache

import numpy as np
import pytest
from operator_record import CASES, PARTS, RECORD, differences, opened

from primedpca._core.arrays import dtype_name, is_sparse, to_numpy


@cache
def known():
    return json.loads(RECORD.read_text(encoding="utf-8"))


def test_the_record_has_every_part():
    assert list(known()) == list(PARTS)


@pytest.mark.parametrize("part", PARTS)
def test_the_record(part):
    assert differences(PARTS[part](), known()[part]) == []


def by_definition(name):
    """Return ``M`` in longdouble, its mean and the roots of the weights, from whole matrices."""
    matrix, _, _, options = CASES[name]
    X = (matrix.toarray() if is_sparse(matrix) else matrix).astype(np.longdouble)
    w = np.asarray(options.get("sample_weight", np.ones(len(X))), np.longdouble)
    unit = opened(name).weight_unit
    there = ~np.isnan(X)
    near = np.where(there[0], X[0], 0)  # even in longdouble, 2^60 leaves only three binary places
    X = X - near
    mean = np.where(there, X, 0).T @ w / (there.T @ w)
    X = np.where(there, X, mean)
    scale = options.get("scale")
    if isinstance(scale, str):
        scale = np.sqrt(((X - mean) ** 2).T @ w / w.sum())
        scale = np.where(scale == 0, 1, scale)
    X = X - mean if options.get("center", True) else X + near
    if scale is not None:
        X = X / scale
    return X * np.sqrt(w / unit)[:, None], near + mean, w / unit


PRODUCTS = {
    "covariance_product": lambda data, v, u: data.covariance_product(v),
    "forward": lambda data, v, u: data.forward(v),
    "adjoint": lambda data, v, u: data.adjoint(u),
    "gram_product": lambda data, v, u: data.gram_product(u),
    "covariance": lambda data, v, u: data.covariance(),
    "gram": lambda data, v, u: data.gram(),
    "projected": lambda data, v, u: data.projected_covariance(v),
    "scores": lambda data, v, u: data.scores_and_squares(v)[0],
    "squares": lambda data, v, u: data.scores_and_squares(v)[1],
    "total": lambda data, v, u: data.total,
    "mean": lambda data, v, u: data.frame.mean,
}


@pytest.mark.parametrize("name", CASES)
def test_products(name):
    M, mean, w = by_definition(name)
    rng = np.random.default_rng(1)
    right, left = rng.integers(-3, 4, (M.shape[1], 3)), rng.integers(-3, 4, (M.shape[0], 2))
    square = M.T @ M / w.sum()
    # The reference, and the powers of the gain and of the unit that it is multiplied by.
    wanted = {
        "covariance_product": (square @ right, 2, 0),
        "forward": (M @ right, 1, 0),
        "adjoint": (M.T @ left, 1, 0),
        "gram_product": (M @ (M.T @ left) / w.sum(), 2, 0),
        "covariance": (square, 2, 0),
        "gram": (M @ M.T / w.sum(), 2, 0),
        "projected": (right.T @ square @ right, 2, 0),
        "scores": (M @ right, 1, 0),
        "squares": ((M * M).sum(axis=1), 2, 0),
        "total": (np.trace(square), 2, 0),
        "mean": (mean, 0, 1),
    }
    whole = opened(name)
    for product, (reference, gains, units) in wanted.items():
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            data = opened(name)
            if product == "mean":
                data.learn()
            v, u = (data.like.asarray(part.astype(float)) for part in (right, left))
            first, later = (PRODUCTS[product](one, v, u) for one in (data, whole))
        for one, found in ((data, first), (whole, later)):
            gain, unit = (np.longdouble(part) for part in (one.frame.gain, one.frame.unit))
            exact = reference * gain**gains * unit**units
            tolerance = 1e-5 if dtype_name(data.like.dtype) == "float32" else 1e-12
            error = np.abs(np.asarray(to_numpy(found)) - exact).max()
            assert float(error) <= tolerance * float(np.abs(exact).max()), product


@pytest.mark.parametrize("name", CASES)
def test_checked_squares(name):
    """The smaller matrix, and its product with a few vectors in the operator's own arithmetic."""
    M, _, w = by_definition(name)
    exact = (M.T @ M if M.shape[1] <= M.shape[0] else M @ M.T) / w.sum()
    checks = np.random.default_rng(2).integers(-3, 4, (len(exact), 2))
    for data in (opened(name), opened(name).in_float64()):
        if not data.squares_at_once:
            assert data.sparse or (data.source.axis == 1 and data.shape[0] >= data.shape[1])
            continue
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            found = data.checked_square(data.like.asarray(checks.astype(float)))
        gain = np.longdouble(data.frame.gain)
        coarse = data.source.dtype in (np.float32, np.int16)
        single = dtype_name(data.like.dtype) == "float32"
        for part, wanted, rough in zip(
            found, (exact, exact @ checks), (coarse, single), strict=True
        ):
            error = np.abs(np.asarray(to_numpy(part)) - wanted * gain**2).max()
            tolerance = 1e-5 if rough else 1e-12
            assert float(error) <= tolerance * float(np.abs(wanted * gain**2).max())
