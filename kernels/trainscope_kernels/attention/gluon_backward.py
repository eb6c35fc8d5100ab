"""FlashAttention backward for Hopper in Gluon: 128 keys a program, in two halves.

Every program keeps its K and V, goes over all queries that see them, and sums dK and dV in
registers; dQ of each query block is added to a float32 workspace (gluon_dq). Two warpgroups have 64
keys each (gluon_backward_consumer); one warp (gluon_backward_copies) copies.

Of grouped heads one program takes all query heads of its key head (gluon_backward_walk), so that dK
and dV are summed where they are. A program a query head would write its dK and dV for another
kernel to sum: in float32 16 bytes an element of q more, 5 % of the time at 4096 keys, and 10 % of
a causal call's.

Past the last query and key TMA reads zeros and writes nothing. Past queries have P = 0 by their row
term, past keys by an infinite addend (gluon_backward_mask).

A step is 64 queries (a block). S and dP are computed transposed, keys by queries, so that P^T and
dS^T come out of the tensor cores laid out as the register operands that dV += P^T dO and
dK += dS^T Q need. dQ = dS K needs all 128 keys, so dS goes through shared memory and each warpgroup
makes one half of dQ's columns. S starts at -lse / scale and dP at -delta (gluon_row_terms): P is
then one exp2, dS one product, and no register holds a row term. That removed all spills.

Budget of an SM: 227 KB of shared memory, 65,536 registers (240, 240 and 24 a thread)

    head_dim  K, V       Q, dO (2 stages)  dS (2)   row terms  shared
    128       32 + 32 KB  32 + 32 KB       32 KB    1 KB       161 KB
    64        16 + 16 KB  16 + 16 KB       32 KB    1 KB        97 KB

A consumer holds dK and dV (DIM / 2 registers a thread each), S and dP (32 each), and of K or V what
is said to be in registers. What limits the loop is shared-memory bandwidth: a 64x64 wgmma with both
operands in shared memory reads 16 KB for 128 cycles of work, with one in registers 8 KB.

At head_dim 128 there is room for half of V or for a causal mask. But only two of a program's blocks
cross the diagonal: they come last, in a loop of their own with the mask and no V in registers, and
the loop before it has V's half and no mask (WALK "apart", see gluon_backward_walk). On an H200 the
causal backward of 32 heads is faster so than in one loop by 9 % with 16384 queries, 7 % with 4096,
6 % with 2048 and 3 % with 1024, and as fast with 512, where two blocks of five cross; of 64/8 heads
by 6 % with 4096 and 8 % with 16384.

Who waits for whom:

    barrier     full: consumers may read           empty: the producer may overwrite
    kv_full     TMA of K (0), of V (1): once       never: K and V stay
    queries     TMA of Q, and a store of its row   both warpgroups' dK of the block is complete
                terms: two arrivals
    grads       TMA of dO                          both warpgroups' dV of the block is complete
    meet()      both warpgroups have written their half of dS, before either reads it for dQ. There
                are two dS buffers: who writes one again has met the other since, and that one had
                waited for the dQ that read it. Once more at the end: dK is put where K was, which
                the other warpgroup's last dQ reads.
"""

# pyright: reportCallIssue=false, reportGeneralTypeIssues=false, reportArgumentType=false
# pyright: reportAssignmentType=false, reportPossiblyUnboundVariable=false
# pyright: reportAttributeAccessIssue=false, reportOperatorIssue=false
# (what @gluon.jit adds to a function, and layouts as constexprs, are not in Triton's types)

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier

from trainscope_kernels.attention.gluon_backward_consumer import consume
from trainscope_kernels.attention.gluon_backward_copies import produce
from trainscope_kernels.attention.gluon_backward_mask import blocks_that_see, past_diagonal
from trainscope_kernels.attention.gluon_backward_walk import way_of
from trainscope_kernels.attention.gluon_pipeline import init_ring

__all__ = ["attention_backward"]


