"""Write the figures of the README from the result files.

python tests/bench/readme_figures.py           # rewrites README.md between the two marks
"""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

from readme_kernels import kernel_figures

ROOT = Path(__file__).parents[2]
RESULTS = Path(__file__).parent / "results"


def read(name: str) -> dict[str, Any]:
    """A result file."""
    return json.loads((RESULTS / f"{name}.json").read_text())


def measured_on(result: dict[str, Any]) -> str:
    """The device, versions and date of a result, in words."""
    where = result["environment"]
    return f"{where['device']}, torch {where['torch']}, Python {where['python']}, {where['date']}"


def overhead() -> str:
    """A whole-loop table."""
    result = read("overhead")
    lines = [
        f"A launch-bound loop (16 layers of width 256), each variant in pairs with the bare loop, "
        f"{result['steps']} steps each, {result['how']} ({measured_on(result)}; "
        "`tests/bench/overhead.py`):",
        "",
        "| switched on | ms a step, bare | with it | median of the paired ratios | 95 % bound |",
        "|---|---|---|---|---|",
    ]
    for variant, row in result["variants"].items():
        if "not_measured" in row:
            continue
        label = "nothing (the floor of the method)" if variant == "bare" else variant
        lines.append(
            f"| {label} | {row['bare_us'] / 1e3:.2f} | {row['with_us'] / 1e3:.2f} "
            f"| {row['ratio']:.3f} | {row['ratio_upper_95']:.3f} |"
        )
    return "\n".join(lines)


def hot_path() -> str:
    """CPU time of the pieces."""
    result = read("hot_path")
    lines = [
        f"CPU time of the pieces, back to back ({measured_on(result)}; `tests/bench/hot_path.py`):",
        "",
        "| what | µs, median | p10 to p90 |",
        "|---|---|---|",
    ]
    for name, row in result["rows"].items():
        lines.append(
            f"| {name} | {row['median_us']:.2f} | {row['p10_us']:.2f} to {row['p90_us']:.2f} |"
        )
    return "\n".join(lines)


def in_the_loop() -> str:
    """The same pieces between the calls of a training step; nothing where that is not measured."""
    if not (RESULTS / "in_the_loop.json").exists():
        return ""
    result = read("in_the_loop")
    step = result["steps_in_turn"]
    low, high = step["extra_us_lower_95"], step["extra_us_upper_95"]
    lines = [
        f"In a loop the pieces come once a step and are fetched from far away each time "
        f"({measured_on(result)}; `tests/bench/in_the_loop.py`). Bare steps of "
        f"{step['bare_us'] / 1e3:.2f} ms and steps with everything on in turn, each beside the two "
        f"around it: {step['extra_us']:.0f} µs more ({low:.0f} to {high:.0f}), "
        f"{step['extra_us'] / step['bare_us']:.1%}.",
        "",
        "| what | µs, median |",
        "|---|---|",
        *(f"| {name} | {found_us:.1f} |" for name, found_us in result["rows"].items()),
    ]
    return "\n".join(lines)


def log_cost() -> str:
    """One log call at a time, beside what one would write instead."""
    result = read("log_cost")
    idle, busy = result["gpu_idle_before_each"], result["gpu_busy_1ms_before_each"]
    lines = [
        f"The same call alone, cold, once with an idle GPU and once with a millisecond of work "
        f"queued ({measured_on(result)}; `tests/bench/log_cost.py`):",
        "",
        "| call | µs, GPU idle | µs, GPU busy |",
        "|---|---|---|",
    ]
    lines += [
        f"| {name} | {idle[name]['median_us']:.0f} | {busy[name]['median_us']:.0f} |"
        for name in idle
    ]
    return "\n".join(lines)


def sync_cases() -> str:
    """How many judged lines the detector gets right."""
    result = read("sync_cases")
    judged = [row for row in result["lines"] if row["passed"] is not None]
    right = sum(row["passed"] for row in judged)
    return (
        f"Detector against programs whose waits were measured: {right} of {len(judged)} judged "
        f"lines right, file, line, kind and count ({measured_on(result)}; "
        f"`tests/bench/sync_cases.py`)."
    )


def nsys_kernels() -> str:
    """What an nsys recording of the mlp example holds."""
    found = read("nsys_kernels")
    phases = ", ".join(f"{count} in {name}" for name, count in found["kernels_in_phases"].items())
    return (
        f"An nsys recording of a window of `examples/mlp.py` ({found['recorded_on']}; "
        f"`tests/bench/nsys_kernels.py`): {found['kernels_in_steps']} of {found['kernels']} "
        f"kernels were launched inside its {found['step_ranges']} step ranges ({phases})."
    )


REPLAYED = ("replay_truth", "replay_truth_ddp")
"""The sets of loops that were really freed: of one GPU, and of two."""


