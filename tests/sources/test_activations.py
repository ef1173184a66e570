"""Activations of a network as data: the rows, their promises, weights, and what is left alone."""

import hashlib
import importlib.util
import subprocess
import sys
import threading
from functools import partial

import numpy as np
import pytest
import torch
from environments import ROOT
from PIL import Image
from torch import nn

from primedpca import PrimedPCA
from primedpca.metrics import angles
from primedpca.sources.wrappers import activations
from primedpca.sources.wrappers.activations import Activations, imagenet
from primedpca_paper.large_scale.network import load_weights

EXAMPLES = ROOT / "examples"


def example(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


resnet = example("resnet")


class BasicBlock(nn.Module):
    """A residual block with everything that differs between training and evaluation."""

    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)
        self.norm = nn.BatchNorm2d(channels)
        self.drop = nn.Dropout(0.5)

    def forward(self, x):
        return x + self.drop(self.norm(self.conv(x)))


class Tiny(nn.Module):
    """Two residual blocks; what follows them works in place."""

    def __init__(self, channels=4):
        super().__init__()
        self.stem = nn.Conv2d(3, channels, 3, stride=2, padding=1)
        self.first = BasicBlock(channels)
        self.second = BasicBlock(channels)
        self.act = nn.ReLU(inplace=True)
        self.fc = nn.Linear(channels, 5)

    def forward(self, x):
        x = self.act(self.first(self.stem(x)))
        x = self.act(self.second(x))
        return self.fc(x.mean(dim=(2, 3)))


def tiny(dtype=torch.float32, seed=0):
    torch.manual_seed(seed)
    model = Tiny().to(dtype)
    for part in (model.first, model.second):
        part.norm.running_mean += torch.randn(4)
    return model


def pictures(n=13, size=8, seed=0):
    """Arrays as the network takes them; the brightness varies, so that a few components rule."""
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, 3, size, size)) * (0.5 + 2 * rng.random((n, 1, 1, 1)))


def direct(model, images):
    """The rows by plain arithmetic: no hooks, no eval(), nothing of ours."""
    rows = []
    for image in images:
        x = model.stem(torch.as_tensor(image[None], dtype=model.stem.weight.dtype))
        row = []
        for part in (model.first, model.second):
            norm = part.norm
            y = torch.nn.functional.batch_norm(
                part.conv(x), norm.running_mean, norm.running_var, norm.weight, norm.bias
            )
            x = x + y
            row.append(x.detach().numpy().ravel())
            x = torch.relu(x)
        rows.append(np.concatenate(row))
    return np.stack(rows)


def all_rows(source):
    return np.concatenate([block for _, block in source.scan()])


@pytest.fixture
def few_rows(monkeypatch):
    """Blocks of five images."""
    monkeypatch.setattr(activations, "BLOCK_ROWS", 5)


pytestmark = pytest.mark.usefixtures("few_rows")


