"""Cutting a trace at the ends of events, so that a gigabyte is never in memory at once."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from trainscope.errors import TraceError
from trainscope.trace.torch_trace.events import Document, Event, decode_events
from trainscope.trace.torch_trace.scan import scan

__all__ = ["Frame", "batches"]

_EVENTS_BEGIN = re.compile(rb'"traceEvents"\s*:\s*\[')
_ARRAY = re.compile(rb"(?:\xef\xbb\xbf)?\s*\[")
_BETWEEN = re.compile(rb"\}\s*,\s*\{")
_LARGEST_HEAD_BYTES = 64 << 20
_LARGEST_EVENT_BYTES = 16 << 20
_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


@dataclass
class Frame:
    """What stands around the events, and what went wrong; filled while they are read."""

    document: Document = field(default_factory=Document)
    malformed: int = 0
    malformed_near_byte: int = 0
    """Of the unpacked text: where the piece begins that has the first of them."""
    cut_at_byte: int | None = None
    """Length of the unpacked text where its end is missing."""
    is_head_damaged: bool = False
    """Whether what stands around the events could not be read."""


def batches(path: Path, source: Iterable[bytes], frame: Frame) -> Iterator[list[Event]]:
    """The events in lists of some ten thousand, in the order of the file.

    ``source`` gives the text in pieces. Raises TraceError, with the place, for what is no trace.
    """
    rest = iter(source)
    head, text = _head(path, rest)
    array = _Array(path, text, len(head) - 1, frame)
    yield array.whole_events()
    for piece in rest:
        array.text += piece
        if not array.is_closed:
            yield array.whole_events()
    if not array.is_closed:
        yield array.last_events()
    if not array.found and frame.malformed:
        raise TraceError(
            f"{path} is no trace of torch.profiler: nothing in its traceEvents is an event"
        )
    _around(path, head, bytes(array.text), frame)


def _head(path: Path, source: Iterator[bytes]) -> tuple[bytes, bytearray]:
    """The text up to the bracket that opens the events, and what was read of it and after it."""
    text = bytearray()
    for piece in source:
        searched = max(0, len(text) - 64)
        text += piece
        found = _ARRAY.match(text) or _EVENTS_BEGIN.search(text, searched)
        if found is not None:
            head = bytes(text[: found.end()])
            del text[: found.end() - 1]
            return head, text
        if len(text) > _LARGEST_HEAD_BYTES:
            raise TraceError(
                f"{path} is no trace of torch.profiler: no traceEvents in its first "
                f"{len(text)} bytes"
            )
    if not text:
        raise TraceError(f"{path} unpacks to nothing: was the program killed while it wrote it?")
    try:
        msgspec.json.decode(text)
    except _UNREADABLE as error:
        raise TraceError(
            f"{path} is no trace of torch.profiler, or is cut off before its first event "
            f"({len(text)} bytes): {error}"
        ) from error
    raise TraceError(
        f"{path} is JSON, but no trace of torch.profiler: it has no traceEvents; "
        "give a file that export_chrome_trace wrote"
    )


class _Array:
    """The text of the events that is not read yet, from an opening bracket on."""

    def __init__(self, path: Path, text: bytearray, at_byte: int, frame: Frame) -> None:
        self.path = path
        self.text = text
        self.frame = frame
        self.at_byte = at_byte
        self.is_closed = False
        self.found = 0
        self.between: bytes | None = None

    def whole_events(self) -> list[Event]:
        """All but the last events, taken off the text.

        They are decoded up to the last place that looks like the end of an event. A wrong place,
        inside a text or an inner array, cannot pass: the brackets would not match.
        """
        text = self.text
        if self.between is None:
            first = _BETWEEN.search(text)
            self.between = None if first is None else first[0]
        end = -1 if self.between is None else text.rfind(self.between)
        if end < 0:
            return self._scanned() if len(text) > _LARGEST_EVENT_BYTES else []
        comma = text.index(b",", end)
        text[comma] = ord("]")
        try:
            # Copied, since the shapes of inputs stay views into what is decoded.
            with memoryview(text) as view, view[: comma + 1] as part:
                copied = bytes(part)
            events = decode_events(copied)
        except _UNREADABLE:
            text[comma] = ord(",")
            return self._scanned()
        text[comma] = ord("[")
        self._drop(comma)
        self.found += len(events)
        return events

    def last_events(self) -> list[Event]:
        """What is left of them at the end of the file."""
        events = self._scanned()
        if not self.is_closed:
            self.frame.cut_at_byte = self.at_byte + len(self.text)
            if not self.found and not self.frame.malformed:
                raise TraceError(
                    f"{self.path} is cut off in its first event, at byte "
                    f"{self.frame.cut_at_byte}: nothing in it can be read"
                )
        return events

    def _scanned(self) -> list[Event]:
        done = scan(self.text)
        if done.malformed and not self.frame.malformed:
            self.frame.malformed_near_byte = self.at_byte
        self.frame.malformed += done.malformed
        self.found += len(done.events)
        self.is_closed = done.closed
        if done.closed:
            self._drop(done.end)
        else:
            self._drop(done.end - 1)
            self.text[0] = ord("[")  # the comma after it, where there is one, is a gap too
        if not done.closed and len(self.text) > _LARGEST_EVENT_BYTES:
            raise TraceError(
                f"{self.path} is damaged after byte {self.at_byte}: an event begins there that "
                f"does not end within {len(self.text)} bytes"
            )
        return done.events

    def _drop(self, size: int) -> None:
        del self.text[:size]
        self.at_byte += size


def _around(path: Path, head: bytes, tail: bytes, frame: Frame) -> None:
    """Read what stands before and after the events."""
    if _ARRAY.fullmatch(head):
        return  # the array alone is a Chrome trace too
    ends = (b"]}",) if frame.cut_at_byte is not None else (b"]" + tail, b"]}")
    for end in ends:
        try:
            document = msgspec.json.decode(head + end, type=Document, strict=False)
        except _UNREADABLE:
            frame.is_head_damaged = True
            continue
        if document.traceEvents is None:
            raise TraceError(
                f"{path} is JSON, but no trace of torch.profiler: its traceEvents are not at the "
                "top; give a file that export_chrome_trace wrote"
            )
        if document.traceEvents:
            raise TraceError(f"{path} has traceEvents twice: which are meant cannot be told")
        frame.document = document
        return
