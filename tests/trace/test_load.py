from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest
from made_runs import trace, write_run
from nsys_file import gid, write

from trainscope.errors import RunDirectoryError, TraceError
from trainscope.trace.load import load
from trainscope.trace.trace import Trace


def test_a_run_is_loaded_by_directory_rank_folder_or_run_json(tmp_path: Path) -> None:
    path = write_run(tmp_path / "mlp.json", trace()).path  # a directory may have such a name
    for given in (path, str(path), path / "rank0", path / "run.json"):
        assert len(load(given).ranges) == 480 * 5


TRACE = {
    "deviceProperties": [{"id": 0, "name": "NVIDIA H200"}],
    "baseTimeNanoseconds": 1_700_000_000_000_000_000,
    "traceEvents": [
        {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 2, "ts": 5.5, "dur": 1.25}
    ],
}


@pytest.mark.parametrize("name", ["t.json", "t.json.gz", "anything"])
def test_a_trace_of_torch_profiler_is_a_trace_of_one_window(tmp_path: Path, name: str) -> None:
    text = json.dumps(TRACE).encode()
    (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    found = load(tmp_path / name)
    (window,) = found.windows
    assert (found.info.source, found.info.device) == ("torch.profiler", "NVIDIA H200")
    assert (len(found.ranges), found.detector, found.counts.optimizer_steps) == (0, None, None)
    assert (window.ops.start_ns.tolist(), window.ops.end_ns.tolist()) == ([0], [1250])
    assert window.unix_ns_at_zero == 1_700_000_000_000_005_500


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"", "is empty: was the program killed while it wrote it"),
        (b"hello", "is no trace of torch.profiler, or is cut off before its first event"),
        (b'{"a": 1}', "it has no traceEvents; give a file that export_chrome_trace wrote"),
        (b'{"traceEvents": [{"ph": "X"', "is cut off in its first event, at byte 27"),
    ],
)
def test_what_is_no_trace_is_told(tmp_path: Path, text: bytes, words: str) -> None:
    (tmp_path / "t.json").write_bytes(text)
    with pytest.raises(TraceError, match=words):
        load(tmp_path / "t.json")


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "trace.json")
    with pytest.raises(TraceError, match="is a pipe or a device, which cannot be read twice"):
        load(tmp_path / "trace.json")


def test_a_missing_trace_is_told_to_be_missing(tmp_path: Path) -> None:
    with pytest.raises(RunDirectoryError, match=r"t\.json does not exist"):
        load(tmp_path / "t.json")


def test_recordings_of_nsys_are_known_by_name_or_by_how_they_begin(tmp_path: Path) -> None:
    kernel = {"start": 3, "end": 4, "deviceId": 0, "streamId": 7, "globalPid": gid()}
    gpus = [{"id": 0, "name": "NVIDIA H200"}]
    tables = {"KERNEL": [kernel], "TARGET_INFO_GPU": gpus}
    content = write(tmp_path / "r.sqlite", tables).read_bytes()
    (tmp_path / "r.sqlite.gz").write_bytes(gzip.compress(content))
    (tmp_path / "plain").write_bytes(content)
    (tmp_path / "packed.json").write_bytes(gzip.compress(content))
    for name in ("r.sqlite", "r.sqlite.gz", "plain", "packed.json"):
        found = load(tmp_path / name)
        (window,) = found.windows
        assert (found.info.source, found.info.device) == ("nsys", "NVIDIA H200")
        assert (found.path, window.gpu.start_ns.tolist()) == (tmp_path / name, [3])
        assert (len(found.ranges), found.detector, found.counts.optimizer_steps) == (0, None, None)


def test_progress_of_an_export_grows_to_the_size_of_the_file(tmp_path: Path) -> None:
    calls = [{"start": i, "end": i, "globalTid": gid(1), "nameId": 1} for i in range(50_000)]
    path = write(tmp_path / "r.sqlite", {"RUNTIME": calls})
    told: list[tuple[int, int]] = []
    load(path, progress=lambda done, total: told.append((done, total)))
    size = path.stat().st_size
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    assert (told[-1], {total for _, total in told}) == ((size, size), {size})


def trace_file(path: Path, ts: float) -> None:
    event = {**TRACE["traceEvents"][0], "ts": ts}
    text = json.dumps({**TRACE, "traceEvents": [event]}).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)


