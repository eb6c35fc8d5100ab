"""Which kind of a window can be which kind of the live detector."""

from __future__ import annotations

__all__ = ["kinds_meet"]

_READS = frozenset({"item", "bool", "int", "float", "index", "format", "item-implicit"})
_TO_HOST = frozenset({"d2h", "cpu", "numpy", "tolist", "repr"})
_TO_GPU = frozenset({"h2d-pageable", "h2d-pinned", "h2d-list", "h2d-scalar"})
_SIZES = frozenset({"nonzero", "size-readback"})
_FAMILIES = (_READS, _TO_HOST, _TO_GPU, _SIZES)


def kinds_meet(kind: str, live: str) -> bool:
    """Whether a wait that looks like ``kind`` in a trace may be one of kind ``live``.

    A trace shows what torch did, the detector what the program asked for.
    """
    return kind == live or any(kind in family and live in family for family in _FAMILIES)
