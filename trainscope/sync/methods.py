"""What is put in front of the methods and attributes of `torch.Tensor`: of its instances only."""

from __future__ import annotations

from collections.abc import Callable
from types import MethodType
from typing import Any

import torch

from trainscope.sync.patches import Patches

__all__ = ["replace_attribute", "replace_method"]


class _Method:
    """Called on a tensor it is ours, looked up on the class it is torch's own.

    torch looks it up on the class to tell the ``__torch_function__`` of a subclass or a mode what
    was called, and those look for that in tables of torch's methods: a lazy parameter refuses,
    and torchvision's images become plain tensors, where they meet another function.
    """

    __slots__ = ("original", "ours")

    def __init__(self, original: Callable[..., Any], ours: Callable[..., Any]) -> None:
        self.original = original
        self.ours = ours

    def __get__(self, tensor: torch.Tensor | None, owner: type | None = None) -> Any:
        if tensor is None:
            return self.original
        return MethodType(self.ours, tensor)


class _Attribute:
    """Read of a tensor it is ours, looked up on the class it is torch's own."""

    __slots__ = ("original", "read")

    def __init__(self, original: Any, read: Callable[[torch.Tensor], Any]) -> None:
        self.original = original
        self.read = read

    def __get__(self, tensor: torch.Tensor | None, owner: type | None = None) -> Any:
        return self.original if tensor is None else self.read(tensor)

    def __set__(self, tensor: torch.Tensor, value: object) -> None:
        self.original.__set__(tensor, value)

    def __delete__(self, tensor: torch.Tensor) -> None:
        self.original.__delete__(tensor)


def replace_method(
    patches: Patches, name: str, wrap: Callable[[Callable[..., Any]], Callable[..., Any]]
) -> None:
    """Put ``wrap(what is there)`` in front of ``torch.Tensor``'s method `name`."""
    below = vars(torch.Tensor).get(name)
    original = getattr(torch.Tensor, name)
    ours = wrap(below.ours if isinstance(below, _Method) else original)
    patches.replace(torch.Tensor, name, _Method(original, ours))


def replace_attribute(patches: Patches, name: str, read: Callable[[torch.Tensor], Any]) -> None:
    """Let `read` answer for the attribute `name` of a tensor; it is set as before."""
    patches.replace(torch.Tensor, name, _Attribute(getattr(torch.Tensor, name), read))
