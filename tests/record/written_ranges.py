"""A recorder that writes down, in one line of text, which ranges were opened and closed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from trainscope.sync.loop import LoopState
from trainscope.trace.ranges import Row


def in_rows(numbers: Iterable[int]) -> Iterator[Row]:
    """The rows whose numbers come one after the other."""
    each = iter(numbers)
    return zip(each, each, each, each, each, strict=True)


class WrittenRange:
    """Opens and closes ranges of one name, as the recorder is asked to."""

    def __init__(self, recorder: WrittenRanges, name: str) -> None:
        self._recorder = recorder
        self._name = name

    def open(self) -> int:
        return self._recorder.open(self._name)

    def close(self, token: int) -> None:
        self._recorder.close(token)


class WrittenRanges:
    """``text`` of a forward with a nested module reads ``forward(encoder())``."""

    def __init__(self) -> None:
        self.loop = LoopState()
        self.step = 0
        self.forwards = 0
        self.backwards = 0
        self.optimizer_steps = 0
        self.on_event: Callable[[str], object] | None = None
        self.open_names: list[str] = []
        self.written: list[str] = []

    def range(self, name: str) -> WrittenRange:
        return WrittenRange(self, name)

    def open(self, name: str) -> int:
        self.open_names.append(name)
        self.written.append(f"{name}(")
        return len(self.open_names) - 1

    def close(self, token: int) -> None:
        while len(self.open_names) > token:
            self.open_names.pop()
            self.written.append(")")

    def close_aside(self, token: int) -> None:
        self.close(token)

    @property
    def text(self) -> str:
        return "".join(self.written).replace(")", ") ").replace(" )", ")").strip()

    @property
    def counts(self) -> tuple[int, int, int]:
        """Training forwards, training backwards, optimizer steps."""
        return self.forwards, self.backwards, self.optimizer_steps
