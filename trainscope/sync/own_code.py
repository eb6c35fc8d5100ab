"""Our own functions, which torch.compile is to run as they are written.

After a graph break it compiles whatever Python frame comes next; ours would be compiled as if
within a graph, where they step aside: the wait that broke the graph would not be seen by them.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections import deque
from collections.abc import Iterator
from itertools import repeat
from types import CodeType, FunctionType
from typing import Any

try:
    from torch._C._dynamo import eval_frame
except ImportError:  # not part of torch's public interface
    eval_frame = None

__all__ = ["leave_uncompiled"]


def leave_uncompiled(package: str) -> None:
    """Let torch.compile not compile what the loaded modules of `package` define.

    What those call is compiled as before, and what a graph inlines is not touched by this. It
    does not load ``torch._dynamo``, which takes seconds.
    """
    if not hasattr(eval_frame, "_FrameExecStrategy"):
        return  # a torch without it compiles ours too: what waits at a graph break is not timed
    parts: Any = eval_frame
    strategy = parts._FrameExecStrategy(parts._FrameAction.SKIP, parts._FrameAction.DEFAULT)
    # each time, for torch.compiler.reset() may take it back, and without a loop of ours
    deque(map(parts.set_code_exec_strategy, _codes_of(package), repeat(strategy)), maxlen=0)


@functools.cache
def _codes_of(package: str) -> tuple[CodeType, ...]:
    return tuple(
        code
        for name, module in list(sys.modules.items())
        if name.startswith(package + ".")
        for code in _codes(vars(module).values(), name)
    )


def _codes(values: Any, module: str) -> Iterator[CodeType]:
    """Give the code of every function and method that `module` defines, with what they nest."""
    for value in values:
        value = inspect.unwrap(getattr(value, "__func__", getattr(value, "fget", value)))
        if isinstance(value, FunctionType) and value.__module__ == module:
            yield from _nested(value.__code__)
        elif isinstance(value, type) and value.__module__ == module:
            yield from _codes(vars(value).values(), module)


def _nested(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _nested(constant)
