"""How long the steps of a captured window took, under the profiler."""

from __future__ import annotations

import numpy as np

from trainscope.analysis.window_steps import WindowSteps
from trainscope.trace.window import Column, Window

__all__ = ["captured_step_ns"]


def captured_step_ns(window: Window, steps: WindowSteps) -> Column:
    """From one step to the next, on the GPU where it is the later one; empty where none follows.

    Where the CPU runs ahead in a short window, its own steps are too short.
    """
    on_cpu = steps.period_ns[steps.period_ns >= 0]
    on_gpu = steps.gpu_period_ns(window)
    on_gpu = on_gpu[on_gpu >= 0]
    if not len(on_cpu):
        return on_cpu
    return on_gpu if len(on_gpu) and np.median(on_gpu) > np.median(on_cpu) else on_cpu
