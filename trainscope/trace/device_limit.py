"""A window with more devices than a host can have: the file is damaged, and most are made up."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from trainscope.trace.plural import are, count
from trainscope.trace.window import Window

__all__ = ["MAX_DEVICES", "with_possible_devices"]

MAX_DEVICES = 64
"""CUDA's own limit for one process; analyses go through the devices one by one."""


def with_possible_devices(window: Window) -> Window:
    """The window with the GPU ops of ``MAX_DEVICES`` devices at most, those with most ops."""
    devices, ops = np.unique(window.gpu.device, return_counts=True)
    if len(devices) <= MAX_DEVICES:
        return window
    kept = devices[np.argsort(-ops, kind="stable")[:MAX_DEVICES]]
    inside = np.isin(window.gpu.device, kept)
    lost = int((~inside).sum())
    problem = (
        f"{len(devices):,} GPUs are named, more than a process can have: {count(lost, 'GPU op')} "
        f"{are(lost)} left out, those of the GPUs with fewest"
    )
    return replace(window, gpu=window.gpu.take(inside), problems=(problem, *window.problems))
