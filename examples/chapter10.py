"""Claims that texts on GPU kernels make (of an A100 or H100), beside what this GPU really does.

Needs a CUDA device. The functions of a group are timed in turn, warm, with the L2 flushed, if they
agree with its first one; how many times faster than that they are ("x") is claimed too.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.nn import functional as F

import trainscope as ts
import trainscope_kernels as tk
from trainscope_kernels.benchmarks.attention import manual_attention
from trainscope_kernels.benchmarks.gelu_baselines import manual_gelu, naive_cuda_gelu
from trainscope_kernels.benchmarks.softmax import manual_softmax
from trainscope_kernels.benchmarks.traffic import kept_bytes, traffic_of

nan = float("nan")
Claims = dict[str, tuple[float, Callable[..., Any]]]  # ms claimed, nan for none; what does it


def say(what: str, claimed: str, here: str, claimed_x: str = "", here_x: str = "") -> None:
    """Print one line of the table; what is nan is left out."""
    cells = ["" if "nan" in cell else cell for cell in (claimed, here, claimed_x, here_x)]
    print("{:46} {:>8}  {:29} {:>9} {:>6}".format(what, *cells).rstrip(), flush=True)


def timed(run: Callable[..., Any], inputs: tuple[Any, ...], claims: Claims) -> None:
    """Print the time of each function beside the claim."""
    (first, (of_first, _)), *_ = claims.items()
    functions = {name: fn for name, (_, fn) in claims.items()}
    for row in run(functions, inputs, reference=first, seconds=0.2).rows:
        claimed, here, faster = claims[row.name][0], f"refused: {row.refused}", ""
        if (t := row.time) is not None:
            here = f"{t.median_us / 1e3:.3f} ms ({t.p10_us / 1e3:.3f} to {t.p90_us / 1e3:.3f})"
            faster = f"{row.ratio.value:.1f}x"
        say(row.name, f"{claimed} ms", here, f"{of_first / claimed:.1f}x", faster)


def step_ms(model: torch.nn.Module, x: torch.Tensor, steps: int, *, read: bool) -> float:
    """Time of one of some steps in a row, each of which may print its loss."""
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(steps):
        (loss := model(x).square().mean()).backward()
        if read:
            str(loss.item())  # as print does, without its output
    torch.cuda.synchronize()
    return (time.perf_counter() - began) * 1e3 / steps


def main() -> None:
    """Print the table."""
    if not torch.cuda.is_available():
        raise SystemExit("this holds claims against a GPU, and torch sees none here")
    say(torch.cuda.get_device_name(), "claimed", "here", "x claimed", "x here")
    x, square = torch.randn(64_000_000, device="cuda"), torch.randn(4096, 4096, device="cuda")
    tanh, rows = partial(F.gelu, approximate="tanh"), partial(torch.softmax, dim=-1)
    ours = {impl: partial(tk.gelu, approximate="tanh", impl=impl) for impl in ("triton", "cuda")}
    claims: Claims = {"GELU of 64 M float32, by hand": (8.1, manual_gelu), "F.gelu": (1.1, tanh)}
    claims |= {"torch.compile": (1.47, torch.compile(tanh)), "Triton": (1.85, ours["triton"])}
    claims |= {"CUDA, naive": (1.8, naive_cuda_gelu), "CUDA, 128 bits": (1.2, ours["cuda"])}
    timed(ts.bench.compare, (x,), claims)
    no_sync = ts.bench.benchmark(manual_gelu, x, seconds=0.2).cpu_us or nan
    say("GELU by hand, timed without a sync", "0.1 ms", f"{no_sync / 1e3:.3f} ms")
    say("GELU by hand, kernels", "6", f"{traffic_of(manual_gelu, x).operations}")
    claims = {"softmax of 4096 x 4096 float32, by hand": (3.7, manual_softmax)}
    claims |= {"torch.softmax": (1.5, rows), "torch.compile": (1.3, torch.compile(rows))}
    claims["Triton"] = 1.9, partial(tk.softmax, impl="triton")
    timed(ts.bench.compare, (square,), claims)
    timed(ts.bench.compare, (square.bfloat16(),) * 2, {"bf16 matmul of 4096": (50.0, torch.mm)})
    qkv = tuple(torch.randn(1, 32, 4096, 128, device="cuda").bfloat16() for _ in range(3))
    by_hand, sdpa = partial(manual_attention, causal=False), F.scaled_dot_product_attention
    claims = {"attention by hand": (1.25, by_hand), "FlashAttention": (0.04, tk.flash_attention)}
    claims |= {"SDPA": (nan, sdpa)}
    timed(ts.bench.compare, qkv, claims)
    claims = {f"{name}, backward": (nan, fn) for name, (_, fn) in claims.items()}
    timed(ts.bench.compare_backward, qkv, claims)
    for fn, moved, kept in ((by_hand, 4200, 1074), (tk.flash_attention, 128, 0.5)):
        name = "by hand" if fn is by_hand else "by FlashAttention"
        say(f"moved {name}", f"{moved} MB", f"{traffic_of(fn, *qkv).bytes_moved / 1e6:,.0f} MB")
        say(f"kept for the backward {name}", f"{kept} MB", f"{kept_bytes(fn, *qkv) / 1e6:,.1f} MB")
    for layers, width, steps in ((8, 4096, 10), (16, 256, 50)):
        model = torch.nn.Sequential(*[torch.nn.Linear(width, width) for _ in range(layers)]).cuda()
        took = [step_ms(model, square[:width, :width], steps, read=i % 2 > 0) for i in range(12)]
        silent, reading = (sorted(took[2 + each :: 2])[2] for each in (0, 1))
        say(f"a step of {layers} layers of {width}", "180 ms", f"{silent:.3f} ms")
        x_here = f"{silent / reading:.2f}x"
        say("with print(loss.item())", "360 ms", f"{reading:.3f} ms", "0.5x", x_here)


if __name__ == "__main__":
    main()
