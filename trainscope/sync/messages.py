"""The words of a warning or an error about one wait."""

from __future__ import annotations

import warnings
from types import FrameType
from typing import Any

from trainscope.catalogue.advice import advice
from trainscope.catalogue.kinds import KINDS
from trainscope.errors import SyncError
from trainscope.sync.blame import blame
from trainscope.sync.site_counts import describe

__all__ = ["SyncWarning", "sync_error", "warn_sync"]


class SyncWarning(UserWarning):
    """A line of the user's code made the CPU wait for the GPU."""


def sync_error(kind: str, frame: FrameType | None) -> SyncError:
    """Return the error to raise where a wait is forbidden."""
    text, _file, _line = _words(kind, frame)
    return SyncError(f'{text}; or permit it: with trainscope.allow_sync("reason")')


def warn_sync(kind: str, frame: FrameType | None, shown: dict[Any, Any]) -> None:
    """Warn at the user's line; `shown` is the warnings registry that remembers it."""
    text, file, line = _words(kind, frame)
    warnings.warn_explicit(text, SyncWarning, file, line or 1, registry=shown)


def _words(kind: str, frame: FrameType | None) -> tuple[str, str, int]:
    file, line, function, source = describe(blame(frame).user)
    where = f" in {function}" if function and function != "<module>" else ""
    quoted = f" (`{source}`)" if source else ""
    hint = advice(kind, source=source, phase=None, during="training", via=None)
    text = (
        f"{KINDS[kind].code} {kind}: {file}:{line}{where} makes the CPU wait for the GPU"
        f"{quoted}: {hint}"
    )
    return text, file, line
