"""Write the figures of the README from the result files.

python tests/bench/readme_figures.py           # rewrites README.md between the two marks
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
RESULTS = Path(__file__).parent / "results"
BEGIN, END = "<!-- figures -->\n", "<!-- /figures -->\n"


def read(name: str) -> dict[str, Any]:
    """A result file."""
    return json.loads((RESULTS / f"{name}.json").read_text())


def measured_on(result: dict[str, Any]) -> str:
    """The device, versions and date of a result, in words."""
    where = result["environment"]
    return f"{where['device']}, torch {where['torch']}, Python {where['python']}, {where['date']}"


def overhead() -> str:
    """The whole-loop table."""
    result = read("overhead")
    lines = [
        f"A launch-bound loop (16 layers of width 256), each variant in pairs with the bare loop, "
        f"{result['steps']} steps each ({measured_on(result)}; `tests/bench/overhead.py`):",
        "",
        "| switched on | ms a step, bare | with it | median of the paired ratios | 95 % bound |",
        "|---|---|---|---|---|",
    ]
    for name, row in result["variants"].items():
        if "not_measured" in row:
            continue
        label = "nothing (the floor of the method)" if name == "bare" else name
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


def block() -> str:
    """All figures."""
    return "\n\n".join([overhead(), hot_path(), log_cost(), sync_cases()]) + "\n"


def with_figures(readme: str) -> str:
    """The README's text with its figures as the result files have them."""
    head, rest = readme.split(BEGIN)
    return head + BEGIN + block() + END + rest.split(END)[1]


if __name__ == "__main__":
    path = ROOT / "README.md"
    path.write_text(with_figures(path.read_text()))
