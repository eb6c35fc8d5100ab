"""What opens and closes a range: of the hooks, or as a context manager of the user's."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from time import perf_counter_ns
from types import TracebackType
from typing import TYPE_CHECKING

from trainscope.errors import ConfigError, NonFiniteError
from trainscope.record.names import MAX_NAME_LENGTH, MAX_NAMES

if TYPE_CHECKING:
    from trainscope.record.recorder import Recorder

__all__ = ["NullRange", "Range", "StepRange", "new_range"]


class Range:
    """``with scope.range("tokenize"):`` a named interval; closes on every way out.

    It holds nothing of one interval, so there is one for each name, handed out again and again;
    it is opened on the loop's thread only. The usual case (no tool attached, closed in order) is
    written out here, for ``with`` and for the hooks: ``Recorder.open`` and ``close``, which do the
    rest, take twice as long, and a call from one method here to another a tenth of the whole.
    """

    __slots__ = ("_name", "_name_id", "_recorder", "_rows", "_stack")

    def __init__(self, recorder: Recorder, name: str) -> None:
        self._recorder = recorder
        self._stack = recorder.stack
        self._rows = recorder.rows
        self._name = name
        self._name_id = recorder.names.number(name)

    def open(self) -> int:
        """Begin an interval; return the token that ends it (0: not recorded)."""
        if self._recorder.shown:
            return self._recorder.open(self._name)
        stack = self._stack
        stack.append((self._name_id, perf_counter_ns()))
        return len(stack)

    def close(self, token: int) -> None:
        """End the interval of that token, and any left open inside it."""
        end_ns = perf_counter_ns()
        recorder = self._recorder
        stack = self._stack
        base = recorder.base
        if recorder.shown or token <= base or token != len(stack):
            recorder.close(token)
            return
        name_id, start_ns = stack.pop()
        recorder.last_end_ns = end_ns
        self._rows.extend((recorder.step, name_id, token - base, start_ns, end_ns))

    def __enter__(self) -> Range:
        if self._recorder.shown:
            self._recorder.open(self._name)
        else:
            self._stack.append((self._name_id, perf_counter_ns()))
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
        depth = len(stack) - recorder.base
        if recorder.shown or depth <= 0 or stack[-1][0] != self._name_id:
            recorder.close_named(self._name_id)
            return
        name_id, start_ns = stack.pop()
        recorder.last_end_ns = end_ns
        self._rows.extend((recorder.step, name_id, depth, start_ns, end_ns))


def new_range(recorder: Recorder, known: dict[str, Range], name: object) -> Range:
    """Return the range of a name that is not in ``known``, and put it there while there is room.

    Raises ConfigError for a name that is no string.
    """
    if not isinstance(name, str):
        raise ConfigError(
            f"a range's name must be a string, not {name!r:.80} ({type(name).__name__}); "
            "write scope.range(str(…)) or a fixed name"
        )
    made = recorder.range(name)
    if len(known) < MAX_NAMES and len(name) <= MAX_NAME_LENGTH:
        known[name] = made
    return made


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
