"""``what_if``: what a step would take without its syncs, by replaying the recorded ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from trainscope.analysis.completeness import too_incomplete
from trainscope.analysis.replay.answer import Removal, WhatIf
from trainscope.analysis.replay.build import build_program
from trainscope.analysis.replay.calibrate import Calibration, Kept, MeasuredWait, calibrate
from trainscope.analysis.replay.drawing import Drawable
from trainscope.analysis.replay.extent import replayed_steps, too_large, within
from trainscope.analysis.replay.judge import is_shared, why_not
from trainscope.analysis.replay.machine import run, run_once
from trainscope.analysis.replay.program import Program
from trainscope.analysis.replay.removal import replaced_by, without
from trainscope.analysis.replay.subsets import smallest_set
from trainscope.analysis.window_site import WindowSite
from trainscope.analysis.window_steps import WindowSteps
from trainscope.analysis.window_syncs import WindowSync
from trainscope.errors import ConfigError
from trainscope.trace.window import Window

__all__ = ["MAX_SITES", "MeasuredWait", "Removal", "WhatIf", "is_necessary", "what_if"]

MAX_SITES = 12
"""Sites looked at one by one and for the smallest set; the others only together with all."""
_SEARCH_SAMPLES = 6
_BAND = (0.1, 0.9)
_WORKERS = {
    "lead": "the loop waits for the DataLoader's workers, which deliver no faster than now",
    "follow": "the DataLoader's workers keep up with a shorter step",
}
_CLEAR_GAIN = 0.02
"""Share of a step by which a gain is above the waits that were recorded beyond doubt."""
_SMALL_BYTES = 1 << 16
"""What so small a copy takes does not depend on the rate."""


def what_if(
    window: Window,
    steps: WindowSteps,
    syncs: Sequence[WindowSync],
    *,
    step_ns: float | None = None,
    other_steps_ns: Sequence[float] = (),
    necessary: Callable[[WindowSite], bool] | None = None,
    measured_wait: Callable[[WindowSite], MeasuredWait | None] | None = None,
) -> WhatIf | None:
    """Replay the steps with and without their syncs; None where no step has a sync.

    ``step_ns`` is the time of a step with no profiler on, and ``measured_wait`` tells of a site how
    long the loop waits there then, None where that is not known; ``necessary`` tells whether it
    must stay, beside those that ``is_necessary`` knows. ``other_steps_ns`` are times that steps
    took too, such as the quartiles: what a removal would gain in those is in its band. Raises
    ``ConfigError`` for a ``step_ns`` that is no time.
    """
    if step_ns is not None and not 0 < step_ns < math.inf:
        raise ConfigError(
            f"step_ns={step_ns!r} is no time of a step: give nanoseconds, as measured with no "
            "profiler on, or None"
        )
    if not len(steps) or not len(window.gpu):
        return None
    whole = len(steps)
    steps = replayed_steps(window, steps)
    syncs = within(syncs, steps)
    if not any(sync.step >= 0 for sync in syncs):
        return None
    why_not_at_all = too_large(window, syncs) or too_incomplete(window, steps)
    if why_not_at_all is not None:
        return _nothing(step_ns, why_not_at_all)
    program = build_program(window, steps, syncs)
    kept = frozenset(
        place
        for place, site in enumerate(program.sites)
        if is_necessary(site) or (necessary is not None and necessary(site))
    )
    drift = run_once(program) / program.recorded_ns - 1.0
    if step_ns is not None and program.workers == "lead":
        # a loop that waited for the workers though profiled waits for them without a profiler too
        program = program.paced(min(step_ns * program.steps / program.recorded_ns, 1.0))
    waits = {} if measured_wait is None else _measured(program, measured_wait)
    blocked_ns = sum(sync.blocked_ns for sync in syncs if sync.step >= 0) / len(steps)
    calibration = calibrate(program, step_ns, waits, other_steps_ns)
    found = _Forecast(program, calibration, kept, blocked_ns).what_if(drift)
    if len(steps) == whole:
        return found
    part = f"the first {len(steps)} of the window's {whole:,} steps stand for all"
    return replace(found, assumptions=(part, *found.assumptions))


def _nothing(step_ns: float | None, why: str) -> WhatIf:
    """What is told of a window that cannot be replayed."""
    return WhatIf(
        measured_step_ns=step_ns, measured_wait_ns=None, replayed_step_ns=None, drift=None,
        calibrated=False, removals=(), cannot_tell=why, assumptions=(),
    )  # fmt: skip


def _measured(
    program: Program, measured_wait: Callable[[WindowSite], MeasuredWait | None]
) -> dict[int, MeasuredWait]:
    found = {place: measured_wait(site) for place, site in enumerate(program.sites)}
    return {place: wait for place, wait in found.items() if wait is not None}


def is_necessary(site: WindowSite) -> bool:
    """Whether it is GradScaler's look at whether a gradient is infinite: training needs it."""
    return site.after == "aten::_amp_foreach_non_finite_check_and_unscale_"


