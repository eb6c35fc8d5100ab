"""Files that are no traces, and traces that are damaged or odd: said in words, never a crash."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import pytest
from made_traces import UNIX_NS, MadeTrace

from trainscope.errors import TraceError
from trainscope.trace.torch_trace import read_torch_trace
from trainscope.trace.window import Window


def read(made: MadeTrace, folder: Path) -> Window:
    return read_torch_trace(made.write(folder / "t.json"))


def refused(content: bytes, folder: Path) -> str:
    """What is said about it, the file's name taken out."""
    file = folder / "t.json"
    file.write_bytes(content)
    with pytest.raises(TraceError, match=re.escape(str(file))) as caught:
        read_torch_trace(file)
    return str(caught.value).replace(str(file), "FILE")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "FILE is empty: was the program killed while it wrote it?"),
        (
            gzip.compress(b"", mtime=0),
            "FILE unpacks to nothing: was the program killed while it wrote it?",
        ),
        (
            b"not JSON at all",
            "FILE is no trace of torch.profiler, or is cut off before its first event (15 bytes): "
            "JSON is malformed: invalid character (byte 4)",
        ),
        (
            b'{"a": {"b": 1}}',
            "FILE is JSON, but no trace of torch.profiler: it has no traceEvents; give a file that "
            "export_chrome_trace wrote",
        ),
        (
            b'{"a": {"traceEvents": [{"ph": "X"}]}}',
            "FILE is JSON, but no trace of torch.profiler: its traceEvents are not at the top; "
            "give a file that export_chrome_trace wrote",
        ),
        (
            b'{"traceEvents": [{"ph": "X"}], "traceEvents": [{"ph": "X"}]}',
            "FILE has traceEvents twice: which are meant cannot be told",
        ),
        (
            b"[1, 2, null, [3]]",
            "FILE is no trace of torch.profiler: nothing in its traceEvents is an event",
        ),
        (
            b'{"traceEvents": [{"ph": "X", "na',
            "FILE is cut off in its first event, at byte 32: nothing in it can be read",
        ),
        (
            b'{"traceEvents": [' + b"[" * 100_000,
            "FILE is cut off in its first event, at byte 100017: nothing in it can be read",
        ),
        (
            b'{"traceEvents": [' + b"[" * 100_000 + b"]" * 100_001 + b"}",
            "FILE is no trace of torch.profiler: nothing in its traceEvents is an event",
        ),
        (
            b"\x1f\x8b\x08\x00 this was gzip once",
            "FILE cannot be unpacked near byte 23 of 23: Error -3 while decompressing data: "
            "invalid block type; record it again or copy it again",
        ),
    ],
    ids=[
        *("empty", "packed nothing", "text", "other JSON", "not at the top", "twice", "numbers"),
        *("cut in the first event", "deep and cut", "deep", "damaged gzip"),
    ],
)
def test_what_is_no_trace_is_refused_with_what_it_is(
    tmp_path: Path, content: bytes, words: str
) -> None:
    assert refused(content, tmp_path) == words


def test_a_missing_file_and_a_folder_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"none\.json cannot be read: No such file or directory"):
        read_torch_trace(tmp_path / "none.json")
    with pytest.raises(TraceError, match=r"cannot be read: Is a directory"):
        read_torch_trace(tmp_path)


def test_a_bomb_is_not_unpacked(tmp_path: Path) -> None:
    text = MadeTrace().op("a", 0, 1).text().encode()
    words = refused(gzip.compress(text + b" " * (80 << 20)), tmp_path)
    assert re.fullmatch(
        r"FILE unpacks to more than 150 times its size \(\d+ bytes from \d+\), which no trace "
        r"does; it is not read further",
        words,
    )


def test_an_event_that_never_ends_is_not_waited_for(tmp_path: Path) -> None:
    text = MadeTrace().op("a", 0, 1).text().encode()
    endless = text.replace(b'"External', b'"x' * (9 << 20) + b'"External')
    assert refused(endless, tmp_path).startswith("FILE is damaged after byte 220: an event begins")


