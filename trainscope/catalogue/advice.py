"""What to do about a sync, fitting its kind and its place."""

from __future__ import annotations

import re

from trainscope.catalogue.kinds import KINDS
from trainscope.catalogue.libraries import SCALER, by_library, library_of, of_library
from trainscope.catalogue.operators import COALESCED, IN_BACKWARD, SAMPLED, of_operator
from trainscope.catalogue.reading import (
    calls_scaler,
    moves_in_words,
    moves_new,
    only_logs,
    picks_greatest,
    reads_by_index,
    slices_by_value,
    subscripts,
    use_of,
)

__all__ = ["advice"]

_ON_LOG_STEPS = "read it only on the steps that use it"
_BY_USE = {
    "log": "keep it on the GPU: scope.log(name=tensor) writes the value later, without a wait",
    "total": "add on the GPU (total += value.detach()) and read the total once, when it is shown",
    "collect": "collect value.detach() and read all at the end: torch.stack(values).tolist()",
    "needed": (
        "the program goes on with this value, so it has to be read: read it as late as it can be, "
        "all values in one copy, or for several environments or samples in one batch"
    ),
    "returned": (
        "return the tensor, and read it where its number is needed: a loss to be shown can wait, "
        "an action for an environment has to be read"
    ),
    "nonfinite": "scope.log names a non-finite value and its step; torch.where skips it on the GPU",
    "assert": "torch._assert_async tests it on the GPU without a wait; or test it every N steps",
    "branch": "torch.where chooses on the GPU; where Python must branch, test it every N steps",
    "other": f"keep the value on the GPU, and {_ON_LOG_STEPS}; several values: one .tolist()",
}
_DECIDES = frozenset({"assert", "branch", "nonfinite"})
_READS = frozenset({"item", "bool", "int", "float", "tolist", "numpy", "cpu", "d2h"})
_PRINTS = frozenset({"repr", "format"})

_BY_KIND = {
    "index": "index with x.index_select or gather, whose index may stay on the GPU",
    "h2d-pageable": (
        "copy from pinned memory without waiting: pin_memory=True in the DataLoader (or "
        ".pin_memory()) and non_blocking=True"
    ),
    "h2d-pinned": "the memory is pinned already: add non_blocking=True",
    "h2d-scalar": "torch.full((), value, device=device) fills it on the GPU, without a copy",
    "h2d-list": "make the tensor once, before the loop, or copy it from pinned memory",
    "h2d-nonblocking-pageable": (
        "non_blocking=True frees the CPU from pinned memory only: pin_memory=True in the "
        "DataLoader, or .pin_memory()"
    ),
    "d2h-nonblocking-pageable": (
        "copy into a pinned tensor (torch.empty(…, pin_memory=True)) and wait for an event before "
        "reading it"
    ),
    "nonzero": "keep the mask: torch.where(mask, x, other), or a masked sum and mean",
    "size-readback": "give the size of the result, or keep to a fixed one: only the GPU knows it",
    "stream": "asked for: wait for one event instead, or make the other stream wait (wait_stream)",
    "event": "asked for; it costs nothing when the event is waited for as late as possible",
    "synchronize": "asked for: leave it out of the loop; to time a part, read CUDA events later",
    "empty_cache": "asked for: never in each step, for it also makes the next allocations slow",
}
_LOADS = "_load_from_state_dict"
_READ_TOGETHER = "keep the values on the GPU, and read them only on the steps that use them"
_NUMBER = (
    "a size or the end of a slice is a number of the CPU: keep a copy of it there, such as the "
    "lengths before they were moved, or work with all values and a mask"
)
_COPIED_AGAIN = (
    "backward copies again what forward copied, such as an index: make that a GPU tensor before "
    "the forward"
)
_MADE_INDEX = (
    "make the index a GPU tensor once: torch.as_tensor(index, device=device), or make it there, "
    "as torch.randperm(n, device=device) does"
)
_MADE_THERE = "make it on the GPU: pass device=device to the function that makes it"
_RANDOM = " (random numbers then come from the GPU's generator, and are others)"
_EVALUATED = "add up on the GPU and read the result once, after the evaluation"
_ACTION = re.compile(r"\bactions?\b")
"""What an agent reads it gives to its environment."""
_CLAMP = "x.clamp(min=number), or torch.maximum(x, y), chooses on the GPU"
_STORED_NUMBER = (
    "fill on the GPU, without a copy: x.index_fill_(0, index, number), masked_fill_ or "
    "torch.where, and x[i:i+1] = number for one element; or store a tensor made there once"
)
_SIZES = (
    ("repeat_interleave", "pass output_size=, if the total is known on the CPU"),
    ("one_hot", "pass num_classes="),
    ("bincount", "torch.zeros(n).scatter_add_(0, x, ones) counts with a size that is known"),
    ("nms(", "it chooses on the CPU: call it once for all images (batched_nms), with fewer boxes"),
    ("unique", "work with all values and a mask, or call it once, outside of the step"),
)
_KEEP_MASK = "keep the mask, or torch.nonzero_static(mask, size=n) with a known bound"
_INDICES = (
    ("nonzero(", _KEEP_MASK),
    ("where(", _KEEP_MASK),  # argwhere too
    ("masked_select(", "torch.where(mask, x, other), or a masked sum and mean, keeps the shape"),
)


