"""Whether the benchmark harness tells the truth on this GPU: ceilings, and every flag.

    python tests/bench/harness_check.py [--seconds 0.2] [--out FOLDER]

Prints a line for each check and exits with 1 if one fails; takes about a minute.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from outcome import write_result

import trainscope as ts

sys.path.append(str(Path(__file__).parent.parent / "bench_harness"))
from gpu_functions import (
    OnAnotherStream,
    manual_gelu,
    waits_by_item,
    waits_by_synchronize,
)

F = torch.nn.functional
ELEMENTS = 1 << 26


def ceilings() -> dict[str, float]:
    """Of this device now, whatever is kept from before; GB/s and TFLOP/s."""
    found = {"copy GB/s": ts.bench.ceiling("copy", "cuda", remeasure=True) / 1e9}
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        flop_s = ts.bench.ceiling("matmul", "cuda", dtype, remeasure=True)
        found[f"matmul {str(dtype).removeprefix('torch.')} TFLOP/s"] = flop_s / 1e12
    return found


def flag_checks(seconds: float) -> list[tuple[str, bool, str]]:
    """Each check as its name, whether it holds, and what was measured."""
    large = torch.randn(ELEMENTS, device="cuda")
    tiny = torch.randn(64, device="cuda")
    moved = 2 * large.nbytes
    cases: list[tuple[str, Callable[..., torch.Tensor], torch.Tensor, int | None, str | None]] = [
        ("an honest function has no flag", F.gelu, large, moved, None),
        ("x.item() is a sync", waits_by_item, large, None, "syncs"),
        ("x.item() is a sync on a tiny input", waits_by_item, tiny, None, "syncs"),
        ("torch.cuda.synchronize() is a sync", waits_by_synchronize, large, None, "syncs"),
        ("another stream is seen", OnAnotherStream(join=False), large, None, "other-stream"),
        ("a joined stream is none", OnAnotherStream(join=True), large, None, None),
        ("a tiny input is dispatch-bound", manual_gelu, tiny, None, "dispatch-bound"),
        ("too many bytes are not believed", F.gelu, large, 2 * moved, "not-believable"),
    ]
    done = []
    for name, fn, x, bytes_moved, wanted in cases:
        found = ts.bench.benchmark(fn, x, bytes_moved=bytes_moved, seconds=seconds)
        codes = [flag.code for flag in found.flags if flag.code != "throttled"]
        holds = codes == [] if wanted is None else wanted in codes
        done.append((name, holds, f"flags {codes}\n{found}"))
    return done


def comparison(seconds: float) -> tuple[ts.bench.Comparison, list[tuple[str, bool, str]]]:
    """GELU as the chapter compares it; a wrong one is among the functions."""
    x = torch.randn(ELEMENTS, device="cuda")
    impls = {
        "F.gelu": lambda x: F.gelu(x, approximate="tanh"),
        "manual": manual_gelu,
        "compiled": torch.compile(manual_gelu),
        "wrong": lambda x: x,
    }
    found = ts.bench.compare(
        impls, (x,), reference="F.gelu", bytes_moved=2 * x.nbytes, seconds=seconds, name="gelu"
    )
    manual, copy = found["manual"], found["F.gelu"].of_copy
    naive = manual.first_call_us or 0.0
    true = manual.time.median_us if manual.time is not None else 0.0
    return found, [
        ("a wrong output gets no time", found["wrong"].time is None, found["wrong"].refused or ""),
        (
            "the naive number is below the truth",
            0 < naive < true,
            f"naive {naive:.0f} us, true {true:.0f} us",
        ),
        (
            "F.gelu is no faster than a copy of its bytes",
            copy is not None and 0.8 < copy.value < 1.05,
            "" if copy is None else f"{copy.value:.3f} ({copy.low:.3f} to {copy.high:.3f})",
        ),
    ]


def main() -> int:
    """Run all checks; the exit status is 1 if one of them failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=0.2, help="of each function")
    parser.add_argument("--out", type=Path, default=None, help="folder of the result file")
    given = parser.parse_args()
    if not torch.cuda.is_available():
        parser.error("needs a CUDA device")
    began = time.monotonic()
    limits = ceilings()
    for name, value in limits.items():
        print(f"{name}: {value:.0f}")
    manual_gelu(torch.randn(ELEMENTS, device="cuda"))  # so that the naive number is no first load
    checks = flag_checks(given.seconds)
    compared, more = comparison(given.seconds)
    growth = ts.bench.scaling(_sized, seconds=given.seconds)
    checks += [*more, ("time grows as the work does", growth.linear, str(growth))]
    for name, holds, seen in checks:
        print(f"{'ok  ' if holds else 'FAIL'} {name}\n     {seen}".rstrip())
    print(compared)
    path = write_result(
        "harness_check",
        {
            "ceilings": limits,
            "checks": {name: holds for name, holds, _ in checks},
            "comparison": compared.model_dump(mode="json"),
            "scaling": growth.model_dump(mode="json"),
        },
        given.out,
    )
    print(f"{time.monotonic() - began:.0f} s; wrote {path}")
    return 0 if all(holds for _, holds, _ in checks) else 1


def _sized(size: float) -> Callable[[], torch.Tensor]:
    x = torch.randn(int(size) << 24, device="cuda")
    return lambda: F.gelu(x)


if __name__ == "__main__":
    sys.exit(main())
