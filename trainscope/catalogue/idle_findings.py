"""Findings about GPU idle time, data, copies and launches: code, title, advice and a snippet."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["IDLE_FINDINGS", "IdleFinding"]


@dataclass(frozen=True)
class IdleFinding:
    """What is said of one problem that a captured window shows."""

    code: str
    title: str
    advice: str
    snippet: str | None = None
    """A few lines that show what to write instead; None where there is no such thing."""


_FOUND = (
    IdleFinding(
        "TS201",
        "the GPU has nothing to do until a step's first launch",
        "mark what runs there (scope.range, record_function) to see what it is; then do it in a "
        "DataLoader worker or a thread, or after the launches of the step before",
        'with scope.range("prepare"):\n    batch = prepare(batch)',
    ),
    IdleFinding(
        "TS202",
        "the GPU has nothing to do while the CPU works between launches",
        "mark what runs there (scope.range, record_function) to see what it is; then launch first "
        "and do the CPU's work while the GPU is busy",
    ),
    IdleFinding(
        "TS203",
        "the GPU has nothing to do while the CPU is in a collective",
        "let the collective run while backward goes on (DistributedDataParallel does, in "
        "buckets), and see which rank comes last: the others wait for it",
    ),
    IdleFinding(
        "TS204",
        "a collective runs and nothing else does",
        "let it overlap with backward: larger or smaller buckets (bucket_cap_mb), "
        "gradient_as_bucket_view=True, no_sync() on all but the last turn of an accumulation",
        "model = DistributedDataParallel(model, gradient_as_bucket_view=True)",
    ),
    IdleFinding(
        "TS301",
        "the loop waits for data",
        "more workers that stay alive and read ahead; what they do for each sample may be done "
        "once, beforehand, or on the GPU",
        "loader = DataLoader(\n    dataset, num_workers=8, persistent_workers=True, "
        "prefetch_factor=4, pin_memory=True\n)",
    ),
    IdleFinding(
        "TS302",
        "the GPU has nothing to do while the CPU copies between host and GPU",
        "copy the next batch from pinned memory, without waiting, while the GPU is busy",
        "loader = DataLoader(dataset, pin_memory=True)\n"
        "for batch in loader:\n    batch = batch.to(device, non_blocking=True)",
    ),
    IdleFinding(
        "TS303",
        "copies from or to pageable memory run while the GPU does nothing else",
        "pinned memory is several times faster and needs no wait",
        "loader = DataLoader(dataset, pin_memory=True)\n"
        "for batch in loader:\n    batch = batch.to(device, non_blocking=True)",
    ),
    IdleFinding(
        "TS401",
        "the CPU launches too slowly for the GPU",
        "fewer launches: torch.compile fuses them, mode='reduce-overhead' also replays them as one "
        "CUDA graph; a larger batch gives each launch more to do",
        "model = torch.compile(model, mode='reduce-overhead')",
    ),
    IdleFinding(
        "TS402",
        "tiny kernels run one after the other",
        "fuse them",
    ),
    IdleFinding(
        "TS403",
        "float32 matrix products run without the tensor cores",
        "let them use TF32, where 10 bits of mantissa in the products are enough; or bfloat16 by "
        "autocast",
        'torch.set_float32_matmul_precision("high")',
    ),
)

IDLE_FINDINGS: dict[str, IdleFinding] = {each.code: each for each in _FOUND}
"""By code; a code is never reused."""
