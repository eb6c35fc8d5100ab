"""Rows of the tables of an export that can be used, and how many cannot."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from trainscope.trace.nsys.database import NO_NUMBER, NOTHING, Database
from trainscope.trace.window import LONGEST_NS, Column

__all__ = ["LeftOut", "Names", "known", "process_of", "usable"]

_LIMIT_NS = 2**62
_NONE = 2**32 - 1
"""What CUPTI writes where there is no stream, event or call."""
_PROCESS_BITS = 24
UNKNOWN_NAME = "?"


@dataclass
class LeftOut:
    """Counts of what is not read."""

    malformed: int = 0
    bad_time: int = 0
    unended: int = 0
    crossing: int = 0
    odd_syncs: int = 0
    homeless: int = 0
    """Rows that do not say which of several processes they are of."""
    no_times: list[str] = field(default_factory=list)
    """Tables without the columns that make them of use."""


class Names:
    """Every name once, with its place; ids of the file's own list of strings are looked up."""

    def __init__(self, strings: Mapping[int, str]) -> None:
        self._strings = strings
        self._places: dict[str, int] = {}

    def place(self, name: str) -> int:
        """The place of a name, a new one for a new name."""
        return self._places.setdefault(name, len(self._places))

    def of_ids(self, ids: Column, clean: Callable[[str], str] = str) -> Column:
        """Places for ids of strings; names that the file does not hold are ``?``."""
        unique, inverse = np.unique(ids, return_inverse=True)
        texts = [self._strings.get(number, UNKNOWN_NAME) for number in unique.tolist()]
        places = [self.place(clean(text)) for text in texts]
        return np.array(places, dtype=np.int64)[inverse.reshape(-1)]

    def all(self) -> tuple[str, ...]:
        """The names by their places."""
        return tuple(self._places)


def usable(
    database: Database, table: str, optional: Sequence[str], left_out: LeftOut
) -> dict[str, Column] | None:
    """``start``, ``end`` and the optional columns of the rows that hold possible times.

    A column that is not there, and NULL, is -1. None where there is nothing to read.
    """
    columns = database.numbers(table, ["start", "end", *optional])
    if not columns or ("start" in columns and not len(columns["start"])):
        return None
    if not {"start", "end"} <= set(columns):
        left_out.no_times.append(table)
        return None
    start, end = columns["start"], columns["end"]
    no_number = np.any([column == NO_NUMBER for column in columns.values()], axis=0)
    malformed = no_number | (start == NOTHING) | (end == NOTHING)
    bad_time = ~malformed & ((start < 0) | (end < start) | (end >= _LIMIT_NS))
    bad_time |= ~malformed & ~bad_time & (end - start >= LONGEST_NS)
    left_out.malformed += int(malformed.sum())
    left_out.bad_time += int(bad_time.sum())
    good = ~malformed & ~bad_time
    found = {
        name: np.where(column == NOTHING, -1, column)[good] for name, column in columns.items()
    }
    absent = np.full(int(good.sum()), -1, dtype=np.int64)
    return {name: found.get(name, absent) for name in ("start", "end", *optional)}


def known(column: Column, *, least: int = 0) -> Column:
    """The column with -1 where CUPTI says that there is none, or a number is below ``least``."""
    return np.where((column < least) | (column == _NONE), -1, column)


def process_of(global_id: Column) -> Column:
    """What is the same for all ids of one process: all bits but the thread's; -1 where not known.

    A global id holds the machine, 24 bits of process id and 24 bits of thread id.
    """
    return np.where(global_id == -1, -1, global_id >> _PROCESS_BITS)
