"""Custom GELU, softmax and FlashAttention kernels, as registered torch ops.

Nothing is imported until it is used: importing this loads neither torch nor Triton.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainscope_kernels.attention import flash_attention as flash_attention
    from trainscope_kernels.attention import flash_attention_varlen as flash_attention_varlen
    from trainscope_kernels.errors import ArgumentError as ArgumentError
    from trainscope_kernels.errors import ImplUnavailableError as ImplUnavailableError
    from trainscope_kernels.errors import KernelError as KernelError
    from trainscope_kernels.gelu import bias_gelu as bias_gelu
    from trainscope_kernels.gelu import gelu as gelu
    from trainscope_kernels.modules import GELU as GELU
    from trainscope_kernels.modules import Attention as Attention
    from trainscope_kernels.modules import Softmax as Softmax
    from trainscope_kernels.softmax import softmax as softmax
    from trainscope_kernels.swapping import swap as swap

_HOME = {
    "ArgumentError": "trainscope_kernels.errors",
    "Attention": "trainscope_kernels.modules",
    "GELU": "trainscope_kernels.modules",
    "ImplUnavailableError": "trainscope_kernels.errors",
    "KernelError": "trainscope_kernels.errors",
    "Softmax": "trainscope_kernels.modules",
    "bias_gelu": "trainscope_kernels.gelu",
    "flash_attention": "trainscope_kernels.attention",
    "flash_attention_varlen": "trainscope_kernels.attention",
    "gelu": "trainscope_kernels.gelu",
    "softmax": "trainscope_kernels.softmax",
    "swap": "trainscope_kernels.swapping",
}

__all__ = [
    "GELU",
    "ArgumentError",
    "Attention",
    "ImplUnavailableError",
    "KernelError",
    "Softmax",
    "bias_gelu",
    "flash_attention",
    "flash_attention_varlen",
    "gelu",
    "softmax",
    "swap",
]


class _Package(ModuleType):
    def __setattr__(self, name: str, value: Any) -> None:
        # importing a subpackage binds it here, over the function that has its name: whatever was
        # imported first, trainscope_kernels.gelu is the function
        if isinstance(value, ModuleType) and name in _HOME:
            value = getattr(value, name)
        super().__setattr__(name, value)


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'trainscope_kernels' has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])


sys.modules[__name__].__class__ = _Package
