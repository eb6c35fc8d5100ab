"""torch's sync debug mode, armed for the whole process, and the warnings filter that hears it."""

from __future__ import annotations

import re
import sys
import threading
import warnings
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch

from trainscope.sync.observer import NOT_FOR_USERS
from trainscope.sync.patches import Patches
from trainscope.sync.probes import here

__all__ = ["RAISES", "SYNC_TEXT", "Armed"]

__tracebackhide__ = NOT_FOR_USERS

SYNC_TEXT = "called a synchronizing CUDA operation"
_PROTOTYPE_TEXT = "Synchronization debug mode is a prototype feature"
_QUESTION = UserWarning("trainscope asks whether the filters have changed")
_QUESTION_TEXT = str(_QUESTION)
_QUESTION_ASKED = (_QUESTION_TEXT, UserWarning, 1)
"""How a registry of warnings notes that it was shown."""
_WARN, RAISES = 1, 2
"""Modes of torch's: warn at each wait, or raise there."""
_LISTS_KEPT = 8
"""Lists of filters remembered, beside the first: as many catch_warnings blocks may be nested."""
_SET, _GET = "_cuda_set_sync_debug_mode", "_cuda_get_sync_debug_mode"


class _Repeating(threading.local):
    now = False
    """A warning is being shown to the user again, so that ours must not take it."""


