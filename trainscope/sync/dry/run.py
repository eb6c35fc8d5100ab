"""The dry run itself: starts and stops the probes, and says what they cannot see."""

from __future__ import annotations

from trainscope.sync.dry import compiled, cuda_calls, factories, loading, moves, reads, saving
from trainscope.sync.dry.devices import Devices, follow_gradients
from trainscope.sync.dry.mode import FollowMode, enter, leave
from trainscope.sync.dry.tables import Tables
from trainscope.sync.dry.watch import H2dRange, Observe, Watch
from trainscope.sync.patches import Patches

__all__ = ["DryRun"]

_ALWAYS = (
    "dry run: how long a wait would block, and whether the copy it waits for is really slow",
    "dry run: code that runs only where CUDA is available, such as under `if device == 'cuda'`",
    "dry run: syncs inside CUDA libraries, custom CUDA extensions and torch.distributed",
    "dry run: results of compiled code under no_grad, which carry no sign of where they came from; "
    "syncs inside a compiled region",
    "dry run: operators on threads other than the one that started it, and in worker processes",
    "dry run: a script with no source on disk, where a literal 'cpu' looks like a variable",
)
_NAMED = (
    "dry run: a tensor stands for a GPU one when it was made with an explicit device, moved with "
    ".to() or .cuda(), or computed from such; a device given as a literal 'cpu' is the host"
)
_UNNAMED = (
    "dry run: the script names no device, so parameters and what follows from them stand for GPU "
    "tensors, and the copies of its input data to the GPU, which it does not write, are not counted"
)


class DryRun:
    """Reports every wait that the running script would make on a GPU; needs none.

    `observe` is called as ``observe(kind, frame, internal=…)`` on the thread and at the time of
    each wait, with a kind of the catalogue or ``"race"``; what it raises passes through.
    `h2d_range` returns the range to enter around a copy to the GPU, or None.
    """

    def __init__(self, observe: Observe, h2d_range: H2dRange | None = None) -> None:
        self._watch = Watch(observe, h2d_range)
        self._patches = Patches()
        self._tables = Tables()
        self._foreign: tuple[str, ...] = ()
        self._mode: FollowMode | None = None

    def start(self) -> None:
        """Begin; does nothing when started."""
        if self._mode is not None:
            return
        watch = self._watch
        self._tables.fill()
        devices = Devices(watch)
        devices.install(self._patches)
        follow_gradients(watch, self._patches)
        reads.install(watch, self._patches)
        moves.install(watch, devices, self._patches)
        factories.install(watch, devices, self._patches)
        loading.install(watch, self._patches)
        saving.install(watch, devices, self._patches)
        cuda_calls.install(watch, self._patches)
        self._tables.add()
        self._mode = FollowMode(watch)
        compiled.install(watch, self._mode, self._patches)
        enter(self._mode)
        watch.on = True

    def stop(self) -> None:
        """End, and put back all that was replaced; once more puts back what is left of it."""
        self._watch.on = False
        if self._mode is not None:
            leave(self._mode)
            self._mode = None
        self._tables.remove()
        self._foreign += self._patches.undo()

    @property
    def fault(self) -> str | None:
        """The fault of ours that ended the dry run early, in words; None when there was none."""
        return self._watch.fault

    @property
    def cannot_see(self) -> tuple[str, ...]:
        """What this dry run has no way to know, in words."""
        watch = self._watch
        said = [_NAMED if watch.marks.names_device else _UNNAMED, *_ALWAYS]
        if watch.small_pageable_copies:
            said.append(
                "dry run: whether the non_blocking copies of small pageable tensors wait "
                f"({watch.small_pageable_copies} seen): only a measurement tells"
            )
        if compiled.guards_see_modes():
            said.append(
                "dry run: operators that a compiled function runs beside its graphs, with torch 2.9"
            )
        # who replaces a method finds torch's own on the class, and calls that
        methods = [name for name in self._foreign if name.startswith("Tensor.")]
        functions = [name for name in self._foreign if name not in methods]
        for names, what in (
            (methods, "waits in methods that the program replaced after us"),
            (functions, "calls that the program replaced after us, which still pass through ours"),
        ):
            if names:
                said.append(f"dry run: {what}: {', '.join(names)}")
        if watch.fault is not None:
            said.append(f"dry run: everything after its own fault: {watch.fault}")
        return tuple(said)
