"""Traces of nothing but what a profiler captured: a file of another tool, or a folder of them."""

from __future__ import annotations

import gzip
import re
import zlib
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from trainscope.errors import TraceError
from trainscope.trace.nsys.database import MAGIC
from trainscope.trace.nsys.read import RECORDED, read_nsys_processes
from trainscope.trace.ranges import Ranges
from trainscope.trace.run_info import RunInfo
from trainscope.trace.torch_trace import read_torch_trace
from trainscope.trace.torch_trace.source import Progress
from trainscope.trace.trace import Trace
from trainscope.trace.window import Window

__all__ = ["load_file", "load_folder", "recordings_in", "torch_traces_in"]

_NSYS = (".sqlite", ".sqlite.gz", ".nsys-rep", ".qdrep")
_TORCH = (".json", ".json.gz")
_WRITTEN_BY_HANDLER = re.compile(r"(?P<worker>.+?)(?:\.(?P<time>\d+))?\.pt\.trace\.json(?:\.gz)?")
"""What ``torch.profiler.tensorboard_trace_handler`` calls its files; time from torch 1.9 on."""


def load_file(path: Path, progress: Progress | None) -> Trace:
    """The trace of one file; an nsys recording of several processes has the others as ranks.

    Raises TraceError for a file that is no recording.
    """
    if not _is_of_nsys(path):
        window = read_torch_trace(path, progress=progress)
        return _trace(path, window.rank_of[0] if window.rank_of else 0, [window])
    windows = read_nsys_processes(path, progress=progress)
    others = tuple(_trace(path, rank, [w]) for rank, w in enumerate(windows[1:], start=1))
    return _trace(path, 0, windows[:1], ranks=others)


def load_folder(path: Path, files: Sequence[Path], progress: Progress | None) -> Trace:
    """The trace of a folder that ``tensorboard_trace_handler`` wrote: each worker is a rank.

    Where their files do not tell ranks, workers are numbered in the order of their names. A file
    that cannot be read is left out and noted; raises TraceError when none can.
    """
    windows: defaultdict[str, list[Window]] = defaultdict(list)
    damaged: defaultdict[str, list[str]] = defaultdict(list)
    sizes = [file.stat().st_size for file in files]
    for place, file in enumerate(files):
        worker = _worker_and_time(file)[0]
        told = _later(progress, sum(sizes[:place]), sum(sizes))
        try:
            windows[worker].append(read_torch_trace(file, progress=told))
        except TraceError as error:
            damaged[worker].append(f"a trace is left out: {error}")
    workers = sorted(worker for worker in windows if windows[worker])
    if not workers:
        raise TraceError(
            f"{path} holds no trace that can be read: {next(iter(damaged.values()))[0]}"
        )
    notes = [note for worker in sorted(damaged) for note in damaged[worker]]
    numbers = _told_ranks({worker: windows[worker][0] for worker in workers})
    if numbers is not None:
        workers.sort(key=lambda worker: numbers[worker])
    else:
        numbers = {worker: number for number, worker in enumerate(workers)}
        if len(workers) > 1:
            notes.append(
                f"the folder holds traces of {len(workers)} workers, numbered as ranks in the "
                f"order of their names; this is {workers[0]}"
            )
    first, *rest = workers
    others = tuple(_trace(path, numbers[worker], windows[worker]) for worker in rest)
    return _trace(path, numbers[first], windows[first], notes=notes, ranks=others)


def _told_ranks(first: dict[str, Window]) -> dict[str, int] | None:
    """The rank of each worker by its first window; None where they do not tell different ones."""
    found = {worker: window.rank_of[0] for worker, window in first.items() if window.rank_of}
    return found if len(set(found.values())) == len(first) else None


def torch_traces_in(path: Path) -> list[Path]:
    """Files in a folder named as ``tensorboard_trace_handler`` names them, by worker and time."""
    found = [file for file in _files(path) if _WRITTEN_BY_HANDLER.fullmatch(file.name)]
    return sorted(found, key=_worker_and_time)


def recordings_in(path: Path) -> list[Path]:
    """Files in a folder that may be recordings of nsys or torch.profiler, by their names."""
    return sorted(file for file in _files(path) if file.name.endswith((*_NSYS, *_TORCH)))


def _files(path: Path) -> list[Path]:
    try:
        return [file for file in path.iterdir() if file.is_file()]
    except OSError:
        return []  # what is wrong with the path is told by the reader of run directories


def _worker_and_time(file: Path) -> tuple[str, int]:
    found = _WRITTEN_BY_HANDLER.fullmatch(file.name)
    assert found is not None
    return found["worker"], int(found["time"] or 0)


def _is_of_nsys(path: Path) -> bool:
    """By its name, else by how it begins, unpacked where it is packed."""
    if path.name.endswith(_NSYS):
        return True
    try:
        with path.open("rb") as file:
            head = file.read(len(RECORDED))
        if head.startswith(b"\x1f\x8b"):
            with gzip.open(path) as packed:
                head = packed.read(len(RECORDED))
    except (OSError, EOFError, zlib.error):
        return False  # the reader of torch.profiler's traces says what is wrong with it
    return head.startswith((MAGIC, RECORDED))


def _later(progress: Progress | None, before: int, total: int) -> Progress | None:
    """The progress of one file of several."""
    if progress is None:
        return None
    return lambda done, _: progress(before + done, total)


def _trace(
    path: Path,
    rank: int,
    windows: Sequence[Window],
    *,
    notes: Sequence[str] = (),
    ranks: tuple[Trace, ...] = (),
) -> Trace:
    first = windows[0]
    info = RunInfo(
        launch_id="none",
        created_unix_ns=first.unix_ns_at_zero,
        device=next((name for name in first.devices if name), None),
        source=first.source,
        world_size=first.rank_of[1] if first.rank_of else 1,
    )
    return Trace(
        path,
        rank,
        info,
        Ranges.of([]),
        (),
        notes=tuple(notes),
        ranks=ranks,
        windows=tuple(windows),
    )
