"""What this device can do at most, in a plain copy and a matmul, and what share of it a time is."""

from __future__ import annotations

from typing import Any, Literal

import torch

from trainscope.bench.ceiling_store import CeilingStore
from trainscope.bench.device import device_named, timer_on
from trainscope.bench.environment import device_name
from trainscope.bench.model import Roofline
from trainscope.bench.spread import spread
from trainscope.bench.subject import Subject
from trainscope.bench.trials import Effort, take
from trainscope.errors import ConfigError

__all__ = ["COPY", "ceiling", "copy_of", "roofline"]

Kind = Literal["copy", "matmul"]
COPY = "copy"
"""The name of the plain copy beside the functions of a comparison."""

_COPY_BYTES = {"cuda": 2 << 30, "cpu": 256 << 20}
"""Read and written together: far more than any cache holds."""
_MATMUL_SIZE = {"cuda": 8192, "cpu": 1024}
_EFFORT = Effort(trials=30)
_STORE = CeilingStore()


def ceiling(
    kind: Kind,
    device: torch.device | str,
    dtype: torch.dtype | None = None,
    *,
    store: CeilingStore = _STORE,
    remeasure: bool = False,
) -> float:
    """Return bytes a second of a copy, or FLOP a second of a square matmul in ``dtype``.

    Measured at the first call for a device and kept for the next process, by device, versions and
    precision settings; ``remeasure`` measures now.

    Raises:
        ConfigError: a matmul without a floating-point dtype, or a device that is not here.
    """
    place = device_named(device)
    if kind == "matmul" and (dtype is None or not dtype.is_floating_point):
        raise ConfigError(
            f"dtype={dtype} has no matmul ceiling; pass a floating-point dtype such as "
            "torch.bfloat16"
        )
    key = _key(kind, place, dtype)
    known = None if remeasure else store.get(key)
    if known is None:
        known = _copy(place) if kind == "copy" else _matmul(place, dtype)
        store.put(key, known)
    return known


def copy_of(bytes_moved: int, device: torch.device) -> Subject:
    """A copy that reads one half of the bytes and writes the other."""
    half = max(bytes_moved // 2, 1)
    source = torch.zeros(half, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return Subject(COPY, lambda: target.copy_(source))


def roofline(
    time_us: float,
    *,
    bytes_moved: int | None,
    flops: int | None,
    copy_bytes_s: float | None,
    matmul_flop_s: float | None,
) -> Roofline | None:
    """Return the share of whichever ceiling leaves less room; None where nothing was given.

    time_us: of one call, which moves ``bytes_moved`` bytes and computes ``flops`` operations. The
    ceilings are bytes and operations a second, as ``ceiling`` returns them.
    """
    memory_us = bytes_moved / copy_bytes_s * 1e6 if bytes_moved and copy_bytes_s else 0.0
    compute_us = flops / matmul_flop_s * 1e6 if flops and matmul_flop_s else 0.0
    least_us = max(memory_us, compute_us)
    if least_us == 0:
        return None
    return Roofline(
        bound="memory" if memory_us >= compute_us else "compute",
        least_us=least_us,
        share=least_us / time_us,
        gb_s=bytes_moved / time_us / 1e3 if bytes_moved else None,
        tflop_s=flops / time_us / 1e6 if flops else None,
    )


def _copy(device: torch.device) -> float:
    moved = _COPY_BYTES[device.type]
    return moved / _median_s(copy_of(moved, device), device)


def _matmul(device: torch.device, dtype: Any) -> float:
    size = _MATMUL_SIZE[device.type]
    generator = torch.Generator(device).manual_seed(0)
    # random values: zeros draw less power, so clocks stay higher than real data lets them
    a, b = (torch.randn(size, size, device=device, generator=generator).to(dtype) for _ in range(2))
    out = torch.empty_like(a)
    subject = Subject("matmul", lambda: torch.mm(a, b, out=out))
    return 2 * size**3 / _median_s(subject, device)


def _median_s(subject: Subject, device: torch.device) -> float:
    (taken,) = take([subject], timer_on(device), _EFFORT)
    return spread(taken.times_ns).median_us / 1e6


def _key(kind: Kind, device: torch.device, dtype: torch.dtype | None) -> str:
    parts = [kind, device_name(device), torch.__version__]
    if device.type == "cuda":
        parts.append(str(getattr(torch.cuda.get_device_properties(device), "uuid", device.index)))
    else:
        parts.append(f"{torch.get_num_threads()} threads")
    if kind == "matmul":
        parts += [str(dtype), torch.get_float32_matmul_precision()]
    return " | ".join(parts)
