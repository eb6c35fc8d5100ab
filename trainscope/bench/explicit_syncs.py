"""Sees a call wait by name: torch's sync warnings, and the Python calls it does not warn of."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

__all__ = ["syncs_by_name"]


def syncs_by_name(call: Callable[[], Any], cuda: Any) -> bool:
    """Call it once and return whether it made a call that waits for the GPU.

    Not seen: a large pageable copy with ``non_blocking=True``, and a wait inside an extension.
    """
    waited: list[str] = []
    before = cuda.get_sync_debug_mode()
    owners = (cuda, cuda.Stream, cuda.Event)
    originals = [vars(owner).get("synchronize") for owner in owners]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for owner in owners:
            owner.synchronize = _noting(owner.synchronize, waited)
        cuda.set_sync_debug_mode("warn")
        try:
            call()
        finally:
            cuda.set_sync_debug_mode(before)
            for owner, original in zip(owners, originals, strict=True):
                if original is None:  # it was inherited
                    del owner.synchronize
                else:
                    owner.synchronize = original
    warned = any("synchronizing CUDA operation" in str(each.message) for each in caught)
    return warned or bool(waited)


def _noting(original: Callable[..., Any], waited: list[str]) -> Callable[..., Any]:
    def synchronize(*args: Any, **keywords: Any) -> Any:
        waited.append("synchronize")
        return original(*args, **keywords)

    return synchronize
