"""Launch of the Gluon attention forward.

The long way plans a call and lets Triton start it. Another one of the same kind is started with the
numbers found then and four tensor maps, which are encoded once for each address.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from trainscope_kernels.attention.call import Call
from trainscope_kernels.attention.gluon_forward import attention_forward
from trainscope_kernels.attention.gluon_forward_sizes import (
    ROWS,
    band_of_call,
    plan_of,
    tiling_of,
)
from trainscope_kernels.attention.gluon_packed import block_records, longest_first
from trainscope_kernels.attention.gluon_schedule import is_ready, schedule_on
from trainscope_kernels.attention.gluon_start import (
    Map,
    Ready,
    compiled,
    readable,
    start,
    started,
    tensor_map,
)
from trainscope_kernels.attention.tile_sizes import padded
from trainscope_kernels.repeats import Again

__all__ = ["forward", "forward_again", "is_scheduled"]

LOG2E = 1.4426950408889634


class Planned(NamedTuple):
    """A launch as ``gluon_start.start`` takes it, for one LSE or another."""

    programs: int
    kind: tuple[Any, ...]
    maps: tuple[Map, Map, Map, Map]
    schedule: tuple[Tensor, Tensor] | None
    numbers: tuple[float, ...]
    constants: dict[str, Any]

    def arguments(self, out: Tensor, lse: Tensor, records: Tensor | None) -> tuple[Any, ...]:
        """Those of the kernel that are no constants."""
        schedule = (records, lse) if records is not None else self.schedule or (lse, lse)
        return (*self.maps, out, lse, *schedule, *self.numbers)


Launcher = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor | None], None]
"""Starts the kernel for q, k, v, an output, an LSE and records, laid out as those it was made for.

