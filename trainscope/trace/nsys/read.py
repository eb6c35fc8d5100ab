"""``read_nsys``: from a recording of nsys to a ``Window``."""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np

from trainscope.errors import TraceError
from trainscope.trace.device_limit import with_possible_devices
from trainscope.trace.nsys.database import Database, opened
from trainscope.trace.nsys.problems import problems
from trainscope.trace.nsys.ranges import NVTX, read_ranges
from trainscope.trace.nsys.rows import LeftOut, Names
from trainscope.trace.nsys.tables import TABLES, Part, read_calls, read_gpu, read_syncs
from trainscope.trace.nsys.target import read_target
from trainscope.trace.nsys.tool import export
from trainscope.trace.torch_trace.source import Progress, pieces
from trainscope.trace.window import Calls, GpuOps, Spans, Syncs, Window

__all__ = ["RECORDED", "read_nsys", "read_nsys_processes"]

RECORDED = b"NVIDIA Tegra Profiler Report"
"""How a recording that is not yet exported begins."""
_RECORDINGS = (".nsys-rep", ".qdrep")
_STRINGS = "StringIds"


def read_nsys(path: str | os.PathLike[str]) -> Window:
    """The window in an nsys recording: ``.sqlite``, ``.sqlite.gz``, ``.nsys-rep`` or ``.qdrep``.

    Of several processes it is the one with most GPU work. A recording is exported by nsys into a
    temporary folder first. What is missing or had to be left out is said in ``Window.problems``.
    Raises TraceError for a file that is no such recording, is damaged or cannot be exported.
    """
    return read_nsys_processes(path)[0]


def read_nsys_processes(
    path: str | os.PathLike[str], *, progress: Progress | None = None
) -> tuple[Window, ...]:
    """A window for each process that used CUDA, most GPU work first; raises as ``read_nsys``.

    Where none used CUDA it is one window, of the process with most ranges.
    """
    given = Path(path)
    told = _Told(progress)
    with _exported(given) as file, opened(file, given, told) as database:
        if not any(database.columns(table) for table in (*TABLES, NVTX, _STRINGS)):
            raise TraceError(
                f"{given} is a SQLite file, but holds none of the tables that nsys writes; "
                "give what `nsys export --type sqlite` wrote"
            )
        told.expect(sum(map(database.count, (*TABLES, NVTX))), file.stat().st_size)
        return _Recording(given, database).windows()


class _Told:
    """Tells of bytes where rows are counted."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress = progress
        self._done = self._rows = self._bytes = 0

    def expect(self, rows: int, size: int) -> None:
        self._rows, self._bytes = rows, size

    def __call__(self, rows: int) -> None:
        self._done += rows
        if self._progress is not None and self._rows:
            share = min(self._done / self._rows, 1.0)
            self._progress(int(share * self._bytes), self._bytes)


@contextmanager
def _exported(given: Path) -> Iterator[Path]:
    """The SQLite file of a recording; what had to be made for that is removed afterwards."""
    head = _head(given)
    packed = head.startswith(b"\x1f\x8b")
    if not packed and not _to_export(given.name, head):
        yield given
        return
    with tempfile.TemporaryDirectory(prefix="trainscope-nsys-") as folder:
        made, name = given, given.name
        if packed:
            name = given.name.removesuffix(".gz")
            made = Path(folder, "unpacked" + Path(name).suffix)
            _unpack(given, made)
        if _to_export(name, _head(made)):
            database = Path(folder, "export.sqlite")
            export(made, database, os.environ, shown=given)
            made = database
        yield made


def _to_export(name: str, head: bytes) -> bool:
    return head.startswith(RECORDED) or name.endswith(_RECORDINGS)


def _head(given: Path) -> bytes:
    try:
        with given.open("rb") as file:
            return file.read(len(RECORDED))
    except OSError as error:
        raise TraceError(f"{given} cannot be read: {error.strerror or error}") from error


def _unpack(given: Path, to: Path) -> None:
    try:
        with to.open("wb") as file:
            for piece in pieces(given):
                file.write(piece)
    except OSError as error:
        raise TraceError(
            f"{given} cannot be unpacked into {to.parent}: {error.strerror or error}; set TMPDIR "
            "to a folder with room"
        ) from error


class _Recording:
    """All tables of one export."""

    def __init__(self, file: Path, database: Database) -> None:
        self._file = file
        self._left_out = left_out = LeftOut()
        strings = database.names(_STRINGS, "id", "value")
        self._names, self._shapes = Names(strings), Names({})
        self._calls = read_calls(database, self._names, left_out)
        self._gpu = read_gpu(database, self._names, left_out)
        self._syncs = read_syncs(database, left_out)
        self._ranges, self._ops = read_ranges(database, self._names, self._shapes, left_out)
        self._target = read_target(database, strings)

    def windows(self) -> tuple[Window, ...]:
        """One for each process, the one with most to tell first."""
        parts = (self._gpu, self._calls, self._syncs, self._ranges, self._ops)
        tally = [Counter(part["process"].tolist()) for part in parts]
        weight = {
            process: tuple(counts[process] for counts in tally)
            for process in set().union(*tally)
            if process != -1
        }
        ranked = sorted(weight, key=lambda process: (weight[process], -process), reverse=True)
        of_cuda = [process for process in ranked if any(weight[process][:3])]
        chosen = of_cuda or ranked[:1] or [-1]
        if len(of_cuda) > 1:
            self._left_out.homeless += sum(counts[-1] for counts in tally)
        alone = len(chosen) == 1
        return tuple(self._window(process, len(chosen) - 1, alone) for process in chosen)

    def _window(self, process: int, others: int, alone: bool) -> Window:
        def mine(part: Part) -> Part:
            """Its rows, and those of nobody where there is nobody else."""
            rows = part["process"] == process
            if alone:
                rows |= part["process"] == -1
            return {name: column[rows] for name, column in part.items()}

        calls, ranges, ops = mine(self._calls), mine(self._ranges), mine(self._ops)
        tids = [part["global_tid"] for part in (calls, ranges, ops)]
        threads = np.unique(np.concatenate(tids))
        threads = threads[threads >= 0]
        for part in (calls, ranges, ops):
            place = np.searchsorted(threads, part["global_tid"])
            part["thread"] = np.where(part["global_tid"] >= 0, place, -1)
        syncs = Syncs.of(mine(self._syncs))
        window = Window(
            file=str(self._file),
            source="nsys",
            names=self._names.all(),
            shapes=self._shapes.all(),
            threads=tuple(self._target.thread(int(tid)) for tid in threads),
            devices=self._target.devices_of(process),
            ops=Spans.of(ops),
            ranges=Spans.of(ranges),
            frames=Spans.empty(),
            calls=Calls.of(calls),
            gpu=GpuOps.of(mine(self._gpu)),
            syncs=syncs,
            unix_ns_at_zero=self._target.unix_ns_at_zero,
            has_sync_records=len(syncs) > 0,
            problems=(),
        )
        found = problems(
            window,
            self._left_out,
            version=self._target.version,
            others=others,
            process=self._target.process_name(process),
        )
        return with_possible_devices(replace(window, problems=found))
