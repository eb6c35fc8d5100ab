"""Reports of traces that another tool wrote, on recorded loops whose true gain was measured."""

import json

import pytest
from sample_traces import FOLDER

from trainscope import api
from trainscope.errors import ConfigError
from trainscope.report import json as json_report
from trainscope.report import text
from trainscope.report.model import Report

pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="the sample traces are not here")


def report(name: str, step_ms: float | None = None) -> Report:
    return api.analyze(api.load(FOLDER / f"{name}.json.gz"), step_ms=step_ms)


def test_the_first_sentence_names_the_line_and_the_gain() -> None:
    found = report("mid_sync_stack", 20.362)
    first = found.verdict.split(". ")[0]
    assert first.startswith("The GPU idles 3.32 ms of every 20.4 ms step, because of aten::item in")
    assert "traces2.py:24" in first
    assert found.what_if is not None
    assert 1.15 <= found.what_if.removals[0].speedup <= 1.17
    assert f"({found.what_if.removals[0].speedup:.2f}x)" in found.verdict
    assert text.render(found, width=300).startswith(found.verdict)
    assert json.loads(json_report.render(found))["verdict"] == found.verdict


@pytest.mark.parametrize("step_ms", [None, 10.603])
def test_where_no_sync_is_to_blame_the_report_says_so(step_ms: float | None) -> None:
    found = report("data_sync", step_ms)
    assert found.verdict.startswith("No sync is to blame. The GPU idles 5.17 ms of every 11.8 ms")
    assert found.verdict.endswith(
        "CPU work before the first launch of a step, which comes 6.43 ms after it begins."
    )
    assert "data" not in found.verdict
    assert found.what_if is None
    assert [finding.code for finding in found.findings] == ["TS201", "TS403"]


def test_syncs_that_cost_nothing_are_not_blamed() -> None:
    verdict = report("gpt_sync", 18.462).verdict
    assert verdict.startswith("No sync is to blame: without any of them a step would be shorter by")


def test_what_a_bare_trace_cannot_know_is_null() -> None:
    found = report("prep2_sync")
    assert (found.detector, found.overhead, found.metrics, found.run.torch) == (None,) * 4
    assert found.steps.optimizer_steps is None
    assert (found.run.source, found.run.device) == ("torch.profiler", "NVIDIA H200")
    assert (found.steps.count, found.steps.counted_by) == (4, "ranges ProfilerStep#N")
    assert found.what_if is not None
    assert found.what_if.baseline is not None
    assert found.what_if.baseline.measured_step_ms is None
    low, high = found.what_if.removals[0].band or (0, 0)
    assert f"({low:.2f}x to {high:.2f}x)" in found.verdict


def test_phases_and_waits_of_a_bare_trace() -> None:
    found = report("mid_sync_stack", 20.362)
    (phase,) = found.phases
    assert (phase.name, phase.where, phase.steps) == ("loop_body", "host", 4)
    assert phase.per_step_ms.median == pytest.approx(21.047)
    assert found.gpu is not None
    (in_window,) = found.gpu.phases
    assert in_window.gpu_ms_per_step.median == pytest.approx(17.346, abs=0.001)
    (sync,) = found.gpu.syncs
    assert (sync.place, sync.line_is) == (
        "aten::item in step (which begins at traces2.py:24)",
        "function",
    )
    assert sync.gain_ms_per_step == pytest.approx(2.8, abs=0.2)
    assert sync.advice.startswith("keep the value on the GPU")


def test_the_syncs_of_a_bare_trace_are_those_of_its_window() -> None:
    found = report("mid_sync_stack", 20.362)
    (sync,) = found.syncs
    assert (sync.code, sync.kind, sync.count, sync.per_step, sync.steps) == (
        *("TS101", "item"),
        *(4, 1.0, 4),
    )
    assert (sync.file, sync.line, sync.line_is, sync.function) == (
        *("traces2.py", 24),
        *("function", "step"),
    )
    assert (sync.source, sync.allowed, sync.caller, sync.via) == (None,) * 4
    assert sync.blocked_ms_total == pytest.approx(37.118, abs=0.001)
    assert sync.gain_ms_per_step == pytest.approx(2.8, abs=0.2)
    assert found.capture is not None
    assert (found.capture.windows, found.capture.complete) == (1, True)
    assert found.capture.missing == [
        "59 of 611 GPU ops have no launch in the trace: it came before the window"
    ]


@pytest.mark.parametrize("name", ["mid_sync_stack", "gpt_sync", "h2d_sync", "mask_sync"])
def test_a_place_has_the_same_words_everywhere(name: str) -> None:
    found = report(name)
    assert found.what_if is not None
    places = {sync.place for sync in found.syncs}
    named = {site for each in found.what_if.removals if each.sites != "all" for site in each.sites}
    assert named <= places
    assert {finding.site for finding in found.findings if finding.code < "TS2"} <= places


def test_a_place_that_must_stay_is_kept() -> None:
    loaded = api.load(FOLDER / "gpt_sync.json.gz")
    places = [sync.place or "" for sync in api.analyze(loaded, step_ms=18.462).syncs]
    what_if = api.analyze(loaded, step_ms=18.462, keep=places[:2]).what_if
    assert what_if is not None
    assert sorted(what_if.kept) == sorted(places[:2])
    assert [each.sites for each in what_if.removals] == ["all", [places[2]]]
    nothing = api.analyze(loaded, step_ms=18.462, keep=places).what_if
    assert nothing is not None
    assert nothing.removals == []
    with pytest.raises(ConfigError, match=r"keep='train\.py:9' is no place that waits .*known are"):
        api.analyze(loaded, keep=["train.py:9"])