def starts(trace: Trace) -> list[int | None]:
    return [window.unix_ns_at_zero for window in trace.windows]


def test_a_folder_of_the_tensorboard_handler_has_a_rank_a_worker_and_its_windows_in_time(
    tmp_path: Path,
) -> None:
    trace_file(tmp_path / "node_12.1700000000900.pt.trace.json", 9.0)
    trace_file(tmp_path / "node_12.1700000000100000.pt.trace.json.gz", 11.0)
    trace_file(tmp_path / "node_13.1700000000500.pt.trace.json", 5.0)
    (tmp_path / "events.out.tfevents.1").write_bytes(b"other")
    told: list[tuple[int, int]] = []
    found = load(tmp_path, progress=lambda done, total: told.append((done, total)))
    base = TRACE["baseTimeNanoseconds"]
    assert starts(found) == [base + 9_000, base + 11_000]
    assert [starts(rank) for rank in found.ranks] == [[base + 5_000]]
    assert found.notes == (
        "the folder holds traces of 2 workers, numbered as ranks in the order of their names; "
        "this is node_12",
    )
    total = sum(file.stat().st_size for file in tmp_path.glob("*.pt.trace.json*"))
    assert told[-1] == (total, total)


@pytest.mark.parametrize(
    ("told", "ranks"), [((3, 1), [1, 3]), ((1, 1), [0, 1]), ((2, None), [0, 1])]
)
def test_workers_have_the_ranks_that_their_traces_tell(
    tmp_path: Path, told: tuple[int | None, ...], ranks: list[int]
) -> None:
    for worker, rank in zip("ab", told, strict=True):
        document = {**TRACE, "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": 4}}
        (tmp_path / f"{worker}.1.pt.trace.json").write_text(json.dumps(document))
    found = load(tmp_path)
    assert [found.rank, *(other.rank for other in found.ranks)] == ranks
    assert bool(found.notes) == (ranks == [0, 1])  # then they are numbered by their names


@pytest.mark.parametrize(
    ("info", "rank_of"),
    [
        ({"rank": 3, "world_size": 8}, (3, 8)),
        ({"rank": 8, "world_size": 8}, None),
        ({"rank": 0, "world_size": 10**9}, None),
        ({"rank": "0", "world_size": []}, None),
        (7, None),
    ],
)
def test_a_trace_tells_which_rank_wrote_it(
    tmp_path: Path, info: object, rank_of: tuple[int, int] | None
) -> None:
    file = tmp_path / "t.json"
    file.write_text(json.dumps({**TRACE, "distributedInfo": info}))
    found = load(file)
    assert found.windows[0].rank_of == rank_of
    assert (found.rank, found.info.world_size) == (rank_of or (0, 1))
    assert (found.ranks, found.missing_ranks, found.notes) == ((), (), ())


def test_of_a_folder_what_cannot_be_read_is_noted_and_nothing_at_all_is_an_error(
    tmp_path: Path,
) -> None:
    trace_file(tmp_path / "a.1.pt.trace.json", 1.0)
    (tmp_path / "b.1.pt.trace.json").write_bytes(b"")
    found = load(tmp_path)
    assert (len(found.windows), found.ranks) == (1, ())
    (note,) = found.notes
    assert note.startswith("a trace is left out: ")
    assert "b.1.pt.trace.json is empty" in note
    (tmp_path / "a.1.pt.trace.json").unlink()
    with pytest.raises(TraceError, match=r"holds no trace that can be read: .*b\.1.* is empty"):
        load(tmp_path)


def test_a_folder_of_other_recordings_is_asked_to_name_one(tmp_path: Path) -> None:
    (tmp_path / "a.nsys-rep").write_bytes(b"")
    (tmp_path / "b.json").write_bytes(b"")
    with pytest.raises(TraceError, match=r"is no run directory, and holds a\.nsys-rep and 1 more"):
        load(tmp_path)


def test_traces_that_lie_in_a_run_directory_do_not_hide_the_run(tmp_path: Path) -> None:
    path = write_run(tmp_path / "mlp", trace()).path
    trace_file(path / "a.1.pt.trace.json", 1.0)
    assert len(load(path).ranges) == 480 * 5


def test_an_empty_folder_is_no_run_directory(tmp_path: Path) -> None:
    with pytest.raises(RunDirectoryError):
        load(tmp_path)
