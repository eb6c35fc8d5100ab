"""Claims that texts on GPU kernels make (of an A100 or H100), beside what this GPU really does.

Needs a CUDA device. Times are medians with 10th to 90th percentile, L2 flushed, warm and synced.
"""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from functools import partial

import torch
from torch.nn import functional as F

import trainscope as ts
import trainscope_kernels as tk
from trainscope_kernels.benchmarks.gelu_baselines import manual_gelu, naive_cuda_gelu


def say(what: str, claimed: str, here: str) -> None:
    """Print one line of the table."""
    print(f"{what:52} {claimed:>15}   {here}", flush=True)


def timed(what: str, claimed_ms: str, fn: Callable[..., object], *inputs: torch.Tensor) -> None:
    """Print the time of one call beside the claim."""
    took = ts.bench.benchmark(fn, *inputs, seconds=0.2).time
    assert took is not None
    low, median, high = (us / 1e3 for us in (took.p10_us, took.median_us, took.p90_us))
    say(what, claimed_ms, f"{median:.3f} ms ({low:.3f} to {high:.3f})")


def manual_softmax(x: torch.Tensor) -> torch.Tensor:
    """Softmax, each operation a kernel."""
    exp = (x - x.amax(-1, keepdim=True)).exp()
    return exp / exp.sum(-1, keepdim=True)


def plain_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Attention with the N x N scores in memory."""
    return torch.softmax(q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5, -1) @ v


def kept(fn: Callable[..., torch.Tensor], *inputs: torch.Tensor) -> str:
    """Memory that a forward leaves for its backward, its output left out."""
    wanted = [x.detach().requires_grad_() for x in inputs]
    before = torch.cuda.memory_allocated()
    out = fn(*wanted)
    kept_mb = (torch.cuda.memory_allocated() - before - out.nbytes) / 2**20
    return f"{kept_mb:,.1f} MB"


def step_ms(model: torch.nn.Module, x: torch.Tensor, *, read: bool) -> str:
    """Time of one of twenty steps in a row, each of which may print its loss."""
    took_ms = []
    for _ in range(7):
        torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(20):
            (loss := model(x).square().mean()).backward()
            if read:
                print(loss.item(), file=io.StringIO())
        torch.cuda.synchronize()
        took_ms.append((time.perf_counter() - began) * 1e3 / 20)
    return f"{sorted(took_ms)[3]:.3f} ms ({min(took_ms):.3f} to {max(took_ms):.3f})"


def main() -> None:
    """Print the table."""
    say(torch.cuda.get_device_name(), "claimed", "here")
    tanh = partial(F.gelu, approximate="tanh")
    triton, cuda = (partial(tk.gelu, approximate="tanh", impl=i) for i in ("triton", "cuda"))
    x = torch.randn(64_000_000, device="cuda")
    no_sync_us = ts.bench.benchmark(manual_gelu, x).cpu_us
    say("GELU of 64 M float32, six kernels, no sync", "100 us", f"{no_sync_us:.0f} us")
    timed("the same, synced", "8.1 ms", manual_gelu, x)
    timed("F.gelu", "1.1 ms", tanh, x)
    timed("CUDA, one element a thread", "1.80 ms", naive_cuda_gelu, x)
    timed("torch.compile", "1.47 ms", torch.compile(tanh), x)
    timed("Triton", "1.85 ms", triton, x)
    timed("CUDA, 128-bit loads", "about 1.2 ms", cuda, x)
    x = torch.randn(4096, 4096, device="cuda")
    timed("softmax of 4096 x 4096 float32, by hand", "3.7 ms", manual_softmax, x)
    timed("torch.softmax", "1.5 ms", partial(torch.softmax, dim=-1), x)
    timed("torch.compile", "1.3 ms", torch.compile(partial(torch.softmax, dim=-1)), x)
    timed("Triton", "1.9 ms", partial(tk.softmax, impl="triton"), x)
    q, k, v = (torch.randn(1, 32, 4096, 128, device="cuda").bfloat16() for _ in range(3))
    timed("attention, scores in memory", "1.25 ms", plain_attention, q, k, v)
    timed("FlashAttention in Triton", "0.04 ms", tk.flash_attention, q, k, v)
    say("kept for backward, scores in memory", "1,024 MB", kept(plain_attention, q, k, v))
    say("kept for backward, FlashAttention", "0.5 MB", kept(tk.flash_attention, q, k, v))
    model = torch.nn.Sequential(*[torch.nn.Linear(4096, 4096) for _ in range(8)]).cuda()
    say("a training step", "180 ms", step_ms(model, x, read=False))
    say("with print(loss.item()) at its end", "360 ms", step_ms(model, x, read=True))


if __name__ == "__main__":
    main()
