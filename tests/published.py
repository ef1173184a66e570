"""Small files in the very forms in which MNIST, CIFAR-10 and NIPS are given out."""

import gzip
import io
import struct
import tarfile

import numpy as np

MNIST, CIFAR, NIPS, STAND_IN = (6, 12), (10, 12), (4, 3), (3, 5)

rng = np.random.default_rng(0)
DIGITS = rng.integers(0, 256, MNIST, np.uint8)
PICTURES = rng.integers(0, 256, CIFAR, np.uint8)
COUNTS = np.array([[0, 2, 0], [1, 0, 0], [0, 0, 0], [12, 0, 7]])
FEWER = rng.integers(0, 3, STAND_IN)


def idx(images=DIGITS, *, magic=0x803, count=None, height=4):
    n, d = images.shape
    header = struct.pack(">4I", magic, n if count is None else count, height, d // height)
    return header + images.tobytes()


def string(text):
    """A ``str`` as Python 2 pickles it."""
    if len(text) < 256:
        return b"U" + bytes([len(text)]) + text
    return b"T" + struct.pack("<i", len(text)) + text


def integer(value):
    return b"J" + struct.pack("<i", value)


def batch(images):
    """A batch as Python 2 pickled it, opcode by opcode."""
    n, d = images.shape
    kind = b"cnumpy\ndtype\n" + string(b"u1") + integer(0) + integer(1) + b"\x87R"
    kind += b"(" + integer(3) + string(b"|") + b"NNN" + integer(-1) * 2 + integer(0) + b"tb"
    made = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\n"
    made += integer(0) + b"\x85" + string(b"b") + b"\x87R"
    state = b"(" + integer(1) + integer(n) + integer(d) + b"\x86" + kind
    state += b"\x89" + string(images.tobytes()) + b"t"
    content = string(b"batch_label") + string(b"training batch 1 of 5")
    content += string(b"labels") + b"](" + integer(3) * n + b"e"
    content += string(b"data") + made + state + b"b"
    content += string(b"filenames") + b"](" + string(b"leptodactylus_s_000004.png") * n + b"e"
    return b"\x80\x02}(" + content + b"u."


def batches(images=PICTURES):
    return {f"data_batch_{i + 1}": batch(part) for i, part in enumerate(np.split(images, 5))}


def tar_gz(files):
    """The archive, its members out of order as in the real one."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w:gz") as archive:
        for name in sorted(files, reverse=True):
            member = tarfile.TarInfo(f"cifar-10-batches-py/{name}")
            member.size = len(files[name])
            archive.addfile(member, io.BytesIO(files[name]))
    return raw.getvalue()


def csv(counts=COUNTS):
    """Words by papers."""
    lines = ['""' + "".join(f',"1987_{i}"' for i in range(len(counts)))]
    lines += [f'"word{j}",' + ",".join(map(str, row)) for j, row in enumerate(counts.T)]
    return "\n".join(lines).encode() + b"\n"


def zipped(raw):
    return gzip.compress(raw, mtime=0)
