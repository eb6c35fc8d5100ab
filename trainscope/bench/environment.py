"""Where and when something was measured, and how the GPU was then: clocks, heat and power."""

from __future__ import annotations

import platform
import shutil
import subprocess
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from functools import cache
from importlib.metadata import PackageNotFoundError, version

import torch

import trainscope
from trainscope.bench.model import Environment, GpuState

__all__ = ["ask", "device_name", "environment", "parsed", "smi_id", "state_while"]

_FIELDS = ("clocks.sm", "clocks.mem", "temperature.gpu", "power.draw")
_REASONS_FIELDS = ("clocks_event_reasons.active", "clocks_throttle_reasons.active")
"""The same under its name since driver 535 and before."""
_TIMEOUT_S = 10
_REASONS = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x20: "heat (software)",
    0x40: "heat (hardware)",
    0x80: "power brake",
}
"""Bits of the reasons that slow a busy GPU; idle, applications' clocks and sync boost are none."""


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


def state_while(device: torch.device, busy: Callable[[], None]) -> GpuState | None:
    """Ask for the state while ``busy`` is called again and again; None without ``nvidia-smi``."""
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(_answer, smi_id(device))
        while not asked.done():
            busy()
    answer = asked.result()
    return None if answer is None else parsed(answer)


def _answer(gpu: str) -> list[str] | None:
    answers = (ask(gpu, (*_FIELDS, reasons)) for reasons in _REASONS_FIELDS)
    return next((answer for answer in answers if answer is not None), None)


def parsed(answer: Sequence[str]) -> GpuState:
    """The state from the fields' texts; what is not a number is not known."""
    clock, memory, heat, power = (_number(text) for text in answer[:4])
    bits = int(answer[4], 16) if answer[4].startswith("0x") else 0
    return GpuState(
        sm_clock_mhz=clock,
        memory_clock_mhz=memory,
        temperature_c=heat,
        power_w=power,
        throttled_by=tuple(reason for bit, reason in _REASONS.items() if bits & bit),
    )


def ask(gpu: str, fields: Sequence[str]) -> list[str] | None:
    """Ask ``nvidia-smi`` for fields of one GPU; None where it is absent or does not answer."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return None
    command = [tool, "-i", gpu, f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=_TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    answer = [part.strip() for part in done.stdout.strip().split(",")]
    told = done.returncode == 0 and len(answer) == len(fields) and all(answer)
    return answer if told else None


def smi_id(device: torch.device) -> str:
    """The GPU as ``nvidia-smi`` knows it: its own numbers ignore CUDA_VISIBLE_DEVICES."""
    properties = torch.cuda.get_device_properties(device)
    uuid = str(getattr(properties, "uuid", ""))
    if not uuid:
        return str(device.index or 0)
    return uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:  # "[N/A]"
        return None
