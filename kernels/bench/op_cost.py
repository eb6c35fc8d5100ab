"""What calling an op costs the CPU: ways to register one, and each of ours on a small input.

``python kernels/bench/op_cost.py [-o FILE]`` prints microseconds a call, the median of several
rounds in turn, and writes them as JSON. The GPU is kept from falling behind by a wait before each
group of calls, which is not timed.
"""

from __future__ import annotations

import argparse
import datetime
import json
import platform
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
import triton

import trainscope_kernels as tk
from trainscope_kernels.attention.gluon_envelope import gpu_refusal
from trainscope_kernels.registry import define, define_backward

CALLS = 50
"""In a group: back to back, so that what is timed is long enough for the clock."""
ROUNDS = 40

Inputs = tuple[torch.Tensor, ...]


def in_turn(calls: Mapping[str, Callable[[], object]]) -> dict[str, float]:
    """Median CPU time of a call of each, in µs: a group of one, a group of the next, and so on."""
    times_us: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(ROUNDS + 1):
        for name, call in calls.items():
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            began_ns = time.perf_counter_ns()
            for _ in range(CALLS):
                call()
            if number > 0:  # the first round compiles and warms up
                times_us[name].append((time.perf_counter_ns() - began_ns) / CALLS / 1e3)
    return {name: statistics.median(each) for name, each in times_us.items()}


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


@dataclass(frozen=True)
class Case:
    """What is timed: ``call`` with what ``inputs`` makes, once, of a 64x64 matrix."""

    call: Callable[..., object]
    inputs: Callable[[torch.Tensor], Inputs] = lambda x: (x,)


def heads_of(x: torch.Tensor) -> Inputs:
    """Three tensors of four heads, as a projection gives them."""
    q, k, v = (x + number for number in range(3))
    return q.view(1, 4, 16, 64), k.view(1, 4, 16, 64), v.view(1, 4, 16, 64)


def cases(device: torch.device) -> dict[str, Case]:
    """What is timed, by name."""
    impls = ("auto", "reference", "triton", "cuda") if device.type == "cuda" else ("reference",)
    found = {
        "torch.empty_like": Case(torch.empty_like),
        "F.gelu": Case(F.gelu),
        "torch.softmax": Case(partial(torch.softmax, dim=-1)),
    }
    for name, op in registered().items():
        found[name] = Case(lambda x, op=op: op(x, "reference"))
    bias = torch.randn(64, device=device, dtype=torch.bfloat16)
    for impl in impls:
        found[f"gelu {impl}"] = Case(partial(tk.gelu, impl=impl))
        found[f"bias_gelu {impl}"] = Case(partial(tk.bias_gelu, bias=bias, impl=impl))
        if impl != "cuda":
            found[f"softmax {impl}"] = Case(partial(tk.softmax, impl=impl))
    attentions = ("auto", "triton", "gluon") if device.type == "cuda" else ("reference",)
    for impl in attentions:
        if impl == "gluon" and gpu_refusal(torch.device("cuda", 0)):
            continue
        attend = partial(tk.flash_attention, impl=impl)
        found[f"flash_attention {impl}"] = Case(attend, heads_of)
        causal = partial(attend, causal="top-left")
        found[f"flash_attention {impl} causal"] = Case(causal, heads_of)
    found["SDPA"] = Case(F.scaled_dot_product_attention, heads_of)
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
    found = cases(device)
    without, with_grad = (
        in_turn({name: partial(case.call, *case.inputs(given)) for name, case in found.items()})
        for given in (x, leaf)
    )
    for name in found:
        rows[name] = {"no_grad_us": round(without[name], 2), "grad_us": round(with_grad[name], 2)}
        print(f"{name:28} {without[name]:7.2f} {with_grad[name]:7.2f}")
    result = {
        "input": "64x64 bfloat16",
        "device": torch.cuda.get_device_name() if device.type == "cuda" else platform.machine(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "python": platform.python_version(),
        "date": datetime.date.today().isoformat(),
        "calls": rows,
    }
    if output is not None:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
