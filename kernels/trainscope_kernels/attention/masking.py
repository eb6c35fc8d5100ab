"""Which keys a query sees by position: causal masks and windows as one band of the score matrix."""

from __future__ import annotations

from typing import NamedTuple

import torch

from trainscope_kernels.errors import ArgumentError

__all__ = ["Band", "band_of", "visible_keys"]


class Band(NamedTuple):
    """Query i sees key j where ``i + shift - left <= j <= i + shift + right``; -1 is no limit.

    from_end: shift is ``keys - queries``, so that the last query is level with the last key;
    otherwise it is 0 and the first ones are level.
    """

    left: int
    right: int
    from_end: bool


EVERYTHING = Band(-1, -1, False)
NO_LIMIT = 2**30
"""A window of so many keys is open: no sequence is longer, and kernels add to it in 32 bits."""


def band_of(
    causal: str | bool | None, window: tuple[int, int] | None, same_length: bool | None
) -> Band:
    """The band that ``causal`` and ``window`` leave; they are intersected.

    same_length: whether there are as many queries as keys; None where it is not known (varlen).
    Without ``causal`` a window is counted from the end, as in flash-attn: with equal lengths
    both ways are the same.
    """
    if causal is None and window is None:
        return EVERYTHING
    left = right = -1
    from_end = True
    if window is not None:
        left, right = _checked_window(window)
    if causal is not None and causal is not False:
        from_end = _causal_from_end(causal, same_length)
        right = 0
    if left < 0 and right < 0:
        return EVERYTHING
    return Band(left, right, from_end)


def _checked_window(window: tuple[int, int]) -> tuple[int, int]:
    if not isinstance(window, (tuple, list)) or len(window) != 2:
        raise ArgumentError(
            f"window must be a pair (left, right) of key counts, got {window!r}; "
            "-1 leaves a side open: window=(255, 0) is the query's own key and 255 before it"
        )
    left, right = window
    if not _is_count(left) or not _is_count(right):
        raise ArgumentError(
            f"window must hold two integers of at least -1 (-1 leaves a side open), got {window!r}"
        )
    return left if left < NO_LIMIT else -1, right if right < NO_LIMIT else -1


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= -1


def _causal_from_end(causal: str | bool, same_length: bool | None) -> bool:
    if causal is True:
        if same_length:
            return False
        raise ArgumentError(
            "causal=True is accepted only where queries and keys are equally many; here say "
            "causal='top-left' (scaled_dot_product_attention's is_causal: query i sees keys up to "
            "i) or causal='bottom-right' (flash-attn's: the last query sees all keys)"
        )
    if causal == "bottom-right":
        return True
    if causal == "top-left":
        return False
    raise ArgumentError(
        f"causal must be None, 'top-left', 'bottom-right' or True, got {causal!r}; 'top-left' is "
        "scaled_dot_product_attention's is_causal, 'bottom-right' is flash-attn's"
    )


def visible_keys(queries: int, keys: int, band: Band, device: torch.device) -> torch.Tensor | None:
    """Boolean (queries, keys), True where the band lets through; None where it hides nothing."""
    if band.left < 0 and band.right < 0:
        return None
    shift = keys - queries if band.from_end else 0
    level = torch.arange(queries, device=device)[:, None] + shift
    key = torch.arange(keys, device=device)[None, :]
    visible = torch.ones(queries, keys, dtype=torch.bool, device=device)
    if band.left >= 0:
        visible &= key >= level - band.left
    if band.right >= 0:
        visible &= key <= level + band.right
    return visible
