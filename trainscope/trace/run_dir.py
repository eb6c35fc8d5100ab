"""The run directory: one run's files, one folder a rank.

========================== ============ =====================================================
file                       written      holds
========================== ============ =====================================================
``run.json``               by rank 0    :class:`~trainscope.trace.run_info.RunInfo`
``rank0/ranges.i64``       appended     rows of five little-endian int64: step (-1: outside a
                                        step), name_id, depth (0: the step itself, 1: a phase,
                                        more: inside one), start_ns, end_ns
``rank0/names.json``       replaced     a list of names; ``name_id`` counts into it
``rank0/syncs.json``       replaced     ``sites``: a list of ``SyncSite``; ``detector``:
                                        ``DetectorState``
``rank0/metrics.jsonl``    appended     one logged record a line (by the Jsonl sink)
``rank0/metrics.json``     replaced     ``MetricsState``
``rank0/captures.json``    replaced     ``CaptureState``
``rank0/window_waits.json`` replaced    a list of ``NotedWait``: the waits of captured steps
``rank0/counts.json``      replaced     :class:`~trainscope.trace.counts.Counts`
``rank0/trace-000.json.gz`` once         a torch.profiler trace, one a captured window
========================== ============ =====================================================

Replaced means: the whole file is written beside it and renamed over it, so a reader never meets
half of one. Times are ``time.perf_counter_ns()`` of that rank's process.
"""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from trainscope.trace.claim import (
    absolute,
    claim,
    make_rank_dir,
    wait_for_claim,
    working_directory,
)
from trainscope.trace.files import RowFile, write_json_file
from trainscope.trace.run_info import RunInfo
from trainscope.trace.syncs import DetectorState, SyncSite

__all__ = ["RunDirectory"]


@dataclass(frozen=True)
class RunDirectory:
    """The place one rank of one run writes to. Made by :meth:`create`; never holds an older run."""

    path: Path
    rank: int
    launch_id: str
    moved_from: Path | None = None
    """The path asked for, when it was not empty and a numbered sibling was taken instead."""
    notes: tuple[str, ...] = ()
    """What the report has to say about how this directory was chosen; goes into ``run.json``."""
    owner: bool = True
    """This rank writes ``run.json``."""
    cwd: str | None = field(default_factory=working_directory, compare=False)
    """Where the program started: a report names files relative to it. None: it is deleted."""
    _rows: list[RowFile] = field(default_factory=list, repr=False, compare=False)

    @property
    def rank_dir(self) -> Path:
        """The folder of this rank's files."""
        return self.path / f"rank{self.rank}"

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        *,
        rank: int = 0,
        world_size: int = 1,
        launch_id: str,
        wait_s: float = 30.0,
    ) -> RunDirectory:
        """Claim an empty or missing directory, or a numbered sibling of one that is in use.

        Rank 0 claims it; the other ranks of ``launch_id`` look for its claim for ``wait_s`` seconds
        and, where none appears, claim a directory ``path-rankN`` of their own and note it.
        Raises RunDirectoryError when ``path`` cannot be a directory of its own.
        """
        asked = absolute(path)
        if rank == 0:
            taken = claim(asked, launch_id, world_size)
            made = cls(taken, rank, launch_id, moved_from=None if taken == asked else asked)
            make_rank_dir(made.rank_dir)
            return made
        found = wait_for_claim(asked, rank, launch_id, wait_s)
        if found is not None:
            moved_from = None if found == asked else asked
            return cls(found, rank, launch_id, moved_from=moved_from, owner=False)
        alone = asked.with_name(f"{asked.name}-rank{rank}")
        taken = claim(alone, launch_id, world_size)
        note = (
            f"rank {rank} of {world_size} found no directory of rank 0 at {asked} within "
            f"{wait_s:g} s and stands alone here: are the ranks on one file system?"
        )
        made = cls(taken, rank, launch_id, moved_from=asked, notes=(note,))
        make_rank_dir(made.rank_dir)
        return made

    def write_info(self, info: RunInfo) -> None:
        """Replace ``run.json``, with this directory's launch and notes; only the owner does."""
        if self.owner:
            notes = [*info.notes, *(note for note in self.notes if note not in info.notes)]
            kept = {
                "launch_id": self.launch_id,
                "notes": notes,
                "cwd": info.cwd or self.cwd,
                "host": info.host or platform.node(),
            }
            write_json_file(self.path / "run.json", info.model_copy(update=kept))

    def append_rows(self, numbers: Sequence[int]) -> None:
        """Append ranges to ``ranges.i64``: step, name_id, depth, start_ns, end_ns of each in turn.

        Numbers and no tuples, of which a run makes a million and more beside the user's loop.
        """
        if not self._rows:
            self._rows.append(RowFile(self.rank_dir / "ranges.i64"))
        self._rows[0].append(numbers)

    def write_names(self, names: Sequence[str]) -> None:
        """Replace ``names.json``; write it before the rows that refer to a new name."""
        self.write_json("names.json", names)

    def write_syncs(self, sites: Sequence[SyncSite], detector: DetectorState) -> None:
        """Replace ``syncs.json``."""
        self.write_json("syncs.json", {"sites": sites, "detector": detector})

    def write_json(self, name: str, data: object) -> None:
        """Replace the rank's file ``name``: JSON types, dataclasses and pydantic models."""
        write_json_file(self.rank_dir / name, data)

    def close(self) -> None:
        """Close the files; closing twice does nothing."""
        for file in self._rows:
            file.close()
        self._rows.clear()

    def discard(self) -> None:
        """Remove the directory of a run of one rank that is closed and holds nothing worth a look.

        What others have put there stays, and what cannot be removed.
        """
        shutil.rmtree(self.rank_dir, ignore_errors=True)
        with suppress(OSError):
            (self.path / "run.json").unlink(missing_ok=True)
            self.path.rmdir()
