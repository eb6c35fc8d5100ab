"""Which calls of CUDA's, and HIP's, make a CPU thread wait for the GPU, by their names."""

from __future__ import annotations

import re
from enum import IntEnum

__all__ = ["WaitCall", "call_name", "wait_call"]

_VERSION = re.compile(r"(?:_pt[sd][zs])?(?:_v\d+)?(?:_pt[sd][zs])?$")


class WaitCall(IntEnum):
    """Which call it is that may wait."""

    NONE = 0
    STREAM = 1
    EVENT = 2
    DEVICE = 3
    COPY = 4
    """A copy that waits by itself: a plain ``cudaMemcpy``."""
    COPY_ASYNC = 5
    """``cudaMemcpyAsync``: waits only where the host memory is pageable."""
    FREE = 6
    """``cudaFree``: waits for the device before memory goes back."""


_CALLS = {
    "cudaStreamSynchronize": WaitCall.STREAM,
    "cuStreamSynchronize": WaitCall.STREAM,
    "hipStreamSynchronize": WaitCall.STREAM,
    "cudaEventSynchronize": WaitCall.EVENT,
    "cuEventSynchronize": WaitCall.EVENT,
    "hipEventSynchronize": WaitCall.EVENT,
    "cudaDeviceSynchronize": WaitCall.DEVICE,
    "cuCtxSynchronize": WaitCall.DEVICE,
    "hipDeviceSynchronize": WaitCall.DEVICE,
    "cudaFree": WaitCall.FREE,
    "hipFree": WaitCall.FREE,
}
_COPY = re.compile(r"(?:cuda|hip)Memcpy(?!Peer)\w*|cuMemcpy(?!Peer)\w*")


def call_name(name: str) -> str:
    """The name of a runtime call without the version that nsys appends."""
    return _VERSION.sub("", name)


def wait_call(name: str) -> WaitCall:
    """Which of them a runtime call of that name is."""
    name = call_name(name[:200])
    if name in _CALLS:
        return _CALLS[name]
    if _COPY.fullmatch(name):
        return WaitCall.COPY_ASYNC if "Async" in name else WaitCall.COPY
    return WaitCall.NONE
