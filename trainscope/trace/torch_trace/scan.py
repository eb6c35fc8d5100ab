"""The careful way through an array of events, where the quick one does not get through.

The quick way takes the text between two events for granted. This one counts brackets, and so finds
each event by itself: the end of the array, events that are no JSON, and the last whole one in a
file that is cut.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import msgspec

from trainscope.trace.torch_trace.events import Event, decode_event

__all__ = ["Scanned", "scan"]

# A text may not run over a line end, so that after a lost quote the next line is read rightly; one
# that is cut off runs to the end, so that no bracket in it counts.
_TEXT = rb'"[^"\\\n]*(?:\\.[^"\\\n]*)*"?'
_TOKEN = re.compile(_TEXT + rb"|[{}\[\]]")
_ODD = re.compile(_TEXT + rb"|-?\b(?:inf|nan|Infinity|NaN)\b")
_QUOTED = re.compile(_TEXT)
_BETWEEN = re.compile(rb"\s*,?\s*")
_PAIR = re.compile(rb"\\ud[89ab][0-9a-f]{2}\\ud[c-f][0-9a-f]{2}", re.IGNORECASE)
_ALONE = re.compile(rb"\\\\|(" + _PAIR.pattern + rb")|\\ud[89a-f][0-9a-f]{2}", re.IGNORECASE)
_CONTROL = re.compile(rb"[\x00-\x1f]")


@dataclass(frozen=True)
class Scanned:
    """What was found in the text of an array."""

    events: list[Event]
    malformed: int
    """Entries that are no events, or that no repair makes readable."""
    end: int
    """Where the array closes (after its bracket), or where the entry begins that is not whole."""
    closed: bool


def scan(text: bytes | bytearray) -> Scanned:
    """The events of an array; ``text`` begins with its bracket and may end anywhere."""
    events: list[Event] = []
    malformed, depth, begin, end = 0, 0, 1, 1
    for token in _TOKEN.finditer(text):
        mark = token[0]
        if mark in (b"{", b"["):
            depth += 1
            if depth == 2:
                begin = token.start()
                malformed += _others(text, end, begin)
        elif mark in (b"}", b"]"):
            depth -= 1
            if depth == 1:
                end = token.end()
                event = _read(bytes(text[begin:end]))
                if event is None:
                    malformed += 1
                else:
                    events.append(event)
            elif depth == 0:
                malformed += _others(text, end, token.start())
                return Scanned(events, malformed, token.end(), True)
    return Scanned(events, malformed, end, False)


def _others(text: bytes | bytearray, begin: int, end: int) -> int:
    """How many entries stand there that are numbers, texts or words."""
    if _BETWEEN.fullmatch(text, begin, end) is not None:
        return 0
    return sum(1 for part in _QUOTED.sub(b"0", text[begin:end]).split(b",") if part.strip())


def _read(text: bytes) -> Event | None:
    """The event, repaired where torch is known to write what is no JSON."""
    for attempt in (text, _repaired(text)):
        try:
            return decode_event(attempt)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            continue  # counted by the caller
    return None


def _repaired(text: bytes) -> bytes:
    """``inf`` and ``nan`` as null, halves of characters and control characters as ``\\ufffd``."""

    def mended(found: re.Match[bytes]) -> bytes:
        if not found[0].startswith(b'"'):
            return b"null"
        whole = _ALONE.sub(_mended_escape, found[0])
        return _CONTROL.sub(rb"\\ufffd", whole)

    return _ODD.sub(mended, text.decode("utf-8", "replace").encode())


def _mended_escape(found: re.Match[bytes]) -> bytes:
    """Half of a pair of surrogates replaced; a whole pair and a backslash stay."""
    return found[0] if found[1] or found[0] == rb"\\" else rb"\ufffd"
