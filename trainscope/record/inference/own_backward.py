"""Whether a loop's turns run a backward in no loop inside them, read from the source.

At the first backward of a loop inside, that of the turn itself may be still to come, and the step
has to begin now. So the statements are read that stand beside the way to the loop inside, down to
where the functions of the same file lead that they call.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from functools import lru_cache

from trainscope.record.inference.by_line import COMPREHENSIONS
from trainscope.record.inference.coverage import may_leave
from trainscope.record.inference.regions import Branch, Region, part
from trainscope.record.inference.stack import Way
from trainscope.record.inference.syntax import SourceTree, source_tree

__all__ = ["has_own_backward"]

_BACKWARDS = ("backward", "manual_backward")
_RUNS_LATER = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda, *COMPREHENSIONS)


@lru_cache(maxsize=1024)
def has_own_backward(way: Way, outer: int, inner: int) -> bool:
    """Whether a backward stands beside the way from one loop to the next one inside it.

    The loops are at ``outer`` and ``inner`` of the way's elements. A backward that a turn may leave
    out when it comes to the loop inside is none.
    """
    for at in way.elements[outer + 1 : inner]:
        if isinstance(at, Branch) and at.region.kind == "block":
            tree = source_tree(at.region.file, {})
            statements = at.region.statements
            before, behind = statements[: at.slot], statements[at.slot + 1 :]
            if tree is not None:
                reader = _Reader(tree)
                if any(map(reader.runs_backward, before)) or reader.always_in(behind):
                    return True
    return False


class _Reader:
    """Looks for backwards in the statements of one file, in each function of it once."""

    def __init__(self, tree: SourceTree) -> None:
        self._tree = tree
        self._functions: dict[str, bool] = {}

    def runs_backward(self, node: ast.AST) -> bool:
        if isinstance(node, _RUNS_LATER):
            return False
        if isinstance(node, ast.If) and all(map(self.always_in, (node.body, node.orelse))):
            return True
        if isinstance(node, ast.Call) and self._calls_backward(node.func):
            return True
        return any(
            self.always_in([each for each in parts if isinstance(each, ast.AST)])
            for parts in _parts_always_run(node)
        )

    def always_in(self, nodes: Sequence[ast.AST]) -> bool:
        for node in nodes:
            if self.runs_backward(node):
                return True
            if may_leave([node]):
                break
        return False

    def _calls_backward(self, function: ast.expr) -> bool:
        if isinstance(function, ast.Attribute) and function.attr in _BACKWARDS:
            return True
        name = _called(function)
        if name is None:
            return False
        if name not in self._functions:
            self._functions[name] = False  # where it calls itself
            bodies = [each.body for each in self._tree.functions(name)]
            self._functions[name] = bool(bodies) and all(map(self.always_in, bodies))
        return self._functions[name]


def _called(function: ast.expr) -> str | None:
    """The name of a function, or of a method of ``self``; that of others may be anything's."""
    match function:
        case ast.Name(id=name) | ast.Attribute(value=ast.Name(id="self"), attr=name):
            return name
    return None


def _parts_always_run(node: ast.AST) -> Iterator[list[object]]:
    for name, value in ast.iter_fields(node):
        parts = value if isinstance(value, list) else [value]
        yield [each for at, each in enumerate(parts) if not _optional(node, name, at)]


def _optional(node: ast.AST, name: str, at: int) -> bool:
    found = part(node, name, at)
    return found is not None and Branch(Region(found[0], "", 0), found[1]).optional
