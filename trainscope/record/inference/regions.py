"""Where two ways through a function's body can part: blocks, arms, loops."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import Literal

__all__ = ["BEFORE_LOOP", "LOOP_BODY", "LOOP_HEADER", "Branch", "Kind", "Region", "part"]

Kind = Literal["block", "if", "try", "match", "with", "loop", "and"]

BEFORE_LOOP, LOOP_HEADER, LOOP_BODY, LOOP_ELSE = -1, 0, 1, 2
_HANDLERS, _TRY_ELSE, _FINALLY = 1, 1_000, 1_001
_LEAVES = (ast.Return, ast.Raise, ast.Break, ast.Continue)


@dataclass(eq=False)
class Region:
    """A statement list, or a statement or expression with parts."""

    kind: Kind
    file: str
    line: int
    statements: list[ast.stmt] = field(default_factory=list)
    """Of a block."""
    last_line: int = 0
    """Of what each turn of a loop runs: its ``else`` is left out."""

    def excludes(self, slot: int, other: int) -> bool:
        """Whether one turn cannot run both parts."""
        if self.kind in ("if", "match"):
            return slot != other and slot > 0 and other > 0
        if self.kind == "try":
            return slot != other and all(_HANDLERS <= each <= _TRY_ELSE for each in (slot, other))
        return False

    @property
    def ends_turn(self) -> bool:
        """Whether a block, once run to its end, leaves the turn or the function."""
        return bool(self.statements) and isinstance(self.statements[-1], _LEAVES)

    @property
    def raises(self) -> bool:
        """Whether a block raises somewhere: a context manager may let the turn go on behind it."""
        inside = (each for statement in self.statements for each in ast.walk(statement))
        return any(isinstance(each, ast.Raise) for each in inside)


@dataclass(frozen=True)
class Branch:
    """One part of a region: the statement of a block, the arm of an ``if``, the body of a loop.

    ``slot`` grows in the order in which parts run.
    """

    region: Region
    slot: int

    @property
    def in_turn(self) -> bool:
        """Whether this is the part of a loop that each turn runs."""
        return self.region.kind == "loop" and self.slot in (LOOP_HEADER, LOOP_BODY)

    @property
    def tried(self) -> bool:
        """Whether this is the body of a ``try``: any of it may go on in a handler, or behind."""
        return self.region.kind == "try" and self.slot == 0

    @property
    def cleans_up(self) -> bool:
        """Whether this is a ``finally``, which runs however the rest of its ``try`` is left."""
        return self.region.kind == "try" and self.slot == _FINALLY

    @property
    def optional(self) -> bool:
        """Whether a turn that reaches the region may leave this part out."""
        kind, slot = self.region.kind, self.slot
        if kind in ("if", "match", "and"):
            return slot > 0
        if kind == "try":
            return _HANDLERS <= slot <= _TRY_ELSE
        return kind == "loop" and slot != BEFORE_LOOP


def part(node: ast.AST, name: str, at: int) -> tuple[Kind, int] | None:
    """Which part of which kind of region the field ``name`` of ``node`` is; ``at`` in a list."""
    if isinstance(node, (ast.If, ast.IfExp)):
        return "if", {"test": 0, "body": 1, "orelse": 2}[name]
    if isinstance(node, (ast.For, ast.AsyncFor)):
        return "loop", {"body": LOOP_BODY, "orelse": LOOP_ELSE}.get(name, BEFORE_LOOP)
    if isinstance(node, ast.While):
        return "loop", {"test": LOOP_HEADER, "body": LOOP_BODY, "orelse": LOOP_ELSE}[name]
    if isinstance(node, ast.Try) or type(node).__name__ == "TryStar":
        slots = {"body": 0, "handlers": _HANDLERS + at, "orelse": _TRY_ELSE, "finalbody": _FINALLY}
        return "try", slots[name]
    if isinstance(node, ast.Match):
        return "match", 0 if name == "subject" else 1 + at
    if isinstance(node, (ast.With, ast.AsyncWith)):
        return "with", 0 if name == "items" else 1
    if isinstance(node, ast.BoolOp):
        return "and", at
    return None
