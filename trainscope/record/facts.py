"""What a session knows of itself, as the contents of ``run.json`` and ``counts.json``."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterable
from time import perf_counter_ns

import torch

import trainscope
from trainscope.record.ranges import Range
from trainscope.record.recorder import Recorder
from trainscope.record.settings import Settings
from trainscope.record.world import World
from trainscope.trace.counts import Counts
from trainscope.trace.run_info import RunInfo

__all__ = ["counts", "run_info"]

_TIMED_RANGES = 50
_TRACED = (
    "a debugger or another tracer was on (sys.settrace), which slows Python: without it the steps "
    "are shorter"
)


def run_info(
    settings: Settings,
    world: World,
    started: tuple[int, int],
    counted_by: str | None,
    *,
    traced: bool,
) -> RunInfo:
    """Return what the run is; ``started`` is its beginning in Unix and in counter nanoseconds.

    ``traced``: whether a debugger or the like was told of what Python did.
    """
    unix_ns, counter_ns = started
    return RunInfo(
        launch_id=world.launch_id,
        world_size=world.size,
        created_unix_ns=unix_ns,
        perf_counter_ns=counter_ns,
        # asking for the name would start CUDA in a process that has not yet
        device=torch.cuda.get_device_name() if torch.cuda.is_initialized() else None,
        torch=torch.__version__,
        trainscope=trainscope.__version__,
        python=platform.python_version(),
        platform=platform.platform(),
        argv=_argv(),
        dry_run=settings.dry_run,
        counted_by=counted_by,
        settings=settings.model_dump(mode="json", exclude={"schedule"}),
        schedule=(None if settings.schedule is None else settings.schedule.model_dump(mode="json")),
        notes=[note for note in (world.note, _TRACED if traced else None) if note is not None],
    )


def counts(
    recorder: Recorder,
    own_ns: int,
    not_seen: Iterable[str],
    *,
    rows_refused: int,
    watches_optimizers: bool,
) -> Counts:
    """Return what was counted so far.

    ``own_ns`` is the CPU time of all but the ranges, ``rows_refused`` how many of the recorder's
    rows the disk has not taken.
    """
    lost = recorder.rows_dropped + rows_refused
    unwritten = [f"{lost} ranges, steps among them, that the disk did not take in time"]
    return Counts(
        optimizer_steps=recorder.optimizer_steps if watches_optimizers else None,
        forwards=recorder.forwards,
        backwards=recorder.backwards,
        range_cost_ns=_range_cost_ns(),
        per_step_cost_ns=own_ns / max(recorder.steps_done, 1),
        not_seen=[*not_seen, *(unwritten if lost else [])],
    )


def _argv() -> list[str]:
    """``sys.argv`` as the program has left it: it may hold anything, and be gone."""
    try:
        return [str(each) for each in getattr(sys, "argv", ())]
    except Exception:  # no list at all, or a thing whose __str__ fails
        return []


def _range_cost_ns() -> float:
    """CPU time of one range with no tool attached, in nanoseconds, measured now."""
    recorder = Recorder()
    recorder.begin_step(0)
    began_ns = perf_counter_ns()
    for _ in range(_TIMED_RANGES):
        with Range(recorder, "cost"):
            pass
    return (perf_counter_ns() - began_ns) / _TIMED_RANGES
