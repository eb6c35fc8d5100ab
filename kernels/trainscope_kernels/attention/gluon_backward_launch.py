"""Launches of the Gluon attention backward: tile sizes, workspaces, and what is launched when."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from trainscope_kernels.attention.call import Call
from trainscope_kernels.attention.gluon_backward import attention_backward
from trainscope_kernels.attention.gluon_band import BAND_OPEN
from trainscope_kernels.attention.gluon_dq import attention_dq
from trainscope_kernels.attention.gluon_queries_backward import attention_queries_backward
from trainscope_kernels.attention.gluon_row_terms import attention_row_terms
from trainscope_kernels.attention.gluon_schedule import heads_together
from trainscope_kernels.attention.gluon_start import readable, start, tensor_map
from trainscope_kernels.attention.tile_sizes import padded

__all__ = ["backward"]

LOG2E = 1.4426950408889634
ROWS = 64
"""Queries of one wgmma; the hardware has no other."""
KEYS = 128
STAGES = 2
IN_REGISTERS = {
    # (head_dim padded, whether there is a band): columns of K and of V that are register operands;
    # the rest is read from shared memory, whose bandwidth is the limit. At 128 the mask of a band
    # leaves no room for V's half.
    (128, False): (0, 64),
    (128, True): (0, 0),
    (64, False): (64, 64),
    (64, True): (64, 64),
}


class Band(NamedTuple):
    """The keys that a query sees, and the kind of mask that takes: see gluon_backward_mask."""

    low: int
    high: int
    mask: str

    @property
    def is_open(self) -> bool:
        """Whether every query sees every key."""
        return self.mask in ("none", "end")


class Exponents(NamedTuple):
    """P is exp2(log2_scale * S), or where scores are capped of their tanh; see gluon_backward."""

    log2_scale: float
    tanh_scale: float
    capped: bool


class Sizes(NamedTuple):
    """Of a call: head dimensions as they are and padded, rows of a head in blocks."""

    batch: int
    heads: int
    key_heads: int
    queries: int
    keys: int
    dim: int
    width: int

    @property
    def row_blocks(self) -> int:
        """Blocks of ROWS queries."""
        return -(-self.queries // ROWS)

    @property
    def group(self) -> int:
        """Query heads of a key head."""
        return self.heads // self.key_heads


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
    deterministic: one makes dK and dV and another dQ, each in a fixed order.
    """
    device: Any = call.q.device.index
    if device != torch.cuda.current_device():
        with torch.cuda.device(device):
            return backward(call, grad_out, grad_lse, out, lse, grads, deterministic=deterministic)
    q, k, v = (readable(each) for each in call[:3])
    grad_out = readable(grad_out)
    batch, heads, queries, dim = q.shape
    sizes = Sizes(batch, heads, k.shape[1], queries, k.shape[2], dim, padded(dim))
    terms = row_terms(call, sizes, grad_out, grad_lse, readable(out), lse)
    dq, dk, dv = (
        grad if grad.numel() else x.new_empty(x.shape)
        for grad, x in zip(grads, (q, k, v), strict=True)
    )
    if deterministic:
        if grads[1].numel():
            keys_and_values(call, sizes, (q, k, v, grad_out), terms, None, dk, dv)
        if grads[0].numel():
            queries_alone(call, sizes, (q, k, v, grad_out), terms, dq)
        return
    workspace = torch.zeros(
        (batch * heads, sizes.row_blocks * ROWS, sizes.width), device=q.device, dtype=torch.float32
    )
    keys_and_values(call, sizes, (q, k, v, grad_out), terms, workspace, dk, dv)
    ragged = queries % ROWS != 0
    start(
        attention_dq,
        batch * heads * sizes.row_blocks * 2,
        (device, q.dtype, dim, ragged, dq.stride()),
        (workspace, dq, dq.stride()[:3], queries, sizes.row_blocks, heads, float(call.scale)),
        ROWS=ROWS,
        DIM=sizes.width,
        COLUMNS=dim,
        RAGGED=ragged,
    )


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
            LOG2E if call.softcap else 1.0 / call.scale,
        ),
        ROWS=ROWS,
        DIM=sizes.width,
        COLUMNS=sizes.dim,
        RAGGED=ragged,
        HAS_GRAD_LSE=grad_lse is not None,
    )
    return terms


