"""Whether a tensor is like one of before: a single question to C++ instead of five to Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

try:
    from torch._C._dynamo import guards
except ImportError:  # not part of torch's public interface
    guards = None

__all__ = ["Likeness", "likeness_of"]

_TensorGuards: Any = getattr(guards, "TensorGuards", None)

Likeness = Callable[[object], bool]
"""Whether this is a tensor of the same class, dtype, device, sizes and strides, wants a gradient or
not as that one did, and has the same between it and its memory: modes, transforms, a lazy minus."""


def likeness_of(tensor: Tensor) -> Likeness | None:
    """Return what finds others like the tensor, which it does not keep alive.

    It is a check of torch.compile's. None in a torch that has it no more, or not so.
    """
    if _TensorGuards is None:
        return None
    sizes, strides = [[*tensor.shape]], [[*tensor.stride()]]
    check = _TensorGuards(tensor, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides).check
    return check if check(tensor) else None
