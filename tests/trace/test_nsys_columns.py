"""Exports of nsys as windows: each column from where it stands in the file."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from nsys_file import PID, gid, write
from sample_traces import FOLDER

from trainscope.trace.nsys.read import read_nsys
from trainscope.trace.window import CopyKind, Memory, OpKind, SyncKind

STRINGS = (
    "cudaLaunchKernel_v7000",
    "cudaMemcpyAsync_ptsz_v7000",
    "cuMemcpyHtoDAsync_v2",
    "void gelu<(int)4>(float *)",
    "gelu",
    "forward",
    "pt_autograd_0",
)
NONE = 2**32 - 1


def call(start: int, end: int, correlation: int, name: int = 1, tid: int = 500) -> dict:
    return {
        "start": start,
        "end": end,
        "globalTid": gid(tid),
        "correlationId": correlation,
        "nameId": name,
    }


def op(start: int, end: int, correlation: int, **more: object) -> dict:
    place = {"deviceId": 0, "streamId": 7, "correlationId": correlation, "globalPid": gid()}
    return {"start": start, "end": end, **place, **more}


def test_calls_and_kernels_are_those_of_the_file_under_the_names_of_torch_profiler(
    tmp_path: Path,
) -> None:
    tables = {
        "RUNTIME": [call(30, 40, 3, name=3), call(10, 15, 1), call(20, 25, 2, name=2, tid=501)],
        "KERNEL": [op(16, 90, 1, demangledName=4, shortName=5), op(95, 96, 9, shortName=5)],
        "ThreadNames": [{"nameId": 7, "globalTid": gid(501)}],
        "TARGET_INFO_GPU": [{"id": 0, "name": "NVIDIA H200", "cuDevice": 0}],
        "TARGET_INFO_SESSION_START_TIME": [{"utcEpochNs": 1_700_000_000_000_000_000}],
    }
    window = read_nsys(write(tmp_path / "r.sqlite", tables, strings=STRINGS))
    calls, gpu = window.calls, window.gpu
    assert [window.names[i] for i in calls.name_id] == [
        "cudaLaunchKernel",
        "cudaMemcpyAsync",
        "cuMemcpyHtoDAsync_v2",
    ]
    assert calls.start_ns.tolist() == [10, 20, 30]
    assert calls.end_ns.tolist() == [15, 25, 40]
    assert calls.correlation.tolist() == [1, 2, 3]
    assert [window.threads[i].name for i in calls.thread] == [
        "thread 500",
        "pt_autograd_0",
        "thread 500",
    ]
    assert {(thread.pid, thread.tid) for thread in window.threads} == {(PID, 500), (PID, 501)}
    assert [window.names[i] for i in gpu.name_id] == ["void gelu<(int)4>(float *)", "gelu"]
    assert gpu.kind.tolist() == [OpKind.KERNEL] * 2
    assert (gpu.start_ns.tolist(), gpu.end_ns.tolist()) == ([16, 95], [90, 96])
    assert (gpu.device.tolist(), gpu.stream.tolist()) == ([0, 0], [7, 7])
    assert (gpu.bytes.tolist(), gpu.copy_kind.tolist()) == ([-1, -1], [-1, -1])
    assert window.devices == ("NVIDIA H200",)
    assert window.unix_ns_at_zero == 1_700_000_000_000_000_000
    assert (window.source, window.has_sync_records) == ("nsys", False)


COPIES = [
    (1, 0, 2, "Memcpy HtoD (Pageable -> Device)", CopyKind.H2D, Memory.PAGEABLE),
    (1, 1, 2, "Memcpy HtoD (Pinned -> Device)", CopyKind.H2D, Memory.PINNED),
    (2, 2, 0, "Memcpy DtoH (Device -> Pageable)", CopyKind.D2H, Memory.PAGEABLE),
    (2, 2, 4, "Memcpy DtoH (Device -> Managed)", CopyKind.D2H, Memory.UNKNOWN),
    (8, 2, 2, "Memcpy DtoD (Device -> Device)", CopyKind.D2D, -1),
    (10, 2, 2, "Memcpy PtoP (Device -> Device)", CopyKind.PEER, -1),
    (9, 0, 1, "Memcpy HtoH (Pageable -> Pinned)", CopyKind.UNKNOWN, Memory.PINNED),
    (11, None, None, "Unified memory HtoD", CopyKind.H2D, Memory.UNKNOWN),
    (77, None, None, "Memcpy", CopyKind.UNKNOWN, Memory.UNKNOWN),
]


def test_copies_and_memsets_say_what_went_where(tmp_path: Path) -> None:
    copies = [
        op(i, i + 1, i, bytes=100 + i, copyKind=kind, srcKind=source, dstKind=target)
        for i, (kind, source, target, *_) in enumerate(COPIES, 1)
    ]
    sets = [op(50, 51, 50, bytes=4096, memKind=2)]
    gpu = read_nsys(write(tmp_path / "r.sqlite", {"MEMCPY": copies, "MEMSET": sets})).gpu
    window = read_nsys(tmp_path / "r.sqlite")
    found = zip(
        [window.names[i] for i in gpu.name_id],
        gpu.copy_kind.tolist(),
        gpu.host_memory.tolist(),
        strict=True,
    )
    assert list(found) == [
        *((name, kind, memory) for *_, name, kind, memory in COPIES),
        ("Memset (Device)", -1, -1),
    ]
    assert gpu.bytes.tolist() == [*range(101, 110), 4096]
    assert gpu.kind.tolist() == [OpKind.COPY] * 9 + [OpKind.SET]


def test_without_its_list_of_memories_a_file_does_not_tell_them(tmp_path: Path) -> None:
    row = op(1, 2, 1, bytes=8, copyKind=1, srcKind=1, dstKind=2)
    path = write(tmp_path / "r.sqlite", {"MEMCPY": [row]}, lists_of_kinds=False)
    gpu = read_nsys(path).gpu
    assert gpu.copy_kind.tolist() == [CopyKind.H2D]  # CUPTI's own number
    assert gpu.host_memory.tolist() == [Memory.UNKNOWN]


def test_waits_have_their_kinds_and_the_record_of_their_event(tmp_path: Path) -> None:
    def wait(start: int, kind: int, correlation: int, stream: int, event: int = NONE) -> dict:
        return op(start, start + 1, correlation, syncType=kind, eventId=event) | {
            "streamId": stream
        }

    def record(event: int, correlation: int, stream: int, pid: int = PID) -> dict:
        return {
            "globalPid": gid(pid=pid),
            "eventId": event,
            "correlationId": correlation,
            "streamId": stream,
        }

    tables = {
        "SYNCHRONIZATION": [
            wait(10, 3, 20, 7),
            wait(20, 4, 21, NONE),
            wait(30, 2, 22, 13, event=5),
            wait(40, 1, 32, NONE, event=5),
            wait(50, 1, 33, NONE, event=6),
            wait(60, 0, 34, 7),
        ],
        "CUDA_EVENT": [
            record(5, 30, 9),
            record(5, 8, 7),
            record(5, 10, 8),
            record(5, 21, 99, pid=501),
            record(6, 40, 7),
        ],
        "RUNTIME": [call(9, 12, 20)],
    }
    window = read_nsys(write(tmp_path / "r.sqlite", tables, strings=STRINGS))
    syncs = window.syncs
    assert syncs.kind.tolist() == [
        SyncKind.STREAM,
        SyncKind.DEVICE,
        SyncKind.STREAM_WAIT,
        SyncKind.EVENT,
        SyncKind.EVENT,
    ]
    assert syncs.stream.tolist() == [7, -1, 13, -1, -1]
    assert syncs.event_id.tolist() == [-1, -1, 5, 5, 6]
    assert syncs.event_stream.tolist() == [-1, -1, 8, 9, -1]
    assert syncs.event_correlation.tolist() == [-1, -1, 10, 30, -1]
    assert window.has_sync_records
    assert "1 record of a wait has a kind that is not known and is left out" in window.problems


def test_nsys_own_number_of_a_wait_and_its_record_goes_before_the_order(tmp_path: Path) -> None:
    place = {"deviceId": 0, "globalPid": gid()}
    columns = {"streamId": 13, "correlationId": 9, "syncType": 2, "eventId": 5, "eventSyncId": 70}
    records = [
        {**place, "streamId": 7, "correlationId": 3, "eventId": 5, "eventSyncId": 70},
        {**place, "streamId": 8, "correlationId": 4, "eventId": 5, "eventSyncId": 71},
    ]
    tables = {
        "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": [{"start": 1, "end": 2, **place, **columns}],
        "CUPTI_ACTIVITY_KIND_CUDA_EVENT": records,
    }
    syncs = read_nsys(write(tmp_path / "r.sqlite", tables)).syncs
    assert (syncs.event_stream.tolist(), syncs.event_correlation.tolist()) == ([7], [3])


def test_a_replay_recorded_as_a_whole_is_one_op_of_its_launch(tmp_path: Path) -> None:
    tables = {
        "RUNTIME": [call(10, 15, 4)],
        "GRAPH_TRACE": [op(20, 90, 4, graphId=3), op(0, 0, 5, graphId=3)],
    }
    window = read_nsys(write(tmp_path / "r.sqlite", tables, strings=STRINGS))
    assert [window.names[i] for i in window.gpu.name_id] == ["CUDA graph 3"]
    assert (window.gpu.start_ns.tolist(), window.gpu.end_ns.tolist()) == ([20], [90])
    assert window.gpu.correlation.tolist() == [4]
    assert window.problems == ("1 row has no possible time or duration and is left out",)


def test_gpus_have_the_names_of_the_numbers_that_the_process_uses(tmp_path: Path) -> None:
    tables = {
        "RUNTIME": [call(1, 2, 1)],
        "TARGET_INFO_GPU": [{"id": 0, "name": "A"}, {"id": 1, "name": "B"}],
        "TARGET_INFO_CUDA_DEVICE": [
            {"gpuId": 1, "cudaId": 0, "pid": PID},
            {"gpuId": 0, "cudaId": 0, "pid": PID + 1},
        ],
    }
    path = write(tmp_path / "r.sqlite", tables, strings=STRINGS)
    assert read_nsys(path).devices == ("B",)


def test_a_real_recording_of_a_training_loop() -> None:
    file = FOLDER / "mlp_nsys_2023_4.sqlite.gz"
    if not file.is_file():
        pytest.skip("the sample recording of nsys is not here")
    window = read_nsys(file)
    lengths = (len(window.calls), len(window.gpu), len(window.syncs), len(window.ranges))
    assert lengths == (922, 588, 5, 32)
    assert [thread.name for thread in window.threads] == ["python3", "pt_autograd_0"]
    assert window.devices == ("NVIDIA H200",)
    assert window.problems == ()
    assert window.unix_ns_at_zero == 1_795_996_666_168_050_057
    # The file itself: kernels launched by a call, each after its launch began.
    order = np.argsort(window.calls.correlation)
    place = np.searchsorted(window.calls.correlation[order], window.gpu.correlation)
    launch = order[place]
    assert np.array_equal(window.calls.correlation[launch], window.gpu.correlation)
    assert np.all(window.gpu.start_ns > window.calls.start_ns[launch])


@pytest.mark.parametrize("name", ["r.sqlite.gz", "packed"])
def test_a_packed_export_is_the_export(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / "r.sqlite", {"RUNTIME": [call(1, 2, 1)]}, strings=STRINGS)
    (tmp_path / name).write_bytes(gzip.compress(path.read_bytes()))
    found = read_nsys(tmp_path / name)
    assert found.calls.start_ns.tolist() == [1]
    assert found.file == str(tmp_path / name)


def test_nothing_is_written_beside_an_export(tmp_path: Path) -> None:
    path = write(tmp_path / "r #1?.sqlite", {"RUNTIME": [call(1, 2, 1)]}, strings=STRINGS)
    before = path.read_bytes()
    assert len(read_nsys(path).calls) == 1
    assert ([file.name for file in tmp_path.iterdir()], path.read_bytes()) == ([path.name], before)
