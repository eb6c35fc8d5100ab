"""What calling an op costs the CPU: ways to register one, and each of ours on a small input.

``python kernels/bench/op_cost.py [-o FILE]`` prints microseconds a call, the median of several
rounds, and writes them as JSON. The GPU is kept from falling behind by a wait after each round,
which is not timed.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

import trainscope_kernels as tk
from trainscope_kernels.registry import define, define_backward

CALLS = 200
ROUNDS = 25
SECONDS = 0.3  # a measurement ends after these, where calls are slow


def microseconds(run: Callable[[], object]) -> float:
    """Median CPU time of a call."""
    for _ in range(CALLS):
        run()
    rounds = []
    ends = time.perf_counter() + SECONDS
    while len(rounds) < ROUNDS and (len(rounds) < 3 or time.perf_counter() < ends):
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        began = time.perf_counter_ns()
        for _ in range(CALLS):
            run()
        rounds.append((time.perf_counter_ns() - began) / CALLS / 1e3)
    return statistics.median(rounds)


def registered() -> dict[str, Callable[..., torch.Tensor]]:
    """The same op, which only allocates, registered in two ways."""

    def run(x: torch.Tensor, impl: str) -> torch.Tensor:
        return torch.empty_like(x)

    def run_backward(grad: torch.Tensor, x: torch.Tensor, impl: str) -> torch.Tensor:
        return torch.empty_like(x)

    def save(ctx: Any, arguments: tuple[Any, ...], outputs: Any) -> None:
        ctx.save_for_backward(arguments[0])
        ctx.impl = arguments[1]

    def differentiate(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        return backward(grad, *ctx.saved_tensors, ctx.impl), None

    backward = define_backward(
        "cost_probe_backward(Tensor grad, Tensor x, str impl) -> Tensor",
        run=run_backward,
        fake=run_backward,
        of="cost_probe",
    )
    defined = define(
        "cost_probe(Tensor x, str impl) -> Tensor",
        run=run,
        fake=run,
        save=save,
        backward=differentiate,
    )
    custom = torch.library.custom_op("trainscope_kernels::cost_probe_custom", run, mutates_args=())
    custom.register_fake(run)
    custom.register_autograd(
        differentiate, setup_context=lambda ctx, inputs, output: save(ctx, inputs, output)
    )
    return {"registry.define": defined, "torch.library.custom_op": custom}


def calls(device: torch.device) -> dict[str, Callable[[torch.Tensor], torch.Tensor]]:
    """What is timed, by name."""
    impls = ("auto", "reference", "triton", "cuda") if device.type == "cuda" else ("reference",)
    found: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
        "torch.empty_like": torch.empty_like,
        "F.gelu": F.gelu,
        "torch.softmax": lambda x: torch.softmax(x, -1),
    }
    for name, op in registered().items():
        found[name] = lambda x, op=op: op(x, "reference")
    for impl in impls:
        found[f"gelu {impl}"] = lambda x, impl=impl: tk.gelu(x, impl=impl)
        if impl != "cuda":
            found[f"softmax {impl}"] = lambda x, impl=impl: tk.softmax(x, impl=impl)
    bias = torch.randn(64, device=device, dtype=torch.bfloat16)
    for impl in impls:
        found[f"bias_gelu {impl}"] = lambda x, impl=impl: tk.bias_gelu(x, bias, impl=impl)
    for impl in ("auto",) if device.type == "cuda" else ("reference",):
        found[f"flash_attention {impl}"] = lambda x, impl=impl: tk.flash_attention(
            *[x.view(1, 4, 16, 64)] * 3, impl=impl
        )
    found["SDPA"] = lambda x: F.scaled_dot_product_attention(*[x.view(1, 4, 16, 64)] * 3)
    return found


def main() -> None:
    """Time everything, print it, and write it where asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path)
    output = parser.parse_args().output
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    x = torch.randn(64, 64, device=device, dtype=torch.bfloat16)
    leaf = x.clone().requires_grad_()
    rows: dict[str, dict[str, float]] = {}
    for name, call in calls(device).items():
        without = microseconds(lambda call=call: call(x))
        with_grad = microseconds(lambda call=call: call(leaf))
        rows[name] = {"no_grad_us": round(without, 2), "grad_us": round(with_grad, 2)}
        print(f"{name:28} {without:7.2f} {with_grad:7.2f}")
    result = {
        "input": "64x64 bfloat16",
        "device": torch.cuda.get_device_name() if device.type == "cuda" else platform.machine(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "calls": rows,
    }
    if output is not None:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
