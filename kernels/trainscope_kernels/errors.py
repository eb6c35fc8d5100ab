"""The exceptions of trainscope_kernels."""

from __future__ import annotations

__all__ = ["ArgumentError", "ImplUnavailableError", "KernelError"]


class KernelError(Exception):
    """Base of all errors raised on purpose; the text says what came, what is allowed, what next."""


class ArgumentError(KernelError, ValueError):
    """An argument has a value, dtype, device or shape that the op does not take."""


class ImplUnavailableError(KernelError, RuntimeError):
    """The impl asked for by name cannot run on this tensor's device or with what is installed."""
