"""``Program``: the recorded steps as what the CPU did in order, and what each call put on the GPU.

The loop's thread and autograd's take turns (one waits while the other works), so together they are
one list of items. An item is some CPU time and then, mostly, one call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Literal

from trainscope.analysis.window_site import WindowSite

__all__ = ["Act", "Item", "Program", "Workers"]

Workers = Literal["none", "lead", "follow"]


class Act(IntEnum):
    """What an item does after its CPU time."""

    NONE = 0
    LAUNCH = 1
    """Puts an op, or a replayed graph as one block, into a stream."""
    WAIT = 2
    """Waits until a stream, an event or the device is done."""
    RECORD = 3
    """Notes how far a stream has been filled: an event."""
    STREAM_WAIT = 4
    """Lets a stream wait for an event."""
    STREAM_WAITS_FOR_STREAM = 5
    """Lets all other streams wait for one: what a removed stream sync still means."""
    ARRIVE = 6
    """Waits for a batch of a loader's workers, which comes ``length_ns`` after the one before."""
    PASS = 7
    """Time of the loader's workers goes on by ``length_ns``."""


ALL_LANES = -1


@dataclass(frozen=True, slots=True)
class Item:
    """CPU time, then one act.

    Of the CPU time ``fixed_ns`` is the program's own (sleep, computation) and ``cpu_ns`` was spent
    between ``boundaries`` beginnings and ends of recorded events, each of which cost the profiler
    some time.
    """

    cpu_ns: float
    boundaries: float
    fixed_ns: float = 0.0
    backward: bool = False
    """On autograd's thread, which profiling may slow more or less than the loop's."""
    call_ns: float = 0.0
    """Of ``cpu_ns`` what the call itself took, where it goes with the sync."""
    act: Act = Act.NONE
    lane: int = ALL_LANES
    """Place of the stream in ``Program.lanes``: launched into, waited for, or made to wait."""
    length_ns: float = 0.0
    inner_gap_ns: float = 0.0
    """Of that, time between the kernels of a replayed graph, where a profiler's cost falls."""
    rank_wait_ns: float = 0.0
    """Of that, how much longer a collective took than its like in another step."""
    gap_ns: float = 0.0
    """Between the end of the op before it on the stream and its own start, where it queued."""
    latency_ns: float = 0.0
    """From the end of the launching call to the start of the op on an idle stream."""
    also: tuple[int, ...] = ()
    """Further streams that a replayed graph fills; those of the device that is waited for."""
    event: int = -1
    """The call that recorded the event which is recorded or waited for."""
    wake_ns: float = 0.0
    """From the end of what is waited for until the CPU goes on."""
    site: int = -1
    """Place in ``Program.sites`` of the sync whose wait it is, or whose copy."""
    within: int = -1
    """Place of the sync whose operator it belongs to: goes when that is removed."""
    is_copy: bool = False
    """A copy between host and device whose length would be another with pinned memory."""
    bytes: int = 0
    call: int = -1
    """Row in ``Window.calls``."""
    op: int = -1
    """Row in ``Window.gpu``."""


@dataclass(frozen=True)
class Program:
    """The items of all recorded steps, one after the other."""

    items: tuple[Item, ...]
    steps: int
    lanes: tuple[tuple[int, int], ...]
    """Device and stream of each lane."""
    sites: tuple[WindowSite, ...]
    recorded_ns: int
    """How long the steps took together, as recorded, without what lies between them."""
    gpu_ns: int
    """GPU work of these steps in the busiest lane, without ``rank_wait_ns``."""
    backlog_ns: tuple[float, ...] = ()
    """For each lane, how long after the first step's beginning it was busy with earlier work."""
    pinned_bytes_per_ns: float = 25.0
    """Rate of a copy between pinned memory and the GPU."""
    rate_seen: bool = False
    """Whether that rate was seen in the trace; else it is assumed."""
    source: str = "torch.profiler"
    """What recorded the window: each profiler slows the CPU by its own measure."""
    unresolved: int = 0
    """Waits of streams for events of which it is not known what they wait for."""
    guessed: int = 0
    """Those of which only the order of calls and the times on the GPU tell it."""
    workers: Workers = "none"
    """Whether the loop mostly waits for a DataLoader's workers, or they for it."""
    unfollowed_ns: int = 0
    """GPU time, in one lane, of work that other threads enqueued or that no call is known of."""

    collectives: int = 0
    """Of all steps."""
    late_share: float = 0.0
    """Of the kernels that no work of this process held up, those that began late all the same."""

    def paced(self, share: float) -> Program:
        """The same with batches of a loader's workers coming faster or slower."""
        return self.with_items(
            [
                replace(item, length_ns=item.length_ns * share)
                if item.act in (Act.ARRIVE, Act.PASS)
                else item
                for item in self.items
            ]
        )

    def with_items(self, items: Sequence[Item]) -> Program:
        """The same steps with other items."""
        return replace(self, items=tuple(items))
