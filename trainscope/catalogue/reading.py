"""What the text of a line shows: what it calls, and what it does with a value that it reads."""

from __future__ import annotations

import ast
import re

__all__ = [
    "USES", "called", "calls_scaler", "moves_in_words", "moves_new", "only_logs",
    "picks_greatest", "reads_by_index", "slices_by_value", "stored_value", "subscripts", "use_of",
]  # fmt: skip

USES = (
    "log", "total", "collect", "needed", "returned", "nonfinite", "assert", "branch", "other",
)  # fmt: skip
"""Words that `use_of` returns."""

_READS = frozenset({"item", "tolist", "cpu", "numpy", "to"})
_NUMBERS = frozenset({"float", "int", "bool"})
_NONFINITE = frozenset({"isnan", "isinf", "isfinite"})
# Calls that only pass a number on: what counts is where their result goes.
_PASSING = frozenset(
    {"abs", "dict", "exp", "float", "format", "int", "join", "list", "log10", "log2", "max"}
    | {"mean", "min", "round", "sqrt", "str", "sum", "tuple"}
)
_MOVING = frozenset({"as_tensor", "asarray", "copy_", "cuda", "from_numpy", "tensor", "to"})
_MAKING = frozenset({"arange", "empty", "eye", "full", "linspace", "ones", "rand", "randint"})
_MAKING |= {"randn", "randperm", "zeros"}
_SCALER_READS = frozenset({"get_scale", "step"})
_COLLECTING = frozenset({"add", "append", "appendleft", "extend", "update"})
_LOGGING = frozenset(
    {"add_histogram", "add_scalar", "add_scalars", "critical", "debug", "error", "info", "log"}
    | {"log_dict", "log_metric", "log_metrics", "log_scalar", "print", "record", "record_mean"}
    | {"report_scalar", "set_description", "set_postfix", "set_postfix_str", "warn", "warning"}
    | {"write"}
)


def use_of(source: str) -> str:
    """Return the use, one of `USES`, of the value that the line `source` reads.

    ``needed`` is a value that the program goes on with: an index, or the argument of a call that
    neither logs nor collects, such as an action for an environment.
    """
    statements = _statements(source)
    if not statements:
        return "other"
    reading = (each for each in statements if any(_is_read(node) for node in ast.walk(each)))
    statement = next(reading, statements[0])
    parents = {child: node for node in ast.walk(statement) for child in ast.iter_child_nodes(node)}
    read = next((node for node in ast.walk(statement) if _is_read(node)), None)
    if read is not None:
        use = _climb(read, parents)
        if use != "other":
            return use
        if isinstance(statement, ast.Return):
            return "returned"
    names = {_name(node) for node in ast.walk(statement) if isinstance(node, ast.Call)}
    if isinstance(statement, (ast.Assert, ast.If, ast.While)):
        if read is not None and read not in ast.walk(statement.test):
            return "other"  # it is what stands behind the colon that reads
        if names & _NONFINITE:
            return "nonfinite"
        return "assert" if isinstance(statement, ast.Assert) else "branch"
    if isinstance(statement, ast.Expr) and names & _LOGGING:
        return "log"
    return "other"


def called(source: str) -> frozenset[str]:
    """Return the names of all functions and methods that the line calls."""
    return frozenset(re.findall(r"(\w+)\(", source))


def stored_value(source: str) -> str | None:
    """Return the text of what the line stores into a subscript, if it stores there."""
    target, equals, value = source.partition("] = ")
    return value if equals and "=" not in target else None


def only_logs(source: str) -> bool:
    """Whether the line calls nothing but what logs and what makes a text or a number of a value.

    ``print(trainer.evaluate())`` logs what was read in ``evaluate``.
    """
    known = _LOGGING | _PASSING | _READS | {"detach"}
    return all(_name(call) in known for call in _calls(source))


def reads_by_index(source: str) -> bool:
    """Whether the line reads a tensor at an index, and moves nothing to a device in words."""
    return not moves_in_words(source) and any(
        not isinstance(index, ast.Slice | ast.Constant) for index in _indices(source)
    )


