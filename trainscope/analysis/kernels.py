"""GPU time by operator, and which kernels an operator picks for which shapes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trainscope.analysis.kernel_names import short_name
from trainscope.analysis.launched_by import values_at
from trainscope.analysis.operators_of import innermost_operators, innermost_ranges
from trainscope.analysis.window_steps import WindowSteps
from trainscope.trace.window import OpKind, Window

__all__ = ["NO_OPERATOR", "KernelUse", "OperatorKernels", "kernels_by_operator"]

NO_OPERATOR = "(no operator recorded)"


@dataclass(frozen=True)
class KernelUse:
    """One kernel as one operator called it with inputs of one shape."""

    kernel: str
    """Short; two kernels with one short name are told apart by their rows."""
    full_name: str
    shape: str | None
    """Of the operator's inputs; None where it was not recorded."""
    count: int
    total_ns: int
    median_ns: float


@dataclass(frozen=True)
class OperatorKernels:
    """The kernels that one operator enqueued itself, most GPU time first."""

    operator: str
    """Without operators recorded the range it was in."""
    count: int
    total_ns: int
    share: float
    """Of the time of all kernels, those of other streams counted as well."""
    uses: tuple[KernelUse, ...]
    kernel_by_shape: tuple[tuple[str, str], ...]
    """Shape and the kernel with most time in it, where different shapes have different ones."""


def kernels_by_operator(window: Window, steps: WindowSteps) -> tuple[OperatorKernels, ...]:
    """The operators with kernels of their own, most GPU time first."""
    gpu = window.gpu
    rows = np.flatnonzero(gpu.kind == OpKind.KERNEL)
    if not len(rows):
        return ()
    who = innermost_operators(window)[rows]
    around = innermost_ranges(window, steps)[rows]
    names = len(window.names)
    name = np.where(
        who >= 0, values_at(window.ops.name_id, who), values_at(window.ranges.name_id, around)
    )
    shape = values_at(window.ops.shape_id, who)
    name = np.where((name >= 0) & (name < names), name, names)
    shape = np.where((shape >= 0) & (shape < len(window.shapes)), shape, -1)
    kernel = np.where(
        (gpu.name_id[rows] >= 0) & (gpu.name_id[rows] < names), gpu.name_id[rows], names
    )
    spent_ns = gpu.end_ns[rows] - gpu.start_ns[rows]
    order = np.lexsort((spent_ns, kernel, shape, name))
    name, shape, kernel, spent_ns = (column[order] for column in (name, shape, kernel, spent_ns))
    new = np.ones(len(order), dtype=bool)
    new[1:] = (np.diff(name) != 0) | (np.diff(shape) != 0) | (np.diff(kernel) != 0)
    first = np.flatnonzero(new)
    count = np.diff(np.append(first, len(order)))
    total_ns = np.add.reduceat(spent_ns, first)
    middle_ns = (spent_ns[first + (count - 1) // 2] + spent_ns[first + count // 2]) / 2

    texts = (*window.names, NO_OPERATOR)
    uses: dict[int, list[KernelUse]] = {}
    for place, at in enumerate(first):
        full = texts[kernel[at]]
        uses.setdefault(int(name[at]), []).append(
            KernelUse(
                kernel=short_name(full),
                full_name=full,
                shape=window.shapes[shape[at]] if shape[at] >= 0 else None,
                count=int(count[place]),
                total_ns=int(total_ns[place]),
                median_ns=float(middle_ns[place]),
            )
        )
    all_ns = max(int(spent_ns.sum()), 1)
    found = [_operator(texts[of], its, all_ns) for of, its in uses.items()]
    return tuple(sorted(found, key=lambda operator: (-operator.total_ns, operator.operator)))


def _operator(name: str, uses: list[KernelUse], all_ns: int) -> OperatorKernels:
    uses.sort(key=lambda use: -use.total_ns)
    total_ns = sum(use.total_ns for use in uses)
    main: dict[str, KernelUse] = {}
    for use in uses:
        if use.shape is not None:
            main.setdefault(use.shape, use)
    differ = len({use.full_name for use in main.values()}) > 1
    return OperatorKernels(
        operator=name,
        count=sum(use.count for use in uses),
        total_ns=total_ns,
        share=total_ns / all_ns,
        uses=tuple(uses),
        kernel_by_shape=tuple((s, use.kernel) for s, use in main.items()) if differ else (),
    )