@pytest.mark.parametrize("place", ["traces2.py:24", "traces2.py:24 (item)"])
def test_a_place_may_be_named_by_its_line(place: str) -> None:
    loaded = api.load(FOLDER / "mid_sync_stack.json.gz")
    what_if = api.analyze(loaded, step_ms=20.362, keep=[place]).what_if
    assert what_if is not None
    assert (len(what_if.kept), what_if.removals) == (1, [])


def test_a_place_of_another_kind_is_none() -> None:
    loaded = api.load(FOLDER / "mid_sync_stack.json.gz")
    with pytest.raises(ConfigError, match=r"keep='traces2\.py:24 \(cpu\)' is no place"):
        api.analyze(loaded, step_ms=20.362, keep=["traces2.py:24 (cpu)"])


def test_where_all_waits_are_needed_none_is_called_harmless() -> None:
    loaded = api.load(FOLDER / "mid_sync_stack.json.gz")
    verdict = api.analyze(loaded, step_ms=20.362, keep=["traces2.py:24"]).verdict
    assert verdict.startswith(
        "No sync can be taken out: the program needs aten::item in step (which begins at "
        "traces2.py:24). The GPU idles 3.53 ms of every 20.9 ms captured step; 3.32 ms of it: a "
        "sync held the CPU"
    )


def test_launch_bound_loops_are_told_how_much_profiling_added() -> None:
    found = report("gpt_sync", 18.462)
    assert [finding.code for finding in found.findings][:2] == ["TS401", "TS402"]
    first = found.findings[0]
    assert first.evidence == (
        "idle 21.7 ms of the 28.4 ms of every captured step (76%); with no profiler on it is "
        "14.4 ms at most"
    )
    assert (first.gain_ms_per_step, first.site) == (None, None)


def test_the_text_of_a_bare_trace() -> None:
    shown = text.render(report("mid_sync_stack", 20.362), width=100)
    begin = shown.index("Captured window of 4 steps (times under the profiler)")
    end = shown.index("GPU in the captured window")
    assert shown[begin:end].splitlines() == TEXT.splitlines()


TEXT = """\
Captured window of 4 steps (times under the profiler)
  4 steps, counted by ranges ProfilerStep#N
  20.9 ms median, 20.4 ms to 22.7 ms (10th to 90th percentile)

Phases: CPU time in a step
 phase             median       p10       p90   share   steps
──────────────────────────────────────────────────────────────
 loop_body        21.0 ms   20.4 ms   22.5 ms   99.5%       4
 outside phases                                  0.5%

Ranges inside phases: CPU time in a step
 range                            median       p10       p90   calls   steps
─────────────────────────────────────────────────────────────────────────────
 AdamW.step, in loop_body        1.05 ms   1.02 ms   1.23 ms       4       4
 AdamW.zero_grad, in loop_body   94.4 µs   92.5 µs   97.6 µs       4       4

Lines that make the CPU wait
                                                                 count  per step   blocked    in all
  aten::item in step (which begins at traces2.py:24)                 4      1.00   9.03 ms   37.1 ms
    TS101 item, in loop_body
    → keep the value on the GPU, and read it only on the steps that use it; several values: one
      .tolist()
  Blocked time is not what a line costs: a step gets shorter only by the time in which the GPU has
  nothing to do. What it costs stands below.

What taking syncs out gains, replayed from the captured window
 without                                                 step   speedup           may be
─────────────────────────────────────────────────────────────────────────────────────────
 all of them                                          17.6 ms     1.15x   1.14x to 1.17x
 aten::item in step (which begins at traces2.py:24)   17.6 ms     1.15x   1.14x to 1.17x
  - a wait taken out is replaced by nothing: the value stays on the GPU, and its copy is gone
  replayed as recorded the steps come out 0.2% longer than they were; calibrated by the step of 20.4
  ms with no profiler on

Findings
  TS101 aten::item in step (which begins at traces2.py:24): `.item()` reads one value
    replayed without it a step takes 17.6 ms, 1.15x (1.14x to 1.17x)
    → keep the value on the GPU, and read it only on the steps that use it; several values: one
      .tolist()
  TS403 float32 matrix products run without the tensor cores
    92% of the kernels' time, most of it in
    sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x128x8_stage3_warpsize2x2x1_ffma_aligna4…
    → let them use TF32, where 10 bits of mantissa in the products are enough; or bfloat16 by
      autocast
      torch.set_float32_matmul_precision("high")

"""


def test_a_finding_has_its_gain_and_how_sure_it_is() -> None:
    finding, products = report("h2d_sync", 9.323).findings  # no TS303: the line is named already
    assert (finding.code, products.code) == ("TS114", "TS403")
    assert finding.snippet is not None
    assert "pin_memory=True" in finding.snippet
    assert finding.gain_ms_per_step == pytest.approx(2.2, abs=0.15)
    assert finding.evidence.startswith("replayed without it a step takes 7.1")


@pytest.mark.parametrize("step_ms", [0, -1.0, float("nan"), float("inf")])
def test_a_step_time_that_is_none_is_refused(step_ms: float) -> None:
    with pytest.raises(ConfigError, match="is no time of a step: give milliseconds"):
        report("prep2_sync", step_ms)
