"""CUPTI, by which torch.profiler watches the GPU: it stays in the process unless asked to leave.

While it stays every launch costs more, long after the profiler has ended: steps of many small
kernels took 3 to 44 % longer on an H200 (torch 2.11, CUDA 13.0). kineto, torch's profiler library,
lets it leave where an environment variable says so at the moment when a session stops. It happens
inside the next CUDA call of the process, because no other call may be under way in that thread.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import torch

__all__ = ["leaving", "see_off", "why_it_stays"]

_VARIABLE = "TEARDOWN_CUPTI"
_FROM_CUDA = (12, 6)  # with an older one a CUDA graph crashes when CUPTI comes back
_CALLS = 3
_CALL_S = 0.001
_asked = False
"""Whether it was ever asked to leave, and may be waiting for a CUDA call."""


def why_it_stays() -> str:
    """Why CUPTI will stay after a session that stops now; empty where it will leave.

    The variable is the user's if it is set; torch sets it too, where a CUDA graph would crash.
    """
    if torch.version.cuda is None:
        return ""
    value = os.environ.get(_VARIABLE)
    if value is not None:
        return "" if value == "1" else f"{_VARIABLE} is {value!r} in the environment"
    if tuple(map(int, torch.version.cuda.split(".")[:2])) < _FROM_CUDA:
        return f"with CUDA {torch.version.cuda} it cannot leave safely, from 12.6 on it can"
    return ""


@contextmanager
def leaving() -> Iterator[None]:
    """Stop the session within it, and CUPTI leaves, if it can; call ``see_off`` afterwards."""
    global _asked
    if torch.version.cuda is None or why_it_stays():
        yield
        return
    _asked = True
    is_users = _VARIABLE in os.environ
    os.environ[_VARIABLE] = "1"
    try:
        yield
    finally:
        if not is_users:  # a later session of the program's own is as it would be without us
            os.environ.pop(_VARIABLE, None)


def see_off() -> None:
    """Make the CUDA calls in which CUPTI leaves, when the session's results are read.

    A process that ended before any came would hang: a thread of kineto's waits for one. The call
    waits for nothing and is allowed while a CUDA graph is captured. It takes some milliseconds.
    """
    if not _asked:
        return
    for _ in range(_CALLS):  # the thread may not be there yet
        with suppress(RuntimeError):  # an error of the program's kernels is told by its own calls
            torch._C._cuda_getDevice()
        time.sleep(_CALL_S)
