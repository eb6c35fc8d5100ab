"""``Timeline``: what the page draws of a step, as lanes of coloured spans."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from trainscope.trace.window import Column

__all__ = [
    "IDLE_KINDS",
    "MAX_SPANS",
    "SPAN_KINDS",
    "Labels",
    "Lane",
    "Picture",
    "Timeline",
    "depth_lane",
    "lane_of",
]

IDLE_KINDS = ("sync", "launch", "data", "copy", "communication", "other")
"""Why the GPU is idle; as kinds of spans ``idle sync`` and so on."""
SPAN_KINDS = (
    *("data", "h2d", "forward", "backward", "optimizer", "phase"),
    *("op", "call", "wait"),
    *("kernel", "copy", "set", "collective"),
    *(f"idle {cause}" for cause in IDLE_KINDS),
    "queue",
)
"""What a span is; each has a colour."""
MAX_SPANS = 6000
"""Spans in a lane; of more the longest are drawn, for the page must stay small."""


@dataclass(frozen=True)
class Lane:
    """Spans of one thread, stream or device, in time order; those of a lane do not overlap."""

    name: str
    start_ns: list[int]
    """From the picture's beginning."""
    length_ns: list[int]
    kind: list[int]
    """Places in ``SPAN_KINDS``."""
    label: list[int]
    """Places in ``Timeline.labels``."""
    height: list[int] | None = None
    """Of each in percent of the lane; None where all are as high as it."""


@dataclass(frozen=True)
class Picture:
    """One stretch of time."""

    title: str
    note: str
    length_ns: int
    lanes: tuple[Lane, ...]
    step_ends_ns: list[int]
    """Where its steps end: the last op of each, or as recorded the next one's begin."""


@dataclass(frozen=True)
class Timeline:
    """Pictures on one scale, the recorded one first."""

    labels: tuple[str, ...]
    pictures: tuple[Picture, ...]
    kinds: tuple[str, ...] = SPAN_KINDS


class Labels:
    """A table of texts, each once."""

    def __init__(self) -> None:
        self._places: dict[str, int] = {}

    def place(self, text: str) -> int:
        """Where ``text`` stands in the table."""
        return self._places.setdefault(text, len(self._places))

    def all(self) -> tuple[str, ...]:
        """The table."""
        return tuple(self._places)


def lane_of(
    name: str,
    start_ns: Column,
    end_ns: Column,
    kinds: Iterable[str],
    texts: Iterable[str],
    *,
    labels: Labels,
    until_ns: int,
) -> Lane:
    """A lane of spans in time order, cut to [0, ``until_ns``]; overlaps are cut at the next start.

    Of more than ``MAX_SPANS`` the longest are kept.
    """
    known = {kind: place for place, kind in enumerate(SPAN_KINDS)}
    kind = np.array([known[each] for each in kinds], dtype=np.int64)
    label = np.array([labels.place(text) for text in texts], dtype=np.int64)
    start = np.clip(start_ns, 0, until_ns)
    end = np.clip(end_ns, 0, until_ns)
    order = np.argsort(start, kind="stable")
    start, end, kind, label = start[order], end[order], kind[order], label[order]
    if len(start):
        end = np.minimum(end, np.append(start[1:], until_ns))
    keep = end > start
    start, end, kind, label = start[keep], end[keep], kind[keep], label[keep]
    if len(start) > MAX_SPANS:
        longest = np.sort(np.argpartition(-(end - start), MAX_SPANS)[:MAX_SPANS])
        start, end, kind, label = start[longest], end[longest], kind[longest], label[longest]
    return Lane(name, start.tolist(), (end - start).tolist(), kind.tolist(), label.tolist())


def depth_lane(
    name: str, time_ns: Column, depth: Column, *, labels: Labels, until_ns: int
) -> Lane | None:
    """A lane of how many ops wait from each moment on, as high as many of the deepest queue.

    None where none ever waits.
    """
    deepest = int(depth.max(initial=0))
    if not deepest:
        return None
    waiting = np.flatnonzero(depth > 0)
    texts = [f"{count:,} queued" for count in depth[waiting].tolist()]
    ends = np.append(time_ns[1:], until_ns)[waiting]
    lane = lane_of(
        f"{name} (most {deepest:,})", time_ns[waiting], ends, ["queue"] * len(waiting), texts,
        labels=labels, until_ns=until_ns,
    )  # fmt: skip
    high = {
        labels.place(text): int(count) for text, count in zip(texts, depth[waiting], strict=True)
    }
    return replace(lane, height=[max(100 * high[each] // deepest, 4) for each in lane.label])
