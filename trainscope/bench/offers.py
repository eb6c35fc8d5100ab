"""Imports a benchmark that a package offers, and checks what it gives."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from trainscope.bench.arguments import check_amounts, check_callable, check_impls, check_name
from trainscope.bench.entry_points import GROUP, Benchmark, found, values_of
from trainscope.bench.subject import said
from trainscope.errors import BenchmarkError, ConfigError

__all__ = ["cases_of"]

_FIELDS = ("name", "impls", "make_inputs", "reference", "bytes_moved", "flops", "backward")


def cases_of(name: str) -> Sequence[Benchmark]:
    """Import one benchmark and make its cases.

    Raises:
        ConfigError: there is none of that name, or two different ones.
        BenchmarkError: it cannot be imported, or does not return cases.
    """
    known = found()
    if name not in known:
        near = get_close_matches(name, known, 1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        names = ", ".join(known) or f"none is installed (entry-point group {GROUP})"
        raise ConfigError(f"no benchmark is named {name!r}; there are: {names}{hint}")
    where = known[name].value
    values = values_of(name)
    if len(values) > 1:
        both = " and ".join(sorted(values))
        raise ConfigError(f"benchmark {name!r} is offered twice, by {both}: uninstall one of them")
    offered = f"benchmark {name!r} ({where})"
    try:
        made = known[name].load()
        if callable(made):
            made = made()
    except (Exception, SystemExit) as error:
        raise BenchmarkError(f"{offered} raised {said(error)}") from error
    return _checked(offered, made)


def _checked(offered: str, made: Any) -> Sequence[Benchmark]:
    if isinstance(made, str | bytes | Mapping) or not isinstance(made, Iterable):
        raise BenchmarkError(
            f"{offered} gave {'None' if made is None else type(made).__name__}; it has to be a "
            "function that returns a list of cases"
        )
    try:
        cases = list(made)
        for case in cases:
            _check(offered, case)
    except (BenchmarkError, ConfigError):
        raise
    except (Exception, SystemExit) as error:  # a generator of cases, or a property of one
        raise BenchmarkError(f"{offered} raised {said(error)}") from error
    return cases


def _check(offered: str, case: Any) -> None:
    missing = [each for each in _FIELDS if not hasattr(case, each)]
    if missing:
        raise BenchmarkError(
            f"{offered} returned an object of type {type(case).__name__} "
            f"without {', '.join(missing)}; a case has {', '.join(_FIELDS)}"
        )
    try:
        check_name("name", case.name)
        check_impls(case.impls)
        check_callable("make_inputs", case.make_inputs)
        check_amounts(case.bytes_moved, case.flops, None, None)
        if case.reference not in case.impls:
            raise ConfigError(f"reference={case.reference!r:.80} is none of its impls")
    except ConfigError as error:
        raise BenchmarkError(f"{offered}, case {case.name!r:.80}: {error}") from None
