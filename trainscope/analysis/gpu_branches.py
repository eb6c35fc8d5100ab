"""Which lines of a program no machine with a GPU runs: the else of ``if device == "cuda":``."""

from __future__ import annotations

import ast
import linecache
import re
import warnings
from collections.abc import Iterator, Sequence
from functools import lru_cache

from trainscope.trace.trace import Trace

__all__ = ["Place", "lines_without_gpu", "never_with_gpu"]

Place = tuple[str, int]
"""A file and a line in it."""

_FLAG = re.compile(r"cuda|(use|using|has|have|with)_(cuda|gpu)|(cuda|gpu)(_is)?_available")
_SETTINGS = frozenset({"self", "args", "cfg", "config", "fabric", "opt", "options", "opts"})
"""What ``.device`` is the program's device of, and not that of one tensor."""
_LEAVES = (ast.Return, ast.Raise, ast.Continue, ast.Break)
_DOING = (ast.Call, ast.Subscript, ast.BinOp, ast.Compare)
_CONDITIONS = (ast.BoolOp, ast.Call, ast.Compare, ast.IfExp, ast.UnaryOp)


def never_with_gpu(trace: Trace) -> frozenset[Place]:
    """Places of sites that only a machine without a GPU runs; of a dry run, else none.

    The source is read as it lies on disk now: where it is not what the site says, nothing is said.
    """
    sites = trace.syncs if trace.info.dry_run else ()
    lines = {
        file: lines_without_gpu("".join(linecache.getlines(file)))
        for file in {site.file for site in sites}
    }
    return frozenset(
        (site.file, site.line)
        for site in sites
        if site.line in lines[site.file]
        and linecache.getline(site.file, site.line).strip() == site.source
    )


