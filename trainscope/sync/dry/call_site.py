"""What the source says at the call that a frame is making: is the device a literal "cpu"?

A function that hands on its own ``**kwargs`` says nothing itself: there its caller is asked.
"""

from __future__ import annotations

import ast
import functools
import inspect
import linecache
from itertools import islice
from types import CodeType, FrameType
from typing import Any

from trainscope.sync.blame import is_user_file
from trainscope.sync.cells import source_of

__all__ = [
    "calls_at", "function_at", "is_variable", "means_cpu", "names_cpu", "owner_of", "says_cuda",
    "value_of",
]  # fmt: skip

_FORWARDED = 8
"""Callers asked, at most, by way of what each hands on."""


def names_cpu(frame: FrameType | None, called: str) -> bool:
    """Return whether the call at `frame` says "cpu" in so many words.

    A literal ``"cpu"``, ``torch.device("cpu")`` or a variable with cpu in its name. A library's
    frame passes on what the user gave, so there the user's own call is looked at as well.
    `called`: the name of the function called at `frame`.
    """
    if frame is None:
        return False
    if any(_says_cpu(call) for _, call in _said(frame, called)):
        return True
    user: FrameType | None = frame
    while user is not None and not is_user_file(user.f_code.co_filename):
        user = user.f_back
    if user is None or user is frame:
        return False
    return any(_says_cpu(call) for call in _calls(user, None))


def is_variable(frame: FrameType | None, called: str, keyword: str) -> bool:
    """Return whether the call at `frame` gives `keyword` as anything but a literal."""
    given = _given(frame, called, keyword)
    return bool(given) and not any(isinstance(value, ast.Constant) for _, value in given)


def says_cuda(frame: FrameType | None, called: str, keyword: str) -> bool:
    """Return whether the call at `frame` gives `keyword` as a condition on there being a GPU."""
    given = _given(frame, called, keyword)
    return any(_asks_for_gpu(part) for _, value in given for part in ast.walk(value))


def _asks_for_gpu(part: ast.AST) -> bool:
    """Whether it has cuda in its name, or is true of a device that is not the CPU."""
    if isinstance(part, ast.Compare):
        (unlike, *more), (others, *_) = part.ops, part.comparators
        named = [inner.value for inner in ast.walk(others) if isinstance(inner, ast.Constant)]
        return not more and isinstance(unlike, (ast.NotEq, ast.NotIn)) and "cpu" in named
    word = part.value if isinstance(part, ast.Constant) else getattr(part, "id", "")
    if isinstance(part, ast.Attribute):
        word = part.attr
    return isinstance(word, str) and "cuda" in word.lower()


def owner_of(frame: FrameType | None, called: str, keyword: str) -> object | None:
    """Return the object whose attribute `keyword` the call at `frame` gives as `keyword`.

    None where it is given otherwise; ``f(pin_memory=loader.pin_memory)`` is owned by ``loader``.
    """
    for at, value in _given(frame, called, keyword):
        if isinstance(value, ast.Attribute) and value.attr == keyword:
            return value_of(at, value.value)
    return None


def calls_at(frame: FrameType) -> list[ast.Call]:
    """Return the call that `frame` is making; without positions, all of its line."""
    return _calls(frame, None)


def function_at(code: CodeType) -> ast.FunctionDef | None:
    """Return the definition that `code` was compiled from; None where its source is not there."""
    return _functions(code.co_filename).get((code.co_firstlineno, code.co_name))


def value_of(frame: FrameType | None, expression: ast.expr) -> object | None:
    """Return what a name, or an attribute that an object itself holds, stands for now."""
    if frame is None:
        return None
    if isinstance(expression, ast.Name):
        return frame.f_locals.get(expression.id, frame.f_globals.get(expression.id))
    if isinstance(expression, ast.Attribute):
        return getattr(value_of(frame, expression.value), "__dict__", {}).get(expression.attr)
    return None


def _given(frame: FrameType | None, called: str, keyword: str) -> list[tuple[FrameType, ast.expr]]:
    """Return what the call gives as `keyword`, each with the frame that gives it."""
    return [
        (at, given.value)
        for at, call in _said(frame, called)
        for given in call.keywords
        if given.arg == keyword
    ]


