"""Folders of images and videos: what is special to rows that are decoded."""

from __future__ import annotations

import os
import threading

import av
import numpy as np
import pytest
from catalogue import lossless_video
from PIL import Image

from primedpca import PrimedPCA, as_source, load
from primedpca.metrics import angles
from primedpca.sources.files import images as decoded
from primedpca.sources.files.images import ImageFolder
from primedpca.sources.files.video import VideoFrames


def photographs(folder, n=7, size=(6, 10), mode="RGB", suffix="png", seed=0):
    """Random images, and the array ``(n, h, w, c)`` that they hold."""
    channels = {"L": (), "LA": (2,), "RGB": (3,), "RGBA": (4,), "CMYK": (4,)}[mode]
    values = np.random.default_rng(seed).integers(0, 256, (n, *size, *channels), dtype=np.uint8)
    folder.mkdir(exist_ok=True)
    for i, image in enumerate(values):
        Image.fromarray(image, mode if mode == "CMYK" else None).save(folder / f"p{i}.{suffix}")
    return values.reshape(n, *size, -1)


def film(path, n=40, size=(32, 48), keys=12, seed=0):
    """A short film with frames that depend on those before, in colour."""
    rng = np.random.default_rng(seed)
    ground = np.kron(rng.integers(0, 200, (size[0] // 8, size[1] // 8, 3)), np.ones((8, 8, 1)))
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=10)
        stream.height, stream.width = size
        stream.pix_fmt = "yuv420p"
        stream.codec_context.gop_size = keys
        for i in range(n):
            frame = np.clip(ground + 40 * np.sin(i / 3), 0, 255).astype(np.uint8)
            frame[4 + i % 20 : 10 + i % 20, i : i + 6] = 255
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
        container.mux(stream.encode())
    return path


def frames_of(path, form="rgb24"):
    """All frames, decoded from the first to the last."""
    with av.open(str(path)) as container:
        return np.stack([frame.to_ndarray(format=form) for frame in container.decode(video=0)])


# -- places that files name ------------------------------------------------------------------


def test_an_image_that_is_a_program(tmp_path):
    """Pillow hands PostScript to Ghostscript, whatever the name of the file."""
    path = tmp_path / "drawing.png"
    path.write_text("%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\nshowpage\n")
    with pytest.raises(ValueError, match=r"drawing\.png is not an image"):
        as_source(path)


def test_a_folder_named_like_an_address(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "http:").mkdir()
    path = film("film.mkv", n=4)
    os.replace(path, "http:/film.mkv")
    assert as_source("http:/film.mkv").shape == (4, 32 * 48 * 3)


@pytest.mark.parametrize(
    "text", ["ffconcat version 1.0\nfile film.mkv\n", "#EXTM3U\n#EXTINF:1,\nfilm.mkv\n"]
)
def test_a_list_of_films_is_not_followed(tmp_path, text):
    film(tmp_path / "film.mkv", n=4)
    path = tmp_path / "list.mp4"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"list\.mp4 cannot be read as a video"):
        as_source(path)


def test_a_title_that_is_not_utf_8(tmp_path):
    with av.open(str(tmp_path / "film.mkv"), "w") as container:
        container.metadata["title"] = "a title"
        stream = container.add_stream("mpeg4", rate=10)
        stream.width = stream.height = 16
        stream.pix_fmt = "yuv420p"
        frame = np.zeros((16, 16, 3), np.uint8)
        container.mux(stream.encode(av.VideoFrame.from_ndarray(frame)))
        container.mux(stream.encode())
    whole = (tmp_path / "film.mkv").read_bytes()
    assert b"a title" in whole
    (tmp_path / "other.mkv").write_bytes(whole.replace(b"a title", b"a \xff\xfetle"))
    assert as_source(tmp_path / "other.mkv").shape == (1, 768)


# -- images -----------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["L", "LA", "RGB", "RGBA", "CMYK"])
def test_rows_are_images(tmp_path, mode):
    values = photographs(tmp_path / "p", mode=mode, suffix="tiff" if mode == "CMYK" else "png")
    source = ImageFolder(tmp_path / "p")
    assert source.image_shape == values.shape[1:]
    assert source.shape == (7, values[0].size)
    assert source.dtype == np.uint8
    np.testing.assert_array_equal(source.rows(np.arange(7)), values.reshape(7, -1))
    back = source.read(0)[0].reshape(source.image_shape)
    np.testing.assert_array_equal(back, values[0])


def test_every_way_to_name_them(tmp_path):
    folder = tmp_path / "with spaces and ü"
    values = photographs(folder).reshape(7, -1)
    (folder / "notes.txt").write_text("not an image, and not asked for")
    (folder / ".hidden.png").write_text("nor this")
    paths = [folder / f"p{i}.png" for i in (3, 1)]
    for given in (folder, str(folder), str(folder / "p*.png"), folder / "p?.png"):
        source = as_source(given)
        np.testing.assert_array_equal(source.rows(np.arange(7)), values)
        assert [path.name for path in source.paths] == [f"p{i}.png" for i in range(7)]
    np.testing.assert_array_equal(ImageFolder(paths).rows(np.arange(2)), values[[3, 1]])
    assert as_source(paths[0]).shape[0] == 1


@pytest.mark.parametrize("shrink", [2, 3])
def test_shrinking_is_the_mean_over_squares(tmp_path, shrink):
    values = photographs(tmp_path / "p", size=(12, 18)).astype(float)
    source = ImageFolder(tmp_path / "p", shrink=shrink)
    boxes = values.reshape(7, 12 // shrink, shrink, 18 // shrink, shrink, 3).mean(axis=(2, 4))
    assert source.image_shape == boxes.shape[1:]
    found = source.rows(np.arange(7)).reshape(boxes.shape)
    # Rounded to a byte; of nine pixels Pillow's mean is a little off before that.
    assert np.abs(found - boxes).max() <= (0.5 if shrink == 2 else 0.6)


def test_the_cache_keeps_what_came_first(tmp_path, monkeypatch):
    values = photographs(tmp_path / "p").reshape(7, -1)
    monkeypatch.setattr(decoded, "BLOCK_BYTES", 2 * values.shape[1])
    source = ImageFolder(tmp_path / "p", cache=3 * values.shape[1] + 1)
    assert source.cache_bytes == 3 * values.shape[1]
    for _ in range(2):
        np.testing.assert_array_equal(np.concatenate([b for _, b in source.scan()]), values)
    for path in source.paths[:3]:
        path.unlink()  # those are not read again
    np.testing.assert_array_equal(source.rows(np.arange(3)), values[:3])
    source.paths[5].unlink()
    with pytest.raises(FileNotFoundError, match=r"p5\.png"):
        source.rows(np.array([5]))


def test_only_the_rows_asked_for_are_decoded(tmp_path):
    values = photographs(tmp_path / "p").reshape(7, -1)
    source = ImageFolder(tmp_path / "p", cache=0)
    for i in (0, 1, 3, 5, 6):
        source.paths[i].write_bytes(b"gone")
    np.testing.assert_array_equal(source.rows(np.array([4, 2, 4])), values[[4, 2, 4]])


def test_reading_in_many_threads(tmp_path):
    values = photographs(tmp_path / "p", n=24).reshape(24, -1)
    source = ImageFolder(tmp_path / "p", cache=10 * values.shape[1])
    names = [int(path.stem[1:]) for path in source.paths]
    wrong = []

    def read(seed):
        for i in np.random.default_rng(seed).integers(0, 24, 50):
            if (source.rows(np.array([i]))[0] != values[names[i]]).any():
                wrong.append(i)

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert len(source._kept) == 10


def test_fitting_equals_fitting_the_array(tmp_path):
    values = photographs(tmp_path / "p", n=12, size=(20, 30)).reshape(12, -1)
    found = PrimedPCA(3, random_state=0).fit(tmp_path / "p")
    truth = np.linalg.svd(values - values.mean(axis=0), full_matrices=False)[2][:3]
    assert found.components_.dtype == np.float32
    assert (angles(found.components_, truth) <= found.angle_bounds_).all()
    assert found.converged_
    assert found.transform(str(tmp_path / "p")).shape == (12, 3)


# -- bad images -------------------------------------------------------------------------------


def test_images_of_another_shape_are_refused(tmp_path):
    photographs(tmp_path / "wide", size=(6, 10))
    photographs(tmp_path / "high", size=(10, 6))
    photographs(tmp_path / "grey", size=(12, 15), mode="L")
    pca = PrimedPCA(2).fit(tmp_path / "wide")
    pca.save(tmp_path / "model.safetensors")
    for name in ("high", "grey"):  # as many numbers
        for model in (pca, load(tmp_path / "model.safetensors")):
            with pytest.raises(ValueError, match="but those of the model are 'images of 6 x 10 x"):
                model.transform(tmp_path / name)
        with pytest.raises(ValueError, match="images to the same size"):
            PrimedPCA(2).partial_fit(tmp_path / "wide").partial_fit(tmp_path / name)
    assert pca.transform(tmp_path / "wide").shape == (7, 2)


def test_ragged_sizes_are_named(tmp_path):
    photographs(tmp_path / "p")
    Image.new("RGB", (11, 6)).save(tmp_path / "p" / "q.png")
    with pytest.raises(ValueError, match=r"q\.png is 11 x 6 RGB, but .*p0\.png is 10 x 6 RGB"):
        as_source(tmp_path / "p")


def test_mixed_modes_are_named(tmp_path):
    photographs(tmp_path / "p")
    Image.new("L", (10, 6)).save(tmp_path / "p" / "q.png")
    with pytest.raises(ValueError, match=r"q\.png is 10 x 6 L, but .* is 10 x 6 RGB"):
        as_source(tmp_path / "p")


def test_palettes_are_refused(tmp_path):
    Image.new("P", (10, 6)).save(tmp_path / "q.png")
    with pytest.raises(ValueError, match=r"mode 'P'.*convert"):
        as_source(tmp_path / "q.png")


def test_no_image_is_named(tmp_path):
    photographs(tmp_path / "p")
    (tmp_path / "p" / "q.jpg").write_bytes(b"this is text")
    with pytest.raises(ValueError, match=r"q\.jpg is not an image"):
        as_source(tmp_path / "p")


@pytest.mark.parametrize("suffix", ["png", "jpg", "bmp"])
def test_truncated_images_are_named(tmp_path, suffix):
    photographs(tmp_path / "p", size=(60, 100), suffix=suffix)
    path = tmp_path / "p" / f"p4.{suffix}"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(ValueError, match=rf"p4\.{suffix} is damaged or cannot be read"):
        PrimedPCA(2).fit(tmp_path / "p")


def test_an_image_that_changes_is_named(tmp_path):
    photographs(tmp_path / "p")
    source = ImageFolder(tmp_path / "p")
    Image.new("RGB", (5, 5)).save(source.paths[2])
    with pytest.raises(OSError, match=r"p2\.png .* since it was opened \(seen at row 2\)"):
        source.rows(np.arange(7))


def test_nothing_there(tmp_path):
    with pytest.raises(ValueError, match="has no images"):
        ImageFolder(tmp_path)
    with pytest.raises(ValueError, match="has no images"):
        ImageFolder(str(tmp_path / "*.png"))
    with pytest.raises(FileNotFoundError, match="nowhere"):
        ImageFolder(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="is a folder without"):
        as_source(str(tmp_path))
    with pytest.raises(ValueError, match="no images"):
        ImageFolder([])


@pytest.mark.parametrize("shrink", [0, -1, 1.5, "2", True])
def test_bad_shrink(tmp_path, shrink):
    photographs(tmp_path / "p")
    with pytest.raises(ValueError, match="`shrink`"):
        ImageFolder(tmp_path / "p", shrink=shrink)


@pytest.mark.parametrize("cache", ["lots", -5])
def test_bad_cache(tmp_path, cache):
    photographs(tmp_path / "p")
    with pytest.raises(ValueError, match="`cache`"):
        ImageFolder(tmp_path / "p", cache=cache)


@pytest.mark.skipif(getattr(os, "geteuid", int)() == 0, reason="root may read everything")
def test_an_unreadable_image(tmp_path):
    photographs(tmp_path / "p")
    (tmp_path / "p" / "p3.png").chmod(0)
    with pytest.raises(PermissionError, match=r"p3\.png"):
        as_source(tmp_path / "p")


# -- videos -----------------------------------------------------------------------------------


@pytest.mark.parametrize("cache", ["1GB", 0, 10 * 32 * 48 * 3])
@pytest.mark.parametrize("keys", [1, 12, 100])
def test_frames_in_any_order(tmp_path, monkeypatch, cache, keys):
    monkeypatch.setattr(decoded, "BLOCK_BYTES", 7 * 32 * 48 * 3)
    path = film(tmp_path / "film.mp4", keys=keys)
    expected = frames_of(path).reshape(40, -1)
    source = VideoFrames(path, cache=cache)
    assert source.shape == expected.shape
    assert source.image_shape == (32, 48, 3)
    for i in (5, 0, 3, 5, 2):
        start, stop = source.blocks[i]
        np.testing.assert_array_equal(source.read(i), expected[start:stop])
    index = np.array([39, 0, 17, 17, 3])
    np.testing.assert_array_equal(source.rows(index), expected[index])
    for _ in range(2):
        np.testing.assert_array_equal(np.concatenate([b for _, b in source.scan()]), expected)


def test_gray_and_shrunk(tmp_path):
    path = film(tmp_path / "film.mp4")
    expected = frames_of(path, "gray").astype(float)
    np.testing.assert_array_equal(
        VideoFrames(path, gray=True).rows(np.arange(40)), expected.reshape(40, -1)
    )
    source = VideoFrames(path, gray=True, shrink=4)
    assert source.image_shape == (8, 12, 1)
    boxes = expected.reshape(40, 8, 4, 12, 4).mean(axis=(2, 4))
    found = source.rows(np.arange(40)).reshape(boxes.shape)
    assert np.abs(found - boxes).max() <= 0.5


def test_fitting_a_film(tmp_path):
    path = film(tmp_path / "a film.mp4")
    values = frames_of(path).reshape(40, -1).astype(float)
    found = PrimedPCA(3, random_state=0).fit(str(path))
    truth = np.linalg.svd(values - values.mean(axis=0), full_matrices=False)[2][:3]
    assert (angles(found.components_, truth) <= found.angle_bounds_).all()


def test_a_damaged_film(tmp_path):
    path = film(tmp_path / "film.mp4")
    (tmp_path / "cut.mp4").write_bytes(path.read_bytes()[:900])
    with pytest.raises(ValueError, match=r"cut\.mp4 cannot be read as a video"):
        as_source(tmp_path / "cut.mp4")
    (tmp_path / "text.mp4").write_text("this is no film")
    with pytest.raises(ValueError, match=r"text\.mp4 cannot be read as a video"):
        as_source(tmp_path / "text.mp4")


@pytest.mark.parametrize("share", [0.3, 0.6, 0.9])
@pytest.mark.parametrize("name", ["film.mkv", "film.mp4", "film.avi", "film.webm"])
def test_a_film_that_was_cut_off_is_no_shorter_film(tmp_path, name, share):
    """Its head comes first in all of them, and decoders end where the file does."""
    path = tmp_path / name
    codec = {".webm": "libvpx-vp9", ".avi": "mpeg4"}.get(path.suffix, "libx264")
    with av.open(str(path), "w", options={"movflags": "faststart"}) as container:
        stream = container.add_stream(codec, rate=25)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        for frame in np.random.default_rng(0).integers(0, 255, (20, 48, 64, 3), dtype=np.uint8):
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
        container.mux(stream.encode(None))
    assert as_source(path).shape == (20, 48 * 64 * 3)
    cut = tmp_path / f"cut {name}"
    cut.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])
    with pytest.raises(ValueError, match=r"cut film.* (truncated|damaged|cannot be read)"):
        as_source(cut)


