"""What is counted for one sync site, and the frozen `SyncSite` made of it."""

from __future__ import annotations

import copy
import os
import re
import statistics
from collections import Counter
from types import CodeType, FrameType

from trainscope.catalogue.advice import advice
from trainscope.catalogue.codes import CODES, RACE
from trainscope.catalogue.kinds import KINDS
from trainscope.sync.blame import library_frame
from trainscope.sync.cells import cell_of, lines_of
from trainscope.sync.statement import whole_statement
from trainscope.trace.syncs import SyncSite

__all__ = ["SAMPLES", "SiteCounts", "describe", "file_and_line"]

SAMPLES = 256
"""Times kept a site for its median; a median of so many is within a few percent of the true one."""
_CALLERS = 32
"""Distinct callers and library frames counted a site."""

_RESUMED = re.compile(r"torch_dynamo_resume_in_(.+)_at_\d+$")

_Place = tuple[CodeType, int] | None


class SiteCounts:
    """The waits of one site so far."""

    __slots__ = (
        "allowed", "callers", "count", "during", "file", "function", "internal", "kind", "line",
        "phase", "samples", "source", "step", "steps", "stride", "thread", "timed", "total_ns",
        "vias",
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
        self.callers: dict[_Place, int] = {}
        self.vias: dict[_Place, int] = {}
        self.step: int | None = None
        """The step it was last seen in."""
        self.steps = 0

    def add(
        self,
        caller: _Place,
        via: _Place,
        blocked_ns: int | None,
        internal: bool,
        step: int | None,
    ) -> None:
        """Count one wait."""
        self.count += 1
        if step is not None and step != self.step:
            self.step = step
            self.steps += 1
        if internal:
            self.internal = True
        if caller is not None and caller not in self.callers:
            cell_of(caller[0])  # while it runs: later it may not be told any more
        _count(self.callers, caller, 1)
        _count(self.vias, via, 1)
        if blocked_ns is not None:
            self._time(blocked_ns)

    def _time(self, blocked_ns: int) -> None:
        if self.timed % self.stride == 0:
            if len(self.samples) == SAMPLES:  # thin evenly, so that the whole run stays in it
                self.samples = self.samples[::2]
                self.stride *= 2
            if self.timed % self.stride == 0:
                self.samples.append(blocked_ns)
        self.timed += 1
        self.total_ns += blocked_ns

    def after(self, earlier: SiteCounts) -> SiteCounts:
        """Return new counts of this site that hold the waits of `earlier` as well."""
        both = copy.copy(self)
        both.count += earlier.count
        both.internal |= earlier.internal
        # what was seen in no step and is training's now was in the first turn of the loop
        both.steps += earlier.steps or (1 if self.steps else 0)
        both.timed += earlier.timed
        both.total_ns += earlier.total_ns
        both.stride = max(self.stride, earlier.stride)
        both.samples = [*earlier.samples, *self.samples]
        while len(both.samples) > SAMPLES:
            both.samples = both.samples[::2]
            both.stride *= 2
        both.callers, both.vias = dict(self.callers), dict(self.vias)
        for place, count in earlier.callers.items():
            _count(both.callers, place, count)
        for place, count in earlier.vias.items():
            _count(both.vias, place, count)
        return both

    def frozen(self) -> SyncSite:
        """Return the site as it is now."""
        caller, via = _top(self.callers), _top(self.vias)
        via_text = None if via is None else library_frame(*via)
        kind = KINDS.get(self.kind)
        if kind is None:
            hint = f"{CODES[RACE]}: wait for an event recorded after the copy, then read"
        else:
            hint = advice(
                self.kind,
                source=whole_statement(self.file, self.line, self.source),
                phase=self.phase,
                during=self.during,
                via=via_text,
            )
        return SyncSite(
            kind=self.kind,
            code=RACE if kind is None else kind.code,
            explicit=kind is not None and kind.explicit,
            allowed=self.allowed,
            file=self.file,
            line=self.line,
            function=self.function,
            source=self.source,
            caller=None if caller is None else _file_line(*caller),
            via=via_text,
            phase=self.phase,
            thread=self.thread,
            during=self.during,
            count=self.count,
            counted_internally=self.internal,
            steps=self.steps,
            vias=_named(self.vias),
            timed=self.timed,
            blocked_ns_total=self.total_ns,
            blocked_ns_median=int(statistics.median(self.samples)) if self.samples else None,
            advice=hint,
        )


def describe(frame: FrameType | None) -> tuple[str, int, str, str]:
    """Return file, line, function and stripped source of the line that `frame` is at."""
    if frame is None:
        return "<no Python frame>", 0, "", ""
    code, line = frame.f_code, frame.f_lineno or 0
    lines = lines_of(code, frame.f_globals)
    source = lines[line - 1].strip() if 0 < line <= len(lines) else ""
    file, line = file_and_line(code, line)
    return file, line, _function(code.co_name), source


def _function(name: str) -> str:
    if name.startswith("<cell line: "):  # what IPython 7 and 8 call a cell's own code
        return "<module>"
    resumed = _RESUMED.match(name)
    return resumed.group(1) if resumed else name


def file_and_line(code: CodeType, line: int) -> tuple[str, int]:
    """Return what the user calls a line of that code: a cell, or a file by its whole path."""
    cell = cell_of(code)
    if cell is not None:
        return cell.file, cell.above + line
    name = code.co_filename
    return (name if name.startswith("<") else os.path.abspath(name)), line


def _count(counts: dict[_Place, int], place: _Place, count: int) -> None:
    if place in counts or len(counts) < _CALLERS:
        counts[place] = counts.get(place, 0) + count


def _top(counts: dict[_Place, int]) -> _Place:
    return max(counts, key=lambda place: counts[place])


def _named(vias: dict[_Place, int]) -> tuple[tuple[str, int], ...]:
    """What ``SyncSite.vias`` holds."""
    if len(vias) < 2:
        return ()
    named = Counter[str]()
    for via, count in vias.items():
        if via is not None:
            named[library_frame(*via)] += count
    return tuple(named.most_common())


def _file_line(code: CodeType, line: int) -> str:
    file, line = file_and_line(code, line)
    return f"{file}:{line}"