def moves_in_words(source: str) -> bool:
    """Whether the line itself calls what copies to a device."""
    return any(_name(call) in _MOVING for call in _calls(source))


def subscripts(source: str) -> bool:
    """Whether the line reads anything at an index or a slice."""
    return bool(_indices(source))


def slices_by_value(source: str) -> bool:
    """Whether the line reads or sets a slice one of whose ends is no number that stands there."""
    nodes = (node for statement in _statements(source) for node in ast.walk(statement))
    ends = [
        end
        for index in nodes
        if isinstance(index, ast.Slice)
        for end in (index.lower, index.upper, index.step)
    ]
    return any(end is not None and not isinstance(end, ast.Constant) for end in ends)


def _indices(source: str) -> list[ast.expr]:
    nodes = (node for statement in _statements(source) for node in ast.walk(statement))
    reads = (n for n in nodes if isinstance(n, ast.Subscript) and isinstance(n.ctx, ast.Load))
    return [
        i for n in reads for i in (n.slice.elts if isinstance(n.slice, ast.Tuple) else [n.slice])
    ]


def calls_scaler(source: str) -> bool:
    """Whether the line calls what reads in a ``GradScaler``, by the name of the object."""
    return any(
        isinstance(node.func, ast.Attribute)
        and node.func.attr in _SCALER_READS
        and "scaler" in ast.unparse(node.func.value).lower()
        for node in _calls(source)
    )


def moves_new(source: str) -> bool:
    """Whether all that the line moves was only just made, such as ``torch.zeros(n).to(device)``."""
    moved = [
        _root(node.func.value)
        for node in _calls(source)
        if isinstance(node.func, ast.Attribute) and node.func.attr in ("cuda", "to")
    ]
    return bool(moved) and all(
        isinstance(value, ast.Call)
        and isinstance(value.func, ast.Attribute)
        and value.func.attr in _MAKING
        and ast.unparse(value.func.value) == "torch"
        for value in moved
    )


def _root(value: ast.expr) -> ast.expr:
    """Return what a chain of methods began with: ``torch.rand(3)`` of ``torch.rand(3).log()``."""
    while (
        isinstance(value, ast.Call)
        and isinstance(value.func, ast.Attribute)
        and isinstance(value.func.value, ast.Call)
    ):
        value = value.func.value
    return value


def picks_greatest(source: str) -> bool:
    """Whether the line calls Python's own ``max`` or ``min``, which compare one by one."""
    return any(isinstance(c.func, ast.Name) and c.func.id in ("max", "min") for c in _calls(source))


def _calls(source: str) -> list[ast.Call]:
    nodes = (node for statement in _statements(source) for node in ast.walk(statement))
    return [node for node in nodes if isinstance(node, ast.Call)]


def _statements(source: str) -> list[ast.stmt]:
    """The statements in a stripped source line, with the head of a block completed."""
    text = source[2:] if source.startswith("elif ") else source
    for candidate in (text, f"{text} pass", f"{text})", f"{text}))"):
        try:
            return ast.parse(candidate).body
        except (SyntaxError, ValueError):
            continue
    return []


def _is_read(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    if isinstance(node.func, ast.Attribute):
        return node.func.attr in _READS
    return isinstance(node.func, ast.Name) and node.func.id in _NUMBERS


def _name(call: ast.Call) -> str:
    if isinstance(call.func, ast.Attribute):
        return call.func.attr
    return call.func.id if isinstance(call.func, ast.Name) else ""


def _climb(node: ast.AST, parents: dict[ast.AST, ast.AST]) -> str:
    """Follow the value outwards until something is done with it."""
    while node in parents:
        parent = parents[node]
        if isinstance(parent, ast.Subscript) and parent.slice is node:
            return "needed"
        if isinstance(parent, ast.AugAssign):
            return "collect" if isinstance(node, ast.List) else "total"
        if isinstance(parent, ast.keyword):
            node = parent
            continue
        if isinstance(parent, ast.Call) and parent.func is not node:
            name = _name(parent)
            if name in _LOGGING:
                return "log"
            if name in _COLLECTING:
                return "collect"
            if name not in _PASSING and name not in _NONFINITE and name not in _READS:
                return "needed"
        node = parent
    return "other"
