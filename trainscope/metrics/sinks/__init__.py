"""Where logged values go: ``Jsonl``, ``Console``, ``TensorBoard``, ``Wandb``; loaded when used."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from trainscope.metrics.records import MetricRecord, Sink, SinkContext

if TYPE_CHECKING:
    from trainscope.metrics.sinks.console import Console as Console
    from trainscope.metrics.sinks.jsonl import Jsonl as Jsonl
    from trainscope.metrics.sinks.tensorboard import TensorBoard as TensorBoard
    from trainscope.metrics.sinks.wandb import Wandb as Wandb

__all__ = ["Console", "Jsonl", "MetricRecord", "Sink", "SinkContext", "TensorBoard", "Wandb"]

_HOME = {"Console": "console", "Jsonl": "jsonl", "TensorBoard": "tensorboard", "Wandb": "wandb"}


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'trainscope.metrics.sinks' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"trainscope.metrics.sinks.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
