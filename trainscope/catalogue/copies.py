"""What to do about a copy between host and GPU that waits."""

from __future__ import annotations

from trainscope.catalogue.reading import (
    moves_in_words,
    moves_new,
    reads_by_index,
    stored_value,
)

__all__ = ["COPIED", "of_copy"]

COPIED = {
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
}
_MODULE = "move the module once, before the loop"
_COPIED_AGAIN = (
    "backward copies again what forward copied, such as an index: make that a GPU tensor before "
    "the forward"
)
_MADE_THERE = "make it on the GPU: pass device=device to the function that makes it"
_RANDOM = " (random numbers then come from the GPU's generator, and are others)"
_INDEX = (
    "make the index a GPU tensor once: torch.as_tensor(index, device=device), or make it there, "
    "as torch.randperm(n, device=device) does"
)
_LIST_INDEX = "make the index a GPU tensor once, before the loop"
_COPIED_NUMBER = "x.fill_(number) fills it on the GPU, without a copy"
_STORED_NUMBER = (
    "fill on the GPU, without a copy: x.index_fill_(0, index, number), masked_fill_ or "
    "torch.where, and x[i:i+1] = number for one element; or store a tensor made there once"
)


def of_copy(kind: str, source: str, phase: str | None, via: str | None) -> str:
    """Return what to do about a copy of `kind` that the line `source` makes."""
    in_module = kind.startswith("h2d") and (via or "").startswith("torch.nn.modules.module")
    if kind == "h2d-pageable":
        if phase == "backward" and not moves_in_words(source):
            return _COPIED_AGAIN
        if in_module:
            return _MODULE
        if moves_new(source):
            return _MADE_THERE + (_RANDOM if "torch.rand" in source else "")
        if via is None and reads_by_index(source):
            return _INDEX
    if kind == "h2d-scalar":
        if ".copy_(" in source:
            return _COPIED_NUMBER
        if _stores_number(source):
            return _STORED_NUMBER
    if in_module:
        return _MODULE
    if kind == "h2d-list" and "tensor(" not in source and "[" in source:
        return _LIST_INDEX
    return COPIED[kind]


def _stores_number(source: str) -> bool:
    value = stored_value(source)
    if value is None:
        return "index_put" in source
    return "tensor(" not in value  # torch.tensor(7, device=…), kept in a dictionary
