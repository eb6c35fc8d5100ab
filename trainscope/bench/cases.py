"""Runs the cases of an installed benchmark on a device."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils import _pytree as pytree

from trainscope.bench.comparing import compare, compare_backward
from trainscope.bench.entry_points import Benchmark
from trainscope.bench.model import Comparison
from trainscope.bench.offers import cases_of
from trainscope.bench.subject import said
from trainscope.errors import BenchmarkError, ConfigError

__all__ = ["run_case", "select"]


def select(name: str, part: str, place: torch.device) -> list[Benchmark]:
    """The cases of a benchmark whose name contains ``part``, made for the device.

    Raises:
        ConfigError: no such benchmark, or no such case.
    """
    with torch.device(place):
        cases = list(cases_of(name))
    chosen = [case for case in cases if part in case.name]
    if not chosen:
        names = ", ".join(case.name for case in cases) or "none"
        raise ConfigError(f"no case of {name!r} has {part!r} in its name; there are: {names}")
    return chosen


def run_case(
    case: Benchmark, place: torch.device, *, seconds: float = 0.5, baseline: str | None = None
) -> Comparison:
    """Compare the functions of one case on inputs that it makes on the device.

    The device is the default one while the inputs are made, so a maker need not name it.
    ``baseline`` is that of ``compare``.

    Raises:
        BenchmarkError: the inputs cannot be made, or are on another device.
        ConfigError: an argument is not allowed, or this case has nothing to differentiate.
    """
    try:
        with torch.device(place):
            inputs = case.make_inputs()
    except (Exception, SystemExit) as error:
        raise BenchmarkError(f"make_inputs of case {case.name!r} raised {said(error)}") from error
    _check_place(case.name, inputs, place)
    run = compare_backward if case.backward else compare
    return run(
        case.impls,
        inputs,
        reference=case.reference,
        baseline=baseline,
        bytes_moved=case.bytes_moved,
        flops=case.flops,
        seconds=seconds,
        name=case.name,
    )


def _check_place(name: str, inputs: Any, place: torch.device) -> None:
    made = {each.device for each in pytree.tree_leaves(inputs) if torch.is_tensor(each)}
    for device in made:
        if device != place:
            raise BenchmarkError(
                f"make_inputs of case {name!r} made a tensor on {device}, and {place} was asked "
                "for; leave device= out there, the default device is set"
            )
