"""Damaged and hostile exports of nsys: an error that says what to do, or a part, and that said."""

from __future__ import annotations

import gzip
import random
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from nsys_file import gid, write

from trainscope.errors import TraceError
from trainscope.trace.nsys.read import read_nsys
from trainscope.trace.window import GpuOps, Window

STRINGS = ("cudaLaunchKernel_v7000", "gelu", "cuProfilerStart")
LAUNCH = {"start": 1, "end": 2, "globalTid": gid(1), "correlationId": 1, "nameId": 1}
KERNEL = {"start": 3, "end": 4, "deviceId": 0, "streamId": 7, "correlationId": 1}
KERNEL |= {"globalPid": gid(), "shortName": 2}


def whole(tmp_path: Path, **tables: list[dict]) -> Path:
    content = {"RUNTIME": [LAUNCH], "KERNEL": [KERNEL], **tables}
    return write(tmp_path / "r.sqlite", content, strings=STRINGS)


def read_or_refuse(path: Path) -> Window | None:
    """The window, or None for an error, which must name the file."""
    try:
        return read_nsys(path)
    except TraceError as error:
        if str(path) not in str(error):
            raise
        return None


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", r"r\.sqlite is empty: give what `nsys export --type sqlite` wrote"),
        (b"hello", r"r\.sqlite is no SQLite file"),
        (b"SQLite format 3\0" + b"x" * 4000, r"r\.sqlite is cut off or damaged: .*; export it"),
        (gzip.compress(b"hello", mtime=0), r"r\.sqlite is no SQLite file"),
    ],
)
def test_what_is_no_export_is_told(tmp_path: Path, content: bytes, words: str) -> None:
    (tmp_path / "r.sqlite").write_bytes(content)
    with pytest.raises(TraceError, match=words):
        read_nsys(tmp_path / "r.sqlite")


def test_another_database_is_told(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "r.sqlite")) as connection:
        connection.execute("create table users (name)")
    with pytest.raises(TraceError, match="holds none of the tables that nsys writes"):
        read_nsys(tmp_path / "r.sqlite")


def test_a_packed_bomb_is_not_unpacked(tmp_path: Path) -> None:
    (tmp_path / "r.sqlite.gz").write_bytes(gzip.compress(bytes(80 << 20), 6))
    with pytest.raises(TraceError, match="unpacks to more than 150 times its size"):
        read_nsys(tmp_path / "r.sqlite.gz")


def test_a_file_cut_anywhere_is_an_error_or_whole(tmp_path: Path) -> None:
    kernels = [{**KERNEL, "start": i, "end": i + 1, "correlationId": i} for i in range(3, 900)]
    path = whole(tmp_path, KERNEL=kernels)
    content = path.read_bytes()
    expected = read_nsys(path)
    for size in range(0, len(content), 997):
        path.write_bytes(content[:size])
        found = read_or_refuse(path)
        if found is not None:
            assert np.array_equal(found.gpu.start_ns, expected.gpu.start_ns)


def test_bytes_of_chance_never_crash_it(tmp_path: Path) -> None:
    chance = random.Random(7)
    path = whole(tmp_path, NVTX_EVENTS=[{"start": 1, "end": 9, "eventType": 59, "text": "step 1"}])
    content = path.read_bytes()
    for _ in range(300):
        damaged = bytearray(content)
        for _ in range(chance.randrange(1, 20)):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        path.write_bytes(bytes(damaged))
        window = read_or_refuse(path)
        if window is not None:
            assert np.all(window.gpu.end_ns >= window.gpu.start_ns)
            assert np.all(window.calls.name_id < len(window.names))


BAD_ROWS = [
    ({"start": "3"}, "1 row has no number where one belongs and is left out"),
    ({"end": 4.5}, "1 row has no number where one belongs and is left out"),
    ({"streamId": b"7"}, "1 row has no number where one belongs and is left out"),
    ({"start": None}, "1 row has no number where one belongs and is left out"),
    ({"end": 2}, "1 row has no possible time or duration and is left out"),
    ({"start": -5}, "1 row has no possible time or duration and is left out"),
    ({"end": 86_400 * 10**9 + 10}, "1 row has no possible time or duration and is left out"),
    ({"end": 2**62}, "1 row has no possible time or duration and is left out"),
]


@pytest.mark.parametrize(("bad", "words"), BAD_ROWS)
def test_a_bad_row_is_left_out_and_told(tmp_path: Path, bad: dict, words: str) -> None:
    window = read_nsys(whole(tmp_path, KERNEL=[KERNEL, {**KERNEL, **bad}]))
    assert (window.gpu.start_ns.tolist(), window.gpu.end_ns.tolist()) == ([3], [4])
    assert words in window.problems


def test_null_is_not_known_and_never_0(tmp_path: Path) -> None:
    kernel = {"start": 3, "end": 4}
    copy = {"start": 5, "end": 6, "copyKind": 1}
    window = read_nsys(whole(tmp_path, KERNEL=[kernel], MEMCPY=[copy]))
    gpu = window.gpu
    for column in (gpu.device, gpu.stream, gpu.correlation, gpu.bytes):
        assert column.tolist() == [-1, -1]
    assert window.names[gpu.name_id[0]] == "?"


