"""What is left of a program when some of its syncs are gone, and what stands in their place."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from trainscope.analysis.replay.program import ALL_LANES, Act, Item, Program

__all__ = ["replaced_by", "without"]

_READS = ("item", "item-implicit", "bool", "int", "float", "index", "format", "repr", "tolist")
_SIZES = ("nonzero", "size-readback")
_BOUNDARIES_OF_CALL = 2.0
_TO_HOST = ("cpu", "numpy", "d2h", "d2h-nonblocking-pageable")
_TO_DEVICE = ("h2d-pageable", "h2d-pinned", "h2d-nonblocking-pageable", "h2d-list", "h2d-scalar")


def without(program: Program, sites: Collection[int]) -> Program:
    """The program without the syncs at the places ``sites`` of ``Program.sites``."""
    gone = frozenset(sites)
    items: list[Item] = []
    for item in program.items:
        if item.within in gone and item.act != Act.LAUNCH:
            continue  # an operator that only read the value
        if item.within in gone and item.site in gone:
            continue  # its copy
        if item.site not in gone:
            items.append(item)
            continue
        kind = program.sites[item.site].kind
        items.append(_freed(item, kind, program.pinned_bytes_per_ns))
    return program.with_items(items)


def _freed(item: Item, kind: str, pinned_bytes_per_ns: float) -> Item:
    """One item of a removed sync."""
    if item.act == Act.LAUNCH:
        if item.bytes <= 0 or kind in _READS:
            return item
        if kind in _SIZES:
            return _without_call(item)  # nothing has to be copied for a size that is known
        length_ns = item.bytes / pinned_bytes_per_ns
        if item.length_ns <= length_ns:
            return item
        return replace(item, length_ns=length_ns, is_copy=True)
    if item.act == Act.WAIT:
        if item.lane != ALL_LANES and kind == "stream":
            return replace(item, act=Act.STREAM_WAITS_FOR_STREAM, wake_ns=0.0)
        return _without_call(item)
    return item


def _without_call(item: Item) -> Item:
    """Only the CPU time that leads up to a call."""
    return replace(
        item,
        cpu_ns=item.cpu_ns - item.call_ns,
        boundaries=max(item.boundaries - (_BOUNDARIES_OF_CALL if item.call_ns else 0.0), 0.0),
        call_ns=0.0,
        act=Act.NONE,
        wake_ns=0.0,
    )


def replaced_by(kind: str) -> str:
    """What stands in the place of a removed sync of a kind, in words."""
    if kind in _READS:
        return "nothing: the value stays on the GPU, and its copy is gone"
    if kind in _TO_HOST:
        return "a copy into pinned memory that nobody waits for"
    if kind in _TO_DEVICE:
        return "a non_blocking copy from pinned memory"
    if kind in _SIZES:
        return "the same work with a size that is known"
    if kind == "stream":
        return "a wait of the other streams on the GPU"
    if kind == "event":
        return "nothing: the CPU does not wait for the event"
    return "nothing: the CPU goes on (what the wait may have guarded is not looked at)"
