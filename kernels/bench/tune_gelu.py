"""Times the tile sizes of the GELU kernels against a copy of the same bytes, on this GPU.

``python kernels/bench/tune_gelu.py [--seconds 40]``. A share of 1.00 is the speed of
``y.copy_(x)``. The best of each kind goes into triton_impl.py and cuda_impl.py by hand.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import torch

from trainscope_kernels.gelu import cuda_impl, triton_impl

ELEMENTS = 64_000_000
ROWS, FEATURES = 16384, 4096
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
FORM = "tanh"
RUNS = 20
FLUSH_BYTES = 256 << 20


@dataclass(frozen=True)
class Choice:
    """One setting to time: ``apply`` makes it the one that the next launch uses."""

    kind: str
    dtype: str
    text: str
    apply: Callable[[], None]


def triton_choices(dtype: str) -> Iterator[Choice]:
    """Tiles of the flat Triton kernels."""
    size = DTYPES[dtype].itemsize
    tables = {
        "triton forward": triton_impl.FORWARD_BLOCK,
        "triton backward": triton_impl.BACKWARD_BLOCK,
    }
    for (kind, table), vectors, warps in itertools.product(tables.items(), (1, 2, 4), (2, 4, 8)):
        block = 32 * warps * vectors * (16 // size)

        def apply(table: dict = table, block: int = block, warps: int = warps) -> None:
            table[size] = (block, warps)
            triton_impl._ready.clear()

        yield Choice(kind, dtype, f"{vectors} vectors, {warps} warps, block {block}", apply)


def bias_choices(dtype: str) -> Iterator[Choice]:
    """Tiles of the Triton kernels over rows."""
    size = DTYPES[dtype].itemsize
    for kind, vectors, warps in itertools.product(
        ("triton bias_forward", "triton bias_backward"), (1, 2, 4), (4, 8)
    ):
        block = 32 * warps * vectors * (16 // size)

        def apply(block: int = block, warps: int = warps) -> None:
            triton_impl.BIAS_BLOCK[size] = (block, warps)

        yield Choice(kind, dtype, f"{vectors} vectors, {warps} warps, block {block}", apply)


def cuda_choices(dtype: str) -> Iterator[Choice]:
    """Blocks and cache hints of the flat CUDA kernels."""
    for threads, vectors, stream in itertools.product((128, 256, 512), (1, 2, 4), (0, 1)):

        def apply(threads: int = threads, vectors: int = vectors, stream: int = stream) -> None:
            cuda_impl.THREADS, cuda_impl.VECTORS, cuda_impl.STREAM = threads, vectors, stream
            cuda_impl._flat.cache_clear()
            cuda_impl._module.cache_clear()

        for kind in ("cuda forward", "cuda backward"):
            text = f"{vectors} vectors, {threads} threads, {'streaming' if stream else 'plain'}"
            yield Choice(kind, dtype, text, apply)


def warm_nvrtc_cache() -> None:
    """Compile on all cores; the choices then find their cubins on disk."""
    capability = torch.cuda.get_device_capability()
    headers = cuda_impl.HEADERS

    def compile_one(setting: tuple[int, int, int, int]) -> None:
        scalar, threads, vectors, stream = setting
        macros = {"SCALAR": scalar, "TANH": int(FORM == "tanh")}
        macros |= {"THREADS": threads, "STREAM": stream, "VECTORS": vectors}
        cuda_impl.compiled(cuda_impl.HERE / "gelu.cu", capability, macros, headers)

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(compile_one, itertools.product((0, 1), (128, 256, 512), (1, 2, 4), (0, 1))))


class Timer:
    """Medians of GPU times, with the L2 cache overwritten before each run."""

    def __init__(self) -> None:
        self._flush = torch.empty(FLUSH_BYTES, dtype=torch.int8, device="cuda")

    def ms(self, run: Callable[[], object]) -> float:
        """Milliseconds of one run."""
        for _ in range(3):
            run()
        pairs = []
        for _ in range(RUNS):
            self._flush.zero_()
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            run()
            end.record()
            pairs.append((start, end))
        torch.cuda.synchronize()
        return statistics.median(start.elapsed_time(end) for start, end in pairs)


def runs_of(dtype: str) -> dict[str, tuple[Callable[[], object], int]]:
    """What is run for each kind, and how many times an element crosses the bus."""
    kind = DTYPES[dtype]
    x = torch.randn(ELEMENTS, device="cuda", dtype=kind)
    g, y = torch.randn_like(x), torch.empty_like(x)
    tall = torch.randn(ROWS, FEATURES, device="cuda", dtype=kind)
    tall_g, tall_y = torch.randn_like(tall), torch.empty_like(tall)
    bias = torch.randn(FEATURES, device="cuda", dtype=kind)
    runs: dict[str, tuple[Callable[[], object], int]] = {}
    for name, of in (("triton", triton_impl), ("cuda", cuda_impl)):
        runs[f"{name} forward"] = partial(of.forward, x, y, FORM), 2 * x.nbytes
        runs[f"{name} backward"] = partial(of.backward, g, x, y, FORM), 3 * x.nbytes
        biased = partial(of.bias_forward, tall, bias, tall_y, FORM)
        runs[f"{name} bias_forward"] = biased, 2 * tall.nbytes
        biased = partial(of.bias_backward, tall_g, tall, bias, tall_y, FORM)
        runs[f"{name} bias_backward"] = biased, 3 * tall.nbytes
    return runs


def main() -> None:
    """Print a table for each dtype, the best first."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=40.0)
    seconds = parser.parse_args().seconds
    began = time.perf_counter()
    warm_nvrtc_cache()
    print(f"{torch.cuda.get_device_name()}, NVRTC done after {time.perf_counter() - began:.1f} s")
    timer = Timer()
    for dtype in DTYPES:
        x = torch.randn(ELEMENTS, device="cuda", dtype=DTYPES[dtype])
        y = torch.empty_like(x)
        copy_ms = timer.ms(lambda x=x, y=y: y.copy_(x))
        bytes_per_ms = 2 * x.nbytes / copy_ms
        print(f"{dtype}: a copy moves {bytes_per_ms / 1e9:.3f} TB/s")
        runs = runs_of(dtype)
        for kind in ("cuda bias_forward", "cuda bias_backward"):
            run, moved = runs[kind]
            print(f"  {kind:21} {moved / timer.ms(run) / bytes_per_ms:.3f}")
        choices = [*cuda_choices(dtype), *triton_choices(dtype), *bias_choices(dtype)]
        rows = []
        for choice in choices:
            if time.perf_counter() - began > seconds:
                print(f"  stopped after {seconds} s: {len(choices) - len(rows)} choices not timed")
                break
            choice.apply()
            run, moved = runs[choice.kind]
            rows.append((choice.kind, moved / timer.ms(run) / bytes_per_ms, choice.text))
        for kind, share, text in sorted(rows, key=lambda row: (row[0], -row[1])):
            print(f"  {kind:21} {share:.3f}  {text}")


if __name__ == "__main__":
    main()
