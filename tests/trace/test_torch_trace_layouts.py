"""One trace in every layout that tools write, packed, in pieces and cut: the same rows."""

from __future__ import annotations

import gzip
import json
import re
from dataclasses import fields
from pathlib import Path

import pytest
from made_traces import MadeTrace

from trainscope.errors import TraceError
from trainscope.trace.torch_trace import read_torch_trace, source
from trainscope.trace.window import Window

TABLES = ("ops", "ranges", "frames", "calls", "gpu", "syncs")
NASTY = 'lambda(){}, {"ph": "X"}, {\\" }],\n  "traceEvents": [\n  },\n  {'


def rows(window: Window) -> dict[str, list[list[object]]]:
    """All tables in a form that compares, names in place of their numbers."""
    found = {}
    for table in TABLES:
        columns = getattr(window, table)
        named = {field.name: getattr(columns, field.name).tolist() for field in fields(columns)}
        for key, texts in (("name_id", window.names), ("shape_id", window.shapes)):
            if key in named:
                named[key] = [texts[i] if i >= 0 else None for i in named[key]]
        found[table] = [list(row) for row in zip(*named.values(), strict=True)]
    return found


def made(count: int = 12) -> MadeTrace:
    trace = MadeTrace().thread("main").range("ProfilerStep#1", 0, 100_000)
    for i in range(count):
        at = 1000 * i
        trace.op(f"aten::mm {NASTY} {i}", at, at + 900, shapes=[[i, 2], []])
        trace.frame(f"a.py({i}): <lambda> {NASTY}", at + 1, at + 800)
        trace.launch(at + 100, at + 500, at + 1400, i + 1)
    return trace


def kineto(trace: MadeTrace) -> bytes:
    return trace.text().encode()


def windows_line_ends(trace: MadeTrace) -> bytes:
    return trace.text().encode().replace(b"\n", b"\r\n")


def one_line(trace: MadeTrace) -> bytes:
    return json.dumps(trace.plain()).encode()


def no_spaces(trace: MadeTrace) -> bytes:
    return json.dumps(trace.plain(), separators=(",", ":")).encode()


def indented(trace: MadeTrace) -> bytes:
    return json.dumps(trace.plain(), indent=4, ensure_ascii=False).encode()


def events_first(trace: MadeTrace) -> bytes:
    plain = trace.plain()
    return json.dumps({"traceEvents": plain.pop("traceEvents"), **plain}, indent=1).encode()


def array_alone(trace: MadeTrace) -> bytes:
    return json.dumps(trace.plain()["traceEvents"]).encode()


def byte_order_mark(trace: MadeTrace) -> bytes:
    return b"\xef\xbb\xbf\n" + array_alone(trace)


LAYOUTS = (
    *(kineto, windows_line_ends, one_line, no_spaces, indented),
    *(events_first, array_alone, byte_order_mark),
)


@pytest.mark.parametrize("packed", [bytes, gzip.compress], ids=["plain", "gz"])
@pytest.mark.parametrize("piece_bytes", [64, 1000, 1 << 20])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_layout_and_where_pieces_end_change_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout, packed, piece_bytes: int
) -> None:
    monkeypatch.setattr(source, "_PIECE_BYTES", piece_bytes)
    wanted = read_torch_trace(made().write(tmp_path / "a.json"))
    assert [len(getattr(wanted, table)) for table in TABLES] == [12, 1, 12, 12, 12, 0]
    (tmp_path / "b.json").write_bytes(packed(layout(made())))
    found = read_torch_trace(tmp_path / "b.json")
    assert rows(found) == rows(wanted)
    assert found.problems == wanted.problems == ()
    if b"deviceProperties" in layout(made()):
        assert (found.devices, found.unix_ns_at_zero) == (wanted.devices, wanted.unix_ns_at_zero)


def what_can_be_read(file: Path) -> Window | None:
    """None where it is refused as no trace, or as one with no whole event."""
    words = f"^{re.escape(str(file))} is (no trace of torch.profiler|cut off in its first event)"
    try:
        return read_torch_trace(file)
    except TraceError:
        with pytest.raises(TraceError, match=words):
            read_torch_trace(file)
    return None


@pytest.mark.parametrize("layout", [kineto, no_spaces, array_alone])
def test_a_file_cut_anywhere_gives_what_is_whole_or_says_why_not(tmp_path: Path, layout) -> None:
    whole = layout(made(2))
    file = tmp_path / "a.json"
    file.write_bytes(whole)
    wanted = [row for table in rows(read_torch_trace(file)).values() for row in table]
    most = 0
    last = len(whole) - 2  # from there on only white space is missing
    for size in (*range(1, last - 100, 11), *range(last - 100, last)):
        file.write_bytes(whole[:size])
        window = what_can_be_read(file)
        if window is None:
            assert most == 0, "less is read of a longer file"
            continue
        found = sum(len(getattr(window, table)) for table in TABLES)
        assert most <= found <= len(wanted)
        most = found
        assert window.problems[0].startswith(
            (f"the file ends in the middle, at byte {size}: ", "what stands around the events is")
        )
    assert most == len(wanted)


def test_a_packed_file_that_is_cut_gives_what_can_be_unpacked(tmp_path: Path) -> None:
    packed = gzip.compress(kineto(made(2000)))
    (tmp_path / "a.json.gz").write_bytes(packed[: len(packed) // 2])
    window = read_torch_trace(tmp_path / "a.json.gz")
    assert 500 < len(window.gpu) < 1500
    assert window.gpu.correlation.tolist() == list(range(1, len(window.gpu) + 1))
    assert window.problems[0].startswith("the file ends in the middle, at byte ")


def test_packed_files_joined_are_one_file_and_padding_after_them_is_none(tmp_path: Path) -> None:
    text = kineto(made())
    parts = gzip.compress(text[:700]) + gzip.compress(text[700:]) + bytes(512)
    (tmp_path / "a.json.gz").write_bytes(parts)
    wanted = read_torch_trace(made().write(tmp_path / "b.json"))
    assert rows(read_torch_trace(tmp_path / "a.json.gz")) == rows(wanted)
