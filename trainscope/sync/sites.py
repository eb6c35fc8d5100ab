"""The table of sync sites: bounded, filled from any thread, read as frozen `SyncSite` records."""

from __future__ import annotations

import linecache
import os
import re
import statistics
import threading
from types import CodeType, FrameType

from trainscope.catalogue.advice import advice
from trainscope.catalogue.codes import CODES, RACE
from trainscope.catalogue.kinds import KINDS
from trainscope.sync.blame import blame, library_frame
from trainscope.trace.syncs import SyncSite

__all__ = ["MAX_SITES", "SAMPLES", "Sites"]

MAX_SITES = 4096
"""More sites than any program has on purpose; beyond them only a count is kept."""
SAMPLES = 256
"""Times kept a site for its median; a median of so many is within a few percent of the true one."""
_CALLERS = 32
"""Distinct callers and library frames counted a site."""

_RESUMED = re.compile(r"torch_dynamo_resume_in_(.+)_at_\d+$")


class _Record:
    """What is counted for one site."""

    __slots__ = (
        "allowed", "callers", "count", "during", "file", "function", "internal", "kind", "line",
        "phase", "samples", "source", "stride", "thread", "timed", "total_ns", "vias",
    )  # fmt: skip

    def __init__(
        self,
        kind: str,
        frame: FrameType | None,
        phase: str | None,
        thread: str,
        during: str,
        allowed: str | None,
    ) -> None:
        self.kind = kind
        self.phase = phase
        self.thread = thread
        self.during = during
        self.allowed = allowed
        self.file, self.line, self.function, self.source = describe(frame)
        self.count = 0
        self.internal = False
        self.timed = 0
        self.total_ns = 0
        self.samples: list[int] = []
        self.stride = 1
        self.callers: dict[tuple[CodeType, int] | None, int] = {}
        self.vias: dict[tuple[CodeType, int] | None, int] = {}

    def time(self, blocked_ns: int) -> None:
        if self.timed % self.stride == 0:
            if len(self.samples) == SAMPLES:  # thin evenly, so that the whole run stays in it
                self.samples = self.samples[::2]
                self.stride *= 2
            if self.timed % self.stride == 0:
                self.samples.append(blocked_ns)
        self.timed += 1
        self.total_ns += blocked_ns


def describe(frame: FrameType | None) -> tuple[str, int, str, str]:
    """Return file, line, function and stripped source of the line that `frame` is at."""
    if frame is None:
        return "<no Python frame>", 0, "", ""
    code, line = frame.f_code, frame.f_lineno or 0
    source = linecache.getline(code.co_filename, line, frame.f_globals).strip()
    resumed = _RESUMED.match(code.co_name)
    name = code.co_filename
    path = name if name.startswith("<") else os.path.abspath(name)
    return path, line, resumed.group(1) if resumed else code.co_name, source


class Sites:
    """Counts waits by site; `record` is the hot path, `snapshot` and `races` read."""

    def __init__(self) -> None:
        # Re-entrant: a collection inside `record` may run user code that waits in turn.
        self._lock = threading.RLock()
        self._records: dict[tuple[object, ...], _Record] = {}
        self.overflow = 0
        """Waits at sites beyond `MAX_SITES`."""

    def record(
        self,
        kind: str,
        frame: FrameType | None,
        *,
        phase: str | None,
        thread: str,
        during: str,
        allowed: str | None = None,
        blocked_ns: int | None = None,
        internal: bool = False,
    ) -> bool:
        """Count one wait seen at `frame`, the innermost one; return whether its site is new.

        `kind` is a name of `KINDS` or ``"race"``, `blocked_ns` None when it was not timed,
        `internal` true for one call that makes many reads.
        """
        blamed = blame(frame)
        user = blamed.user
        where = (None, 0, "") if user is None else _key(user)
        key = (kind, where, phase, thread, during, allowed)
        with self._lock:
            record = self._records.get(key)
            new = record is None
            if record is None:
                if len(self._records) >= MAX_SITES:
                    self.overflow += 1
                    return False
                record = _Record(kind, user, phase, thread, during, allowed)
                self._records[key] = record
            record.count += 1
            if internal:
                record.internal = True
            _count(record.callers, blamed.caller)
            _count(record.vias, blamed.via)
            if blocked_ns is not None:
                record.time(blocked_ns)
        return new

    def snapshot(self) -> tuple[SyncSite, ...]:
        """Return the sync sites so far, most frequent first, then by file and line."""
        return tuple(site for site in self._read() if site.kind != "race")

    def races(self) -> tuple[SyncSite, ...]:
        """Return the reads of a value whose copy may not have landed."""
        return tuple(site for site in self._read() if site.kind == "race")

    def _read(self) -> list[SyncSite]:
        with self._lock:
            sites = [_freeze(record) for record in self._records.values()]
        return sorted(sites, key=lambda site: (-site.count, site.file, site.line))


def _key(frame: FrameType) -> tuple[str, int, str]:
    code = frame.f_code
    return code.co_filename, frame.f_lineno or 0, code.co_name


def _count(
    counts: dict[tuple[CodeType, int] | None, int], place: tuple[CodeType, int] | None
) -> None:
    if place in counts or len(counts) < _CALLERS:
        counts[place] = counts.get(place, 0) + 1


def _top(counts: dict[tuple[CodeType, int] | None, int]) -> tuple[CodeType, int] | None:
    return max(counts, key=lambda place: counts[place])


def _freeze(record: _Record) -> SyncSite:
    caller, via = _top(record.callers), _top(record.vias)
    via_text = None if via is None else library_frame(*via)
    kind = KINDS.get(record.kind)
    if kind is None:
        hint = f"{CODES[RACE]}: wait for an event recorded after the copy, then read"
    else:
        hint = advice(
            record.kind,
            source=record.source,
            phase=record.phase,
            during=record.during,
            via=via_text,
        )
    return SyncSite(
        kind=record.kind,
        code=RACE if kind is None else kind.code,
        explicit=kind is not None and kind.explicit,
        allowed=record.allowed,
        file=record.file,
        line=record.line,
        function=record.function,
        source=record.source,
        caller=None if caller is None else _file_line(*caller),
        via=via_text,
        phase=record.phase,
        thread=record.thread,
        during=record.during,
        count=record.count,
        counted_internally=record.internal,
        timed=record.timed,
        blocked_ns_total=record.total_ns,
        blocked_ns_median=int(statistics.median(record.samples)) if record.samples else None,
        advice=hint,
    )


def _file_line(code: CodeType, line: int) -> str:
    name = code.co_filename
    return f"{name if name.startswith('<') else os.path.abspath(name)}:{line}"
