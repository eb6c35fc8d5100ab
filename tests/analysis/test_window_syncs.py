"""Waits of a window: which calls wait, of which kind they are, and whether they blocked."""

from __future__ import annotations

from dataclasses import replace
from time import perf_counter

import numpy as np
import pytest
from made_windows import Made, empty_window
from waiting_loops import found, item

from trainscope.analysis.window_steps import WindowSteps, find_steps
from trainscope.analysis.window_syncs import find_syncs
from trainscope.trace.window import Calls, CopyKind, Memory, Spans, SyncKind


def test_an_item_is_one_wait_with_its_copy_and_blocked_from_the_copys_call_on() -> None:
    made = Made().range("ProfilerStep#0", 0, 1000).launch(10, 20, 600)
    item(made, 100, 612)
    (sync,) = found(made.window())
    assert (sync.kind, sync.blocked, sync.step) == ("item", True, 0)
    assert (sync.start_ns, sync.end_ns, sync.blocked_ns) == (102, 611, 509)
    assert (sync.call, sync.copy_call, sync.copy_op) == (2, 1, 1)
    assert (sync.device, sync.stream) == (0, 7)


def test_a_wait_for_what_is_done_is_counted_as_one_that_did_not_block() -> None:
    made = Made().range("ProfilerStep#0", 0, 1000).launch(10, 20, 60)
    item(made, 100, 130)
    made.wait(200, 205, name="cudaDeviceSynchronize").wait(210, 213, name="cudaEventSynchronize")
    syncs = found(made.window())
    assert [(s.kind, s.blocked, s.blocked_ns) for s in syncs] == [
        ("item", False, 0),
        ("synchronize", False, 0),
        ("event", False, 0),
    ]


@pytest.mark.parametrize(
    ("operators", "copy_kind", "memory", "kind"),
    [
        (("aten::item",), CopyKind.D2H, Memory.PINNED, "item"),
        (("aten::is_nonzero", "aten::item"), CopyKind.D2H, Memory.PINNED, "bool"),
        (("aten::equal", "aten::item"), CopyKind.D2H, Memory.PINNED, "item-implicit"),
        (("aten::index", "aten::nonzero"), CopyKind.D2H, Memory.PINNED, "nonzero"),
        (("aten::_unique2",), CopyKind.D2H, Memory.PINNED, "size-readback"),
        (("aten::repeat_interleave", "aten::item"), CopyKind.D2H, Memory.PINNED, "size-readback"),
        (("aten::to", "aten::copy_"), CopyKind.D2H, Memory.PAGEABLE, "d2h"),
        (("aten::to", "aten::copy_"), CopyKind.H2D, Memory.PAGEABLE, "h2d-pageable"),
        (("aten::copy_",), CopyKind.H2D, Memory.PINNED, "h2d-pinned"),
        (("IndexBackward0", "aten::nonzero"), CopyKind.D2H, Memory.PINNED, "nonzero"),
        (("MyFunction", "aten::item"), CopyKind.D2H, Memory.PINNED, "item-implicit"),
    ],
)
def test_the_kind_comes_from_the_operators_around_and_the_copy(
    operators: tuple[str, ...], copy_kind: CopyKind, memory: Memory, kind: str
) -> None:
    made = Made().launch(0, 10, 500)
    for depth, name in enumerate(operators):
        made.op(name, 100 + depth, 600 - depth)
    copy = made.call("cudaMemcpyAsync", 110, 115)
    made.copy(505, 510, copy, copy_kind, memory)
    made.wait(120, 515)
    (sync,) = found(made.window())
    assert (sync.kind, sync.blocked_ns) == (kind, 405)


def test_calls_outside_operators_are_the_users_own_waits() -> None:
    made = Made().launch(0, 10, 500)
    made.wait(100, 501).wait(600, 604, name="cudaEventSynchronize_v3020")
    made.wait(700, 704, name="cudaDeviceSynchronize").range("after", 690, 710)
    assert [(s.kind, s.site.operator) for s in found(made.window())] == [
        ("stream", "cudaStreamSynchronize"),
        ("event", "cudaEventSynchronize"),
        ("synchronize", "cudaDeviceSynchronize"),
    ]


