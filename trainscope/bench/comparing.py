"""``compare``: functions that must agree, timed in turn on the same inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from time import perf_counter_ns
from typing import Any

import torch

from trainscope.bench.admission import admit
from trainscope.bench.arguments import (
    check_amounts,
    check_callable,
    check_impls,
    check_inputs,
    check_name,
)
from trainscope.bench.ceilings import COPY
from trainscope.bench.device import timer_for
from trainscope.bench.given import Given
from trainscope.bench.measure import effort
from trainscope.bench.model import Cache, Comparison
from trainscope.bench.outcome import work_of
from trainscope.bench.subject import Subject, backward_of, forward_of
from trainscope.bench.timers import Timer
from trainscope.bench.timing import timed
from trainscope.errors import ConfigError

__all__ = ["compare", "compare_backward"]

Impls = Mapping[str, Callable[..., Any]]
Reference = str | Callable[..., Any]


def compare(
    impls: Impls,
    inputs: Sequence[Any],
    *,
    reference: Reference,
    baseline: str | None = None,
    bytes_moved: int | None = None,
    flops: int | None = None,
    cache: Cache | None = None,
    trials: int | None = None,
    seconds: float = 0.5,
    tolerance: float | None = None,
    name: str = "",
    device: str | torch.device | None = None,
    timer: Timer | None = None,
) -> Comparison:
    """Time each function on the inputs, in rounds of changing order; first all have to agree.

    A function whose output is not the reference's, or that raises, gets no time: its row says why.

    reference: the name of one of ``impls``, or a function beside them.
    baseline: whose time the others are ratios to; None for the reference where it is one of the
    functions, else the first.
    bytes_moved: a plain copy of as many bytes is timed in the same rounds.
    seconds: of each function.
    The other arguments are those of ``benchmark``.

    Raises:
        BenchmarkError: the reference raised.
        ConfigError: an argument is not allowed, or the device is not supported.
    """
    options = _Options(
        baseline, bytes_moved, flops, cache, trials, seconds, tolerance, name, device, timer
    )
    return _compare(forward_of, impls, inputs, reference, options)


def compare_backward(
    impls: Impls,
    inputs: Sequence[Any],
    *,
    reference: Reference,
    baseline: str | None = None,
    bytes_moved: int | None = None,
    flops: int | None = None,
    cache: Cache | None = None,
    trials: int | None = None,
    seconds: float = 0.5,
    tolerance: float | None = None,
    name: str = "",
    device: str | torch.device | None = None,
    timer: Timer | None = None,
) -> Comparison:
    """Time the gradients alone: each call follows a new forward that is not timed.

    They are the gradients of the inputs that require one, or of all floating-point inputs where
    none does; bytes, FLOPs and agreement are the backward's. Otherwise as ``compare``.
    """
    options = _Options(
        baseline, bytes_moved, flops, cache, trials, seconds, tolerance, name, device, timer
    )
    return _compare(backward_of, impls, inputs, reference, options)


@dataclass(frozen=True)
class _Options:
    baseline: str | None
    bytes_moved: int | None
    flops: int | None
    cache: Cache | None
    trials: int | None
    seconds: float
    tolerance: float | None
    name: str
    device: str | torch.device | None
    timer: Timer | None


def _compare(
    subject_of: Callable[[str, Callable[..., Any], Sequence[Any]], Subject],
    impls: Impls,
    inputs: Sequence[Any],
    reference: Reference,
    options: _Options,
) -> Comparison:
    _check(impls, inputs, options)
    reference_name, reference_fn = _chosen_reference(impls, reference)
    baseline = _chosen_baseline(impls, reference_name, options.baseline)
    wanted = effort(options.trials, options.seconds)
    given = Given(inputs)
    admitted, output = admit(
        [subject_of(name, fn, inputs) for name, fn in impls.items()],
        lambda given: subject_of(reference_name, reference_fn, given),
        given,
        inputs,
        options.tolerance,
        perf_counter_ns if options.timer is None else options.timer.now_ns,
    )
    timer = options.timer or timer_for(options.cache, options.device, inputs, output)
    del output  # its memory is needed below
    if not any(each.flags for each in admitted):
        given = None  # and so is that of the inputs' copies
    work = work_of(options.bytes_moved, options.flops, inputs, timer.device)
    try:
        found = timed(admitted, timer, work, wanted, baseline)
    finally:
        if given is not None:
            given.restored()
    return Comparison(
        name=options.name,
        reference=reference_name,
        baseline=baseline,
        bytes_moved=work.bytes_moved,
        flops=work.flops,
        **found,
    )


def _check(impls: Impls, inputs: Sequence[Any], options: _Options) -> None:
    check_impls(impls)
    check_inputs(inputs)
    check_amounts(options.bytes_moved, options.flops, options.tolerance, options.cache)
    check_name("name", options.name)


def _chosen_reference(impls: Impls, reference: Reference) -> tuple[str, Callable[..., Any]]:
    """The reference's name and function.

    Raises:
        ConfigError: one has the copy's name, or the reference is unknown.
    """
    if COPY in impls:
        raise ConfigError(f"impls holds {COPY!r}, the name of the plain copy; choose another")
    if isinstance(reference, str):
        return reference, impls[_known(impls, "reference", reference)]
    check_callable("reference", reference)
    for name, fn in impls.items():
        if fn is reference:
            return name, fn
    name = getattr(reference, "__name__", "reference")
    # one of impls may be called so and is not it: it has to agree like any other
    return f"{name} (reference)" if name in impls else name, reference


def _chosen_baseline(impls: Impls, reference_name: str, baseline: str | None) -> str:
    """The name that is given, else the reference where it is one of the functions, else the first.

    Raises:
        ConfigError: the name is none of the functions.
    """
    if baseline is not None:
        return _known(impls, "baseline", baseline)
    return reference_name if reference_name in impls else next(iter(impls))


def _known(impls: Impls, argument: str, name: str) -> str:
    if name in impls:
        return name
    near = get_close_matches(name, impls, 1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise ConfigError(f"{argument}={name!r} is none of impls: {', '.join(impls)}{hint}")
