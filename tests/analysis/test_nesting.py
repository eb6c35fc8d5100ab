"""The spans around a moment, on each thread for itself and with any number of threads."""

from time import process_time

import numpy as np
from made_windows import Made

from trainscope.analysis.nesting import Around, depths, rows_by_thread
from trainscope.trace.window import Spans


def spans(*rows: tuple[int, int, int]) -> Spans:
    """Start, end and thread of each."""
    made = Made()
    for start, end, thread in rows:
        made.op("aten::mm", start, end, thread)
    return made.window().ops


def test_spans_of_other_threads_are_around_nothing() -> None:
    found = spans((0, 100, 0), (10, 50, 0), (20, 30, 1), (20, 25, 0))
    assert depths(found).tolist() == [0, 1, 0, 2]
    around = Around(found)
    asked = np.array([0, 1, 5]), np.array([21, 21, 21]), np.array([22, 22, 22])
    assert around.innermost(*asked).tolist() == [3, 2, -1]
    assert around.outermost(*asked).tolist() == [0, 2, -1]
    assert around.path(*asked).tolist() == [[0, 1, 3], [2, -1, -1], [-1, -1, -1]]


def test_no_span_and_no_question() -> None:
    none = np.empty(0, dtype=np.int64)
    assert Around(spans()).innermost(np.array([0]), np.array([1]), np.array([2])).tolist() == [-1]
    assert Around(spans((0, 9, 0))).path(none, none, none).shape == (0, 0)
    assert [*rows_by_thread(none)] == []


def test_rows_by_thread_keep_their_order_and_may_leave_small_ones_out() -> None:
    thread = np.array([2, -1, 2, 0, -1, 2])
    assert [rows.tolist() for rows in rows_by_thread(thread)] == [[1, 4], [3], [0, 2, 5]]
    assert [rows.tolist() for rows in rows_by_thread(thread, at_least=3)] == [[0, 2, 5]]


def test_a_hundred_thousand_threads_take_little_time() -> None:
    ids = np.arange(100_000)
    one_each = Spans.of({"start_ns": ids, "end_ns": ids + 5, "name_id": ids * 0, "thread": ids})
    began_s = process_time()
    around = Around(one_each)
    assert (depths(one_each) == 0).all()
    found = around.innermost(ids[::1000], ids[::1000] + 1, ids[::1000] + 2)
    assert found.tolist() == ids[::1000].tolist()
    assert process_time() - began_s < 1.0
