"""How a program logs to its own wandb run: with ``step=``, or leaving the step to wandb."""

from __future__ import annotations

import threading
from typing import Any

__all__ = ["Habit"]


class Habit:
    """Notices the calls that the program itself makes to ``run.log``, and passes them on unchanged.

    ``with_step`` is None until the first one, then whether any carried ``step=``. ``behind`` is the
    first step that wandb drops because rows of ours have taken its number, or None.

    Raises:
        AttributeError: this release of wandb has no place to watch.
    """

    def __init__(self, run: Any) -> None:
        self.with_step: bool | None = None
        self.behind: int | None = None
        self._run = run
        self._ours = threading.get_ident()
        self._pass_on = run._partial_history_callback
        # the one place that run.log, wandb.log and their aliases all go through
        run._partial_history_callback = self._notice

    def stop(self) -> None:
        """Take the watch out."""
        vars(self._run).pop("_partial_history_callback", None)

    def _notice(
        self, data: dict[str, Any], step: int | None = None, commit: bool | None = None
    ) -> None:
        if threading.get_ident() != self._ours:
            self.with_step = bool(self.with_step) or step is not None
            if step is not None and step < self._run.step and self.behind is None:
                self.behind = step
        self._pass_on(data, step, commit)
