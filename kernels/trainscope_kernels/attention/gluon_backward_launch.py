"""Launches of the Gluon attention backward: tile sizes, workspaces, and what is launched when."""

from __future__ import annotations

import torch

from trainscope_kernels.attention.call import Call
from trainscope_kernels.attention.gluon_apart_launch import keys_and_values_alone, queries_alone
from trainscope_kernels.attention.gluon_backward import attention_backward
from trainscope_kernels.attention.gluon_backward_sizes import (
    ROWS,
    Sizes,
    band_of,
    factors_of,
    power_of_two,
    sizes_of,
)
from trainscope_kernels.attention.gluon_dq import attention_dq
from trainscope_kernels.attention.gluon_row_terms import attention_row_terms
from trainscope_kernels.attention.gluon_start import multiprocessors, readable, start, tensor_map

__all__ = ["backward"]

KEYS = 128
STAGES = 2
IN_REGISTERS = {
    # head_dim padded, mask: columns of K and of V that are register operands; the rest is read from
    # shared memory, whose bandwidth is the limit. At 128 the mask of a band leaves no room for V's
    # half; blocks at a diagonal have a loop of their own, without it.
    128: {"none": (0, 64), "end": (0, 64), "diagonal": (0, 64), "band": (0, 0)},
    64: {"none": (64, 64), "end": (64, 64), "diagonal": (64, 64), "band": (64, 64)},
}
IN_REGISTERS_WITHOUT_DQ = {
    # Without dQ's barrier in the loop ptxas 12.8 gives dS the registers of a whole K or V, which
    # the next step reads as K or V. test_gluon_compile.py looks for it in the machine code.
    128: {"none": (0, 64), "end": (0, 64), "diagonal": (0, 0), "band": (0, 0)},
    64: {"none": (0, 0), "end": (0, 0), "diagonal": (0, 0), "band": (0, 0)},
}
Four = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


def backward(
    call: Call,
    grad_out: torch.Tensor,
    grad_lse: torch.Tensor | None,
    out: torch.Tensor,
    lse: torch.Tensor,
    grads: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    *,
    deterministic: bool = False,
) -> None:
    """Fill ``grads``, those of q, k and v, in their shapes; empty ones are left so.

    One kernel makes all three, and takes 4 bytes an element of q for a workspace of dQ's sums.
    deterministic, and of wide heads and packed sequences: one makes dK and dV and another dQ, each
    in a fixed order.
    """
    device = call.q.device.index
    if device != torch.cuda.current_device():
        with torch.cuda.device(device):
            return backward(call, grad_out, grad_lse, out, lse, grads, deterministic=deterministic)
    sizes = sizes_of(call)
    tensors = readable(call.q), readable(call.k), readable(call.v), readable(grad_out)
    terms = row_terms(call, sizes, tensors[3], grad_lse, readable(out), lse)
    dq, dk, dv = (
        grad if grad.numel() else x.new_empty(x.shape)
        for grad, x in zip(grads, tensors, strict=False)
    )
    wide = sizes.width > 128 or (call.softcap != 0 and sizes.width == 128) or call.cu_q is not None
    if wide or deterministic or not grads[0].numel():
        if grads[1].numel() and wide:
            keys_and_values_alone(call, sizes, tensors, terms, dk, dv)
        elif grads[1].numel():
            keys_and_values(call, sizes, tensors, terms, dk, dv, None)
        if grads[0].numel():
            queries_alone(call, sizes, tensors, terms, dq)
        return
    workspace = terms.new_zeros((sizes.batch * sizes.heads, sizes.row_blocks * ROWS, sizes.width))
    keys_and_values(call, sizes, tensors, terms, dk, dv, workspace)
    read_workspace(call, sizes, workspace, dq)


