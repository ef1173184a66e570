"""Fields over a grid: land that is never data, and areas as weights."""

from functools import partial

import numpy as np
import pytest
import xarray as xr
from sklearn.decomposition import PCA

from primedpca import PrimedPCA, as_source, certify, load, plan, svd
from primedpca.interop import to_xarray
from primedpca.sources.base import whole


@pytest.fixture
def ocean():
    """Thirty months on a grid, with land."""
    rng = np.random.default_rng(0)
    values = rng.normal(size=(30, 6, 8)) * np.linspace(1, 3, 8) + 10
    field = xr.DataArray(
        values,
        dims=("time", "lat", "lon"),
        coords={"lat": np.linspace(-75, 75, 6), "lon": np.arange(8) * 45.0},
    )
    land = (field.lon > 200) & (field.lat > 20)
    return field.where(~land), ~land.transpose("lat", "lon").values


def test_land_is_left_out_and_comes_back_as_nan(ocean):
    field, sea = ocean
    source = as_source(field)
    assert source.shape == (30, sea.sum())
    np.testing.assert_array_equal(source.mask, sea)
    pca = PrimedPCA(3).fit(field)
    known = PCA(3).fit(field.values.reshape(30, -1)[:, sea.ravel()])
    np.testing.assert_allclose(pca.explained_variance_, known.explained_variance_)
    found = to_xarray(pca, field)
    np.testing.assert_array_equal(np.isnan(found.components.sel(component=1)), ~sea)
    np.testing.assert_array_equal(np.isnan(found.mean_field), ~sea)
    np.testing.assert_allclose(
        abs(found.components.values[:, sea]), abs(known.components_), atol=1e-9
    )
    assert found.scores.shape == (30, 3)


def test_a_gap_is_not_land(ocean):
    field, sea = ocean
    field = field.copy()
    field[0, 0, 0] = np.nan
    assert as_source(field).shape == (30, sea.sum())
    with pytest.raises(ValueError, match="contains NaN: 1 non-finite value"):
        PrimedPCA(2).fit(field)
    assert PrimedPCA(2, missing="mean").fit(field).n_features_in_ == sea.sum()


def test_new_samples_are_read_with_the_mask_of_the_old_ones(ocean):
    field, sea = ocean
    source = as_source(field)
    pca = PrimedPCA(2, missing="mean").fit(source)
    later = field.isel(time=[3]).copy()
    later[0, 0, 0] = np.nan  # in a single sample, it could be land
    assert as_source(later).shape[1] == sea.sum() - 1
    assert pca.transform(as_source(later, mask=source.mask)).shape == (1, 2)
    assert as_source(field, mask=False).shape == (30, 48)
    with pytest.raises(ValueError, match="`mask` has shape"):
        as_source(field, mask=np.ones(3, bool))
    with pytest.raises(ValueError, match="keeps nothing"):
        as_source(field, mask=np.zeros((6, 8), bool))
    with pytest.raises(ValueError, match="NaN everywhere"):
        as_source(field * np.nan)


def test_lazy_fields_have_land_too(ocean):
    field, sea = ocean
    source = as_source(field.chunk({"time": 7}).transpose("lat", "time", "lon"), sample="time")
    assert source.shape == (30, sea.sum())
    np.testing.assert_array_equal(whole(source), field.values[:, sea])


def test_areas_are_weights(ocean):
    field, sea = ocean
    area = np.cos(np.deg2rad(field.lat.values))[:, None] * np.ones(8)
    weighted = field.values[:, sea] * np.sqrt(area[sea])
    known = PCA(3).fit(weighted)
    for weights in ("cos_lat", area, np.cos(np.deg2rad(field.lat))):
        pca = PrimedPCA(3).fit(as_source(field, weights=weights))
        np.testing.assert_allclose(pca.explained_variance_, known.explained_variance_)
        np.testing.assert_allclose(pca.scale_, 1 / np.sqrt(area[sea]))
        np.testing.assert_allclose(
            abs(pca.transform(field)), abs(known.transform(weighted)), atol=1e-9
        )
    with pytest.raises(ValueError, match="must be 'cos_lat' or an array"):
        as_source(field, weights="area")
    with pytest.raises(ValueError, match="needs a coordinate called lat or"):
        as_source(field.rename(lat="y"), weights="cos_lat")
    with pytest.raises(ValueError, match="leave out points by `mask`"):
        as_source(field, weights=area - 1)
    with pytest.raises(ValueError, match="has the dimension 'depth'"):
        as_source(field, weights=xr.DataArray(np.ones(3), dims="depth"))


