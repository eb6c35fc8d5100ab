"""Predicted against real: what removing syncs gains, for a folder of traces with their truth.

    python tests/bench/replay_truth.py FOLDER [--stacks] [--out FOLDER]

FOLDER holds ``NAME_sync.json.gz`` (or ``NAME_sync_stack.json.gz``) and ``truth.json``, as
``replay_record.py`` writes them: times with no profiler on, of waits, and of steps with all syncs,
with none, and with each alone taken out. What the loop marks as needed stays. Beside the replay
stands what the blocked time alone would promise. Where there is a ``NAME_free.json.gz``, a trace of
the loop really freed, its replay is told too: that checks the way from a profiled step to an
unprofiled one apart from the removal. No GPU is needed.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from outcome import write_result

from trainscope.analysis.replay.build import build_program
from trainscope.analysis.replay.calibrate import calibrate
from trainscope.analysis.replay.machine import run_once
from trainscope.analysis.replay.what_if import MeasuredWait, Removal, WhatIf, what_if
from trainscope.analysis.window_site import WindowSite
from trainscope.analysis.window_steps import find_steps
from trainscope.analysis.window_syncs import find_syncs
from trainscope.trace.torch_trace import read_torch_trace

ALL = "all"
LOOKED_AT = (
    *("accumulation", "amp_scaler", "clipped_norm", "compiled_step"),
    *("conv_three", "evaluating", "gpu_bound", "graph_replay"),
    "ddp_mean_loss",
)
"""Loops that the spread of what profiling costs was chosen by, or that waits for other ranks were
learnt from; the others had no part in it."""
MARK = re.compile(r"# (SITE|NEEDED) (\w+)")


def truths(file: Path) -> Iterator[tuple[str, float, dict[str, dict[str, float]]]]:
    """Name, step time in ms, and the spread of the ratio for each removal."""
    for name, row in json.loads(file.read_text()).items():
        if "removed" in row:
            ratios = {what: each["ratio"] for what, each in row["removed"].items()}
            yield name, row["with_ms"]["median"], ratios
        else:
            low, high = row["ratio_p10_p90"]
            yield (
                name,
                row["with_ms"],
                {ALL: {"median": row["ratio_median"], "p10": low, "p90": high}},
            )


def naive(syncs: list, steps: int, step_ms: float) -> float:
    """The speedup if the blocked time were what a step gets shorter by."""
    blocked_ms = sum(sync.blocked_ns for sync in syncs) / 1e6 / max(steps, 1)
    return step_ms / max(step_ms - blocked_ms, 0.01 * step_ms)


def beyond(predicted: float, truth: dict[str, float]) -> float:
    """How far outside the measured 10th to 90th percentile, in parts of the nearer one."""
    if predicted < truth["p10"]:
        return predicted / truth["p10"] - 1
    return max(predicted / truth["p90"] - 1, 0.0)


def marks() -> dict[str, list[tuple[str, str]]]:
    """For each loop what its lines that wait are marked with, in their order."""
    found: dict[str, list[tuple[str, str]]] = {}
    for file in ("replay_loops.py", "replay_loops_ddp.py"):
        for part in re.split(r"^def ", Path(__file__).with_name(file).read_text(), flags=re.M)[1:]:
            found[part.split("(", 1)[0]] = MARK.findall(part)
    return found


def needed(program_sites: list[WindowSite], marked: list[tuple[str, str]]) -> set[WindowSite]:
    """The sites that a loop needs, where each of its marked lines is one site."""
    if len(program_sites) != len(marked):
        return set()
    pairs = zip(program_sites, marked, strict=True)
    return {site for site, (mark, _) in pairs if mark == "NEEDED"}


def measured(
    program_sites: list[WindowSite], rows: list[dict[str, Any]], many: int
) -> dict[WindowSite, MeasuredWait]:
    """The waits timed live, where each of a loop's ``many`` marks is one site and one row."""
    if not len(program_sites) == len(rows) == many:
        return {}
    found = {}
    for site, row in zip(program_sites, rows, strict=True):
        median_ms, mean_ms = row["blocked_ms_median"], row["blocked_ms_mean"]
        if median_ms is not None:
            doubt_ns = abs(mean_ms - median_ms) * 1e6 * row["per_step"]
            found[site] = MeasuredWait(median_ms * 1e6 * row["per_step"], doubt_ns)
    return found


def of_removal(found: WhatIf, what: str, order: list[str]) -> Removal | None:
    """The prediction for all, or for the site that stands at the same place in a step."""
    if what == ALL:
        return found.removals[0] if found.removals else None
    sites = [*found.removals[0].sites] if found.removals else []
    if len(sites) != len(order):
        return None
    wanted = sites[order.index(what)]
    return next((each for each in found.removals if each.sites == (wanted,)), None)


