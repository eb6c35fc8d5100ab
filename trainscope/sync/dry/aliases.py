"""A second tensor over the same memory with a storage object, and so a mark, of its own."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch._C._functorch import peek_interpreter_stack  # pyright: ignore[reportMissingImports]
from torch.utils import dlpack
from torch.utils._python_dispatch import _disable_current_modes

__all__ = ["alias", "take_room"]

_ATTRIBUTE = "_trainscope_alias"
"""On storages of ours, which cannot grow: their memory is another's."""


class _Alias(torch.autograd.Function):
    """The identity, with a result that has its own storage object."""

    @staticmethod
    def forward(ctx: object, tensor: Tensor) -> Tensor:
        """Return the alias."""
        return _share(tensor)

    @staticmethod
    def backward(ctx: object, *gradients: Tensor) -> Tensor:
        """Return the gradient itself."""
        return gradients[0]


def alias(tensor: Tensor) -> Tensor:
    """Return a tensor equal to `tensor` in memory, values, strides and gradient, not in storage.

    A plain CPU run gets the same tensor back from `.to(device)`, so memory is shared: whatever
    the script writes into one, it then reads from the other, as it would without the dry run.
    Returns `tensor` itself where no second storage can be made over its memory.
    """
    if type(tensor) is not Tensor and not isinstance(tensor, torch.nn.Parameter):
        return tensor
    if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_conj():
        return tensor
    if tensor.is_neg() or peek_interpreter_stack() is not None:
        return tensor
    if tensor.requires_grad and torch.is_grad_enabled():
        if torch.autograd.forward_ad._current_level >= 0:
            return tensor
        return _Alias.apply(tensor)  # type: ignore[return-value]
    return _share(tensor)


def take_room(tensor: Tensor, sizes: Sequence[int]) -> bool:
    """Give an alias memory of its own if it has no room for `sizes`; return whether it did.

    So it has on a GPU; a plain CPU run makes the other tensor grow with it.
    """
    storage = tensor.untyped_storage()
    needed = (tensor.storage_offset() + math.prod(sizes)) * tensor.element_size()
    if not hasattr(storage, _ATTRIBUTE) or needed <= storage.nbytes():
        return False
    with _disable_current_modes(), torch.no_grad():
        tensor.set_(storage.clone(), tensor.storage_offset(), tensor.size(), tensor.stride())  # type: ignore[call-overload]
    return True


def _share(tensor: Tensor) -> Tensor:
    with _disable_current_modes(), torch.no_grad():
        whole = torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage())
        twin = dlpack.from_dlpack(whole).untyped_storage()
        setattr(twin, _ATTRIBUTE, True)
        return torch.empty(0, dtype=tensor.dtype).set_(
            twin, tensor.storage_offset(), tensor.size(), tensor.stride()
        )
