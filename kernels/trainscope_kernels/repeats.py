"""Calls that were made before, found by what their tensors are and done again at once.

To check the arguments, to ask torch who watches and to work out a launch costs the CPU several
times as much as starting a kernel. All of it follows from the options and from the kinds of the
tensors, so of a call in plain eager code, without gradient, is kept how to do such a one again.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from trainscope_kernels.registry import all_plain, nobody_watches

try:
    from torch._C._dynamo import guards
except ImportError:  # not part of torch's public interface
    guards = None

__all__ = ["Again", "Repeats"]

_TensorGuards: Any = getattr(guards, "TensorGuards", None)
KINDS_AT_MOST = 16
"""Kinds of tensors remembered with the same options; the search tries one after the other."""
OPTIONS_AT_MOST = 256
"""Then all is forgotten: a scale that changes with each step would be remembered for ever."""

Again = Callable[..., Any]
"""Does a call for tensors of a known kind; gives None where these cannot have it the short way."""

_torch: Any = torch  # the questions below are torch's own, which its stubs leave out
_is_compiling = torch.compiler.is_compiling
_any_autocast = _torch._C._is_any_autocast_enabled
_function_modes = _torch._C._len_torch_function_stack
_profiling = _torch._C._autograd._profiler_enabled
_current_device: Callable[[], int] = getattr(_torch._C, "_cuda_getDevice", int)


class Repeats:
    """The calls of one op that can be done again; what is found does not depend on values."""

    def __init__(self) -> None:
        self._known: dict[Hashable, list[tuple[Callable[..., bool], int, Again]]] = {}

    def again(self, options: Hashable, *tensors: Tensor) -> Any:
        """The result of a call like one of before; None where it must go the long way."""
        if _is_compiling() or _function_modes() or _profiling() or forward_ad._current_level >= 0:
            return None
        try:
            known = self._known.get(options, ())
        except TypeError:  # an option that cannot be looked up is no option of ours
            return None
        for same_kind, device, do in known:
            if same_kind(*tensors):
                return do(*tensors) if device == _current_device() else None
        return None

    def first(
        self, options: Hashable, tensors: tuple[Tensor, ...], prepare: Callable[[], Again | None]
    ) -> Any:
        """The result of a call of a new kind, remembered; None where it must go the long way.

        options, tensors: checked already, and all that ``prepare`` looks at. It gives what does
        such a call, or None where that has to be worked out each time.
        """
        if _is_compiling() or any(x.requires_grad for x in tensors):
            return None
        if not nobody_watches() or _any_autocast() or not all_plain(range(len(tensors)), tensors):
            return None
        # after that: a fake tensor says that it is on a GPU where there may be none
        if not _on_current(tensors[0]):
            return None
        if options not in self._known and len(self._known) >= OPTIONS_AT_MOST:
            self._known.clear()
        known = self._known.setdefault(options, [])
        if _one_is_twice(tensors) or any(same_kind(*tensors) for same_kind, _, _ in known):
            return None
        do = prepare() or _never
        # the newest first: the keys of a decoder grow, and its layers have the same kind in turn
        known.insert(0, (_kind_check(tensors), tensors[0].get_device(), do))
        del known[KINDS_AT_MOST:]
        return do(*tensors)


def _never(*tensors: Tensor) -> None:
    """Do nothing, for a kind of call that has no short way: so it is not asked about again."""


def _one_is_twice(tensors: tuple[Tensor, ...]) -> bool:
    return len({id(x) for x in tensors}) < len(tensors)


def _on_current(x: Tensor) -> bool:
    """Whether x is on the current GPU; asked of no CPU tensor, for which CUDA would be started."""
    return x.is_cuda and x.get_device() == _current_device()


def _kind_check(tensors: tuple[Tensor, ...]) -> Callable[..., bool]:
    """Whether others are like these: class, dtype, device, sizes, strides, requires_grad, and who
    stands between them and the op (modes, transforms, autocast, inference mode).

    torch.compile has such a check in C++, for tensors of which none is given twice.
    """
    if _TensorGuards is not None:
        check = _TensorGuards(
            *tensors,
            dynamic_dims_sizes=[list(x.shape) for x in tensors],
            dynamic_dims_strides=[list(x.stride()) for x in tensors],
        ).check
        if check(*tensors):
            return check
    kinds = [_kind_of(x) for x in tensors]

    def same_kind(*others: Any) -> bool:
        return (
            nobody_watches()
            and not _any_autocast()
            and all(isinstance(x, Tensor) for x in others)
            and all_plain(range(len(others)), others)
            and [_kind_of(x) for x in others] == kinds
        )

    return same_kind


def _kind_of(x: Tensor) -> tuple[Any, ...]:
    return type(x), x.dtype, x.device, x.shape, x.stride(), x.requires_grad, x.is_inference()
