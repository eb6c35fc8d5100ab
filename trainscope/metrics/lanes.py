"""How rows written on a device come to the host without anybody waiting."""

from __future__ import annotations

import ctypes
import sys
import threading
from typing import Any, Protocol

import numpy as np
import torch

from trainscope.metrics.values import ROW_DTYPES

__all__ = [
    "CpuBlock",
    "CudaBlock",
    "RowBlock",
    "make_blocks",
    "relax_capture_checks",
    "stream_is_capturing",
]


def stream_is_capturing() -> bool:
    """Whether the current stream is being captured into a CUDA graph."""
    if not torch.cuda.is_initialized():
        return False
    raw = torch._C._cuda_getCurrentRawStream(torch._C._cuda_getDevice())
    # the default stream cannot be captured, and asking takes a microsecond
    return raw != 0 and torch.cuda.is_current_stream_capturing()


class RowBlock(Protocol):
    """A row of scalars of one kind on one device, and its copy on the host.

    ``note_write`` and ``mark`` run where values are logged, ``fetch``, ``landed`` and ``read`` on
    the worker. Between ``mark`` and ``landed`` nobody writes.
    """

    buffer: torch.Tensor
    stream: int
    """The current stream when a write was last noted."""

    def note_write(self) -> bool:
        """Remember on which stream rows are being written; False when it is being captured."""
        ...

    def may_mark(self) -> bool:
        """Whether another thread than the writer's may call ``mark`` now."""
        ...

    def mark(self) -> None:
        """All rows of this round are enqueued: note the place in the stream."""
        ...

    def fetch(self, rows: int) -> None:
        """Enqueue the copy of the first ``rows`` rows to the host."""
        ...

    def landed(self) -> bool:
        """Whether the copy is complete; never waits."""
        ...

    def read(self, rows: int) -> list[Any]:
        """The first ``rows`` values as Python numbers, once landed."""
        ...


def make_blocks(device: torch.device, kind: str, capacity: int, count: int) -> list[RowBlock]:
    """Allocate ``count`` blocks of ``capacity`` rows of ``kind`` (of ``ROW_DTYPES``) on ``device``.

    Together, because pinning memory takes milliseconds, and the loop's thread is here.
    """
    # a tensor made in inference mode could never be written to outside it
    with torch.inference_mode(False), torch.no_grad():
        if device.type != "cuda":
            return [CpuBlock(kind, capacity) for _ in range(count)]
        dtype, numpy_dtype = ROW_DTYPES[kind]
        buffers = torch.empty((count, capacity), dtype=dtype, device=device)
        hosts = torch.empty((count, capacity), dtype=dtype, pin_memory=True)
        _side_stream(device)  # the first stream makes a pool of them
        return [
            CudaBlock(device, buffer, host, numpy_dtype)
            for buffer, host in zip(buffers, hosts, strict=True)
        ]


class CpuBlock:
    """Rows in host memory: a write is complete when the call returns."""

    stream = 0

    def __init__(self, kind: str, capacity: int) -> None:
        # over NumPy memory, so that reading needs no tensor method at all
        self._host = np.zeros(capacity, ROW_DTYPES[kind][1])
        signed = self._host.view(np.int64) if kind == "uint64" else self._host
        self.buffer = torch.from_numpy(signed)

    def note_write(self) -> bool:
        """There are no streams."""
        return True

    def may_mark(self) -> bool:
        """There is nothing to disturb."""
        return True

    def mark(self) -> None:
        """There is nothing pending."""

    def fetch(self, rows: int) -> None:
        """The rows are already here."""

    def landed(self) -> bool:
        """They are."""
        return True

    def read(self, rows: int) -> list[Any]:
        """Return the first ``rows`` values as Python numbers."""
        return self._host[:rows].tolist()