# -- rows -------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("batch", [1, 4])
def test_rows_are_what_the_blocks_put_out(dtype, batch):
    model, images = tiny(getattr(torch, dtype)), pictures()
    source = Activations(model, images, transform=None, dtype=dtype, batch=batch)
    expected = direct(model, images)
    assert source.shape == expected.shape == (13, 2 * 4 * 4 * 4)
    assert source.dtype == np.dtype(dtype)
    assert source.axis == 0
    assert len(source.blocks) > 1
    tolerance = 50 * np.finfo(dtype).eps * np.abs(expected).max()
    np.testing.assert_allclose(all_rows(source), expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize("batch", [1, 3, 20])
@pytest.mark.parametrize("cache", [0, 5 * 128 * 4, 10**9])
def test_a_row_has_the_same_bits_however_it_is_read(batch, cache):
    source = Activations(tiny(), pictures(), transform=None, batch=batch, cache=cache)
    whole = all_rows(source)
    for start, _ in source.blocks:
        assert start % batch == 0
    np.testing.assert_array_equal(all_rows(source), whole)
    index = np.array([7, 0, 12, 7])
    np.testing.assert_array_equal(source.rows(index), whole[index])
    for epoch in range(2):
        seen = []
        for numbers, rows in source.batches(4, 3, epoch):
            np.testing.assert_array_equal(rows, whole[numbers])
            seen.extend(numbers)
        assert sorted(seen) == list(range(13))
    later = list(source.batches(4, 3, 1, start=2))
    np.testing.assert_array_equal(later[-1][0], numbers)
    part = source.sample(0.5, 1)
    np.testing.assert_array_equal(all_rows(part), whole[part.index])
    np.testing.assert_array_equal(part.rows(np.array([2, 1])), whole[part.index[[2, 1]]])


def test_every_epoch_is_another_permutation():
    source = Activations(tiny(), pictures(), transform=None)
    orders = [
        np.concatenate([index for index, _ in source.batches(4, 3, epoch)]) for epoch in range(2)
    ]
    assert (orders[0] != orders[1]).any()
    assert set(orders[0][:4]) != set(orders[1][:4])  # not the same neighbours again
    unshuffled = np.concatenate([index for index, _ in source.batches(4, None)])
    np.testing.assert_array_equal(unshuffled, np.arange(13))


class Threads(nn.Module):
    """Puts out how many threads PyTorch has: large kernels round by them."""

    def forward(self, x):
        return torch.full((len(x), 1), float(torch.get_num_threads()))


def test_every_thread_reads_with_the_same_number_of_torch_threads():
    source = Activations(nn.Sequential(Threads()), pictures(), transform=None, blocks="0")
    found = []

    def read():
        found.append(all_rows(source))
        found.append(torch.get_num_threads())

    torch.set_num_threads(2)
    try:
        reader = threading.Thread(target=read)
        reader.start()
        reader.join()
        read()
    finally:
        torch.set_num_threads(1)
    assert found[1] == found[3] == 2
    assert (found[0] == 1).all()
    assert (found[2] == 1).all()


def test_blocks_are_read_only():
    for cache in (0, 10**9):
        source = Activations(tiny(), pictures(), transform=None, cache=cache)
        for part in (source, source.sample(0.5, 0)):
            with pytest.raises(ValueError, match="read-only"):
                part.read(0)[...] = 1


class Counting:
    """A sequence that knows how often it was asked."""

    def __init__(self, images):
        self.images, self.asked = images, []

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        self.asked.append(i)
        return self.images[i]


def test_the_cache_keeps_what_fits_and_no_more():
    images = Counting(pictures())
    source = Activations(tiny(), images, transform=None, cache=5 * 128 * 4 + 3)
    all_rows(source)
    images.asked.clear()
    all_rows(source)
    assert images.asked == list(range(5, 13))


def test_a_share_sends_no_other_images_through():
    images = Counting(pictures())
    source = Activations(tiny(), images, transform=None)
    images.asked.clear()
    part = source.sample(0.4, 0)
    all_rows(part)
    assert images.asked == part.index.tolist()


# -- which blocks -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "blocks",
    [
        lambda name, module: isinstance(module, nn.Conv2d) and name != "stem",
        r"(first|second)\.conv",
        ["second.conv", "first.conv"],
    ],
)
def test_filters_agree(blocks):
    source = Activations(tiny(), pictures(), transform=None, blocks=blocks)
    assert list(source.block_slices) == ["first.conv", "second.conv"]
    assert source.block_slices["second.conv"] == (slice(64, 128), (4, 4, 4))


def test_components_are_cut_back_into_blocks():
    source = Activations(tiny(), pictures(), transform=None)
    rows = all_rows(source)
    parts = source.split(rows)
    assert {name: part.shape for name, part in parts.items()} == {
        "first": (13, 4, 4, 4),
        "second": (13, 4, 4, 4),
    }
    np.testing.assert_array_equal(parts["second"].reshape(13, -1), rows[:, 64:])
    assert source.split(rows[0])["first"].shape == (4, 4, 4)
    with pytest.raises(ValueError, match="127"):
        source.split(rows[:, 1:])


def test_a_filter_that_matches_nothing_says_what_there_is():
    plain = nn.Sequential(nn.Conv2d(3, 2, 1), nn.ReLU())
    with pytest.raises(ValueError, match=r"Bottleneck.*BasicBlock.*0 \(Conv2d\), 1 \(ReLU\)"):
        Activations(plain, pictures(), transform=None)
    with pytest.raises(ValueError, match=r"layer9.*stem \(Conv2d\)"):
        Activations(tiny(), pictures(), transform=None, blocks="layer9")
    with pytest.raises(ValueError, match="third"):
        Activations(tiny(), pictures(), transform=None, blocks=["first", "third"])
    with pytest.raises(TypeError, match="`blocks`=3"):
        Activations(tiny(), pictures(), transform=None, blocks=3)


# -- certified --------------------------------------------------------------------------------


