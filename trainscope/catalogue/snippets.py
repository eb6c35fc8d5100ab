"""A few lines of code that show what to write instead of a sync, where one way fits most loops."""

from __future__ import annotations

from trainscope.catalogue.kinds import KINDS
from trainscope.catalogue.libraries import library_of
from trainscope.catalogue.reading import moves_in_words, use_of

__all__ = ["snippet"]

_PINNED = (
    "loader = DataLoader(dataset, pin_memory=True)\n"
    "for batch in loader:\n"
    "    batch = batch.to(device, non_blocking=True)"
)
_BY_KIND = {
    "h2d-pageable": _PINNED,
    "h2d-nonblocking-pageable": _PINNED,
    "h2d-pinned": "batch = batch.to(device, non_blocking=True)",
    "h2d-scalar": "x = torch.full((), value, device=device)",
    "d2h-nonblocking-pageable": (
        "host = torch.empty(x.shape, dtype=x.dtype, pin_memory=True)\n"
        "host.copy_(x, non_blocking=True)\n"
        "copied = torch.cuda.Event()\n"
        "copied.record()\n"
        "...  # other work\n"
        "copied.synchronize()  # then read host"
    ),
    "nonzero": (
        "loss = torch.where(mask, losses, 0.0).sum() / mask.sum().clamp(min=1)"
        "  # instead of losses[mask].mean()"
    ),
}
_BY_USE = {
    "log": "scope.log(loss=loss)  # a tensor; written later",
    "total": (
        "total = torch.zeros((), device=device)\n"
        "for batch in loader:\n"
        "    ...\n"
        "    total += loss.detach()\n"
        "print(total.item())  # once"
    ),
    "collect": (
        "losses = []\n"
        "for batch in loader:\n"
        "    ...\n"
        "    losses.append(loss.detach())\n"
        "losses = torch.stack(losses).tolist()  # once"
    ),
    "nonfinite": "scope.log(loss=loss)  # names a value that is not finite, with its step",
    "assert": "torch._assert_async(torch.isfinite(loss))",
    "branch": "x = torch.where(condition, one, other)",
}
_READS = frozenset({"item", "bool", "int", "float", "repr", "format"})


def snippet(kind: str, source: str, *, via: str | None = None) -> str | None:
    """Lines of Python for a sync of ``kind`` at the line ``source``, or None where none fits.

    ``via`` is that of its ``SyncSite``: nobody can write something else instead of a line in which
    a library, such as a trainer, makes the copy. The names in it are made up. Raises ``KeyError``
    for a kind that is not in ``KINDS``.
    """
    if KINDS[kind].explicit:
        return None
    if kind in _READS:
        return _BY_USE.get(use_of(source)) if source else None
    if library_of(via) is not None and not moves_in_words(source):
        return None
    return _BY_KIND.get(kind)
