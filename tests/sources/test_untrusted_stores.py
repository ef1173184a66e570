"""HDF5, .h5ad and Zarr from strangers: links, pipes, bombs and objects."""

import json
import os
import pickle
import re
import socket
import subprocess
import sys
import time
import zipfile
import zlib
from pathlib import Path

import anndata
import catalogue
import h5py
import numpy as np
import pytest
import scipy.sparse as sp
import zarr
from command import primedpca

from primedpca import PrimedPCA, as_source, plan
from primedpca.sources.base import whole


def numbers(seed=0, shape=(20, 4)):
    return np.random.default_rng(seed).integers(0, 5, shape).astype("float64")


def values_of(source):
    blocks = [block for _, block in source.scan()]
    blocks = [block.toarray() if sp.issparse(block) else block for block in blocks]
    return np.concatenate(blocks, axis=source.axis)


def zarr_array(path, X=None, **how):
    X = numbers() if X is None else X
    how = {"chunks": (10, 4)} | how
    zarr.create_array(path, shape=X.shape, dtype=X.dtype, **how)[...] = X
    return Path(path)


def edit_json(path, **changes):
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


# -- links ------------------------------------------------------------------------------------


def external_storage(folder):
    (folder / "other").write_bytes(numbers().tobytes())
    with h5py.File(folder / "a.h5", "w") as file:
        file.create_dataset("X", (20, 4), "f8", external=[(str(folder / "other"), 0, 640)])
    return f"{folder}/a.h5"


def other_file(folder):
    with h5py.File(folder / "other.h5", "w") as file:
        file["group/X"] = numbers()
    return folder / "other.h5"


def virtual(folder):
    layout = h5py.VirtualLayout((20, 4), "f8")
    layout[...] = h5py.VirtualSource(other_file(folder), "group/X", (20, 4))
    with h5py.File(folder / "a.h5", "w") as file:
        file.create_virtual_dataset("X", layout)
    return f"{folder}/a.h5"


def external_link(folder, name="X", target="group/X"):
    other = other_file(folder)
    with h5py.File(folder / "a.h5", "w") as file:
        file[name] = h5py.ExternalLink(other, target)
    return f"{folder}/a.h5::X" if name == "X" else f"{folder}/a.h5::{name}/X"


def soft_then_external(folder):
    external_link(folder, "far", "group")
    with h5py.File(folder / "a.h5", "r+") as file:
        file["near"] = h5py.SoftLink("/far/X")
    return f"{folder}/a.h5::near"


def h5ad_link(folder):
    path = catalogue.h5ad_file(sp.csr_array(numbers()), folder / "a.h5ad")
    with h5py.File(path, "r+") as file, h5py.File(folder / "other.h5", "w") as other:
        file.copy("X/data", other, "data")
        del file["X/data"]
        file["X/data"] = h5py.ExternalLink(folder / "other.h5", "data")
    return path


def linked(folder, what):
    """A store of which one file or folder is a symbolic link."""
    zarr.open_group(folder / "a.zarr", mode="w")
    zarr_array(folder / "a.zarr" / "X")
    whole = folder / "a.zarr" / "X" / what
    whole.rename(folder / "elsewhere")
    whole.symlink_to(folder / "elsewhere")
    return f"{folder}/a.zarr::X"


LINKS = {
    "external storage": external_storage,
    "virtual dataset": virtual,
    "external link": external_link,
    "external link on the way": lambda folder: external_link(folder, "far", "group"),
    "soft link to an external one": soft_then_external,
    "h5ad": h5ad_link,
    "zarr chunk": lambda folder: linked(folder, "c/1/0"),
    "zarr chunk folder": lambda folder: linked(folder, "c"),
    "zarr metadata": lambda folder: linked(folder, "zarr.json"),
}


@pytest.mark.parametrize("name", LINKS)
def test_links_are_followed_only_if_asked(tmp_path, name):
    given = LINKS[name](tmp_path)
    with pytest.raises(ValueError, match=r"a\.(h5|h5ad|zarr).*`follow_links`=True if you trust"):
        values_of(as_source(given))
    np.testing.assert_array_equal(values_of(as_source(given, follow_links=True)), numbers())


