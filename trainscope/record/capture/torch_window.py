"""A window captured by torch.profiler, written as one compressed trace."""

from __future__ import annotations

import gzip
import os
from contextlib import nullcontext, suppress
from pathlib import Path

import torch
from torch._C._profiler import _ExperimentalConfig
from torch.profiler import ProfilerActivity
from torch.profiler.profiler import _KinetoProfile

from trainscope.record.capture.cupti import leaving, see_off, why_it_stays
from trainscope.record.capture.foreign import is_recording
from trainscope.record.capture.forked import let_children_end

__all__ = ["TorchWindow"]

_CHUNK_BYTES = 1 << 20
_GPU_MARKS = (b'"cat": "kernel"', b'"cat": "gpu_memcpy"', b'"cat": "gpu_memset"')
_LEVEL = 3  # 56 MB in 0.14 s to 3.7 MB; the default level takes 1.5 s for 2.3 MB


class TorchWindow:
    """One recording of CPU and GPU activity; the profiler exists only as long as this object.

    ``torch.profiler.profile`` counts steps of its own and shares that counter with a profiler of
    the user's, so its base class, which does not, is driven here.
    """

    kind = "torch.profiler"
    records_here = True
    """Whether ``record_function`` ranges show in this window."""

    def __init__(self, *, with_stack: bool) -> None:
        self._cuda = torch.cuda.is_available()
        self._config = _sync_events()
        self._saw_gpu = True
        self._profile = _KinetoProfile(
            activities=[ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if self._cuda else [])],
            record_shapes=True,
            with_stack=with_stack,
            experimental_config=self._config,
            acc_events=True,  # one recording each: nothing to clear, and nothing to warn about
        )

    @property
    def session(self) -> object:
        """The torch.autograd.profiler object in use, to tell ours from the user's."""
        return self._profile.profiler

    def prepare(self) -> None:
        """Switch the profiler on with its record thrown away."""
        self._profile.prepare_trace()
        let_children_end()
        # else torch makes a Python object of each event as it stops: five times the pause
        self._profile.profiler.acc_events = False  # pyright: ignore[reportOptionalMemberAccess]

    def start(self) -> None:
        """Begin to record.

        Raises:
            RuntimeError: another session took the profiler over during the warm-up.
        """
        self._profile.start_trace()
        if not is_recording():
            raise RuntimeError("torch.profiler did not start")

    def stop(self) -> bool:
        """End the recording, after the GPU has finished; returns whether there is a trace.

        Must run on the thread that called ``start``: the profiler is that thread's.
        """
        if not is_recording():
            return False  # another session ended ours; writing its empty result would crash
        with leaving() if self._cuda else nullcontext():
            self._profile.stop_trace()
        result = getattr(self._profile.profiler, "kineto_results", None)
        return result is not None and result.trace_start_ns() != 0

    def cancel(self) -> None:
        """Leave the warm-up without a trace."""
        self._profile.start_trace()
        self.stop()
        see_off()

    def write(self, path: Path) -> int:
        """Write the trace to ``path`` (``.json.gz``) and return its size in bytes.

        Raises:
            OSError: it cannot be written; nothing is left behind.
        """
        plain = path.with_name(f".{path.name}.{os.getpid()}.json")
        packed = path.with_name(f".{path.name}.{os.getpid()}.gz")
        try:
            self._profile.export_chrome_trace(str(plain))
            if not plain.is_file():  # torch only logs that it could not write
                raise OSError(f"torch.profiler could not write {plain}: is the disk full?")
            self._saw_gpu = _compress(plain, packed)
            os.replace(packed, path)
        finally:
            half_written = plain.with_name(f"{plain.name}.tmp")  # torch's own, where it failed
            for leftover in (plain, half_written, packed):
                with suppress(FileNotFoundError, NotADirectoryError):
                    os.truncate(leftover, 0)  # where it failed, torch keeps the file open
                    leftover.unlink()
            see_off()
        return path.stat().st_size

    def why_it_stays(self) -> str:
        """Why the profiler goes on slowing the process after this window; empty where it leaves."""
        return why_it_stays() if self._cuda else ""

    def missing(self) -> tuple[str, ...]:
        """What this window lacks, in words."""
        lacks = []
        if not self._cuda:
            lacks.append("GPU activity: this process has no CUDA device")
        elif not self._saw_gpu:
            lacks.append("GPU activity: torch.profiler recorded none; is another tool attached?")
        if self._config is None:
            lacks.append("sync events: the profiler of this torch has no switch for them")
        return tuple(lacks)


def _sync_events() -> _ExperimentalConfig | None:
    """The setting that adds CUDA's own sync events, or None where torch does not know it."""
    try:
        return _ExperimentalConfig(enable_cuda_sync_events=True)
    except TypeError:
        return None


def _compress(source: Path, target: Path) -> bool:
    """Compress ``source`` into ``target``; returns whether it holds any GPU work."""
    saw_gpu = False
    tail = b""
    with source.open("rb") as plain, gzip.open(target, "wb", compresslevel=_LEVEL) as packed:
        while chunk := plain.read(_CHUNK_BYTES):
            saw_gpu = saw_gpu or any(mark in tail + chunk for mark in _GPU_MARKS)
            tail = chunk[-32:]
            packed.write(chunk)
    return saw_gpu
