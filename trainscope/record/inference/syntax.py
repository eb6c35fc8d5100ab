"""Source files as syntax trees, and the way from a function's body down to one instruction."""

from __future__ import annotations

import ast
import linecache
from dataclasses import dataclass, field
from typing import Literal

__all__ = ["LOOP_HEADER", "Branch", "Region", "SourceTree", "Span", "source_tree"]

Kind = Literal["block", "if", "try", "match", "with", "loop", "and"]

LOOP_HEADER, LOOP_BODY, LOOP_ELSE = 0, 1, 2
_BEFORE_LOOP = -1
_HANDLERS, _TRY_ELSE, _FINALLY = 1, 1_000, 1_001
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_CALLS_MANY = {"all", "any", "deque", "dict", "frozenset", "list", "max", "min", "reduce"}
_CALLS_MANY |= {"set", "sorted", "sum", "tuple"}
"""Builtins (and two of the standard library) that may call a function given inside many times."""


@dataclass(eq=False)
class Region:
    """A statement list, or a statement with parts: where two ways through a body can part."""

    kind: Kind
    file: str
    line: int
    statements: list[ast.stmt] = field(default_factory=list)
    """Of a block."""

    def excludes(self, slot: int, other: int) -> bool:
        """Whether one turn cannot run both parts."""
        if self.kind in ("if", "match"):
            return slot != other and slot > 0 and other > 0
        if self.kind == "try":
            return slot != other and all(_HANDLERS <= each <= _TRY_ELSE for each in (slot, other))
        return False


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
    def optional(self) -> bool:
        """Whether a turn that reaches the region may leave this part out."""
        kind, slot = self.region.kind, self.slot
        if kind in ("if", "match", "and"):
            return slot > 0
        if kind == "try":
            return _HANDLERS <= slot <= _TRY_ELSE
        return kind == "loop" and slot != _BEFORE_LOOP


Span = tuple[int, int, int, int]
"""First line, first column, last line, last column; lines from 1, columns in bytes."""


class SourceTree:
    """The syntax tree of one file."""

    def __init__(self, file: str, text: str) -> None:
        self._file = file
        self._root = ast.parse(text)
        self._regions: dict[tuple[int, str], Region] = {}

    def way_to(
        self, span: Span | None, line: int, code_name: str, *, asks_next: bool
    ) -> tuple[Branch, ...] | None:
        """Branches from the body of the function ``code_name`` to what lies at ``span``.

        ``span`` is None where only the line is known. ``asks_next`` says that the instruction asks
        a ``for`` for its next item. None when no such function holds the place.
        """
        wanted = span if span is not None else (line, -1, line, -1)
        way: list[Branch] = []
        scope = "<module>"
        node: ast.AST = self._root
        while True:
            found = self._step_into(node, wanted, code_name)
            if found is None:
                break
            branches, child, enters = found
            if enters is not None:
                way, scope = [], enters
            way.extend(branches)
            node = child
        if asks_next:
            way = _at_header(way)
        elif isinstance(node, ast.Call) and span == _span(node) and _callee(node) in _CALLS_MANY:
            # what it was given may be called many times from here, by code that is not Python
            way.append(Branch(self._region(node, "", "loop"), LOOP_BODY))
        # resumed parts of a compiled function have names of their own
        resumed = code_name.startswith("torch_dynamo_resume_in_")
        return tuple(way) if scope == code_name or resumed else None

    # ---- one level down -----------------------------------------------------------------------
    def _step_into(
        self, node: ast.AST, span: Span, code_name: str
    ) -> tuple[list[Branch], ast.AST, str | None] | None:
        for name, value in ast.iter_fields(node):
            if isinstance(value, list):
                if value and isinstance(value[0], ast.stmt):
                    for at, child in enumerate(value):
                        if _holds(child, span):
                            return self._into_block(node, name, value, at)
                    continue
                children = value
            else:
                children = [value]
            for at, child in enumerate(children):
                if isinstance(child, ast.AST) and _holds(child, span):
                    return self._into_expression(node, name, at, child, span, code_name)
        return None

    def _into_block(
        self, node: ast.AST, name: str, statements: list[ast.stmt], at: int
    ) -> tuple[list[Branch], ast.AST, str | None]:
        block = self._region(node, f"{name} block", "block", statements)
        own = self._branch(node, name, 0)
        branches = [*([] if own is None else [own]), Branch(block, at)]
        enters = node.name if isinstance(node, _FUNCTIONS[:2] + _FUNCTIONS[3:]) else None  # type: ignore[attr-defined]
        return branches, statements[at], enters

    def _into_expression(
        self, node: ast.AST, name: str, at: int, child: ast.AST, span: Span, code_name: str
    ) -> tuple[list[Branch], ast.AST, str | None]:
        if isinstance(node, ast.Lambda) and name == "body":
            return [], child, "<lambda>"
        if isinstance(node, _COMPREHENSIONS):
            # what the first ``for`` goes through is evaluated once, before the turns begin
            before = isinstance(child, ast.comprehension) and at == 0 and _holds(child.iter, span)
            slot = _BEFORE_LOOP if before else LOOP_BODY
            own_frame = code_name == _frame_name(node)
            return (
                [Branch(self._region(node, "", "loop"), slot)],
                child,
                code_name if own_frame else None,
            )
        own = self._branch(node, name, at)
        return ([] if own is None else [own]), child, None

    def _branch(self, node: ast.AST, name: str, at: int) -> Branch | None:
        kind, slot = _part(node, name, at)
        if kind is None:
            return None
        return Branch(self._region(node, "", kind), slot)

    def _region(
        self, node: ast.AST, part: str, kind: Kind, statements: list[ast.stmt] | None = None
    ) -> Region:
        key = (id(node), part)
        region = self._regions.get(key)
        if region is None:
            line = getattr(node, "lineno", 1)
            region = self._regions[key] = Region(kind, self._file, line, statements or [])
        return region