def advice(kind: str, *, source: str, phase: str | None, during: str, via: str | None) -> str:
    """Return one sentence of advice for a sync of `kind` at the line `source`.

    `phase`, `during` and `via` are those of its `SyncSite`. A read that the program needs is
    never said to be removable. Raises `KeyError` for a kind that is not in `KINDS`.
    """
    known = KINDS[kind]
    if during == "setup":
        return "before the first step: nothing to do"
    if during == "teardown":
        return "after the last step: nothing to do"
    if during == "compilation":
        return "while compiling, once: nothing to do"
    if known.explicit:
        return _BY_KIND[kind]
    to_device = kind.startswith("h2d")
    loads = (via or "").startswith("torch.serialization") or _LOADS in (via or "")
    if to_device and (loads or "torch.load(" in source):
        return "load it once, before the loop"
    if kind == "item-implicit" and (via or "").startswith("torch.distributions"):
        return SAMPLED if "distributions.normal:" in (via or "") else of_operator(source)
    if kind == "size-readback" and (via or "").startswith("torch.optim"):
        return COALESCED
    part_of_torch = by_library(via, to_device=to_device)
    if part_of_torch is not None:
        return part_of_torch
    if kind == "item" and calls_scaler(source):
        return SCALER
    library = library_of(via)
    if kind in _READS or kind in _PRINTS or kind == "index":
        return _read_advice(kind, source, phase, during, library)
    if library is not None and not (to_device and moves_in_words(source)):
        said = of_library(kind, library)
        if said is not None:
            return said
    if kind == "h2d-pageable" and phase == "backward":
        return _COPIED_AGAIN
    if kind == "item-implicit":
        return IN_BACKWARD if phase == "backward" else of_operator(source)
    if kind == "nonzero":
        return _nonzero_advice(source)
    if kind == "size-readback":
        return next((what for name, what in _SIZES if name in source), _BY_KIND[kind])
    if kind == "h2d-scalar" and ".copy_(" in source:
        return "x.fill_(number) fills it on the GPU, without a copy"
    if kind == "h2d-scalar" and _stores_number(source):
        return _STORED_NUMBER
    if kind.startswith("h2d") and via is not None and via.startswith("torch.nn.modules.module"):
        return "move the module once, before the loop"
    if kind == "h2d-list" and "tensor(" not in source and "[" in source:
        return "make the index a GPU tensor once, before the loop"
    if kind == "h2d-pageable" and moves_new(source):
        return _MADE_THERE + (_RANDOM if "rand" in source else "")
    if kind == "h2d-pageable" and via is None and reads_by_index(source):
        return _MADE_INDEX
    return _BY_KIND[kind]


def _read_advice(
    kind: str, source: str, phase: str | None, during: str, library: str | None
) -> str:
    use = use_of(source)
    # the line calls it, and reads nothing by itself, unless all that it does is to log
    if library is not None and (use != "log" or not only_logs(source)):
        return of_library("read", library) or _BY_USE[use]
    if use == "needed" or (use == "other" and _ACTION.search(source)):
        return _BY_USE["needed"]
    if kind == "index":
        by_index = subscripts(source) and not slices_by_value(source)
        return _BY_KIND[kind] if by_index else _NUMBER
    if use == "other" and kind == "bool":
        if picks_greatest(source):
            return _CLAMP
        use = "branch"
    if during == "evaluation" and use != "log" and use not in _DECIDES:
        return _EVALUATED
    if kind in _PRINTS:
        return _BY_USE["log"]
    if use == "other" and phase == "backward":
        return f"in a backward hook: collect on the GPU and {_ON_LOG_STEPS}, after backward"
    if use == "other" and kind in ("cpu", "d2h", "numpy"):
        return "copy into a pinned tensor with non_blocking=True, and read it after an event"
    if use == "other" and kind == "tolist":  # one read of all values already
        return _READ_TOGETHER
    return _BY_USE[use]


def _stored(source: str) -> str | None:
    """Return the text of what the line stores into a subscript, if it stores there."""
    target, equals, value = source.partition("] = ")
    return value if equals and "=" not in target else None


def _stores_number(source: str) -> bool:
    value = _stored(source)
    if value is None:
        return "index_put" in source
    return "tensor(" not in value  # torch.tensor(7, device=…), kept in a dictionary


def _nonzero_advice(source: str) -> str:
    for name, what in _INDICES:
        if name in source:
            return what
    value = _stored(source)
    if value is not None and not reads_by_index(value):  # else the mask may be that of the value
        return (
            "assign on the GPU: x = torch.where(mask, value, x), or x.masked_fill_(mask, number); "
            "values for the set places alone: x.masked_scatter_(mask, values)"
        )
    return _BY_KIND["nonzero"]
