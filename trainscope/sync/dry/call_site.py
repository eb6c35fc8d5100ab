"""What the source says at the call that a frame is making: is the device a literal "cpu"?"""

from __future__ import annotations

import ast
import functools
import linecache
from itertools import islice
from types import CodeType, FrameType

from trainscope.sync.blame import is_user_file

__all__ = ["is_variable", "names_cpu"]


def names_cpu(frame: FrameType | None, called: str) -> bool:
    """Return whether the call at `frame` says "cpu" in so many words.

    A literal ``"cpu"``, ``torch.device("cpu")`` or a variable with cpu in its name. A library's
    frame passes on what the user gave, so there the user's own call is looked at as well.
    `called`: the name of the function called at `frame`.
    """
    if frame is None:
        return False
    if any(_says_cpu(call) for call in _calls(frame, called)):
        return True
    user: FrameType | None = frame
    while user is not None and not is_user_file(user.f_code.co_filename):
        user = user.f_back
    if user is None or user is frame:
        return False
    return any(_says_cpu(call) for call in _calls(user, None))


def is_variable(frame: FrameType | None, called: str, keyword: str) -> bool:
    """Return whether the call at `frame` gives `keyword` as anything but a literal."""
    if frame is None:
        return False
    values = [
        given.value
        for call in _calls(frame, called)
        for given in call.keywords
        if given.arg == keyword
    ]
    return bool(values) and not any(isinstance(value, ast.Constant) for value in values)


def _says_cpu(call: ast.Call) -> bool:
    given = [word.value for word in call.keywords if word.arg in ("device", "map_location")]
    return any(_is_cpu(value) for value in [*call.args, *given])


def _is_cpu(value: ast.expr) -> bool:
    if isinstance(value, ast.Constant):
        return isinstance(value.value, str) and value.value.split(":")[0] == "cpu"
    if isinstance(value, ast.Name):
        return "cpu" in value.id.lower()
    if isinstance(value, ast.Attribute):
        return "cpu" in value.attr.lower()
    if isinstance(value, ast.Call) and _name(value) == "device":
        return any(_is_cpu(inner) for inner in value.args)
    return False


def _calls(frame: FrameType, called: str | None) -> list[ast.Call]:
    """Return the call that `frame` is making; without positions, those of that name on its line."""
    code = frame.f_code
    known = _index(code.co_filename)
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
def _index(filename: str) -> dict[tuple[int, int], ast.Call]:
    """Return the calls of a source file by where they end; no two end at one place."""
    source = "".join(linecache.getlines(filename))
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):  # a template or a cell with magics: then nothing is literal
        return {}
    return {
        (node.end_lineno or 0, node.end_col_offset or 0): node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
    }