class Armed:
    """Hears each wait that torch announces, while leaving the user's own wishes in force.

    Python calls the ``match`` of a filter's message pattern for each warning, before anything is
    shown or remembered: that is where a wait is heard, and where `on_wait` may raise.
    """

    def __init__(self, on_wait: Callable[[FrameType | None], None]) -> None:
        self._on_wait = on_wait
        self.entry: Any = ("ignore", self, UserWarning, None, 0)
        """The warnings filter, which is to be the first."""
        self._repeating = _Repeating()
        self._shown: dict[str, dict[Any, Any]] = {}
        self._patches = Patches()
        self._set: Callable[[int], None] | None = None
        self._active = False
        self._lists: list[list[Any]] = []
        self._registry: dict[Any, Any] = {}
        self.wished = 0
        """The mode the user asked for: 0, 1 (warn) or 2 (error)."""

    # ---- arming -------------------------------------------------------------------------------
    def start(self) -> None:
        """Put the filter in and switch the debug mode on, where this build of torch has one."""
        self._put_first()
        self._active = True
        self._set = getattr(torch._C, _SET, None)
        if self._set is None:
            return
        self.wished = getattr(torch._C, _GET)()
        if self.wished == _WARN:
            _forget_shown()
        self._patches.replace(torch._C, _SET, self._wish)
        self._patches.replace(torch._C, _GET, self._wished)
        self._apply()

    def stop(self) -> None:
        """Give the user's own mode back and take the filter out, wherever it is now."""
        if self._set is not None:
            self._patches.undo()
            self._set(self.wished)
            self._set = None
        self._active = False
        self._take_out()
        self._lists.clear()

    def _apply(self) -> None:
        if self._set is not None:
            self._set(self.wished if self.wished == RAISES else _WARN)

    def _wish(self, mode: int) -> None:
        assert self._set is not None
        self._set(mode)  # torch checks the value and says what is allowed
        self.wished = int(mode)
        self._apply()

    def _wished(self) -> int:
        return self.wished

    def _put_first(self) -> None:
        filters = _filters()
        self._remove_from(filters)
        # Directly, without _filters_mutated(): that would make once-only warnings show again.
        filters.insert(0, self.entry)
        if not any(filters is known for known in self._lists):
            # A catch_warnings block works on a copy and brings the list it found back at its end.
            self._lists = [*self._lists[:1], *self._lists[1:][-_LISTS_KEPT:], filters]

    def _take_out(self) -> None:
        for filters in (_filters(), *self._lists):
            self._remove_from(filters)

    def _remove_from(self, filters: list[Any]) -> None:
        filters[:] = [entry for entry in filters if entry is not self.entry]

    @property
    def available(self) -> bool:
        """Whether this build of torch has the debug mode at all."""
        return hasattr(torch._C, _SET)

    # ---- staying armed ------------------------------------------------------------------------
    def announces(self) -> bool:
        """Return whether each wait that torch knows of is heard at this moment."""
        return self._set is not None and self.untouched()

    def untouched(self) -> bool:
        """Return whether the filter is first and the user does not wish torch to raise instead."""
        filters = warnings.filters
        if not filters or filters[0] is not self.entry:
            return False
        return self.wished != RAISES

    def version(self) -> object:
        """Return what changes whenever the filters were changed through Python's own functions.

        Asked only while the filter is first, which keeps the question from being shown. Python
        asks no filter, which takes three times as long, about a warning that the registry notes
        as shown; it empties the registry at the first warning after a change.
        """
        filters = _filters()
        if not filters or filters[0] is not self.entry:
            return None
        registry = self._registry
        warnings.warn_explicit(_QUESTION, UserWarning, "", 1, "trainscope", registry)
        registry[_QUESTION_ASKED] = True
        return registry.get("version")

    def repair(self) -> str | None:
        """Put the filter first again if it is not; return what hid it, or None if nothing did."""
        filters = _filters()
        if filters and filters[0] is self.entry:
            return None
        ahead: list[Any] = []
        for entry in filters:
            if entry is self.entry:
                break
            ahead.append(entry)
        if len(ahead) == len(filters):
            hidden = "the warnings filters were reset or replaced"
        elif any(_takes_sync(entry) for entry in ahead):
            hidden = "a warnings filter set in the program came first"
        else:
            hidden = None
        self._put_first()
        if hidden is not None:
            _forget_shown()  # a line already warned about would stay silent for us too
        return hidden

    # ---- hearing ------------------------------------------------------------------------------
    def match(self, text: str) -> bool:
        """Be called by Python for each warning; return whether to keep it from being shown."""
        if SYNC_TEXT not in text:
            if text == _QUESTION_TEXT:
                return True
            return self._active and self.wished == 0 and text.startswith(_PROTOTYPE_TEXT)
        if self._repeating.now or not self._active:
            return False
        try:
            frame: FrameType | None = sys._getframe(1)
        except ValueError:  # a thread of C++ alone
            frame = None
        if here.inside:
            here.announced = True
        else:
            self._on_wait(frame)
        if self.wished == _WARN:
            self._show_user(text, frame)
        return True

    def _show_user(self, text: str, frame: FrameType | None) -> None:
        """Warn as torch would have, under the user's filters alone.

        The record of what was shown is kept here: in the user's module it would silence the line
        before our filter is asked.
        """
        name, line = ("sys", 1) if frame is None else (frame.f_code.co_filename, frame.f_lineno)
        # with None for a module Python shows nothing
        module = "sys" if frame is None else frame.f_globals.get("__name__") or "<unknown>"
        self._repeating.now = True
        try:
            warnings.warn_explicit(
                text, UserWarning, name, line or 1, module, self._shown.setdefault(name, {})
            )
        finally:
            self._repeating.now = False


def _filters() -> list[Any]:
    return warnings.filters  # type: ignore[return-value]


def _takes_sync(entry: Any) -> bool:
    """Return whether a filter would answer for torch's warning before ours is asked."""
    _action, message, category, _module, _line = entry
    if not issubclass(UserWarning, category):
        return False
    if message is None:
        return True
    if isinstance(message, re.Pattern):
        return message.match(SYNC_TEXT) is not None
    return message == SYNC_TEXT


def _forget_shown() -> None:
    """Drop the notes, kept by module, that torch's warning was already shown at some line."""
    for module in list(sys.modules.values()):
        registry = getattr(module, "__dict__", {}).get("__warningregistry__")
        if not isinstance(registry, dict):
            continue
        for key in [k for k in registry if isinstance(k, tuple) and SYNC_TEXT in str(k[0])]:
            registry.pop(key, None)
