"""The frames of a video as rows."""

import bisect
import os
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from typing import Any

import numpy as np

from primedpca.protocols import Block
from primedpca.sources.base import BlockSource
from primedpca.sources.files.common import need, open_regular, stamp_of
from primedpca.sources.files.images import DecodedRows, check_shrink, pillow, pixels

#: Containers by their first bytes: an offset, the bytes there, and FFmpeg's name.  No other kind is
#: opened, as some (playlists) make FFmpeg read other files or addresses.
ATOMS = (b"ftyp", b"moov", b"mdat", b"wide", b"free", b"skip", b"pnot", b"udta", b"junk", b"uuid")
CONTAINERS = (
    *((4, mark, "mov") for mark in ATOMS),
    (0, b"\x1a\x45\xdf\xa3", "matroska"),
    (8, b"AVI ", "avi"),
    (0, b"\0\0\1\xba", "mpeg"),
    (0, b"\0\0\1\xb3", "mpegvideo"),
    (188, b"\x47", "mpegts"),
)
#: Of PyAV: no other file or address is read; the buffer is in bytes.
OPTIONS: dict[str, Any] = {"metadata_errors": "replace", "buffer_size": 2**18}
OPTIONS["options"] = {"protocol_whitelist": "none"}
SUFFIXES = (".avi", ".m4v", ".mkv", ".mov", ".mp4", ".mpeg", ".mpg", ".webm")


class VideoFrames(DecodedRows):
    """The frames of a video's first stream as rows of uint8, in (height, width, channel) order.

    The video is decoded once to count its frames, which fills the cache; later reads start at the
    key frame before.

    Parameters
    ----------
    path : path
    shrink : int, default=1
        Divide both sides by this, by means over squares of pixels.
    gray : bool, default=False
        One channel, the brightness, instead of red, green and blue.
    cache : str or number, default="1GB"
        Keep decoded frames up to so many bytes; 0 keeps none.

    Attributes
    ----------
    image_shape : (height, width, channels)
    """

    def __init__(
        self, path: Any, *, shrink: int = 1, gray: bool = False, cache: Any = "1GB"
    ) -> None:
        self.path, self.shrink, self.gray = os.fspath(path), check_shrink(shrink), gray
        self._stamp, self._whole = stamp_of(self.path), False
        self._times: list[int] = []
        self._keys: list[int] = []
        with self._opened() as (container, stream):
            for number, frame in enumerate(self._frames(container, stream)):
                if number == 0:
                    self._size = (frame.width, frame.height)
                    self._begin(*self._size, 1 if gray else 3, shrink, cache)
                if frame.pts is None or (number and frame.pts <= self._times[-1]):
                    words = f"frame {number} has no time of its own. Convert it with `ffmpeg -i`."
                    raise ValueError(f"{self.path}: {words}")
                self._times.append(frame.pts)
                if frame.key_frame:
                    self._keys.append(number)
                if number < self._places:
                    self._keep(number, self._row(frame))
            if not self._times:
                raise ValueError(f"{self.path} has no frame that can be decoded.")
            self._check_whole(container, stream, frame)
        self._whole = True
        self._end(len(self._times))

    def _check_whole(self, container: Any, stream: Any, last: Any) -> None:
        """Refuse a video that is shorter than it declares, which decoders do not report."""
        rate, tick = stream.average_rate, float(stream.time_base)
        promised = [stream.duration * stream.time_base] if stream.duration else []
        if stream.frames and rate:
            promised.append(stream.frames / rate)
        if container.duration and len(container.streams) == 1:  # sound may be longer
            promised.append(Fraction(container.duration, 1_000_000))
        length = float(np.median(np.diff(self._times))) if len(self._times) > 1 else 0.0
        length = length or (1 / float(rate) / tick if rate else 0.0)
        start = self._times[0] if stream.start_time is None else stream.start_time
        there = (last.pts - start + (last.duration or length)) * tick
        most = float(max(promised, default=0.0))
        if there < most - 0.75 * length * tick:
            raise ValueError(
                f"{self.path} declares {most:.3g} s but ends after {there:.3g} s, "
                f"{len(self._times)} frames: it is truncated. Copy it again; if it is whole, "
                "`ffmpeg -i` with `-c copy` corrects its length."
            )

    def _row(self, frame: Any) -> np.ndarray:
        size = (frame.width, frame.height)
        if size != self._size:
            raise ValueError(f"{self.path} has frames of {self._size} and of {size} pixels.")
        values = frame.to_ndarray(format="gray" if self.gray else "rgb24")
        return pixels(pillow().fromarray(values) if self.shrink > 1 else values, self.shrink)

    @contextmanager
    def _opened(self) -> Iterator[tuple[Any, Any]]:
        """Open the container and its first video stream."""
        av = need("av", "videos", "images")
        self._stamp.check(self.path, "its frames")
        try:
            # Not by name: FFmpeg would take a name with "http:" for an address.
            with (
                open_regular(self.path) as file,
                av.open(file, format=self._container(file), **OPTIONS) as container,
            ):
                if not container.streams.video:
                    raise ValueError(f"{self.path} has no video stream.")
                stream = container.streams.video[0]
                if stream.codec_context is None:
                    raise ValueError(f"{self.path} has a video stream of an unknown codec.")
                # Decoding frames in parallel misses some damage, at random; it is safe once all
                # frames were decoded without an error.
                stream.thread_type = "AUTO" if self._whole else "SLICE"
                stream.codec_context.options = {"err_detect": "explode"}
                yield container, stream
        except Exception as error:  # damaged videos raise any kind
            ours = not isinstance(error, av.FFmpegError) and self.path in str(error)
            if ours or type(error) in (PermissionError, MemoryError):
                raise
            raise ValueError(f"{self.path} cannot be read as a video: {error}.") from error

    def _container(self, file: Any) -> str:
        """FFmpeg's name of the container, by the first bytes."""
        begin = file.read(189)
        file.seek(0)
        for place, mark, name in CONTAINERS:
            if begin[place : place + len(mark)] == mark:
                return str(name)
        raise ValueError(
            f"{self.path} cannot be read as a video: it does not begin as .mp4, .mkv, .avi or .mpg."
        )

    def _frames(self, container: Any, stream: Any) -> Iterator[Any]:
        """Yield frames from the current position; refuse damaged ones."""
        for frame in container.decode(stream):
            if frame.is_corrupt:
                raise ValueError(f"{self.path} is damaged near time {frame.pts}.")
            yield frame

    def _decode(self, numbers: list[int]) -> Iterator[tuple[int, np.ndarray]]:
        if not numbers:
            return
        wanted = {self._times[number]: number for number in numbers}
        key = self._keys[bisect.bisect_right(self._keys, numbers[0]) - 1] if self._keys else 0
        with self._opened() as (container, stream):
            if key:
                container.seek(self._times[key], stream=stream)
            for frame in self._frames(container, stream):
                number = wanted.pop(frame.pts, None)
                if number is not None:
                    yield number, self._row(frame)
                if not wanted:
                    return
        missing = min(wanted.values())
        raise ValueError(f"{self.path} has changed: frame {missing} is no longer found.")

    def batches(
        self, size: int, seed: int | None, epoch: int = 0, start: int = 0
    ) -> Iterator[tuple[np.ndarray, Block]]:
        """Mini-batches of all frames if the cache holds them, else of neighbouring ones."""
        kind = DecodedRows if self._places >= self.shape[0] else BlockSource
        yield from kind.batches(self, size, seed, epoch, start)
