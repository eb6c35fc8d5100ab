"""The kind of a wait that only torch's warning shows, from the expression that was running."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from types import CodeType, FrameType

from trainscope.sync.expression import source_at
from trainscope.sync.operands import destination_kind, element_kind, source_kind
from trainscope.sync.subscripts import read_kind, stored_kind

__all__ = ["classify", "classify_line", "implicit_kind", "named_kind", "runs_subscript"]

_BY_CALL = {
    "allclose": "bool",
    "argwhere": "nonzero",
    "bincount": "size-readback",
    "coalesce": "size-readback",
    "combinations": "size-readback",
    "cpu": "cpu",
    "equal": "bool",
    "is_nonzero": "bool",
    "item": "item",
    "masked_select": "nonzero",
    "nms": "size-readback",
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
    """``read``, ``element``, ``stored``, ``destination`` or ``source``: what `operand` is."""
    operand: ast.expr | None = None
    value: ast.expr | None = None
    """What is stored, for ``stored``."""

    def at(self, frame: FrameType) -> str | None:
        """Return the kind in `frame`, or None when the expression does not tell."""
        if self.role == "read" and isinstance(self.operand, ast.Subscript):
            return read_kind(self.operand, frame)
        if self.role == "element":
            return element_kind(self.operand, frame)
        if self.role == "stored" and isinstance(self.operand, ast.Subscript):
            return stored_kind(self.operand, self.value, frame)
        if self.role == "destination":
            return destination_kind(self.operand, frame)
        if self.role == "source":
            return source_kind(self.operand, frame)
        return self.kind


_plans: dict[tuple[str, CodeType, int], Plan] = {}
"""By file too: code of equal text is equal, whichever file it comes from."""


def implicit_kind(frame: FrameType, user: FrameType | None) -> str:
    """Return the kind of the wait at `frame`, the innermost frame; `user` is the user's."""
    kind = _plan(frame).at(frame)
    if kind is None and user is not None and user is not frame:
        kind = _plan(user).kind  # the user's own call may say more than the library's line
    return kind or _OTHER


def named_kind(frame: FrameType, user: FrameType | None) -> str | None:
    """Return the kind that the name of the function called at `frame` tells, if it tells one."""
    for each in (frame, user):
        plan = None if each is None else _plan(each)
        if plan is not None and plan.kind is not None and not plan.role:
            return plan.kind
    return None


def runs_subscript(frame: FrameType) -> bool:
    """Return whether `frame` is at ``x[index]`` or ``x[index] = value``."""
    return _plan(frame).role in ("read", "stored")


def _plan(frame: FrameType) -> Plan:
    key = (frame.f_code.co_filename, frame.f_code, frame.f_lasti)
    plan = _plans.get(key)
    if plan is None:
        if len(_plans) >= _CACHED:
            _plans.clear()
        plan = _plans[key] = _read_plan(frame)
    return plan


def _read_plan(frame: FrameType) -> Plan:
    line, running = source_at(frame)
    if running is None:
        return classify_line(line)
    if isinstance(running.node, ast.Subscript) and running.stores:
        return Plan("nonzero", "stored", running.node, running.stored)
    return classify(running.node)


def classify(node: ast.expr | None) -> Plan:
    """Return the plan for the expression of one instruction."""
    if isinstance(node, ast.Subscript):
        return Plan("nonzero", "read", node)
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
    if name.rstrip("_") == "index_put":
        return _put(node, receiver)
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


def _put(call: ast.Call, receiver: ast.expr | None) -> Plan:
    """Return the plan for ``x.index_put_(indices, values)`` or ``torch.index_put(x, …)``."""
    given = list(call.args)
    if isinstance(receiver, ast.Name) and receiver.id == "torch" and given:
        receiver = given.pop(0)
    named = {word.arg: word.value for word in call.keywords}
    indices = given[0] if given else named.get("indices")
    values = given[1] if len(given) > 1 else named.get("values")
    if receiver is None or indices is None:
        return Plan("nonzero")
    if isinstance(indices, ast.List):
        indices = ast.Tuple(indices.elts, ast.Load())
    return Plan("nonzero", "stored", ast.Subscript(receiver, indices, ast.Store()), values)


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
                return Plan("nonzero", "stored", node, value)
            return Plan("nonzero", "read", node)
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
