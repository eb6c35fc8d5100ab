"""Records traces of the loops of ``replay_loops`` and what taking their syncs out really gains.

    python tests/bench/replay_record.py OUT [--only NAME …] [--blocks 9] [--seconds 0.35]

For each loop: the step time with all its syncs, with none, and with each one taken out alone, no
profiler on, the variants in turn in changing order; how long each line waits, as the live detector
times it; then a trace of four steps with all syncs, with and without Python stacks, and one of the
loop with none. Writes ``NAME_sync.json.gz``, ``NAME_sync_stack.json.gz``, ``NAME_free.json.gz`` and
``truth.json``. Needs a GPU. Under torchrun the loops of ``replay_loops_ddp`` run, each process on a
GPU of its own, and rank 0 writes:

    torchrun --nproc-per-node 2 tests/bench/replay_record.py OUT
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import random
import statistics
import sys
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
import torch.distributed as dist
from replay_loops import LOOPS, Step
from replay_loops_ddp import DDP_LOOPS, join
from torch._C._profiler import _ExperimentalConfig

import trainscope

ACTIVE = 4
ALL = "all"


def block_ms(step: Step, steps: int) -> float:
    """Time per step of a block, the GPU drained before and after, on all ranks at once."""
    torch.cuda.synchronize()
    if dist.is_initialized():
        dist.barrier()
        torch.cuda.synchronize()
    began_s = perf_counter()
    for _ in range(steps):
        step()
    torch.cuda.synchronize()
    return (perf_counter() - began_s) / steps * 1e3


def spread(values: list[float]) -> dict[str, float]:
    cuts = statistics.quantiles(values, n=10, method="inclusive")
    return {"median": statistics.median(values), "p10": cuts[0], "p90": cuts[-1]}


def measure(name: str, blocks: int, seconds: float) -> dict[str, Any]:
    """Step times of every variant, and the ratio of the bare loop's to each, block by block."""
    make, sites = {**LOOPS, **DDP_LOOPS}[name]
    everything = frozenset(sites)
    variants = {"none": everything, ALL: frozenset[str]()}
    if len(sites) > 1:
        variants |= {site: everything - {site} for site in sites}
    steps: dict[str, Step] = {}
    for variant, keep in variants.items():
        torch.manual_seed(0)
        steps[variant] = make(keep)
        for _ in range(8):
            steps[variant]()
    turns = same_everywhere(max(8, int(seconds * 1e3 / block_ms(steps["none"], 8))))
    times: dict[str, list[float]] = {variant: [] for variant in variants}
    chance = random.Random(0)
    for _ in range(blocks):
        for variant in chance.sample(list(variants), len(variants)):
            times[variant].append(block_ms(steps[variant], turns))
    with_ms = times["none"]
    return {
        "with_ms": spread(with_ms),
        "steps_a_block": turns,
        "waits": waits(steps["none"], turns),
        "removed": {
            variant: {
                "step_ms": spread(found),
                "ratio": spread([a / b for a, b in zip(with_ms, found, strict=True)]),
            }
            for variant, found in times.items()
            if variant != "none"
        },
    }


def waits(step: Step, turns: int) -> list[dict[str, Any]]:
    """What the live detector times of the loop's waits, no profiler on, by line."""
    with trainscope.SyncDetector() as detector:
        for _ in range(turns):
            step()
    torch.cuda.synchronize()
    return [
        {
            "line": site.line,
            "kind": site.kind,
            "per_step": site.count / turns,
            "blocked_ms_median": None if not site.timed else (site.blocked_ns_median or 0) / 1e6,
            "blocked_ms_mean": None if not site.timed else site.blocked_ns_total / site.timed / 1e6,
        }
        for site in sorted(detector.sites(), key=lambda site: site.line)
    ]


def same_everywhere(number: int) -> int:
    """Rank 0's number on all ranks: each step of one waits for the others'."""
    if not dist.is_initialized():
        return number
    shared = torch.tensor(number, device="cuda")
    dist.broadcast(shared, 0)
    return int(shared)


def record(name: str, folder: Path, what: str) -> None:
    """A trace of ``ACTIVE`` steps: ``sync``, ``sync_stack`` with Python stacks, or ``free``."""
    make, sites = {**LOOPS, **DDP_LOOPS}[name]
    torch.manual_seed(0)
    step = make(frozenset[str]() if what == "free" else frozenset(sites))
    for _ in range(12):
        step()
    plain = folder / f"{name}-{os.getpid()}.json"
    with torch.profiler.profile(
        schedule=torch.profiler.schedule(wait=1, warmup=3, active=ACTIVE),
        with_stack=what == "sync_stack",
        record_shapes=True,
        experimental_config=_ExperimentalConfig(enable_cuda_sync_events=True),
        on_trace_ready=lambda found: found.export_chrome_trace(str(plain)),
    ) as profiler:
        for _ in range(1 + 3 + ACTIVE):
            step()
            profiler.step()
    if dist.is_initialized() and dist.get_rank():
        plain.unlink()
        return
    target = folder / f"{name}_{what}.json.gz"
    with gzip.open(target, "wb", compresslevel=6) as packed:
        packed.write(plain.read_bytes())
    plain.unlink()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    rank = join() if "LOCAL_RANK" in os.environ else None
    loops = list(LOOPS if rank is None else DDP_LOOPS)
    parser.add_argument("--only", nargs="*", default=loops, choices=loops)
    parser.add_argument("--blocks", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=0.35)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    truth_file = options.out / "truth.json"
    truth = json.loads(truth_file.read_text()) if truth_file.exists() else {}
    failed = []
    for name in options.only:
        try:
            truth[name] = found = measure(name, options.blocks, options.seconds)
            for what in ("sync", "sync_stack", "free"):
                record(name, options.out, what)
        except Exception as error:  # one loop that a torch cannot run must not cost the others
            failed.append(f"{name}: {type(error).__name__}: {error}")
            print(failed[-1], flush=True)
            continue
        if rank:
            continue
        ratios = {site: row["ratio"]["median"] for site, row in found["removed"].items()}
        words = ", ".join(f"{site} {ratio:.3f}x" for site, ratio in ratios.items())
        print(f"{name:24} {found['with_ms']['median']:8.3f} ms  without {words}", flush=True)
        truth_file.write_text(json.dumps(truth, indent=1) + "\n")
        torch.cuda.empty_cache()
    if rank is not None:
        dist.destroy_process_group()
    if failed:
        sys.exit("\n".join(failed))


if __name__ == "__main__":
    main()
