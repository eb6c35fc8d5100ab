"""Several processes in one recording of nsys: each its own window, none mixed into another."""

from __future__ import annotations

from pathlib import Path

from nsys_file import gid, write

from trainscope.trace.load import load
from trainscope.trace.nsys.read import read_nsys, read_nsys_processes

STRINGS = ("cudaLaunchKernel_v7000", "gelu")


def call(start: int, pid: int | None, correlation: int = 1) -> dict:
    tid = None if pid is None else gid(pid, pid)
    row = {"start": start, "end": start + 1, "globalTid": tid, "nameId": 1}
    return {**row, "correlationId": correlation}


def kernel(start: int, pid: int | None, correlation: int = 1) -> dict:
    owner = None if pid is None else gid(0, pid)
    row = {"start": start, "end": start + 5, "globalPid": owner, "shortName": 2}
    return {**row, "correlationId": correlation, "deviceId": 0, "streamId": 7}


def marks(*pids: int) -> list[dict]:
    return [
        {"start": 1, "end": 9, "eventType": 59, "text": f"of {pid}", "globalTid": gid(pid, pid)}
        for pid in pids
    ]


def test_the_same_correlation_ids_in_two_processes_are_two_things(tmp_path: Path) -> None:
    tables = {
        "RUNTIME": [call(10, 500), call(20, 501), call(30, 501, 2)],
        "KERNEL": [kernel(11, 500), kernel(21, 501), kernel(31, 501, 2)],
        "NVTX_EVENTS": marks(500, 501, 502),
        "PROCESSES": [{"pid": 501, "name": "python3"}],
    }
    path = write(tmp_path / "r.sqlite", tables, strings=STRINGS)
    most, other = read_nsys_processes(path)
    assert most.calls.start_ns.tolist() == [20, 30]
    assert most.gpu.start_ns.tolist() == [21, 31]
    assert [most.names[i] for i in most.ranges.name_id] == ["of 501"]
    assert [(thread.pid, thread.tid) for thread in most.threads] == [(501, 501)]
    assert other.calls.start_ns.tolist() == [10]
    assert other.gpu.start_ns.tolist() == [11]
    assert [other.names[i] for i in other.ranges.name_id] == ["of 500"]
    assert most.problems == (
        "another process used CUDA too; this window is of process 501 (python3) alone",
    )
    assert read_nsys(path).gpu.start_ns.tolist() == [21, 31]

    trace = load(path)
    assert [rank.windows[0].gpu.start_ns.tolist() for rank in trace.ranks] == [[11]]
    assert [rank.rank for rank in (trace, *trace.ranks)] == [0, 1]


def test_a_helper_process_without_cuda_is_no_window(tmp_path: Path) -> None:
    tables = {
        "RUNTIME": [call(10, 500)],
        "KERNEL": [kernel(11, 500)],
        "NVTX_EVENTS": marks(501, 501, 501, 500),
    }
    (window,) = read_nsys_processes(write(tmp_path / "r.sqlite", tables, strings=STRINGS))
    assert [window.names[i] for i in window.ranges.name_id] == ["of 500"]
    assert window.problems == ()


def test_rows_of_nobody_are_the_only_process_s_and_else_left_out(tmp_path: Path) -> None:
    alone = {"RUNTIME": [call(10, 500)], "KERNEL": [kernel(11, None)]}
    window = read_nsys(write(tmp_path / "a.sqlite", alone, strings=STRINGS))
    assert window.gpu.start_ns.tolist() == [11]

    two = {"RUNTIME": [call(10, 500), call(20, 501)], "KERNEL": [kernel(11, None)]}
    for window in read_nsys_processes(write(tmp_path / "b.sqlite", two, strings=STRINGS)):
        assert len(window.gpu) == 0
        told = "1 row has no word of which process it is and is left out"
        assert told in window.problems

    nobody = {"RUNTIME": [call(10, None)], "KERNEL": [kernel(11, None)]}
    window = read_nsys(write(tmp_path / "c.sqlite", nobody, strings=STRINGS))
    assert (window.calls.thread.tolist(), window.gpu.start_ns.tolist()) == ([-1], [11])
    assert window.threads == ()
