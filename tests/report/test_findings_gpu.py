"""Findings about idle time, data, copies and launches: when they come, and what they say."""

from __future__ import annotations

import pytest

from trainscope.catalogue.codes import CODES
from trainscope.catalogue.idle_findings import IDLE_FINDINGS
from trainscope.catalogue.kinds import KINDS
from trainscope.report.findings_gpu import gpu_findings
from trainscope.report.model import Finding, IdleReport
from trainscope.report.model_gpu import (
    ChainReport,
    CommunicationReport,
    CopyReport,
    DeviceReport,
    GpuReport,
    IdleDetail,
    KernelReport,
    LaunchReport,
    OperatorReport,
)

LAUNCHES = LaunchReport(
    launches=10,
    kernels=10,
    tiny_kernels=8,
    tiny_below_us=8.0,
    tiny_share=0.8,
    launch_share=0.5,
    cpu_lead_ms_median=0.0,
    queue_deepest=1,
    queue_empty_share=1.0,
    chains=[
        ChainReport(
            operators="aten::mul x4",
            inside="forward",
            kernels=4,
            times=2,
            gpu_ms_total=0.1,
            advice="compile it",
        )
    ],
)


def gpu(*idle: tuple[str, float], **others: object) -> GpuReport:
    """A window of two steps of 10 ms, of which the GPU is idle as said."""
    idle_ms = sum(ms for _, ms in idle)
    device = DeviceReport(
        device=0, name=None, busy_ms_per_step=10 - idle_ms, idle_ms_per_step=idle_ms
    )
    found = GpuReport(
        file="t.json",
        source="nsys",
        steps=[1, 2],
        steps_found_by="ranges",
        steps_counted=1,
        devices=[device],
        idle=[IdleDetail(cause=cause, words=cause, ms_per_step=ms) for cause, ms in idle],
        syncs=[],
        operators=[],
        operators_left_out=0,
        launches=LAUNCHES,
        copies=[],
        communication=[],
        problems=[],
    )
    return found.model_copy(update=others)


def find(window: GpuReport, step_ms: float | None = None) -> list[Finding]:
    idle_ms = sum(detail.ms_per_step for detail in window.idle)
    return gpu_findings(window, IdleReport(per_step_ms=idle_ms, causes={}), step_ms)


@pytest.mark.parametrize(
    ("cause", "code"),
    [
        ("cpu_before_launch", "TS201"),
        ("cpu_work", "TS202"),
        ("communication", "TS203"),
        ("data", "TS301"),
        ("copy", "TS302"),
    ],
)
def test_each_cause_from_a_twentieth_of_a_step_on(cause: str, code: str) -> None:
    (finding,) = find(gpu((cause, 0.5)))
    assert finding.code == code
    assert finding.evidence == (
        "idle 500 µs of the 10.0 ms of every captured step (5%); it may be less with no profiler on"
    )
    assert (finding.gain_ms_per_step, finding.title) == (None, IDLE_FINDINGS[code].title)
    assert find(gpu((cause, 0.49))) == []


def test_idle_time_that_the_gpu_itself_or_a_sync_takes_is_none_of_these() -> None:
    assert find(gpu(("queued", 3.0), ("unknown", 2.0), ("sync", 4.0))) == []


def test_slow_launches_name_the_chain_of_tiny_kernels() -> None:
    launch, tiny, data = find(gpu(("data", 1.0), ("launch", 2.0)), 10.0)
    assert (launch.code, tiny.code, data.code) == ("TS401", "TS402", "TS301")
    assert launch.evidence == "idle 2.00 ms of the 10.0 ms of every captured step (20%)"
    assert tiny.evidence == (
        "8 of 10 kernels run for less than 8 µs; 2 times 4 in a row in forward: aten::mul x4"
    )
    assert tiny.advice == "compile it"


def test_tiny_kernels_are_no_fault_where_the_cpu_is_ahead() -> None:
    assert find(gpu(("data", 0.1))) == []


