"""A device that a library's function chose itself, and handed on: the host, where it says "cpu".

A library that draws random numbers on the host says so once, in a default or under
``if device is None``, and passes the device on from function to function. The program is asked
first: what it gave, or what depends on there being a GPU, is none of these.
"""

from __future__ import annotations

import ast
import functools
import inspect
from types import FrameType

import torch

from trainscope.sync.blame import is_user_file
from trainscope.sync.dry.call_site import calls_at, function_at, means_cpu, value_of

__all__ = ["HandedDevices"]

_MEANS_GPU = ("cuda", "is_available", "accelerator")


class HandedDevices:
    """Remembers the device objects that libraries made for the host: they keep some."""

    def __init__(self) -> None:
        self._hosts: list[torch.device] = []

    def is_host(self, device: torch.device | str, frame: FrameType) -> bool:
        """Whether a library's function on the way to `frame` chose this ``cpu`` by itself."""
        if is_user_file(frame.f_code.co_filename):
            return False
        if any(device is known for known in self._hosts):
            return True
        if not _chosen_on_way(device, frame):
            return False
        if isinstance(device, torch.device):
            self._hosts.append(device)
        return True


def _chosen_on_way(device: torch.device | str, frame: FrameType) -> bool:
    """Whether the outermost of the library's functions that hand it on is the one that chose it."""
    origin: FrameType | None = None
    name = ""
    at: FrameType | None = frame
    while at is not None and not is_user_file(at.f_code.co_filename):
        held = [local for local, value in at.f_locals.items() if _is(value, device)]
        if not held:
            break
        origin, name, at = at, held[0], at.f_back
    if origin is None:
        return False
    function = function_at(origin.f_code)
    if function is None:
        return False
    assigned, of_literals = _assigned(function, name)
    if not of_literals:
        return False
    parameters = _parameters(function)
    if name not in parameters:
        return assigned
    given = _given(origin, name, parameters)
    if given is None:
        return False
    if given:
        return not _is(value_of(origin.f_back, given[0]), device) and (
            means_cpu(given[0]) or (assigned and _is_plain(given[0]))
        )
    default = _default(function, name)
    return assigned or (default is not None and means_cpu(default))


def _is(value: object, device: torch.device | str) -> bool:
    return value is device if isinstance(device, torch.device) else value == device


def _is_plain(given: ast.expr) -> bool:
    """Whether it was seen what this stands for."""
    return isinstance(given, (ast.Name, ast.Constant))


@functools.lru_cache(maxsize=1024)
def _assigned(function: ast.FunctionDef, name: str) -> tuple[bool, bool]:
    """Whether the function assigns to `name`, and whether all that it assigns says "cpu".

    The second is False too in a function that looks whether there is a GPU.
    """
    values: list[ast.expr | None] = []
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    for node in (inner for statement in body for inner in ast.walk(statement)):
        word = getattr(node, "value", getattr(node, "id", getattr(node, "attr", "")))
        if isinstance(node, ast.Attribute):
            word = node.attr
        if isinstance(word, str) and any(means in word.lower() for means in _MEANS_GPU):
            return False, False
        if isinstance(node, ast.Assign):
            values += [node.value for target in node.targets if _stores(target, name)]
        elif isinstance(node, (ast.AnnAssign, ast.NamedExpr, ast.AugAssign)):
            values += [node.value] if _stores(node.target, name) else []
        elif isinstance(node, (ast.For, ast.comprehension)):
            values += [None] if _stores(node.target, name) else []
    return bool(values), all(value is not None and means_cpu(value) for value in values)


def _stores(target: ast.AST, name: str) -> bool:
    return any(isinstance(each, ast.Name) and each.id == name for each in ast.walk(target))


def _parameters(function: ast.FunctionDef) -> list[str]:
    given = function.args
    return [each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs)]


def _default(function: ast.FunctionDef, name: str) -> ast.expr | None:
    given = function.args
    by_place = [each.arg for each in (*given.posonlyargs, *given.args)]
    with_default = by_place[len(by_place) - len(given.defaults) :]
    defaults = dict(zip(with_default, given.defaults, strict=True))
    named = zip(given.kwonlyargs, given.kw_defaults, strict=True)
    defaults |= {each.arg: value for each, value in named if value is not None}
    return defaults.get(name)


def _given(origin: FrameType, name: str, parameters: list[str]) -> list[ast.expr] | None:
    """Return what the caller gives for this parameter, if anything; None where it may have."""
    calls = [] if origin.f_back is None else calls_at(origin.f_back)
    if len(calls) != 1:
        return None
    (call,) = calls
    found = [word.value for word in call.keywords if word.arg == name]
    if found:
        return found
    if any(word.arg is None for word in call.keywords) or any(
        isinstance(each, ast.Starred) for each in call.args
    ):
        return None
    bound = bool(parameters) and parameters[0] in ("self", "cls")
    index = parameters.index(name) - bound
    if bool(origin.f_code.co_flags & inspect.CO_GENERATOR):
        return None
    return [call.args[index]] if index < len(call.args) else []
