"""A few lines of code that show what to write instead of a sync, where one way fits most loops."""

from __future__ import annotations

from trainscope.catalogue.advice import advice
from trainscope.catalogue.copies import COPIED
from trainscope.catalogue.operators import KEEP_MASK
from trainscope.catalogue.values import USED

__all__ = ["snippet"]

_PINNED = (
    "loader = DataLoader(dataset, pin_memory=True)\n"
    "for batch in loader:\n"
    "    batch = batch.to(device, non_blocking=True)"
)
_BY_WORDS = {
    COPIED["h2d-pageable"]: _PINNED,
    COPIED["h2d-nonblocking-pageable"]: _PINNED,
    COPIED["h2d-pinned"]: "batch = batch.to(device, non_blocking=True)",
    COPIED["h2d-scalar"]: "x = torch.full((), value, device=device)",
    COPIED["d2h-nonblocking-pageable"]: (
        "host = torch.empty(x.shape, dtype=x.dtype, pin_memory=True)\n"
        "host.copy_(x, non_blocking=True)\n"
        "copied = torch.cuda.Event()\n"
        "copied.record()\n"
        "...  # other work\n"
        "copied.synchronize()  # then read host"
    ),
    KEEP_MASK: (
        "loss = torch.where(mask, losses, 0.0).sum() / mask.sum().clamp(min=1)"
        "  # instead of losses[mask].mean()"
    ),
    USED["log"]: "scope.log(loss=loss)  # a tensor; written later",
    USED["total"]: (
        "total = torch.zeros((), device=device)\n"
        "for batch in loader:\n"
        "    ...\n"
        "    total += loss.detach()\n"
        "print(total.item())  # once"
    ),
    USED["collect"]: (
        "losses = []\n"
        "for batch in loader:\n"
        "    ...\n"
        "    losses.append(loss.detach())\n"
        "losses = torch.stack(losses).tolist()  # once"
    ),
    USED["nonfinite"]: "scope.log(loss=loss)  # names a value that is not finite, with its step",
    USED["assert"]: "torch._assert_async(torch.isfinite(loss))",
    USED["branch"]: "x = torch.where(condition, one, other)",
}
"""By the advice that each shows in code."""
_OF_MANY = frozenset({"tolist", "numpy", "cpu", "d2h", "index"})
"""Reads of more than the one value that the code above reads."""


def snippet(
    kind: str, source: str, *, phase: str | None = None, via: str | None = None
) -> str | None:
    """Lines of Python for a sync of ``kind`` at the line ``source``, or None where none fits.

    ``phase`` and ``via`` are those of its ``SyncSite``. The names in it are made up. Raises
    ``KeyError`` for a kind that is not in ``KINDS``.
    """
    words = advice(kind, source=source, phase=phase, during="training", via=via)
    return None if kind in _OF_MANY else _BY_WORDS.get(words)