@lru_cache(maxsize=64)
def lines_without_gpu(source: str) -> frozenset[int]:
    """Numbers of the lines that only a machine without a GPU runs; none where it is no Python.

    What tells is a test that a GPU decides: ``torch.cuda.is_available()``, a device's name, a
    ``use_cuda``, a name that only such tests are assigned to. A test that also asks something
    else decides nothing.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of an odd escape in a string
            return _found(ast.parse(source))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return frozenset()


def _found(tree: ast.Module) -> frozenset[int]:
    names = _decided_names(tree)
    lines: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.If):
            answer = _with_gpu(node.test, names)
            if answer is not None:
                lines.update(_lines(node.orelse if answer else node.body))
        for block in _blocks(node):
            lines.update(_lines(_after_leaving(block, names)))
        if isinstance(node, ast.stmt):
            lines.update(_conditional_lines(node, names))
    return frozenset(lines)


def _blocks(node: ast.AST) -> Iterator[Sequence[ast.stmt]]:
    for field in ("body", "orelse", "finalbody"):
        block = getattr(node, field, None)
        if isinstance(block, list):
            yield block


def _after_leaving(block: Sequence[ast.stmt], names: dict[str, bool]) -> Sequence[ast.stmt]:
    """What follows an ``if`` that a machine with a GPU leaves the block by."""
    for place, statement in enumerate(block):
        if isinstance(statement, ast.If):
            answer = _with_gpu(statement.test, names)
            taken = statement.body if answer else statement.orelse if answer is False else ()
            if taken and isinstance(taken[-1], _LEAVES):
                return block[place + 1 :]
    return ()


def _conditional_lines(statement: ast.stmt, names: dict[str, bool]) -> set[int]:
    """Lines on which nothing else is done than in the branch of an ``… if … else …``."""
    found = [part for part in _own_expressions(statement) if isinstance(part, ast.IfExp)]
    decided = [
        (part, answer) for part in found if (answer := _with_gpu(part.test, names)) is not None
    ]
    if not decided:
        return set()
    inside: set[ast.AST] = set()
    lines: set[int] = set()
    for part, answer in decided:
        inside.update(ast.walk(part))
        branch = part.orelse if answer else part.body
        if any(isinstance(each, _DOING) for each in ast.walk(branch)):
            lines.update(_lines([branch]))
    for part in _own_expressions(statement) if lines else ():
        if isinstance(part, _DOING) and part not in inside:
            lines.difference_update(_lines([part]))
    return lines


def _own_expressions(statement: ast.stmt) -> Iterator[ast.AST]:
    """The expressions of a statement, those of the statements inside it left out."""
    waiting = [each for each in ast.iter_child_nodes(statement) if not isinstance(each, ast.stmt)]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += [each for each in ast.iter_child_nodes(node) if not isinstance(each, ast.stmt)]


def _lines(nodes: Sequence[ast.stmt | ast.expr]) -> range:
    if not nodes:
        return range(0)
    return range(nodes[0].lineno, (nodes[-1].end_lineno or nodes[-1].lineno) + 1)


# ---- what a test gives on a machine with a GPU; None: something else decides ---------------------
def _with_gpu(test: ast.expr, names: dict[str, bool]) -> bool | None:
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        answer = _with_gpu(test.operand, names)
        return None if answer is None else not answer
    if isinstance(test, ast.BoolOp):
        answers = [_with_gpu(value, names) for value in test.values]
        decisive = isinstance(test.op, ast.Or)
        if decisive in answers:
            return decisive
        return None if None in answers else not decisive
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        return _compared(test.left, test.ops[0], test.comparators[0])
    if isinstance(test, ast.IfExp):
        answer = _with_gpu(test.test, names)
        return None if answer is None else _with_gpu(test.body if answer else test.orelse, names)
    if isinstance(test, ast.Call):
        return _called(test)
    if isinstance(test, ast.Name) and test.id in names:
        return names[test.id]
    if isinstance(test, ast.Name | ast.Attribute):
        return True if _FLAG.fullmatch(_last(test)) else None
    return test.value if isinstance(test, ast.Constant) and isinstance(test.value, bool) else None


def _called(call: ast.Call) -> bool | None:
    name = ast.unparse(call.func)
    if name.endswith(("cuda.is_available", "cuda.device_count")):
        return True
    if name.endswith(".startswith") and len(call.args) == 1:
        assert isinstance(call.func, ast.Attribute)
        return _names_gpu(call.func.value, [call.args[0]])
    return None


def _compared(left: ast.expr, op: ast.cmpop, right: ast.expr) -> bool | None:
    if isinstance(left, ast.Call) and ast.unparse(left.func).endswith("cuda.device_count"):
        if isinstance(right, ast.Constant) and right.value == 0:
            return {ast.Gt: True, ast.NotEq: True, ast.Eq: False}.get(type(op))
        return None
    if isinstance(op, ast.In | ast.NotIn):
        if isinstance(left, ast.Constant):  # "cuda" in device
            answer = _names_gpu(right, [left])
        else:
            words = right.elts if isinstance(right, ast.Tuple | ast.List | ast.Set) else []
            answer = _names_gpu(left, words)
        negated = isinstance(op, ast.NotIn)
    elif isinstance(op, ast.Eq | ast.NotEq):
        answer = _names_gpu(left, [right])
        negated = isinstance(op, ast.NotEq)
    else:
        return None
    return None if answer is None else answer != negated


def _names_gpu(device: ast.expr, words: Sequence[ast.expr]) -> bool | None:
    """Whether a device that is one of the words is a GPU; None where it may be any device."""
    if isinstance(device, ast.Call) and ast.unparse(device.func) == "str" and device.args:
        device = device.args[0]
    if isinstance(device, ast.Attribute) and device.attr == "type":
        device = device.value
    if isinstance(device, ast.Attribute) and ast.unparse(device.value) not in _SETTINGS:
        return None
    if not isinstance(device, ast.Name | ast.Attribute) or not words:
        return None
    kinds = {_device_word(word) for word in words}
    if "cuda" in kinds:
        return True
    return None if None in kinds else False


def _device_word(word: ast.expr) -> str | None:
    """``cuda`` of ``"cuda:0"`` and of ``torch.device("cuda")``; None for what is no device."""
    if isinstance(word, ast.Call) and word.args and ast.unparse(word.func).endswith("device"):
        word = word.args[0]
    if not isinstance(word, ast.Constant) or not isinstance(word.value, str):
        return None
    kind = word.value.partition(":")[0]
    return kind if kind in ("cuda", "cpu", "mps", "xpu") else None


def _last(name: ast.Name | ast.Attribute) -> str:
    return name.id if isinstance(name, ast.Name) else name.attr


def _decided_names(tree: ast.Module) -> dict[str, bool]:
    """Names whose every assignment in the file is a test that a GPU decides, all alike."""
    given: dict[str, set[bool | None]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            target, value = node.targets[0], node.value
            if isinstance(target, ast.Name):
                known = _with_gpu(value, {}) if isinstance(value, _CONDITIONS) else None
                given.setdefault(target.id, set()).add(known)
                continue
        for part in _own_expressions(node) if isinstance(node, ast.stmt) else ():
            if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
                given.setdefault(part.id, set()).add(None)
        if isinstance(node, ast.arg):
            given.setdefault(node.arg, set()).add(None)
    return {
        name: answer
        for name, answers in given.items()
        if len(answers) == 1 and (answer := next(iter(answers))) is not None
    }