def test_a_linked_array_and_a_linked_store(tmp_path):
    zarr.open_group(tmp_path / "a.zarr", mode="w")
    zarr_array(tmp_path / "b.zarr")
    (tmp_path / "a.zarr" / "X").symlink_to(tmp_path / "b.zarr")
    for given in (f"{tmp_path}/a.zarr::X", f"{tmp_path}/a.zarr"):
        with pytest.raises(ValueError, match=r"symbolic link.*`follow_links`"):
            as_source(given)
        assert as_source(given, follow_links=True).shape == (20, 4)
    (tmp_path / "c.zarr").symlink_to(tmp_path / "b.zarr")  # named by the user
    assert as_source(tmp_path / "c.zarr").shape == (20, 4)


def test_names_of_an_h5ad_file_are_not_read_elsewhere(tmp_path):
    path = catalogue.h5ad_file(numbers(), tmp_path / "a.h5ad")
    with h5py.File(path, "r+") as file, h5py.File(tmp_path / "other.h5", "w") as other:
        file.copy("obs", other, "obs")
        del file["obs"]
        file["obs"] = h5py.ExternalLink(tmp_path / "other.h5", "obs")
    with pytest.raises(ValueError, match="`follow_links`"):
        _ = as_source(path).row_names
    assert len(as_source(path, follow_links=True).row_names) == 20


def test_a_type_in_the_place_of_a_matrix(tmp_path):
    path = catalogue.h5ad_file(numbers(), tmp_path / "a.h5ad")
    with h5py.File(path, "r+") as file:
        del file["X"]
        file["X"] = np.dtype("f8")
    with pytest.raises(ValueError, match=r"a\.h5ad is damaged.* `X` is not a matrix"):
        as_source(path)


def test_datasets_opened_by_the_user(tmp_path):
    with h5py.File(external_storage(tmp_path)) as file:
        with pytest.raises(ValueError, match=r"other.*`follow_links`"):
            as_source(file["X"])
        assert as_source(file["X"], follow_links=True).shape == (20, 4)


