"""What ``Scope.wrap`` and ``trainscope run`` put around forward, backward and optimizer steps."""

from __future__ import annotations

from trainscope.record.hooks.hooks import Hooks

__all__ = ["Hooks"]
