"""The live source of waits: the armed debug mode and the timed wrappers together."""

from __future__ import annotations

import os
import sys
from contextlib import AbstractContextManager
from types import FrameType

import torch

from trainscope.sync import probes, torch_ops
from trainscope.sync.armed import Armed
from trainscope.sync.blame import blame, working_frame
from trainscope.sync.cuda_present import cuda_present
from trainscope.sync.implicit import implicit_kind
from trainscope.sync.observer import NOT_FOR_USERS, Observer
from trainscope.sync.own import is_own
from trainscope.sync.own_code import leave_uncompiled
from trainscope.sync.patches import Patches

__all__ = ["Live"]

__tracebackhide__ = NOT_FOR_USERS

_OPTIMIZERS = os.path.join(os.path.dirname(torch.__file__), "optim") + os.sep
_READ_KINDS = frozenset(probes.READS.values())
_RULES = "torch._dynamo.trace_rules"

_ALWAYS = (
    "waits inside C++ or CUDA extensions that call CUDA themselves, in torch.distributed and in "
    "torch.sparse",
    "how long an implicit wait blocked (masks, sizes, numbers that an operator reads): torch "
    "announces it without a start",
    "a value read before its non_blocking copy has landed: seen in a dry run only",
)


class Live:
    """Sees each wait on this machine's GPU."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self.armed = Armed(self._heard)
        self.active = False
        self._patches = Patches()
        self._knew_dynamo = False
        self.present = False
        """Whether there is a GPU to wait for."""

    def start(self) -> None:
        """Arm, and put the wrappers in."""
        leave_uncompiled("trainscope.sync")
        self._knew_dynamo = _RULES in sys.modules
        self.present = cuda_present()
        self.armed.start()
        probes.install(self._patches, self)
        if self.present:
            torch_ops.install(self._patches, self)
        self.active = True

    def stop(self) -> None:
        """Take everything out."""
        self.active = False
        self._patches.undo()
        self.armed.stop()
        rules = sys.modules.get(_RULES)
        if rules is not None and not self._knew_dynamo:
            # Imported meanwhile, it has listed our wrappers as torch's own functions.
            rules.clear_lru_cache()

    @property
    def cannot_see(self) -> tuple[str, ...]:
        """See `Source`."""
        if not self.present:
            return ("any wait: this machine has no CUDA device; a dry run finds them without one",)
        if self.armed.wished == 2:
            return (
                *_ALWAYS,
                "implicit waits: the program set the sync debug mode to 'error', so torch raises "
                "at them itself",
            )
        return _ALWAYS

    def announces(self) -> bool:
        """See `probes.Listener`."""
        return self.armed.announces()

    def event(self, kind: str, frame: FrameType, blocked_ns: int, internal: bool) -> None:
        """See `probes.Listener`."""
        if frame.f_code.co_filename.startswith(_OPTIMIZERS) and kind in _READ_KINDS:
            kind = "item-implicit"  # the user wrote no read, but gave a hyper-parameter as a tensor
        self._observer._observe(kind, frame, blocked_ns, internal)

    def h2d_range(self) -> AbstractContextManager[object] | None:
        """See `probes.Listener`."""
        try:
            return self._observer.h2d_range()
        except Exception as fault:
            self._observer.fail(fault)
            return None

    def _heard(self, frame: FrameType | None) -> None:
        if is_own():
            return
        try:
            kind, working = "item-implicit", working_frame(frame)
            if working is not None:
                user = blame(working).user
                with torch._C.DisableTorchFunctionSubclass():  # a lazy parameter refuses to tell
                    kind = implicit_kind(working, user)
        except Exception as fault:
            self._observer.fail(fault)
            return
        self._observer._observe(kind, frame)
