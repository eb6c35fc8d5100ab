"""A GPU for tests without one: tensors that say they are on it, and torch's announcement."""

from __future__ import annotations

import functools
import warnings
from typing import Any

import pytest
import torch

ANNOUNCEMENT = (
    "called a synchronizing CUDA operation (Triggered internally at CUDAFunctions.cpp:147.)"
)

announce = functools.partial(warnings.warn, ANNOUNCEMENT)
"""Warn as c10 does: from C code, so that the frame is the one that called it."""


class OnDevice(torch.Tensor):
    """A CPU tensor that says it is a CUDA one; its moves give what a GPU's would."""

    @property
    def is_cuda(self) -> bool:  # type: ignore[override]
        return True

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if name in ("cpu", "to") and _leaves(name, args, kwargs or {}):
            return args[0].as_subclass(torch.Tensor).clone()
        return super().__torch_function__(func, types, args, kwargs or {})


class Host(torch.Tensor):
    """A CPU tensor whose `.to("cuda")` and `.cuda()` give an `OnDevice`."""

    pinned = False

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if name in ("cuda", "to") and not _leaves(name, args, kwargs or {}):
            return args[0].as_subclass(torch.Tensor).clone().as_subclass(OnDevice)
        return super().__torch_function__(func, types, args, kwargs or {})

    def is_pinned(self, device: Any = None) -> bool:
        return self.pinned


def _leaves(name: str, args: Any, kwargs: Any) -> bool:
    return name == "cpu" or "cpu" in (*args[1:], kwargs.get("device"))


def on_device(*values: float) -> OnDevice:
    return torch.tensor(values).as_subclass(OnDevice)


class DebugMode:
    """torch's sync debug mode, which a build without CUDA lacks."""

    def __init__(self) -> None:
        self.mode = 0

    def set(self, mode: int) -> None:
        if mode not in (0, 1, 2):
            raise RuntimeError(f"invalid mode {mode}")
        self.mode = mode

    def get(self) -> int:
        return self.mode

    def call(self) -> None:
        """An operation that waits."""
        if self.mode == 1:
            warnings.warn(ANNOUNCEMENT, stacklevel=2)
        elif self.mode == 2:
            raise RuntimeError("called a synchronizing CUDA operation")


@pytest.fixture
def debug_mode(monkeypatch: pytest.MonkeyPatch) -> DebugMode:
    """Give this build of torch the debug mode, where it has none."""
    made = DebugMode()
    monkeypatch.setattr(torch._C, "_cuda_set_sync_debug_mode", made.set, raising=False)
    monkeypatch.setattr(torch._C, "_cuda_get_sync_debug_mode", made.get, raising=False)
    return made