def freed_step(file: Path, without_ms: float) -> dict[str, object]:
    """The step of a loop really freed, from its own trace and with no step time given."""
    window = read_torch_trace(file)
    steps = find_steps(window)
    program = build_program(window, steps, find_syncs(window, steps))
    step_ms = calibrate(program, None).usual.step_ns / 1e6
    return {
        "recorded_ms": program.recorded_ns / program.steps / 1e6,
        "drift": run_once(program) / program.recorded_ns - 1.0,
        "replayed_ms": float(np.median(step_ms)),
        "band_ms": np.quantile(step_ms, (0.1, 0.9)).tolist(),
        "measured_ms": without_ms,
    }


def without_ms(row: dict[str, Any]) -> float:
    """Measured step time of the loop with no sync."""
    if "removed" in row:
        return float(row["removed"][ALL]["step_ms"]["median"])
    return float(row["without_ms"])


def tell_freed(folder: Path) -> list[dict[str, object]]:
    """Prints and returns the freed loops' rows."""
    rows = []
    for name, truth in json.loads((folder / "truth.json").read_text()).items():
        file = folder / f"{name}_free.json.gz"
        if file.exists():
            rows.append({"loop": name} | freed_step(file, without_ms(truth)))
            print(
                "{loop:24} freed, own trace: recorded {recorded_ms:8.3f} ms (drift {drift:+.2%})  "
                "replay {replayed_ms:8.3f} ({band_ms[0]:.3f} to {band_ms[1]:.3f})  "
                "measured {measured_ms:8.3f}".format(**rows[-1])
            )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--stacks", action="store_true", help="use the traces with stacks")
    parser.add_argument("--name", default="replay_truth")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    ending = "_sync_stack.json.gz" if options.stacks else "_sync.json.gz"
    rows, marked = [], marks()
    truth_file = json.loads((options.folder / "truth.json").read_text())
    live = {name: row.get("waits", []) for name, row in truth_file.items()}
    for name, step_ms, ratios in truths(options.folder / "truth.json"):
        file = options.folder / f"{name}{ending}"
        if not file.exists():
            continue
        window = read_torch_trace(file)
        steps = find_steps(window)
        syncs = find_syncs(window, steps)
        began_s = perf_counter()
        sites = list(dict.fromkeys(sync.site for sync in syncs if sync.step >= 0))
        stays = needed(sites, marked.get(name, []))
        timed = measured(sites, live.get(name, []), len(marked.get(name, [])))
        found = what_if(
            window,
            steps,
            syncs,
            step_ns=step_ms * 1e6,
            necessary=stays.__contains__,
            measured_wait=timed.get,
        )
        took_s = perf_counter() - began_s
        order = [what for what in ratios if what != ALL]
        promise = naive([sync for sync in syncs if sync.step >= 0], len(steps), step_ms)
        for what, truth in ratios.items():
            row = {"loop": name, "removed": what, "step_ms": step_ms, "truth": truth}
            row["looked_at"] = name in LOOKED_AT
            removal = None if found is None else of_removal(found, what, order)
            if what == ALL:
                row |= {"blocked_time_promises": promise, "seconds": took_s}
            if found is None:
                row["prediction"] = "no sync in the steps"
            elif found.cannot_tell is not None:
                row["prediction"] = f"cannot tell: {found.cannot_tell}"
            elif removal is None:
                row["prediction"] = "not among the removals"
            else:
                row |= {
                    "prediction": removal.speedup,
                    "band": removal.band,
                    "beyond": beyond(removal.speedup, truth),
                    "drift": found.drift,
                    "replayed_ms": found.replayed_step_ns / 1e6,
                }
            rows.append(row)
            print(line(row))
    errors = [abs(row["beyond"]) for row in rows if "beyond" in row]
    silent = sum(str(row["prediction"]).startswith("cannot tell") for row in rows)
    if errors:
        print(
            f"{len(errors)} predictions: median error beyond the measured range "
            f"{statistics.median(errors):.2%}, worst {max(errors):.2%}; cannot tell: {silent}"
        )
    freed = tell_freed(options.folder)
    if options.out is not None:
        summary = {
            "median_beyond": statistics.median(errors) if errors else None,
            "worst_beyond": max(errors, default=None),
            "worst_beyond_of_others": max(
                (abs(row["beyond"]) for row in rows if "beyond" in row and not row["looked_at"]),
                default=None,
            ),
            "cannot_tell": silent,
        }
        print(
            write_result(
                options.name, {"summary": summary, "rows": rows, "freed": freed}, options.out
            )
        )


def line(row: dict) -> str:
    truth = row["truth"]
    start = (
        f"{re.sub('_', ' ', row['loop']):24} {row['removed']:12} {row['step_ms']:8.3f} ms  truth "
        f"{truth['median']:.3f} ({truth['p10']:.3f} to {truth['p90']:.3f})  "
    )
    if "beyond" not in row:
        return f"{start}{row['prediction']}"
    low, high = row["band"]
    promise = f"  wait alone {row['blocked_time_promises']:.2f}" if row["removed"] == ALL else ""
    return (
        f"{start}replay {row['prediction']:.3f} ({low:.3f} to {high:.3f})  "
        f"beyond {row['beyond']:+.2%}{promise}"
    )


if __name__ == "__main__":
    main()
