"""Compile the attention kernels with the real ptxas, no GPU needed; one JSON list on stdout.

Run with TRITON_INTERPRET=0 in a process of its own: where kernels are interpreted, they cannot
be compiled. Each entry: kernel, arch, dim, variant, registers, spilt bytes, shared memory,
wgmma count, local loads inside the inner loops, 16-byte copies, ptxas' warnings.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

os.environ["TRITON_INTERPRET"] = "0"

import torch
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from trainscope_kernels.attention.tile_sizes import padded, tile_for
from trainscope_kernels.attention.triton_dkdv import attention_dkdv
from trainscope_kernels.attention.triton_dq import attention_dq
from trainscope_kernels.attention.triton_forward import attention_forward

KERNELS = {"forward": attention_forward, "dkdv": attention_dkdv, "dq": attention_dq}
TOOLS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
NUMBERS = ("n_q", "n_k", "heads", "group", "instances", "tiles", "sequences", "together")
VARIANTS: dict[str, dict[str, Any]] = {
    "full": {},
    "causal": {"HAS_RIGHT": True},
    "mask": {"MASK": "add"},
    "varlen": {"VARLEN": True, "RAGGED": True, "HAS_RIGHT": True, "FROM_END": True},
}


def source(kernel: str, tile: Any, dim: int, variant: str) -> ASTSource:
    fn = KERNELS[kernel]
    constants = {
        "VARLEN": False, "MASK": "none", "SOFTCAP": False, "FOLD": variant != "mask",
        "HAS_LEFT": False, "HAS_RIGHT": False, "FROM_END": False, "RAGGED": False,
        "DIM": dim, "VALUE_DIM": dim, "BLOCK_M": tile.queries, "BLOCK_N": tile.keys,
        "BLOCK_DIM": padded(dim), "BLOCK_VALUE": padded(dim), "OFFSET": tl.int32,
        "WIDE": tl.float32, "PRECISION": "tf32", **VARIANTS[variant],
    }  # fmt: skip
    signature: dict[str, Any] = {}
    values: dict[tuple[int, ...], Any] = {}
    aligned: dict[tuple[int, ...], Any] = {}
    packed, masked = variant == "varlen", variant == "mask"
    for place, name in enumerate(fn.arg_names):
        if name in constants:
            signature[name] = "constexpr"
            values[(place,)] = constants[name]
        elif name.endswith("_strides"):
            absent = name == "mask_strides" and not masked
            signature[name] = ("constexpr",) * 4 if absent else ("i32", "i32", "i32", "constexpr")
            for i in range(4):
                if absent or i == 3:
                    values[place, i] = 0 if absent else 1
                else:
                    aligned[place, i] = [["tt.divisibility", 16]]
        elif name in NUMBERS or name in ("left", "right"):
            signature[name] = "i32"
        elif name in ("scale", "softcap"):
            signature[name] = "fp32"
        elif (name == "mask" and not masked) or (name in ("cu_q", "cu_k") and not packed):
            signature[name] = "constexpr"
            values[(place,)] = None
        else:
            floats = name in ("lse", "row_terms", "mask")
            signature[name] = "*i32" if name in ("cu_q", "cu_k") else "*fp32" if floats else "*bf16"
            aligned[(place,)] = [["tt.divisibility", 16]]
    return ASTSource(fn, signature, values, aligned)


def local_loads_in_inner_loops(cubin: bytes) -> int:
    """LDL between a backward branch and its target that has no other such loop inside."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        run = [str(TOOLS / "nvdisasm"), "-c", file.name]
        lines = subprocess.run(run, capture_output=True, text=True, check=True).stdout.splitlines()
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
    assert inner, "no loop was found in the disassembly"
    return sum(bool(re.search(r"\bLDL\b", line)) for a, b in inner for line in lines[a:b])


def compiled(kernel: str, arch: int, dim: int, variant: str) -> dict[str, Any]:
    tile = tile_for(kernel, arch // 10, dim, torch.bfloat16, variant == "mask")
    made = triton.compile(
        source(kernel, tile, dim, variant),
        target=GPUTarget("cuda", arch, 32),
        options={"num_warps": tile.warps, "num_stages": tile.stages},
    )
    ptx = made.asm["ptx"]
    with tempfile.NamedTemporaryFile("w", suffix=".ptx") as file:
        file.write(ptx)
        file.flush()
        target = f"-arch=sm_{arch}{'a' if arch == 90 else ''}"
        said = subprocess.run(
            [str(TOOLS / "ptxas"), "-v", target, file.name, "-o", "/dev/null"],
            capture_output=True, text=True, check=True,
        ).stderr  # fmt: skip
    registers, spills = re.search(r"Used (\d+) reg", said), re.search(r"(\d+) bytes spill st", said)
    assert registers, said
    assert spills, said
    return {
        "kernel": kernel,
        "arch": arch,
        "dim": dim,
        "variant": variant,
        "registers": int(registers[1]),
        "spilt": int(spills[1]),
        "shared": made.metadata.shared,
        "wgmma": ptx.count("wgmma.mma_async"),
        "mma": len(re.findall(r"\bmma\.sync", ptx)),
        "local_loads_in_inner_loops": local_loads_in_inner_loops(made.asm["cubin"]),
        "wide_copies": len(
            re.findall(r"cp\.async\.cg\.shared\.global \[[^]]*\], \[[^]]*\], 0x10", ptx)
        ),
        "warnings": re.findall(r"\((C7\d+)\)", said),
    }


if __name__ == "__main__":
    cases = [
        (kernel, arch, int(dim), variant)
        for kernel, arch, dim, variant in (each.split(":") for each in sys.argv[1:])
        for arch in [int(arch)]
    ]
    with ThreadPoolExecutor(2) as pool:
        print(json.dumps(list(pool.map(lambda case: compiled(*case), cases))))
