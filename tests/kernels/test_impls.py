"""Where Triton kernels cannot run, the reason is told, and found once a device."""

from __future__ import annotations

import importlib.util

import pytest
import torch

from trainscope_kernels import impls
from trainscope_kernels.errors import ImplUnavailableError

GPU = torch.device("cuda", 0)


@pytest.fixture
def capability(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """A GPU of compute capability 9.0, unless a test puts another in; no interpreter."""
    held = [(9, 0)]
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _index: held[0])
    monkeypatch.setattr(impls, "interpreting", lambda: False)
    monkeypatch.setattr(impls, "_reasons", {})
    return held


def test_a_new_gpu_has_no_reason(capability: list[tuple[int, int]]) -> None:
    assert impls.triton_reason(GPU) is None
    impls.require_triton(GPU)


def test_each_reason_is_told(
    capability: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ImplUnavailableError, match=r"on cpu; or pass impl='auto'"):
        impls.require_triton(torch.device("cpu"))
    capability[0] = (7, 5)
    with pytest.raises(ImplUnavailableError, match=r"8\.0 or newer, this GPU has \(7, 5\)"):
        impls.require_triton(torch.device("cuda", 1))
    monkeypatch.setattr(torch.version, "hip", "6.4")
    with pytest.raises(ImplUnavailableError, match="built for ROCm"):
        impls.require_triton(torch.device("cuda", 2))
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(ImplUnavailableError, match="pip install triton"):
        impls.require_triton(torch.device("cuda", 3))


def test_a_device_is_asked_once(capability: list[tuple[int, int]]) -> None:
    assert impls.triton_reason(GPU) is None
    capability[0] = (7, 5)
    assert impls.triton_reason(GPU) is None
    assert impls.triton_reason(torch.device("cuda", 1)) is not None
