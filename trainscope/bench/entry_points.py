"""Benchmarks that installed packages offer, in the entry-point group ``trainscope.benchmarks``.

Needs no torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Protocol

__all__ = ["GROUP", "Benchmark", "found", "values_of"]

GROUP = "trainscope.benchmarks"


class Benchmark(Protocol):
    """One case: what an entry point's function returns a list of. Any object with these names."""

    name: str
    impls: Mapping[str, Callable[..., Any]]
    make_inputs: Callable[[], tuple[Any, ...]]
    reference: str
    """One of ``impls``."""
    bytes_moved: int | None
    flops: int | None
    backward: bool
    """Whether the gradients are timed, and not the functions themselves."""


def found() -> dict[str, EntryPoint]:
    """Every benchmark that is installed, by name; none of them is imported."""
    return {each.name: each for each in sorted(entry_points(group=GROUP), key=_by_name)}


def values_of(name: str) -> set[str]:
    """What each benchmark of that name refers to: two where two packages offer one."""
    return {each.value for each in entry_points(group=GROUP) if each.name == name}


def _by_name(each: EntryPoint) -> str:
    return each.name
