"""Sees every operator that dispatches: carries the marks on, and reports those that wait."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from numbers import Number
from types import FrameType
from typing import Any

import torch
from torch import Tensor
from torch.nn.parallel import distributed
from torch.utils import _python_dispatch
from torch.utils._python_dispatch import TorchDispatchMode

import trainscope
from trainscope.sync.blame import blame, working_frame
from trainscope.sync.dry.marks import Place
from trainscope.sync.dry.subscripts import note_of_bool, note_of_list, scalar_kind
from trainscope.sync.dry.waits import LARGE_PAGEABLE_BYTES, waits_of
from trainscope.sync.dry.watch import Watch
from trainscope.sync.implicit import named_kind, runs_subscript
from trainscope.sync.observer import NOT_FOR_USERS

__all__ = ["FollowMode", "enter", "leave"]

__tracebackhide__ = NOT_FOR_USERS

_TORCH = os.path.dirname(torch.__file__) + os.sep
_DRY = os.path.dirname(__file__) + os.sep
_METRICS = os.path.join(os.path.dirname(trainscope.__file__), "metrics") + os.sep
_MOVING_WRITES = ("aten::copy_", "aten::set_")
_PACK = torch.ops.aten._pack_padded_sequence.default
_COLLECTIVES = "torch.distributed.distributed_c10d"
_DDP = distributed.__file__
"""Its buckets lie where the gradients do, but are made and filled anew in C++."""


class FollowMode(TorchDispatchMode):
    """Marks what each operator returns by what it was given, on the thread that entered it."""

    supports_higher_order_operators = True

    def __init__(self, watch: Watch) -> None:
        super().__init__()
        self._watch = watch
        self._traits: dict[object, tuple[bool, bool]] = {}

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Stay out of compilation; with a mode that says otherwise torch.compile runs eagerly."""
        return True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Say that no wrapper is needed: our frames are left alone by the compiler (`Tables`)."""
        return False

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Run the operator as it is, reporting before it and marking after it."""
        kwargs = {} if kwargs is None else kwargs
        watch = self._watch
        if not watch.live:
            return func(*args, **kwargs)
        given: list[Tensor] = []
        _collect(args, given)
        _collect(list(kwargs.values()), given)
        if not given and args and isinstance(args[0], Number) and _takes_tensor(func):
            return _of_numbers(func, args, kwargs)
        caller = sys._getframe(1)  # older torch wraps a mode in frames of its own
        frame = working_frame(caller) or caller
        place = watch.safely(lambda: self._before(func, args, kwargs, given, caller, frame), None)
        result = func(*args, **kwargs)
        if place is not None and watch.live:
            watch.safely(lambda: self._after(func, result, place), None)
            if not given and isinstance(result, Tensor) and not _is_of(caller, _DRY):
                watch.safely(lambda: self._made_within(result, frame), None)
        return result

    def _before(
        self,
        func: Any,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        given: list[Tensor],
        caller: FrameType,
        frame: FrameType,
    ) -> Place:
        """Report the waits of this call; return where its results stand."""
        watch, marks = self._watch, self._watch.marks
        schema = getattr(func, "_schema", None)
        name = "" if schema is None else schema.name
        if name == "aten::copy_":
            # the rows of `Scope.log` on a GPU are there too, and NCCL needs no copies of gloo's
            if not _is_of(caller, _METRICS) and frame.f_globals.get("__name__") != _COLLECTIVES:
                self._copy(args, kwargs, frame)
        elif not watch.here.quiet:
            for wait in waits_of(name, args, kwargs, marks):
                kind = wait.kind
                if name == "aten::_local_scalar_dense":  # composite operators end in it
                    kind = scalar_kind(given[0], frame) or named_kind(frame, blame(frame).user)
                watch.report(kind or wait.kind, frame, count=wait.count)
        if name == "aten::lift_fresh" and not _is_of(caller, _DRY):
            note_of_list(given[0], marks, frame)
        places = [marks.raw(tensor) for tensor in given]
        if not watch.here.quiet and name != "aten::copy_" and not self._is_view(func):
            for tensor in given:
                if marks.in_flight(tensor):
                    watch.report("race", frame)
                    break
        if name in _MOVING_WRITES:
            return Place.HOST  # what is written into keeps its own place
        if self._writes(func):
            # a GPU operator can write to the GPU only; a 0-d tensor may be read to the host
            places = [place for place, one in zip(places, given, strict=True) if one.dim() > 0]
        if Place.DEVICE in places:
            return Place.DEVICE
        return Place.MODEL if Place.MODEL in places else Place.HOST

    def _copy(self, args: Sequence[Any], kwargs: Mapping[str, Any], frame: FrameType) -> None:
        """Report ``target.copy_(source, non_blocking)`` between places."""
        watch, marks = self._watch, self._watch.marks
        target, source = args[0], args[1]
        if not isinstance(source, Tensor):  # a number, which torch makes a tensor of on the host
            if marks.on_device(target) and target.numel() > 0:
                watch.report("h2d-scalar", frame)
            return
        non_blocking = bool(args[2] if len(args) > 2 else kwargs.get("non_blocking", False))
        to_device, from_device = marks.on_device(target), marks.on_device(source)
        if to_device and not from_device:
            if source.dim() == 0 and runs_subscript(frame):
                watch.report("h2d-scalar", frame)
            else:
                watch.host_to_device(source, frame, non_blocking=non_blocking)
        elif from_device and not to_device and source.numel() > 0:
            if frame.f_code.co_filename == _DDP or marks.is_within(target):
                marks.settle(target, marks.raw(source))
            elif not non_blocking:
                watch.report("d2h", frame)
            elif (
                not marks.pinned(target)
                and target.numel() * target.element_size() >= LARGE_PAGEABLE_BYTES
            ):
                watch.report("d2h-nonblocking-pageable", frame)
            else:
                marks.launch_copy(target)
        elif marks.in_flight(source) and not to_device:
            watch.report("race", frame)

    def _made_within(self, made: Tensor, frame: FrameType) -> None:
        """Take in a tensor that no Python call makes: all of those are replaced (`factories`)."""
        self._watch.marks.made_within(made)
        note_of_bool(made, self._watch.marks, frame)

    def _after(self, func: Any, result: Any, place: Place) -> None:
        if place is Place.HOST:
            return  # what has no mark is on the host, unless it is a leaf that trains
        made: list[Tensor] = []
        _collect(result, made)
        if func is _PACK:
            del made[1:]  # the batch sizes are always on the host
        for tensor in made:
            self._watch.marks.settle(tensor, place)

    def _is_view(self, func: Any) -> bool:
        """Return whether `func` only gives another look at its input and reads no value."""
        return self._traits_of(func)[0]

    def _writes(self, func: Any) -> bool:
        """Return whether `func` returns what it wrote into: in place, or `out=`."""
        return self._traits_of(func)[1]

    def _traits_of(self, func: Any) -> tuple[bool, bool]:
        known = self._traits.get(func)
        if known is None:
            schema = getattr(func, "_schema", None)
            aliases = [] if schema is None else [answer.alias_info for answer in schema.returns]
            writes = [alias.is_write for alias in aliases if alias is not None]
            known = self._traits[func] = (bool(writes) and not any(writes), any(writes))
        return known


