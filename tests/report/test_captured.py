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
    assert "(1.16x)" in found.verdict
    assert text.render(found, width=300).startswith(found.verdict)
    assert json.loads(json_report.render(found))["verdict"] == found.verdict


@pytest.mark.parametrize("step_ms", [None, 10.603])
def test_where_no_sync_is_to_blame_the_report_says_so(step_ms: float | None) -> None:
    found = report("data_sync", step_ms)
    assert found.verdict.startswith("No sync is to blame. The GPU idles 5.17 ms of every 11.8 ms")
    assert found.verdict.endswith("CPU work before the first launch of a step.")
    assert "data" not in found.verdict
    assert (found.what_if, found.findings) == (None, [])


def test_syncs_that_cost_nothing_are_not_blamed() -> None:
    verdict = report("gpt_sync", 18.462).verdict
    assert verdict.startswith("No sync is to blame: without any of them a step would be shorter by")


def test_what_a_bare_trace_cannot_know_is_null() -> None:
    found = report("prep2_sync")
    assert (found.detector, found.overhead, found.capture, found.metrics) == (None,) * 4
    assert found.steps.optimizer_steps is None
    assert (found.run.source, found.run.device) == ("torch.profiler", "NVIDIA H200")
    assert (found.steps.count, found.steps.counted_by) == (4, "ranges ProfilerStep#N")
    assert found.what_if is not None
    assert found.what_if.baseline is not None
    assert found.what_if.baseline.measured_step_ms is None
    low, high = found.what_if.removals[0].band or (0, 0)
    assert f"({low:.2f}x to {high:.2f}x)" in found.verdict


def test_a_finding_has_its_gain_and_how_sure_it_is() -> None:
    (finding,) = report("h2d_sync", 9.323).findings
    assert finding.code == "TS114"
    assert finding.gain_ms_per_step == pytest.approx(2.2, abs=0.15)
    assert finding.evidence.startswith("replayed without it a step takes 7.1")


@pytest.mark.parametrize("step_ms", [0, -1.0, float("nan"), float("inf")])
def test_a_step_time_that_is_none_is_refused(step_ms: float) -> None:
    with pytest.raises(ConfigError, match="is no time of a step: give milliseconds"):
        report("prep2_sync", step_ms)
