"""What all probes of one dry run share: the marks, the way to report, and the off switch."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import FrameType
from typing import Protocol, TypeVar

import torch
from torch import Tensor
from torch._guards import TracingContext

from trainscope.notice import warn
from trainscope.sync.blame import working_frame
from trainscope.sync.dry.marks import Marks, Place
from trainscope.sync.dry.waits import LARGE_PAGEABLE_BYTES
from trainscope.sync.observer import NOT_FOR_USERS

__all__ = ["H2dRange", "Observe", "Watch"]

__tracebackhide__ = NOT_FOR_USERS

T = TypeVar("T")

H2dRange = Callable[[], AbstractContextManager[object] | None]

_COMPILERS = ("torch._inductor.", "torch._dynamo.", "torch._subclasses.")
_ON_A_HOST_ALONE = frozenset({("torchmetrics.utilities.compute", "normalize_logits_if_needed")})
"""Functions that read values on a CPU, and on a GPU go another way that does not."""
_MESH = "torch.distributed.device_mesh"
"""It keeps the numbers of its ranks on the host, whatever device the mesh is of."""
_COLLECTIVES = "torch.distributed.distributed_c10d"
_ASYNC_SAVE = "torch.distributed.checkpoint._async_thread_executor"
"""It asks for a group with a backend of the CPU, in which objects are sent from the host."""
_OPTIMIZERS = os.path.join(os.path.dirname(torch.__file__), "optim") + os.sep


class Observe(Protocol):
    """Takes one wait: its kind, the frame of the call, whether it makes many reads."""

    def __call__(self, kind: str, frame: FrameType, *, internal: bool = False) -> None:
        """Take the wait; may raise `SyncError`, which passes through."""
        ...


class _Here(threading.local):
    """What the probes of this thread are in the middle of."""

    quiet = 0
    """Depth of calls whose inner waits are counted already."""
    refusal: Exception | None = None
    """What `observe` raised, on its way to the user's line."""
    moving_to: Place | None = None
    """Where the `Module.to` that runs now moves its tensors."""


class Watch:
    """Shared state of the probes; `on` is False outside a run, in a forked child, and after a
    fault of ours."""

    def __init__(self, observe: Observe, h2d_range: H2dRange | None = None) -> None:
        self._observe = observe
        self._h2d_range = h2d_range
        self.marks = Marks()
        self.here = _Here()
        self.on = False
        self.fault: str | None = None
        self.small_pageable_copies = 0
        _watches.add(self)

    @property
    def live(self) -> bool:
        """Whether what this thread does now is the program's doing, and observed.

        A compiler that traces calls torch's methods itself, on stand-ins for the tensors (torch
        2.9 by the names that are replaced here, and without ``is_compiling()``).
        """
        return self.on and TracingContext.try_get() is None

    def report(
        self, kind: str, frame: FrameType, *, count: int = 1, internal: bool = False
    ) -> None:
        """Report `count` waits of one kind, unless a wait around them is counted already.

        What the compiler makes for itself is left out: torch 2.9 fills its patterns of attention
        with scalars, where nothing else tells that it is compiling.
        """
        if self.here.quiet or _is_compilers(frame) or _is_the_hosts(frame):
            return
        for _ in range(count):
            try:
                self._observe(kind, frame, internal=internal)
            except Exception as error:
                self.here.refusal = error
                raise
        if kind != "race":
            self.marks.waits += 1

    def reading(self, tensor: Tensor, kind: str, frame: FrameType, *, internal: bool) -> None:
        """Report that the CPU reads values of `tensor`: a wait, a race, or nothing."""
        if self.here.quiet:
            return
        if self.marks.on_device(tensor):
            # The user wrote no read: an optimizer looks at a hyper-parameter given as a tensor.
            if frame.f_code.co_filename.startswith(_OPTIMIZERS):
                kind = "item-implicit"
            self.report(kind, frame, internal=internal)
        elif self.marks.in_flight(tensor):
            self.report("race", frame)

    def host_to_device(self, tensor: Tensor, frame: FrameType, *, non_blocking: bool) -> None:
        """Report a copy of the host tensor `tensor` to the GPU, if it waits."""
        if tensor.numel() == 0:
            return
        if self.marks.pinned(tensor):
            if not non_blocking:
                self.report("h2d-pinned", frame)
        elif not non_blocking:
            self.report("h2d-pageable", frame)
        elif tensor.numel() * tensor.element_size() >= LARGE_PAGEABLE_BYTES:
            self.report("h2d-nonblocking-pageable", frame)
        else:
            self.small_pageable_copies += 1

    def h2d_range(self) -> AbstractContextManager[object]:
        """Return the range to enter around a copy to the GPU."""
        entered = None if self._h2d_range is None else self._h2d_range()
        return nullcontext() if entered is None else entered

    @contextmanager
    def counted(self):
        """Waits inside are counted already; a plain context manager for calls that are not hot."""
        self.here.quiet += 1
        try:
            yield
        finally:
            self.here.quiet -= 1

    def safely(self, work: Callable[[], T], otherwise: T) -> T:
        """Do our own `work`; a fault in it ends the dry run with one warning, not the script.

        A subclass of Tensor is not told what is asked of it here: a lazy parameter refuses.
        """
        try:
            with torch._C.DisableTorchFunctionSubclass():
                return work()
        except Exception as error:
            if error is self.here.refusal:  # meant for the user's line, such as SyncError
                self.here.refusal = None
                raise
            self.give_up(error)
            return otherwise

    def give_up(self, error: Exception) -> None:
        """End the dry run because of a fault of ours."""
        self.on = False
        self.fault = f"{type(error).__name__}: {error}"
        warn(
            f"trainscope: the dry run stops here because of a fault of its own ({self.fault}); "
            "the program goes on, later syncs are not seen",
            stacklevel=3,
        )


def _is_compilers(frame: FrameType) -> bool:
    """Return whether a compiler makes the call at `frame`; torch 2.11 prints parameters so."""
    name = frame.f_globals.get("__name__")
    if name == "torch.nn.parameter" and frame.f_back is not None:
        name = frame.f_back.f_globals.get("__name__")
    return str(name).startswith(_COMPILERS)


def _is_the_hosts(frame: FrameType) -> bool:
    frame = working_frame(frame) or frame
    name = frame.f_globals.get("__name__")
    if name == _COLLECTIVES:
        return _is_beneath(_ASYNC_SAVE, frame)
    return name == _MESH or (name, frame.f_code.co_name) in _ON_A_HOST_ALONE


def _is_beneath(module: str, frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_globals.get("__name__") == module:
            return True
        frame = frame.f_back
    return False


_watches: weakref.WeakSet[Watch] = weakref.WeakSet()


def _leave_child_alone() -> None:
    """In a forked child, such as a DataLoader worker, nothing is observed."""
    for watch in list(_watches):
        watch.on = False


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_child_alone)
