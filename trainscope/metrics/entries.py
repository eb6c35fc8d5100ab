"""From what a ``log`` call left behind to records, many at a time.

It runs beside the user's loop and takes the interpreter from it, so the work is done by columns:
one name's values of all calls at once, by functions that loop in C.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import repeat
from typing import Any

from trainscope.metrics.split import Layout, Source
from trainscope.trace.metrics import MetricRecord

__all__ = ["Entry", "records_of"]

Entry = tuple[int, int, Layout, Sequence[float | int], Sequence[int]]
"""One ``log`` call: step, when by ``perf_counter_ns``, how its values lie, the numbers among them,
and for each group of tensors the first of the rows where their values will arrive.

A plain tuple, because anything with named fields takes longer to make, on the loop's thread.
"""


def records_of(
    entries: Sequence[Entry], arrived: Mapping[Source, Sequence[Any]], unix_ns_at_0: int
) -> list[MetricRecord]:
    """The records of the calls, in their order.

    ``arrived`` holds the rows for each source, ``unix_ns_at_0`` the time when ``perf_counter_ns``
    was 0.
    """
    first = entries[0][2]
    layouts = [entry[2] for entry in entries]
    if layouts.count(first) == len(layouts):  # most often: a loop has one call
        return _alike(entries, first, arrived, unix_ns_at_0)
    found: dict[Layout, list[int]] = {}
    for place, layout in enumerate(layouts):
        found.setdefault(layout, []).append(place)
    records: dict[int, MetricRecord] = {}
    for layout, places in found.items():
        some = [entries[place] for place in places]
        records.update(zip(places, _alike(some, layout, arrived, unix_ns_at_0), strict=True))
    return [records[place] for place in range(len(entries))]


def _alike(
    entries: Sequence[Entry],
    layout: Layout,
    arrived: Mapping[Source, Sequence[Any]],
    unix_ns_at_0: int,
) -> list[MetricRecord]:
    """The records of calls of one layout."""
    steps, logged_ns, _layouts, numbers, first_rows = zip(*entries, strict=True)
    columns: list[Sequence[Any]] = [*zip(*numbers, strict=True)]
    for group, firsts in zip(layout.groups, zip(*first_rows, strict=True), strict=True):
        rows = arrived[group.source]
        columns += [[rows[first + place] for first in firsts] for place in range(group.count)]
    if layout.in_order is not None:
        columns = [*layout.in_order(columns)]
    # as strict zips they would take a fifth longer
    values = map(dict, map(zip, repeat(layout.names), zip(*columns)))  # noqa: B905
    made = zip(steps, map(unix_ns_at_0.__add__, logged_ns), values)  # noqa: B905
    return [*map(tuple.__new__, repeat(MetricRecord), made)]
