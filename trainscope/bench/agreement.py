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
from trainscope.bench.outputs import in_one_line, paired, values
from trainscope.bench.subject import said

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
_EXACT = {torch.float64, torch.complex128}


@dataclass(frozen=True)
class Expected:
    """The reference's outputs."""

    low: Any
    exact: Any | None
    """From the same inputs in float64; None where that cannot be had."""
    why_not: str | None = None


def expected(run: Callable[[Sequence[Any]], Any], inputs: Sequence[Any], low: Any) -> Expected:
    """Run the reference on the inputs in float64; ``low`` is its output on them as they are."""
    inexact = [each for each in pytree.tree_leaves(inputs) if _is_inexact(each)]
    if not inexact or all(each.dtype in _EXACT for each in inexact):
        return Expected(low, None)
    try:
        exact = run(pytree.tree_map(_as_exact, tuple(inputs)))
    except Exception as error:  # any op may have no float64 kernel, or need too much memory
        return Expected(low, None, f"the reference does not run in float64: {said(error)}")
    dtypes = {each.dtype for each in pytree.tree_leaves(exact) if _is_inexact(each)}
    if not dtypes or not dtypes <= _EXACT:
        given = ", ".join(sorted(str(dtype) for dtype in dtypes)) or "no tensor"
        return Expected(low, None, f"from float64 inputs the reference returns {given}")
    return Expected(low, exact)


def agreement(output: Any, wanted: Expected, *, tolerance: float | None = None) -> Agreement:
    """Compare an output with the reference's, value by value; the first that is off is told.

    tolerance: largest error allowed, of the largest value, in place of both rules.
    """
    try:
        return _agreement(output, wanted, tolerance)
    except (RuntimeError, NotImplementedError, TypeError, ValueError) as error:
        return _refused(f"its output cannot be compared: {said(error)}")


def _agreement(output: Any, wanted: Expected, tolerance: float | None) -> Agreement:
    lows, outputs = values(wanted.low), values(output)
    if not any(torch.is_tensor(each) for each in lows.values()):
        return _refused("the reference returns no tensor; return what was computed")
    ours = paired(outputs, lows)
    if ours is None:
        made_of = [", ".join(each) or "nothing" for each in (outputs, lows)]
        if len(outputs) != len(lows):
            made_of = [f"{len(each)} values" for each in (outputs, lows)]
        return _refused(f"it returns {made_of[0]:.100}, the reference {made_of[1]:.100}")
    exacts = {} if wanted.exact is None else paired(values(wanted.exact), lows) or {}
    found = [
        _leaf(f"output {index}", ours[place], low, exacts.get(place), tolerance)
        for index, (place, low) in enumerate(lows.items())
    ]
    for each in found:
        if not each.ok:
            return each
    worst = max(found, key=_use)
    if wanted.why_not is not None and worst.rule == "tolerance":
        return worst.model_copy(update={"reason": wanted.why_not})
    return worst


def _leaf(name: str, ours: Any, low: Any, exact: Any, tolerance: float | None) -> Agreement:
    if not torch.is_tensor(low):
        if not torch.is_tensor(ours) and bool(ours == low):
            return Agreement(ok=True, rule="exact")
        return _refused(f"{name} is {in_one_line(ours)}, the reference's {in_one_line(low)}")
    if not torch.is_tensor(ours):
        return _refused(f"{name} is no tensor but {type(ours).__name__}")
    if ours.shape != low.shape or ours.dtype != low.dtype:
        return _refused(
            f"{name} is {tuple(ours.shape)} {ours.dtype}, the reference's {tuple(low.shape)} "
            f"{low.dtype}"
        )
    if low.is_complex():
        ours, low, exact = (
            each if each is None else torch.view_as_real(each.detach().resolve_conj())
            for each in (ours, low, exact)
        )
    if not low.is_floating_point():
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


def _is_inexact(value: Any) -> bool:
    return torch.is_tensor(value) and (value.is_floating_point() or value.is_complex())


def _as_exact(value: Any) -> Any:
    if not _is_inexact(value):
        return value
    exact = value.detach().to(torch.complex128 if value.is_complex() else torch.float64)
    return exact.requires_grad_(value.requires_grad)
