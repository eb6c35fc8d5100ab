"""Whether a loop turned between two events inside it, told from their places in its body."""

from __future__ import annotations

from collections.abc import Sequence

from trainscope.record.inference.regions import Branch
from trainscope.record.inference.stack import At, Call, Element

__all__ = ["leaves_turn", "turned_between"]


def turned_between(before: Sequence[Element], after: Sequence[Element], same_calls: int) -> bool:
    """Whether a new turn began between two events, given by their ways from the loop on.

    A later place of the body is taken for the same turn; the same place again, an earlier one, or
    the other arm of an ``if`` is a new turn, unless a loop inside the body explains it. (Places
    that need not run each turn are the business of ``coverage``.) ``same_calls`` is how many of the
    frames entered below the loop may be the same calls in both.
    """
    common = 0
    calls = 0
    for one, other in zip(before, after, strict=False):
        if isinstance(one, Call):
            calls += 1
            if calls > same_calls:
                break
        if one != other:
            break
        common += 1
    if not _again(before, after, common):
        return False
    inside = [each for each in before[1:common] if isinstance(each, Branch)]
    if common and _same_loop(before[common:], after[common:]):
        return False  # from the body of a loop inside to its header, or the reverse
    return not any(each.in_turn for each in inside)


def _same_loop(before: Sequence[Element], after: Sequence[Element]) -> bool:
    heads = [
        each for each in (*before[:1], *after[:1]) if isinstance(each, Branch) and each.in_turn
    ]
    return len(heads) == 2 and heads[0].region is heads[1].region


def _again(before: Sequence[Element], after: Sequence[Element], common: int) -> bool:
    """Whether what both ways share was run anew, rather than gone on with."""
    if common == len(after):
        return True
    if common == len(before):
        return False  # inside the call that the event before has begun
    one, other = before[common], after[common]
    if isinstance(one, Call) or isinstance(other, Call):
        return True
    if isinstance(one, Branch) and isinstance(other, Branch) and one.region is other.region:
        return (
            other.slot < one.slot
            or one.region.excludes(one.slot, other.slot)
            or (not other.cleans_up and leaves_turn(before, common + 1))
        )
    return _offset(after, common) < _offset(before, common)


def leaves_turn(way: Sequence[Element], start: int) -> bool:
    """Whether the way goes on through an arm that ends in ``return``, ``continue`` or the like.

    What stands behind such an arm is, in effect, its ``else``, unless an error may have broken it
    off and been caught. ``way[start - 1]`` is where the way parts from that to what stands behind.
    """
    managed = False
    for at in range(start - 1, len(way)):
        element = way[at]
        if not isinstance(element, Branch) or element.tried or (element.in_turn and at >= start):
            return False
        region = element.region
        if region.kind == "block" and at > start and region.ends_turn:
            arm = way[at - 1].region.kind in ("if", "match")  # type: ignore[union-attr]
            return arm and not (managed and region.raises)
        managed = managed or region.kind == "with"
    return False


def _offset(way: Sequence[Element], start: int) -> int:
    """Where in its frame's bytecode the way goes on."""
    return next(each.offset for each in way[start:] if isinstance(each, At))
