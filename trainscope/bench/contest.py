"""``compare``: functions that must agree, timed in turn on the same inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from time import perf_counter_ns
from typing import Any

import torch

from trainscope.bench.admission import Admitted, admit
from trainscope.bench.ceilings import copy_of
from trainscope.bench.environment import environment
from trainscope.bench.first_call import timer_for
from trainscope.bench.measure import effort
from trainscope.bench.model import Cache, Comparison, Environment, Measurement, Ratio
from trainscope.bench.outcome import Work, by_the_host, measured, state_of, work_of
from trainscope.bench.spread import ratio_of_medians
from trainscope.bench.subject import Subject, backward_of, forward_of
from trainscope.bench.timers import Timer
from trainscope.bench.trials import Taken, take
from trainscope.errors import ConfigError

__all__ = ["compare", "compare_backward"]

Impls = Mapping[str, Callable[..., Any]]
Reference = str | Callable[..., Any]
_COPY = "copy"


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
    options = _Options(baseline, bytes_moved, flops, cache, trials, seconds, tolerance, name, timer)
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
    timer: Timer | None = None,
) -> Comparison:
    """Time the gradients alone: each call follows a new forward that is not timed.

    They are the gradients of the inputs that require one, or of all floating-point inputs where
    none does; bytes, FLOPs and agreement are the backward's. Otherwise as ``compare``.
    """
    options = _Options(baseline, bytes_moved, flops, cache, trials, seconds, tolerance, name, timer)
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
    timer: Timer | None


def _compare(
    subject_of: Callable[[str, Callable[..., Any], Sequence[Any]], Subject],
    impls: Impls,
    inputs: Sequence[Any],
    reference: Reference,
    options: _Options,
) -> Comparison:
    reference_name, reference_fn = _reference(impls, reference)
    baseline = _baseline(impls, reference_name, options.baseline)
    wanted = effort(options.trials, options.seconds)
    admitted, device = admit(
        [subject_of(name, fn, inputs) for name, fn in impls.items()],
        lambda given: subject_of(reference_name, reference_fn, given),
        inputs,
        options.tolerance,
        perf_counter_ns if options.timer is None else options.timer.now_ns,
    )
    timer = options.timer or timer_for(device, options.cache)
    work = work_of(options.bytes_moved, options.flops, inputs, timer.device)
    subjects = [each.subject for each in admitted if each.agreement.ok]
    copy = _copy(work.bytes_moved, timer) if subjects else None
    taken = take([*subjects, *([] if copy is None else [copy])], timer, wanted) if subjects else []
    return Comparison(
        name=options.name,
        reference=reference_name,
        baseline=baseline,
        bytes_moved=work.bytes_moved,
        flops=work.flops,
        **_results(admitted, taken, timer, work, baseline),
    )


def _results(
    admitted: Sequence[Admitted],
    taken: Sequence[Taken],
    timer: Timer,
    work: Work,
    baseline: str,
) -> dict[str, Any]:
    here = environment(timer.device)
    by_name = {each.subject.name: each for each in taken if each.subject.name != _COPY}
    copy = next((each for each in taken if each.subject.name == _COPY), None)
    with timer.on_device():
        floor_ns = timer.floor_ns()
        state = state_of(taken[0].subject, timer) if taken else None
        common: dict[str, Any] = {"floor_ns": floor_ns, "state": state}
        rows = []
        for each in admitted:
            mine = by_name.get(each.subject.name)
            if mine is None:
                rows.append(_refused(each, timer, here))
                continue
            rows.append(
                measured(
                    mine,
                    timer,
                    work,
                    here,
                    first_call_us=each.first_ns / 1000,
                    agreement=each.agreement,
                    ratio=_ratio(by_name.get(baseline), mine),
                    of_copy=_ratio(copy, mine),
                    flags=each.flags,
                    **common,
                )
            )
        bytes_only = Work(work.bytes_moved, copy_bytes_s=work.copy_bytes_s)
        of_copy = None if copy is None else measured(copy, timer, bytes_only, here, **common)
    return {"rows": tuple(rows), "copy_of_bytes": of_copy, "environment": here}


def _refused(each: Admitted, timer: Timer, here: Environment) -> Measurement:
    return Measurement(
        name=each.subject.name,
        timer=timer.kind,
        cache=timer.cache,
        calls_per_trial=0,
        time=None,
        agreement=each.agreement,
        flags=each.flags,
        refused=each.agreement.reason,
        environment=here,
    )


def _ratio(to: Taken | None, mine: Taken) -> Ratio | None:
    """How many times faster than ``to``, both by the clock that sees all the work of both."""
    if to is None:
        return None
    if by_the_host(to) or by_the_host(mine):
        return ratio_of_medians(to.subject.name, to.wall_ns, mine.wall_ns)
    return ratio_of_medians(to.subject.name, to.times_ns, mine.times_ns)


def _copy(bytes_moved: int | None, timer: Timer) -> Subject | None:
    """A copy of the same bytes; None where nothing is moved or there is no memory for it."""
    if bytes_moved is None:
        return None
    try:
        return copy_of(bytes_moved, timer.device)
    except torch.OutOfMemoryError:
        return None


def _reference(impls: Impls, reference: Reference) -> tuple[str, Callable[..., Any]]:
    if not impls:
        raise ConfigError("impls is empty; pass at least one function by its name")
    if _COPY in impls:
        raise ConfigError(f"impls holds {_COPY!r}, the name of the plain copy; choose another")
    if isinstance(reference, str):
        return reference, impls[_known(impls, "reference", reference)]
    for name, fn in impls.items():
        if fn is reference:
            return name, fn
    return getattr(reference, "__name__", "reference"), reference


def _baseline(impls: Impls, reference_name: str, baseline: str | None) -> str:
    if baseline is not None:
        return _known(impls, "baseline", baseline)
    return reference_name if reference_name in impls else next(iter(impls))


def _known(impls: Impls, argument: str, name: str) -> str:
    if name in impls:
        return name
    near = get_close_matches(name, impls, 1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise ConfigError(f"{argument}={name!r} is none of impls: {', '.join(impls)}{hint}")
