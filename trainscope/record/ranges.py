"""The context managers a user opens ranges with."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from time import perf_counter_ns
from types import TracebackType

from trainscope.errors import NonFiniteError
from trainscope.record.recorder import Recorder

__all__ = ["NullRange", "Range", "StepRange"]


class Range:
    """``with scope.range("tokenize"):`` a named interval; closes on every way out.

    It holds nothing of one interval, so a scope makes one for each name and hands it out again;
    it is entered on the loop's thread only. The common case (no tool attached, closed in order)
    is written out here with its attributes at hand: calling ``Recorder.open`` and ``close``
    takes half as long again.
    """

    __slots__ = ("_add", "_loop", "_name", "_name_id", "_push", "_recorder", "_stack")

    def __init__(self, recorder: Recorder, name: str) -> None:
        self._recorder = recorder
        self._loop = recorder.loop
        self._stack = recorder.stack
        self._push = recorder.stack.append
        self._add = recorder.rows.append
        self._name = name
        self._name_id = recorder.name_id(name)

    def __enter__(self) -> Range:
        recorder = self._recorder
        if recorder.shown:
            recorder.open(self._name)
            return self
        if len(self._stack) == recorder.phase_depth:
            self._loop.phase = self._name
        self._push((recorder.step, self._name_id, perf_counter_ns(), None))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        end_ns = perf_counter_ns()
        recorder = self._recorder
        stack = self._stack
        depth = len(stack) - 1
        base = recorder.base
        if recorder.shown or depth < base or stack[depth][1] != self._name_id:
            recorder.close_named(self._name_id)
            return
        step, name_id, start_ns, window = stack.pop()
        if window is not None:  # it ended while this range was open
            window.pop()
        if depth == recorder.phase_depth:
            self._loop.phase = None
        recorder.last_end_ns = end_ns
        self._add((step, name_id, depth + 1 - base, start_ns, end_ns))


class StepRange:
    """``with scope.step():`` one step, whose number the scope counts."""

    __slots__ = ("_begin", "_end")

    def __init__(self, begin: Callable[[], None], end: Callable[[], None]) -> None:
        self._begin = begin
        self._end = end

    def __enter__(self) -> StepRange:
        self._begin()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self._end()
        else:
            with suppress(NonFiniteError):  # the program's own exception is the one to see
                self._end()


class NullRange:
    """A range of a disabled scope: nothing happens."""

    __slots__ = ()

    def __enter__(self) -> NullRange:
        return self

    def __exit__(self, *_: object) -> None:
        return None
