"""Times the tile candidates of the three attention kernels, with torch's own attention beside.

    python kernels/bench/tune_attention.py --dims 128 64 256 --seconds 40 --json tiles.json

Each line: kernel, head dim, mask, tile (queries x keys, warps, stages), milliseconds, TFLOP/s
that the kernel executes. Then, for the whole op and for FlashAttention-2 and cuDNN through
scaled_dot_product_attention and compiled FlexAttention: nominal TFLOP/s, forward and backward
(2.5 times the forward's operations). Compiled first, in processes, for Triton holds the
interpreter's lock while it compiles.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from trainscope_kernels.attention import flash_attention
from trainscope_kernels.attention.call import Call
from trainscope_kernels.attention.run import fake_forward
from trainscope_kernels.attention.tile_sizes import Tile, tile_for
from trainscope_kernels.attention.triton_delta import row_terms
from trainscope_kernels.attention.triton_dkdv import dkdv
from trainscope_kernels.attention.triton_dq import dq
from trainscope_kernels.attention.triton_forward import forward

CANDIDATES: dict[int, dict[str, list[tuple[int, int, int, int]]]] = {
    128: {
        "forward": [(64, 64, 4, 3), (128, 64, 8, 3), (128, 128, 8, 2), (64, 32, 4, 4)],
        "dkdv": [(64, 64, 4, 2), (64, 128, 8, 3), (32, 64, 4, 3), (32, 64, 4, 2)],
        "dq": [(128, 64, 8, 3), (128, 128, 8, 2), (64, 32, 4, 3), (64, 32, 4, 4)],
    },
    64: {
        "forward": [(128, 128, 8, 3), (64, 64, 4, 3), (64, 64, 4, 4), (64, 128, 4, 3)]
        + [(128, 64, 4, 3)],
        "dkdv": [(64, 128, 8, 3), (64, 64, 4, 3), (64, 64, 4, 2), (64, 128, 8, 2)],
        "dq": [(128, 128, 8, 3), (64, 64, 4, 3), (64, 128, 4, 3), (128, 64, 8, 3)],
    },
    256: {
        "forward": [(128, 64, 8, 2), (128, 32, 8, 3), (64, 32, 4, 2), (64, 64, 4, 2)],
        "dkdv": [(32, 64, 8, 2), (64, 64, 8, 2), (64, 64, 8, 1), (32, 64, 8, 3)],
        "dq": [(128, 32, 8, 2), (64, 64, 8, 2), (64, 32, 4, 2), (128, 64, 8, 1)],
    },
}
PRODUCTS = {"forward": 2, "dkdv": 4, "dq": 3}
"""Matrix products of each kernel, 2 * batch * heads * length^2 * dim operations each."""
BATCH, HEADS, LENGTH = 4, 32, 4096
RIGHT = {"full": -1, "causal": 0}
"""Keys after its own that a query sees: -1 is all."""

Job = tuple[str, int, str, Tile]
Run = Callable[[], Any]


def inputs(batch: int, heads: int, length: int, dim: int, count: int = 4) -> list[torch.Tensor]:
    """Random tensors of (batch, heads, length, dim) on the GPU."""
    shape = (batch, heads, length, dim)
    return [torch.randn(shape, device="cuda", dtype=torch.bfloat16) for _ in range(count)]


def runs(sizes: tuple[int, int, int], dim: int, mask: str) -> dict[str, Callable[[Tile], Any]]:
    """By kernel: what runs it with a tile, on inputs of (batch, heads, length)."""
    q, k, v, grad_out = inputs(*sizes, dim)
    call = Call(q, k, v, None, None, None, dim**-0.5, 0.0, -1, RIGHT[mask], False)
    out, lse = fake_forward(q, k, v)
    forward(call, out, lse)
    terms = row_terms(out, grad_out, None, lse)
    grads = [torch.empty_like(q) for _ in range(3)]
    return {
        "forward": lambda tile: forward(call, out, lse, tile),
        "dkdv": lambda tile: dkdv(call, grad_out, terms, grads[1], grads[2], tile),
        "dq": lambda tile: dq(call, grad_out, terms, grads[0], tile),
    }


def compile_one(job: Job) -> str | None:
    """Launch the candidate on a small input, for the cache; what went wrong, if anything."""
    kernel, dim, mask, tile = job
    try:
        runs((1, 2, 256), dim, mask)[kernel](tile)
        torch.cuda.synchronize()
    except Exception as error:  # a candidate may not fit the GPU: it is left out, and said
        return f"{type(error).__name__}: {str(error)[:100]}"
    return None


def milliseconds(run: Run, least_s: float) -> float:
    """Median over at least 20 runs and ``least_s`` seconds, after warm-up."""
    for _ in range(3):
        run()
    torch.cuda.synchronize()
    times: list[float] = []
    began = time.perf_counter()
    while len(times) < 20 or time.perf_counter() - began < least_s:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        run()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return statistics.median(times)


def whole_ops(dim: int, mask: str) -> Iterator[tuple[str, Run, Run]]:
    """Name, forward and backward of the op and of what torch has."""
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    q, k, v, grad_out = inputs(BATCH, HEADS, LENGTH, dim)
    leaves = [x.requires_grad_() for x in (q, k, v)]
    causal = mask == "causal"

    def sdpa(backend: SDPBackend) -> torch.Tensor:
        with sdpa_kernel(backend):
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)

    def below_diagonal(b: Any, h: Any, row: Any, col: Any) -> Any:
        return row >= col

    block_mask = (
        create_block_mask(below_diagonal, None, None, LENGTH, LENGTH, "cuda") if causal else None
    )
    flex = torch.compile(flex_attention)
    makers: dict[str, Run] = {
        "ours": partial(flash_attention, q, k, v, causal="top-left" if causal else None),
        "sdpa-fa2": partial(sdpa, SDPBackend.FLASH_ATTENTION),
        "sdpa-cudnn": partial(sdpa, SDPBackend.CUDNN_ATTENTION),
        "flex": partial(flex, q, k, v, block_mask=block_mask),
    }
    for name, make in makers.items():
        out = make()
        yield name, make, partial(torch.autograd.grad, out, leaves, grad_out, retain_graph=True)


def operations(dim: int, mask: str) -> float:
    """Of one matrix product of all heads, in units of 1e9."""
    return 2 * BATCH * HEADS * LENGTH**2 * dim * (0.5 if mask == "causal" else 1.0) / 1e9


def timed_tiles(
    dim: int, mask: str, wrong: dict[Job, str | None], until: float
) -> Iterator[dict[str, Any]]:
    """A row for each candidate of ``wrong`` that is of this dim and mask; prints them all."""
    here = runs((BATCH, HEADS, LENGTH), dim, mask)
    for job, said in wrong.items():
        kernel, _, _, tile = job
        if job[1:3] != (dim, mask):
            continue
        name = f"{kernel:8} {dim:4} {mask:7} {tuple(tile)!s:20}"
        if said or time.perf_counter() > until:
            print(name, said or "no time left")
            continue
        ms = milliseconds(partial(here[kernel], tile), 0.05)
        mark = " *" if tile == tile_for(kernel, 9, dim, torch.bfloat16, False) else ""
        print(f"{name} {ms:8.3f} {operations(dim, mask) * PRODUCTS[kernel] / ms:6.0f}{mark}")
        yield {"kernel": kernel, "dim": dim, "mask": mask, "tile": tile, "ms": ms}


def timed_ops(dim: int, mask: str) -> Iterator[dict[str, Any]]:
    """A row for each whole op, printed as well; a backward is 2.5 times its forward."""
    for name, make, back in whole_ops(dim, mask):
        ms = [milliseconds(make, 0.1), milliseconds(back, 0.1)]
        nominal = 2 * operations(dim, mask)
        rates = nominal / ms[0], 2.5 * nominal / ms[1]
        print(f"{name:12} {dim} {mask:7} {ms[0]:7.3f} {ms[1]:7.3f} ms  "
              f"{rates[0]:4.0f} / {rates[1]:4.0f} TFLOP/s", flush=True)  # fmt: skip
        yield {"op": name, "dim": dim, "mask": mask, "ms": ms, "tflops": rates}


def main() -> None:
    """Compile the candidates, time them, then the ops."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dims", type=int, nargs="+", default=[128, 64, 256])
    parser.add_argument(
        "--seconds", type=float, default=40, help="time no more after about this long"
    )
    parser.add_argument("--workers", type=int, default=12, help="processes that compile")
    parser.add_argument("--only-ops", action="store_true", help="no candidates, the ops only")
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    jobs: list[Job] = [
        (kernel, dim, mask, Tile(*tile))
        for dim in chosen.dims
        for mask in RIGHT
        for kernel, tiles in CANDIDATES[dim].items()
        for tile in tiles
        if not chosen.only_ops
    ]
    wrong: dict[Job, str | None] = {}
    if jobs:
        with ProcessPoolExecutor(chosen.workers, get_context("spawn")) as pool:
            wrong = dict(zip(jobs, pool.map(compile_one, jobs), strict=True))
    print(f"{torch.cuda.get_device_name()}, {BATCH}x{HEADS}x{LENGTH}, bf16")
    cells = [(dim, mask) for dim in chosen.dims for mask in RIGHT]
    until = time.perf_counter() + chosen.seconds
    rows = [row for cell in cells for row in timed_tiles(*cell, wrong, until)]
    rows += [row for cell in cells for row in timed_ops(*cell)]
    if chosen.json:
        chosen.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
