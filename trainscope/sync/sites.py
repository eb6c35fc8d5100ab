"""The table of sync sites: bounded, filled from any thread, read as frozen `SyncSite` records."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from types import FrameType
from typing import Any, NamedTuple

from trainscope.sync.blame import blame
from trainscope.sync.site_counts import SiteCounts, file_and_line
from trainscope.trace.syncs import SyncSite

__all__ = ["MAX_FOLLOWED", "MAX_SITES", "Sites"]

MAX_SITES = 4096
"""More sites than any program has on purpose; beyond them only a count is kept."""
MAX_FOLLOWED = 4096
"""Places of the set-up kept apart for `claim`; of more than these, the oldest stay set-up."""


class _Key(NamedTuple):
    """What makes two waits one site."""

    kind: str
    where: tuple[str, int, str] | None
    phase: str | None
    thread: str
    during: str
    allowed: str | None


Locate = Callable[[FrameType | None], Hashable]


class Sites:
    """Counts waits by site; `record` is the hot path, `snapshot` and `races` read."""

    def __init__(self) -> None:
        # Re-entrant: a collection inside `record` may run user code that waits in turn.
        self._lock = threading.RLock()
        self._counts: dict[_Key, SiteCounts] = {}
        self._locate: Locate | None = None
        self._followed: dict[tuple[_Key, Hashable], SiteCounts] = {}
        self._followed_keys: dict[_Key, int] = {}
        self._claimed: dict[_Key, SiteCounts] = {}
        self.overflow = 0
        """Waits at sites beyond `MAX_SITES`."""

    def record(
        self,
        kind: str,
        frame: FrameType | None,
        *,
        phase: str | None,
        thread: str,
        during: str,
        allowed: str | None = None,
        blocked_ns: int | None = None,
        internal: bool = False,
        step: int | None = None,
    ) -> bool:
        """Count one wait seen at `frame`, the innermost one; return whether its site is new.

        `kind` is a name of `KINDS` or ``"race"``, `blocked_ns` None when it was not timed,
        `internal` true for one call that makes many reads.
        """
        blamed = blame(frame)
        user = blamed.user
        where = None if user is None else _where(user)
        key = _Key(kind, where, phase, thread, during, allowed)
        locate = self._locate if during == "setup" and thread == "main" else None
        place = None if locate is None else locate(frame)
        with self._lock:
            counts = self._counts.get(key) if place is None else self._followed.get((key, place))
            new = counts is None and not self._knows(key)
            if counts is None:
                if len(self._counts) >= MAX_SITES:
                    self.overflow += 1
                    return False
                counts = SiteCounts(kind, user, phase, thread, during, allowed)
                if place is None:
                    self._counts[key] = counts
                else:
                    self._follow(key, place, counts)
            counts.add(blamed.caller, blamed.via, blocked_ns, internal, step)
        return new

    # ---- the set-up, of which a part may turn out to have been training ---------------------
    def follow(self, locate: Locate) -> None:
        """Keep the set-up's waits on the loop's thread apart by ``locate(frame)``, till `claim`."""
        self._locate = locate

    def claim(self, belongs: Callable[[Any], bool]) -> None:
        """Count as training's the waits of the set-up from places that ``belongs`` is true of."""
        with self._lock:
            followed, self._followed, self._locate = self._followed, {}, None
            self._followed_keys.clear()
            for (key, place), counts in followed.items():
                if belongs(place):
                    counts.during = "training"
                    self._put(self._claimed, key._replace(during="training"), counts)
                else:
                    self._put(self._counts, key, counts)
            for counts in self._claimed.values():
                counts.steps = 1  # all from the first turn, however many places of a line waited

    def _follow(self, key: _Key, place: Hashable, counts: SiteCounts) -> None:
        keys = self._followed_keys
        if len(self._followed) >= MAX_FOLLOWED:
            oldest = next(iter(self._followed))
            self._put(self._counts, oldest[0], self._followed.pop(oldest))
            keys[oldest[0]] -= 1
            if not keys[oldest[0]]:
                del keys[oldest[0]]
        self._followed[(key, place)] = counts
        keys[key] = keys.get(key, 0) + 1

    def _knows(self, key: _Key) -> bool:
        return key in self._counts or key in self._followed_keys

    @staticmethod
    def _put(table: dict[_Key, SiteCounts], key: _Key, earlier: SiteCounts) -> None:
        counts = table.get(key)
        table[key] = earlier if counts is None else counts.after(earlier)

    # ---- reading ------------------------------------------------------------------------------
    def snapshot(self) -> tuple[SyncSite, ...]:
        """Return the sync sites so far, most frequent first, then by file and line."""
        return tuple(site for site in self._read() if site.kind != "race")

    def races(self) -> tuple[SyncSite, ...]:
        """Return the reads of a value whose copy may not have landed."""
        return tuple(site for site in self._read() if site.kind == "race")

    def _read(self) -> list[SyncSite]:
        with self._lock:
            table = dict(self._counts)
            for (key, _place), counts in self._followed.items():
                self._put(table, key, counts)
            for key, counts in self._claimed.items():
                self._put(table, _usual(key, table), counts)
            sites = [counts.frozen() for counts in table.values()]
        return sorted(sites, key=lambda site: (-site.count, site.file, site.line))


def _usual(key: _Key, table: dict[_Key, SiteCounts]) -> _Key:
    """Return the key of the same waits in later turns, which may have run in a phase by then."""
    if key in table:
        return key
    alike = [each for each in table if each == key._replace(phase=each.phase)]
    return max(alike, key=lambda each: table[each].count, default=key)


def _where(frame: FrameType) -> tuple[str, int, str]:
    code = frame.f_code
    name = code.co_filename
    if name.startswith("<timed"):  # the code of every ``%%time`` is called so
        name, _ = file_and_line(code, 0)
    return name, frame.f_lineno or 0, code.co_name
