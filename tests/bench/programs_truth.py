"""``trainscope run`` of whole programs beside what taking their waits out really gains.

    python tests/bench/programs_truth.py [--only NAME …] [--blocks N] [--seconds S] [--out FOLDER]

The programs are in ``programs/``, written as people write them. Each is first run by the command
line as it stands, and its report read; then, in this process and with nothing watching, its loop
runs in short blocks with its waits and without them, in turn. Without them it does the same work
but for the reads: what is done with a value is done with a number in its place, and what needs a
size has one that is known. Needs a GPU, alone. The reports stay in FOLDER, if one is given.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import json
import random
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from bootstrap import bounds_of_median
from outcome import write_result

PROGRAMS = Path(__file__).parent / "programs"
NAMES = sorted(file.stem for file in PROGRAMS.glob("*.py"))
STEPS = 200
"""Of a run by the command line; its window is captured after the first twenty."""


def report_of(name: str, folder: Path) -> dict[str, Any]:
    """The report of ``trainscope run`` on the unedited program."""
    trainscope = [sys.executable, "-m", "trainscope"]
    run_dir = folder / name
    script = str(PROGRAMS / f"{name}.py")
    ended = subprocess.run(
        [*trainscope, "run", "--run-dir", str(run_dir), script, str(STEPS)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    (folder / f"{name}.txt").write_text(ended.stderr)
    if ended.returncode:
        raise RuntimeError(f"{name} ended with {ended.returncode}: {ended.stderr[-500:]}")
    told = subprocess.run(
        [*trainscope, "report", "--format", "json", str(run_dir)],
        check=True,
        capture_output=True,
        text=True,
    )
    (folder / f"{name}.json").write_text(told.stdout)
    return json.loads(told.stdout)


def block_ms(program: Any, parts: Any, steps: int, waits: bool) -> float:
    """Time per step of a block, the GPU drained before and after."""
    with contextlib.redirect_stdout(io.StringIO()):
        torch.cuda.synchronize()
        began_s = perf_counter()
        program.train(parts, steps, waits)
        torch.cuda.synchronize()
    return (perf_counter() - began_s) / steps * 1e3


def spread(values: list[float]) -> dict[str, float]:
    """Median, 10th and 90th percentile."""
    cuts = statistics.quantiles(values, n=10, method="inclusive")
    return {"median": statistics.median(values), "p10": cuts[0], "p90": cuts[-1]}


def truth_of(name: str, blocks: int, seconds: float) -> dict[str, Any]:
    """The step with the waits, and how much faster it is without them."""
    program = importlib.import_module(name)
    torch.manual_seed(0)
    parts = program.Parts()
    for waits in (True, False):
        block_ms(program, parts, 20, waits)
    steps = max(10, int(seconds * 1e3 / block_ms(program, parts, 10, True)))
    chance = random.Random(0)
    times: dict[bool, list[float]] = {True: [], False: []}
    for _ in range(blocks):
        for waits in chance.sample([True, False], 2):
            times[waits].append(block_ms(program, parts, steps, waits))
    ratios = [a / b for a, b in zip(times[True], times[False], strict=True)]
    return {
        "step_ms": spread(times[True]),
        "ratio": spread(ratios),
        "ratio_between": bounds_of_median(ratios, 0.025, 0.975),
        "steps_a_block": steps,
        "blocks": blocks,
    }


def told_of(report: dict[str, Any]) -> dict[str, Any]:
    """What a report says of removing everything that it would remove."""
    found = report["what_if"] or {"removals": [], "kept": [], "cannot_tell": "no window"}
    everything = next((each for each in found["removals"] if each["sites"] == "all"), None)
    return {
        "verdict": report["verdict"],
        "step_ms": report["steps"]["wall_ms"]["median"],
        "speedup": everything and everything["speedup"],
        "band": everything and everything["band"],
        "cannot_tell": found["cannot_tell"],
        "kept": found["kept"],
        "sites": [f"{each['place']} {each['kind']}" for each in report["syncs"]],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=NAMES, choices=NAMES)
    parser.add_argument("--blocks", type=int, default=40)
    parser.add_argument("--seconds", type=float, default=0.15)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    sys.path.insert(0, str(PROGRAMS))
    rows: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as made:
        folder = options.out or Path(made)
        folder.mkdir(parents=True, exist_ok=True)
        for name in options.only:
            told = told_of(report_of(name, folder))
            truth = truth_of(name, options.blocks, options.seconds)
            rows[name] = {**truth, "told": told}
            low, high = truth["ratio_between"]
            told_x, (least, most) = told["speedup"], told["band"] or (None, None)
            said = told["cannot_tell"] or f"{told_x:.3f}x ({least:.3f} to {most:.3f})"
            print(
                f"{name:16} {truth['step_ms']['median']:7.2f} ms  really "
                f"{truth['ratio']['median']:.3f}x ({low:.3f} to {high:.3f})  told {said}",
                flush=True,
            )
            write_result("programs_truth", {"programs": rows}, options.out)
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