def _part(node: ast.AST, name: str, at: int) -> tuple[Kind | None, int]:
    """Which part of which kind of region the field ``name`` of ``node`` is."""
    if isinstance(node, (ast.If, ast.IfExp)):
        return "if", {"test": 0, "body": 1, "orelse": 2}[name]
    if isinstance(node, (ast.For, ast.AsyncFor)):
        return "loop", {"body": LOOP_BODY, "orelse": LOOP_ELSE}.get(name, _BEFORE_LOOP)
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
    return None, 0


def _callee(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else ""


def _span(node: ast.expr) -> Span:
    return (node.lineno, node.col_offset, node.end_lineno or 0, node.end_col_offset or 0)


def _frame_name(node: ast.AST) -> str:
    names = {"ListComp": "listcomp", "SetComp": "setcomp", "DictComp": "dictcomp"}
    return f"<{names.get(type(node).__name__, 'genexpr')}>"


def _at_header(way: list[Branch]) -> list[Branch]:
    """The way of an instruction that asks for the next item: the header of its loop."""
    for at in range(len(way) - 1, -1, -1):
        if way[at].region.kind == "loop":
            return [*way[:at], Branch(way[at].region, LOOP_HEADER)]
    return way


def _holds(node: ast.AST, span: Span) -> bool:
    first = getattr(node, "lineno", None)
    if first is None:  # arguments, match_case, comprehension, withitem: ask their children
        return any(_holds(child, span) for child in ast.iter_child_nodes(node))
    last = node.end_lineno  # type: ignore[attr-defined]
    line, column, end_line, end_column = span
    if isinstance(node, _FUNCTIONS[:2] + _FUNCTIONS[3:]):
        for decorator in node.decorator_list:  # type: ignore[attr-defined]
            first = min(first, decorator.lineno)
    if column < 0:
        return first <= line <= last
    start = (first, node.col_offset if first == node.lineno else 0)  # type: ignore[attr-defined]
    end = (last, node.end_col_offset)  # type: ignore[attr-defined]
    return start <= (line, column) and (end_line, end_column) <= end


_TREES: dict[str, SourceTree | None] = {}


def source_tree(file: str, module_globals: dict[str, object]) -> SourceTree | None:
    """The tree of a file, read once; None when there is no source that parses."""
    if file not in _TREES:
        text = "".join(linecache.getlines(file, module_globals))
        try:
            _TREES[file] = SourceTree(file, text) if text else None
        except (SyntaxError, ValueError, RecursionError):
            _TREES[file] = None
    return _TREES[file]
