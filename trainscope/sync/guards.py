"""Blocks in which waiting for the GPU is forbidden, or permitted for a reason."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from trainscope.errors import ConfigError
from trainscope.sync import permits
from trainscope.sync.installation import Bystander
from trainscope.sync.process import fitting

__all__ = ["allow_sync", "no_sync"]


@contextmanager
def no_sync(mode: str = "error") -> Iterator[None]:
    """Forbid waits for the GPU on this thread inside the block.

    `mode`: ``error`` raises `SyncError` at the line that waits, after the wait (inside
    ``backward()``, at that line); ``warn`` warns once a line in each block. Other threads are not
    affected, the autograd engine's excepted while it works for this one. May be nested, with
    `allow_sync` too. Without a GPU the dry run decides what would wait. Where no `Scope` or
    `SyncDetector` is on, and without a GPU, entering costs about 0.1 ms, for the probes are put in
    and taken out. Raises `ConfigError`.
    """
    if mode not in ("error", "warn"):
        raise ConfigError(f"mode={mode!r} is not one of error, warn")
    guard, permit = Bystander(), permits.Permit(mode)
    installation = fitting()
    installation.add(guard)
    permits.enter(permit)
    try:
        yield
    finally:
        permits.leave(permit)
        installation.remove(guard)


@contextmanager
def allow_sync(reason: str) -> Iterator[None]:
    """Permit waits on this thread inside the block; they are recorded with `reason`.

    Raises `ConfigError` for an empty reason.
    """
    if not isinstance(reason, str) or not reason.strip():
        raise ConfigError(f'reason={reason!r} must say why, as in allow_sync("checkpoint")')
    permit = permits.Permit("allow", reason.strip())
    permits.enter(permit)
    try:
        yield
    finally:
        permits.leave(permit)
