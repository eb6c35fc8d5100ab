"""The pictures of a replay: what the CPU, its phases and the streams do in settled steps."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from trainscope.analysis.replay.drawing import Drawn
from trainscope.analysis.replay.what_if import WhatIf
from trainscope.analysis.window_steps import WindowSteps
from trainscope.analysis.window_syncs import WindowSync
from trainscope.report.page.names import (
    LONGEST_NAME,
    MAX_LANES,
    kind_of_phase,
    kinds_of_ops,
    names_of,
    names_of_ops,
    phase_rows,
)
from trainscope.report.page.timeline import Labels, Lane, Picture, lane_of
from trainscope.report.wording import range_name
from trainscope.trace.window import Column, Window

__all__ = ["ReplayPictures"]


class ReplayPictures:
    """Draws replays of one window with the same labels."""

    def __init__(
        self,
        window: Window,
        steps: WindowSteps,
        syncs: Sequence[WindowSync],
        replay: WhatIf,
        labels: Labels,
    ) -> None:
        self._window, self._lanes, self._labels = window, replay.lanes, labels
        self._places = {
            call: sync.site.place for sync in syncs for call in (sync.call, sync.copy_call)
        }
        self._step_of_op = steps.of_ops(window)
        self._phase_of_call = _phases_of_calls(window, steps)

    def picture(self, title: str, drawn: Drawn) -> Picture:
        """One replay: phases where the CPU's calls lie in any, CPU, and each stream with work."""
        lanes = [*self._phases(drawn), self._cpu(drawn)]
        devices = len({device for device, _ in self._lanes})
        for place, (device, stream) in enumerate(self._lanes[:MAX_LANES]):
            rows = np.flatnonzero(drawn.gpu_lane == place)
            if len(rows):
                name = f"GPU {device}, stream {stream}" if devices > 1 else f"stream {stream}"
                lanes.append(self._stream(name, drawn, rows))
        return Picture(title, "", drawn.length_ns, tuple(lanes), self._step_ends(drawn))

    def _cpu(self, drawn: Drawn) -> Lane:
        names, calls = self._window.names, self._window.calls
        called = [
            f"CPU, up to {names[int(calls.name_id[call])]}" if call >= 0 else "CPU"
            for call in drawn.cpu_call.tolist()
        ]
        waits = [f"waits: {self._places.get(call, '')}" for call in drawn.wait_call.tolist()]
        return lane_of(
            "CPU",
            np.concatenate((drawn.cpu_start_ns, drawn.wait_start_ns)),
            np.concatenate((drawn.cpu_end_ns, drawn.wait_end_ns)),
            ["op"] * len(called) + ["wait"] * len(waits),
            [text[:LONGEST_NAME] for text in (*called, *waits)],
            labels=self._labels,
            until_ns=drawn.length_ns,
        )

    def _phases(self, drawn: Drawn) -> list[Lane]:
        """Stretches of calls of one phase, their waits in them."""
        calls = np.concatenate((drawn.cpu_call, drawn.wait_call))
        start = np.concatenate((drawn.cpu_start_ns, drawn.wait_start_ns))
        end = np.concatenate((drawn.cpu_end_ns, drawn.wait_end_ns))
        known = calls >= 0
        if not known.any():
            return []
        order = np.argsort(start[known], kind="stable")
        row = self._phase_of_call[calls[known]][order]
        start, end = start[known][order], end[known][order]
        first = np.flatnonzero(np.diff(row, prepend=-2))
        last = np.append(first[1:], len(row)) - 1
        inside = row[first] >= 0
        first, last = first[inside], last[inside]
        if not len(first):
            return []
        names = names_of(self._window, self._window.ranges.name_id[row[first]])
        kinds = [kind_of_phase(name) for name in names]
        return [
            lane_of(
                "phases", start[first], end[last], kinds, map(range_name, names),
                labels=self._labels, until_ns=drawn.length_ns,
            )
        ]  # fmt: skip

    def _stream(self, name: str, drawn: Drawn, rows: Column) -> Lane:
        op = drawn.gpu_op[rows]
        return lane_of(
            name,
            drawn.gpu_start_ns[rows],
            drawn.gpu_end_ns[rows],
            kinds_of_ops(self._window, op),
            names_of_ops(self._window, op),
            labels=self._labels,
            until_ns=drawn.length_ns,
        )

    def _step_ends(self, drawn: Drawn) -> list[int]:
        """Where the fullest stream goes from one step to the next; others may be ahead of it."""
        if not len(drawn.gpu_lane):
            return []
        rows = np.flatnonzero(drawn.gpu_lane == np.argmax(np.bincount(drawn.gpu_lane)))
        rows = rows[self._step_of_op[drawn.gpu_op[rows]] >= 0]
        rows = rows[np.argsort(drawn.gpu_start_ns[rows], kind="stable")]
        last = np.diff(self._step_of_op[drawn.gpu_op[rows]], append=-1) != 0
        return drawn.gpu_end_ns[rows[last]].tolist()


def _phases_of_calls(window: Window, steps: WindowSteps) -> Column:
    """The row of the phase that each call lies in, on whichever thread; -1 for none."""
    rows = phase_rows(window, steps)
    starts, ends, at = (
        window.ranges.start_ns[rows],
        window.ranges.end_ns[rows],
        window.calls.start_ns,
    )
    if not len(rows):
        return np.full(len(at), -1, dtype=np.int64)
    place = np.searchsorted(starts, at, side="right") - 1
    inside = (place >= 0) & (at < ends[np.maximum(place, 0)])
    return np.where(inside, rows[np.maximum(place, 0)], -1)