class CudaBlock:
    """Rows in GPU memory, copied to pinned memory on a stream of our own."""

    def __init__(
        self,
        device: torch.device,
        buffer: torch.Tensor,
        host: torch.Tensor,
        numpy_dtype: type[np.generic],
    ) -> None:
        self.buffer = buffer
        self._host = host
        self._numpy_dtype = numpy_dtype
        self._device = device
        self._index = device.index
        self._raw_stream = torch._C._cuda_getCurrentRawStream
        self.stream = self._home = self._raw_stream(self._index)
        # the allocator's earlier user of this memory may still be at work on the home stream
        self._made = torch.cuda.Event()
        self._made.record(torch.cuda.current_stream(device))
        self._writers: dict[int, torch.cuda.Stream] = {}
        self._known = -1
        """The default stream, once it has written: nothing more is to be asked about it."""
        self._written = [torch.cuda.Event()]
        self._marked = 0
        self._copied = torch.cuda.Event()
        self._fetched = False

    def note_write(self) -> bool:
        """Remember the current stream; 0.1 µs when it is the default one and known already."""
        self.stream = raw = self._raw_stream(self._index)
        if raw == self._known:
            return True
        # the default stream cannot be captured, and asking takes a microsecond
        if raw != 0 and torch.cuda.is_current_stream_capturing():
            return False
        if raw not in self._writers:
            stream = torch.cuda.current_stream(self._device)
            if raw != self._home:
                stream.wait_event(self._made)
            self._writers[raw] = stream
        if raw == 0:
            self._known = 0
        return True

    def may_mark(self) -> bool:
        """Whether none of the writing streams is being captured into a CUDA graph."""
        for stream in self._writers.values():
            with torch.cuda.stream(stream):
                if torch.cuda.is_current_stream_capturing():
                    return False
        return True

    def mark(self) -> None:
        """Record an event on each stream that wrote: one, unless the user switches streams."""
        while len(self._written) < len(self._writers):
            self._written.append(torch.cuda.Event())
        for event, stream in zip(self._written, self._writers.values(), strict=False):
            event.record(stream)
        self._marked = len(self._writers)
        self._known = -1
        self._writers.clear()

    def fetch(self, rows: int) -> None:
        """Let the copy stream wait for the writers, then copy; the CPU waits for neither."""
        relax_capture_checks()
        side = _side_stream(self._device)
        if not self._fetched:
            self._fetched = True
            self.buffer.record_stream(side)  # it may be freed while a copy is still to come
        with torch.cuda.stream(side):
            for event in self._written[: self._marked]:
                side.wait_event(event)
            self._host[:rows].copy_(self.buffer[:rows], non_blocking=True)
            self._copied.record(side)

    def landed(self) -> bool:
        """Ask the event behind the copy."""
        return self._copied.query()

    def read(self, rows: int) -> list[Any]:
        """Return the first ``rows`` values as Python numbers, from pinned memory."""
        return self._host[:rows].numpy().view(self._numpy_dtype).tolist()


_side_streams: dict[torch.device, torch.cuda.Stream] = {}


def _side_stream(device: torch.device) -> torch.cuda.Stream:
    """One copy stream for each device, whatever the number of loggers: streams are few."""
    stream = _side_streams.get(device)
    if stream is None:
        stream = _side_streams[device] = torch.cuda.Stream(device)
    return stream


_thread = threading.local()
_RELAXED = 2  # CU_STREAM_CAPTURE_MODE_RELAXED


def relax_capture_checks() -> None:
    """Let this thread query events while another thread captures a CUDA graph.

    In the default capture mode an event query by *any* thread invalidates the capture, unless that
    thread has declared that it knows what it does. The setting is the thread's own, and a thread
    of the program (one that closes after the worker is gone) keeps its own.
    """
    if getattr(_thread, "relaxed", False):
        return
    if not threading.current_thread().name.startswith("trainscope"):
        return
    _thread.relaxed = True
    library = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
    if torch.version.cuda is not None:
        mode = ctypes.c_int(_RELAXED)
        ctypes.CDLL(library).cuThreadExchangeStreamCaptureMode(ctypes.byref(mode))
