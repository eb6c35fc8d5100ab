"""Reports of bare traces made by hand: ranks, what is missing, and windows of chance."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from chance_windows import of_chance
from made_windows import Made, empty_window

from trainscope import api
from trainscope.errors import ConfigError
from trainscope.report import json as json_report
from trainscope.report import text
from trainscope.report.build import build
from trainscope.report.model import Report
from trainscope.trace.ranges import Ranges
from trainscope.trace.run_info import RunInfo
from trainscope.trace.trace import Trace
from trainscope.trace.window import Window

MS = 1_000_000


def bare(*windows: Window, rank: int = 0, ranks: tuple[Trace, ...] = ()) -> Trace:
    info = RunInfo(launch_id="none", source="torch.profiler")
    return Trace(Path("t.json"), rank, info, Ranges.of([]), (), windows=tuple(windows), ranks=ranks)


def steps(count: int, length_ms: int) -> Window:
    made = Made()
    for step in range(count):
        at = step * length_ms * MS
        made.range(f"ProfilerStep#{step + 4}", at, at + length_ms * MS - 1)
        made.launch(at + 1000, at + 2000, at + MS)
    return made.window()


def test_workers_are_compared_by_their_captured_steps() -> None:
    slow, lone = bare(steps(4, 30), rank=1), bare(steps(1, 20), rank=2)
    report = build(bare(steps(4, 20), ranks=(slow, lone)))
    assert report.run.world_size == 3
    assert report.ranks is not None
    assert [(r.rank, r.steps, r.step_ms_median) for r in report.ranks.per_rank] == [
        (0, 4, 20.0),
        (1, 4, 30.0),
        (2, 1, None),
    ]
    assert (report.ranks.slowest, report.ranks.slowest_over_median) == (1, 30 / 25)
    assert "slowest: rank 1, 1.20x the median of the ranks" in text.render(report)


def test_one_trace_alone_has_no_ranks() -> None:
    report = build(bare(steps(4, 20)))
    assert (report.ranks, report.run.world_size) == (None, 1)


def test_what_a_window_lacks_stands_before_its_numbers() -> None:
    window = replace(steps(1, 20), problems=("the file ends in the middle",))
    shown = text.render(build(bare(window)))
    assert shown.startswith("The capture is incomplete: only one step was captured, and it starts")
    lacks = shown.index("What the captured window lacks\n  - only one step was captured, and it")
    assert shown.index("  - the file ends in the middle\n") > lacks
    assert shown.index("Captured window of 1 step (times under the profiler)") > lacks


def test_a_window_without_gpu_work_has_phases_of_the_cpu_alone() -> None:
    made = Made()
    for step in range(2):
        at = step * 10 * MS
        made.range(f"ProfilerStep#{step}", at, at + 9 * MS)
        made.range("forward", at + MS, at + 3 * MS)
    window = replace(made.window(), problems=("no CUDA calls and no GPU work",))
    report = build(bare(window))
    assert report.verdict == "Where the GPU waits cannot be told: no CUDA calls and no GPU work."
    assert (report.gpu, report.idle, report.what_if, report.findings) == (None, None, None, [])
    assert [(p.name, p.per_step_ms.median, p.steps) for p in report.phases] == [("forward", 2.0, 2)]
    assert report.steps.wall_ms is not None
    assert report.steps.wall_ms.median == 10.0


def test_an_empty_window_is_told() -> None:
    report = build(bare(empty_window()))
    assert report.steps.count == 0
    assert report.verdict.startswith("Where the GPU waits cannot be told: the trace has no ranges")
    assert "Captured window\n  0 steps, cannot tell" in text.render(report)


def test_names_of_chance_stay_text() -> None:
    odd = "[red]\x1b[31m<script>alert(1)</script>\u202e\n[/]"
    made = Made()
    for step in range(3):
        at = step * 10 * MS
        made.range(f"ProfilerStep#{step}", at, at + 9 * MS)
        made.range(odd, at + MS, at + 4 * MS).range(f"inner {odd}", at + MS, at + 2 * MS)
        made.op(odd, at + MS, at + 2 * MS)
        made.launch(at + MS + 1000, at + MS + 2000, at + 3 * MS, name=odd)
        made.range("second", at + 5 * MS, at + 6 * MS)
        made.wait(at + 5 * MS, at + 5 * MS + 1000)
    window = replace(made.window(), problems=(odd,), devices=(odd,))
    report = build(replace(bare(window), notes=(odd,)))
    shown = text.render(report, width=200)
    assert "[red]?[31m<script>alert(1)</script>" in shown
    assert not any(sign in shown for sign in "\x1b\u202e")
    assert Report.model_validate_json(json_report.render(report)).notes == [odd]


@pytest.mark.parametrize("first", range(0, 120, 30))
def test_windows_of_chance_give_reports_that_read_back(first: int) -> None:
    for seed in range(first, first + 30):
        report = build(bare(of_chance(seed)), 1.0)
        assert text.render(report)
        written = json_report.render(report)
        assert json_report.render(Report.model_validate_json(written)) == written


def test_no_sync_is_acquitted_where_the_calls_are_missing() -> None:
    made = Made()
    for step in range(3):
        made.range(f"ProfilerStep#{step}", step * 20 * MS, (step + 1) * 20 * MS - 1)
        made.kernel(step * 20 * MS + 1000, step * 20 * MS + MS, 50 + step)
    made.call("cudaLaunchKernel", 500, 600, correlation=1)
    verdict = build(bare(made.window())).verdict
    assert verdict.startswith(
        "The capture is incomplete: 3 of 3 GPU ops have no launch. Whether a sync is to blame "
        "cannot be told: the trace lacks many of the CPU's calls."
    )


def test_kernels_that_take_no_time_are_no_finding() -> None:
    made = Made()
    for step in range(3):
        at = step * 20 * MS
        made.range(f"ProfilerStep#{step}", at, at + 20 * MS)
        made.launch(at + 100, at + 200, at + 200, name="sm80_xmma_gemm_f32f32_f32f32_f32_tn_n")
    report = build(bare(made.window()))
    assert [finding.code for finding in report.findings if finding.code == "TS403"] == []
    assert report.gpu is not None
    assert [operator.ms_total for operator in report.gpu.operators] == [0.0]


@pytest.mark.parametrize("step_ms", [0.0, -3.0, 1e-300, 1e300, float("nan"), float("inf")])
def test_what_is_no_time_of_a_step_is_refused(step_ms: float) -> None:
    with pytest.raises(ConfigError, match=r"is no time of a step: .* from 0\.001 to 86,400,000"):
        api.analyze(bare(steps(3, 20)), step_ms=step_ms)
