"""Whether an output is the reference's: no time is told of one that is not.

Where the reference runs in float64, an output may be as far from that as twice the reference's own
result in the dtype of the inputs is, plus half a last place; the largest error counts and the root
mean square. Where it does not run in float64, the largest error may be ``RELATIVE`` of the largest
value. Integers and booleans are equal, and NaN and infinities stand where the reference has them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from trainscope.bench.model import Agreement

__all__ = ["RELATIVE", "Expected", "agreement", "expected"]

RELATIVE = {
    torch.float64: 1e-9,
    torch.float32: 1e-5,
    torch.bfloat16: 3.2e-2,
    torch.float16: 4e-3,
}
"""Of the largest value: four last places of bfloat16 and float16, a long float32 sum's error."""
_RELATIVE_OF_OTHERS = 0.25  # the 8-bit floats
_TIMES = 2.0


@dataclass(frozen=True)
class Expected:
    """The reference's outputs."""

    low: Any
    exact: Any | None
    """From the same inputs in float64; None where that cannot be had."""
    why_not: str | None = None


def expected(run: Callable[[Sequence[Any]], Any], inputs: Sequence[Any], low: Any) -> Expected:
    """Run the reference on the inputs in float64; ``low`` is its output on them as they are."""
    floating = [each for each in pytree.tree_leaves(inputs) if _is_floating(each)]
    if not floating or all(each.dtype == torch.float64 for each in floating):
        return Expected(low, None)
    try:
        exact = run(pytree.tree_map(_as_float64, tuple(inputs)))
    except Exception as error:  # any op may have no float64 kernel, or need too much memory
        said = str(error).strip().splitlines() or [type(error).__name__]
        return Expected(low, None, f"the reference does not run in float64: {said[0][:160]}")
    dtypes = {each.dtype for each in pytree.tree_leaves(exact) if _is_floating(each)}
    if dtypes != {torch.float64}:
        given = ", ".join(sorted(str(dtype) for dtype in dtypes)) or "no tensor"
        return Expected(low, None, f"from float64 inputs the reference returns {given}")
    return Expected(low, exact)


def agreement(output: Any, wanted: Expected, *, tolerance: float | None = None) -> Agreement:
    """Compare an output with the reference's, leaf by leaf; the first that is off is told.

    tolerance: largest error allowed, of the largest value, in place of both rules.
    """
    ours, our_tree = pytree.tree_flatten(output)
    lows, tree = pytree.tree_flatten(wanted.low)
    exacts = [None] * len(lows) if wanted.exact is None else pytree.tree_leaves(wanted.exact)
    if not any(torch.is_tensor(each) for each in lows):
        return _refused("the reference returns no tensor; return what was computed")
    if our_tree != tree and len(ours) != len(lows):
        return _refused(f"it returns {len(ours)} values, the reference {len(lows)}")
    found = [
        _leaf(index, *each, tolerance)
        for index, each in enumerate(zip(ours, lows, exacts, strict=True))
    ]
    for each in found:
        if not each.ok:
            return each
    worst = max(found, key=_use)
    if wanted.why_not is not None and worst.rule == "tolerance":
        return worst.model_copy(update={"reason": wanted.why_not})
    return worst


def _leaf(index: int, ours: Any, low: Any, exact: Any, tolerance: float | None) -> Agreement:
    name = f"output {index}"
    if not torch.is_tensor(low):
        same = bool(ours == low)
        return (
            Agreement(ok=True, rule="exact") if same else _refused(f"{name} is {ours}, not {low}")
        )
    if not torch.is_tensor(ours):
        return _refused(f"{name} is no tensor but {type(ours).__name__}")
    if ours.shape != low.shape or ours.dtype != low.dtype:
        return _refused(
            f"{name} is {tuple(ours.shape)} {ours.dtype}, the reference's {tuple(low.shape)} "
            f"{low.dtype}"
        )
    if not _is_floating(low):
        if torch.equal(ours, low):
            return Agreement(ok=True, rule="exact", error=0.0, allowed=0.0)
        return _refused(f"{name}: {int((ours != low).sum())} of {low.numel()} values differ")
    return _floating(name, ours.detach(), low.detach(), exact, tolerance)


def _floating(
    name: str, ours: torch.Tensor, low: torch.Tensor, exact: Any, tolerance: float | None
) -> Agreement:
    resolution = torch.finfo(low.dtype).eps
    got, had = ours.double(), low.double()
    finite = had.isfinite()
    misplaced = int((finite != got.isfinite()).sum())
    misplaced += int(((got != had) & ~finite & ~(got.isnan() & had.isnan())).sum())
    if misplaced:
        return _refused(f"{name}: {misplaced} NaN or infinities are not where the reference's are")
    truth = had
    if exact is not None and tolerance is None:
        truth = exact.detach()
        finite &= truth.isfinite()
    off = (got - truth).abs()[finite]
    if not off.numel():
        return Agreement(ok=True, rule="exact", error=0.0, allowed=0.0)
    largest = float(truth.abs()[finite].max())
    error = float(off.max())
    if truth is had:
        share = RELATIVE.get(low.dtype, _RELATIVE_OF_OTHERS) if tolerance is None else tolerance
        return _judged(name, "tolerance", "largest", error, share * largest)
    theirs = (had - truth).abs()[finite]
    allowed = _TIMES * float(theirs.max()) + resolution / 2 * largest
    by_largest = _judged(name, "float64", "largest", error, allowed)
    if not by_largest.ok:
        return by_largest
    mean_square = _rms(truth[finite])
    allowed = _TIMES * _rms(theirs) + resolution / 2 * mean_square
    by_mean = _judged(name, "float64", "root mean square", _rms(off), allowed)
    return by_largest if by_mean.ok else by_mean


def _judged(name: str, rule: Any, which: str, error: float, allowed: float) -> Agreement:
    if error <= allowed:
        return Agreement(ok=True, rule=rule, error=error, allowed=allowed)
    reason = f"{name}: {which} error {error:.3g}, allowed {allowed:.3g} (rule: {rule})"
    return Agreement(ok=False, rule=rule, error=error, allowed=allowed, reason=reason)


def _refused(reason: str) -> Agreement:
    return Agreement(ok=False, rule="none", reason=reason)


def _use(each: Agreement) -> float:
    return (each.error or 0.0) / each.allowed if each.allowed else 0.0


def _rms(values: torch.Tensor) -> float:
    return float(values.square().mean().sqrt())


def _is_floating(value: Any) -> bool:
    return torch.is_tensor(value) and value.is_floating_point()


def _as_float64(value: Any) -> Any:
    if not _is_floating(value):
        return value
    return value.detach().double().requires_grad_(value.requires_grad)
