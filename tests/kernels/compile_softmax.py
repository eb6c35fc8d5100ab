"""Compiles the softmax kernels for real GPUs and says what came out of each.

Not to be imported where Triton interprets: compile_for_gpus.py does it, in a process of its own.
``TRITON_INTERPRET=0 python compile_softmax.py`` prints every tile of the plans, in a minute.
"""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from trainscope_kernels.softmax.launch import launch_of
from trainscope_kernels.softmax.plan import backward_plan, forward_plan
from trainscope_kernels.softmax.triton_backward import softmax_backward_kernel
from trainscope_kernels.softmax.triton_forward import softmax_forward_kernel
from trainscope_kernels.triton_start import FUSED

CUOBJDUMP = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
ITEMSIZES = {"bf16": 2, "fp16": 2, "fp32": 4}
INTEGERS = (
    "rows", "columns", "inner", "shares", "column_stride",
    "stride0", "stride1", "stride2", "stride3", "size1", "size2", "size3",
)  # fmt: skip
KERNELS: dict[str, Any] = {
    "forward": (softmax_forward_kernel, ("x_ptr", "y_ptr"), forward_plan),
    "backward": (softmax_backward_kernel, ("dy_ptr", "y_ptr", "dx_ptr"), backward_plan),
}
LAST, LONG, ACROSS = ((4096, 760), 1), ((4096, 131072), 1), ((64, 96, 96), 1)
# each costs half a second: the tiles with most registers, on both
FEW = [
    *((what, "bf16", *case, 90) for what in KERNELS for case in (LAST, LONG, ACROSS)),
    ("forward", "bf16", (4096, 32768), 1, 90),
    ("backward", "bf16", (4096, 16384), 1, 90),
    *((what, "fp32", *LONG, 80) for what in KERNELS),
    ("backward", "bf16", *LONG, 80),
]
ALL_SHAPES = [((4096, 2**power), 1) for power in range(19)] + [
    ((64, columns, 96), 1) for columns in (4, 33, 512, 1024, 4096, 16384)
]
ALL = [
    (what, dtype, *case, capability)
    for capability in (80, 90)
    for what in KERNELS
    for dtype in ITEMSIZES
    for case in ALL_SHAPES
]


def compiled(
    what: str, dtype: str, shape: tuple[int, ...], dim: int, capability: int
) -> list[dict[str, Any]]:
    """The launches that a contiguous tensor of this shape gets, compiled as a GPU would have."""
    kernel, tensors, plan_of = KERNELS[what]
    strides = torch.empty(shape, device="meta").stride()
    launch = launch_of(shape, strides, dim, ITEMSIZES[dtype], plan_of)
    assert launch is not None
    types: dict[str, str] = dict.fromkeys(INTEGERS, "i32")
    types |= dict.fromkeys(tensors, f"*{dtype}")
    fixed: dict[str, Any] = {}
    aligned = {*tensors}
    for name, value in zip(INTEGERS, launch.integers, strict=True):
        if name in ("columns", "shares"):
            continue
        if value == 1:
            fixed[name] = 1
        elif value % 16 == 0:
            aligned.add(name)
    types["numbers_ptr"] = "*fp32"
    if not launch.numbers:
        fixed["numbers_ptr"] = None
    return [
        {"what": what, "dtype": dtype, "shape": shape, "capability": capability}
        | one_launch(kernel, types, {**fixed, **stage}, aligned, capability)
        for stage in launch.stages
    ]


def one_launch(
    kernel: Any, types: dict[str, str], fixed: dict[str, Any], aligned: set[str], capability: int
) -> dict[str, Any]:
    options = {name: fixed.pop(name) for name in ("num_warps", *FUSED)}
    names = kernel.arg_names
    types = types | dict.fromkeys(fixed, "constexpr")
    # in the same order every time: Triton's cache of what it compiled looks at it
    source = ASTSource(
        kernel,
        {name: types[name] for name in names},
        {(names.index(name),): value for name, value in fixed.items()},
        {(names.index(name),): [["tt.divisibility", 16]] for name in sorted(aligned)},
    )
    made = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)
    ptx = made.asm["ptx"]
    return {
        "stage": fixed["STAGE"],
        "tile": (fixed["ROWS"], fixed["COLUMNS"]),
        **options,
        "shared": made.metadata.shared,
        "loads": len(re.findall(r"\bld\.global\.", ptx)),
        "wide_loads": len(re.findall(r"\bld\.global\.v4\.b32", ptx)),
        "stores": len(re.findall(r"\bst\.global\.", ptx)),
        "wide_stores": len(re.findall(r"\bst\.global\.v4\.b32", ptx)),
        **used(made.asm["cubin"]),
    }


def used(cubin: bytes) -> dict[str, int]:
    """Registers and stack a thread; a kernel of ours has a stack only where registers spill."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        said = subprocess.run(
            [CUOBJDUMP, "--dump-resource-usage", file.name],
            check=True, capture_output=True, text=True,
        ).stdout  # fmt: skip
    found = re.search(r"REG:(\d+) STACK:(\d+).* LOCAL:(\d+)", said)
    assert found is not None, said
    return {"registers": int(found[1]), "spilled": int(found[2]) + int(found[3])}


def rows(cases: list[tuple[Any, ...]]) -> Iterator[dict[str, Any]]:
    """What came out of each launch of each case."""
    for case in cases:
        yield from compiled(*case)


if __name__ == "__main__":
    for row in rows(ALL):
        print(json.dumps(row), flush=True)
