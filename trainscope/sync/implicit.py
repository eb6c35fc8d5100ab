"""The kind of a wait that only torch's warning shows, from the expression that was running."""

from __future__ import annotations

import ast
import dis
import linecache
from dataclasses import dataclass
from itertools import islice
from types import CodeType, FrameType

from trainscope.sync.operands import (
    destination_kind,
    element_kind,
    index_kind,
    source_kind,
    stored_kind,
)

__all__ = ["classify", "classify_line", "implicit_kind"]

_BY_CALL = {
    "allclose": "bool",
    "argwhere": "nonzero",
    "bincount": "size-readback",
    "coalesce": "size-readback",
    "combinations": "size-readback",
    "cpu": "cpu",
    "equal": "bool",
    "index_put": "nonzero",
    "index_put_": "nonzero",
    "is_nonzero": "bool",
    "item": "item",
    "masked_select": "nonzero",
    "nonzero": "nonzero",
    "numpy": "numpy",
    "one_hot": "size-readback",
    "repeat_interleave": "size-readback",
    "synchronize": "stream",
    "tensor_split": "size-readback",
    "to_sparse": "size-readback",
    "tolist": "tolist",
}
_MAKES_TENSOR = frozenset({"as_tensor", "asarray", "new_tensor", "sparse_coo_tensor", "tensor"})
_COPIES = frozenset({"copy_", "cuda", "to", "type"})
_OTHER = "item-implicit"
_CACHED = 4096


@dataclass(frozen=True)
class Plan:
    """How to name the kind at one instruction: at once, or by looking at operands each time."""

    kind: str | None
    role: str = ""
    """``index``, ``element``, ``stored``, ``destination`` or ``source``: what `operand` is."""
    operand: ast.expr | None = None
    value: ast.expr | None = None
    """What is stored, for ``stored``."""

    def at(self, frame: FrameType) -> str | None:
        """Return the kind in `frame`, or None when the expression does not tell."""
        if self.role == "index" and self.operand is not None:
            return index_kind(self.operand, frame)
        if self.role == "element":
            return element_kind(self.operand, frame)
        if self.role == "stored" and self.operand is not None:
            return stored_kind(self.operand, self.value, frame)
        if self.role == "destination":
            return destination_kind(self.operand, frame)
        if self.role == "source":
            return source_kind(self.operand, frame)
        return self.kind


_plans: dict[tuple[CodeType, int], Plan] = {}


def implicit_kind(frame: FrameType, user: FrameType | None) -> str:
    """Return the kind of the wait at `frame`, the innermost frame; `user` is the user's."""
    kind = _plan(frame).at(frame)
    if kind is None and user is not None and user is not frame:
        kind = _plan(user).kind  # the user's own call may say more than the library's line
    return kind or _OTHER


def _plan(frame: FrameType) -> Plan:
    key = (frame.f_code, frame.f_lasti)
    plan = _plans.get(key)
    if plan is None:
        if len(_plans) >= _CACHED:
            _plans.clear()
        plan = _plans[key] = _read_plan(frame)
    return plan


def _read_plan(frame: FrameType) -> Plan:
    code, instruction = frame.f_code, frame.f_lasti
    lines = linecache.getlines(code.co_filename, frame.f_globals)
    place = _position(code, instruction)
    if place is None:
        line = frame.f_lineno or 0
        return classify_line(lines[line - 1] if 0 < line <= len(lines) else "")
    text = _segment(lines, place)
    node = _parse(text)
    if isinstance(node, ast.Subscript) and _stores(code, instruction):
        return Plan("nonzero", "stored", node.slice, _stored_value(lines, place))
    return classify(node)


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
    return dis.opname[code.co_code[instruction]].startswith("STORE_SUBSCR")


def _stored_value(lines: list[str], place: tuple[int, int, int, int]) -> ast.expr | None:
    """Return what an assignment to the subscript at `place` stores, if its text shows it."""
    first, _last, column, _end = place
    for length in range(1, 9):
        rest = b"".join(line.encode() for line in lines[first - 1 : first - 1 + length])
        try:
            statement = ast.parse(rest[column:].decode(errors="replace")).body[0]
        except (SyntaxError, ValueError, IndexError):
            continue
        return statement.value if isinstance(statement, ast.Assign) else None
    return None


def classify(node: ast.expr | None) -> Plan:
    """Return the plan for the expression of one instruction."""
    if isinstance(node, ast.Subscript):
        return Plan("nonzero", "index", node.slice)
    if not isinstance(node, ast.Call):
        return Plan(None)
    function = node.func
    if isinstance(function, ast.Attribute):
        name, receiver = function.attr, function.value
    elif isinstance(function, ast.Name):
        name, receiver = function.id, None
    else:
        return Plan(None)
    first = node.args[0] if node.args else None
    if name in _COPIES:
        return Plan("d2h", "destination" if name == "copy_" else "source", receiver)
    name = name.lstrip("_")
    if name in _BY_CALL:
        return Plan(_BY_CALL[name])
    if name.startswith("unique"):
        return Plan("size-readback")
    if name == "where":
        return Plan("nonzero" if len(node.args) + len(node.keywords) == 1 else None)
    if name in _MAKES_TENSOR:
        given = first or next((k.value for k in node.keywords if k.arg in ("data", "obj")), None)
        return Plan("h2d-pageable", "element", given)
    return Plan(None)


def classify_line(line: str) -> Plan:
    """Return the plan for a whole line, where the running instruction is not known (Python 3.10).

    Of its calls and subscripts, the first that names a kind counts; calls before subscripts.
    """
    statement = _statement(line.strip())
    if statement is None:
        return Plan(None)
    nodes = list(ast.walk(statement))
    for node in nodes:
        if isinstance(node, ast.Call):
            plan = classify(node)
            if plan.kind is not None:
                return plan
    for node in nodes:
        if isinstance(node, ast.Subscript):
            if isinstance(node.ctx, ast.Store):
                value = statement.value if isinstance(statement, ast.Assign) else None
                return Plan("nonzero", "stored", node.slice, value)
            return Plan("nonzero", "index", node.slice)
    return Plan(None)


def _statement(text: str) -> ast.stmt | None:
    if text.startswith("elif "):
        text = text[2:]
    for candidate in (text, f"{text} pass"):  # the head of an `if`, a `for`, a `with`
        try:
            return ast.parse(candidate).body[0]
        except (SyntaxError, ValueError, IndexError):
            continue
    return None
