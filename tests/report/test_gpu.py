"""The GPU's part of a report: exact values and text of a window made by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from made_runs import INFO, ITEM, trace
from made_windows import Made, empty_window
from sample_traces import sample

from trainscope.analysis.examined import best_window, examine
from trainscope.report import text
from trainscope.report.build import build
from trainscope.report.build_gpu import as_gpu
from trainscope.report.model import Report
from trainscope.trace.window import CopyKind, Memory, Window

US = 1000


def window() -> Window:
    """Three steps of 1 ms: a kernel of 0.5 ms, its value read, and 0.4 ms of CPU work."""
    made = Made()
    for step in range(3):
        at = step * 1000 * US
        made.range(f"ProfilerStep#{step + 7}", at, at + 999 * US)
        made.op("aten::mm", at + 400 * US, at + 410 * US, shape="[8, 8]")
        made.launch(at + 402 * US, at + 412 * US, at + 912 * US, cost=4 * US, name="gemm")
        made.op("aten::item", at + 420 * US, at + 921 * US)
        copy = made.call("cudaMemcpyAsync", at + 421 * US, at + 425 * US)
        made.copy(at + 914 * US, at + 916 * US, copy, CopyKind.D2H, Memory.PINNED, size=2000)
        made.wait(at + 426 * US, at + 920 * US)
    return made.window()


def section(report: Report) -> str:
    shown = text.render(report, width=90)
    return shown[shown.index("GPU in the captured window") :]


def test_a_line_that_the_detector_saw_has_the_gain_of_its_removal() -> None:
    report = build(replace(trace(syncs=(ITEM,)), windows=(window(),)), 1.0)
    assert report.what_if is not None
    (alone,) = [each for each in report.what_if.removals if each.sites == ["train.py:42"]]
    (sync,) = report.syncs
    (finding,) = [each for each in report.findings if each.site == "train.py:42"]
    gain_ms = pytest.approx(alone.step_ms * (alone.speedup - 1))
    assert (sync.gain_ms_per_step, finding.gain_ms_per_step) == (gain_ms, gain_ms)


@pytest.mark.parametrize(
    ("counted_by", "said"),
    [
        ("trainscope run: turns of the loop at train.py:9", False),
        ("trainscope run: turns of the loop at train.py:9 and at train.py:40", True),
        ("trainscope run: turns of the loop at a.py:9; 2 turns and at most 3 are no steps", False),
        ("scope.steps", False),
    ],
)
def test_a_window_of_one_of_several_loops_says_that_it_stands_for_all(
    counted_by: str, said: bool
) -> None:
    """As of a teacher's training, of which the student's steps know nothing."""
    info = INFO.model_copy(update={"counted_by": counted_by})
    report = build(replace(trace(syncs=(ITEM,), info=info), windows=(window(),)), 1.0)
    assert report.what_if is not None
    words = "the window's steps, of one of the loops, stand for the steps of all"
    assert (words in report.what_if.assumptions) is said
    assert (f"assumed: {words}" in text.render(report, width=200)) is said


def test_a_replay_is_weighed_by_what_the_detector_timed() -> None:
    timed = replace(ITEM, timed=100, blocked_ns_total=60 * 1000 * US, blocked_ns_median=500 * US)
    what_if = build(replace(trace(syncs=(timed,)), windows=(window(),)), 1.0).what_if
    assert what_if is not None
    assert what_if.baseline is not None
    assert what_if.baseline.measured_wait_ms == 0.5
    untimed = replace(ITEM, timed=0, blocked_ns_total=0, blocked_ns_median=None)
    what_if = build(replace(trace(syncs=(untimed,)), windows=(window(),)), 1.0).what_if
    assert what_if is not None
    assert what_if.baseline is not None
    assert what_if.baseline.measured_wait_ms is None


def test_numbers_per_step_leave_the_first_step_out() -> None:
    gpu, idle = as_gpu(examine(window()))
    assert (gpu.steps, gpu.steps_counted) == ([7, 8, 9], 2)
    (device,) = gpu.devices
    assert device.busy_ms_per_step == 0.502
    # the last step goes on to the end of its range, 83 µs after its last op
    assert device.idle_ms_per_step == pytest.approx((0.498 + 0.581) / 2)
    assert idle.per_step_ms == pytest.approx(device.idle_ms_per_step)
    assert sum(idle.causes.values()) == pytest.approx(idle.per_step_ms)
    assert list(idle.causes) == ["sync", "launch", "data", "copy", "communication", "other"]
    (site,) = gpu.syncs
    assert (site.place, site.kind, site.code) == (
        "aten::item, after aten::mm",
        "item",
        "TS101",
    )
    assert (site.waits, site.per_step, site.did_not_block) == (3, 1.0, 0)
    assert site.blocked_ms_total == pytest.approx(3 * 0.499)
    assert site.idle_ms_per_step == pytest.approx(idle.causes["sync"])


def test_the_text_of_the_gpu() -> None:
    report = build(replace(trace(), windows=(window(),)))
    assert section(report).splitlines()[:28] == [
        "GPU in the captured window",
        "  3 steps (7-9), ranges ProfilerStep#N, the first left out",
        "  GPU 0, H200: 502 µs busy and 540 µs idle (52%) a step",
        "  - 538 µs idle: a sync held the CPU, or the CPU was catching up after it",
        "      538 µs at aten::item, after aten::mm (item)",
        "",
        "Launches",
        "  6 launches, 0% of the CPU's time in them; the CPU is ahead by 248 µs (median)",
        "  at most 1 op in the queue, none in it for 50% of the time",
        "",
        "Kernels by operator",
        " operator   kernels      time   share",
        "──────────────────────────────────────",
        " aten::mm         3   1.50 ms    100%",
        "",
        "Copies",
        " copies                   count      time   GB/s",
        "─────────────────────────────────────────────────",
        " device to host, pinned       3   6.00 µs    1.0",
    ]


def test_without_a_window_the_gpu_is_not_known() -> None:
    report = build(trace())
    assert report.gpu is None
    assert report.idle is None
    assert "GPU in the captured window" not in text.render(report)
    assert best_window((empty_window(),)) is None


def test_the_window_with_most_gpu_work_is_taken() -> None:
    few, many = Made().launch(0, 1, 2).window(), window()
    assert best_window((empty_window(), few, many)) is many


def test_the_report_goes_through_json_unchanged() -> None:
    report = build(replace(trace(), windows=(window(),)))
    assert Report.model_validate_json(report.model_dump_json()) == report


def test_without_steps_it_says_so() -> None:
    made = Made().launch(0, 10, 100).launch(300, 310, 400)
    report = build(replace(trace(), windows=(made.window(),)))
    assert report.gpu is not None
    assert (report.gpu.steps, report.gpu.steps_counted) == ([], 0)
    shown = section(report)
    assert "steps: cannot tell: the trace has no ranges" in shown
    assert "idle (54%) in all" in shown


def test_names_from_the_trace_cannot_drive_the_terminal() -> None:
    made = Made().range("step 1", 0, 90).range("step 2", 100, 190)
    made.op("aten::\x1b[31mred", 5, 30).launch(10, 20, 80)
    report = build(replace(trace(), windows=(made.window(),)))
    assert "\x1b" not in text.render(report)


@pytest.mark.parametrize("name", ["mid_sync_stack", "gpt_sync", "h2d_sync", "data_sync"])
def test_samples_make_a_section(name: str) -> None:
    shown = section(build(replace(trace(), windows=(sample(name),))))
    first = {
        "mid_sync_stack": "a sync held the CPU",
        "gpt_sync": "the CPU launches too slowly",
        "h2d_sync": "a sync held the CPU",
        "data_sync": "CPU work before the first launch of a step",
    }[name]
    assert first in next(line for line in shown.splitlines() if " idle: " in line)
