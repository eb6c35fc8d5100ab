"""The tests of the detector emulate a GPU, and see the same torch whatever it was built for."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture(autouse=True)
def no_debug_mode_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A CUDA build has the debug mode on a machine without a GPU too, where it announces nothing.

    Emulated tensors would then wait for an announcement that never comes.
    """
    if not torch.cuda.is_available():
        for name in ("_cuda_set_sync_debug_mode", "_cuda_get_sync_debug_mode"):
            monkeypatch.delattr(torch._C, name, raising=False)