def row_terms(
    call: Call,
    sizes: Sizes,
    grad_out: torch.Tensor,
    grad_lse: torch.Tensor | None,
    out: torch.Tensor,
    lse: torch.Tensor,
) -> torch.Tensor:
    """See gluon_row_terms; 8 bytes a row."""
    instances = sizes.batch * sizes.heads
    terms = torch.empty(
        (instances, 2, sizes.row_blocks * ROWS), device=out.device, dtype=torch.float32
    )
    ragged = sizes.queries % ROWS != 0
    layouts = out.stride(), grad_out.stride()
    start(
        attention_row_terms,
        instances * sizes.row_blocks,
        (out.device.index, out.dtype, sizes.dim, ragged, *layouts, grad_lse is None),
        (
            out,
            grad_out,
            lse.contiguous(),
            lse if grad_lse is None else grad_lse.contiguous(),
            terms,
            out.stride()[:3],
            grad_out.stride()[:3],
            sizes.queries,
            sizes.row_blocks,
            sizes.heads,
            factors_of(call).of_lse,
        ),
        ROWS=ROWS,
        DIM=sizes.width,
        COLUMNS=sizes.dim,
        RAGGED=ragged,
        HAS_GRAD_LSE=grad_lse is not None,
    )
    return terms


def keys_and_values(
    call: Call,
    sizes: Sizes,
    tensors: Four,
    terms: torch.Tensor,
    dk: torch.Tensor,
    dv: torch.Tensor,
    workspace: torch.Tensor | None,
) -> None:
    """dK and dV of q, k, v and dO; with a workspace the sums of dQ too."""
    q, k, v, grad_out = tensors
    width, group = sizes.width, sizes.group
    band, factors = band_of(call), factors_of(call)
    key_blocks = -(-sizes.keys // KEYS)
    columns = IN_REGISTERS_WITHOUT_DQ if workspace is None else IN_REGISTERS
    k_in_registers, v_in_registers = columns[width][band.mask]
    walk = walk_of(sizes, band.mask, v_in_registers)
    section, cohort = sizes.key_heads_together, 1
    if walk in ("turns", "apart"):
        section, cohort = down_and_up(sizes, key_blocks, multiprocessors(q.device.index))
    kind = band.mask, factors.capped, walk, workspace is not None
    start(
        attention_backward,
        sizes.batch * sizes.key_heads * key_blocks,
        (q.device.index, q.dtype, sizes.dim, *kind),
        (
            tensor_map(q, ROWS, width),
            tensor_map(k, KEYS, width),
            tensor_map(v, KEYS, width),
            tensor_map(grad_out, ROWS, width),
            tensor_map(dk, KEYS // 2, width),
            tensor_map(dv, KEYS // 2, width),
            terms,
            terms if workspace is None else workspace,
            sizes.keys,
            sizes.row_blocks,
            key_blocks,
            sizes.key_heads,
            group,
            band.low,
            band.high,
            section,
            cohort,
            float(call.scale),
            factors.log2_scale,
            factors.tanh_scale,
        ),
        WITH_DQ=workspace is not None,
        MASK=band.mask,
        CAPPED=factors.capped,
        WALK=walk,
        ROWS=ROWS,
        KEYS=KEYS,
        DIM=width,
        STAGES=STAGES,
        K_IN_REGISTERS=k_in_registers,
        V_IN_REGISTERS=v_in_registers,
    )


def walk_of(sizes: Sizes, mask: str, v_in_registers: int) -> str:
    """In which order a program goes over its blocks, see gluon_backward_walk.

    apart: where the blocks at the diagonal cannot have in registers what the others have.
    """
    if mask == "diagonal" and 0 < v_in_registers < sizes.width:
        return "apart"
    if sizes.group == 1:
        return "up"
    return "turns" if mask == "diagonal" else "heads"


def down_and_up(sizes: Sizes, key_blocks: int, programs: int) -> tuple[int, int]:
    """(section, cohort) of so many programs at once, see gluon_backward and its walk.

    A section is what is begun twice in every place, once down and once up, as near as may be: with
    half as many key heads in it the case of gluon_backward_walk is as slow as head after head.
    """
    section = power_of_two(sizes.batch * sizes.key_heads, max(1, 2 * programs // key_blocks))
    return section, max(1, programs // section)


def read_workspace(call: Call, sizes: Sizes, workspace: torch.Tensor, dq: torch.Tensor) -> None:
    """dQ of its sums."""
    ragged = sizes.queries % ROWS != 0
    start(
        attention_dq,
        sizes.batch * sizes.heads * sizes.row_blocks * 2,
        (dq.device.index, dq.dtype, sizes.dim, ragged, dq.stride()),
        (
            workspace,
            dq,
            dq.stride()[:3],
            sizes.queries,
            sizes.row_blocks,
            sizes.heads,
            float(call.scale),
        ),
        ROWS=ROWS,
        DIM=sizes.width,
        COLUMNS=sizes.dim,
        RAGGED=ragged,
    )
