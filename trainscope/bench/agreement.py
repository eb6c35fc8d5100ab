"""Whether an output is the reference's: no time is told of one that is not.

Where the reference runs in float64, an output may be as far from that as twice the reference's own
result in the dtype of the inputs is, plus half a last place (in float32, four). Where it does not,
it may be ``RELATIVE`` off the reference. Both hold for the largest error, against the largest
value, and for the root mean squares. Integers and booleans are equal, and NaN and infinities stand
where the reference has them.
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
    got, had = ours.double(), low.double()
    in_place = _alike(got, had)
    if exact is not None:
        # the reference may overflow on its way to a value that float64 says is finite
        in_place |= _alike(got, exact.detach().to(low.dtype).double())
    if not in_place.all():
        off = int((~in_place).sum())
        return _refused(f"{name}: {off} NaN or infinities are not where the reference's are")
    by_float64 = exact is not None and tolerance is None
    truth = exact.detach() if exact is not None and by_float64 else had
    finite = got.isfinite() & had.isfinite() & truth.isfinite()
    error, truth = (got - truth)[finite], truth[finite]
    if not error.numel():
        return Agreement(ok=True, rule="exact", error=0.0, allowed=0.0)
    if by_float64:
        theirs = had[finite] - truth
        share, rule = _least_share(low.dtype), "float64"
    else:
        theirs = torch.zeros_like(error)
        share, rule = RELATIVE.get(low.dtype, _RELATIVE_OF_OTHERS), "tolerance"
        share = share if tolerance is None else tolerance
    judged = [
        _judged(name, rule, which, size(error), _TIMES * size(theirs) + share * size(truth))
        for which, size in (("largest", _largest), ("root mean square", _rms))
    ]
    return next((each for each in judged if not each.ok), judged[0])


def _alike(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Where both are finite, or the same infinity, or both NaN."""
    return (a.isfinite() & b.isfinite()) | (a == b) | (a.isnan() & b.isnan())


def _least_share(dtype: torch.dtype) -> float:
    """Of the largest value: allowed even where the reference happens to be exact."""
    resolution = torch.finfo(dtype).eps
    # in float32 two right orders of the same sum differ by some last places
    return 4 * resolution if dtype == torch.float32 else resolution / 2


def _judged(name: str, rule: Any, which: str, error: float, allowed: float) -> Agreement:
    if error <= allowed:
        return Agreement(ok=True, rule=rule, error=error, allowed=allowed)
    reason = f"{name}: {which} error {error:.3g}, allowed {allowed:.3g} (rule: {rule})"
    return Agreement(ok=False, rule=rule, error=error, allowed=allowed, reason=reason)


def _refused(reason: str) -> Agreement:
    return Agreement(ok=False, rule="none", reason=reason)


def _use(each: Agreement) -> float:
    return (each.error or 0.0) / each.allowed if each.allowed else 0.0


def _largest(values: torch.Tensor) -> float:
    return float(values.abs().max())


def _rms(values: torch.Tensor) -> float:
    return float(values.square().mean().sqrt())


def _is_floating(value: Any) -> bool:
    return torch.is_tensor(value) and value.is_floating_point()


def _as_float64(value: Any) -> Any:
    if not _is_floating(value):
        return value
    return value.detach().double().requires_grad_(value.requires_grad)
