"""The expression that a frame is running, from the position of its instruction."""

from __future__ import annotations

import ast
import dis
from dataclasses import dataclass
from itertools import islice
from types import CodeType, FrameType

from trainscope.sync.cells import lines_of

__all__ = ["Running", "source_at"]

_STATEMENT_LINES = 8
"""How many lines an assignment may be long and still be read for the value that it stores."""


@dataclass(frozen=True)
class Running:
    """The expression of one instruction; `stored` is what a subscript is given, if it `stores`."""

    node: ast.expr | None
    stores: bool = False
    stored: ast.expr | None = None


def source_at(frame: FrameType) -> tuple[str, Running | None]:
    """Return the line that `frame` is at, and what it runs; None for that before Python 3.11."""
    code, instruction = frame.f_code, frame.f_lasti
    lines = lines_of(code, frame.f_globals)
    number = frame.f_lineno or 0
    line = lines[number - 1] if 0 < number <= len(lines) else ""
    place = _position(code, instruction)
    if place is None:
        return line, None
    node = _parse(_segment(lines, place))
    if isinstance(node, ast.Subscript) and _stores(code, instruction):
        return line, Running(node, True, _stored_value(lines, place))
    return line, Running(node)


def _position(code: CodeType, instruction: int) -> tuple[int, int, int, int] | None:
    """Return first line, last line, first column and end column of an instruction, if known."""
    positions = getattr(code, "co_positions", None)  # Python 3.11
    if positions is None or instruction < 0:
        return None
    found = next(islice(positions(), instruction // 2, None), (None,) * 4)
    first, last, column, end = found
    if first is None or last is None or column is None or end is None:
        return None
    return first, last, column, end


def _segment(lines: list[str], place: tuple[int, int, int, int]) -> str:
    first, last, column, end = place
    if not 0 < first <= last <= len(lines):
        return ""
    taken = [line.encode() for line in lines[first - 1 : last]]  # columns count UTF-8 bytes
    taken[-1] = taken[-1][:end]
    taken[0] = taken[0][column:]
    return b"".join(taken).decode(errors="replace")


def _parse(text: str) -> ast.expr | None:
    try:
        return ast.parse(f"({text}\n)", mode="eval").body
    except (SyntaxError, ValueError):
        return None


def _stores(code: CodeType, instruction: int) -> bool:
    return dis.opname[code.co_code[instruction]].startswith(("STORE_SUBSCR", "STORE_SLICE"))


def _stored_value(lines: list[str], place: tuple[int, int, int, int]) -> ast.expr | None:
    """Return what an assignment to the subscript at `place` stores, if its text shows it."""
    first, _last, column, _end = place
    for length in range(1, _STATEMENT_LINES + 1):
        rest = b"".join(line.encode() for line in lines[first - 1 : first - 1 + length])
        try:
            statement = ast.parse(rest[column:].decode(errors="replace")).body[0]
        except (SyntaxError, ValueError, IndexError):
            continue
        return statement.value if isinstance(statement, ast.Assign) else None
    return None
