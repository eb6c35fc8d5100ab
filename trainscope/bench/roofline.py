"""A time against the ceilings of the device: pure."""

from __future__ import annotations

from trainscope.bench.model import Roofline

__all__ = ["roofline"]


def roofline(
    time_us: float,
    *,
    bytes_moved: int | None,
    flops: int | None,
    copy_bytes_s: float | None,
    matmul_flop_s: float | None,
) -> Roofline | None:
    """Return the share of whichever ceiling leaves less room; None where nothing was given."""
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
