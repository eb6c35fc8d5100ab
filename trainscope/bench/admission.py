"""Who may be timed: every function is called once and has to agree with the reference."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from trainscope.bench.agreement import Expected, agreement, expected
from trainscope.bench.given import Given
from trainscope.bench.model import Agreement, Flag
from trainscope.bench.outputs import copied
from trainscope.bench.subject import Subject, first_call, said
from trainscope.errors import BenchmarkError, ConfigError

__all__ = ["Admitted", "admit"]


@dataclass(frozen=True)
class Admitted:
    """A function after its first call; only one whose agreement is ok is timed."""

    subject: Subject
    first_ns: int
    agreement: Agreement
    flags: tuple[Flag, ...] = ()

    def refused(self, why: str) -> Admitted:
        """The same function, which gets no time."""
        return replace(self, agreement=Agreement(ok=False, rule="none", reason=why))


def admit(
    subjects: Sequence[Subject],
    reference_on: Callable[[Sequence[Any]], Subject],
    given: Given,
    inputs: Sequence[Any],
    tolerance: float | None,
    clock: Callable[[], int],
) -> tuple[list[Admitted], Any]:
    """Call each function once, on ``inputs`` as they were ``given``, and compare its output.

    ``reference_on`` makes the reference for inputs, whose output is returned too.

    Raises:
        BenchmarkError: the reference itself raised.
    """
    own = reference_on(inputs)
    try:
        output, own_ns = first_call(own, clock)
    except ConfigError:
        raise
    except (Exception, SystemExit) as error:
        raise BenchmarkError(f"the reference {own.name} raised {said(error)}") from error
    low = copied(output)  # others may write into its memory, or it may be the inputs'
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
        except (Exception, SystemExit) as error:  # one that cannot run is told, others are timed
            refused = Agreement(ok=False, rule="none", reason=f"it raised {said(error)}")
            admitted.append(Admitted(subject, 0, refused, given.restored()))
            continue
        agreed = agreement(output, wanted, tolerance=tolerance)
        admitted.append(Admitted(subject, first_ns, agreed, given.restored()))
    return _told_of_chance(admitted, own, given, wanted), low


def _told_of_chance(
    admitted: list[Admitted], own: Subject, given: Given, wanted: Expected
) -> list[Admitted]:
    """Refuse all but the reference where that gives something else each time."""
    if all(each.subject.name == own.name for each in admitted):
        return admitted
    try:
        again = agreement(first_call(own)[0], Expected(wanted.low, None))
    except (Exception, SystemExit):  # it is timed later, and what it raises is told then
        return admitted
    finally:
        given.restored()
    if again.ok or again.error is None:
        return admitted
    why = f"{own.name}, the reference, gives something else each time: seed its random numbers"
    return [
        each if each.subject.name == own.name else each.refused(_together(each, why))
        for each in admitted
    ]


def _together(each: Admitted, why: str) -> str:
    return why if each.agreement.ok else f"{each.agreement.reason}; {why}"