Four = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


def keys_and_values(
    call: Call,
    sizes: Sizes,
    tensors: Four,
    terms: torch.Tensor,
    workspace: torch.Tensor | None,
    dk: torch.Tensor,
    dv: torch.Tensor,
) -> None:
    """dK and dV of q, k, v and dO; with a workspace the sums of dQ too."""
    q, k, v, grad_out = tensors
    width, group = sizes.width, sizes.group
    band, exponents = band_of(call), exponents_of(call)
    key_blocks = -(-sizes.keys // KEYS)
    instances = sizes.batch * sizes.key_heads
    k_in_registers, v_in_registers = IN_REGISTERS[width, not band.is_open]
    # the Q and dO of a key head's queries are read, and their workspace is added to, by all its
    # key blocks
    together = divisor(instances, heads_together(group * sizes.queries * width * 8))
    kind = band.mask, exponents.capped, group > 1, workspace is not None
    start(
        attention_backward,
        instances * key_blocks,
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
            together,
            float(call.scale),
            exponents.log2_scale,
            exponents.tanh_scale,
        ),
        WITH_DQ=workspace is not None,
        MASK=band.mask,
        CAPPED=exponents.capped,
        GROUPED=group > 1,
        ROWS=ROWS,
        KEYS=KEYS,
        DIM=width,
        STAGES=STAGES,
        K_IN_REGISTERS=k_in_registers,
        V_IN_REGISTERS=v_in_registers,
    )


def queries_alone(
    call: Call, sizes: Sizes, tensors: Four, terms: torch.Tensor, dq: torch.Tensor
) -> None:
    """dQ of q, k, v and dO, in a kernel of its own."""
    q, k, v, grad_out = tensors
    width = sizes.width
    band, exponents = band_of(call), exponents_of(call)
    row_blocks = -(-sizes.queries // (2 * ROWS))
    instances = sizes.batch * sizes.heads
    # a head's K and V are read by all its row blocks
    together = divisor(instances, heads_together(sizes.keys * width * 4))
    start(
        attention_queries_backward,
        instances * row_blocks,
        (q.device.index, q.dtype, sizes.dim, band.mask, exponents.capped),
        (
            tensor_map(q, ROWS, width),
            tensor_map(k, KEYS, width),
            tensor_map(v, KEYS, width),
            tensor_map(grad_out, ROWS, width),
            tensor_map(dq, ROWS, width),
            terms,
            sizes.keys,
            row_blocks,
            sizes.row_blocks * ROWS,
            sizes.heads,
            sizes.group,
            band.low,
            band.high,
            together,
            float(call.scale),
            exponents.log2_scale,
            exponents.tanh_scale,
        ),
        MASK=band.mask,
        CAPPED=exponents.capped,
        ROWS=ROWS,
        KEYS=KEYS,
        DIM=width,
        K_STAGES=STAGES,
        V_STAGES=STAGES,
    )


def band_of(call: Call) -> Band:
    """What a query sees in columns from its own number on, and the cheapest mask for it."""
    queries, keys = call.q.shape[2], call.k.shape[2]
    whole = keys % KEYS == 0
    shift = keys - queries if call.from_end else 0
    low = -BAND_OPEN if call.left < 0 else max(shift - call.left, -BAND_OPEN)
    high = BAND_OPEN if call.right < 0 else min(shift + call.right, BAND_OPEN)
    if low <= 1 - queries and high >= keys - 1:
        return Band(low, high, "none" if whole else "end")
    # where all keys exist that the last query sees, its limit hides what follows
    exist = whole or queries + high <= keys
    return Band(low, high, "diagonal" if low <= 1 - queries and exist else "band")


def exponents_of(call: Call) -> Exponents:
    """The factors of the scores on their way to P."""
    if call.softcap == 0:
        return Exponents(call.scale * LOG2E, 0.0, False)
    return Exponents(call.softcap * LOG2E, 2 * LOG2E * call.scale / call.softcap, True)


def divisor(number: int, most: int) -> int:
    """The largest power of two up to ``most`` that divides the number."""
    found = 1
    while found * 2 <= most and number % (found * 2) == 0:
        found *= 2
    return found