@pytest.mark.parametrize(
    ("table", "attribute"),
    [
        *(("RUNTIME", "calls"), ("KERNEL", "gpu"), ("SYNCHRONIZATION", "syncs")),
        *(("NVTX_EVENTS", "ranges"), ("StringIds", "names"), ("MEMCPY", "gpu")),
    ],
)
def test_a_table_with_other_columns_is_as_one_that_is_missing(
    tmp_path: Path, table: str, attribute: str
) -> None:
    full = "CUPTI_ACTIVITY_KIND_" + table if table.isupper() and "NVTX" not in table else table
    path = write(tmp_path / "r.sqlite", {full: [{"other": 1}], "ThreadNames": []})
    window = read_nsys(path)
    assert len(getattr(window, attribute)) == 0
    assert window.problems


def test_a_table_without_times_is_told(tmp_path: Path) -> None:
    path = whole(tmp_path, CUPTI_ACTIVITY_KIND_MEMSET=[{"start": 3, "bytes": 4}])
    window = read_nsys(path)
    assert len(window.gpu) == 1
    assert "the table CUPTI_ACTIVITY_KIND_MEMSET has no times and is left out" in window.problems


def test_views_virtual_tables_and_computed_columns_are_not_looked_at(tmp_path: Path) -> None:
    path = whole(tmp_path)
    endless = "with recursive n(i) as (select 1 union all select i + 1 from n) select i"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(
            f"create view CUPTI_ACTIVITY_KIND_MEMSET as {endless} as start, i as end from n"
        )
        connection.execute("create virtual table NVTX_EVENTS using fts5(start, end, eventType)")
        connection.execute("drop table CUPTI_ACTIVITY_KIND_KERNEL")
        connection.execute("create table CUPTI_ACTIVITY_KIND_KERNEL (start, end, deviceId as (7))")
        connection.execute("insert into CUPTI_ACTIVITY_KIND_KERNEL values (3, 4)")
    window = read_nsys(path)
    assert (window.gpu.start_ns.tolist(), window.gpu.device.tolist()) == ([3], [-1])
    assert len(window.ranges) == 0


def test_an_index_on_the_names_does_not_mix_them_up(tmp_path: Path) -> None:
    path = tmp_path / "r.sqlite"
    names = [f"k{(i * 7) % 50:02d}" for i in range(50)]
    kernels = [{**KERNEL, "start": i, "end": i, "shortName": i} for i in range(1, 51)]
    texts = [
        {"start": i, "end": i, "eventType": 59, "text": f"r{(i * 7) % 50:02d}"}
        for i in range(1, 51)
    ]
    write(path, {"KERNEL": kernels, "NVTX_EVENTS": texts}, strings=names)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("create index by_value on StringIds (value)")
        connection.execute("create index by_both on StringIds (value, id)")
        connection.execute("create index by_text on NVTX_EVENTS (text)")
    window = read_nsys(path)
    assert [window.names[i] for i in window.gpu.name_id] == names
    assert [window.names[i] for i in window.ranges.name_id] == [row["text"] for row in texts]


def test_names_that_are_no_text_or_without_end_do_no_harm(tmp_path: Path) -> None:
    path = whole(tmp_path)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("update StringIds set value = cast(x'ff41' as text) where id = 1")
        connection.execute("update StringIds set value = 5 where id = 3")
        connection.execute(
            "update StringIds set value = '<script>' || hex(zeroblob(900000)) where id = 2"
        )
    window = read_nsys(path)
    assert window.names[window.calls.name_id[0]] == "\ufffdA"
    name = window.names[window.gpu.name_id[0]]
    assert (len(name), name[:10]) == (10_000, "<script>00")


def told(window: Window) -> str:
    return window.problems[0]


def test_calls_without_gpu_work_are_told_first(tmp_path: Path) -> None:
    version = [{"name": "EXPORT_PRODUCT_VERSION", "value": "2023.4.4.54"}]
    path = whole(tmp_path, KERNEL=[], META_DATA_EXPORT=version)
    window = read_nsys(path)
    assert told(window) == (
        "1 CUDA call and no GPU work: nsys 2023.4.4.54 may be older than the driver or than the "
        "CUDA of the program; record with a newer nsys"
    )
    assert len(window.gpu) == len(GpuOps.empty())


def test_calls_that_ask_for_no_gpu_work_are_told_as_that(tmp_path: Path) -> None:
    window = read_nsys(whole(tmp_path, KERNEL=[], RUNTIME=[{**LAUNCH, "nameId": 3}]))
    assert told(window) == "1 CUDA call, none of which asks for GPU work"


def test_a_recording_without_cuda_and_one_of_nothing_are_told(tmp_path: Path) -> None:
    marks = [{"start": 1, "end": 9, "eventType": 59, "text": "step 1"}]
    path = write(tmp_path / "a.sqlite", {"NVTX_EVENTS": marks})
    assert told(read_nsys(path)).startswith("no CUDA calls and no GPU work: record with --trace=")
    path = write(tmp_path / "b.sqlite", {})
    assert told(read_nsys(path)).startswith("no NVTX range, no CUDA call and no GPU work in it")


def test_launches_whose_gpu_work_is_missing_are_told(tmp_path: Path) -> None:
    launches = [{**LAUNCH, "correlationId": i} for i in (1, 2, 3)]
    window = read_nsys(whole(tmp_path, RUNTIME=launches))
    assert told(window).startswith("2 of 3 launches have no GPU work in the trace")
