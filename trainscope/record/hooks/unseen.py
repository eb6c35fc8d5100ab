"""In words, which calls the hooks could not see."""

from __future__ import annotations

from collections.abc import Sequence

from trainscope.record.hooks.module_watchers import ModuleWatcher
from trainscope.record.hooks.ranges import LoopRanges
from trainscope.record.hooks.watchers import ForwardWatcher, StepWatcher
from trainscope.trace.plural import count

__all__ = [
    "unseen_forwards", "unseen_modules", "unseen_optimizer_steps", "unseen_optimizer_times",
]  # fmt: skip

_NAMED = 5
"""Submodules named in one sentence."""

_MANY = 10
"""Steps with a backward that must pass without a call before a silence is worth a word."""


def unseen_forwards(watchers: Sequence[ForwardWatcher], ranges: LoopRanges) -> tuple[str, ...]:
    """A sentence for each model that was never called, or no more, in steps with a backward."""
    return _silent(
        watchers,
        "forward",
        ranges,
        "it may run inside a larger compiled function, or the loop may call a method of the model "
        "instead of the model",
    )


def unseen_modules(watchers: Sequence[ModuleWatcher], forwards: int) -> tuple[str, ...]:
    """One sentence for all submodules whose call never came although their model was called."""
    unseen = [watcher.name for watcher in watchers if not watcher.seen]
    if forwards == 0 or not unseen:
        return ()
    more = f" and {len(unseen) - _NAMED} more" if len(unseen) > _NAMED else ""
    return (
        f"ranges of submodules {', '.join(unseen[:_NAMED])}{more}: none seen in {forwards} "
        "forwards; a compiled model runs as a whole, or the model did not call them",
    )


def unseen_optimizer_steps(watchers: Sequence[StepWatcher], ranges: LoopRanges) -> tuple[str, ...]:
    """The same for each optimizer's ``step``."""
    return _silent(
        watchers,
        "optimizer step",
        ranges,
        "it may run inside a larger compiled function, or through a bound `step` that was taken "
        "before wrap",
    )


def unseen_optimizer_times(ranges: LoopRanges) -> tuple[str, ...]:
    """A sentence where optimizers step in hooks of the backward."""
    backwards = ranges.backwards_that_stepped
    if not backwards:
        return ()
    return (
        f"the time of the optimizers: they step inside the backward ({count(backwards, 'time')}), "
        "whose time holds theirs",
    )


def _silent(
    watchers: Sequence[ForwardWatcher] | Sequence[StepWatcher],
    what: str,
    ranges: LoopRanges,
    why: str,
) -> tuple[str, ...]:
    sentences: list[str] = []
    steps = ranges.backward_steps
    for watcher in watchers:
        # backwards behind the loop are in no step, and not one each
        later = min(steps - watcher.seen_at, ranges.last_backward_step - watcher.seen_step)
        if watcher.seen_at < 0 and steps > 0:
            seen = f"0 calls seen in {steps} steps with a backward; {why}"
        elif any(other.first_at > watcher.seen_at for other in watchers):
            continue  # what came after it took its place: a student after its teacher
        elif watcher.seen_step >= 0 and later >= max(_MANY, steps // 2):
            seen = (
                f"last seen in step {watcher.seen_step}, and not in the {later} later steps with "
                f"a backward; if it is still called, {why}"
            )
        else:
            continue
        sentences.append(f"{what} of {watcher.label}: {seen}")
    return tuple(sentences)