def test_components_are_certified_and_agree_with_lapack():
    model = tiny()
    source = Activations(model, pictures(60), transform=None)
    stored = all_rows(source).astype(np.float64)
    _, s, vt = np.linalg.svd(stored - stored.mean(axis=0), full_matrices=False)
    pca = PrimedPCA(3, random_state=0).fit(source)
    truth = angles(pca.components_, vt[:3])
    assert pca.converged_
    assert (truth <= pca.angle_bounds_ + 1e-6).all()
    assert truth.max() < np.pi / 1024
    np.testing.assert_allclose(pca.explained_variance_, s[:3] ** 2 / 59, rtol=1e-5)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_activations_that_are_no_numbers_are_named(value):
    model = tiny()
    images = pictures()
    images[9] = value
    with pytest.raises(ValueError, match=r"row 9, column"):
        PrimedPCA(2).fit(Activations(model, images, transform=None))


# -- left alone -------------------------------------------------------------------------------


def state_of(model):
    flags = [module.training for module in model.modules()]
    hooks = [len(module._forward_hooks) for module in model.modules()]
    weights = [value.clone() for value in model.state_dict().values()]
    return flags, hooks, weights


def same_state(one, two):
    return one[:2] == two[:2] and all(map(torch.equal, one[2], two[2]))


def test_the_network_is_left_as_it_was():
    model = tiny()
    model.train()
    model.second.eval()  # mixed, as for frozen layers
    before = state_of(model)
    source = Activations(model, pictures(), transform=None)
    PrimedPCA(2, random_state=0).fit(source)
    assert same_state(state_of(model), before)
    assert before[0][0]
    assert sum(before[1]) == 0
    model(torch.zeros(2, 3, 8, 8)).sum().backward()  # and can still be trained
    assert model.stem.weight.grad is not None


def test_an_error_leaves_the_network_as_it_was():
    images = list(pictures())
    images[2] = np.zeros((3, 6, 6))
    model = tiny()
    before = state_of(model)
    source = Activations(model, images, transform=None)
    with pytest.raises(ValueError, match=r"'first'.*\(4, 3, 3\) for image 3 and \(4, 4, 4\)"):
        all_rows(source)
    assert same_state(state_of(model), before)
    with pytest.raises(ValueError, match=r"image 3 has shape \(3, 6, 6\)"):
        all_rows(Activations(model, images, transform=None, batch=3))
    assert same_state(state_of(model), before)


def test_another_device_takes_a_copy():
    model = tiny()
    with pytest.raises(ValueError, match="`device`='cuda:99'"):
        Activations(model, pictures(), transform=None, device="cuda:99")
    source = Activations(model, pictures(), transform=None, device="cpu")
    assert source.model is model
    assert source.device is None


@pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch finds no CUDA device here")
def test_on_an_accelerator():
    model, images = tiny(torch.float64), pictures()
    source = Activations(model, images, transform=None, device="cuda", dtype="float64", batch=4)
    assert next(model.parameters()).device.type == "cpu"
    rows = torch.cat([block for _, block in source.scan()])
    assert rows.device.type == "cuda"
    np.testing.assert_allclose(rows.cpu(), direct(model, images), rtol=0, atol=1e-10)
    assert torch.equal(source.rows(np.array([5, 2])), rows[[5, 2]])
    assert PrimedPCA(2, random_state=0).fit(source).converged_


# -- networks that cannot be read -------------------------------------------------------------


class Odd(nn.Module):
    """One module is never used, one twice, one puts out a pair, one has no axis of images."""

    def __init__(self):
        super().__init__()
        self.unused, self.twice = nn.Identity(), nn.Identity()
        self.pair, self.total = Pair(), Total()

    def forward(self, x):
        self.total(x)
        return self.twice(self.twice(self.pair(x)[0]))


class Pair(nn.Module):
    def forward(self, x):
        return x, x


class Total(nn.Module):
    def forward(self, x):
        return x.sum()


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("unused", ValueError, "does not run"),
        ("twice", ValueError, "runs twice"),
        ("pair", TypeError, "is a tuple"),
        ("total", ValueError, "first axis"),
    ],
)
def test_modules_that_give_no_row(name, error, message):
    with pytest.raises(error, match=f"'{name}' .*{message}"):
        Activations(Odd(), pictures(), transform=None, blocks=[name])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch": 0}, "`batch`=0"),
        ({"dtype": "int8"}, "`dtype`='int8'"),
        ({"cache": -1}, "`cache`=-1"),
        ({"cache": "lots"}, "`cache`='lots'"),
    ],
)
def test_options_are_checked(options, message):
    with pytest.raises(ValueError, match=message):
        Activations(tiny(), pictures(), transform=None, **options)


def test_no_network():
    with pytest.raises(TypeError, match=r"`model` is a int, not a torch\.nn\.Module"):
        Activations(3, pictures(), transform=None)


