"""The events of a torch.profiler trace as typed structs, and how pieces of JSON become them.

msgspec decodes straight into structs of these fields and skips all others, which is what makes
reading fast and small (``tests/bench/read_traces.py`` has the comparison).
"""

from __future__ import annotations

import msgspec

__all__ = ["Args", "Distributed", "Document", "Event", "decode_event", "decode_events"]


class Args(msgspec.Struct, gc=False):
    """What of an event's ``args`` is used."""

    stream: int = -1
    device: int = -1
    correlation: int = -1
    bytes: int = -1
    shapes: msgspec.Raw = msgspec.field(default=msgspec.Raw(), name="Input Dims")
    sync_kind: str = msgspec.field(default="", name="cuda_sync_kind")
    event_stream: int = msgspec.field(default=-1, name="wait_on_stream")
    event_correlation: int = msgspec.field(default=-1, name="wait_on_cuda_event_record_corr_id")
    event_id: int = msgspec.field(default=-1, name="wait_on_cuda_event_id")
    name: str = ""
    """Of a thread, in an event of metadata."""


class Event(msgspec.Struct, gc=False):
    """One event; times in µs."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: int | str = -1
    tid: int | str = -1
    ts: float = -1.0
    dur: float = -1.0
    args: Args = msgspec.field(default_factory=Args)


class Device(msgspec.Struct):
    """A GPU in the head of a trace."""

    id: int = -1
    name: str = ""


class Distributed(msgspec.Struct):
    """Which rank wrote a trace, of how many."""

    rank: int = -1
    world_size: int = -1


class Document(msgspec.Struct):
    """The whole of a trace."""

    traceEvents: list[Event] | None = None
    deviceProperties: list[Device] = msgspec.field(default_factory=list)
    baseTimeNanoseconds: int | None = None
    distributedInfo: msgspec.Raw = msgspec.field(default=msgspec.Raw())
    with_stack: int = 0


_EVENTS = msgspec.json.Decoder(list[Event])
_EVENT = msgspec.json.Decoder(Event)


def decode_events(text: bytes | bytearray | memoryview) -> list[Event]:
    """The events of a JSON array.

    Raises msgspec.MsgspecError, UnicodeDecodeError or RecursionError when there is anything else
    in it.
    """
    return _EVENTS.decode(text)


def decode_event(text: bytes) -> Event:
    """One event; raises as ``decode_events``."""
    return _EVENT.decode(text)
