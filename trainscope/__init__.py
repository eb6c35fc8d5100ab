"""trainscope: where each training step's time goes, and which line makes the CPU wait.

Nothing is imported until it is used, so what needs no torch loads none.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainscope import bench as bench
    from trainscope import errors as errors
    from trainscope.api import analyze as analyze
    from trainscope.api import load as load
    from trainscope.errors import SyncError as SyncError
    from trainscope.errors import TrainscopeError as TrainscopeError
    from trainscope.metrics import sinks as sinks
    from trainscope.record.schedule import Schedule as Schedule
    from trainscope.record.scope import Scope as Scope
    from trainscope.report.model import Report as Report
    from trainscope.sync.detector import SyncDetector as SyncDetector
    from trainscope.sync.guards import allow_sync as allow_sync
    from trainscope.sync.guards import no_sync as no_sync
    from trainscope.trace.trace import Trace as Trace

__version__ = "0.1.0"

_HOME = {
    "Report": "trainscope.report.model",
    "Schedule": "trainscope.record.schedule",
    "Scope": "trainscope.record.scope",
    "SyncDetector": "trainscope.sync.detector",
    "SyncError": "trainscope.errors",
    "Trace": "trainscope.trace.trace",
    "TrainscopeError": "trainscope.errors",
    "allow_sync": "trainscope.sync.guards",
    "analyze": "trainscope.api",
    "bench": "trainscope.bench",
    "errors": "trainscope.errors",
    "load": "trainscope.api",
    "no_sync": "trainscope.sync.guards",
    "sinks": "trainscope.metrics.sinks",
}

__all__ = [
    "Report",
    "Schedule",
    "Scope",
    "SyncDetector",
    "SyncError",
    "Trace",
    "TrainscopeError",
    "allow_sync",
    "analyze",
    "bench",
    "errors",
    "load",
    "no_sync",
    "sinks",
]


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'trainscope' has no attribute {name!r}")
    module = importlib.import_module(home)
    value = module if home.rpartition(".")[2] == name else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
