"""GPU work without its launch, and launches without their GPU work, in words."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from trainscope.trace.window import Window

__all__ = ["orphans"]

_LAUNCHES = ("cudaLaunchKernel", "cuLaunchKernel", "cudaMemcpyAsync", "cudaMemsetAsync")


def orphans(window: Window) -> Iterator[str]:
    """One sentence for each kind of what does not belong together; none without GPU work."""
    gpu, calls = window.gpu, window.calls
    launched = calls.correlation[calls.correlation >= 0]
    if len(gpu):
        lost = int((~np.isin(gpu.correlation, launched)).sum())
        if lost:
            yield (
                f"{lost} of {len(gpu)} GPU ops have no launch in the trace: "
                "it came before the window"
            )
        launches = _launches(window)
        missing = int((~np.isin(calls.correlation[launches], gpu.correlation)).sum())
        if missing:
            yield (
                f"{missing} of {int(launches.sum())} launches have no GPU work in the trace: the "
                "profiler lost it, or it ran after the window"
            )
    repeated = len(launched) - len(np.unique(launched))
    if repeated:
        yield (
            f"{repeated} CUDA calls share a correlation id with another, "
            "so whose GPU work is whose is not sure"
        )


def _launches(window: Window) -> np.ndarray:
    """Calls that must have GPU work: kernels, copies and memsets put into a stream."""
    is_launch = np.array([name.startswith(_LAUNCHES) for name in window.names], dtype=bool)
    if not len(window.names):
        return np.zeros(len(window.calls), dtype=bool)
    return is_launch[window.calls.name_id]