def test_what_profiling_added_is_not_promised() -> None:
    (finding,) = find(gpu(("cpu_work", 4.0)), step_ms=8.0)  # 6 ms of them busy
    assert finding.evidence.endswith("(40%); with no profiler on it is 2.00 ms at most")


def test_pageable_copies_that_run_alone() -> None:
    copies = [
        CopyReport(
            what="host to device",
            host_memory=memory,
            count=2,
            ms_total=3.0,
            bytes_moved=15_000_000,
            gb_per_s=5.0,
            alone_ms_total=2.0,
        )
        for memory in ("pageable", "pinned")
    ]
    (finding,) = find(gpu(copies=copies))
    assert (finding.code, finding.evidence) == (
        "TS303",
        "1.00 ms of the 10.0 ms of every captured step (10%), at 5.0 GB/s",
    )


@pytest.mark.parametrize(("bytes_moved", "small"), [(1_000, True), (50_000_000, False)])
def test_small_copies_are_not_told_to_be_a_loader_s_batch(bytes_moved: int, small: bool) -> None:
    copy = CopyReport(
        what="host to device",
        host_memory="pageable",
        count=100,
        ms_total=0.1,
        bytes_moved=bytes_moved,
        gb_per_s=None,
        alone_ms_total=0.1,
    )
    (finding,) = find(gpu(("copy", 4.0), copies=[copy]))
    assert finding.code == "TS302"
    assert ("they are small, 10 bytes on average, and 100 in the window" in finding.advice) == small
    assert (finding.snippet is None) == small


def test_collectives_that_nothing_hides() -> None:
    talk = CommunicationReport(
        device=0,
        count=4,
        ms_total=5.0,
        hidden_ms_total=3.0,
        exposed_ms_total=2.0,
        by_collective=[("all_reduce", 4, 5.0)],
    )
    (finding,) = find(gpu(communication=[talk]))
    assert finding.code == "TS204"
    assert finding.evidence == "1.00 ms of the 10.0 ms of every captured step (10%)"


@pytest.mark.parametrize(
    ("kernel", "is_found"),
    [
        ("Kernel2 [cutlass_80_simt_sgemm_256x128_8x4_nn_align1]", True),
        ("sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x64x8_stage3_warpsize2x2x1_ffma", True),
        ("ampere_sgemm_128x64_tn", True),
        ("sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x64x8_stage3", False),
        ("cutlass_80_tensorop_s1688gemm_128x128_32x3_nn_align4", False),
        ("nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT", False),
        ("volta_h884gemm_64x128_ldg8_nn", False),
    ],
)
def test_float32_products_without_tensor_cores(kernel: str, is_found: bool) -> None:
    use = KernelReport(name=kernel, shape=None, count=1, ms_total=2.0, us_median=1.0)
    rest = KernelReport(name="add", shape=None, count=1, ms_total=8.0, us_median=1.0)
    operator = OperatorReport(
        operator="aten::mm", count=2, ms_total=10.0, share=1.0, kernels=[use, rest],
        kernels_left_out=0,
    )  # fmt: skip
    found = find(gpu(operators=[operator]))
    assert [finding.code for finding in found] == (["TS403"] if is_found else [])
    if is_found:
        assert found[0].evidence == f"20% of the kernels' time, most of it in {kernel}"


def test_without_a_window_or_time_there_is_nothing_to_say() -> None:
    assert gpu_findings(None, None, 1.0) == []
    empty = gpu().model_copy(update={"devices": []})
    assert gpu_findings(empty, IdleReport(per_step_ms=0.0, causes={}), None) == []


def test_no_code_is_used_twice() -> None:
    codes = [*CODES, *IDLE_FINDINGS, *(kind.code for kind in KINDS.values())]
    assert len(codes) == len(set(codes))
    assert all(code == found.code for code, found in IDLE_FINDINGS.items())
