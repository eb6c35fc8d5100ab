"""How a benchmark script says what it measured: on what, when, and into which file."""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Mapping
from pathlib import Path

import torch

import trainscope

__all__ = ["environment", "write_result"]

RESULTS = Path(__file__).parent / "results"


def environment() -> dict[str, object]:
    """Versions, device and date of this measurement."""
    cuda = torch.cuda.is_available()
    return {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "device": torch.cuda.get_device_name() if cuda else platform.processor() or "CPU",
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "python": platform.python_version(),
        "trainscope": trainscope.__version__,
    }


def write_result(name: str, figures: Mapping[str, object], folder: Path | None = None) -> Path:
    """Write ``results/<name>.json``, environment first; return its path."""
    path = (RESULTS if folder is None else folder) / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"environment": environment(), **figures}, indent=1) + "\n")
    return path
