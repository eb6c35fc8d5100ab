"""Reports of recordings of nsys: a real one, and what they say where something is missing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from nsys_file import gid, write
from sample_traces import FOLDER

from trainscope import api
from trainscope.report import json as json_report
from trainscope.report import text
from trainscope.report.model import Report

MS = 1_000_000
STRINGS = ("cudaLaunchKernel_v7000", "gelu", "cudaStreamSynchronize_v3020")


def test_a_real_recording_of_a_training_loop() -> None:
    file = FOLDER / "mlp_nsys_2023_4.sqlite.gz"
    if not file.is_file():
        pytest.skip("the sample recording of nsys is not here")
    report = api.analyze(api.load(file), step_ms=2.71)
    assert (report.run.source, report.run.device) == ("nsys", "NVIDIA H200")
    assert (report.steps.count, report.steps.counted_by) == (8, "ranges such as 'step_4'")
    assert report.steps.optimizer_steps is None
    assert [phase.name for phase in report.phases] == ["forward", "backward", "optimizer"]
    assert (report.detector, report.overhead, report.metrics, report.run.torch) == (None,) * 4
    assert report.capture is not None
    assert (report.capture.windows, report.capture.complete) == (1, True)
    (sync,) = report.syncs
    assert (sync.place, sync.count, sync.per_step, sync.file, sync.line, sync.source) == (
        *("cudaStreamSynchronize, after optimizer", 4, 0.5),
        *(None, None, None),
    )
    assert report.idle is not None
    assert report.gpu is not None
    each = report.gpu.devices[0]
    assert each.idle_ms_per_step == pytest.approx(report.idle.per_step_ms)
    assert each.idle_ms_per_step == pytest.approx(sum(report.idle.causes.values()))
    assert report.gpu.problems == []
    assert "cudaStreamSynchronize" in report.verdict
    assert text.render(report).startswith(report.verdict[:60])
    assert Report.model_validate(json.loads(json_report.render(report))).verdict == report.verdict


def loop(tmp_path: Path, **more: list[dict]) -> Path:
    """Four steps of 10 ms: a launch, a kernel of 4 ms, and from then on a wait."""
    calls, kernels, waits, marks = [], [], [], []
    for step in range(4):
        at = step * 10 * MS + 1
        place = {"globalTid": gid(1), "nameId": 1, "correlationId": 2 * step + 1}
        calls.append({**place, "start": at, "end": at + 5_000})
        wait = {**place, "nameId": 3, "correlationId": 2 * step + 2}
        calls.append({**wait, "start": at + MS, "end": at + 5 * MS})
        on = {"deviceId": 0, "streamId": 7, "globalPid": gid()}
        kernel = {**on, "start": at + MS, "end": at + 5 * MS - 1000, "shortName": 2}
        kernels.append({**kernel, "correlationId": 2 * step + 1})
        sync = {**on, "start": at + MS, "end": at + 5 * MS, "syncType": 3}
        waits.append({**sync, "correlationId": 2 * step + 2})
        mark = {"eventType": 59, "globalTid": gid(1), "text": f"step {step}"}
        marks.append({**mark, "start": at, "end": at + 10 * MS - 10})
    tables = {"RUNTIME": calls, "KERNEL": kernels, "SYNCHRONIZATION": waits, "NVTX_EVENTS": marks}
    return write(tmp_path / "r.sqlite", {**tables, **more}, strings=STRINGS)


def test_busy_and_idle_time_are_those_of_the_recording(tmp_path: Path) -> None:
    report = api.analyze(api.load(loop(tmp_path)))
    assert report.gpu is not None
    assert report.gpu.devices[0].busy_ms_per_step == pytest.approx(3.999)
    assert report.idle is not None
    # From kernel to kernel in two steps; the last one's time goes to the end of its range.
    assert report.idle.per_step_ms == pytest.approx((2 * 6.001 + 11.00199) / 3)
    assert report.steps.wall_ms is not None
    assert report.steps.wall_ms.median == 10.0
    assert report.gpu.steps == [0, 1, 2, 3]
    assert report.run.device is None
    assert sum(operator.count for operator in report.gpu.operators) == 4


def test_a_recording_that_lost_its_kernels_says_so_first_and_no_number(tmp_path: Path) -> None:
    report = api.analyze(api.load(loop(tmp_path, KERNEL=[], SYNCHRONIZATION=[])))
    assert report.verdict.startswith(
        "Where the GPU waits cannot be told: 8 CUDA calls and no GPU work: nsys may be older"
    )
    assert (report.gpu, report.idle, report.what_if) == (None, None, None)
    assert text.render(report).startswith("Where the GPU waits cannot be told")


def test_a_bare_timeline_of_ranges_is_a_report_without_a_gpu(tmp_path: Path) -> None:
    report = api.analyze(api.load(loop(tmp_path, RUNTIME=[], KERNEL=[], SYNCHRONIZATION=[])))
    assert report.verdict.startswith("Where the GPU waits cannot be told: no CUDA calls and no GPU")
    assert (report.steps.count, report.gpu, report.idle) == (4, None, None)
    assert report.steps.wall_ms is not None
    assert report.steps.wall_ms.median == 10.0
