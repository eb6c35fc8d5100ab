"""Reading a run directory back, with every fault named: which file, which place."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from trainscope.errors import RunDirectoryError, TraceError
from trainscope.trace.captures import CaptureState
from trainscope.trace.counts import Counts
from trainscope.trace.json_file import MISSING, decode, read_json, size_of
from trainscope.trace.metrics import MetricsState
from trainscope.trace.noted_waits import NotedWait
from trainscope.trace.ranges import ROW_BYTES, ROW_FIELDS, Ranges
from trainscope.trace.run_info import RUN_SCHEMA_VERSION, RunInfo
from trainscope.trace.syncs import DetectorState, SyncSite
from trainscope.trace.torch_trace import read_torch_trace
from trainscope.trace.trace import Trace
from trainscope.trace.window import Window

__all__ = ["read_run"]

_CHUNK_ROWS = 1 << 15
"""Rows turned into columns at a time: about a megabyte, which stays in the cache."""
State = TypeVar("State")


def read_run(path: str | os.PathLike[str]) -> Trace:
    """The lowest rank of the run at ``path``, the others in ``.ranks``.

    ``path`` is a run directory, a rank's folder in one (then that rank alone), or its ``run.json``.
    A file that a kill left unfinished is read as far as it is whole, with a note; a file that is
    not what its name says raises RunDirectoryError.
    """
    given = Path(path)
    if not given.exists():
        raise RunDirectoryError(f"{given} does not exist; give the directory that a run wrote")
    root, only = _root_and_rank(given)
    info = _read_info(root / "run.json")
    ranks = [only] if only is not None else _rank_numbers(root)
    if not ranks:
        empty = Trace(root, 0, info, Ranges.of([]), ())
        return replace(empty, notes=("no rank wrote anything: was it killed at once?",))
    traces = [_read_rank(root, rank, info) for rank in ranks]
    missing = () if only is not None else set(range(info.world_size)).difference(ranks)
    return replace(traces[0], ranks=tuple(traces[1:]), missing_ranks=tuple(sorted(missing)))


def _root_and_rank(given: Path) -> tuple[Path, int | None]:
    if given.name == "run.json" and given.is_file():
        return given.parent, None
    if given.is_dir() and (given / "run.json").is_file():
        return given, None
    match = re.fullmatch(r"rank(\d+)", given.absolute().name)
    if match and given.is_dir() and (given.absolute().parent / "run.json").is_file():
        return given.absolute().parent, int(match[1])
    raise RunDirectoryError(f"{given} holds no run.json, so it is not a run directory")


def _rank_numbers(root: Path) -> list[int]:
    matches = (re.fullmatch(r"rank(\d+)", entry.name) for entry in root.iterdir() if entry.is_dir())
    return sorted(int(match[1]) for match in matches if match)


def _read_info(path: Path) -> RunInfo:
    data = read_json(path)
    version = data.get("schema_version") if isinstance(data, dict) else None
    if isinstance(version, int) and version > RUN_SCHEMA_VERSION:
        raise RunDirectoryError(
            f"{path} has schema_version {version}; this trainscope reads up to "
            f"{RUN_SCHEMA_VERSION}: install a newer one"
        )
    info = decode(RunInfo, data, path)
    if info.source != "run":
        raise RunDirectoryError(
            f"{path} at source: it holds {info.source!r:.80}, and a run directory's is 'run'"
        )
    return info


def _read_rank(root: Path, rank: int, info: RunInfo) -> Trace:
    folder = root / f"rank{rank}"
    ranges, notes = _read_ranges(folder / "ranges.i64")
    names = decode(list[str], read_json(folder / "names.json", []), folder / "names.json")
    if len(ranges) and ranges.name_id.max() >= len(names):
        notes.append(f"rank{rank}/names.json lacks names of ranges, shown as ?: killed mid-write?")
    syncs_path = folder / "syncs.json"
    syncs = read_json(syncs_path)
    sites: list[SyncSite] = []
    detector = None
    if syncs is MISSING:
        notes.append(f"rank{rank}/syncs.json is missing: killed before it was first saved?")
    elif not isinstance(syncs, dict):
        raise RunDirectoryError(f"{syncs_path} holds no JSON object, but {type(syncs).__name__}")
    else:
        sites = decode(list[SyncSite], syncs.get("sites", []), syncs_path, "sites")
        detector = decode(DetectorState, syncs.get("detector", {}), syncs_path, "detector")
    captures = _read_state(folder / "captures.json", CaptureState)
    windows, damaged = _read_windows(folder, captures)
    notes += damaged
    return Trace(
        path=root,
        rank=rank,
        info=info,
        ranges=ranges,
        names=tuple(names),
        syncs=tuple(sites),
        detector=detector,
        metrics=_read_state(folder / "metrics.json", MetricsState),
        captures=captures,
        windows=windows,
        noted_waits=tuple(_read_noted(folder / "window_waits.json")),
        counts=decode(Counts, read_json(folder / "counts.json", {}), folder / "counts.json"),
        notes=tuple(notes),
    )


def _read_noted(path: Path) -> list[NotedWait]:
    return decode(list[NotedWait], read_json(path, []), path)


def _read_windows(
    folder: Path, captures: CaptureState | None
) -> tuple[tuple[Window, ...], list[str]]:
    """The captured windows in time order, and which of them could not be read and why."""
    windows, notes = [], []
    for window in captures.windows if captures is not None else ():
        if window.file is None or window.kind != "torch.profiler":
            continue
        try:
            windows.append(read_torch_trace(folder / window.file))
        except TraceError as error:
            notes.append(f"a captured window is left out: {error}")
    return tuple(windows), notes


def _read_ranges(path: Path) -> tuple[Ranges, list[str]]:
    """The whole rows of the file and notes on what is not whole."""
    place = f"{path.parent.name}/{path.name}"
    try:
        size = size_of(path)
    except FileNotFoundError:
        if (path.parent / "counts.json").exists():  # written when the rows are: there were none
            return Ranges.of([]), []
        return Ranges.of([]), [f"{place} is missing: killed before it was first saved?"]
    rows, torn_bytes = divmod(size, ROW_BYTES)
    notes = []
    if torn_bytes:
        notes.append(f"{place} ends in a torn row ({torn_bytes} bytes left out): killed mid-write")
    columns = np.empty((len(ROW_FIELDS), rows), dtype=np.int64)
    with path.open("rb") as file:
        for begin in range(0, rows, _CHUNK_ROWS):
            end = min(begin + _CHUNK_ROWS, rows)
            table = np.fromfile(file, dtype="<i8", count=(end - begin) * len(ROW_FIELDS))
            table = table.reshape(-1, len(ROW_FIELDS))
            _check_rows(path, begin, table)
            columns[:, begin:end] = table.T
    return Ranges(*columns).given_their_step(), notes


def _check_rows(path: Path, begin: int, table: NDArray[np.int64]) -> None:
    step, name_id, depth, start_ns, end_ns = table.T
    wrong = (step < -1) | (name_id < 0) | (depth < 0) | (start_ns < 0) | (end_ns < start_ns)
    if wrong.any():
        row = int(np.argmax(wrong))
        values = dict(zip(ROW_FIELDS, table[row].tolist(), strict=True))
        raise RunDirectoryError(
            f"{path} row {begin + row} is no range: {values}; trainscope did not write this file"
        )


def _read_state(path: Path, kind: type[State]) -> State | None:
    """The state in a file, None where it is missing."""
    data = read_json(path)
    return None if data is MISSING else decode(kind, data, path)
