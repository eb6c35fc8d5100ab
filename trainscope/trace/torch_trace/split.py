"""Cutting a trace at the ends of events, so that a gigabyte is never in memory at once."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from trainscope.errors import TraceError
from trainscope.trace.torch_trace.events import Document, Event, decode_events

__all__ = ["Frame", "batches"]

_EVENTS_BEGIN = re.compile(rb'"traceEvents"\s*:\s*\[')
_HEAD_BYTES = 64 << 20
# Raw line ends stand only between values in JSON, never in a text.
_BETWEEN = b"\n  },\n  {"
_LAST = b"\n  ]"


@dataclass
class Frame:
    """What stands around the events, and what went wrong; filled while they are read."""

    document: Document = field(default_factory=Document)
    malformed: int = 0
    cut_at_byte: int | None = None
    """Length of the file where its end is missing."""


def batches(path: Path, source: Iterable[bytes], frame: Frame) -> Iterator[list[Event]]:
    """The events in lists of some ten thousand, in the order of the file.

    Written as Kineto does (an event begins on a line of its own), the text is decoded in pieces;
    any other JSON as a whole. Raises TraceError, with the place, for what is no trace.
    """
    text = bytearray()
    head: bytes | None = None
    done = 0
    for piece in source:
        text += piece
        if head is None and len(text) < _HEAD_BYTES:
            found = _EVENTS_BEGIN.search(text)
            if found is not None and text.find(_BETWEEN, found.end()) >= 0:
                head = bytes(text[: found.end()])
                done = found.end()
                del text[: found.end()]
        if head is not None:
            end = text.rfind(_BETWEEN)
            if end >= 0:
                end += len(b"\n  }")
                yield _decoded(path, bytes(text[:end]), done, frame)
                del text[: end + 1]  # the comma too
                done += end + 1
    if head is None:
        yield _whole(path, bytes(text), frame)
        return
    yield from _rest(path, head, bytes(text), done, frame)


def _decoded(path: Path, text: bytes, at_byte: int, frame: Frame) -> list[Event]:
    try:
        events, malformed = decode_events(b"[" + text + b"]")
    except msgspec.DecodeError as error:
        raise TraceError(
            f"{path} is damaged in the {len(text)} bytes after byte {at_byte}: {error}"
        ) from error
    frame.malformed += malformed
    return events


def _rest(
    path: Path, head: bytes, text: bytes, at_byte: int, frame: Frame
) -> Iterator[list[Event]]:
    """The last events and what comes after them."""
    end = text.rfind(_LAST)
    if end >= 0:
        try:
            frame.document = msgspec.json.decode(
                head + text[end + 1 :].lstrip(), type=Document, strict=False
            )
        except (msgspec.MsgspecError, UnicodeDecodeError):
            end = -1  # the end itself is cut, or this "]" closed something inside an event
    if end >= 0:
        yield _decoded(path, text[:end], at_byte, frame)
        return
    frame.cut_at_byte = at_byte + len(text)
    try:
        frame.document = msgspec.json.decode(head + b"]}", type=Document, strict=False)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        frame.malformed += 1  # only names and the date are lost with the head
    try:  # the last event may be whole
        yield decode_events(b"[" + text.rstrip().rstrip(b",") + b"]")[0]
    except msgspec.DecodeError:
        pass  # it is not: what is missing is said by cut_at_byte


def _whole(path: Path, text: bytes, frame: Frame) -> list[Event]:
    """All events of a text that is not cut at lines: another tool may have written it again."""
    begin = _EVENTS_BEGIN.search(text)
    try:
        if text.lstrip()[:1] == b"[":  # the array alone is a Chrome trace too
            events, frame.malformed = decode_events(text)
            return events
        parts = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        if begin is not None:
            raise TraceError(
                f"{path} is cut off or damaged: {error}; it has {len(text)} bytes"
            ) from error
        raise TraceError(f"{path} is no trace of torch.profiler: {error}") from error
    if "traceEvents" not in parts:
        raise TraceError(
            f"{path} is JSON, but no trace of torch.profiler: it has no traceEvents; "
            "give a file that export_chrome_trace wrote"
        )
    try:
        events, frame.malformed = decode_events(bytes(parts.pop("traceEvents")))
    except msgspec.DecodeError as error:
        raise TraceError(f"{path}: traceEvents is no list of events: {error}") from error
    try:
        frame.document = msgspec.json.decode(msgspec.json.encode(parts), type=Document)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        frame.malformed += 1
    return events
