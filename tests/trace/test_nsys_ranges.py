"""NVTX ranges of nsys recordings: names from both places, nesting, operators under emit_nvtx."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from nsys_file import gid, write

from trainscope.analysis.nesting import depths
from trainscope.trace.nsys.read import read_nsys
from trainscope.trace.window import Window

PUSH_POP, START_END, MARK, DOMAIN = 59, 60, 34, 75


def mark(start: int, end: int | None, text: str | int, kind: int = PUSH_POP, tid: int = 1) -> dict:
    name = {"textId": text} if isinstance(text, int) else {"text": text}
    return {"start": start, "end": end, "eventType": kind, "globalTid": gid(tid), **name}


def read(tmp_path: Path, *rows: dict) -> Window:
    tables = {"NVTX_EVENTS": rows}
    return read_nsys(write(tmp_path / "r.sqlite", tables, strings=("registered",)))


def ranges(window: Window) -> list[tuple[str, int, int]]:
    table = window.ranges
    names = [window.names[i] for i in table.name_id]
    return list(zip(names, table.start_ns.tolist(), table.end_ns.tolist(), strict=True))


def test_names_are_registered_or_in_the_row_and_marks_are_no_ranges(tmp_path: Path) -> None:
    window = read(
        tmp_path,
        mark(0, None, "trainscope", DOMAIN),
        mark(5, None, "a mark", MARK),
        mark(20, 30, 1),
        mark(10, 50, "step 3"),
        mark(60, 70, "outer", START_END, tid=2),
        mark(80, 90, 99),
    )
    assert ranges(window) == [
        ("step 3", 10, 50),
        ("registered", 20, 30),
        ("outer", 60, 70),
        ("?", 80, 90),
    ]
    assert [window.threads[i].tid for i in window.ranges.thread] == [1, 1, 2, 1]
    assert len(window.ops) == 0


def test_a_range_without_an_end_is_left_out_and_told(tmp_path: Path) -> None:
    window = read(tmp_path, mark(10, None, "step 1"), mark(1, 9, "step 0"))
    assert ranges(window) == [("step 0", 1, 9)]
    told = "1 range has no end before the recording stopped and is left out"
    assert told in window.problems


@pytest.mark.parametrize("kinds", [(PUSH_POP, START_END), (START_END, PUSH_POP)])
def test_of_ranges_that_cross_the_one_of_start_and_end_calls_goes(
    tmp_path: Path, kinds: tuple[int, int]
) -> None:
    first, second = mark(0, 60, "first", kinds[0]), mark(40, 100, "second", kinds[1])
    window = read(tmp_path, first, second, mark(50, 55, "inside"))
    kept = ("first", 0, 60) if kinds[0] == PUSH_POP else ("second", 40, 100)
    assert ranges(window) == [kept, ("inside", 50, 55)]
    told = "1 range has its begin in another of the thread and its end after it and is left out"
    assert told in window.problems


def test_ranges_that_touch_or_share_an_end_or_have_no_length_do_not_cross(tmp_path: Path) -> None:
    rows = [
        *(mark(0, 50, "a"), mark(0, 50, "b"), mark(0, 20, "c"), mark(20, 50, "d")),
        *(mark(20, 20, "e"), mark(50, 90, "f"), mark(50, 50, "g"), mark(90, 95, "h")),
    ]
    window = read(tmp_path, *rows)
    assert sorted(name for name, *_ in ranges(window)) == list("abcdefgh")
    assert not any("its begin in" in problem for problem in window.problems)


def test_what_is_kept_of_ranges_of_chance_nests_and_nested_ones_are_all_kept(
    tmp_path: Path,
) -> None:
    chance = random.Random(4)
    for turn in range(60):
        rows = []
        for _ in range(12):
            start = chance.randrange(40)
            kind = chance.choice([PUSH_POP, START_END])
            rows.append(mark(start, start + chance.randrange(12), "x", kind, chance.randrange(2)))
        folder = tmp_path / str(turn)
        folder.mkdir()
        window = read(folder, *rows)
        table = window.ranges
        crossing = any(
            table.thread[i] == table.thread[j]
            and table.start_ns[i] < table.start_ns[j] < table.end_ns[i] < table.end_ns[j]
            for i in range(len(table))
            for j in range(len(table))
        )
        assert not crossing
        again = [
            mark(int(s), int(e), "x", tid=window.threads[t].tid)
            for s, e, t in zip(table.start_ns, table.end_ns, table.thread, strict=True)
        ]
        folder = tmp_path / f"{turn}again"
        folder.mkdir()
        assert len(read(folder, *again).ranges) == len(table)


def test_deep_nesting_is_read_whole(tmp_path: Path) -> None:
    rows = [mark(i, 10_000 - i, f"r{i}") for i in range(3000)]
    window = read(tmp_path, *rows)
    assert np.array_equal(np.sort(window.ranges.start_ns), np.arange(3000))
    assert int(depths(window.ranges).max()) == 2999


def test_operators_marked_by_emit_nvtx_are_operators(tmp_path: Path) -> None:
    window = read(
        tmp_path,
        mark(0, 10, "aten::mm, seq = 3, op_id = 12, sizes = [[2, 3], [3, 4]], input_op_ids = [[]]"),
        mark(20, 30, "AddmmBackward0, seq = 3"),
        mark(40, 50, "aten::relu"),
        mark(60, 70, "Trainer::step"),
        mark(80, 90, "forward, seq2seq"),
    )
    ops = window.ops
    assert [window.names[i] for i in ops.name_id] == ["aten::mm", "AddmmBackward0", "aten::relu"]
    assert [window.shapes[i] if i >= 0 else None for i in ops.shape_id] == [
        "[[2, 3], [3, 4]]",
        None,
        None,
    ]
    assert [name for name, *_ in ranges(window)] == ["Trainer::step", "forward, seq2seq"]
