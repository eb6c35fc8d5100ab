"""What kind of sync a recorded wait is: from its call, and what it was called in."""

from __future__ import annotations

import re
from collections.abc import Sequence

from trainscope.analysis.wait_calls import WaitCall
from trainscope.trace.window import CopyKind, Memory

__all__ = ["called_function", "kind_of_wait"]

_BUILT_IN = re.compile(r"<built-in (?:method|function) (\w+)")

_BY_OPERATOR = {
    "is_nonzero": "bool",
    "nonzero": "nonzero",
    "nonzero_numpy": "nonzero",
    "argwhere": "nonzero",
    "masked_select": "nonzero",
    "unique": "size-readback",
    "unique_dim": "size-readback",
    "unique_consecutive": "size-readback",
    "unique_dim_consecutive": "size-readback",
    "_unique": "size-readback",
    "_unique2": "size-readback",
    "repeat_interleave": "size-readback",
    "bincount": "size-readback",
    "combinations": "size-readback",
    "one_hot": "size-readback",
    "tensor_split": "size-readback",
    "to_sparse": "size-readback",
    "_coalesce": "size-readback",
}
_READS = ("item", "_local_scalar_dense")
_BY_FUNCTION = {
    "item": "item",
    "tolist": "tolist",
    "numpy": "numpy",
    "cpu": "cpu",
    "is_nonzero": "bool",
    "__bool__": "bool",
    "__int__": "int",
    "__float__": "float",
    "__index__": "index",
    "__repr__": "repr",
    "__str__": "repr",
    "__format__": "format",
    "empty_cache": "empty_cache",
    "_cuda_emptyCache": "empty_cache",
}
_NEW_TENSORS = ("tensor", "as_tensor", "asarray", "new_tensor")


def kind_of_wait(
    wait_call: int,
    copy_kind: int,
    host_memory: int,
    operators: Sequence[str],
    functions: Sequence[str],
) -> str:
    """A name of ``trainscope.catalogue.kinds`` for a wait.

    ``operators`` and ``functions`` are those around it, outermost first; ``functions`` are the
    innermost Python ones that are not the user's, and may be empty.
    """
    called = [name for name in map(called_function, functions) if name in _BY_FUNCTION]
    if wait_call == WaitCall.FREE or "empty_cache" in (_BY_FUNCTION[name] for name in called):
        return "empty_cache"
    if wait_call == WaitCall.EVENT:
        return "event"
    if wait_call == WaitCall.DEVICE:
        return "synchronize"
    names = [name.partition("::")[2] for name in operators if name.startswith("aten::")]
    for name in names:
        if name in _BY_OPERATOR:
            return _BY_OPERATOR[name]
    if called and called[0] not in ("cpu", "numpy"):  # outermost: a `__repr__` reads by `item`
        return _BY_FUNCTION[called[0]]
    if any(name in _READS for name in names):
        return "item" if names[0] in _READS and len(names) == len(operators) else "item-implicit"
    waits_apart = wait_call == WaitCall.STREAM
    if copy_kind == CopyKind.D2H:
        if called:
            return _BY_FUNCTION[called[0]]
        return "d2h" if waits_apart or wait_call == WaitCall.COPY else "d2h-nonblocking-pageable"
    if copy_kind == CopyKind.H2D:
        if any(called_function(name) in _NEW_TENSORS for name in functions):
            return "h2d-list"
        if host_memory == Memory.PINNED:
            return "h2d-pinned"
        return "h2d-nonblocking-pageable" if wait_call == WaitCall.COPY_ASYNC else "h2d-pageable"
    if names:
        return "item-implicit" if copy_kind < 0 else "d2h"
    return "stream"


def called_function(frame: str) -> str:
    """The bare name of a recorded Python function: ``item`` of ``<built-in method item of …>``."""
    match = _BUILT_IN.match(frame)
    if match is not None:
        return match.group(1)
    return frame.rpartition(": ")[2]
