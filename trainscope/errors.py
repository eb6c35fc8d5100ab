"""Every exception trainscope raises on purpose."""

from __future__ import annotations

__all__ = [
    "BenchmarkError",
    "ConfigError",
    "MetricError",
    "MissingDependencyError",
    "NonFiniteError",
    "RunDirectoryError",
    "SyncError",
    "TraceError",
    "TrainscopeError",
]


class TrainscopeError(Exception):
    """Base of all errors raised on purpose; the text says what came, what is allowed, what next."""


class ConfigError(TrainscopeError, ValueError):
    """An argument or a setting has a value that is not allowed."""


class MetricError(TrainscopeError, ValueError):
    """A value given to ``Scope.log`` cannot be logged."""


class NonFiniteError(MetricError):
    """A logged value was NaN or infinite and ``stop_on_nan`` is set; names metric and step."""


class MissingDependencyError(TrainscopeError, ImportError):
    """An optional package is needed and not installed; the text says what to install."""


class RunDirectoryError(TrainscopeError):
    """A run directory cannot be created, or what lies in it cannot be read."""


class TraceError(TrainscopeError):
    """A trace file cannot be read; the text names the file and the place in it."""


class SyncError(TrainscopeError, RuntimeError):
    """Code under ``no_sync`` made the CPU wait for the GPU."""


class BenchmarkError(TrainscopeError, RuntimeError):
    """A function gets no time: it raised, or its output is not the reference's."""