def test_links_inside_a_file(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["group/X"] = numbers()
        file["soft"] = h5py.SoftLink("group")
        file["group/again"] = h5py.SoftLink("X")
        file["one"], file["two"] = h5py.SoftLink("/two"), h5py.SoftLink("/one")
        file["gone"] = h5py.SoftLink("/nowhere")
    for name in ("soft/X", "soft/again", "/group/X"):
        np.testing.assert_array_equal(values_of(as_source(f"{tmp_path}/a.h5::{name}")), numbers())
    with pytest.raises(ValueError, match=r"a\.h5.*circle"):
        as_source(f"{tmp_path}/a.h5::one")
    for name in ("gone", "group/X/deeper", "group"):
        with pytest.raises(ValueError, match="has no dataset"):
            as_source(f"{tmp_path}/a.h5::{name}")


def test_the_command_line_follows_links_if_asked(tmp_path):
    given = external_link(tmp_path)
    done = primedpca("fit", given, "-k", "1")
    assert done.returncode == 1
    assert "`--follow-links` if you trust" in done.stderr
    assert primedpca("fit", given, "-k", "1", "--follow-links").returncode == 0


# -- pipes and devices ------------------------------------------------------------------------

READ = """
import resource, sys, time
resource.setrlimit(resource.RLIMIT_AS, (3 * 2**30, 3 * 2**30))
from primedpca import as_source
import h5py, zarr
def peak():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
before = peak()
for given in sys.argv[1:]:
    start = time.perf_counter()
    try:
        source = as_source(given)
        for name in ("row_names", "feature_names"):
            getattr(source, name, None)
        for block in source.scan():
            pass
        print("read", given)
    except (ValueError, OSError) as error:
        print("refused" if time.perf_counter() - start < 5 else "slow", error)
print((peak() - before) // 1024)
"""


def read_in_a_child(*given):
    """What came of each, and by how many MB the memory of the process grew."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", READ, *map(str, given)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    *lines, grown = done.stdout.splitlines()
    assert len(lines) == len(given)
    return lines, int(grown)


def test_pipes_and_devices_are_refused(tmp_path, monkeypatch):
    given = []
    for name in ("a.h5", "b.hdf5", "c.h5ad", "d.zarr", "e.zarr.zip"):
        os.mkfifo(tmp_path / name)
        given.append(tmp_path / name)
    for name in ("f.h5", "g.h5ad", "h.zarr.zip"):
        (tmp_path / name).symlink_to("/dev/zero")
        given.append(tmp_path / name)
    monkeypatch.chdir(tmp_path)  # the path of a socket must be short
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("i.h5")
    given.append(tmp_path / "i.h5")
    for name, inside in (("j", "c/1/0"), ("k", "zarr.json"), ("l", "c/1"), ("m", "c/extra")):
        store = zarr_array(tmp_path / f"{name}.zarr")
        if (store / inside).exists():
            (store / inside).rename(tmp_path / f"{name}, taken out")
        os.mkfifo(store / inside)
        given.append(store)
    zarr2 = zarr_array(tmp_path / "n.zarr", zarr_format=2)
    (zarr2 / ".zattrs").unlink()
    os.mkfifo(zarr2 / ".zattrs")
    given.append(zarr2)
    zarr.create_group(tmp_path / "q.zarr", zarr_format=2)
    inside = zarr_array(tmp_path / "q.zarr" / "X", zarr_format=2)
    (inside / ".zattrs").unlink()
    os.mkfifo(inside / ".zattrs")
    given.append(tmp_path / "q.zarr")
    os.mkfifo(tmp_path / "pipe")
    with h5py.File(tmp_path / "o.h5", "w") as file:
        file["X"] = h5py.ExternalLink(tmp_path / "pipe", "X")
    with h5py.File(tmp_path / "p.h5", "w") as file:
        file.create_dataset("X", (20, 4), "f8", external=[(str(tmp_path / "pipe"), 0, 640)])
    lines, _ = read_in_a_child(*given, f"{tmp_path}/o.h5::X", f"{tmp_path}/p.h5")
    assert [line for line in lines if not line.startswith("refused")] == []
    assert all("is not a regular file" in line for line in lines[:-2])
    assert all("follow_links" in line for line in lines[-2:])


# -- bombs ------------------------------------------------------------------------------------

ZEROS = bytes(2**26)


def packed_zeros(codec):
    """Many megabytes in few bytes, several times over where the codec allows."""
    once = codec.encode(ZEROS)
    return once * 8 if codec.codec_id in ("gzip", "bz2") else once


def crc32c(data):
    found = 2**32 - 1
    for byte in data:
        found ^= byte
        for _ in range(8):
            found = found >> 1 ^ (0x82F63B78 if found & 1 else 0)
    return found ^ 2**32 - 1


def zarr_bombs(folder):
    import numcodecs

    made = []
    for codec in (
        *(numcodecs.GZip(), numcodecs.Zlib(), numcodecs.BZ2(), numcodecs.LZMA()),
        *(numcodecs.Zstd(), numcodecs.Blosc(), numcodecs.LZ4()),
    ):
        path = folder / f"{codec.codec_id}.zarr"
        zarr_array(path, zarr_format=2, compressors=codec)
        (path / "0.0").write_bytes(packed_zeros(codec))
        made.append(path)
    for name, inner in (("gzip", zarr.codecs.GzipCodec()), ("zstd", zarr.codecs.ZstdCodec())):
        path = zarr_array(folder / f"3{name}.zarr", compressors=inner)
        bomb = (numcodecs.GZip() if name == "gzip" else numcodecs.Zstd()).encode(ZEROS)
        (path / "c" / "0" / "0").write_bytes(bomb)
        made.append(path)
        with zipfile.ZipFile(folder / f"{name}.zarr.zip", "w") as archive:
            for one in sorted(path.rglob("*")):
                if one.is_file():
                    archive.write(one, str(one.relative_to(path)))
        made.append(folder / f"{name}.zarr.zip")
        for count in (4, 1):
            shards = {"chunks": (20 // count, 4), "shards": (20, 4), "compressors": inner}
            path = zarr_array(folder / f"shards-{count}-{name}.zarr", **shards)
            shard = path / "c" / "0" / "0"
            held, length = shard.read_bytes(), 16 * count + 4
            index = np.frombuffer(held[-length:-4], "<u8").reshape(count, 2).copy()
            body = held[:-length]
            index[count // 2] = len(body), len(bomb)
            tail = index.tobytes()
            shard.write_bytes(body + bomb + tail + crc32c(tail).to_bytes(4, "little"))
            made.append(path)
    return made


def bomb_chunk(dataset, place=(0, 0), times=1):
    held = ZEROS
    for _ in range(times):
        held = zlib.compress(held, 9)
    dataset.id.write_direct_chunk(place, held)


def hdf5_bombs(folder):
    with h5py.File(folder / "gzip.h5", "w") as file:
        X = file.create_dataset("X", data=numbers(), chunks=(20, 4), compression="gzip")
        bomb_chunk(X)
    with h5py.File(folder / "twice.h5", "w") as file:
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_chunk((20, 4))
        plist.set_deflate(9)
        plist.set_deflate(9)
        space = h5py.h5s.create_simple((20, 4))
        X = h5py.h5d.create(file.id, b"X", h5py.h5t.NATIVE_DOUBLE, space, plist)
        bomb_chunk(h5py.Dataset(X), times=2)
    with h5py.File(folder / "short.h5", "w") as file:  # fewer bytes than the chunk needs
        X = file.create_dataset("X", data=numbers(), chunks=(20, 4), compression="gzip")
        X.id.write_direct_chunk((0, 0), zlib.compress(bytes(100)))
    with h5py.File(folder / "lzf.h5", "w") as file:
        X = file.create_dataset("X", data=numbers(), chunks=(20, 4), compression="lzf")
        X.id.write_direct_chunk((0, 0), bytes([0, 0]) + b"\xe0\xff\x00" * 2**20)
    made = [folder / f"{name}.h5" for name in ("gzip", "twice", "short", "lzf")]
    for name in ("X/data", "X/indices", "X/indptr", "obs/_index"):
        path = folder / f"{name.replace('/', ' ')}.h5ad"
        anndata.AnnData(sp.csr_array(numbers())).write_h5ad(path, compression="gzip")
        with h5py.File(path, "r+") as file:
            bomb_chunk(file[name], (0,))
        made.append(path)
    path = folder / "dense.h5ad"
    anndata.AnnData(numbers()).write_h5ad(path, compression="gzip")
    with h5py.File(path, "r+") as file:
        bomb_chunk(file["X"])
    return [*made, path]


def test_chunks_that_decompress_to_more_than_they_declare(tmp_path):
    made = zarr_bombs(tmp_path) + hdf5_bombs(tmp_path)
    lines, grown = read_in_a_child(*made)
    assert [line for line in lines if not line.startswith("refused")] == []
    assert [path for path, line in zip(made, lines, strict=True) if str(path) not in line] == []
    assert grown < 60


def test_names_that_are_one_long_text(tmp_path):
    """Every one of 40,000 names refers to the same 100 kB: 4 GB."""
    path = tmp_path / "a.h5ad"
    anndata.AnnData(np.ones((40_000, 1))).write_h5ad(path)
    with h5py.File(path, "r+") as file:
        del file["obs/_index"]
        text = h5py.string_dtype()
        column = file.create_dataset("obs/_index", (40_000,), text, chunks=(40_000,))
        column[0] = "x" * 100_000
        first = column.id.read_direct_chunk((0,))[1][:16]
        column.id.write_direct_chunk((0,), first * 40_000)
    (line,), grown = read_in_a_child(path)
    assert line.startswith("refused")
    assert "more text than the file has" in line
    assert grown < 1000


def test_millions_of_absent_chunks(tmp_path):
    store = zarr_array(tmp_path / "a.zarr", chunks=(1, 1), compressors=None)
    edit_json(store / "zarr.json", shape=[2_000_000, 4])
    with zipfile.ZipFile(tmp_path / "a.zarr.zip", "w") as archive:
        archive.write(store / "zarr.json", "zarr.json")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("X", (2_000_000, 4), "f8", chunks=(1, 1))
    given = [store, tmp_path / "a.zarr.zip", tmp_path / "a.h5"]
    lines, grown = read_in_a_child(*given)
    assert [line for line in lines if not line.startswith("refused")] == []
    assert all("of its 8000000 chunks" in line for line in lines)
    assert grown < 100


@pytest.mark.parametrize("shape", [(30_000, 4), (4, 30_000)])
@pytest.mark.parametrize("version", [2, 3])
def test_mostly_absent_chunks_are_read_in_no_time(tmp_path, shape, version):
    how = {"shape": shape, "dtype": "f8", "zarr_format": version, "fill_value": 7}
    array = zarr.create_array(tmp_path / "a.zarr", chunks=(3, 2), **how)
    X = np.full(shape, 7.0)
    X[2:5, 1:4] = array[2:5, 1:4] = 3
    X[-1, -1] = array[-1, -1] = 5
    start = time.perf_counter()
    source = as_source(tmp_path / "a.zarr")
    assert source.missing_chunks > 19_000
    np.testing.assert_array_equal(values_of(source), X)
    assert time.perf_counter() - start < 5


def test_chunks_far_larger_than_the_array(tmp_path):
    store = zarr_array(tmp_path / "a.zarr")
    edit_json(
        store / "zarr.json",
        chunk_grid={"name": "regular", "configuration": {"chunk_shape": [10**6, 10**4]}},
    )
    for path in (store / "c" / "1", store / "c"):
        for one in sorted(path.rglob("*"), reverse=True):
            one.unlink() if one.is_file() else one.rmdir()
    with pytest.raises(ValueError, match=r"chunks of shape \(1000000, 10000\), too large"):
        as_source(store)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("X", (20, 4), "f8", chunks=(10**5, 1000), maxshape=(None, None))
    with pytest.raises(ValueError, match=r"\(100000, 1000\), too large"):
        as_source(tmp_path / "a.h5")


def test_chunks_beyond_the_array_count_as_memory(tmp_path):
    X = numbers(shape=(400, 4))
    for chunks, name in (((400, 4), "a"), ((400, 10_000), "b")):
        with h5py.File(tmp_path / f"{name}.h5", "w") as file:
            how = {"compression": "gzip", "maxshape": (400, None)}
            file.create_dataset("X", data=X, chunks=chunks, **how)
    zarr_array(tmp_path / "b.zarr", X, chunks=(400, 10_000))
    lean = plan(tmp_path / "a.h5", 2).ways[0].memory
    for name in ("b.h5", "b.zarr"):
        assert plan(tmp_path / name, 2).ways[0].memory > lean + 400 * 9_000 * 8
        with pytest.raises(ValueError, match="`max_memory`"):
            PrimedPCA(2, max_memory="25MB").fit(tmp_path / name)


# -- objects and codecs -----------------------------------------------------------------------


class Runs:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


OBJECTS = {
    "filter": {"filters": [{"id": "pickle", "protocol": 5}]},
    "compressor": {"compressor": {"id": "pickle", "protocol": 5}},
    "after another": {"dtype": "|O", "filters": [{"id": "vlen-utf8"}, {"id": "pickle"}]},
    "objects": {"dtype": "|O", "filters": [{"id": "pickle"}], "fill_value": None},
    "json2": {"filters": [{"id": "json2"}]},
    "msgpack2": {"filters": [{"id": "msgpack2"}]},
    "vlen-array": {"filters": [{"id": "vlen-array", "dtype": "<f8"}]},
    "decoded as text": {"filters": [{"id": "astype", "encode_dtype": "<f8", "decode_dtype": "O"}]},
    "records": {"dtype": [["a", "<f8"], ["b", "|O"]]},
}


@pytest.mark.parametrize("name", OBJECTS)
def test_objects_in_zarr_are_refused_unopened(tmp_path, name):
    store, ran = zarr_array(tmp_path / "a.zarr", zarr_format=2), tmp_path / "ran"
    edit_json(store / ".zarray", **OBJECTS[name])
    for chunk in ("0.0", "1.0"):
        (store / chunk).write_bytes(pickle.dumps(Runs(ran)))
    with pytest.raises(ValueError, match=r"a\.zarr.*(Python objects|only numbers)"):
        as_source(store)
    assert not ran.exists()


def test_objects_of_format_3_are_refused(tmp_path):
    store = zarr_array(tmp_path / "a.zarr")
    codecs = json.loads((store / "zarr.json").read_text())["codecs"]
    edit_json(store / "zarr.json", codecs=[*codecs[:1], {"name": "numcodecs.pickle"}])
    with pytest.raises(ValueError, match=r"pickle.*Python objects"):
        as_source(store)
    edit_json(store / "zarr.json", codecs=codecs, data_type="string")
    with pytest.raises(ValueError, match="'string'; only numbers"):
        as_source(store)


def test_a_codec_that_is_not_known(tmp_path):
    import numcodecs

    X = numbers()
    store = zarr_array(tmp_path / "a.zarr", zarr_format=2, filters=numcodecs.Base64())
    with pytest.raises(ValueError, match="base64"):
        as_source(store)
    store = zarr_array(tmp_path / "b.zarr", X > 2, zarr_format=2, filters=numcodecs.PackBits())
    with pytest.raises(ValueError, match="'packbits', whose decoded size cannot be bounded"):
        as_source(store)
    source = as_source(zarr.open_array(store, mode="r"))  # opened by the user
    np.testing.assert_array_equal(values_of(source), X > 2)


def test_a_zip_archive_that_is_compressed_once_more(tmp_path):
    store = zarr_array(tmp_path / "a.zarr")
    with zipfile.ZipFile(tmp_path / "a.zarr.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for one in store.rglob("*"):
            archive.write(one, str(one.relative_to(store)))
    with pytest.raises(ValueError, match=r"compresses its member.*zip -0"):
        as_source(tmp_path / "a.zarr.zip")


def zarr_codecs():
    import numcodecs

    yield from [{"compressors": None}, {}, {"compressors": zarr.codecs.GzipCodec()}]
    yield {"compressors": [zarr.codecs.ZstdCodec(checksum=True), zarr.codecs.Crc32cCodec()]}
    yield {"compressors": [zarr.codecs.Crc32cCodec(), zarr.codecs.BloscCodec(cname="lz4")]}
    yield {"compressors": zarr.codecs.BloscCodec(), "shards": (20, 4)}
    turned = zarr.codecs.TransposeCodec(order=(1, 0))
    yield {"compressors": None, "shards": (20, 4), "filters": turned}
    for codec in (
        *(numcodecs.Zlib(), numcodecs.GZip(), numcodecs.BZ2(), numcodecs.LZMA(), numcodecs.LZ4()),
        *(numcodecs.Zstd(), numcodecs.Blosc(), None),
    ):
        yield {"compressors": codec, "zarr_format": 2}
    delta = numcodecs.Delta("f8", "i2")
    yield {"compressors": numcodecs.Zlib(), "filters": [delta], "zarr_format": 2}
    yield {"compressors": numcodecs.Blosc(), "filters": [numcodecs.CRC32()], "zarr_format": 2}
    yield {"compressors": None, "filters": [numcodecs.Adler32()], "zarr_format": 2}


@pytest.mark.parametrize("how", list(zarr_codecs()), ids=lambda how: re.sub("{.*?}", "", str(how)))
def test_every_codec_that_is_known(tmp_path, how):
    X = numbers(shape=(50, 7))
    shards = {"chunks": (10, 2)} if "shards" in how else {"chunks": (20, 4)}
    given = zarr_array(tmp_path / "a.zarr", X, **shards, **how)
    np.testing.assert_array_equal(values_of(as_source(given)), X)


@pytest.mark.parametrize("compressors", [None, "auto"])
def test_shards_of_one_chunk(tmp_path, compressors):
    X, same = numbers(shape=(50, 7)), {"chunks": (20, 4), "shards": (20, 4)}
    given = zarr_array(tmp_path / "a.zarr", X, compressors=compressors, **same)
    np.testing.assert_array_equal(values_of(as_source(given)), X)


@pytest.mark.parametrize(
    "how",
    [
        {"compression": "gzip"},
        {"compression": "gzip", "shuffle": True, "fletcher32": True},
        {"compression": "lzf", "shuffle": True, "fletcher32": True},
        {"compression": "szip"},
        {"scaleoffset": 3},
    ],
    ids=str,
)
def test_every_filter_of_hdf5(tmp_path, how):
    X = numbers(shape=(50, 7))
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("X", data=X, chunks=(20, 4), **how)
    np.testing.assert_array_equal(values_of(as_source(tmp_path / "a.h5")), X)


def test_a_frame_of_zstandard_without_its_size():
    from primedpca.sources.files.chunked import HEADERS

    def frame(blocks, length, kind):
        head = (length << 3 | kind << 1).to_bytes(3, "little")
        last = (length << 3 | kind << 1 | 1).to_bytes(3, "little")
        body = b"\0" if kind == 1 else bytes(length)
        return b"\x28\xb5\x2f\xfd\x00\x58" + (head + body) * (blocks - 1) + last + body

    check = HEADERS["zstd"]
    good = frame(3, 100, 0)
    check(good, len(good), 300)
    bomb = frame(2000, 2**17, 1)
    with pytest.raises(ValueError, match="blocks do not fit"):
        check(bomb, len(bomb), 640)
    with pytest.raises(ValueError, match="blocks do not fit"):
        check(good + good, 2 * len(good), 300)
    with pytest.raises(ValueError, match="last block is missing"):
        check(good[:50], 50, 300)


def test_a_short_lzf_stream_is_refused(tmp_path):
    """HDF5 would fill the rest of the chunk with what happens to be in memory."""
    path, rng = tmp_path / "a.h5", np.random.default_rng(0)
    X = rng.integers(0, 3, (40, 6)).astype("f4")
    with h5py.File(path, "w") as file:
        file.create_dataset("X", data=X, chunks=(10, 3), compression="lzf")
    assert np.array_equal(whole(as_source(path)), X)
    with h5py.File(path, "r+") as file:
        mask, raw = file["X"].id.read_direct_chunk((0, 0))
        assert mask == 0
        file["X"].id.write_direct_chunk((0, 0), bytes([3]) + raw[1:5])  # one run of four bytes
    with pytest.raises(ValueError, match="decompresses to 4 bytes"):
        whole(as_source(path))


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("packed", [False, True], ids=["folder", "zip"])
def test_arrays_in_groups_of_groups(tmp_path, monkeypatch, version, packed):
    """One array is found in any group, and its chunks are not those of a longer name."""
    monkeypatch.chdir(tmp_path)
    root = zarr.open_group("store", mode="w", zarr_format=version)
    outer = root.create_group("outer")
    X, others = numbers(shape=(50, 7)), {"chunks": (20, 4), "compressors": None}
    outer.create_group("inner").create_array("a", data=X, **others)
    path = Path("store")
    if packed:
        path = Path("store.zarr.zip")
        with zipfile.ZipFile(path, "w") as archive:
            for one in sorted(Path("store").rglob("*")):
                archive.write(one, str(one.relative_to("store")))
    for name in (path, tmp_path / path):
        source = as_source(name)
        np.testing.assert_array_equal(values_of(source), X)
        assert source.missing_chunks == 0
