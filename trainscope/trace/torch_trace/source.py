"""The bytes of a trace file, piece by piece, unpacked where they are packed."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from stat import S_ISDIR, S_ISREG

from trainscope.errors import TraceError

__all__ = ["Progress", "pieces"]

Progress = Callable[[int, int], None]
"""Told how many bytes of the file have been read, and how many it has."""

_PIECE_BYTES = 1 << 20
_GZIP = b"\x1f\x8b"
_BOMB_RATIO = 150
"""A trace shrinks to a tenth or a twentieth; a file that grows more than this is none."""
_BOMB_FROM_BYTES = 64 << 20


def pieces(path: Path, progress: Progress | None = None) -> Iterator[bytes]:
    """The unpacked content in pieces of a megabyte, whose events still fit the cache.

    Raises TraceError when it cannot be read or unpacked; a packed file that is cut short gives what
    there is, and then a ``TraceError`` would be wrong: the reader sees that the end is missing.
    """
    try:
        found = path.stat()
        if not (S_ISREG(found.st_mode) or S_ISDIR(found.st_mode)):
            raise TraceError(f"{path} is no regular file; give a file that torch.profiler wrote")
        size = found.st_size
        with path.open("rb") as file:
            first = file.read(_PIECE_BYTES)
            if not first:
                raise TraceError(f"{path} is empty: was the program killed while it wrote it?")
            read = _unpacked if first.startswith(_GZIP) else _plain
            yield from read(path, first, iter(lambda: file.read(_PIECE_BYTES), b""), size, progress)
    except OSError as error:
        raise TraceError(f"{path} cannot be read: {error.strerror or error}") from error


def _plain(
    path: Path, first: bytes, rest: Iterator[bytes], size: int, progress: Progress | None
) -> Iterator[bytes]:
    done = 0
    for piece in _joined(first, rest):
        done += len(piece)
        if progress is not None:
            progress(done, size)
        yield piece


def _unpacked(
    path: Path, first: bytes, rest: Iterator[bytes], size: int, progress: Progress | None
) -> Iterator[bytes]:
    unpacker = zlib.decompressobj(zlib.MAX_WBITS | 16)
    packed, out = 0, 0
    for piece in _joined(first, rest):
        packed += len(piece)
        if progress is not None:
            progress(packed, size)
        while piece:
            if unpacker.eof:  # several packed parts one after the other are one file
                if not piece.startswith(_GZIP):
                    return
                unpacker = zlib.decompressobj(zlib.MAX_WBITS | 16)
            try:
                text = unpacker.decompress(piece, _PIECE_BYTES)
            except zlib.error as error:
                raise TraceError(
                    f"{path} cannot be unpacked near byte {packed} of {size}: {error}; "
                    "record it again or copy it again"
                ) from error
            out += len(text)
            if out > _BOMB_FROM_BYTES and out > _BOMB_RATIO * size:
                raise TraceError(
                    f"{path} unpacks to more than {_BOMB_RATIO} times its size ({out} bytes from "
                    f"{size}), which no trace does; it is not read further"
                )
            if text:
                yield text
            piece = unpacker.unconsumed_tail or unpacker.unused_data


def _joined(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    yield from rest
