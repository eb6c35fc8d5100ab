"""Compiles the Triton attention kernels for real GPUs, with none needed.

Some with the tiles that a GPU gets, to be looked at; each dtype and each option in small ones.
compile_attention_for_gpus.py runs it, in a process of its own.
"""

from __future__ import annotations

import re
from typing import Any

import torch
from offline import disassembled, launches

from trainscope_kernels.attention import run, tile_sizes

CASES = [
    "forward:90:128:full",
    "forward:90:128:causal",
    "dkdv:90:128:causal",
    "dq:90:128:causal",
    "dkdv:80:128:causal",
]
SMALL, TILE_FOR = tile_sizes.Tile(16, 16, 1, 1), tile_sizes.tile_for
KERNELS = {f"attention_{each}" for each in ("forward", "delta", "dq", "dkdv")}
BFLOAT16, FLOAT16, FLOAT32 = torch.bfloat16, torch.float16, torch.float32
OPTIONS: list[tuple[torch.dtype, dict[str, Any]]] = [
    # Compiling a call's four kernels takes one to three seconds, so each option is seen with few
    # dtypes: with float32, whose products are others, and with one of the two of half precision.
    (BFLOAT16, {"cu": torch.int32, "left": 9, "right": 0, "from_end": True}),
    (BFLOAT16, {"mask": BFLOAT16, "softcap": 3.0, "spread": 2**22 + 16}),
    (BFLOAT16, {"softcap": 3.0, "value_dim": 32}),
    (FLOAT16, {"mask": torch.bool, "softcap": 3.0, "right": 0, "length": 33, "of_lse": True}),
    (FLOAT16, {"cu": torch.int64}),
    (FLOAT32, {"mask": torch.bool, "left": 9, "length": 33, "of_lse": True}),
    (FLOAT32, {"mask": FLOAT32, "spread": 2**22 + 16}),
    (FLOAT32, {"cu": torch.int32, "softcap": 3.0}),
]


def call(
    dtype: torch.dtype,
    dim: int,
    *,
    length: int = 256,
    value_dim: int | None = None,
    spread: int | None = None,
    mask: torch.dtype | None = None,
    cu: torch.dtype | None = None,
    softcap: float = 0.0,
    left: int = -1,
    right: int = -1,
    from_end: bool = False,
    of_lse: bool = False,
) -> None:
    """Forward and backward of two query heads to a key head; ``spread`` is q's batch stride."""
    q = torch.zeros((1, 2, length, dim), dtype=dtype)
    k = torch.zeros((1, 1, length, dim), dtype=dtype)
    v = torch.zeros((1, 1, length, value_dim or dim), dtype=dtype)
    if spread is not None:
        q = q.as_strided(q.shape, (spread, *q.stride()[1:]))
    full = None if mask is None else torch.zeros((1, 1, 1, 1), dtype=mask)
    full = None if full is None else full.expand(1, 2, length, length)
    rows = None if cu is None else torch.tensor([0, length // 2, length], dtype=cu)
    these = (q, k, v, full, rows, rows, 0.1, softcap, left, right, from_end)
    out, lse = run.forward(*these, "triton")
    run.backward(*these, out, lse if of_lse else None, out, lse, "triton", True, True)


def failure(dtype: torch.dtype, options: dict[str, Any]) -> str | None:
    """What goes wrong where a call with these options is compiled, if anything."""
    tile_sizes._capability_major = lambda index: 8
    tile_sizes.tile_for = lambda *_: SMALL
    try:
        with launches(80) as found:
            call(dtype, 16, **options)
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[-400:]}"
    missing = KERNELS - {each.name for each in found}
    return f"not launched: {missing}" if missing else None


def local_loads_in_inner_loops(sass: str) -> int:
    """LDL between a backward branch and its target that has no other such loop inside."""
    lines = sass.splitlines()
    labels = {
        found[1]: at
        for at, line in enumerate(lines)
        if (found := re.match(r"\.?(\.L_x_\d+):", line))
    }
    loops = []
    for at, line in enumerate(lines):
        found = re.search(r"BRA.*`\((\.L_x_\d+)\)", line)
        if found and labels.get(found[1], len(lines)) < at - 1:
            loops.append((labels[found[1]], at))
    inner = [
        (a, b)
        for a, b in loops
        if not any(a <= c and d <= b and (a, b) != (c, d) for c, d in loops)
    ]
    assert inner or not sass, "no loop was found in the disassembly"
    return sum(bool(re.search(r"\bLDL\b", line)) for a, b in inner for line in lines[a:b])


def compiled(case: str) -> dict[str, Any]:
    """What came out of one of CASES, with the tile that a GPU of this kind gets."""
    kernel, arch, dim, mask = case.split(":")
    tile_sizes.tile_for = TILE_FOR
    tile_sizes._capability_major = lambda index: int(arch) // 10
    with launches(int(arch), f"attention_{kernel}") as found:
        call(torch.bfloat16, int(dim), right=0 if mask == "causal" else -1)
    (launched,) = found
    _, made, said = launched
    ptx = made.asm["ptx"]
    spills = re.search(r"(\d+) bytes spill stores", said)
    assert spills, said
    return {
        "case": case,
        "arch": int(arch),
        "spilt": int(spills[1]),
        "shared": made.metadata.shared,
        "wgmma": ptx.count("wgmma.mma_async"),
        "mma": len(re.findall(r"\bmma\.sync", ptx)),
        "local_loads_in_inner_loops": local_loads_in_inner_loops(disassembled(launched)),
        "wide_copies": len(
            re.findall(r"cp\.async\.cg\.shared\.global \[[^]]*\], \[[^]]*\], 0x10", ptx)
        ),
        "warnings": re.findall(r"\((C7\d+)\)", said),
    }