Records: of packed sequences, see gluon_packed.
"""
_launchers: dict[Any, Launcher] = {}
MOST_LAUNCHERS = 1024
"""Kinds of calls remembered; with ever new lengths they start anew, rather than grow for ever."""


def forward(call: Call, out: Tensor, lse: Tensor) -> None:
    """Fill ``out`` (batch, heads, queries, dim) and ``lse`` (batch, heads, queries), float32."""
    device = call.q.device.index
    if device != torch.cuda.current_device():
        with torch.cuda.device(device):
            return forward(call, out, lse)
    q, k, v = (readable(each) for each in call[:3])
    of_kind = (
        device, q.dtype, q.shape, q.stride(), k.shape, k.stride(), v.stride(), out.stride(),
        call[6:], None if call.cu_q is None else call.cu_q.shape,
    )  # fmt: skip
    records = _records(call)
    launcher = _launchers.get(of_kind)
    if launcher is not None:
        launcher(q, k, v, out, lse, records)
        return
    plan = _planned(call._replace(q=q, k=k, v=v), out)
    arguments = plan.arguments(out, lse, records)
    start(attention_forward, plan.programs, plan.kind, arguments, **plan.constants)
    ready = started(attention_forward, plan.kind)
    if ready is not None:
        if len(_launchers) >= MOST_LAUNCHERS:
            _launchers.clear()
        _launchers[of_kind] = _launcher(plan, ready)


def forward_again(call: Call, out: Tensor, lse: Tensor, return_lse: bool) -> Again | None:
    """What makes the output, and the LSE if asked, of q, k and v like the call's.

    out, lse: as ``forward`` gets them; new ones are laid out so. None where one of these is copied
    first.
    """
    if any(readable(each) is not each for each in call[:3]):
        return None
    plan = _planned(call, out)
    arguments = plan.arguments(out, lse, None)
    ready = compiled(attention_forward, plan.kind, arguments, **plan.constants)
    launcher = _launcher(plan, ready)
    alike = torch.empty_like(call.q).stride() == out.stride()
    shape, strides, lse_shape = out.shape, out.stride(), lse.shape

    def again(q: Tensor, k: Tensor, v: Tensor) -> Any:
        if (q.data_ptr() | k.data_ptr() | v.data_ptr()) % 16:
            return None
        # empty_like is the fastest, and keeps the order of the dimensions in memory
        out = torch.empty_like(q) if alike else q.new_empty_strided(shape, strides)
        lse = q.new_empty(lse_shape, dtype=torch.float32)
        launcher(q, k, v, out, lse, None)
        return (out, lse) if return_lse else out

    return again


def _records(call: Call) -> Tensor | None:
    if call.cu_q is None or call.cu_k is None:
        return None
    plan = plan_of(call)
    rows = plan.warpgroups * ROWS
    keys = call.k.shape[2]
    records = block_records(call.cu_q, call.cu_k, rows, call.q.shape[2], keys, call.band)
    return longest_first(records, rows, plan.keys)


def _planned(call: Call, out: Tensor) -> Planned:
    q, k, v = call[:3]
    heads, dim = q.shape[1], q.shape[3]
    width = padded(dim)
    band = band_of_call(call)
    capped = call.softcap != 0
    plan = plan_of(call)
    tiling = tiling_of(call)
    listed = band.mask == "diagonal"
    return Planned(
        tiling.programs,
        (q.device.index, q.dtype, dim, band.mask, plan.keys, capped, call.cu_q is not None),
        (
            tensor_map(q, ROWS, width),
            tensor_map(k, plan.keys, width),
            tensor_map(v, plan.keys, width),
            tensor_map(out, ROWS, plan.main),
        ),
        schedule_on(tiling) if listed else None,
        (
            tiling.instances * tiling.row_blocks,
            q.shape[2],
            k.shape[2],
            band.low,
            band.high,
            out.stride(1) // 8,
            out.stride(2) // 8,
            tiling.row_blocks,
            heads,
            heads // k.shape[1],
            min(tiling.together * (heads // k.shape[1]), heads),
            (call.softcap if capped else call.scale) * LOG2E,
            2 * LOG2E * call.scale / call.softcap if capped else 0.0,
        ),
        {
            "WARPGROUPS": plan.warpgroups,
            "ROWS": ROWS,
            "KEYS": plan.keys,
            "DIM": width,
            "MAIN": plan.main,
            "REST": plan.rest,
            "STAGES": plan.stages,
            "Q_STAGES": plan.q_stages,
            "MASK": band.mask,
            "CAPPED": capped,
            "TABLE": listed,
            "PACKED": call.cu_q is not None,
            "Q_IN_REGISTERS": plan.q_in_registers,
            "SUMS_BY_THREAD": plan.sums_by_thread,
            "CONSUMER_REGISTERS": plan.consumer,
            "PRODUCER_REGISTERS": plan.producer,
        },
    )


def _launcher(plan: Planned, ready: Ready) -> Launcher:
    start_ready, encoders, constants = ready
    for_q, for_k, for_v, for_out = encoders
    # without the tensors, whose memory would stay taken
    of_q, of_k, of_v, of_out = (each._replace(base=None) for each in plan.maps)
    schedule = plan.schedule and tuple(each.data_ptr() for each in plan.schedule)
    programs, rest = plan.programs, (*plan.numbers, *constants)

    def launch(
        q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, records: Tensor | None
    ) -> None:
        to_lse = lse.data_ptr()
        listed = schedule or (to_lse, to_lse)
        given: tuple[Any, ...] = (
            *for_q(q, of_q),
            *for_k(k, of_k),
            *for_v(v, of_v),
            *for_out(out, of_out),
            out.data_ptr(),
            to_lse,
            *(listed if records is None else (records.data_ptr(), to_lse)),
        )
        start_ready(programs, given, rest)

    return launch


def is_scheduled(call: Call) -> bool:
    """Whether the forward has nothing to copy to the GPU first."""
    return band_of_call(call).mask != "diagonal" or is_ready(tiling_of(call))
