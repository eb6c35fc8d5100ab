"""What is put in front of torch's functions, and of the methods and attributes of its tensors.

torch tells the ``__torch_function__`` of a subclass or a mode which function of its own was
called, and those look for it in tables that they made before ours was there or while it was.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from types import MethodType
from typing import Any

import torch

from trainscope.sync.patches import Patches

__all__ = ["Function", "replace_attribute", "replace_method"]


class _Method:
    """Called on a tensor it is ours, looked up on the class it is torch's own.

    torch too looks on the class. Of another function a lazy parameter refuses to know, and one of
    torchvision's images becomes a plain tensor.
    """

    __slots__ = ("original", "ours")

    def __init__(self, original: Callable[..., Any], ours: Callable[..., Any]) -> None:
        self.original = original
        self.ours = ours

    def __get__(self, tensor: torch.Tensor | None, owner: type | None = None) -> Any:
        if tensor is None:
            return self.original
        return MethodType(self.ours, tensor)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Be torch's own to who takes it from the class's ``__dict__``, as ``mock.patch`` does."""
        return self.original(*args, **kwargs)


class Function(functools.partial[Any]):
    """Called it is ours, as a key of a table it is torch's own; no frame of it is on the stack."""

    def __init__(self, ours: Callable[..., Any], original: Callable[..., Any]) -> None:
        functools.update_wrapper(self, original)
        self._original = original

    def __new__(cls, ours: Callable[..., Any], original: Callable[..., Any]) -> Function:
        """Return a call of `ours` that stands for `original`."""
        return super().__new__(cls, ours)

    def __eq__(self, other: object) -> bool:
        return self is other or self._original == other

    def __hash__(self) -> int:
        return hash(self._original)

    def __reduce__(self) -> tuple[Any, ...]:
        return copy.copy, (self._original,)  # a function is its own copy


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
