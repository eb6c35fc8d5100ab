"""``benchmark``: the time of one function, and how far to believe it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from time import perf_counter_ns
from typing import Any

import torch

from trainscope.bench.agreement import agreement, expected
from trainscope.bench.arguments import (
    check_amounts,
    check_callable,
    check_inputs,
    check_name,
    is_number,
)
from trainscope.bench.device import timer_for
from trainscope.bench.environment import environment
from trainscope.bench.given import Given
from trainscope.bench.model import Agreement, Cache, Measurement
from trainscope.bench.outcome import measured, state_of, work_of
from trainscope.bench.outputs import copied
from trainscope.bench.subject import calling, first_call, forward_of, refuse_later
from trainscope.bench.timers import Timer
from trainscope.bench.trials import Effort, take
from trainscope.errors import BenchmarkError, ConfigError

__all__ = ["benchmark", "effort"]


def benchmark(
    fn: Callable[..., Any],
    *inputs: Any,
    reference: Callable[..., Any] | None = None,
    bytes_moved: int | None = None,
    flops: int | None = None,
    cache: Cache | None = None,
    trials: int | None = None,
    seconds: float = 0.5,
    tolerance: float | None = None,
    name: str | None = None,
    device: str | torch.device | None = None,
    timer: Timer | None = None,
) -> Measurement:
    """Time ``fn(*inputs)``: warm-up until it settles, then trials, each from sync to sync.

    Let ``fn`` return what it computed, and not change its inputs.

    reference: what it has to agree with before any time is told (``agreement`` has the rules).
    bytes_moved, flops: what a call must at least move and compute, for its share of the roofline.
    cache: ``cold``, the default on a GPU, flushes its L2 before each call; ``warm`` does not.
    trials: how many; None takes as many as fit into ``seconds``, at least 20, at least 100 of a
    call under 100 us.
    device: where the work is done; None takes the GPU of the inputs or the output, the current one
    where ``fn`` returns no tensor and this process uses a GPU, else the CPU.
    timer: None for that of the device.

    Raises:
        BenchmarkError: the output is not the reference's, or is a generator, or ``fn`` raised.
        ConfigError: an argument is not allowed, or the device is not supported.
    """
    wanted = effort(trials, seconds)
    check_amounts(bytes_moved, flops, tolerance, cache)
    check_inputs(inputs)
    check_callable("fn", fn)
    if reference is not None:
        check_callable("reference", reference)
    if name is not None:
        check_name("name", name)
    subject = forward_of(name or _name_of(fn), fn, inputs)
    given = Given(inputs)
    with calling(subject.name):
        clock = perf_counter_ns if timer is None else timer.now_ns
        output, first_ns = first_call(subject, clock)
    refuse_later(subject.name, output)
    chosen = timer or timer_for(cache, device, inputs, output)
    if reference is not None:
        output = copied(output)  # it may be the inputs' memory, which the reference gets as given
    flags = given.restored()
    agreed = None
    if reference is not None:
        agreed = _agreed(subject.name, output, inputs, given, reference, tolerance)
    if not flags:
        given = None
    del output  # its memory is needed below
    work = work_of(bytes_moved, flops, inputs, chosen.device)
    try:
        (taken,) = take([subject], chosen, wanted)
        with chosen.on_device():
            return measured(
                taken,
                chosen,
                work,
                environment(chosen.device),
                floor_ns=chosen.floor_ns(),
                state=state_of(subject, chosen),
                first_call_us=first_ns / 1000,
                agreement=agreed,
                flags=flags,
            )
    finally:
        if given is not None:
            given.restored()


def effort(trials: int | None, seconds: float) -> Effort:
    """Check how long to measure.

    Raises:
        ConfigError: fewer than two trials, or no time at all.
    """
    if trials is not None and (not isinstance(trials, int) or trials < 2):
        raise ConfigError(
            f"trials={trials!r:.80} is not allowed; pass a whole number from 2, or None"
        )
    if not (is_number(seconds) and 0 < seconds < math.inf):
        raise ConfigError(f"seconds={seconds!r:.80} is not allowed; pass a positive number")
    return Effort(trials, seconds)


def _name_of(fn: Callable[..., Any]) -> str:
    name = getattr(fn, "__name__", None)
    return name if isinstance(name, str) else type(fn).__name__


def _agreed(
    name: str,
    output: Any,
    inputs: Sequence[Any],
    given: Given,
    reference: Callable[..., Any],
    tolerance: float | None,
) -> Agreement:
    with calling("the reference"):
        low = copied(reference(*inputs))
    given.restored()
    found = agreement(
        output, expected(lambda other: reference(*other), inputs, low), tolerance=tolerance
    )
    if not found.ok:
        raise BenchmarkError(
            f"{name} does not give what the reference gives, so it gets no time: {found.reason}"
        )
    return found
