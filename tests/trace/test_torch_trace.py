"""Each field of a ``Window`` from the words that torch.profiler writes, with exact values."""

from __future__ import annotations

from pathlib import Path

import pytest
from made_traces import BASE_NS, PID, UNIX_NS, MadeTrace

from trainscope.trace.torch_trace import read_torch_trace
from trainscope.trace.window import CopyKind, Memory, OpKind, SyncKind, Thread, Window

MS = 1_000_000


def read(made: MadeTrace, folder: Path, name: str = "t.json") -> Window:
    return read_torch_trace(made.write(folder / name))


def small() -> MadeTrace:
    """A step with an operator that launches a kernel, and the wait for it."""
    made = MadeTrace().thread("thread 415 (python3)").range("ProfilerStep#4", 0, 9 * MS)
    made.frame("train.py(12): main", 100, 8 * MS).op("aten::mm", 1001, 2002, shapes=[[2, 3], [3]])
    made.launch(1500, 3003, 7007, 17)
    made.call("cudaStreamSynchronize", 4000, 7100, 18)
    return made.sync("Stream Sync", 4001, 7099, 18)


def test_every_table_has_its_events_with_exact_times(tmp_path: Path) -> None:
    window = read(small(), tmp_path)
    assert window.source == "torch.profiler"
    assert window.file == str(tmp_path / "t.json")
    found = [
        (table, window.names[name], int(start), int(end))
        for table, rows in (
            ("ops", window.ops),
            ("ranges", window.ranges),
            ("frames", window.frames),
            ("calls", window.calls),
            ("gpu", window.gpu),
        )
        for name, start, end in zip(rows.name_id, rows.start_ns, rows.end_ns, strict=True)
    ]
    assert found == [
        ("ops", "aten::mm", 1001, 2002),
        ("ranges", "ProfilerStep#4", 0, 9 * MS),
        ("frames", "train.py(12): main", 100, 8 * MS),
        ("calls", "cudaLaunchKernel", 1500, 1505),
        ("calls", "cudaStreamSynchronize", 4000, 7100),
        ("gpu", "gemm<float>(float*)", 3003, 7007),
    ]
    assert window.calls.correlation.tolist() == [17, 18]
    assert window.gpu.correlation.tolist() == [17]
    assert window.problems == ()


def test_the_clock_begins_at_the_first_event_and_its_unix_time_is_known(tmp_path: Path) -> None:
    assert read(small(), tmp_path).unix_ns_at_zero == UNIX_NS + BASE_NS
    made = small()
    del made.head["baseTimeNanoseconds"]
    assert read(made, tmp_path).unix_ns_at_zero is None


@pytest.mark.parametrize("offset", [0, 1, 2, 333, 499, 500, 501, 999, 7_776_000_000_000_000 - 1])
def test_a_nanosecond_is_never_lost(tmp_path: Path, offset: int) -> None:
    """Up to the 90 days after which Kineto sets its clock anew."""
    made = MadeTrace().op("first", -BASE_NS, -BASE_NS + 1)
    made.op("late", offset - BASE_NS, offset - BASE_NS + 123_457)
    ops = read(made, tmp_path).ops
    last = int(ops.end_ns.argmax())
    assert (int(ops.start_ns[last]), int(ops.end_ns[last])) == (offset, offset + 123_457)


def test_shapes_are_kept_as_text_each_once(tmp_path: Path) -> None:
    made = MadeTrace()
    for i, shapes in enumerate(([[8, 4], []], [[8, 4], []], [[[2], [3]]], None, [])):
        made.op("aten::add", 10 * i, 10 * i + 5, shapes=shapes)
    window = read(made, tmp_path)
    assert window.shapes == ("[[8, 4], []]", "[[[2], [3]]]")
    assert window.ops.shape_id.tolist() == [0, 0, 1, -1, -1]


def test_threads_are_told_apart_by_process_and_number(tmp_path: Path) -> None:
    made = MadeTrace().op("a", 0, 1).op("b", 2, 3, tid=445).op("c", 4, 5)
    made.event("d", 6, 7, pid=9).thread("thread 445 (pt_autograd_0)", 445)
    window = read(made, tmp_path)
    assert window.threads == (
        Thread(PID, PID, "thread 415"),
        Thread(PID, 445, "thread 445 (pt_autograd_0)"),
        Thread(9, PID, "thread 415"),
    )
    assert window.ops.thread.tolist() == [0, 1, 0, 2]


@pytest.mark.parametrize(
    ("name", "copy_kind", "memory"),
    [
        ("Memcpy HtoD (Pageable -> Device)", CopyKind.H2D, Memory.PAGEABLE),
        ("Memcpy HtoD (Pinned -> Device)", CopyKind.H2D, Memory.PINNED),
        ("Memcpy DtoH (Device -> Pageable)", CopyKind.D2H, Memory.PAGEABLE),
        ("Memcpy DtoH (Device -> Pinned)", CopyKind.D2H, Memory.PINNED),
        ("Memcpy DtoD (Device -> Device)", CopyKind.D2D, -1),
        ("Memcpy PtoP (Device -> Device)", CopyKind.PEER, -1),
        ("Memcpy HtoD", CopyKind.H2D, Memory.UNKNOWN),
        ("Memcpy HtoD (Managed -> Device)", CopyKind.H2D, Memory.UNKNOWN),
        ("Memcpy Unknown (Unknown -> Unknown)", CopyKind.UNKNOWN, Memory.UNKNOWN),
        ("something else", CopyKind.UNKNOWN, Memory.UNKNOWN),
    ],
)
def test_a_copy_says_from_where_to_where(
    tmp_path: Path, name: str, copy_kind: int, memory: int
) -> None:
    gpu = read(MadeTrace().gpu(name, 0, 9, 1, cat="gpu_memcpy", bytes=4096), tmp_path).gpu
    assert (int(gpu.kind[0]), int(gpu.copy_kind[0])) == (OpKind.COPY, copy_kind)
    assert (int(gpu.host_memory[0]), int(gpu.bytes[0])) == (memory, 4096)