def test_entries_that_are_no_events_are_counted(tmp_path: Path) -> None:
    event = json.dumps(MadeTrace().op("a", 0, 1).plain()["traceEvents"][0])
    for separator in (",", ", ", ",\n  "):
        entries = (event, "1", '"x, y"', event, "NaN", "[]", event, "null", "inf")
        (tmp_path / "a.json").write_text(f"[{separator.join(entries)}]")
        window = read_torch_trace(tmp_path / "a.json")
        assert len(window.ops) == 3
        assert window.problems[-1] == (
            "6 events are malformed and left out, the first after byte 0"
        )


def test_an_empty_list_is_a_window_that_says_so(tmp_path: Path) -> None:
    window = read(MadeTrace(), tmp_path)
    assert window.problems == ("no operator, no CUDA call and no GPU work in it",)
    assert (window.names, window.threads, window.devices) == ((), (), ("NVIDIA H200",))
    assert window.unix_ns_at_zero == UNIX_NS


TIMES = ["NaN", "Infinity", "-Infinity", "nan", "inf", "null", '"12"', "1e300", "1e400", "-5", "[]"]
A_DAY_NS = 86_400 * 10**9
MALFORMED = {"NaN", "Infinity", "-Infinity", "nan", "inf", "null", '"12"', "1e400", "[]"}


@pytest.mark.parametrize("key", ["ts", "dur"])
@pytest.mark.parametrize("time", TIMES)
def test_an_impossible_time_costs_its_event_alone(tmp_path: Path, key: str, time: str) -> None:
    made = MadeTrace().launch(0, 10, 20, 1)
    for i in range(2):
        made.event("odd", 30 + i, 40, **{key: time})
    window = read(made.launch(50, 60, 70, 2), tmp_path)
    assert window.gpu.start_ns.tolist() == [10, 60]
    assert window.calls.start_ns.tolist() == [0, 50]
    assert len(window.ops) == 0
    (said,) = window.problems
    if time in MALFORMED:
        assert re.fullmatch(r"2 events are malformed and left out, the first after byte \d+", said)
    else:
        assert said == "2 events have no possible time or duration and are left out"


def test_what_lasts_longer_than_a_day_is_left_out(tmp_path: Path) -> None:
    made = MadeTrace().launch(0, 10, 20, 1)
    made.event("shorter", 30, 40, dur=A_DAY_NS - 1).event("longer", 50, 60, dur=A_DAY_NS)
    window = read(made, tmp_path)
    assert [window.names[place] for place in window.ops.name_id] == ["shorter"]
    assert window.problems == ("1 event has no possible time or duration and is left out",)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_an_odd_number_beside_what_is_used_costs_nothing(tmp_path: Path, value: float) -> None:
    made = MadeTrace().call("cudaMemsetAsync", 0, 5, 1)
    made.gpu("Memset (Device)", 10, 20, 1, cat="gpu_memset", bytes=32, rate=value)
    text = made.text()
    for written in (text, text.replace("Infinity", "inf").replace("NaN", "nan")):
        (tmp_path / "a.json").write_text(written)
        window = read_torch_trace(tmp_path / "a.json")
        assert (window.gpu.bytes.tolist(), window.problems) == ([32], ())


def test_fields_that_are_missing_or_of_another_type(tmp_path: Path) -> None:
    made = MadeTrace().launch(0, 10, 20, 1)
    made.event("k", 30, 40, cat="kernel", pid=0, tid=7, args={"correlation": "six"})
    made.event("no args at all", 30, 40, cat="kernel", pid=0, tid=7)
    made.event("no place", 30, 40, cat="kernel", pid="GPU 0", tid="stream 7")
    made.event("numberless", 30, 40, pid=None)
    made.event(5, 30, 40)  # pyright: ignore
    window = read(made, tmp_path)
    assert [window.names[i] for i in window.gpu.name_id] == [
        *("gemm<float>(float*)", "no args at all", "no place")
    ]
    assert (window.gpu.device.tolist(), window.gpu.stream.tolist()) == ([0, 0, -1], [7, 7, -1])
    assert window.gpu.correlation.tolist() == [1, -1, -1]
    assert window.problems[0] == (
        "2 of 3 GPU ops have no correlation id, so what launched them is not known"
    )
    assert window.problems[1].startswith("3 events are malformed and left out, the first after")


