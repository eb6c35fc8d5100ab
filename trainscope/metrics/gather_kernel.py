"""The kernel beneath ``Gather``, in PTX: every driver translates that for the GPU at hand.

So no compiler is needed where it runs. A thread takes one value.
"""

from __future__ import annotations

import torch

__all__ = ["CODES", "GATHER_LIMIT", "KERNEL", "PARAMETER_BYTES", "PTX"]

GATHER_LIMIT = 32
"""Values of one launch: a warp, so that the kernel is one block with no loop."""

CODES = {
    torch.int64: 0,
    torch.uint64: 0,
    torch.float64: 0,
    torch.float32: 1,
    torch.bool: 2,
    torch.uint8: 2,
    torch.int8: 3,
    torch.int16: 4,
    torch.uint16: 5,
    torch.int32: 6,
    torch.uint32: 7,
    torch.float16: 8,
    torch.bfloat16: 9,
}
"""How the kernel widens a value to its row: integers to 64 bits, half precision to float32."""

PARAMETER_BYTES = GATHER_LIMIT + 2 * 8 * GATHER_LIMIT
"""A code for each value; where each goes; where each comes from, right after that for as many
values as there are threads."""

KERNEL = b"trainscope_log"

PTX = b"""
.version 7.0
.target sm_70
.address_size 64
.visible .entry trainscope_log(.param .align 8 .b8 p[544])
{
    .reg .pred %q;
    .reg .b16 %h;
    .reg .b32 %i, %n, %to, %code, %w;
    .reg .f32 %f;
    .reg .b64 %all, %at, %to8, %from, %dst, %src, %v;
    mov.u32 %i, %tid.x;
    mov.u32 %n, %ntid.x;
    mov.b64 %all, p;
    cvt.u64.u32 %at, %i;
    add.s64 %at, %all, %at;
    ld.param.u8 %code, [%at];
    mul.wide.u32 %to8, %i, 8;
    add.s64 %at, %all, %to8;
    ld.param.u64 %dst, [%at+32];
    add.u32 %to, %i, %n;
    mul.wide.u32 %from, %to, 8;
    add.s64 %at, %all, %from;
    ld.param.u64 %src, [%at+32];
    cvta.to.global.u64 %dst, %dst;
    cvta.to.global.u64 %src, %src;
    setp.eq.u32 %q, %code, 1;
    @%q bra F32;
    setp.eq.u32 %q, %code, 0;
    @%q bra B64;
    setp.eq.u32 %q, %code, 9;
    @%q bra BF16;
    setp.eq.u32 %q, %code, 8;
    @%q bra F16;
    setp.eq.u32 %q, %code, 2;
    @%q bra U8;
    setp.eq.u32 %q, %code, 3;
    @%q bra S8;
    setp.eq.u32 %q, %code, 4;
    @%q bra S16;
    setp.eq.u32 %q, %code, 5;
    @%q bra U16;
    setp.eq.u32 %q, %code, 6;
    @%q bra S32;
    ld.global.u32 %v, [%src];
    bra STORE64;
S32:
    ld.global.s32 %v, [%src];
    bra STORE64;
U16:
    ld.global.u16 %v, [%src];
    bra STORE64;
S16:
    ld.global.s16 %v, [%src];
    bra STORE64;
S8:
    ld.global.s8 %v, [%src];
    bra STORE64;
U8:
    ld.global.u8 %v, [%src];
    bra STORE64;
B64:
    ld.global.u64 %v, [%src];
STORE64:
    st.global.u64 [%dst], %v;
    bra DONE;
F16:
    ld.global.b16 %h, [%src];
    cvt.f32.f16 %f, %h;
    mov.b32 %w, %f;
    bra STORE32;
BF16:
    ld.global.u16 %w, [%src];
    shl.b32 %w, %w, 16;
    bra STORE32;
F32:
    ld.global.u32 %w, [%src];
STORE32:
    st.global.u32 [%dst], %w;
DONE:
    ret;
}
\0"""
