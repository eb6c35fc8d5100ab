"""The context managers a user opens ranges with."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType

from trainscope.record.recorder import Recorder

__all__ = ["NullRange", "Range", "StepRange"]


class Range:
    """``with scope.range("tokenize"):`` one named interval; closes on every way out."""

    __slots__ = ("_name", "_recorder", "_token")

    def __init__(self, recorder: Recorder, name: str) -> None:
        self._recorder = recorder
        self._name = name
        self._token = -1

    def __enter__(self) -> Range:
        self._token = self._recorder.open(self._name)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._recorder.close(self._token)


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
        self._end()


class NullRange:
    """A range of a disabled scope: nothing happens."""

    __slots__ = ()

    def __enter__(self) -> NullRange:
        return self

    def __exit__(self, *_: object) -> None:
        return None
