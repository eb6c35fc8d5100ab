"""What is timed: one call, what has to be done before it that is not, and its first time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from time import perf_counter_ns
from typing import Any

import torch
from torch.utils import _pytree as pytree

from trainscope.errors import BenchmarkError, ConfigError

__all__ = [
    "CallError",
    "Subject",
    "backward_of",
    "calling",
    "first_call",
    "forward_of",
    "refuse_later",
    "said",
]


@dataclass(frozen=True)
class Subject:
    """``call`` is timed; ``prepare``, where there is one, runs untimed before each call."""

    name: str
    call: Callable[[], Any]
    prepare: Callable[[], None] | None = None


class CallError(BenchmarkError):
    """A function that was to be timed raised."""

    def __init__(self, name: str, error: BaseException) -> None:
        super().__init__(f"{name} raised {said(error)}")
        self.name = name


@contextmanager
def calling(name: str) -> Iterator[None]:
    """Turn what the function raises, and an exit that it asks for, into a CallError."""
    try:
        yield
    except (CallError, ConfigError):
        raise
    except (Exception, SystemExit) as error:
        raise CallError(name, error) from error


def said(error: BaseException) -> str:
    """The error's type and the first line of its text, without control characters."""
    first = (str(error).strip().splitlines() or [""])[0][:200]
    return f"{type(error).__name__}: " + "".join(c if c.isprintable() else "?" for c in first)


def refuse_later(name: str, output: Any) -> None:
    """Raise BenchmarkError for an output that is computed when somebody reads it, or elsewhere."""
    kinds = (Iterator, Awaitable, AsyncIterator, Future, torch._C.Future)
    if isinstance(output, kinds):
        raise BenchmarkError(
            f"{name} returned a {type(output).__name__}, which need not be computed before it is "
            "read; return what was computed"
        )


def forward_of(name: str, fn: Callable[..., Any], inputs: Sequence[Any]) -> Subject:
    """The call of ``fn`` on ``inputs``."""
    return Subject(name, partial(fn, *inputs))


def backward_of(name: str, fn: Callable[..., Any], inputs: Sequence[Any]) -> Subject:
    """The gradients alone: a new forward before each call is not timed.

    The gradients are those of the inputs that require one, or of all floating-point inputs where
    none does, for an output gradient that is random and always the same.

    Raises:
        ConfigError: no input is a floating-point tensor, or the output does not depend on one.
    """
    wanted = [torch.is_tensor(each) and each.requires_grad for each in inputs]
    if not any(wanted):
        wanted = [torch.is_tensor(each) and each.is_floating_point() for each in inputs]
    if not any(wanted):
        raise ConfigError(
            f"inputs of {name!r} hold no floating-point tensor, so there is no gradient to time; "
            "pass at least one"
        )
    arguments = [
        each.detach().requires_grad_() if want else each
        for each, want in zip(inputs, wanted, strict=True)
    ]
    leaves = [each for each, want in zip(arguments, wanted, strict=True) if want]
    pending: list[tuple[list[torch.Tensor], list[torch.Tensor]]] = []
    grads: list[torch.Tensor] = []

    def prepare() -> None:
        outputs = _differentiable(name, fn(*arguments))
        if not grads:
            grads.extend(_output_grads(outputs))
        pending[:] = [(outputs, grads)]

    def call() -> tuple[torch.Tensor | None, ...]:
        outputs, with_grads = pending.pop()
        return torch.autograd.grad(outputs, leaves, with_grads, allow_unused=True)

    return Subject(name, call, prepare)


def first_call(subject: Subject, clock: Callable[[], int] = perf_counter_ns) -> tuple[Any, int]:
    """Call it once, with no warm-up before and no sync before the clock is read.

    Returns the output and the nanoseconds until the call returned: what a naive benchmark claims.
    """
    if subject.prepare is not None:
        subject.prepare()
    _drain()
    began = clock()
    output = subject.call()
    took_ns = clock() - began
    _drain()
    return output, took_ns


def _drain() -> None:
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()


def _differentiable(name: str, output: Any) -> list[torch.Tensor]:
    leaves = pytree.tree_leaves(output)
    found = [each for each in leaves if torch.is_tensor(each) and each.requires_grad]
    if not found:
        raise ConfigError(
            f"the output of {name!r} requires no gradient, so there is no backward to time; "
            "return a tensor computed from the inputs, outside torch.no_grad"
        )
    return found


def _output_grads(outputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The same values for every function and in every dtype."""
    made = []
    for index, output in enumerate(outputs):
        generator = torch.Generator(output.device).manual_seed(index)
        shape, device = output.shape, output.device
        noise = torch.randn(shape, generator=generator, device=device, dtype=torch.float32)
        # eighths of at most 3 have five binary digits, which every dtype from 16 bits holds
        made.append(noise.clamp(-3, 3).mul(8).round().div(8).to(output.dtype))
    return made
