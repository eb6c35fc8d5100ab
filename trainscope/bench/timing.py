"""Times the functions that agree, and a plain copy beside them."""

from __future__ import annotations

import os
from typing import Any

import torch

from trainscope.bench.admission import Admitted
from trainscope.bench.ceilings import COPY, copy_of
from trainscope.bench.outcome import Work
from trainscope.bench.rows import results
from trainscope.bench.subject import CallError, Subject
from trainscope.bench.timers import Timer
from trainscope.bench.trials import Effort, take

__all__ = ["timed"]


def timed(
    admitted: list[Admitted], timer: Timer, work: Work, wanted: Effort, baseline: str
) -> dict[str, Any]:
    """The fields of a comparison: the times of all that agree.

    One that raises on the way is told, and the others begin anew.
    """
    copy = _copy(work.bytes_moved, timer) if any(e.agreement.ok for e in admitted) else None
    while True:
        subjects = [each.subject for each in admitted if each.agreement.ok]
        everyone = subjects if copy is None or not subjects else [*subjects, copy]
        try:
            taken = take(everyone, timer, wanted) if everyone else []
            return results(admitted, taken, timer, work, baseline)
        except CallError as error:
            if error.name == COPY:
                copy = None
                continue
            why = f"after it had agreed, {error}"
            admitted = [
                each.refused(why) if each.subject.name == error.name else each for each in admitted
            ]


def _copy(bytes_moved: int | None, timer: Timer) -> Subject | None:
    """A copy of the same bytes; None where nothing is moved or there is no memory for it."""
    if not bytes_moved or bytes_moved > _memory_bytes(timer.device) // 2:
        return None
    try:
        return copy_of(bytes_moved, timer.device)
    except RuntimeError:  # torch.OutOfMemoryError, and what the CPU's allocator raises
        return None


def _memory_bytes(device: torch.device) -> int:
    """All that the device has; of a CPU it could be promised and then not be there."""
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return 1 << 34
