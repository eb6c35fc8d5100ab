"""Two sides that do not show the same things: what one cannot show is not said to be gone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from made_runs import ITEM, site, trace, without_gpu, write_run
from made_traces import MadeTrace
from nsys_file import gid, write

from trainscope.report.compare.build import compare
from trainscope.report.compare.model import Comparison
from trainscope.trace.load import load
from trainscope.trace.trace import Trace

MS = 1_000_000


@pytest.fixture
def profiled(tmp_path: Path) -> Trace:
    """Four steps of 10 ms, each a launch and a wait in `aten::item`."""
    made = MadeTrace()
    for step in range(4):
        at = step * 10 * MS
        made.range(f"ProfilerStep#{step}", at, at + 10 * MS)
        made.launch(at + 1000, at + 2000, at + 5 * MS, 2 * step + 1)
        made.op("aten::item", at + 2000, at + 5 * MS)
        made.call("cudaStreamSynchronize", at + 3000, at + 5 * MS, 2 * step + 2)
        made.sync("Stream Sync", at + 3000, at + 5 * MS, 2 * step + 2)
    return load(made.write(tmp_path / "trace.json"))


@pytest.fixture
def by_nsys(tmp_path: Path) -> Trace:
    calls, kernels = [], []
    for step in range(4):
        at = step * 10 * MS + 1
        call = {"globalTid": gid(1), "nameId": 1, "correlationId": step + 1}
        calls.append({**call, "start": at, "end": at + 5_000})
        on = {"deviceId": 0, "streamId": 7, "globalPid": gid(), "correlationId": step + 1}
        kernels.append({**on, "start": at + MS, "end": at + 5 * MS, "shortName": 2})
    strings = ("cudaLaunchKernel_v7000", "gelu")
    file = write(tmp_path / "r.sqlite", {"RUNTIME": calls, "KERNEL": kernels}, strings=strings)
    return load(file)


def nothing_said(comparison: Comparison) -> bool:
    syncs = (comparison.syncs_new, comparison.syncs_gone, comparison.syncs_changed)
    findings = (comparison.findings_new, comparison.findings_gone)
    return not any((*syncs, *findings, comparison.operators)) and "sync" not in comparison.verdict


def test_a_run_and_a_trace(profiled: Trace) -> None:
    run = trace(syncs=(ITEM,))
    for comparison in (compare(run, profiled), compare(profiled, run)):
        assert nothing_said(comparison)
        assert comparison.verdict.startswith("Step times cannot be compared (")
        assert "neither syncs nor findings are compared" in comparison.notes[-3]


def test_traces_of_two_profilers(profiled: Trace, by_nsys: Trace) -> None:
    for comparison in (compare(profiled, by_nsys), compare(by_nsys, profiled)):
        assert nothing_said(comparison)
        assert any(note.startswith("two profilers name GPU work") for note in comparison.notes)


def test_a_trace_and_itself(profiled: Trace) -> None:
    comparison = compare(profiled, profiled)
    assert (comparison.findings_new, comparison.findings_gone) == ([], [])
    assert [row.before_ms for row in comparison.operators] == [
        row.after_ms for row in comparison.operators
    ]
    assert comparison.operators


def test_runs_of_which_one_was_not_watched() -> None:
    for comparison in (
        compare(trace(detector=None), trace(syncs=(ITEM,))),
        compare(trace(syncs=(ITEM,)), trace(detector=None)),
    ):
        assert nothing_said(comparison)


def test_without_a_gpu_and_no_dry_run_there_was_nothing_to_watch() -> None:
    blind, seeing = without_gpu(), trace(syncs=(ITEM,))
    for comparison, side in ((compare(blind, seeing), "before"), (compare(seeing, blind), "after")):
        assert nothing_said(comparison)
        assert (
            f"{side}: no GPU there, and no dry run, so that a sync is new or gone cannot be told"
            in comparison.notes
        )


def test_code_that_moved_is_nothing_new() -> None:
    comparison = compare(trace(syncs=(ITEM,)), trace(syncs=(site(line=77),)))
    assert nothing_said(replace_verdict(comparison))
    assert comparison.verdict.endswith("No sync came or went.")


def test_runs_from_two_directories_and_systems_have_the_same_syncs() -> None:
    linux = trace(syncs=(ITEM, site(file="/home/me/project/sub/a.py")))
    windows = trace(
        syncs=(
            site(file=r"C:\me\project\train.py", count=960),
            site(file=r"C:\me\project\sub\a.py"),
        )
    )
    info = windows.info.model_copy(update={"cwd": r"C:\me\project"})
    comparison = compare(linux, replace(windows, info=info))
    assert (comparison.syncs_new, comparison.syncs_gone) == ([], [])
    (changed,) = comparison.syncs_changed
    assert (changed.file, changed.per_step_before, changed.per_step_after) == ("train.py", 1.0, 2.0)


def replace_verdict(comparison: Comparison) -> Comparison:
    return comparison.model_copy(update={"verdict": ""})


def test_a_run_and_itself_on_disk(tmp_path: Path) -> None:
    run = load(write_run(tmp_path / "mlp", trace(syncs=(ITEM,))).path)
    comparison = compare(run, run)
    assert comparison.verdict.startswith("Steps took as long as before, within noise")
    assert (comparison.step.ratio, comparison.step.told) == (1.0, False)
    assert nothing_said(replace_verdict(comparison))
