"""Times the kernels' benchmarks on this GPU and writes the results that the README shows.

python kernels/bench/figures.py [gelu softmax attention memory] [--seconds 0.2] [--out DIR]

Each benchmark goes to its own file, written anew after every case, so that what is done when time
runs out is kept: forward before backward. Needs a CUDA device, and both packages on the path.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import json
import re
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from trainscope.bench.cases import run_case
from trainscope.bench.environment import environment
from trainscope.bench.model import Comparison
from trainscope_kernels import flash_attention

SHOWN = {
    "gelu": r"gelu tanh (forward|backward) \w+ 64,000,000",
    "softmax": r"softmax \w+ \d+x(4096|8192|131072) ",
    "attention": r"attention \w+ \d+x\d+x\d+x128 ",
    "memory": "",
}
"""By benchmark, what the names of the cases among the figures look like."""
LEFT_OUT = {"attention": ("manual",)}
"""Functions without a column in the README whose time would be missing elsewhere."""
COMPILED_AHEAD = {"attention": ("flex", "triton", "gluon")}
"""Functions whose compilers run side by side first, where they would take half of the time. What
a naive benchmark claims of these is then their first call without compiling."""
MOST_AHEAD_S = 60.0
BASELINE = {"gelu": "torch", "softmax": "torch", "attention": "sdpa fa2"}
LONG = (1, 32, 16384, 128)
DEVICE = torch.device("cuda", 0)


def main() -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(SHOWN))
    parser.add_argument("--seconds", type=float, default=0.2, help="of each function")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument("--filter", default="", help="only cases whose name has this too")
    parser.add_argument("--until", type=float, default=1e9, help="begin no case after so long")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    began = time.perf_counter()
    for name in options.names:
        if name == "memory":
            write(options.out / "attention_memory.json", memory())
            continue
        done: list[Any] = []
        chosen = cases(name, options.filter)
        compile_ahead(chosen, COMPILED_AHEAD.get(name, ()))
        for case in chosen:
            if time.perf_counter() - began > options.until:
                print(f"no time left for {case.name}")
                continue
            try:
                result = run_case(case, DEVICE, seconds=options.seconds, baseline=BASELINE[name])
            except Exception as error:  # the others are still worth their time
                print(f"{case.name}: {type(error).__name__}: {str(error)[:300]}")
                continue
            done.append(result.model_dump(mode="json"))
            print(f"{time.perf_counter() - began:.0f} s: {short(result)}", flush=True)
            write(options.out / f"{name}.json", done)


def cases(name: str, part: str) -> list[Any]:
    """The cases of a benchmark that are among the figures, forward before backward."""
    benchmarks = importlib.import_module(f"trainscope_kernels.benchmarks.{name}").benchmarks
    with DEVICE:
        found = benchmarks()
    shown = [each for each in found if part in each.name and re.match(SHOWN[name], each.name)]
    return [
        dataclasses.replace(each, impls=without(each.impls, LEFT_OUT.get(name, ())))
        for each in sorted(shown, key=lambda each: each.backward)
    ]


def without(impls: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """The functions of other names."""
    return {name: fn for name, fn in impls.items() if name not in names}


def compile_ahead(chosen: Sequence[Any], names: Sequence[str]) -> None:
    """Call the functions of these names once in every case, each name in a thread of its own.

    One that hangs costs its minute and not the figures.
    """

    def call(name: str) -> None:
        for case in chosen:
            if name not in case.impls:
                continue
            with DEVICE:
                inputs = [x.requires_grad_(case.backward) for x in case.make_inputs()]
            try:
                out = case.impls[name](*inputs)
                if case.backward:
                    out.backward(torch.ones_like(out))
            except Exception as error:  # told again, by the case itself
                print(f"{case.name}, {name}: {type(error).__name__}: {str(error)[:300]}")

    threads = [threading.Thread(target=call, args=(name,), daemon=True) for name in names]
    for each in threads:
        each.start()
    ends = time.perf_counter() + MOST_AHEAD_S
    for each in threads:
        each.join(max(ends - time.perf_counter(), 0.0))


def short(result: Comparison) -> str:
    """A case in a line a function."""
    lines = [result.name]
    for row in result.rows:
        if row.time is None:
            lines.append(f"  {row.name:18} {row.refused}")
            continue
        copy = "" if row.of_copy is None else f"{row.of_copy.value:6.3f} of a copy"
        ratio = "" if row.ratio is None else f"{row.ratio.value:6.3f} ({row.ratio.low:.3f})"
        rate = None if row.roofline is None else row.roofline.tflop_s
        tflops = "" if rate is None else f"{rate:6.0f} TFLOP/s"
        flags = " ".join(flag.code for flag in row.flags)
        lines.append(
            f"  {row.name:18} {row.time.median_us:9.1f} us {copy} {ratio} {tflops} {flags}"
        )
    return "\n".join(lines)


def memory() -> dict[str, Any]:
    """Peak memory of a forward and a backward above the inputs: ours, and FlashAttention-2."""

    def fa2(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            return F.scaled_dot_product_attention(q, k, v)

    ours = partial(flash_attention, impl="triton")
    peaks = {name: peak_bytes(run) for name, run in (("sdpa fa2", fa2), ("triton", ours))}
    print("attention memory", {name: f"{value / 2**20:.0f} MiB" for name, value in peaks.items()})
    return {
        "shape": LONG,
        "dtype": "bfloat16",
        "peak_bytes": peaks,
        "environment": environment(DEVICE).model_dump(mode="json"),
    }


def peak_bytes(run: Callable[..., torch.Tensor]) -> int:
    """Peak of one forward and backward, second time round."""
    inputs = [
        torch.randn(LONG, device="cuda", dtype=torch.bfloat16).requires_grad_() for _ in range(3)
    ]
    peak = 0
    for _ in range(2):
        for each in inputs:
            each.grad = None
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        run(*inputs).sum().backward()
        torch.cuda.synchronize()
        peak = torch.cuda.max_memory_allocated() - before
    return peak


def write(path: Path, result: Any) -> None:
    """Write the result as JSON."""
    path.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
