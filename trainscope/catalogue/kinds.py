"""The kinds of syncs, each with its stable code."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["KINDS", "SyncKind"]


@dataclass(frozen=True)
class SyncKind:
    """One way to make the CPU wait for the GPU; ``code`` never changes and is never reused."""

    name: str
    code: str
    title: str
    explicit: bool = False
    """The user asked for the wait, as with ``torch.cuda.synchronize()``."""


# The position gives the code, so a new kind goes to the end.
_ORDERED = (
    ("item", "`.item()` reads one value"),
    ("item-implicit", "an operator reads a GPU value that it needs as a number"),
    ("bool", "a GPU value decides a Python branch"),
    ("int", "`int()` reads a GPU value"),
    ("float", "`float()` reads a GPU value"),
    ("index", "a GPU value is used as a Python index"),
    ("tolist", "`.tolist()` reads a GPU tensor"),
    ("numpy", "`.numpy()` reads a GPU tensor"),
    ("cpu", "`.cpu()` copies to the host and waits"),
    ("repr", "printing a GPU tensor reads its values"),
    ("format", "formatting a GPU tensor reads its values"),
    ("nonzero", "a mask is turned into indices, whose number the CPU must know"),
    ("size-readback", "the size of a result depends on GPU values"),
    ("h2d-pageable", "a blocking copy to the GPU from pageable memory"),
    ("h2d-pinned", "a blocking copy to the GPU from pinned memory"),
    ("h2d-scalar", "a Python number is copied to the GPU"),
    ("h2d-list", "a Python list is copied to the GPU"),
    ("h2d-nonblocking-pageable", "a non_blocking copy to the GPU that waits: pageable memory"),
    ("d2h", "a blocking copy to the host"),
    ("d2h-nonblocking-pageable", "a non_blocking copy to the host that waits: pageable memory"),
    ("stream", "a wait for a stream"),
    ("event", "a wait for an event"),
    ("synchronize", "a wait for the whole device"),
    ("empty_cache", "`empty_cache()` waits for the device"),
)
_EXPLICIT = frozenset({"stream", "event", "synchronize", "empty_cache"})

KINDS: dict[str, SyncKind] = {
    name: SyncKind(name, f"TS{number}", title, name in _EXPLICIT)
    for number, (name, title) in enumerate(_ORDERED, start=101)
}
"""By name, in the order of their codes from TS101."""