def _is_of(frame: FrameType | None, folder: str) -> bool:
    """Return whether the operator is called from `folder`, seen through torch's own frames."""
    while frame is not None and frame.f_code.co_filename.startswith(_TORCH):
        frame = frame.f_back
    return frame is not None and frame.f_code.co_filename.startswith(folder)


def _collect(value: Any, into: list[Tensor]) -> None:
    if isinstance(value, Tensor):
        into.append(value)
    elif isinstance(value, (list, tuple)):
        for item in value:
            _collect(item, into)


def _takes_tensor(func: Any) -> bool:
    schema = getattr(func, "_schema", None)
    return schema is not None and str(schema.arguments[0].type) == "Tensor"


def _of_numbers(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Run an operator on a TorchScript function's constants: a mode gets numbers for those tensors.

    None is on the device, and only a few operators take them so.
    """
    try:
        return func(*args, **kwargs)
    except RuntimeError:
        asked = zip(func._schema.arguments, args, strict=False)
        return func(*(_as_asked(str(one.type), given) for one, given in asked), **kwargs)


def _as_asked(kind: str, given: Any) -> Any:
    if kind != "Tensor" or not isinstance(given, Number):
        return given
    of_python = {bool: torch.bool, int: torch.int64, float: torch.float64}
    return torch.tensor(given, dtype=of_python.get(type(given), torch.complex128))


def enter(mode: TorchDispatchMode) -> None:
    """Put `mode` on this thread's stack of dispatch modes."""
    mode.__enter__()


def leave(mode: TorchDispatchMode) -> Callable[[], None] | None:
    """Take `mode` off this thread's stack, whatever a script has entered above it and not left."""
    stack = _python_dispatch._get_current_dispatch_mode_stack()
    if mode not in stack:  # entered on another thread: it stays there, and does nothing
        return None
    above = stack[stack.index(mode) + 1 :]
    for _ in above:
        _python_dispatch._pop_mode()
    try:
        mode.__exit__(None, None, None)
    finally:
        for other in above:
            _python_dispatch._push_mode(other)
    return None
