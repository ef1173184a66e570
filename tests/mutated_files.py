"""Files of tables, images and films with bytes changed anywhere, read to the end.

Run as a script in a process of its own: ``mutated_files.py FOLDER FIRST LAST [KIND ...]``.  It
prints a JSON object: how many mutants were read, how many were refused by name, and every error
that does not name the file.  A crash is seen by the process that started it.
"""

import json
import sys
import warnings
from pathlib import Path

import numpy as np

KINDS = (
    *("feather", "arrow", "parquet", "mp4", "mkv", "avi", "png", "jpg", "tif", "webp"),
    *("bmp", "ppm", "jp2"),
)
TABLES = ("feather", "arrow", "parquet")
FILMS = ("mp4", "mkv", "avi")


def original(path, kind):
    """A small file of this kind."""
    rng = np.random.default_rng(3)
    if kind in TABLES:
        import pyarrow as pa
        import pyarrow.feather
        import pyarrow.parquet

        table = pa.table(
            {"name": [f"ü{i}" for i in range(30)]}
            | {f"x{j}": rng.normal(size=30) for j in range(3)}
            | {"whole": pa.array([None, *range(29)], pa.int32())}
        )
        if kind == "parquet":
            pyarrow.parquet.write_table(table, path, row_group_size=12)
        elif kind == "feather":
            pyarrow.feather.write_feather(table, path, chunksize=12)
        else:
            with pa.ipc.new_stream(path, table.schema) as stream:
                stream.write_table(table, max_chunksize=12)
        return
    pixels = rng.integers(0, 255, (6, 16, 16, 3), dtype=np.uint8)
    if kind in FILMS:
        import av

        with av.open(path, "w") as film:
            film.metadata["title"] = "a title"
            stream = film.add_stream("mjpeg" if kind == "avi" else "mpeg4", rate=5)
            stream.width = stream.height = 16
            stream.pix_fmt = "yuvj420p" if kind == "avi" else "yuv420p"
            for frame in pixels:
                film.mux(stream.encode(av.VideoFrame.from_ndarray(frame)))
            film.mux(stream.encode())
        return
    from PIL import Image

    image = Image.fromarray(pixels[0])
    image.save(path)


def mutant(whole, number):
    """The bytes with a few of them changed, put in, taken out, or cut off."""
    rng, found = np.random.default_rng([5, number]), bytearray(whole)
    for _ in range(rng.integers(1, 5)):
        place, kind = int(rng.integers(len(found) or 1)), rng.integers(5)
        if kind == 0:
            found[place : place + 1] = bytes([rng.integers(256)])
        elif kind == 1:
            found[place : place + 4] = rng.bytes(4)
        elif kind == 2:
            found[place : place + 8] = bytes([int(rng.choice([0, 127, 128, 255]))]) * 8
        elif kind == 3:
            del found[place : place + int(rng.integers(1, 40))]
        else:
            found[place:place] = rng.bytes(int(rng.integers(1, 9)))
    return bytes(found)


def read(path, kind):
    """Everything that is in the file."""
    from primedpca import as_source

    source = as_source(str(path), **({"id_column": "name"} if kind in TABLES else {}))
    for _, block in source.scan():
        block.sum()
    getattr(source, "row_names", None)


def main(folder, first, last, *kinds):
    """Go through the mutants with these numbers, of every kind."""
    warnings.simplefilter("ignore")
    found, wrong = {"read": 0, "refused": 0}, []
    for kind in kinds or KINDS:
        whole, path = (Path(folder) / f"{name}.{kind}" for name in ("whole", "mutant"))
        original(whole, kind)
        read(whole, kind)
        for number in range(first, last):
            path.write_bytes(mutant(whole.read_bytes(), number))
            print(kind, number, file=sys.stderr, flush=True)  # the last line names a crash
            error = tried(path, kind)
            found["read" if error is None else "refused"] += 1
            if error is not None and not is_named(error, path):
                wrong.append((kind, number, type(error).__name__, str(error)[:200]))
    print(json.dumps(found | {"wrong": wrong}))


def tried(path, kind):
    """The error that reading ends with, if any."""
    try:
        read(path, kind)
    except Exception as error:
        return error
    return None


def is_named(error, path):
    """Whether an error is a plain one that names the file."""
    return type(error) in (ValueError, OSError, TypeError) and str(path) in str(error)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:])