def test_kernels_and_memsets_are_on_their_device_and_stream(tmp_path: Path) -> None:
    made = MadeTrace().gpu("Memset (Device)", 0, 3, 1, cat="gpu_memset", bytes=32, stream=20)
    made.gpu("k", 5, 9, 2, device=3)
    gpu = read(made, tmp_path).gpu
    assert gpu.kind.tolist() == [OpKind.SET, OpKind.KERNEL]
    assert (gpu.device.tolist(), gpu.stream.tolist()) == ([0, 3], [20, 7])
    assert gpu.bytes.tolist() == [32, -1]
    assert (gpu.copy_kind.tolist(), gpu.host_memory.tolist()) == ([-1, -1], [-1, -1])


def test_names_of_gpus_stand_at_their_numbers(tmp_path: Path) -> None:
    made = MadeTrace().op("a", 0, 1)
    made.head["deviceProperties"] = [{"id": 2, "name": "NVIDIA H200"}, {"id": 0, "name": "T4"}]
    assert read(made, tmp_path).devices == ("T4", "", "NVIDIA H200")


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("Stream Sync", SyncKind.STREAM),
        ("Event Sync", SyncKind.EVENT),
        ("Context Sync", SyncKind.DEVICE),
        ("Stream Wait Event", SyncKind.STREAM_WAIT),
    ],
)
def test_waits_are_of_the_kind_that_cuda_says(tmp_path: Path, words: str, kind: SyncKind) -> None:
    window = read(MadeTrace().sync(words, 5, 9, 3, stream=7), tmp_path)
    assert window.has_sync_records
    syncs = window.syncs
    assert (int(syncs.kind[0]), int(syncs.stream[0]), int(syncs.correlation[0])) == (kind, 7, 3)
    assert (int(syncs.start_ns[0]), int(syncs.end_ns[0]), int(syncs.device[0])) == (0, 4, 0)


def test_a_wait_on_an_event_names_what_recorded_it(tmp_path: Path) -> None:
    known = {
        "wait_on_stream": 20,
        "wait_on_cuda_event_record_corr_id": 77,
        "wait_on_cuda_event_id": 5,
    }
    made = MadeTrace().sync("Stream Wait Event", 0, 1, 3, **known)
    made.sync("Event Sync", 2, 3, 4, wait_on_stream=-1, wait_on_cuda_event_record_corr_id=-1)
    made.sync("Context Sync", 4, 5, 5, stream=2**32 - 1)  # CUDA's number for all streams
    syncs = read(made, tmp_path).syncs
    assert syncs.event_stream.tolist() == [20, -1, -1]
    assert syncs.event_correlation.tolist() == [77, -1, -1]
    assert syncs.event_id.tolist() == [5, -1, -1]
    assert syncs.stream.tolist() == [7, 7, -1]


def test_without_records_of_waits_it_is_said_that_there_are_none(tmp_path: Path) -> None:
    window = read(MadeTrace().launch(0, 5, 9, 1), tmp_path)
    assert not window.has_sync_records
    assert len(window.syncs) == 0


def test_driver_calls_are_calls_and_ranges_of_the_gpu_are_left_out(tmp_path: Path) -> None:
    made = MadeTrace().call("cuLaunchKernel", 0, 5, 9).gpu("triton_", 10, 20, 9)
    made.event("loop", 10, 20, cat="gpu_user_annotation", pid=0, tid=7)
    made.event("Buffer Flush", 10, 20, cat="overhead", pid=-1, tid=0)
    window = read(made, tmp_path)
    assert [window.names[i] for i in window.calls.name_id] == ["cuLaunchKernel"]
    assert (len(window.ranges), len(window.ops), window.problems) == (0, 0, ())


def test_categories_and_times_of_old_releases(tmp_path: Path) -> None:
    made = MadeTrace()
    start = 1_700_000_000_000_000
    for i, (category, name, args) in enumerate(
        (
            ("Operator", "aten::mm", {"Input dims": [[1]]}),
            ("Runtime", "cudaLaunchKernel", {"correlation": 5}),
            ("Kernel", "k", {"correlation": 5, "stream": 7, "device": 0}),
            ("Memcpy", "Memcpy HtoD (Pinned -> Device)", {"correlation": 6, "bytes": 8}),
            ("Memset", "Memset (Device)", {"correlation": 7}),
        )
    ):
        # whole microseconds since 1970
        made.event(name, 0, 0, cat=category, ts=str(start + 10 * i), dur="4", args=args)
    del made.head["baseTimeNanoseconds"]
    window = read(made, tmp_path)
    assert (window.ops.start_ns.tolist(), window.ops.end_ns.tolist()) == ([0], [4000])
    assert window.calls.start_ns.tolist() == [10_000]
    assert window.gpu.kind.tolist() == [OpKind.KERNEL, OpKind.COPY, OpKind.SET]
    assert window.gpu.start_ns.tolist() == [20_000, 30_000, 40_000]
    assert window.unix_ns_at_zero == start * 1000


def test_progress_is_told_in_bytes_of_the_file(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    for name in ("t.json", "t.json.gz"):
        path = small().write(tmp_path / name)
        read_torch_trace(path, progress=lambda done, size: told.append((done, size)))
        assert told[-1] == (path.stat().st_size, path.stat().st_size)
