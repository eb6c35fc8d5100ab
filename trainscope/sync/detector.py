"""The detector: which lines of the user's code wait for the GPU, and for how long."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Hashable
from contextlib import AbstractContextManager
from types import FrameType, TracebackType
from typing import Any

from trainscope.errors import ConfigError
from trainscope.sync.armed import RAISES, Armed
from trainscope.sync.armed_steps import ArmedSteps
from trainscope.sync.cuda_present import cuda_present
from trainscope.sync.live import Live
from trainscope.sync.loop import LoopState
from trainscope.sync.messages import sync_error, warn_sync
from trainscope.sync.noted import NotedWaits
from trainscope.sync.observer import NOT_FOR_USERS
from trainscope.sync.place import place
from trainscope.sync.process import DRY, LIVE
from trainscope.sync.sites import Sites
from trainscope.trace.syncs import DetectorState, SyncSite

__all__ = ["MODES", "SyncDetector"]

__tracebackhide__ = NOT_FOR_USERS

MODES = ("record", "warn", "error", "off")

_ASKED_EACH_STEP = 32
"""Steps in a row without a change of the warnings filters, from which on not each step asks."""
_ASKED_LATER = 8
"""Then each so many steps; a change makes each step ask again."""


class SyncDetector:
    """Records every wait for the GPU by site while it is started; also a context manager.

    `mode`: ``record`` counts; ``warn`` also warns at the user's line, once a line and kind, of
    waits after the set-up; ``error`` also raises `SyncError` at each wait of the loop's thread that
    `allow_sync` does not permit, after the wait, within steps where a `loop` is given; ``off``
    installs nothing.
    `dry_run`: find the waits that a GPU would cause, on a machine without one; None: where there
    is no GPU. `loop`: where the loop is; one of its own if None. Raises `ConfigError`.
    """

    def __init__(
        self, mode: str = "record", *, dry_run: bool | None = None, loop: LoopState | None = None
    ) -> None:
        if mode not in MODES:
            raise ConfigError(f"mode={mode!r} is not one of {', '.join(MODES)}")
        self.mode = mode
        self.dry_run = dry_run if dry_run is not None else mode != "off" and not cuda_present()
        self.loop = LoopState() if loop is None else loop
        self._steps_only = loop is not None
        if loop is None:  # by itself, all that it watches counts as the loop
            self.loop.started, self.loop.check_inside = True, _everywhere
        self._installation = DRY if self.dry_run else LIVE
        self._sites = Sites()
        self._warned: dict[Any, Any] = {}
        self._steps = ArmedSteps()
        self._armed: Armed | None = None
        self._started = False
        self._fault: Exception | None = None
        self._version: object = None
        self._changed_steps = 0
        self._unchanged = 0
        self._unasked = 0
        self._ask_every = 1
        self._asked_all = True
        self._source_blind: tuple[str, ...] = ()
        self._able = False
        self.noted: NotedWaits | None = None
        """Where to note single waits with their times; None outside captured windows."""

    # ---- while it looks -----------------------------------------------------------------------
    def start(self) -> None:
        """Begin to see waits; does nothing when started."""
        if self._started or self.mode == "off" or self._fault is not None:
            return
        self._started = True
        self._installation.add(self)
        live = self._live()
        self._armed = None if live is None else live.armed
        self._able = live is None or live.armed.available
        if live is not None:
            live.armed.repair()  # it may have been armed before, and covered since
            self._version = live.armed.version()

    def stop(self) -> None:
        """Stop seeing waits and take everything out again; does nothing when stopped."""
        if not self._started:
            return
        live = self._live()
        # the last steps are asked about, whatever their number
        self._steps.end(None if live is None else self._asked(live.armed))
        self._source_blind = self._blind()
        self._installation.remove(self)
        self._started = False  # last: an interrupted stop can be done again

    def __enter__(self) -> SyncDetector:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def begin_step(self, step: int) -> None:
        """Check, as step number `step` begins, that the detector is still whole; repair it."""
        if not self._started:
            return
        steps, armed = self._steps, self._armed
        hidden = None
        if armed is not None:
            self._unasked += 1
            filters = warnings.filters
            # a question takes half of what all else takes here: after many steps without a change
            # not each step asks; and `armed.untouched` is written out
            if (
                self._unasked >= self._ask_every
                or not filters
                or filters[0] is not armed.entry
                or armed.wished == RAISES
            ):
                hidden = self._asked(armed)
        if hidden is None and steps.running is not None:  # `steps.begin`, in most steps all of it
            steps.running = step
            steps.count += 1
        else:
            steps.begin(step, hidden)

    def drop_step(self) -> None:
        """Forget the step that was begun last: there was nothing in it."""
        self._steps.running = None

    def _live(self) -> Live | None:
        source = self._installation.source
        return source if isinstance(source, Live) else None

    def _asked(self, armed: Armed) -> str | None:
        """Put the warnings filter first again; return what had hidden it, if anything.

        Asks too whether the filters have changed since the last time, and counts that step.
        """
        hidden = armed.repair()
        if hidden is None and armed.wished == RAISES:
            hidden = "the program set torch's sync debug mode to 'error'"
        self._unasked = 0
        version = armed.version()
        if version != self._version:
            self._version = version
            self._changed_steps += hidden is None and self._steps.running is not None
            self._unchanged = 0
        else:
            self._unchanged += 1
        self._ask_every = 1 if self._unchanged < _ASKED_EACH_STEP else _ASKED_LATER
        self._asked_all = self._asked_all and self._ask_every == 1
        return hidden

    # ---- what it saw --------------------------------------------------------------------------
    def sites(self) -> tuple[SyncSite, ...]:
        """Return the sites seen so far, most frequent first, then by file and line."""
        return self._sites.snapshot()

    def follow_setup(self, locate: Callable[[FrameType | None], Hashable]) -> None:
        """Note where each wait of the set-up was, as ``locate`` of its innermost frame says."""
        self._sites.follow(locate)

    def claim_setup(self, belongs: Callable[[Any], bool]) -> None:
        """Count as training's those that ``belongs`` is true of: they were the first turn's."""
        self._sites.claim(belongs)

    def state(self) -> DetectorState:
        """Return how far the detector could see."""
        steps = self._steps
        over = steps.running is not None and steps.running != self.loop.step
        return DetectorState(
            mode=self.mode,
            dry_run=self.dry_run,
            armed_steps=steps.count + over if self._able else 0,
            disarmed=steps.disarmed(),
            disarmed_before=steps.disarmed_before(),
            cannot_see=self.cannot_see,
            races=self._sites.races(),
        )

    @property
    def cannot_see(self) -> tuple[str, ...]:
        """Waits and facts that cannot be known here, in words."""
        words = list(self._blind() if self._started else self._source_blind)
        if self._changed_steps and self._able:
            words.append(
                "implicit waits inside a catch_warnings block; steps that had one: "
                f"{self._changed_steps}" + ("" if self._asked_all else " or more")
            )
        if self._sites.overflow:
            words.append(f"where {self._sites.overflow} waits were: the table of sites was full")
        if self._fault is not None:
            words.append(f"anything after a fault of trainscope's own: {self._fault!r}")
        return tuple(words)

    def _blind(self) -> tuple[str, ...]:
        source = self._installation.source
        return () if source is None else source.cannot_see

    # ---- what the installation tells ----------------------------------------------------------
    def take(
        self,
        kind: str,
        frame: FrameType | None,
        blocked_ns: int | None,
        internal: bool,
        allowed: str | None,
    ) -> BaseException | None:
        """Count one wait; return the error to raise at the user's line, or None."""
        where = place(self.loop, frame)
        step = None
        if where.during == "training":  # between two steps it is where the one before it ended
            step = self._steps.running if self.loop.step is None else self.loop.step
        new = self._sites.record(
            kind,
            frame,
            phase=where.phase,
            thread=where.thread,
            during=where.during,
            allowed=allowed,
            blocked_ns=blocked_ns,
            internal=internal,
            step=step,
        )
        if self.noted is not None and kind != "race":
            self.noted.note(kind, frame, where.thread, blocked_ns)
        if kind == "race" or allowed is not None:
            return None
        if self.mode == "error" and where.thread in ("main", "autograd"):
            return sync_error(kind, frame) if self._forbids() else None
        if new and self.mode == "warn" and where.during != "setup":  # there it does no harm
            warn_sync(kind, frame, self._warned)
        return None

    def _forbids(self) -> bool:
        return not self._steps_only or (self.loop.step is not None and not self.loop.trial)

    def failed(self, fault: Exception) -> None:
        """Learn that a fault of trainscope's own has switched everything off."""
        self._fault = fault
        self._started = False

    # ---- an observer by itself, for a source that is not shared --------------------------------
    def _observe(
        self,
        kind: str,
        frame: FrameType | None,
        blocked_ns: int | None = None,
        internal: bool = False,
    ) -> None:
        """See `trainscope.sync.observer.Observer`."""
        error = self.take(kind, frame, blocked_ns, internal, None)
        if error is not None:
            raise error

    def h2d_range(self) -> AbstractContextManager[object] | None:
        """See `trainscope.sync.observer.Observer`."""
        return self.loop.h2d_range(sys._getframe(1))

    def fail(self, fault: Exception) -> None:
        """See `trainscope.sync.observer.Observer`."""
        self.failed(fault)


def _everywhere(frame: FrameType | None) -> bool:
    return True
