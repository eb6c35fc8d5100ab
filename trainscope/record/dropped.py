"""Scopes that the program holds no more, as when a notebook's cell that makes one is run again."""

from __future__ import annotations

import weakref
from threading import get_ident
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trainscope.record.session import Session

__all__ = ["close_dropped", "close_when_dropped"]

_dropped: list[Session] = []


def close_when_dropped(holder: object, session: Session) -> None:
    """Have ``session`` closed by ``close_dropped`` once nothing holds ``holder`` any more.

    It is not closed at once: what collects it may be in the middle of the session's own work.
    """
    weakref.finalize(holder, _remember, session).atexit = False


def _remember(session: Session) -> None:
    if session.calls.open:
        _dropped.append(session)


def close_dropped() -> None:
    """Close what was dropped: it would slow the loop of the scope that took its place, and record
    it as what comes after its own. Those of other threads' loops are left to these.
    """
    for session in tuple(_dropped):
        if session.recorder.loop.thread_id == get_ident():
            _dropped.remove(session)
            session.close()
