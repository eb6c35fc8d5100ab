"""The whole statement that a line is a part of: what is done with a value may stand above it."""

from __future__ import annotations

import ast
import linecache
import textwrap
from collections.abc import Iterator
from functools import lru_cache

__all__ = ["whole_statement"]

_MOST_LINES = 40
"""A longer statement, such as a table of values, says nothing about one line of it."""


def whole_statement(file: str, line: int, source: str) -> str:
    """Return the text of the statement of several lines that the line is in, or `source`.

    That is a statement with no body of its own; `source` is returned too where the file is not
    to be had, or no longer has that line.
    """
    lines = linecache.getlines(file)
    if not 0 < line <= len(lines) or lines[line - 1].strip() != source:
        return source
    for first, last in _long_statements("".join(lines)):
        if first <= line <= last < first + _MOST_LINES:
            return textwrap.dedent("".join(lines[first - 1 : last])).strip()
    return source


@lru_cache(maxsize=16)
def _long_statements(text: str) -> tuple[tuple[int, int], ...]:
    """First and last line of each simple statement that has more than one."""
    try:
        return tuple(_spans(ast.parse(text)))
    except (SyntaxError, ValueError):  # a notebook's cell, with magic in it
        return ()


def _spans(tree: ast.Module) -> Iterator[tuple[int, int]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt) and not hasattr(node, "body"):
            last = node.end_lineno or node.lineno
            if last > node.lineno and not isinstance(node, ast.Match):
                yield node.lineno, last
