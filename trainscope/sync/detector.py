"""The detector: which lines of the user's code wait for the GPU, and for how long."""

from __future__ import annotations

from types import FrameType, TracebackType

import torch

from trainscope.errors import ConfigError
from trainscope.sync.loop import LoopState
from trainscope.sync.sites import Sites
from trainscope.trace.syncs import DetectorState, SyncSite

__all__ = ["MODES", "SyncDetector"]

MODES = ("record", "warn", "error", "off")


class SyncDetector:
    """Records every wait for the GPU by site while it is started; also a context manager."""

    def __init__(
        self, mode: str = "record", *, dry_run: bool | None = None, loop: LoopState | None = None
    ) -> None:
        if mode not in MODES:
            raise ConfigError(f"mode={mode!r} is not one of {', '.join(MODES)}")
        self.mode = mode
        self.dry_run = not torch.cuda.is_available() if dry_run is None else dry_run
        self.loop = LoopState() if loop is None else loop
        self._sites = Sites()

    def start(self) -> None:
        """Begin to see waits; does nothing when started."""

    def stop(self) -> None:
        """Stop seeing waits and take everything out again; does nothing when stopped."""

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
        """Check that the detector is still whole, as step number `step` begins."""

    def sites(self) -> tuple[SyncSite, ...]:
        """Return the sites seen so far, most frequent first, then by file and line."""
        return self._sites.snapshot()

    def state(self) -> DetectorState:
        """Return how far the detector could see."""
        return DetectorState(mode=self.mode, dry_run=self.dry_run, cannot_see=self.cannot_see)

    @property
    def cannot_see(self) -> tuple[str, ...]:
        """Waits and facts that cannot be known here, in words."""
        return ()

    def _observe(
        self,
        kind: str,
        frame: FrameType | None,
        blocked_ns: int | None = None,
        internal: bool = False,
    ) -> None:
        """Take one wait from a probe or from the dry run.

        `kind`: a name of `KINDS`, or ``"race"``. `frame`: the innermost Python frame at the wait
        (our own frames and library frames are skipped from there outwards). `blocked_ns`: None
        when not timed. `internal`: one user call that makes many reads (`print`), given once.
        Raises `SyncError` where the user's settings forbid the wait; let it through.
        """
        self._sites.record(
            kind,
            frame,
            phase=self.loop.phase,
            thread="main",
            during=self.loop.during(),
            blocked_ns=blocked_ns,
            internal=internal,
        )
