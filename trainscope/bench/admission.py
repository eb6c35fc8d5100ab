"""Who may be timed: every function is called once and has to agree with the reference."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from trainscope.bench.agreement import agreement, expected
from trainscope.bench.model import Agreement, Flag
from trainscope.bench.subject import Subject, first_call
from trainscope.errors import BenchmarkError, ConfigError

__all__ = ["Admitted", "admit"]

_CHANGES = Flag(
    code="changes-inputs",
    text="it writes into its inputs, so later calls, its own and others', start from what it left",
)


@dataclass(frozen=True)
class Admitted:
    """A function after its first call; only one whose agreement is ok is timed."""

    subject: Subject
    first_ns: int
    agreement: Agreement
    flags: tuple[Flag, ...] = ()


def admit(
    subjects: Sequence[Subject],
    reference_on: Callable[[Sequence[Any]], Subject],
    inputs: Sequence[Any],
    tolerance: float | None,
    clock: Callable[[], int],
) -> tuple[list[Admitted], Any]:
    """Call each function once, on inputs as they were given, and compare its output.

    ``reference_on`` makes the reference for inputs, whose output is returned too.

    Raises:
        BenchmarkError: the reference itself raised.
    """
    given = _Given(inputs)
    own = reference_on(inputs)
    try:
        low, own_ns = first_call(own, clock)
    except ConfigError:
        raise
    except Exception as error:
        raise BenchmarkError(f"the reference {own.name} raised {_said(error)}") from error
    own_flags = given.restored()
    wanted = expected(lambda changed: first_call(reference_on(changed), clock)[0], inputs, low)
    admitted = []
    for subject in subjects:
        if subject.name == own.name:
            agreed = agreement(low, wanted, tolerance=tolerance)
            admitted.append(Admitted(subject, own_ns, agreed, own_flags))
            continue
        try:
            output, first_ns = first_call(subject, clock)
        except Exception as error:  # one that cannot run is told, and the others are timed
            refused = Agreement(ok=False, rule="none", reason=f"it raised {_said(error)}")
            admitted.append(Admitted(subject, 0, refused, given.restored()))
            continue
        flags = given.restored()
        agreed = agreement(output, wanted, tolerance=tolerance)
        admitted.append(Admitted(subject, first_ns, agreed, flags))
        del output
    return admitted, low


class _Given:
    """The inputs' tensors and what they held, so that none starts from what another wrote."""

    def __init__(self, inputs: Sequence[Any]) -> None:
        leaves = pytree.tree_leaves(tuple(inputs))
        self._tensors = [each.detach() for each in leaves if torch.is_tensor(each)]
        self._held = [each.clone() for each in self._tensors]

    def restored(self) -> tuple[Flag, ...]:
        """Put back what was changed, and say so."""
        changed = False
        for tensor, held in zip(self._tensors, self._held, strict=True):
            if not _same(tensor, held):
                tensor.copy_(held)
                changed = True
        return (_CHANGES,) if changed else ()


def _same(tensor: torch.Tensor, held: torch.Tensor) -> bool:
    if torch.equal(tensor, held):
        return True
    # NaN is not equal to itself
    return tensor.is_floating_point() and bool(
        ((tensor == held) | (tensor.isnan() & held.isnan())).all()
    )


def _said(error: Exception) -> str:
    first = (str(error).strip().splitlines() or [""])[0]
    return f"{type(error).__name__}: {first[:200]}"
