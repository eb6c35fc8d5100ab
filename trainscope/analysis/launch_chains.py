"""Chains of tiny kernels, launched one after the other, and what to do about them."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from trainscope.analysis.kernel_names import LONGEST, short_name
from trainscope.analysis.launched_by import calls_of_ops
from trainscope.analysis.launches import TINY_NS
from trainscope.analysis.names import name_of
from trainscope.analysis.operators_of import innermost_ranges, outermost_operators
from trainscope.analysis.window_steps import WindowSteps
from trainscope.trace.window import Column, CopyKind, OpKind, Window

__all__ = ["FEWEST", "LaunchChain", "chain_advice", "launch_chains"]

FEWEST = 3
"""Kernels in a row from which on they are a chain."""
_ENGINE = "autograd::engine::evaluate_function: "
_OPTIMIZER = re.compile(r"Optimizer\.step#(\w+)\.step")
_FUSED = frozenset({"Adam", "AdamW", "SGD"})
_ENDS = 4
"""Operators named at the beginning of a long chain."""


@dataclass(frozen=True)
class LaunchChain:
    """Tiny kernels that follow each other on one thread, in one range, with nothing between.

    A longer kernel parts them, and a copy from or to the host: the program goes on with a value.
    """

    operators: tuple[tuple[str, int], ...]
    """The outermost operators in order, each with the kernels that it launched in a row."""
    kernels: int
    """In one chain."""
    times: int
    """How often it was launched."""
    gpu_ns: int
    """GPU time of all of them together."""
    inside: str | None
    """The range that their launches were in; None for none."""

    @property
    def words(self) -> str:
        """The chain by its operators: ``aten::mul x2 → aten::add``; a long one in short."""
        shown = [f"{name} x{count}" if count > 1 else name for name, count in self.operators]
        if len(shown) > _ENDS + 2:
            hidden = len(shown) - _ENDS - 1
            shown = [*shown[:_ENDS], f"({hidden} more)", shown[-1]]
        return " → ".join(shown)


def launch_chains(window: Window, steps: WindowSteps) -> tuple[LaunchChain, ...]:
    """The chains in the steps (without steps, in the window), most kernels in all first."""
    gpu = window.gpu
    call = calls_of_ops(window)
    step = steps.of_ops(window)
    inside = step >= 0 if len(steps) else np.ones(len(gpu), dtype=bool)
    rows = np.flatnonzero(inside & (call >= 0) & (gpu.kind == OpKind.KERNEL))
    if not len(rows):
        return ()
    thread = window.calls.thread[call[rows]]
    rows = rows[np.lexsort((rows, window.calls.start_ns[call[rows]], thread))]
    thread = window.calls.thread[call[rows]]
    tiny = gpu.end_ns[rows] - gpu.start_ns[rows] < TINY_NS
    label = _labels(window, rows)
    around = innermost_ranges(window, steps)[rows]
    copies = _host_copies_before(window, call, rows)
    same = np.ones(len(rows), dtype=bool)
    same[1:] = tiny[1:] & tiny[:-1] & (np.diff(thread) == 0) & (np.diff(step[rows]) == 0)
    same[1:] &= (np.diff(around) == 0) & (np.diff(copies) == 0)
    same[0] = False
    first = np.flatnonzero(~same)
    length = np.diff(np.append(first, len(rows)))
    long = tiny[first] & (length >= FEWEST)
    first, length = first[long], length[long]
    spent_ns = np.concatenate(([0], np.cumsum(gpu.end_ns[rows] - gpu.start_ns[rows])))
    groups: dict[tuple[bytes, int], list[int]] = {}
    for begin, count in zip(first.tolist(), length.tolist(), strict=True):
        where = int(window.ranges.name_id[around[begin]]) if around[begin] >= 0 else -1
        key = label[begin : begin + count].tobytes(), where
        found = groups.setdefault(key, [begin, count, 0, 0])
        found[2] += 1
        found[3] += int(spent_ns[begin + count] - spent_ns[begin])
    chains = [
        LaunchChain(
            operators=_in_a_row(window, label[begin : begin + count]),
            kernels=count,
            times=times,
            gpu_ns=gpu_ns,
            inside=name_of(window, where) if where >= 0 else None,
        )
        for (_, where), (begin, count, times, gpu_ns) in groups.items()
    ]
    return tuple(sorted(chains, key=lambda chain: -chain.kernels * chain.times))


def chain_advice(chain: LaunchChain) -> str:
    """What would launch fewer kernels in place of the chain."""
    names = [name for name, _ in chain.operators]
    optimizer = _OPTIMIZER.match(chain.inside or "")
    if optimizer is not None and optimizer[1] not in _FUSED:
        other = "an optimizer with fused=True (Adam, AdamW, SGD), where one will do"
        # torch.compile takes no sparse gradients
        sparse = optimizer[1] == "SparseAdam"
        return f"{other}, on dense gradients" if sparse else f"torch.compile its step, or {other}"
    if optimizer is not None or all(name.startswith("aten::_foreach") for name in names):
        return "fused=True in the optimizer, or torch.compile its step: one kernel for many"
    if any("CompiledFunction" in name for name in names):
        return (
            "compiled already: mode='reduce-overhead' replays its kernels as one CUDA graph, and a "
            "larger batch makes them longer"
        )
    if any(name.endswith("Backward0") or "Backward" in name for name in names):
        return "torch.compile the model: its backward pass is fused as well"
    return "torch.compile the function around: element-wise operators become one kernel"


def _host_copies_before(window: Window, call: Column, rows: Column) -> Column:
    """How many copies between host and GPU the thread of each row had launched before it."""
    gpu, calls = window.gpu, window.calls
    copies = np.isin(gpu.copy_kind, (CopyKind.H2D, CopyKind.D2H)) & (call >= 0)
    copy, mine = call[copies], call[rows]
    found = np.zeros(len(rows), dtype=np.int64)
    for thread in np.unique(calls.thread[copy]):
        began_ns = np.sort(calls.start_ns[copy[calls.thread[copy] == thread]])
        here = calls.thread[mine] == thread
        found[here] = np.searchsorted(began_ns, calls.start_ns[mine[here]])
    return found


def _labels(window: Window, rows: Column) -> Column:
    """The name of the outermost operator of each GPU op; of the op itself where there is none."""
    operator = outermost_operators(window)[rows]
    own = window.gpu.name_id[rows]
    if not len(window.ops):
        return own
    return np.where(operator >= 0, window.ops.name_id[operator], own)


def _in_a_row(window: Window, labels: Column) -> tuple[tuple[str, int], ...]:
    first = np.flatnonzero(np.concatenate(([True], np.diff(labels) != 0)))
    count = np.diff(np.append(first, len(labels)))
    return tuple(
        (_shown(name_of(window, labels[place])), int(n))
        for place, n in zip(first, count, strict=True)
    )


def _shown(name: str) -> str:
    """An operator's name as it is; a kernel's, which stands where no operators are, in short."""
    name = name.removeprefix(_ENGINE)
    return short_name(name) if name.startswith("void ") or len(name) > LONGEST else name
