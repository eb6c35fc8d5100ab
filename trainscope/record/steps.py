"""``scope.steps(loader)``: a loader whose every turn is a step with a data phase."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Generic, TypeVar

from trainscope.errors import NonFiniteError
from trainscope.record.recorder import Recorder

__all__ = ["Steps"]

Batch = TypeVar("Batch")


class Steps(Generic[Batch]):
    """Iterate the loader; a step lasts from asking for a batch to asking for the next one.

    Asking a loader that is exhausted is no step. A ``break`` ends the step; so does an exception
    in the loop's body, at the latest when the scope closes or the next step begins.
    """

    def __init__(
        self,
        loader: Iterable[Batch],
        recorder: Recorder,
        begin: Callable[[], None],
        go_on: Callable[[], None],
        end: Callable[[], None],
        drop: Callable[[], None],
    ) -> None:
        self._loader = loader
        self._recorder = recorder
        self._begin = begin
        self._go_on = go_on
        self._end = end
        self._drop = drop

    def __len__(self) -> int:
        return len(self._loader)  # type: ignore[arg-type]  # a loader without one says so itself

    def __iter__(self) -> Iterator[Batch]:
        recorder = self._recorder
        if recorder.over:  # nothing is recorded any more
            yield from self._loader
            return
        data = recorder.range("data")
        batches = iter(self._loader)
        go_on = self._go_on
        step = -1
        while True:
            if step >= 0 and recorder.step == step:
                go_on()
            else:  # the first turn; or the step was ended from elsewhere
                self._begin()
            step = recorder.step
            token = data.open()
            try:
                batch = next(batches)
            except StopIteration:
                self._drop()
                return
            except BaseException:
                self._end_quietly(step)
                raise
            data.close(token)
            try:
                yield batch
            except BaseException:  # a break or a dropped iterator
                self._end_quietly(step)
                raise

    def _end_quietly(self, step: int) -> None:
        """End the step unless the loop has gone on to another; what ends the loop goes first."""
        if self._recorder.step == step:
            with suppress(NonFiniteError):
                self._end()
