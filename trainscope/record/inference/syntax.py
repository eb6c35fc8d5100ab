"""Source files as syntax trees, and the way from a function's body down to one instruction."""

from __future__ import annotations

import ast
import linecache
from typing import cast

from trainscope.record.inference.by_line import (
    CALLS_MANY,
    COMPREHENSIONS,
    callee,
    frame_name,
    is_frame,
    leads_to,
    parts_by_line,
    unclear,
)
from trainscope.record.inference.regions import (
    BEFORE_LOOP,
    LOOP_BODY,
    LOOP_HEADER,
    Branch,
    Kind,
    Region,
    part,
)

__all__ = ["SourceTree", "Span", "source_tree"]

Span = tuple[int, int, int, int]
"""First line, first column, last line, last column; lines from 1, columns in bytes, -1 unknown."""

_NAMED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


class SourceTree:
    """The syntax tree of one file."""

    def __init__(self, file: str, text: str) -> None:
        self._file = file
        self._root = ast.parse(text)
        self._regions: dict[tuple[int, str], Region] = {}
        self._functions: dict[str, list[ast.FunctionDef]] | None = None

    def way_to(self, span: Span, code_name: str, *, asks_next: bool) -> tuple[Branch, ...] | None:
        """Branches from the body of the function ``code_name`` to what lies at ``span``.

        ``asks_next`` says that the instruction asks a ``for`` for its next item. None when no such
        function holds the place, or when the line alone does not say which of its parts is meant.
        """
        way: list[Branch] = []
        scope = "<module>"
        node: ast.AST = self._root
        while True:
            if span[1] < 0 and unclear(node, span[0], code_name):
                return None
            # by the line alone, what stands beside the frame that is looked for is on it as well
            found_it = scope == code_name or is_frame(node, code_name)
            sought = "" if span[1] >= 0 or found_it else code_name
            found = self._step_into(node, span, code_name, sought)
            if found is None:
                break
            branches, node, enters = found
            if enters is not None:
                way, scope = [], enters
            way.extend(branches)
        if asks_next:
            if isinstance(node, COMPREHENSIONS) and code_name == frame_name(node):
                way, scope = [], code_name
            way = self._at_header(way, node)
        elif isinstance(node, ast.Call) and callee(node) in CALLS_MANY and span == _span(node):
            # what it was given may be called many times from here, by code that is not Python
            way.append(Branch(self._region(node, "loop"), LOOP_BODY))
        # the parts of a compiled function have names of their own
        resumed = code_name.startswith("torch_dynamo_resume_in_")
        return tuple(way) if scope == code_name or resumed else None

    def functions(self, name: str) -> list[ast.FunctionDef]:
        """All functions and methods of that name."""
        if self._functions is None:
            self._functions = {}
            for node in ast.walk(self._root):
                if isinstance(node, ast.FunctionDef):
                    self._functions.setdefault(node.name, []).append(node)
        return self._functions.get(name, [])

    # ---- one level down -----------------------------------------------------------------------
    def _step_into(
        self, node: ast.AST, span: Span, code_name: str, sought: str
    ) -> tuple[list[Branch], ast.AST, str | None] | None:
        parts = ast.iter_fields(node)
        if span[1] < 0:
            parts = parts_by_line(node, code_name)
        for name, value in parts:
            if _is_block(value):
                for at, child in enumerate(value):
                    if _holds(child, span):
                        return self._into_block(node, name, value, at)
                continue
            for at, child in enumerate(value if isinstance(value, list) else [value]):
                if not isinstance(child, ast.AST) or not _holds(child, span):
                    continue
                if leads_to(child, sought):
                    return self._into_expression(node, name, at, child, span, code_name)
        return None

    def _into_block(
        self, node: ast.AST, name: str, statements: list[ast.stmt], at: int
    ) -> tuple[list[Branch], ast.AST, str | None]:
        branches = self._branches(node, name, 0)
        key = (id(node), name)
        if key not in self._regions:
            self._regions[key] = Region("block", self._file, statements[0].lineno, statements)
        branches.append(Branch(self._regions[key], at))
        return branches, statements[at], node.name if isinstance(node, _NAMED) else None

    def _into_expression(
        self, node: ast.AST, name: str, at: int, child: ast.AST, span: Span, code_name: str
    ) -> tuple[list[Branch], ast.AST, str | None]:
        if isinstance(node, ast.Lambda) and name == "body":
            return [], child, "<lambda>"
        if isinstance(node, COMPREHENSIONS):
            # what the first ``for`` goes through is evaluated once, before the turns begin
            before = isinstance(child, ast.comprehension) and at == 0 and _holds(child.iter, span)
            slot = BEFORE_LOOP if before and span[1] >= 0 else LOOP_BODY  # 3.10: another frame
            own_frame = code_name if code_name == frame_name(node) else None
            return [Branch(self._region(node, "loop"), slot)], child, own_frame
        return self._branches(node, name, at), child, None

    def _branches(self, node: ast.AST, name: str, at: int) -> list[Branch]:
        found = part(node, name, at)
        return [] if found is None else [Branch(self._region(node, found[0]), found[1])]

    def _region(self, node: ast.AST, kind: Kind) -> Region:
        key = (id(node), "")
        if key not in self._regions:
            first = getattr(node, "lineno", 1)
            self._regions[key] = Region(kind, self._file, first, last_line=_last_line(node))
        return self._regions[key]

    def _at_header(self, way: list[Branch], node: ast.AST) -> list[Branch]:
        """The way of an instruction that asks for the next item: the header of its loop.

        Python 3.13 places it at what is gone through, 3.11 and 3.12 at the loop as a whole.
        """
        if isinstance(node, (ast.For, ast.AsyncFor, *COMPREHENSIONS)):
            return [*way, Branch(self._region(node, "loop"), LOOP_HEADER)]
        for at in range(len(way) - 1, -1, -1):
            if way[at].region.kind == "loop":
                return [*way[:at], Branch(way[at].region, LOOP_HEADER)]
        return way


def _is_block(value: object) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], ast.stmt)


def _last_line(node: ast.AST) -> int:
    if isinstance(node, (ast.For, ast.AsyncFor, ast.While)):
        return node.body[-1].end_lineno or 0
    return getattr(node, "end_lineno", None) or 0


def _span(node: ast.expr) -> Span:
    return (node.lineno, node.col_offset, node.end_lineno or 0, node.end_col_offset or 0)


def _holds(node: ast.AST, span: Span) -> bool:
    if not hasattr(node, "lineno"):  # arguments, match_case, comprehension, withitem
        return any(_holds(child, span) for child in ast.iter_child_nodes(node))
    first, column, last, end_column = _span(cast(ast.expr, node))
    if isinstance(node, _NAMED) and node.decorator_list:
        first, column = node.decorator_list[0].lineno, 0
    line, at, end_line, end_at = span
    if at < 0:
        return first <= line <= last
    return (first, column) <= (line, at) and (end_line, end_at) <= (last, end_column)


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
