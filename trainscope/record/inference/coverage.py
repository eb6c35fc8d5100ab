"""Whether the turns of a loop can be told apart by the places where events happened in them.

Events show only that something ran. Where two places of a body need not both run in a turn, a turn
that ran the first and a turn that ran the second look like one. They cannot be taken for one when
each turn runs some place that both would have to pass, or when only one of several arms ran.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Sequence

from trainscope.record.inference.order import leaves_turn
from trainscope.record.inference.regions import Branch
from trainscope.record.inference.stack import Call, Element

__all__ = ["may_leave", "told_apart"]

Site = tuple[Element, ...]


def told_apart(sites: Collection[Site], every_turn: Collection[Site]) -> bool:
    """Whether the turns are certain, given all places and those where each turn had an event."""
    return any(_always(site, sites) for site in every_turn) or _one_arm(list(sites), 0)


def _always(site: Site, sites: Collection[Site], start: int = 0) -> bool:
    """Whether a turn with any event cannot leave this place out."""
    tried = any(isinstance(element, Branch) and element.tried for element in site[:start])
    for at in range(start, len(site)):
        element = site[at]
        if not isinstance(element, Branch):
            continue
        if element.optional:
            return False
        if element.region.kind == "block":
            first = min(
                other[at].slot  # type: ignore[union-attr]
                for other in sites
                if other[:at] == site[:at] and len(other) > at and isinstance(other[at], Branch)
            )
            passed = element.region.statements[first : element.slot]
            if may_leave(passed) or (tried and passed):  # any statement may raise
                return False
        tried = tried or element.tried
    return True


def _one_arm(sites: Sequence[Site], at: int) -> bool:
    """Whether all places lie in arms of one statement, each with a place it cannot leave out."""
    if any(_always(site, sites, at) for site in sites):
        return True
    heads = {site[at] for site in sites if len(site) > at}
    if any(isinstance(head, Branch) and head.in_turn for head in heads):
        return False
    arms = [[site for site in sites if len(site) > at and site[at] == head] for head in heads]
    if len(arms) > 1 and _is_block(heads):
        first = min(arms, key=lambda arm: arm[0][at].slot)  # type: ignore[union-attr]
        rest = [site for site in sites if site not in first]
        # what stands behind an arm that leaves the turn is its else
        return (
            all(leaves_turn(site, at + 1) for site in first)
            and _one_arm(first, at + 1)
            and _one_arm(rest, at)
        )
    return (len(arms) < 2 or _exclusive(heads)) and all(_one_arm(arm, at + 1) for arm in arms)


def _is_block(heads: Collection[Element]) -> bool:
    return all(isinstance(head, Branch) and head.region.kind == "block" for head in heads)


def _exclusive(heads: Collection[Element]) -> bool:
    """Whether a turn that comes to one of these comes to no other."""
    if all(isinstance(head, Call) for head in heads):
        return True  # several functions called from one place, one of them a turn
    branches = [head for head in heads if isinstance(head, Branch)]
    return len(branches) == len(heads) and all(
        one is other or (one.region is other.region and one.region.excludes(one.slot, other.slot))
        for one in branches
        for other in branches
    )


def may_leave(statements: Iterable[ast.AST]) -> bool:
    """Whether the statements may end the turn before what follows them."""
    return any(_may_leave(each, in_loop=False) for each in statements)


def _may_leave(node: ast.AST, *, in_loop: bool) -> bool:
    if isinstance(node, ast.Return):
        return True
    if isinstance(node, (ast.Break, ast.Continue)):
        return not in_loop
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
        return False
    inside = in_loop or isinstance(node, (ast.For, ast.AsyncFor, ast.While))
    return any(_may_leave(child, in_loop=inside) for child in ast.iter_child_nodes(node))
