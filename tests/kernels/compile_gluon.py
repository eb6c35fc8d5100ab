"""Compiles the Gluon attention kernels for Hopper and prints, as JSON, what came out of each.

Run by itself, without the interpreter: ``TRITON_INTERPRET=0 python compile_gluon.py``. It calls the
launchers themselves, on CPU tensors, and leaves out only the launch: so what is compiled is what a
call compiles. Needs no GPU.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import subprocess
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import torch

os.environ["TRITON_DUMP_PTXAS_LOG"] = "1"

import triton
from triton.backends.compiler import GPUTarget

from trainscope_kernels.attention import gluon_launch

TOOLS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
# dtype, head_dim, causal, length: one of whole tiles, or not. A kernel takes 1 to 3 s; the dtype
# changes no more than the type of an instruction, so each variant is compiled for one of the two.
FORWARD = [
    ("bfloat16", 128, False, 256),
    ("bfloat16", 128, False, 200),
    ("float16", 128, True, 256),
    ("float16", 64, False, 256),
    ("bfloat16", 64, False, 200),
    ("bfloat16", 64, True, 256),
]
BACKWARD = [
    ("bfloat16", 128, False, 256),
    ("bfloat16", 128, True, 256),
    ("float16", 64, False, 256),
    ("float16", 64, True, 256),
]


class Offline:
    """As much of a Triton driver as compiling for a GPU that is not there asks for."""

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0


def compiled_by(call: Callable[[], None]) -> list[tuple[str, Any, str]]:
    """(name, compiled kernel, what ptxas said) of each launch that ``call`` makes."""
    made = []

    def compile_only(
        kernel: Any, programs: int, kind: tuple, arguments: tuple, **constants: Any
    ) -> None:
        described = [gluon_launch._described(each) for each in arguments]
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            compiled = kernel.warmup(*described, grid=(programs,), **constants, num_warps=4)
        made.append((kernel.fn.__name__, compiled, said.getvalue()))

    triton.runtime.driver.set_active(Offline())  # type: ignore[arg-type]
    gluon_launch._start = compile_only
    gluon_launch._multiprocessors = lambda device: 132
    numbers = torch.zeros(8, dtype=torch.int32)
    gluon_launch.schedule_on = lambda *_: (numbers, numbers)
    torch.cuda.current_device = lambda: None
    call()
    return made


def forward(dtype: str, dim: int, causal: bool, length: int) -> list[dict[str, Any]]:
    q = torch.zeros((2, 4, length, dim), dtype=getattr(torch, dtype))
    lse = torch.zeros(q.shape[:3])
    made = compiled_by(lambda: gluon_launch.forward(q, q, q, torch.empty_like(q), lse, 0.1, causal))
    return [look(*each, dtype, dim, causal, length) for each in made]


def backward(dtype: str, dim: int, causal: bool, length: int) -> list[dict[str, Any]]:
    q = torch.zeros((2, 4, length, dim), dtype=getattr(torch, dtype))
    lse = torch.zeros(q.shape[:3])
    grads = (torch.empty_like(q), torch.empty_like(q), torch.empty_like(q))
    made = compiled_by(lambda: gluon_launch.backward(q, None, q, q, q, q, lse, grads, 0.1, causal))
    if causal:
        # the kernels around the backward are the same with and without a mask
        made = [each for each in made if each[0] == "attention_backward"]
    return [look(*each, dtype, dim, causal, length) for each in made]


def look(name: str, compiled: Any, said: str, *case: Any) -> dict[str, Any]:
    ptx = compiled.asm["ptx"]
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(compiled.asm["cubin"])
        file.flush()
        command = [str(TOOLS / "nvdisasm"), "-c", file.name]
        sass = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return {
        "kernel": name,
        "case": list(case),
        "shared": compiled.metadata.shared,
        "warnings": re.findall(r"\(C75\d\d\).*", said),
        "spilled": sum(int(each) for each in re.findall(r"(\d+) bytes spill stores", said)),
        "spills_in_loops": spills_in_loops(sass) if "HGMMA" in sass else 0,
        "asked_ptxas": "spill stores" in said,
        "wgmma": ptx.count("wgmma.mma_async"),
        "tma_loads": ptx.count(".shared::cluster.global.mbarrier"),
        "tma_stores": len(re.findall(r"cp\.async\.bulk\.tensor\.\dd\.global\.shared", ptx)),
        "setmaxnreg": ptx.count("setmaxnreg"),
        "loads_128": len(re.findall(r"LDG\.E[.\w]*\.128", sass)),
        "stores_128": len(re.findall(r"STG\.E[.\w]*\.128", sass)),
        "adds_128": len(re.findall(r"RED\w*\.E\.ADD\.F32x4", sass)),
    }


def spills_in_loops(sass: str) -> int:
    """Local loads and stores in the innermost loops around tensor-core work."""
    instructions: list[str] = []
    labels: dict[str, int] = {}
    for line in sass.splitlines():
        if label := re.match(r"\s*(\.L_x_\d+):", line):
            labels[label[1]] = len(instructions)
        elif instruction := re.match(r"\s*/\*[0-9a-f]{4,}\*/\s+(.*?);", line):
            instructions.append(instruction[1])
    loops = []
    for end, instruction in enumerate(instructions):
        target = re.search(r"BRA.*`\((\.L_x_\d+)\)", instruction)
        if target and labels.get(target[1], end + 1) <= end:
            body = range(labels[target[1]], end + 1)
            if any("HGMMA" in instructions[each] for each in body):
                loops.append(body)
    # what spins on a barrier stands apart and branches back, over everything in between
    innermost = [
        loop
        for loop in loops
        if not any(loop[0] <= each[0] and each[-1] <= loop[-1] and each != loop for each in loops)
    ]
    assert innermost
    return sum(
        bool(re.search(r"\b(LDL|STL)\b", instructions[each])) for loop in innermost for each in loop
    )


def main() -> None:
    with ProcessPoolExecutor(2) as pool:
        jobs = [pool.submit(forward, *case) for case in FORWARD]
        jobs += [pool.submit(backward, *case) for case in BACKWARD]
        print(json.dumps([row for job in jobs for row in job.result()]))


if __name__ == "__main__":
    main()