def test_a_plain_memcpy_waits_by_itself_and_a_pageable_async_one_if_it_was_held() -> None:
    made = Made().launch(0, 10, 500)
    plain = made.call("cudaMemcpy", 100, 520)
    made.copy(505, 515, plain, CopyKind.H2D)
    made.launch(530, 540, 900)
    held = made.call("cudaMemcpyAsync", 600, 950)
    made.copy(905, 940, held, CopyKind.H2D)
    made.launch(960, 970, 1500)
    staged = made.call("cudaMemcpyAsync", 1000, 1010)
    made.copy(1505, 1510, staged, CopyKind.H2D)
    pinned = made.call("cudaMemcpyAsync", 1020, 1600)
    made.copy(1515, 1520, pinned, CopyKind.D2H, Memory.PINNED)
    inside = made.call("cudaMemcpy", 1700, 1710)
    made.copy(1701, 1702, inside, CopyKind.D2D, Memory.UNKNOWN)
    assert [(s.kind, s.start_ns, s.blocked) for s in found(made.window())] == [
        ("h2d-pageable", 100, True),
        ("h2d-nonblocking-pageable", 600, True),
    ]


def test_cuda_free_counts_where_it_waited_for_the_device() -> None:
    made = Made().launch(0, 10, 500)
    made.call("cudaFree", 100, 510)
    made.call("cudaFree", 520, 525)
    assert [(s.kind, s.blocked_ns) for s in found(made.window())] == [("empty_cache", 410)]


def test_an_event_is_waited_for_as_far_as_it_was_recorded() -> None:
    made = Made().launch(0, 10, 100).launch(10, 100, 900)
    early = made.call("cudaEventRecord", 5, 6)
    late = made.call("cudaEventRecord", 20, 21)
    made.wait(200, 210, name="cudaEventSynchronize", kind=SyncKind.EVENT, event_correlation=early)
    made.wait(300, 905, name="cudaEventSynchronize", kind=SyncKind.EVENT, event_correlation=late)
    assert [s.blocked_ns for s in found(made.window(sync_records=True))] == [0, 605]


def test_a_stream_wait_blocks_for_its_own_stream_only() -> None:
    made = Made().launch(0, 10, 900, stream=7).launch(10, 20, 100, stream=9)
    made.wait(200, 205, kind=SyncKind.STREAM, stream=9)
    made.wait(300, 910, kind=SyncKind.STREAM, stream=7)
    assert [(s.stream, s.blocked_ns) for s in found(made.window())] == [(9, 0), (7, 610)]


def test_the_profilers_closing_wait_is_left_out_and_the_users_last_is_not() -> None:
    made = Made().range("ProfilerStep#1", 0, 900).launch(10, 20, 1500)
    made.wait(800, 890, name="cudaDeviceSynchronize")
    users = found(made.window())
    made.wait(950, 1510, name="cudaDeviceSynchronize")
    assert [s.start_ns for s in users] == [800]
    assert found(made.window()) == users


def test_a_window_without_rows_has_no_waits() -> None:
    window = empty_window()
    assert found(window) == ()


def test_waits_on_thousands_of_streams_and_many_rows_stay_fast() -> None:
    count, streams = 300_000, 5000
    ids = np.arange(count)
    start = ids * 1000
    waits = np.arange(2000) * 150_000 + 500
    base = Made().launch(0, 1, 2).wait(3, 4).op("aten::item", 3, 4).window()
    name = {text: place for place, text in enumerate(base.names)}
    window = replace(
        base,
        ops=Spans.of(
            {
                "start_ns": start,
                "end_ns": start + 400,
                "name_id": np.full(count, name["aten::item"]),
                "thread": ids * 0,
            }
        ),
        calls=Calls.of(
            {
                "start_ns": np.concatenate([start, waits]),
                "end_ns": np.concatenate([start + 5, waits + 300]),
                "thread": np.zeros(count + 2000),
                "name_id": np.concatenate(
                    [ids * 0 + name["cudaLaunchKernel"], waits * 0 + name["cudaStreamSynchronize"]]
                ),
                "correlation": np.concatenate([ids, waits * 0 - 1]),
            }
        ),
        gpu=type(base.gpu).of(
            {
                "start_ns": start + 10,
                "end_ns": start + 700,
                "kind": ids * 0,
                "device": ids * 0,
                "stream": ids % streams,
                "correlation": ids,
            }
        ),
    )
    began_s = perf_counter()
    syncs = find_syncs(window, find_steps(window))
    assert perf_counter() - began_s < 1.5
    assert len(syncs) == 2000
    assert all(sync.blocked for sync in syncs)


def test_no_steps_means_no_step_and_no_count_a_step() -> None:
    made = Made().launch(0, 10, 500).wait(100, 501)
    window = made.window()
    steps = find_steps(window)
    assert isinstance(steps, WindowSteps)
    (sync,) = find_syncs(window, steps)
    assert (sync.step, sync.site.per_step, sync.site.in_steps) == (-1, None, False)
