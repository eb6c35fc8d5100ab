"""Syncs of a window: each wait of a CPU thread, with its kind and its place in the user's code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from trainscope.analysis.live_sites import join_live_sites, with_lines
from trainscope.analysis.noted_sites import LiveRecord, TimedWaits, lines_of_waits
from trainscope.analysis.wait_calls import WaitCall
from trainscope.analysis.wait_places import places_of_waits
from trainscope.analysis.waits import Waits, find_waits
from trainscope.analysis.window_site import WindowSite
from trainscope.analysis.window_steps import WindowSteps
from trainscope.trace.syncs import SyncSite
from trainscope.trace.window import Window

__all__ = ["WindowSync", "by_site", "find_syncs"]


@dataclass(frozen=True)
class WindowSync:
    """One wait of a CPU thread."""

    start_ns: int
    """Of the copy that is waited for, where the wait has one of its own, else of the call."""
    end_ns: int
    kind: str
    """A name of ``trainscope.catalogue.kinds``."""
    site: WindowSite
    """One object for all waits of a site."""
    step: int
    """A place in the steps; -1 outside them."""
    thread: int
    blocked: bool
    """False for one that returned at once: the GPU had finished what it waits for."""
    call: int
    """Row of the waiting call in ``Window.calls``."""
    copy_call: int
    """Row of the call of the copy that it waits for; -1 for none."""
    copy_op: int
    """Row of that copy in ``Window.gpu``; -1 for none."""
    device: int
    """-1 where it is not known."""
    stream: int
    """The stream waited for; -1 for all of the device, or where it is not known."""
    operator: int
    """Row of the innermost operator around it in ``Window.ops``; -1 for none."""

    @property
    def blocked_ns(self) -> int:
        """How long it held the CPU; 0 for one that returned at once."""
        return self.end_ns - self.start_ns if self.blocked else 0


def find_syncs(
    window: Window,
    steps: WindowSteps,
    live_sites: Sequence[SyncSite] = (),
    record: LiveRecord | None = None,
) -> tuple[WindowSync, ...]:
    """Every wait in time order, the profiler's own closing one left out.

    ``live_sites`` are those that the detector saw in the run that the window is of, ``record`` what
    it noted of single waits. A wait takes file and line from the noted one at its time, else from
    a live site where only that one can be meant.
    """
    waits = find_waits(window)
    step = steps.at(waits.start_ns)
    keep = np.ones(len(waits), dtype=bool)
    closing = _closing_wait(window, waits, step, steps)
    if closing >= 0:
        keep[closing] = False
    rows = np.flatnonzero(keep)
    sites = places_of_waits(window, steps, waits, rows, step)
    timed = TimedWaits(
        waits.start_ns[rows],
        waits.end_ns[rows],
        [site.kind for site in sites],
        [site.thread for site in sites],
    )
    sites = with_lines(sites, lines_of_waits(timed, steps, record or LiveRecord()), live_sites)
    sites = _joined(sites, step[rows], steps, live_sites)
    return tuple(
        WindowSync(
            start_ns=int(waits.start_ns[row]),
            end_ns=int(waits.end_ns[row]),
            kind=site.kind,
            site=site,
            step=int(step[row]),
            thread=int(waits.thread[row]),
            blocked=bool(waits.blocked[row]),
            call=int(waits.call[row]),
            copy_call=int(waits.copy_call[row]),
            copy_op=int(waits.copy_op[row]),
            device=int(waits.device[row]),
            stream=int(waits.stream[row]),
            operator=int(waits.inside[row]),
        )
        for row, site in zip(rows, sites, strict=True)
    )


def by_site(syncs: Sequence[WindowSync]) -> dict[WindowSite, tuple[WindowSync, ...]]:
    """The waits of each site, the site that blocked longest first."""
    found: dict[WindowSite, list[WindowSync]] = {}
    for sync in syncs:
        found.setdefault(sync.site, []).append(sync)
    order = sorted(found, key=lambda site: -sum(sync.blocked_ns for sync in found[site]))
    return {site: tuple(found[site]) for site in order}


def _closing_wait(window: Window, waits: Waits, step: np.ndarray, steps: WindowSteps) -> int:
    """The device sync with which a profiler ends its recording; -1 for none.

    The last call but waits of its kind of the window, outside every step, operator and range.
    """
    if not len(waits) or not len(window.calls):
        return -1
    last = int(np.argmax(waits.start_ns))
    after_all = waits.start_ns[last] >= int(window.calls.start_ns[-1])
    if waits.wait_call[last] != WaitCall.DEVICE or step[last] >= 0 or not after_all:
        return -1
    if waits.inside[last] >= 0 or (window.source != "torch.profiler" and not len(steps)):
        return -1
    ranges = window.ranges
    around = (ranges.thread == waits.thread[last]) & (ranges.start_ns <= waits.start_ns[last])
    around &= ranges.end_ns >= waits.end_ns[last]
    if around.any() and len(steps) == 0:
        return -1
    return last


def _joined(
    sites: Sequence[WindowSite],
    step: np.ndarray,
    steps: WindowSteps,
    live_sites: Sequence[SyncSite],
) -> list[WindowSite]:
    """The sites with their counts a step, and with the live site that each of them is."""
    seen: dict[WindowSite, list[int]] = {}
    for site, of in zip(sites, step.tolist(), strict=True):
        seen.setdefault(site, []).extend([of] if of >= 0 else [])
    counted = {
        site: replace(
            site,
            per_step=len(of) / len(steps) if len(steps) else None,
            per_seen_step=len(of) / len(set(of)) if of else None,
        )
        for site, of in seen.items()
    }
    found = join_live_sites(tuple(counted.values()), live_sites)
    return [found[counted[site]] for site in sites]
