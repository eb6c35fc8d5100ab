"""Kinds of expressions that matter here, and what a line alone (Python 3.10) says about them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

__all__ = [
    "CALLS_MANY",
    "COMPREHENSIONS",
    "callee",
    "frame_name",
    "is_frame",
    "leads_to",
    "parts_by_line",
    "unclear",
]

COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
CALLS_MANY = {"all", "any", "deque", "dict", "frozenset", "list", "max", "min", "reduce"}
CALLS_MANY |= {"set", "sorted", "sum", "tuple"}
"""Builtins (and two of the standard library) that may call a function given inside many times."""

_HAVE_BLOCKS = (ast.ExceptHandler, ast.match_case)
_OWN_FRAME = (*COMPREHENSIONS, ast.Lambda)


def callee(call: ast.Call) -> str:
    """The name that is called; empty for anything but a plain name."""
    return call.func.id if isinstance(call.func, ast.Name) else ""


def frame_name(node: ast.AST) -> str:
    """What a frame of a comprehension or a lambda is called, where it has one of its own."""
    names = {"ListComp": "listcomp", "SetComp": "setcomp", "DictComp": "dictcomp"}
    names["Lambda"] = "lambda"
    return f"<{names.get(type(node).__name__, 'genexpr')}>"


def is_frame(node: ast.AST, code_name: str) -> bool:
    """Whether this expression runs in a frame of its own, which is called that."""
    return isinstance(node, _OWN_FRAME) and frame_name(node) == code_name


def leads_to(part: ast.AST, sought: str) -> bool:
    """Whether a part of a statement holds a frame of this name, if it is an expression's."""
    if not sought.startswith("<") or sought == "<module>":
        return True
    return any(is_frame(each, sought) for each in ast.walk(part))


def parts_by_line(node: ast.AST, code_name: str) -> Iterator[tuple[str, Any]]:
    """The fields in which a line is looked for, statements before what stands in front of them.

    An expression that runs in a frame of its own is looked into only for that frame.
    """
    fields = list(ast.iter_fields(node))
    if isinstance(node, _OWN_FRAME) and not is_frame(node, code_name):
        return
    blocks = [each for each in fields if _has_statements(each[1])]
    yield from blocks
    yield from (each for each in fields if each not in blocks)


def unclear(node: ast.AST, line: int, code_name: str) -> bool:
    """Whether the line holds parts of this statement of which only some may run, or run often."""
    if not isinstance(node, ast.stmt):
        return False
    on_line = [
        each
        for each in _expressions(node)
        if hasattr(each, "lineno") and each.lineno <= line <= each.end_lineno  # type: ignore[attr-defined]
    ]
    frames = [each for each in on_line if isinstance(each, _OWN_FRAME)]
    if code_name.startswith("<") and code_name != "<module>":
        return sum(frame_name(each) == code_name for each in frames) > 1
    return any(
        isinstance(each, (ast.IfExp, ast.BoolOp))
        or (isinstance(each, ast.Call) and callee(each) in CALLS_MANY)
        for each in on_line
    )


def _expressions(node: ast.AST) -> Iterator[ast.AST]:
    """All expressions of a statement, without those of the statements inside it."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, (ast.stmt, *_HAVE_BLOCKS)):
            yield child
            yield from _expressions(child)


def _has_statements(value: object) -> bool:
    first = value[0] if isinstance(value, list) and value else None
    return isinstance(first, (ast.stmt, *_HAVE_BLOCKS))