def test_fields_on_another_grid_are_refused(ocean, tmp_path):
    field, _ = ocean
    pca = PrimedPCA(2).fit(field)
    pca.save(tmp_path / "model.safetensors")
    again = load(tmp_path / "model.safetensors")
    expected = pca.transform(field)
    others = {
        "dimensions": as_source(field.transpose("time", "lon", "lat")),
        "order": field.isel(lat=slice(None, None, -1)),
        "longitudes": field.assign_coords(lon=field.lon - 180),
        "land": as_source(field, mask=np.roll(as_source(field).mask, 1, axis=0)),
    }
    for other in others.values():
        for model in (pca, again):
            with pytest.raises(ValueError, match="The columns of `X` are"):
                model.transform(other)
        with pytest.raises(ValueError, match="The columns of `X` are"):
            PrimedPCA(2).partial_fit(field).partial_fit(other)
    with pytest.raises(ValueError, match="The columns of `X` are"):
        to_xarray(pca, field.transpose("lon", "time", "lat"), sample="time")
    with pytest.raises(ValueError, match="The columns of `X` are"):
        PrimedPCA(2).partial_fit(field).merge(PrimedPCA(2).partial_fit(others["order"]))
    # The same grid in any order of the samples, in float32, or as numbers alone.
    single = field.assign_coords(lat=field.lat.astype("float32"))
    for same in (single, as_source(field.transpose("lat", "time", "lon"), sample="time")):
        np.testing.assert_allclose(again.transform(same), expected, atol=1e-10)
    np.testing.assert_allclose(again.transform(whole(as_source(field))), expected, atol=1e-10)


def test_mapped_fields_on_another_grid_are_refused(ocean):
    field = np.abs(ocean[0])
    pca = PrimedPCA(2).fit(as_source(field, map=np.log1p))
    pca.transform(as_source(field, map=np.log1p))
    with pytest.raises(ValueError, match="The columns of `X` are"):
        pca.transform(as_source(field.isel(lat=slice(None, None, -1)), map=np.log1p))


def test_weights_and_masks_of_pandas_go_by_coordinate(ocean):
    field, sea = ocean
    weights = np.abs(np.cos(np.deg2rad(field.lat))).broadcast_like(field[0]).transpose("lat", "lon")
    wanted = as_source(field, weights=weights)
    frame = weights.to_pandas()
    for given in (frame, frame.iloc[::-1], frame.iloc[:, ::-1].T, weights[::-1]):
        np.testing.assert_array_equal(as_source(field, weights=given).scale, wanted.scale)
    mask = wanted.mask.to_pandas()
    for given in (mask.iloc[::-1], mask.T):
        np.testing.assert_array_equal(as_source(field, mask=given).mask, sea)
    with pytest.raises(ValueError, match=r"`weights` has no value at lat=-75\.0, which `X` has"):
        as_source(field, weights=weights[1:])
    with pytest.raises(ValueError, match="`weights` holds dates or durations"):
        as_source(field, weights=weights.values.astype("m8[s]"))


def test_another_scale_does_not_replace_weights(ocean):
    field, _ = ocean
    source = as_source(field, weights="cos_lat")
    known = PrimedPCA(2).fit(source)
    same = PrimedPCA(2, scale=known.scale_).fit(source)
    np.testing.assert_array_equal(same.components_, known.components_)
    assert certify(source, known.components_, scale=known.scale_).angle_bounds.max() < 1e-3
    for scale in ("std", np.ones(source.shape[1])):
        calls = (
            PrimedPCA(2, scale=scale).fit,
            partial(svd, k=2, scale=scale),
            partial(plan, n_components=2, scale=scale),
            partial(certify, components=known.components_, scale=scale),
        )
        for call in calls:
            with pytest.raises(ValueError, match="would replace the scale that Fields"):
                call(source)
    with pytest.raises(ValueError, match="has a scale of its own"):
        PrimedPCA(2, scale="std").partial_fit(source)


def test_coordinates_in_another_order_between_the_same_ends_are_refused(ocean):
    field = ocean[0].fillna(0.0)
    known = PrimedPCA(2).fit(field)
    assert "order" not in known.layout_
    inside = [0, 2, 1, 3, 4, 5]
    streamed = PrimedPCA(2).partial_fit(field)
    for call in (known.transform, streamed.partial_fit):
        with pytest.raises(ValueError, match="-75 to 75, order"):
            call(field.isel(lat=inside))
    # Coordinates that are not sorted are another grid only in another order.
    named = field.assign_coords(lat=list("tqvuws"))
    model = PrimedPCA(2).fit(named)
    assert model.transform(named).shape == (30, 2)
    with pytest.raises(ValueError, match="order"):
        model.transform(named.isel(lat=inside))
