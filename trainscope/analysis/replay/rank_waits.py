"""How much of a collective on the GPU was waiting for other ranks."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trainscope.analysis.communication import collectives
from trainscope.trace.window import Column, Window

__all__ = ["rank_waits_ns"]


def rank_waits_ns(window: Window, step_of_op: Column) -> NDArray[np.float64]:
    """For each GPU op, by how much a collective took longer than its like in another step.

    Likes stand at one place among the collectives of their steps, under one name; of the shortest
    of them it is taken that all ranks had come. 0 for all other ops, and where the steps do not run
    as many collectives as each other.
    """
    gpu = window.gpu
    found = np.zeros(len(gpu))
    rows = np.flatnonzero(collectives(window) & (step_of_op >= 0))
    _, counts = np.unique(step_of_op[rows], return_counts=True)
    if len(counts) < 2 or (counts != counts[0]).any():
        return found
    rows = rows[np.lexsort((gpu.start_ns[rows], step_of_op[rows]))].reshape(len(counts), -1)
    length = (gpu.end_ns - gpu.start_ns)[rows]
    alike = (gpu.name_id[rows] == gpu.name_id[rows[0]]).all(axis=0)
    found[rows] = (length - length.min(axis=0)) * alike
    return found