def _said(frame: FrameType | None, called: str) -> list[tuple[FrameType, ast.Call]]:
    """Return the call at `frame`, and those by which its callers hand on their keywords to it."""
    said: list[tuple[FrameType, ast.Call]] = []
    name: str | None = called
    for _ in range(_FORWARDED):
        if frame is None:
            break
        calls = _calls(frame, name)
        said += [(frame, call) for call in calls]
        if not any(_hands_on(call, frame.f_code) for call in calls):
            break
        frame, name = frame.f_back, None
    return said


def _hands_on(call: ast.Call, code: CodeType) -> bool:
    """Return whether `call` passes on the ``**kwargs`` of the function with this `code`."""
    if not code.co_flags & inspect.CO_VARKEYWORDS:
        return False
    own = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & inspect.CO_VARARGS)
    return any(
        word.arg is None and _is_name(word.value, code.co_varnames[own]) for word in call.keywords
    )


def _is_name(value: Any, name: str) -> bool:
    return isinstance(value, ast.Name) and value.id == name


def _says_cpu(call: ast.Call) -> bool:
    given = [word.value for word in call.keywords if word.arg in ("device", "map_location")]
    return any(means_cpu(value) for value in [*call.args, *given])


def means_cpu(value: ast.expr) -> bool:
    """Return whether this is a device that is the host, in so many words."""
    if isinstance(value, ast.Constant):
        return isinstance(value.value, str) and value.value.split(":")[0] == "cpu"
    if isinstance(value, ast.Name):
        return "cpu" in value.id.lower()
    if isinstance(value, ast.Attribute):
        return "cpu" in value.attr.lower()
    if isinstance(value, ast.Call) and _name(value) == "device":
        return any(means_cpu(inner) for inner in value.args)
    return False


def _calls(frame: FrameType, called: str | None) -> list[ast.Call]:
    """Return the call that `frame` is making; without positions, those of that name on its line."""
    code = frame.f_code
    source = source_of(code)
    known = _index(source.file, source.above)
    position = _position(code, frame.f_lasti)
    if position is not None:
        call = known.get(position)
        return [] if call is None else [call]
    line = frame.f_lineno or 0
    return [
        call
        for call in known.values()
        if call.lineno <= line <= (call.end_lineno or call.lineno)
        and (called is None or _name(call) == called)
    ]


def _name(call: ast.Call) -> str:
    if isinstance(call.func, ast.Attribute):
        return call.func.attr
    return call.func.id if isinstance(call.func, ast.Name) else ""


@functools.lru_cache(maxsize=4096)
def _position(code: CodeType, offset: int) -> tuple[int, int] | None:
    """Return where the instruction's source ends; None before Python 3.11."""
    positions = getattr(code, "co_positions", None)
    if positions is None or offset < 0:
        return None
    _, end_line, _, end_column = next(islice(positions(), offset // 2, None))
    return None if end_line is None or end_column is None else (end_line, end_column)


@functools.lru_cache(maxsize=512)
def _index(filename: str, above: int) -> dict[tuple[int, int], ast.Call]:
    """Return the calls of a source file by where they end; no two end at one place."""
    return {
        (node.end_lineno or 0, node.end_col_offset or 0): node
        for node in ast.walk(_tree(filename, above))
        if isinstance(node, ast.Call)
    }


@functools.lru_cache(maxsize=512)
def _functions(filename: str) -> dict[tuple[int, str], ast.FunctionDef]:
    """Return the functions of a source file by name and first line, that of a decorator if any."""
    return {
        (min([node.lineno, *(each.lineno for each in node.decorator_list)]), node.name): node
        for node in ast.walk(_tree(filename, 0))
        if isinstance(node, ast.FunctionDef)
    }


def _tree(filename: str, above: int) -> ast.AST:
    try:
        return ast.parse("".join(linecache.getlines(filename)[above:]))
    except (SyntaxError, ValueError):  # a template or a cell with magics: then nothing is literal
        return ast.Module([], [])