# -- images -----------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path):
    """Photographs of several sizes, one in grey, and a file that is none."""
    rng = np.random.default_rng(0)
    for i, shape in enumerate([(40, 52, 3), (33, 30, 3), (36, 36), (64, 48, 3)]):
        pixels = rng.integers(0, 256, shape, dtype=np.uint8)
        where = tmp_path / ("b" if i == 3 else "")
        where.mkdir(exist_ok=True)
        Image.fromarray(pixels).save(where / f"{i}.png")
    (tmp_path / "notes.txt").write_text("no image")
    return tmp_path


def hashes(folder):
    return {
        path: (hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns)
        for path in folder.rglob("*")
        if path.is_file()
    }


small = partial(imagenet, size=28)


def test_a_folder_is_read_by_name_and_left_alone(folder):
    before, model = hashes(folder), tiny()
    source = Activations(model, folder, transform=small)
    assert source.shape == (4, 2 * 4 * 14 * 14)
    paths = [folder / "0.png", folder / "1.png", folder / "2.png", folder / "b" / "3.png"]
    rows = all_rows(source)
    np.testing.assert_array_equal(all_rows(Activations(model, paths, transform=small)), rows)
    opened = [np.asarray(Image.open(path)) for path in paths]
    np.testing.assert_array_equal(all_rows(Activations(model, opened, transform=small)), rows)
    PrimedPCA(2, random_state=0).fit(source)
    assert hashes(folder) == before


def test_the_default_transform():
    constant = np.full((300, 500, 3), [255, 0, 51], dtype=np.uint8)
    out = imagenet(constant)
    assert out.shape == (3, 224, 224)
    assert out.dtype == np.float32
    expected = [(1 - 0.485) / 0.229, -0.456 / 0.224, (0.2 - 0.406) / 0.225]
    np.testing.assert_allclose(out[:, 100, 7], expected, rtol=1e-6)
    assert np.ptp(out, axis=(1, 2)).max() < 1e-6
    # 256 x 320 is its own resized size: the crop is the middle, pixel by pixel.
    ramp = np.zeros((256, 320, 3), dtype=np.uint8)
    ramp[..., 0], ramp[..., 1] = np.arange(256)[:, None], np.arange(320) % 256
    pixels = imagenet(ramp) * np.reshape([0.229, 0.224, 0.225], (3, 1, 1))
    pixels = (pixels + np.reshape([0.485, 0.456, 0.406], (3, 1, 1))) * 255
    np.testing.assert_allclose(pixels[0, :, 0], np.arange(16, 240), atol=1e-3)
    np.testing.assert_allclose(pixels[1, 0], np.arange(48, 272) % 256, atol=1e-3)
    with pytest.raises(ValueError, match="`transform`=None"):
        imagenet(np.zeros((3, 8, 8)))


