"""Benchmarks that installed packages offer, in the entry-point group ``trainscope.benchmarks``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Protocol

from trainscope.errors import BenchmarkError, ConfigError

__all__ = ["GROUP", "Benchmark", "cases_of", "found"]

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


_FIELDS = ("name", "impls", "make_inputs", "reference", "bytes_moved", "flops", "backward")


def found() -> dict[str, EntryPoint]:
    """Every benchmark that is installed, by name; none of them is imported."""
    return {each.name: each for each in sorted(entry_points(group=GROUP), key=_by_name)}


def cases_of(name: str) -> Sequence[Benchmark]:
    """Import one benchmark and make its cases.

    Raises:
        ConfigError: there is none of that name.
        BenchmarkError: it cannot be imported, or does not return cases.
    """
    known = found()
    if name not in known:
        near = get_close_matches(name, known, 1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        names = ", ".join(known) or f"none is installed (entry-point group {GROUP})"
        raise ConfigError(f"no benchmark is named {name!r}; there are: {names}{hint}")
    where = known[name].value
    try:
        cases = list(known[name].load()())
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
        raise BenchmarkError(f"benchmark {name!r} ({where}) raised {said}") from error
    for case in cases:
        missing = [each for each in _FIELDS if not hasattr(case, each)]
        if missing:
            raise BenchmarkError(
                f"benchmark {name!r} ({where}) returned an object of type {type(case).__name__} "
                f"without {', '.join(missing)}; a case has {', '.join(_FIELDS)}"
            )
    return cases


def _by_name(each: EntryPoint) -> str:
    return each.name
