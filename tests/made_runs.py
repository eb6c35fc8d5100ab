"""Runs made by hand for tests: every number in them is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

from trainscope.trace.captures import CaptureState, CaptureWindow
from trainscope.trace.counts import Counts
from trainscope.trace.metrics import MetricsState, SinkState
from trainscope.trace.ranges import Ranges, Row
from trainscope.trace.run_dir import RunDirectory
from trainscope.trace.run_info import RunInfo
from trainscope.trace.syncs import DetectorState, SyncSite
from trainscope.trace.trace import Trace

MS = 1_000_000
NAMES = ("step", "data", "forward", "backward", "optimizer")
PHASES_MS = (("data", 1), ("forward", 12), ("backward", 5), ("optimizer", 2))

ITEM = SyncSite(
    kind="item",
    code="TS101",
    explicit=False,
    allowed=None,
    file="/home/me/project/train.py",
    line=42,
    function="main",
    source="if loss.item() > 1e9:",
    caller="/home/me/project/train.py:80",
    via=None,
    phase="forward",
    thread="main",
    during="training",
    count=480,
    counted_internally=False,
    timed=480,
    blocked_ns_total=5136 * MS,
    blocked_ns_median=10_700_000,
    advice="keep the loss on the GPU: scope.log(loss=loss) names a non-finite value with its step",
)
ARMED = DetectorState(mode="record", armed_steps=480)
INFO = RunInfo(
    launch_id="launch",
    world_size=1,
    created_unix_ns=1_700_000_000_000_000_000,
    perf_counter_ns=0,
    device="NVIDIA H200",
    torch="2.11.0+cu130",
    trainscope="0.1.0",
    cwd="/home/me/project",
    counted_by="scope.steps",
)


def step_rows(steps: int, *, wall_us: Sequence[int] = (20_400,), first: int = 0) -> list[Row]:
    """Rows of steps as the recorder writes them: phases as they close, then the step.

    The times repeat ``wall_us``; each step holds ``PHASES_MS`` one after the other from its start.
    """
    rows: list[Row] = []
    now_ns = 1_000
    for step in range(first, first + steps):
        began_ns = now_ns
        for name, ms in PHASES_MS:
            rows.append((step, NAMES.index(name), 1, now_ns, now_ns + ms * MS))
            now_ns += ms * MS
        end_ns = began_ns + wall_us[step % len(wall_us)] * 1_000
        rows.append((step, 0, 0, began_ns, end_ns))
        now_ns = end_ns + 500
    return rows


def trace(rows: Sequence[Row] | None = None, **fields: object) -> Trace:
    """A trace in memory: by default 480 steps of 20.4 ms, an armed detector and no sync."""
    made = Trace(
        path=Path("runs/mlp"),
        rank=0,
        info=INFO,
        ranges=Ranges.of(step_rows(480) if rows is None else rows),
        names=NAMES,
        detector=ARMED,
        counts=Counts(optimizer_steps=480),
    )
    return replace(made, **fields)


def without_gpu() -> Trace:
    """A run on a machine that has none, and no dry run: nothing there could wait."""
    info = INFO.model_copy(update={"device": None})
    return trace(info=info, detector=DetectorState(mode="record"))


def site(**fields: object) -> SyncSite:
    """``ITEM`` with other fields."""
    return replace(ITEM, **fields)


def full_trace() -> Trace:
    """A trace with something in every section of a report."""
    log = site(
        kind="item-implicit",
        code="TS102",
        line=57,
        source="writer.add_scalar('[loss]', loss[/], step)  # [red]",
        caller=None,
        via="torch.utils.tensorboard.writer:381 add_scalar",
        phase=None,
        count=48,
        timed=0,
        blocked_ns_total=0,
        blocked_ns_median=None,
        advice="scope.log(loss=loss)",
    )
    asked = site(
        kind="synchronize",
        code="TS123",
        explicit=True,
        line=60,
        source="torch.cuda.synchronize()",
        phase="optimizer",
        count=480,
        blocked_ns_total=96 * MS,
        blocked_ns_median=200_000,
    )
    allowed = site(line=71, allowed="checkpoint", count=4, timed=4, blocked_ns_total=8 * MS)
    setup = site(line=12, during="setup", phase=None, count=1, timed=1, blocked_ns_total=40_000)
    window = CaptureWindow(20, 20, 26, "trace-000.json.gz", "torch.profiler", False, 9 * MS, 1_000)
    return trace(
        step_rows(480, wall_us=(20_300, 20_400, 20_400, 20_600)),
        syncs=(ITEM, log, asked, allowed, setup),
        detector=replace(
            ARMED,
            armed_steps=475,
            disarmed=("steps 120-124: a catch_warnings block removed the filter",),
            cannot_see=("copies that an extension starts by itself",),
        ),
        counts=Counts(
            optimizer_steps=480,
            range_cost_ns=900.0,
            per_step_cost_ns=16_400.0,
            not_seen=["Sequential: compiled before wrap, its forward is not seen"],
        ),
        metrics=MetricsState(
            logged=480,
            written=478,
            dropped=2,
            nonfinite=(("loss", 12, float("nan")),),
            nonfinite_count=3,
            sinks=(
                SinkState("jsonl", 478),
                SinkState("wandb", 470, 8, True, "timed out", "run a1"),
            ),
        ),
        captures=CaptureState(
            (window,), False, ("steps 27-30: the loop ended",), "the loop ended in the window"
        ),
        notes=("rank0/ranges.i64 ends in a torn row (17 bytes left out): killed mid-write",),
    )


def write_run(path: Path, made: Trace, *, world_size: int = 1) -> RunDirectory:
    """Write a trace and its other ranks as the recorder would."""
    launch = made.info.launch_id
    for each in (made, *made.ranks):
        directory = RunDirectory.create(
            path, rank=each.rank, world_size=world_size, launch_id=launch, wait_s=1
        )
        directory.write_info(each.info.model_copy(update={"world_size": world_size}))
        directory.write_names(each.names)
        columns = [getattr(each.ranges, name).tolist() for name in Ranges.__dataclass_fields__]
        directory.append_rows([*chain.from_iterable(zip(*columns, strict=True))])
        if each.detector is not None:
            directory.write_syncs(each.syncs, each.detector)
        directory.write_json("counts.json", each.counts)
        if each.metrics is not None:
            directory.write_json("metrics.json", each.metrics)
        if each.captures is not None:
            directory.write_json("captures.json", each.captures)
        directory.close()
    return directory
