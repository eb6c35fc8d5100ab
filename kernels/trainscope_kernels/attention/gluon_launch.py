"""Launches of the Gluon attention kernels: tile sizes, tensor maps, workspaces."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import torch
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from trainscope_kernels.attention.call import Call
from trainscope_kernels.attention.gluon_backward import attention_backward
from trainscope_kernels.attention.gluon_dq import attention_dq
from trainscope_kernels.attention.gluon_envelope import tma_takes
from trainscope_kernels.attention.gluon_forward import attention_forward
from trainscope_kernels.attention.gluon_row_terms import attention_row_terms
from trainscope_kernels.attention.gluon_schedule import (
    Tiling,
    heads_together,
    is_ready,
    schedule_on,
)

__all__ = ["backward", "forward", "is_scheduled"]

LOG2E = 1.4426950408889634
ROWS = 64
"""Queries of one wgmma; the hardware has no other."""
KEYS = 128
STAGES = 2
FORWARD = {
    # Warpgroups, Q in registers, row sums by thread, registers of a consumer and the producer.
    # TFLOP/s on an H200, 4x32x4096, full / causal. 128: 629 / 561 with Q in shared memory, 634 /
    # 588 in registers. 64: 452 / 418 with two warpgroups of 240 registers, 484 / 429 with three.
    128: (2, True, False, 240, 24),
    64: (3, False, True, 160, 32),
}
BACKWARD = {
    # Columns of K and of V that are register operands; the rest is read from shared memory, whose
    # bandwidth is the limit. At 128 the mask of a causal call leaves no room for V's half.
    (128, False): (0, 64),
    (128, True): (0, 0),
    (64, False): (64, 64),
    (64, True): (64, 64),
}


class Map(NamedTuple):
    """What a compiled kernel needs of a tensor to make its tensor map of it."""

    base: torch.Tensor
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    rows: int
    padding: str = "zero"


def forward(call: Call, out: torch.Tensor, lse: torch.Tensor) -> None:
    """Fill ``out`` (batch, heads, length, dim) and ``lse`` (batch, heads, length), float32."""
    device: Any = call.q.device.index
    if device != torch.cuda.current_device():
        with torch.cuda.device(device):
            return forward(call, out, lse)
    q, k, v = (_readable(each) for each in call[:3])
    causal = call.right == 0
    _, heads, length, dim = q.shape
    warpgroups, q_in_registers, sums_by_thread, consumer, producer = FORWARD[dim]
    tiling = _tiling(q)
    table, lists = schedule_on(tiling) if causal else (lse, lse)
    _start(
        attention_forward,
        tiling.programs,
        (device, q.dtype, dim, causal, length % KEYS == 0),
        (
            _map(q, ROWS),
            _map(k, KEYS),
            _map(v, KEYS),
            _map(out, ROWS),
            lse,
            table,
            lists,
            tiling.instances * tiling.row_blocks,
            length,
            tiling.row_blocks,
            heads,
            heads // k.shape[1],
            call.scale * LOG2E,
        ),
        WARPGROUPS=warpgroups,
        ROWS=ROWS,
        KEYS=KEYS,
        DIM=dim,
        STAGES=STAGES,
        CAUSAL=causal,
        RAGGED=length % KEYS != 0,
        TABLE=causal,
        Q_IN_REGISTERS=q_in_registers,
        SUMS_BY_THREAD=sums_by_thread,
        CONSUMER_REGISTERS=consumer,
        PRODUCER_REGISTERS=producer,
    )


def backward(
    call: Call,
    grad_out: torch.Tensor,
    grad_lse: torch.Tensor | None,
    out: torch.Tensor,
    lse: torch.Tensor,
    grads: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
) -> None:
    """Fill ``grads``, those of q, k and v, in their shapes.

    Empty ones are left so, and cost as much: one kernel makes all three. Takes 4 bytes an element
    of q for dQ's workspace, and 8 a row.
    """
    device: Any = call.q.device.index
    if device != torch.cuda.current_device():
        with torch.cuda.device(device):
            return backward(call, grad_out, grad_lse, out, lse, grads)
    q, k, v = call[:3]
    scale, causal = call.scale, call.right == 0
    batch, heads, queries, dim = q.shape
    _, key_heads, keys, _ = k.shape
    group = heads // key_heads
    shift = keys - queries if causal and call.from_end else 0
    row_blocks = -(-queries // ROWS)
    key_blocks = -(-keys // KEYS)
    ragged_rows = queries % ROWS != 0
    dq, dk, dv = (
        grad if grad.numel() else x.new_empty(x.shape)
        for grad, x in zip(grads, (q, k, v), strict=True)
    )
    q, k, v = _readable(q), _readable(k), _readable(v)
    out, grad_out = _readable(out), _readable(grad_out)
    padded = (batch * heads, row_blocks * ROWS)
    terms = torch.empty((*padded, 2), device=q.device, dtype=torch.float32)
    workspace = torch.zeros((*padded, dim), device=q.device, dtype=torch.float32)
    _start(
        attention_row_terms,
        batch * heads * row_blocks,
        (device, q.dtype, dim, ragged_rows, out.stride(), grad_out.stride(), grad_lse is None),
        (
            out,
            grad_out,
            lse.contiguous(),
            lse if grad_lse is None else grad_lse.contiguous(),
            terms,
            out.stride()[:3],
            grad_out.stride()[:3],
            queries,
            row_blocks,
            heads,
            1.0 / scale,
        ),
        ROWS=ROWS,
        DIM=dim,
        RAGGED=ragged_rows,
        HAS_GRAD_LSE=grad_lse is not None,
    )
    # the Q and dO of a key head's queries are read, and their workspace is added to, by all its
    # key blocks
    together = 1
    instances, most = batch * key_heads, heads_together(group * queries * dim * 8)
    while together * 2 <= most and instances % (together * 2) == 0:
        together *= 2
    # queries see keys up to the last one's own: where those all exist the mask hides the rest
    ragged_keys = keys % KEYS != 0 and not (causal and queries + shift <= keys)
    k_in_registers, v_in_registers = BACKWARD[dim, causal]
    _start(
        attention_backward,
        instances * key_blocks,
        (device, q.dtype, dim, causal, ragged_keys, group > 1),
        (
            _map(q, ROWS),
            _map(k, KEYS),
            _map(v, KEYS),
            _map(grad_out, ROWS),
            _map(dk, KEYS // 2),
            _map(dv, KEYS // 2),
            terms,
            workspace,
            keys,
            row_blocks,
            key_blocks,
            key_heads,
            group,
            shift,
            together,
            float(scale),
            scale * LOG2E,
        ),
        CAUSAL=causal,
        RAGGED=ragged_keys,
        GROUPED=group > 1,
        ROWS=ROWS,
        KEYS=KEYS,
        DIM=dim,
        STAGES=STAGES,
        K_IN_REGISTERS=k_in_registers,
        V_IN_REGISTERS=v_in_registers,
    )
    _start(
        attention_dq,
        batch * heads * row_blocks * 2,
        (device, q.dtype, dim, ragged_rows, dq.stride()),
        (workspace, dq, dq.stride()[:3], queries, row_blocks, heads, float(scale)),
        ROWS=ROWS,
        DIM=dim,
        RAGGED=ragged_rows,
    )


def is_scheduled(q: torch.Tensor) -> bool:
    """Whether a causal forward of such a q has nothing to copy to the GPU first."""
    return is_ready(_tiling(q))


def _tiling(q: torch.Tensor) -> Tiling:
    batch, heads, length, dim = q.shape
    rows = FORWARD[dim][0] * ROWS
    instances, row_blocks = batch * heads, -(-length // rows)
    # a head's K and V are read by all its row blocks
    together = heads_together(row_blocks * rows * dim * 2 * q.element_size())
    device: Any = q.device.index
    programs = min(instances * row_blocks, _multiprocessors(device))
    return Tiling(device, instances, row_blocks, rows, KEYS, together, programs)


@functools.cache
def _multiprocessors(device: int) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count


def _readable(x: torch.Tensor) -> torch.Tensor:
    """The tensor, or a contiguous copy of one that TMA and 16-byte loads cannot read."""
    if tma_takes(x) and x.data_ptr() % 16 == 0:
        return x
    return x.clone(memory_format=torch.contiguous_format)


def _map(x: torch.Tensor, rows: int) -> Map:
    """The tensor in tiles of ``rows`` rows of one head."""
    shape = tuple(x.shape)
    # a dim of size 1 may have any stride, and the hardware refuses some: give it a harmless one
    strides = [
        stride if size > 1 else shape[3]
        for size, stride in zip(shape[:3], x.stride()[:3], strict=True)
    ]
    return Map(x, shape, (*strides, 1), rows)


def _described(argument: Any) -> Any:
    if not isinstance(argument, Map):
        return argument
    block = [1, 1, argument.rows, argument.shape[3]]
    dtype = gl.bfloat16 if argument.base.dtype == torch.bfloat16 else gl.float16
    layout: Any = gl.NVMMASharedLayout.get_default_for(block, dtype)
    return TensorDescriptor(
        argument.base, list(argument.shape), list(argument.strides), block, layout
    )


_ready: dict[Any, tuple[Any, tuple[Any, ...]]] = {}


def _start(
    kernel: Any, programs: int, kind: tuple[Any, ...], arguments: tuple[Any, ...], **constants: Any
) -> None:
    """Launch on the current stream of the current device.

    kind: all that the compiled code depends on, the device first. Of a known kind the compiled
    kernel is called outright: Triton itself would describe each argument again to find it.
    """
    key = (kernel.fn, kind)
    ready = _ready.get(key)
    if ready is not None:
        compiled, in_order = ready
        compiled[(programs, 1, 1)](*arguments, *in_order)
        return
    described = [_described(each) for each in arguments]
    compiled = kernel[(programs,)](*described, **constants, num_warps=4)
    names = [name for name in kernel.arg_names if name in constants]
    _ready[key] = compiled, tuple(constants[name] for name in names)
