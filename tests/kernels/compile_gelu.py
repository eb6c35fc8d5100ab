"""Compiles GELU's Triton kernels for real GPUs and says what came out of each.

Not to be imported where Triton interprets: compile_for_gpus.py does it, in a process of its own.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from trainscope_kernels.gelu import triton_impl
from trainscope_kernels.gelu import triton_kernels as made
from trainscope_kernels.triton_start import FUSED

TOOLS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
TYPES = {"bf16": 2, "fp32": 4}
# Kernel, capability, dtype, tanh. Each costs most of a second to compile.
CASES = [
    ("forward", 90, "bf16", False),
    ("forward", 90, "bf16", True),
    ("forward", 90, "fp32", False),
    ("backward", 90, "bf16", False),
    ("backward", 80, "bf16", False),
    ("bias_forward", 90, "bf16", False),
    ("bias_backward", 90, "bf16", False),
]
ALIGNED = [["tt.divisibility", 16]]


def flat(kernel: object, pointers: list[str], kind: str, tanh: bool, block: int) -> ASTSource:
    names = [*pointers, "n"]
    signature = {each: f"*{kind}" for each in pointers} | {"n": "i32"}
    constants = {"TANH": tanh, "BLOCK": block}
    signature |= dict.fromkeys(constants, "constexpr")
    attrs = {(names.index(each),): ALIGNED for each in pointers}
    return ASTSource(kernel, signature, constants, attrs)


def tiled(
    kernel: object, pointers: dict[str, str], scalars: list[str], tanh: bool, block: int
) -> ASTSource:
    names = [*pointers, *scalars]
    constants = {"TANH": tanh, "TALL": 2, "BROAD": block // 2}
    signature = {
        **pointers,
        **dict.fromkeys(scalars, "i32"),
        **dict.fromkeys(constants, "constexpr"),
    }
    attrs = {(names.index(each),): ALIGNED for each in [*pointers, "cols"]}
    return ASTSource(kernel, signature, constants, attrs)


def source(name: str, kind: str, tanh: bool) -> tuple[ASTSource, tuple[int, int]]:
    """The kernel as the launcher would have it compiled, with its block and warps."""
    size, typed = TYPES[kind], f"*{kind}"
    if name == "forward":
        tile = triton_impl.FORWARD_BLOCK[size]
        return flat(made.forward_kernel, ["x_ptr", "y_ptr"], kind, tanh, tile[0]), tile
    if name == "backward":
        tile = triton_impl.BACKWARD_BLOCK[size]
        pointers = ["g_ptr", "x_ptr", "dx_ptr"]
        return flat(made.backward_kernel, pointers, kind, tanh, tile[0]), tile
    tile = triton_impl.BIAS_BLOCK[size]
    if name == "bias_forward":
        typed_pointers = dict.fromkeys(["x_ptr", "b_ptr", "y_ptr"], typed)
        scalars = ["rows", "cols"]
        return tiled(made.bias_forward_kernel, typed_pointers, scalars, tanh, tile[0]), tile
    typed_pointers = dict.fromkeys(["g_ptr", "x_ptr", "b_ptr", "dx_ptr"], typed)
    typed_pointers["sums_ptr"] = "*fp64" if kind == "fp64" else "*fp32"
    scalars = ["rows", "cols", "chunk"]
    return tiled(made.bias_backward_kernel, typed_pointers, scalars, tanh, tile[0]), tile


def look(source: ASTSource, capability: int, warps: int) -> dict[str, object]:
    target = GPUTarget("cuda", capability, 32)
    compiled = triton.compile(source, target=target, options={"num_warps": warps, **FUSED})
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(compiled.asm["cubin"])
        file.flush()
        sass = run("nvdisasm", "-c", file.name)
        usage = run("cuobjdump", "--dump-resource-usage", file.name)
    return {
        "registers": int(re.findall(r"REG:(\d+)", usage)[0]),
        "stack": int(re.findall(r"STACK:(\d+)", usage)[0]),
        "shared": compiled.metadata.shared,
        "loads_128": len(re.findall(r"LDG\.E[.\w]*\.128", sass)),
        "stores_128": len(re.findall(r"STG\.E[.\w]*\.128", sass)),
        "instructions": len(re.findall(r"^\s+/\*[0-9a-f]{4,}\*/", sass, re.MULTILINE)),
    }


def run(tool: str, *arguments: str) -> str:
    command = [str(TOOLS / tool), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def rows() -> list[dict[str, object]]:
    """What came out of each case."""
    found = []
    for name, capability, kind, tanh in CASES:
        compiled, (block, warps) = source(name, kind, tanh)
        each = {"kernel": name, "capability": capability, "dtype": kind, "tanh": tanh}
        each["elements_a_thread"] = block // (warps * 32)
        found.append(each | look(compiled, capability, warps))
    return found
