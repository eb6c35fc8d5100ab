"""Where and when something was measured."""

from __future__ import annotations

import platform
from datetime import datetime, timezone
from functools import cache
from importlib.metadata import PackageNotFoundError, version

import torch

import trainscope
from trainscope.bench.gpu_state import ask, smi_id
from trainscope.bench.model import Environment

__all__ = ["device_name", "environment"]


def environment(device: torch.device) -> Environment:
    """The device, the versions and the date, now."""
    return Environment(
        device=device_name(device),
        cuda=torch.version.cuda if device.type == "cuda" else None,
        driver=_driver(smi_id(device)) if device.type == "cuda" else None,
        torch=torch.__version__,
        triton=_installed("triton"),
        trainscope=trainscope.__version__,
        python=platform.python_version(),
        platform=platform.platform(),
        threads=torch.get_num_threads(),
        date=datetime.now(timezone.utc).isoformat(timespec="seconds"),
    )


def device_name(device: torch.device) -> str:
    """The GPU's name, or that of the machine and its processor."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    processor = platform.processor() or platform.machine()
    return f"CPU of {platform.node()} ({processor})"


@cache
def _driver(gpu: str) -> str | None:
    return (ask(gpu, ("driver_version",)) or [None])[0]


def _installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
