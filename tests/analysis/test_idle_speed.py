"""Idle time of long windows in little time."""

from __future__ import annotations

from dataclasses import replace
from time import process_time

import numpy as np
from made_windows import Made

from trainscope.analysis.idle import find_idle
from trainscope.analysis.window_steps import find_steps
from trainscope.analysis.window_syncs import find_syncs
from trainscope.trace.window import Calls, GpuOps, Spans


def test_many_ops_on_thousands_of_streams_take_less_than_a_second_of_cpu_time() -> None:
    count, turns = 250_000, 100
    ids = np.arange(count)
    start = ids * 1000
    base = Made().launch(0, 1, 2).wait(3, 4).op("aten::mm", 3, 4).window()
    name = {text: place for place, text in enumerate(base.names)}
    per_step = count * 1000 // turns
    steps = np.arange(turns) * per_step
    window = replace(
        base,
        names=(*base.names, *(f"step {i}" for i in range(turns))),
        ranges=Spans.of(
            {
                "start_ns": steps,
                "end_ns": steps + per_step,
                "name_id": np.arange(turns) + len(base.names),
                "thread": steps * 0,
            }
        ),
        ops=Spans.of(
            {
                "start_ns": start,
                "end_ns": start + 400,
                "name_id": ids * 0 + name["aten::mm"],
                "thread": ids * 0,
            }
        ),
        calls=Calls.of(
            {
                "start_ns": np.concatenate([start, steps + per_step - 500]),
                "end_ns": np.concatenate([start + 5, steps + per_step - 10]),
                "thread": np.zeros(count + turns),
                "name_id": np.concatenate(
                    [ids * 0 + name["cudaLaunchKernel"], steps * 0 + name["cudaStreamSynchronize"]]
                ),
                "correlation": np.concatenate([ids, steps * 0 - 1]),
            }
        ),
        gpu=GpuOps.of(
            {
                "start_ns": start + 10,
                "end_ns": start + 700,
                "kind": ids * 0,
                "device": ids * 0,
                "stream": ids % 5000,
                "correlation": ids,
            }
        ),
    )
    found_steps = find_steps(window)
    syncs = find_syncs(window, found_steps)
    began_s = process_time()  # a busy machine is not our fault
    found = find_idle(window, found_steps, syncs)
    assert process_time() - began_s < 1
    assert found.busy_ns.sum() == count * 690
    assert len(syncs) == turns