def test_no_film(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nowhere\.mp4"):
        as_source(tmp_path / "nowhere.mp4")
    (tmp_path / "empty.mp4").write_bytes(b"")
    with pytest.raises(ValueError, match=r"empty\.mp4"):
        as_source(tmp_path / "empty.mp4")


def test_sound_is_no_film(tmp_path):
    path = tmp_path / "sound.mkv"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("pcm_s16le", rate=8000)
        samples = np.zeros((1, 800), dtype=np.int16)
        frame = av.AudioFrame.from_ndarray(samples, format="s16", layout="mono")
        frame.sample_rate = 8000
        container.mux(stream.encode(frame))
        container.mux(stream.encode())
    with pytest.raises(ValueError, match=r"sound\.mkv has no video stream"):
        as_source(path)


def test_a_film_that_changes_is_named(tmp_path):
    path = tmp_path / "film.mkv"
    values = np.random.default_rng(0).integers(0, 256, (20, 8, 8), dtype=np.uint8)
    source = VideoFrames(lossless_video(path, values), gray=True, cache=0)
    lossless_video(path, values[:9])
    with pytest.raises(OSError, match=r"film\.mkv was truncated from .* since it was opened"):
        source.rows(np.array([15]))


# -- what a file of one image may hold ----------------------------------------------------------


@pytest.mark.parametrize("suffix", ["tif", "gif", "webp", "png"])
def test_images_of_several_pages_are_refused(tmp_path, suffix):
    (tmp_path / "p").mkdir()
    pages = [Image.new("RGB", (10, 6), (shade, 0, 0)) for shade in (0, 90, 180)]
    pages[0].save(tmp_path / "p" / f"p1.{suffix}", save_all=True, append_images=pages[1:])
    with pytest.raises(ValueError, match=rf"p1.{suffix} has 3 pages or frames.*Save each"):
        as_source(tmp_path / "p")


def test_a_pattern_may_name_subfolders(tmp_path):
    first = photographs(tmp_path / "p", n=2)
    second = photographs(tmp_path / "p" / "sub", n=3, seed=1)
    source = as_source(f"{tmp_path}/p/**/*.png")
    np.testing.assert_array_equal(source.read(0), np.concatenate([first, second]).reshape(5, -1))
    assert as_source(f"{tmp_path}/p/*.png").shape[0] == 2


@pytest.mark.parametrize("below", ["sub", "sub/more/most"])
def test_a_folder_with_images_at_any_level_below_is_refused(tmp_path, below):
    photographs(tmp_path / "p", n=2)
    (tmp_path / "p" / below).mkdir(parents=True)
    assert as_source(tmp_path / "p").shape[0] == 2
    photographs(tmp_path / "p" / below / "at last", n=1)
    with pytest.raises(ValueError, match=r"more data in its subfolder '.*at last'"):
        as_source(tmp_path / "p")


@pytest.mark.parametrize("suffix", ["png", "tif", "webp", "jpg"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_images_are_turned_upright(tmp_path, suffix, orientation):
    """A photograph that was taken with the camera on its side is as viewers show it."""
    upright = np.zeros((16, 24, 3), np.uint8)
    upright[:8, :8], upright[8:, 16:] = 250, 120
    turns = {
        1: lambda x: x,
        2: lambda x: x[:, ::-1],
        3: lambda x: x[::-1, ::-1],
        4: lambda x: x[::-1],
        5: lambda x: x.swapaxes(0, 1),
        6: lambda x: np.rot90(x),
        7: lambda x: x[::-1, ::-1].swapaxes(0, 1),
        8: lambda x: np.rot90(x, -1),
    }
    stored = np.ascontiguousarray(turns[orientation](upright))
    exif = Image.Exif()
    exif[0x0112] = orientation
    options = (
        {"quality": 100} if suffix == "jpg" else {"lossless": True} if suffix == "webp" else {}
    )
    Image.fromarray(stored).save(tmp_path / f"a.{suffix}", exif=exif, **options)
    Image.fromarray(upright).save(tmp_path / f"b.{suffix}", **options)
    source = as_source(tmp_path)
    assert source.image_shape == (16, 24, 3)
    assert source.layout == "images of 16 x 24 x 3 numbers"
    rows = source.read(0).astype(int)
    np.testing.assert_allclose(rows[0], rows[1], atol=4 if suffix == "jpg" else 0)
    np.testing.assert_allclose(rows[1], upright.reshape(-1), atol=4 if suffix == "jpg" else 0)