def replay_truth() -> str:
    """What the replay foretold beside what taking the syncs out really gained."""
    rows = [row for name in REPLAYED for row in read(name)["rows"]]
    with_stacks = [row for name in REPLAYED for row in read(f"{name}_stacks")["rows"]]
    alone = [row for row in rows if row["removed"] != "all" and "beyond" in row]
    inside = sum(not row["beyond"] for row in alone)
    others = [row for row in rows if not row["looked_at"]]
    lines = [
        "What the replay foretells beside what really taking the syncs out gained (recorded and "
        "measured on one NVIDIA H200, DDP on two, blocks of each variant in turn; "
        "`tests/bench/replay_record.py`, `replay_truth.py`). Median error beyond the measured 10th "
        f"to 90th percentile {statistics.median(off(rows)):.1%}, worst {max(off(rows)):.1%}, "
        f"cannot tell {silent(rows)}; of the loops without a star, which had no part in choosing "
        f"any constant, worst {max(off(others)):.1%}. Of {len(alone)} syncs taken out alone, "
        f"{inside} gained what was foretold. From traces with stacks, which slow the CPU more, "
        f"worst {max(off(with_stacks)):.1%}, cannot tell {silent(with_stacks)}. In an earlier set, "
        "smaller loops of the same kinds whose traces are not kept, accumulation was 9.7% off and "
        "two could not be told; since then the live detector's waits tell a CPU that is too slow "
        "from one that waits. The last column is what blocked time alone would promise.",
        "",
        "| loop, all syncs out | ms a step | measured | replay | blocked time |",
        "|---|---|---|---|---|",
    ]
    return "\n".join([*lines, *(replayed_row(row) for row in rows if row["removed"] == "all")])


def off(rows: list[dict[str, Any]]) -> list[float]:
    """How far each prediction lies outside the measured range."""
    return [abs(row["beyond"]) for row in rows if "beyond" in row]


def silent(rows: list[dict[str, Any]]) -> int:
    """In how many loops nothing could be told."""
    return sum(
        row["removed"] == "all" and str(row["prediction"]).startswith("cannot tell") for row in rows
    )


def replayed_row(row: dict[str, Any]) -> str:
    """A loop's row of the table."""
    truth = row["truth"]
    said = "cannot tell"
    if not isinstance(row["prediction"], str):
        low, high = row["band"]
        said = f"{row['prediction']:.2f}x ({low:.2f} to {high:.2f})"
    return (
        f"| {row['loop'].replace('_', ' ')}{' *' * row['looked_at']} | {row['step_ms']:.2f} "
        f"| {truth['median']:.2f}x ({truth['p10']:.2f} to {truth['p90']:.2f}) | {said} "
        f"| {row['blocked_time_promises']:.2f}x |"
    )


def after_window() -> str:
    """What a window leaves behind."""
    result = read("after_window")
    ratio = {
        name: statistics.median(row["ratio"] for row in rows)
        for name, rows in result["variants"].items()
    }
    return (
        f"Steps of the launch-bound loop after a captured window, over those before it "
        f"({measured_on(result)}; `tests/bench/after_window.py`, {result['rounds']} processes "
        f"each): {ratio['trainscope']:.2f} with trainscope, which makes CUPTI leave the process; "
        f"{ratio['trainscope, CUPTI made to stay']:.2f} where it is made to stay; "
        f"{ratio['torch.profiler']:.2f} with plain torch.profiler."
    )


def programs_truth() -> str:
    """What a run by the command line foretells, beside what happens."""
    result = read("programs_truth")
    lines = [
        f"Whole programs, as people write them, by `trainscope run`: what their reports say of "
        f"taking every wait out, and what doing so really gives: the median of pairs of short "
        f"blocks with and without the waits, in turn, and its 95 % interval "
        f"({measured_on(result)}, on a host with other work; `tests/bench/programs_truth.py`). "
        "What is told is told of the steps of that run, with trainscope in them: where they were "
        "longer, look at the step without waits.",
        "",
        "| program | ms a step, measured | without waits | ratio | ms a step, in the run "
        "| told without waits | ratio |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, row in result["programs"].items():
        (low, high), told = row["ratio_between"], row["told"]
        without = said = "cannot tell"
        if told["cannot_tell"] is None:
            without = f"{told['step_ms'] / told['speedup']:.2f}"
            said = f"{told['speedup']:.2f}x ({told['band'][0]:.2f} to {told['band'][1]:.2f})"
        lines.append(
            f"| {name.replace('_', ' ')} "
            f"| {row['step_ms']['median']:.2f} "
            f"| {row['step_ms']['median'] / row['ratio']['median']:.2f} "
            f"| {row['ratio']['median']:.2f}x ({low:.2f} to {high:.2f}) "
            f"| {told['step_ms']:.2f} | {without} | {said} |"
        )
    return "\n".join(lines)


def figures() -> str:
    """All figures."""
    parts = [
        overhead(),
        hot_path(),
        in_the_loop(),
        log_cost(),
        sync_cases(),
        nsys_kernels(),
        replay_truth(),
        programs_truth(),
        after_window(),
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def report() -> str:
    """The beginning of a real report, up to its third site."""
    lines = (RESULTS / "slow_loop_report.txt").read_text().splitlines()
    sites = [number for number, line in enumerate(lines) if line.startswith("    TS1")]
    return "\n".join(["```", *lines[: sites[1] + 2], "  …", "```"]) + "\n"


def with_figures(readme: str) -> str:
    """The README's text with its figures and its report as the result files have them."""
    parts = (
        ("figures", figures()),
        ("report", report()),
        ("kernel figures", kernel_figures()),
    )
    for mark, text in parts:
        head, rest = readme.split(f"<!-- {mark} -->\n")
        _, tail = rest.split(f"<!-- /{mark} -->\n")
        readme = f"{head}<!-- {mark} -->\n{text}<!-- /{mark} -->\n{tail}"
    return readme


if __name__ == "__main__":
    path = ROOT / "README.md"
    path.write_text(with_figures(path.read_text()))
