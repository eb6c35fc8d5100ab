"""Numbers that nsys gives to kinds of copies, memories and waits, as a window has them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from trainscope.trace.nsys.database import Database
from trainscope.trace.nsys.rows import Names
from trainscope.trace.window import Column, CopyKind, Memory, SyncKind

__all__ = ["Copies", "sync_kinds"]

_SYNCS = {
    "EVENT_SYNCHRONIZE": SyncKind.EVENT,
    "STREAM_WAIT_EVENT": SyncKind.STREAM_WAIT,
    "STREAM_SYNCHRONIZE": SyncKind.STREAM,
    "CONTEXT_SYNCHRONIZE": SyncKind.DEVICE,
}
_CUPTI_SYNCS = dict(enumerate(_SYNCS, start=1))
"""CUPTI's own numbers, for exports that have no list of them."""

_COPIES = {
    **dict.fromkeys(("HTOD", "HTOA"), CopyKind.H2D),
    **dict.fromkeys(("DTOH", "ATOH"), CopyKind.D2H),
    **dict.fromkeys(("DTOD", "DTOA", "ATOD", "ATOA"), CopyKind.D2D),
    "PTOP": CopyKind.PEER,
}
_CUPTI_COPIES = {
    **dict(enumerate(("HTOD", "DTOH", "HTOA", "ATOH", "ATOA", "ATOD", "DTOA", "DTOD"), start=1)),
    **{9: "HTOH", 10: "PTOP"},
}
_WORDS = {"HTOD": "HtoD", "DTOH": "DtoH", "DTOD": "DtoD", "PTOP": "PtoP", "HTOH": "HtoH"}
_MEMORIES = {"PAGEABLE": Memory.PAGEABLE, "PINNED": Memory.PINNED}


def sync_kinds(database: Database, types: Column) -> Column:
    """The ``SyncKind`` of each number; -1 for one that is not known."""
    named = _named(database, "ENUM_CUPTI_SYNC_TYPE", "_TYPE_") or _CUPTI_SYNCS
    return _looked_up({number: _SYNCS.get(name, -1) for number, name in named.items()}, types)


class Copies:
    """Kinds of copies and of the memory on the host's side, and names as torch.profiler has them.

    Without the list of memories in the file they are not known: nsys numbers them its own way.
    """

    def __init__(self, database: Database) -> None:
        copies = _named(database, "ENUM_CUDA_MEMCPY_OPER", "_KIND_") or _CUPTI_COPIES
        self._copies = {number: name.removeprefix("UVM_") for number, name in copies.items()}
        self._unified = {number for number, name in copies.items() if name.startswith("UVM_")}
        self._memories = _named(database, "ENUM_CUDA_MEM_KIND", "_KIND_")

    def columns(
        self, names: Names, kind: Column, source: Column, target: Column
    ) -> tuple[Column, Column, Column]:
        """``name_id``, ``copy_kind`` and ``host_memory``."""
        unique, inverse = np.unique(
            np.stack([kind, source, target], axis=1), axis=0, return_inverse=True
        )
        found = [self._one(names, *row) for row in unique.tolist()]
        table = np.array(found, dtype=np.int64).reshape(-1, 3)[inverse.reshape(-1)]
        return table[:, 0], table[:, 1], table[:, 2]

    def memset_name(self, names: Names, memory: Column) -> Column:
        """``name_id`` of memsets."""
        unique, inverse = np.unique(memory, return_inverse=True)
        words = [self._words(number) or "Device" for number in unique.tolist()]
        places = [names.place(f"Memset ({word})") for word in words]
        return np.array(places, dtype=np.int64)[inverse.reshape(-1)]

    def _one(self, names: Names, kind: int, source: int, target: int) -> tuple[int, int, int]:
        direction = self._copies.get(kind, "")
        copy = _COPIES.get(direction, CopyKind.UNKNOWN)
        name = f"Memcpy {_WORDS.get(direction, direction)}".strip()
        if kind in self._unified:
            name = f"Unified memory {_WORDS.get(direction, direction)}"
        ends = self._words(source), self._words(target)
        if all(ends):
            name += f" ({ends[0]} -> {ends[1]})"
        if copy in (CopyKind.D2D, CopyKind.PEER):
            return names.place(name), int(copy), -1
        host = source if copy is CopyKind.H2D else target
        memory = _MEMORIES.get(self._memories.get(host, ""), Memory.UNKNOWN)
        return names.place(name), int(copy), int(memory)

    def _words(self, memory: int) -> str:
        return self._memories.get(memory, "").replace("_", " ").capitalize()


def _named(database: Database, table: str, before: str) -> dict[int, str]:
    """The ends of the names in one of the file's lists of kinds, by number."""
    found = database.names(table, "id", "name")
    return {number: name.rpartition(before)[2].upper() for number, name in found.items()}


def _looked_up(meaning: Mapping[int, int], numbers: Column) -> Column:
    unique, inverse = np.unique(numbers, return_inverse=True)
    found = [int(meaning.get(number, -1)) for number in unique.tolist()]
    return np.array(found, dtype=np.int64)[inverse.reshape(-1)]