def test_images_that_cannot_be_read(folder, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"`images`=.*not a folder"):
        Activations(tiny(), folder / "missing")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"`images`=.*does not hold any images"):
        Activations(tiny(), tmp_path / "empty")
    with pytest.raises(ValueError, match="is empty"):
        Activations(tiny(), [])
    with pytest.raises(TypeError, match=r"`images` is a .*no length"):
        Activations(tiny(), iter(pictures()))
    whole = (folder / "1.png").read_bytes()
    (folder / "1.png").write_bytes(whole[: len(whole) // 2])
    source = Activations(tiny(), folder, transform=small)
    with pytest.raises(ValueError, match=r"image 2 \(.*1\.png\) cannot be decoded"):
        all_rows(source)
    with pytest.raises(TypeError, match=r"`transform`.*image 1"):
        Activations(tiny(), folder, transform=None)


# -- weights ----------------------------------------------------------------------------------


def test_weights_come_under_a_prefix_without_the_classifier(tmp_path):
    trained, model = tiny(seed=1), tiny(seed=2)
    state = {f"module.pre.{key}": value for key, value in trained.state_dict().items()}
    state["module.pre.fc.weight"] = torch.zeros(77, 4)  # another number of classes
    state["other.head"] = torch.zeros(3)
    path = tmp_path / "weights.pth"
    torch.save(state, path)
    head = model.fc.weight.clone()
    assert load_weights(model, path, prefix="module.pre.") is model
    assert torch.equal(model.fc.weight, head)
    images = pictures()
    np.testing.assert_allclose(
        all_rows(Activations(model, images, transform=None)), direct(trained, images), atol=1e-5
    )
    torch.save({"state_dict": trained.state_dict(), "epoch": 3}, path)
    load_weights(model, path, skip=())
    assert torch.equal(model.fc.weight, trained.fc.weight)


def test_old_checkpoints_lack_a_count_that_is_not_needed():
    state = {k: v for k, v in tiny(seed=1).state_dict().items() if "num_batches" not in k}
    load_weights(tiny(), state)


def test_weights_that_do_not_fit_change_nothing():
    model = tiny()
    before = state_of(model)
    state = tiny(seed=1).state_dict()
    del state["first.conv.bias"]
    state["third.conv.bias"] = torch.zeros(4)
    state["stem.weight"] = torch.zeros(8, 3, 3, 3)
    with pytest.raises(ValueError) as caught:
        load_weights(model, state)
    message = str(caught.value)
    assert "1 missing: first.conv.bias" in message
    assert "1 unexpected: third.conv.bias" in message
    assert "stem.weight (8 x 3 x 3 x 3 instead of 4 x 3 x 3 x 3)" in message
    with pytest.raises(ValueError, match=r"`prefix`='module\.'.*stem.weight"):
        load_weights(model, tiny().state_dict(), prefix="module.")
    with pytest.raises(ValueError, match=r"\d+ missing: conv1.weight, bn1.weight.*\.\.\.;"):
        load_weights(resnet.ResNet((1, 1, 1, 1)), tiny().state_dict())
    assert same_state(state_of(model), before)


class Runs:
    """What must never be made when weights are read."""

    def __reduce__(self):
        return exec, ("raise SystemExit('code from a checkpoint ran')",)


def test_files_that_are_no_weights(tmp_path):
    path = tmp_path / "weights.pth"
    with pytest.raises(FileNotFoundError):
        load_weights(tiny(), path)
    torch.save({"stem.weight": Runs()}, path)
    with pytest.raises(ValueError, match=r"weights\.pth.*cannot be read as a file of tensors"):
        load_weights(tiny(), path)
    torch.save(tiny().state_dict(), path)
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(ValueError, match="cannot be read as a file of tensors"):
        load_weights(tiny(), path)
    torch.save([torch.zeros(1)], path)
    with pytest.raises(ValueError, match="holds a list"):
        load_weights(tiny(), path)


# -- our ResNets ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "parameters", "dimension"),
    [(resnet.resnet50, 25_557_032, 5_519_360), (resnet.resnet152, 60_192_808, 13_146_112)],
)
def test_published_sizes(make, parameters, dimension):
    with torch.device("meta"):
        model = make()
    assert sum(p.numel() for p in model.parameters()) == parameters
    depths = resnet.DEPTHS[make.__name__]
    assert resnet.activation_dimension(depths) == dimension
    keys = model.state_dict().keys()
    assert f"layer3.{depths[2] - 1}.conv2.weight" in keys
    assert {"conv1.weight", "bn1.running_var", "layer2.0.downsample.1.bias", "fc.bias"} <= set(keys)


def test_all_residual_blocks_of_a_resnet():
    torch.manual_seed(0)
    model = resnet.ResNet((1, 2, 1, 1), classes=3)
    source = Activations(model, pictures(2, 64), transform=None)
    assert list(source.block_slices) == [
        *("layer1.0", "layer2.0", "layer2.1", "layer3.0", "layer4.0")
    ]
    assert source.shape[1] == resnet.activation_dimension((1, 2, 1, 1), 64)
    assert source.block_slices["layer4.0"].shape == (2048, 2, 2)


# -- the example ------------------------------------------------------------------------------


def run_example(*words):
    return subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLES / "activations.py"), *map(str, words)],
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.integration
def test_the_example(folder, tmp_path_factory):
    out = tmp_path_factory.mktemp("results")
    torch.manual_seed(0)
    state = {f"module.pre.{k}": v for k, v in resnet.resnet50(classes=7).state_dict().items()}
    torch.save(state, out / "weights.pth")
    before = hashes(folder)
    words = ["--images", folder, "--weights", out / "weights.pth", "--size", 32]
    words += ["--components", 2, "--steps", 3, "--batch-size", 2, "--out", out / "run"]
    done = run_example(*words, "--prefix", "module.pre.")
    assert done.returncode == 0, done.stderr
    dimension = resnet.activation_dimension(resnet.DEPTHS["resnet50"], 32)
    assert f"16 blocks, 4 images x {dimension}" in done.stdout
    assert "Components 1 and 2 are each proven" in done.stdout
    layers = np.loadtxt(out / "run" / "layers.csv", delimiter=",", skiprows=1, usecols=range(1, 4))
    assert layers[:, 0].sum() == dimension
    np.testing.assert_allclose(layers[:, 1:].sum(axis=0), 1, atol=1e-3)
    assert hashes(folder) == before