class _Forecast:
    """Replays of one program with different syncs removed, for the same guesses."""

    def __init__(
        self,
        program: Program,
        calibration: Calibration,
        kept: frozenset[int],
        blocked_ns: float,
    ) -> None:
        self._program = program
        self._blocked_ns = blocked_ns
        self._calibration = calibration
        self._measured_ns = calibration.usual.measured_ns
        self._kept = kept
        self._known: dict[tuple[int, ...], tuple[Program, NDArray[np.float64]]] = {}
        samples = calibration.usual.samples
        few = np.linspace(0, len(samples) - 1, _SEARCH_SAMPLES).astype(np.int64)
        self._few = samples.take(few)
        self._few_with_ns = float(np.median(calibration.usual.step_ns[few]))

    def what_if(self, drift: float) -> WhatIf:
        usual, program = self._calibration.usual, self._program
        free = [place for place in range(len(program.sites)) if place not in self._kept]
        replayed_ns = float(np.median(usual.step_ns))
        removals: list[Removal] = []
        cannot = None
        if free:
            cannot = why_not(
                program,
                drift=drift,
                measured_step_ns=self._measured_ns,
                replayed_step_ns=replayed_ns,
                band=_band(self._freed(free)[1]),
            )
            if cannot is None:
                everything = self._removal(free, "all")
                removals = [everything, *self._smaller_removals(free, everything)]
        likeliest = int(np.argmin(np.abs(usual.step_ns - replayed_ns)))
        guess = usual.samples.take(np.array([likeliest]))
        return WhatIf(
            measured_step_ns=self._measured_ns,
            measured_wait_ns=self._calibration.measured_wait_ns,
            replayed_step_ns=replayed_ns,
            drift=drift,
            calibrated=self._measured_ns is not None,
            removals=tuple(removals),
            cannot_tell=None if cannot is None else cannot.words,
            drifted=cannot is not None and cannot.drifted,
            assumptions=tuple(self._assumptions(removals)),
            kept=tuple(program.sites[place] for place in sorted(self._kept)),
            lanes=program.lanes,
            before=Drawable(program, guess),
            after=None if cannot else Drawable(without(program, free), guess),
        )

    def _smaller_removals(self, free: Sequence[int], everything: Removal) -> list[Removal]:
        """Each site alone, the one that gains most first, then the smallest set."""
        if len(free) == 1:
            return [replace(everything, what="one")]
        looked_at = free[:MAX_SITES]
        alone = [self._removal([place], "one") for place in looked_at]
        found = sorted(alone, key=lambda removal: removal.step_ns)
        smallest = smallest_set(looked_at, self._few_with_ns, self._few_step_ns)
        if 1 < len(smallest) < len(free):
            found.append(self._removal(sorted(smallest), "smallest set"))
        return found

    def _freed(self, places: Sequence[int]) -> tuple[Program, NDArray[np.float64]]:
        """The program without these, and how much faster its usual step is; replayed once."""
        key = tuple(places)
        if key not in self._known:
            program = without(self._program, places)
            self._known[key] = program, _speedups(program, self._calibration.usual)
        return self._known[key]

    def _removal(
        self, places: Sequence[int], what: Literal["all", "one", "smallest set"]
    ) -> Removal:
        usual, others = self._calibration.usual, self._calibration.others
        program, speedups = self._freed(places)
        bands = [_band(speedups), *(_band(_speedups(program, each)) for each in others)]
        low, high = min(low for low, _ in bands), max(high for _, high in bands)
        middle = float(np.median(speedups))
        measured_ns = self._measured_ns
        base_ns = float(np.median(usual.step_ns)) if measured_ns is None else measured_ns
        sites = tuple(self._program.sites[place] for place in places)
        return Removal(
            sites=sites,
            what=what,
            step_ns=base_ns / middle,
            speedup=middle,
            band=(low, high),
            replaced_by=tuple(replaced_by(site.kind) for site in sites),
        )

    def _few_step_ns(self, places: frozenset[int]) -> float:
        return float(np.median(run(without(self._program, places), self._few)))

    def _assumptions(self, removals: Sequence[Removal]) -> list[str]:
        words = []
        gain_ns = removals[0].step_ns * (removals[0].speedup - 1.0) if removals else 0.0
        if gain_ns > self._blocked_ns + _CLEAR_GAIN * self._few_with_ns:
            words.append(
                "with no profiler on the CPU is faster, and so waits longer for the GPU than it "
                "does in the window"
            )
        if self._measured_ns is None:
            words.append(
                "no step time without a profiler was given: how far profiling slowed the CPU is "
                "assumed"
            )
        if any(item.bytes > _SMALL_BYTES and item.site >= 0 for item in self._program.items):
            rate = self._program.pinned_bytes_per_ns
            how = ", as others in the trace do" if self._program.rate_seen else ""
            words.append(f"a copy with pinned memory moves {rate:.0f} GB/s{how}")
        if self._program.workers != "none":
            words.append(_WORKERS[self._program.workers])
        if self._program.collectives:
            words.append(
                "a step of the other ranks gets shorter as this one's does, and a collective takes "
                "as long as in the window or, where it waited for another rank there, less"
            )
        if self._program.guessed:
            words.append(
                f"what {self._program.guessed:,} waits between streams are for is taken from the "
                "order of calls and their times"
            )
        if is_shared(self._program):
            words.append("something else uses the GPU, as it did in the window")
        if any(site.kind == "synchronize" for site in self._program.sites):
            words.append("nothing else relies on a device sync that is removed")
        return words


def _speedups(program: Program, kept: Kept) -> NDArray[np.float64]:
    """How much faster than with all its waits the program is, for each guess."""
    with_ns = kept.step_ns
    if kept.measured_ns is not None:
        # what the replay misses may be in the part that stays or in the part that goes
        with_ns = np.sqrt(with_ns * kept.measured_ns)
    return with_ns / run(program, kept.samples)


def _band(speedups: NDArray[np.float64]) -> tuple[float, float]:
    low, high = np.quantile(speedups, _BAND)
    return float(low), float(high)