@pytest.mark.parametrize("number", [2**62, 2**63, 2**64 + 5, 10**30, -7])
def test_numbers_that_no_column_holds_are_not_known(tmp_path: Path, number: int) -> None:
    made = MadeTrace().gpu("k", 0, 9, number, stream=number, device=number)
    made.op("a", 0, 9, tid=number)
    window = read(made, tmp_path)
    assert window.gpu.correlation.tolist() == [-1]
    assert [thread.tid for thread in window.threads] == [-1]


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ('"<script>alert(1)</script>"', "<script>alert(1)</script>"),
        (r'"half \ud800 of a pair"', "half \ufffd of a pair"),
        (r'"other half \udfff"', "other half \ufffd"),
        (r'"whole \ud83d\ude00 pair"', "whole \U0001f600 pair"),
        (r'"no escape \\ud800"', r"no escape \ud800"),
        ('"a\ttab"', "a\ufffdtab"),
        ('"nan, inf { [ } ]"', "nan, inf { [ } ]"),
        ('""', ""),
        (json.dumps("x" * 100_000), "x" * 100_000),
    ],
)
def test_any_name_stays_text(tmp_path: Path, written: str, name: str) -> None:
    text = MadeTrace().op("NAME", 0, 1).op("after", 2, 3).text().replace('"NAME"', written)
    (tmp_path / "a.json").write_text(text)
    window = read_torch_trace(tmp_path / "a.json")
    assert [window.names[i] for i in window.ops.name_id] == [name, "after"]


def test_a_name_that_is_no_utf8_is_mended(tmp_path: Path) -> None:
    text = MadeTrace().op("NAME", 0, 1).op("after", 2, 3).text().encode()
    (tmp_path / "a.json").write_bytes(text.replace(b"NAME", b"gr\xfcn"))
    assert read_torch_trace(tmp_path / "a.json").names == ("gr\ufffdn", "after")


def test_garbage_in_the_middle_costs_what_it_hit(tmp_path: Path) -> None:
    made = MadeTrace()
    for i in range(100):
        made.launch(100 * i, 100 * i + 50, 100 * i + 90, i + 1)
    text = bytearray(made.text().encode())
    middle = len(text) // 2
    text[middle : middle + 60] = bytes(60)
    (tmp_path / "a.json").write_bytes(text)
    window = read_torch_trace(tmp_path / "a.json")
    assert len(window.gpu) + len(window.calls) >= 198
    assert any("malformed and left out" in words for words in window.problems)


def test_a_million_tracks_are_read(tmp_path: Path) -> None:
    count = 200_000
    events = ",".join(
        f'{{"ph":"X","cat":"cpu_op","name":"a{i}","pid":1,"tid":{i},"ts":{i},"dur":1}}'
        for i in range(count)
    )
    (tmp_path / "a.json").write_text(f"[{events}]")
    window = read_torch_trace(tmp_path / "a.json")
    assert (len(window.threads), len(window.names), len(window.ops)) == (count, count, count)
    assert window.ops.thread[-1] == count - 1


def test_begins_and_ends_of_other_tools_are_counted(tmp_path: Path) -> None:
    made = MadeTrace().op("a", 0, 1)
    for phase in "BE":
        made.event("b", 5, 6, ph=phase)
    said = read(made, tmp_path).problems
    assert said[-1] == (
        "2 events are written as a begin or an end, which torch.profiler does not do, "
        "and are left out"
    )


def test_waits_of_a_kind_not_known_are_counted(tmp_path: Path) -> None:
    made = MadeTrace().launch(0, 1, 2, 1).sync("Quantum Sync", 5, 6, 9)
    window = read(made, tmp_path)
    assert (len(window.syncs), window.has_sync_records) == (0, False)
    assert window.problems == ("1 record of waits is of a kind that is not known and is left out",)


def test_a_damaged_head_costs_names_and_date_alone(tmp_path: Path) -> None:
    made = MadeTrace().launch(0, 1, 2, 1)
    made.head["deviceProperties"] = [{"id": 0, "name": float("nan")}]
    window = read(made, tmp_path)
    assert (len(window.gpu), window.devices, window.unix_ns_at_zero) == (1, (), None)
    assert window.problems == (
        "what stands around the events is damaged: names of GPUs and the date may be missing",
    )
