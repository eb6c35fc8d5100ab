"""`torch.cuda` on a machine without it: waits are recorded, the rest does nothing."""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

import torch

from trainscope.sync.dry.watch import Watch
from trainscope.sync.methods import replace_method
from trainscope.sync.observer import NOT_FOR_USERS
from trainscope.sync.patches import Patches

__all__ = ["install"]

__tracebackhide__ = NOT_FOR_USERS

_NOTHING = (
    "init", "ipc_collect", "reset_accumulated_memory_stats", "reset_max_memory_allocated",
    "reset_max_memory_cached", "reset_peak_memory_stats", "set_device",
    "set_per_process_memory_fraction", "set_stream",
)  # fmt: skip
_NVTX = ("mark", "range_end", "range_pop", "range_push", "range_start")


def install(watch: Watch, patches: Patches) -> None:
    """Replace what waits, and what a script that assumes a GPU calls on the way."""
    cuda = torch.cuda
    for name in ("synchronize", "empty_cache"):
        patches.replace(cuda, name, _waiting(watch, getattr(cuda, name), name))
    accelerator = getattr(torch, "accelerator", None)
    if accelerator is not None:
        original = accelerator.synchronize
        patches.replace(accelerator, "synchronize", _waiting(watch, original, "synchronize"))
    for name in _NOTHING:
        if hasattr(cuda, name):
            patches.replace(cuda, name, _answer(getattr(cuda, name), None))
    for name in _NVTX:
        if hasattr(cuda.nvtx, name):
            patches.replace(cuda.nvtx, name, _answer(getattr(cuda.nvtx, name), 0))
    patches.replace(cuda, "current_device", _answer(cuda.current_device, 0))
    patches.replace(cuda, "get_device_name", _answer(cuda.get_device_name, "no GPU (dry run)"))
    event, stream = _stand_ins(watch)
    main = stream()
    patches.replace(cuda, "Event", event)
    patches.replace(cuda, "Stream", stream)
    patches.replace(cuda, "current_stream", _answer(cuda.current_stream, main))
    patches.replace(cuda, "default_stream", _answer(cuda.default_stream, main))
    for name in ("stream", "device", "device_of"):
        patches.replace(cuda, name, _Scope)
    replace_method(patches, "record_stream", lambda original: _answer(original, None))


def _waiting(watch: Watch, original: Callable[..., Any], kind: str) -> Callable[..., None]:
    @functools.wraps(original)
    def wait(*args: Any, **kwargs: Any) -> None:
        if torch.compiler.is_compiling():
            return
        if watch.live:
            frame = sys._getframe(1)
            watch.safely(lambda: watch.report(kind, frame), None)

    return wait


def _answer(original: Callable[..., Any], value: Any) -> Callable[..., Any]:
    @functools.wraps(original)
    def answer(*args: Any, **kwargs: Any) -> Any:
        return value

    return answer


class _Scope:
    """Stands for ``with torch.cuda.stream(…)`` and ``with torch.cuda.device(…)``."""

    def __init__(self, target: object = None) -> None:
        self.target = target

    def __enter__(self) -> None:
        return None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return None


def _stand_ins(watch: Watch) -> tuple[type, type]:
    """Return the classes that stand for `torch.cuda.Event` and `torch.cuda.Stream`."""

    class Event:
        """Remembers when it was recorded on the CPU; waiting for it is reported."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            self._recorded_ns = 0

        def record(self, stream: object = None) -> None:
            """Note the time."""
            self._recorded_ns = time.perf_counter_ns()

        def wait(self, stream: object = None) -> None:
            """Do nothing: work on the CPU is in order."""

        def query(self) -> bool:
            """Return True: work on the CPU is done when it returns."""
            return True

        def elapsed_time(self, end_event: Any) -> float:
            """Return the CPU time between two records, in milliseconds."""
            return (end_event._recorded_ns - self._recorded_ns) / 1e6

        def synchronize(self) -> None:
            """Report the wait."""
            if watch.live:
                frame = sys._getframe(1)
                watch.safely(lambda: watch.report("event", frame), None)

    class Stream:
        """Has no work of its own; waiting for it is reported."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            self.cuda_stream = 0

        def wait_stream(self, stream: object) -> None:
            """Do nothing: work on the CPU is in order."""

        def wait_event(self, event: object) -> None:
            """Do nothing: work on the CPU is in order."""

        def record_event(self, event: Any = None) -> Any:
            """Return a recorded event."""
            event = Event() if event is None else event
            event.record(self)
            return event

        def query(self) -> bool:
            """Return True: work on the CPU is done when it returns."""
            return True

        def synchronize(self) -> None:
            """Report the wait."""
            if watch.live:
                frame = sys._getframe(1)
                watch.safely(lambda: watch.report("stream", frame), None)

    return Event, Stream
