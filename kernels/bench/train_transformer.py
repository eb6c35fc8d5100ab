"""Trains the example's GPT with torch's own attention and with these kernels, in turn.

    python kernels/bench/train_transformer.py [--steps 60] [--blocks 6] [--block-steps 10] [-o FILE]

Each variant first trains from the same seed on the same batches, which gives the loss curves; then
blocks of further steps of each are timed in changing order. Variants: torch's attention as it comes
("sdpa"), its FlashAttention 2 ("sdpa fa2", which also shows how far curves part by rounding alone),
and ``trainscope_kernels.swap`` ("kernels"). Weights and AdamW are float32, the products bfloat16 by
autocast. The batches are on the device before the clock starts, and nothing else is recorded.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import importlib.util
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

import trainscope_kernels

ROOT = Path(__file__).parents[2]
RESULTS = Path(__file__).parent / "results" / "train_transformer.json"
VARIANTS = ("sdpa", "sdpa fa2", "kernels")
ATTENTION = ("attention", "flash", "fmha", "sdpa")
"""Parts of names: which kernels a step's attention went to."""

Step = Callable[[Tensor], Tensor]


def main() -> None:
    """Train, print both tables and write them."""
    parser = argparse.ArgumentParser(description="The example's GPT with SDPA and with our kernels")
    defaults = {"layers": 8, "width": 1024, "heads": 16, "context": 2048, "batch": 8}
    defaults |= {"steps": 60, "blocks": 6, "block-steps": 10}
    for name, default in defaults.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("-o", "--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    example = the_example()
    torch.manual_seed(1)
    text = b"\n".join(p.read_bytes() for p in sorted((ROOT / "trainscope").rglob("*.py")))
    drawn = example.batches(text, options.steps, options.batch, options.context)
    batches = [each.to(device) for each in drawn]
    steps = {name: training(name, example, options, device) for name in VARIANTS}
    losses = {name: curve(step, batches) for name, step in steps.items()}
    speeds = in_turn(steps, batches, options.blocks, options.block_steps)
    record = {
        **environment(device),
        "model": {name: getattr(options, name) for name in list(defaults)[:5]},
        "steps": options.steps,
        "tokens_per_second": speeds,
        "ratio_to_sdpa": {name: ratio(speeds[name], speeds["sdpa"]) for name in VARIANTS},
        "attention_kernels": {name: attention_of(step, batches[0]) for name, step in steps.items()},
        "losses": losses,
        "largest_relative_difference_to_sdpa": {
            name: apart(losses[name], losses["sdpa"]) for name in VARIANTS if name != "sdpa"
        },
    }
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(record, indent=1) + "\n")
    for name in VARIANTS:
        print(
            f"{name:<11} {statistics.median(speeds[name]):9.0f} tokens/s, "
            f"{record['ratio_to_sdpa'][name]:.3f} of sdpa; loss {losses[name][0]:.4f} to "
            f"{losses[name][-1]:.4f}; {', '.join(record['attention_kernels'][name])[:90]}"
        )
    print("largest relative difference:", record["largest_relative_difference_to_sdpa"])


def the_example() -> Any:
    """examples/transformer.py, which is in no package."""
    where = ROOT / "examples" / "transformer.py"
    spec = importlib.util.spec_from_file_location("transformer_example", where)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def training(name: str, example: Any, options: argparse.Namespace, device: torch.device) -> Step:
    """One training step of a new model, the same at first for each variant; returns the loss."""
    torch.manual_seed(0)
    model = example.GPT(options.width, options.layers, options.heads, options.context).to(device)
    if name == "kernels":
        trainscope_kernels.swap(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=device.type == "cuda")

    def step(batch: Tensor) -> Tensor:
        with torch.autocast(device.type, torch.bfloat16), backend_of(name):
            logits = model(batch[:, :-1])
            loss = F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    return step


def backend_of(name: str) -> contextlib.AbstractContextManager[Any]:
    """In which torch's attention is the variant's own."""
    if name == "sdpa fa2" and torch.cuda.is_available():
        return sdpa_kernel(SDPBackend.FLASH_ATTENTION)
    return contextlib.nullcontext()


def curve(step: Step, batches: list[Tensor]) -> list[float]:
    """The loss of each step."""
    return torch.stack([step(batch) for batch in batches]).tolist()


def in_turn(
    steps: dict[str, Step], batches: list[Tensor], blocks: int, block_steps: int
) -> dict[str, list[float]]:
    """Tokens a second of each variant in each block."""
    speeds: dict[str, list[float]] = {name: [] for name in steps}
    tokens = block_steps * batches[0][:, 1:].numel()
    for block in range(blocks):
        for name in list(steps) if block % 2 == 0 else reversed(steps):
            wait()
            began = time.perf_counter()
            for at in range(block_steps):
                steps[name](batches[at % len(batches)])
            wait()
            speeds[name].append(round(tokens / (time.perf_counter() - began), 1))
    return speeds


def wait() -> None:
    """Until the GPU has done what was launched."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def ratio(ours: list[float], theirs: list[float]) -> float:
    """Median over the blocks, each beside the other's of the same turn."""
    return round(statistics.median(a / b for a, b in zip(ours, theirs, strict=True)), 4)


def apart(losses: list[float], others: list[float]) -> float:
    """The largest difference of two curves at one step, as a part of the loss there."""
    return max(abs(a - b) / abs(b) for a, b in zip(losses, others, strict=True))


def attention_of(step: Step, batch: Tensor) -> list[str]:
    """Names of the GPU kernels of a step that look like attention's."""
    with torch.profiler.profile() as profiled:
        step(batch)
        wait()
    names = {
        event.name for event in profiled.events() or () if str(event.device_type).endswith("CUDA")
    }
    return sorted(name[:80] for name in names if any(part in name.lower() for part in ATTENTION))


def environment(device: torch.device) -> dict[str, Any]:
    """What the figures depend on."""
    on_gpu = device.type == "cuda"
    return {
        "device": torch.cuda.get_device_name() if on_gpu else "CPU",
        "torch": torch.__version__,
        "cudnn": torch.backends.cudnn.version() if on_gpu else None,
        "date": datetime.date.today().isoformat(),
    }


if __name__ == "__main__":
    main()
