"""Compiles the Gluon attention kernels for Hopper, with no GPU needed, and says what came of each.

compile_attention_for_gpus.py runs it, in a process of its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import product
from typing import Any

import torch
from gluon_sass import operands_overwritten, spills_in_loops
from offline import Launched, disassembled, launches

from trainscope_kernels.attention import gluon_launch, gluon_schedule, gluon_start
from trainscope_kernels.attention.call import Call
from trainscope_kernels.attention.gluon_backward_sizes import band_of
from trainscope_kernels.attention.gluon_forward_sizes import band_of_call

# head_dim, mask, softcap. A kernel takes 1 to 3 s, and the dtype changes but the type of an
# instruction: each variant is compiled for one of the two. Of those that are offered the ones that
# differ most; all: python compile_gluon.py
MASKS = {
    # queries, keys, left, right, from_end
    "none": (256, 256, -1, -1, False),
    "end": (256, 200, -1, -1, False),
    "diagonal": (1024, 1024, -1, 0, False),
    "short diagonal": (256, 256, -1, 0, False),
    "band": (256, 200, 100, 0, True),
    "packed": (300, 300, -1, 0, True),
}
EVERY = [
    *product((64, 96, 128, 192, 256), [each for each in MASKS if each[:5] != "short"], (0.0, 30.0)),
    *product((64,), ("short diagonal",), (0.0, 30.0)),
]
FORWARD = [
    *product((64, 96, 128, 192, 256), ("none", "diagonal"), (0.0,)),
    *product((64, 96, 128, 192, 256), ("band",), (30.0,)),
    *product((64, 128, 256), ("packed",), (0.0,)),
    (64, "short diagonal", 0.0),
    (64, "end", 0.0),
    (128, "end", 0.0),
]
# head_dim, mask, softcap, key heads to 4 query heads, deterministic. Where 4 and 2 key heads are
# one kernel only one of them is here: of a kernel that a process has already, ptxas says nothing.
BACKWARD = [
    (128, "none", 0.0, 4, False),
    (128, "diagonal", 0.0, 4, False),
    (64, "none", 0.0, 4, False),
    (64, "diagonal", 0.0, 4, False),
    (64, "diagonal", 0.0, 2, False),
    (96, "end", 0.0, 4, False),
    (128, "end", 0.0, 2, False),
    (96, "band", 0.0, 2, False),
    (64, "band", 30.0, 2, False),
    (128, "none", 0.0, 4, True),
    (128, "diagonal", 0.0, 2, True),
    (64, "band", 30.0, 2, True),
    (256, "none", 0.0, 4, False),
    (256, "diagonal", 0.0, 2, False),
    (192, "band", 30.0, 4, False),
    (128, "end", 30.0, 4, False),
]
BANDS = [each for each in MASKS if each not in ("packed", "short diagonal")]
EVERY_BACKWARD = [
    *(
        each
        for each in product((64, 96, 128), BANDS, (0.0,), (4, 2), (False, True))
        if each[0] == 64 or each[1:] != ("diagonal", 0.0, 2, False)
    ),
    *product((64,), BANDS, (30.0,), (4, 2), (False, True)),
    *product((128,), BANDS, (30.0,), (4, 2), (False,)),
    *product((256,), BANDS, (0.0, 30.0), (4, 2), (False,)),
    *product((64, 128, 192, 256), ("packed",), (0.0, 30.0), (4, 2), (False,)),
]


def compiled_by(call: Callable[[], None], only: str = "") -> list[Launched]:
    """The kernels that ``call`` launches, or that of this name."""
    gluon_start._ready.clear()
    gluon_start._multiprocessors[None] = 132
    numbers = torch.zeros(8, dtype=torch.int32)
    gluon_schedule._made = lambda tiling: (numbers, numbers)
    torch.cuda.current_device = lambda: None
    with launches(90, only) as found:
        call()
    return found


def forward(case: tuple[Any, ...]) -> list[dict[str, Any]]:
    dim, mask, softcap = case
    queries, keys, left, right, from_end = MASKS[mask]
    dtype = torch.bfloat16 if dim % 128 == 0 else torch.float16
    packed = mask == "packed"
    cu = torch.tensor([0, 100, 300], dtype=torch.int32) if packed else None
    q = torch.zeros((1 if packed else 2, 4, queries, dim), dtype=dtype)
    k = torch.zeros((1 if packed else 2, 4, keys, dim), dtype=dtype)
    call = Call(q, k, k, None, cu, cu, 0.1, softcap, left, right, from_end)
    assert band_of_call(call).mask == ("band" if packed else mask.removeprefix("short "))
    lse = torch.zeros(q.shape[:3])
    # what lists the blocks of packed sequences is compiled with Triton's kernels
    made = compiled_by(
        lambda: gluon_launch.forward(call, torch.empty_like(q), lse), "attention_forward"
    )
    return [look(each, case) for each in made]


def backward(case: tuple[Any, ...]) -> list[dict[str, Any]]:
    dim, mask, softcap, key_heads, deterministic = case
    queries, keys, left, right, from_end = MASKS[mask]
    # the kernels around the backward have masks of their own where rows are not whole blocks
    queries -= 10 if mask == "end" else 0
    packed = mask == "packed"
    cu = torch.tensor([0, 100, 300], dtype=torch.int32) if packed else None
    batch, dtype = 1 if packed else 2, torch.bfloat16 if dim > 64 else torch.float16
    q = torch.zeros((batch, 4, queries, dim), dtype=dtype)
    k = torch.zeros((batch, key_heads, keys, dim), dtype=dtype)
    call = Call(q, k, k, None, cu, cu, 0.1, softcap, left, right, from_end)
    assert band_of(call).mask == ("band" if packed else mask)
    grads = (torch.empty_like(q), torch.empty_like(k), torch.empty_like(k))
    lse = torch.zeros(q.shape[:3])
    made = compiled_by(
        lambda: gluon_launch.backward(call, q, None, q, lse, grads, deterministic=deterministic)
    )
    # those around it depend on none of this, and ptxas is asked once a process
    known = mask not in ("none", "end") or key_heads != 4 or deterministic or softcap != 0
    around = ("attention_row_terms", "attention_dq", "list_blocks")
    return [look(each, case) for each in made if not (known and each.name in around)]


def look(launched: Launched, case: tuple[Any, ...]) -> dict[str, Any]:
    name, compiled, said = launched
    ptx = compiled.asm["ptx"]
    keeps_operands = "wgmma" in ptx and "ldmatrix" in ptx
    sass = disassembled(launched, always=keeps_operands)
    return {
        "kernel": name,
        "case": list(case),
        "shared": compiled.metadata.shared,
        "warnings": re.findall(r"\(C75\d\d\).*", said),
        "spilled": sum(int(each) for each in re.findall(r"(\d+) bytes spill stores", said)),
        "spills_in_loops": spills_in_loops(sass),
        "operands_overwritten": operands_overwritten(sass) if keeps_operands else [],
        "asked_ptxas": "spill stores" in said,
        "wgmma": ptx.count("wgmma.mma_async"),
        "tma_loads": ptx.count(".shared::cluster.global.mbarrier"),
        "tma_stores": len(re.findall(r"cp\.async\.bulk\.tensor\.\dd\.global\.shared", ptx)),
        "setmaxnreg": ptx.count("setmaxnreg"),
        "loads_128": len(re.findall(r"\bld\.global[.\w]*\.v4\.[bf]32", ptx)),
        "stores_128": len(re.findall(r"\bst\.global[.\w]*\.v4\.[bf]32", ptx)),
        "adds_128": ptx.count("red.global.add.v4.f32"),
    }


if __name__ == "__main__":
    for variant in EVERY:
        for row in forward(variant):
            print(row, flush=True)
    for variant in EVERY_BACKWARD:
        for row in backward(variant):
            print(row, flush=True)
