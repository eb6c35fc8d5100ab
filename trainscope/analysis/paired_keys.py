"""Which sync of one run is which of another's."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePosixPath

from trainscope.analysis.sync_keys import SyncKey

__all__ = ["paired_keys"]


def paired_keys(keys: Sequence[SyncKey], others: Sequence[SyncKey]) -> dict[SyncKey, int]:
    """Where in ``others`` each key stands; one that stands nowhere is left out.

    Each of ``others`` stands for one key. That of the same path is taken first, then the one whose
    path ends alike, for two runs may have been started in different directories, and on different
    systems. A notebook's cell may have got another number since.
    """
    by_words: dict[tuple[str, str, str], list[int]] = {}
    for place, other in enumerate(others):
        by_words.setdefault((other.function, other.source, other.kind), []).append(place)
    files = [_parts(other.file) for other in others]
    near: list[tuple[int, int, int]] = []
    for number, key in enumerate(keys):
        file = _parts(key.file)
        for place in by_words.get((key.function, key.source, key.kind), ()):
            alike = _alike(files[place], file)
            if alike:
                near.append((-alike, number, place))
    found: dict[SyncKey, int] = {}
    taken: set[int] = set()
    for _, number, place in sorted(near):
        if keys[number] not in found and place not in taken:
            found[keys[number]] = place
            taken.add(place)
    return found


def _parts(file: str) -> tuple[str, ...]:
    return PurePosixPath(file.replace("\\", "/")).parts


def _alike(one: tuple[str, ...], other: tuple[str, ...]) -> int:
    """How near two paths are to be one file's: 0 is not at all, the same path is nearest."""
    if one == other:
        return len(one) + 1
    if _is_cell(one) and _is_cell(other):
        return 1
    shorter = min(len(one), len(other))
    return shorter if one[len(one) - shorter :] == other[len(other) - shorter :] else 0


def _is_cell(file: tuple[str, ...]) -> bool:
    return len(file) == 1 and re.fullmatch(r"In\[\d+\]", file[0]) is not None