@gluon.jit(
    do_not_specialize=[
        "keys",
        "row_blocks",
        "key_blocks",
        "key_heads",
        "group",
        "low",
        "high",
        "section",
        "cohort",
    ]
)
def attention_backward(
    q_map, k_map, v_map, grad_map, dk_map, dv_map, terms, workspace, keys, row_blocks, key_blocks,
    key_heads, group, low, high, section, cohort, scale, log2_scale, tanh_scale,
    WITH_DQ: gl.constexpr, MASK: gl.constexpr, CAPPED: gl.constexpr, WALK: gl.constexpr,
    ROWS: gl.constexpr, KEYS: gl.constexpr, DIM: gl.constexpr, STAGES: gl.constexpr,
    K_IN_REGISTERS: gl.constexpr, V_IN_REGISTERS: gl.constexpr,
):  # fmt: skip
    """Every program: set up the rings, pick a key block, part into producer and consumers.

    *_map: tensor maps of (batch, heads, length, DIM), the length being ``keys`` or that of q.
    terms: see gluon_row_terms. workspace: see gluon_dq, zeros; any pointer without WITH_DQ. group:
    query heads of a key head. low, high, MASK: see gluon_backward_mask. section: with a band, key
    heads that run together, a divisor of batch * key_heads. cohort, WALK: see gluon_backward_walk;
    "apart" is for MASK "diagonal". K_IN_REGISTERS, V_IN_REGISTERS: how many of their columns are
    register operands, the blocks at the diagonal apart. log2_scale, tanh_scale: P is
    exp2(S * log2_scale), or with CAPPED exp2(tanh(S * tanh_scale / (2 log2(e))) * log2_scale).
    """
    dtype: gl.constexpr = q_map.dtype
    bars: gl.constexpr = mbarrier.MBarrierLayout()
    plain: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
    ds_layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([KEYS, ROWS], dtype)
    q_tiles = gl.allocate_shared_memory(dtype, [STAGES, 1, 1, ROWS, DIM], q_map.layout)
    k_tiles = gl.allocate_shared_memory(dtype, [1, 1, 1, KEYS, DIM], k_map.layout)
    v_tiles = gl.allocate_shared_memory(dtype, [1, 1, 1, KEYS, DIM], v_map.layout)
    grad_tiles = gl.allocate_shared_memory(dtype, [STAGES, 1, 1, ROWS, DIM], grad_map.layout)
    if WITH_DQ:
        ds_tiles = gl.allocate_shared_memory(dtype, [STAGES, KEYS, ROWS], ds_layout)
    else:
        ds_tiles = k_tiles
    lse_terms = gl.allocate_shared_memory(gl.float32, [STAGES, ROWS], plain)
    delta_terms = gl.allocate_shared_memory(gl.float32, [STAGES, ROWS], plain)
    kv_full = gl.allocate_shared_memory(gl.int64, [2, 1], bars)
    q_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], bars)
    q_empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], bars)
    grad_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], bars)
    grad_empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], bars)
    mbarrier.init(kv_full.index(0), count=1)
    mbarrier.init(kv_full.index(1), count=1)
    init_ring(q_full, q_empty, STAGES, 2, 2)
    init_ring(grad_full, grad_empty, STAGES, 1, 2)
    fence_async_shared()
    queries = (q_tiles, q_full, q_empty)
    grads = (grad_tiles, grad_full, grad_empty)
    program = gl.program_id(0)
    if MASK == "none" or MASK == "end":
        key_instance = program // key_blocks
        key_block = program - key_instance * key_blocks
    else:
        # within a section the first keys of all heads first: most queries see them
        in_section = program % (section * key_blocks)
        key_instance = program // (section * key_blocks) * section + in_section % section
        key_block = in_section // section
    key = key_block * KEYS
    way = way_of(key_block, cohort, WALK)
    first, stop = blocks_that_see(key, low, high, row_blocks, ROWS, KEYS, MASK)
    edge = first
    if WALK == "apart":
        edge = past_diagonal(key, high, first, stop, ROWS, KEYS)
    batch = key_instance // key_heads
    key_head = key_instance - batch * key_heads
    # The arguments are written out in the calls: a tuple bound to a name loses its constexprs.
    # fmt: off
    gl.warp_specialize([
        (consume, (dk_map, dv_map, workspace, queries, grads, lse_terms, delta_terms, k_tiles,
                   v_tiles, ds_tiles, kv_full, key_instance, key_heads, key, keys, low, high,
                   first, edge, stop, row_blocks, group, way, scale, log2_scale, tanh_scale, 0,
                   WITH_DQ, MASK, CAPPED, WALK, ROWS, KEYS, DIM, STAGES, K_IN_REGISTERS,
                   V_IN_REGISTERS)),
        (consume, (dk_map, dv_map, workspace, queries, grads, lse_terms, delta_terms, k_tiles,
                   v_tiles, ds_tiles, kv_full, key_instance, key_heads, key, keys, low, high,
                   first, edge, stop, row_blocks, group, way, scale, log2_scale, tanh_scale, 1,
                   WITH_DQ, MASK, CAPPED, WALK, ROWS, KEYS, DIM, STAGES, K_IN_REGISTERS,
                   V_IN_REGISTERS)),
        (produce, (q_map, k_map, v_map, grad_map, terms, queries, grads, lse_terms, delta_terms,
                   k_tiles.index(0), v_tiles.index(0), kv_full, batch, key_head, key_instance, key,
                   first, edge, stop, row_blocks, 0, 0, group, way, ROWS, STAGES, WALK, False)),
    ], [4, 1], [240, 24])
