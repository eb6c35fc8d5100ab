"""Count the kernels inside the steps and phases of an nsys recording.

    nsys profile -t cuda,nvtx -o mlp python examples/mlp.py
    nsys export --type sqlite mlp.nsys-rep
    python tests/bench/nsys_kernels.py mlp.sqlite [--out FOLDER]

By time, not by thread: backward kernels are launched by autograd's own thread, yet the backward
range covers their launches. The device and the date are those of the recording.
"""

from __future__ import annotations

import argparse
import json
import re
import sqlite3
from collections import Counter
from pathlib import Path

RANGES = """
    SELECT coalesce(n.text, s.value), n.start, n.end FROM NVTX_EVENTS n
    LEFT JOIN StringIds s ON s.id = n.textId
    JOIN NVTX_EVENTS d ON d.eventType = 75 AND d.domainId = n.domainId
    WHERE n.eventType = 59 AND n.end IS NOT NULL AND d.text = 'trainscope' ORDER BY n.start
"""
LAUNCHES = """
    SELECT r.start FROM CUPTI_ACTIVITY_KIND_KERNEL k
    JOIN CUPTI_ACTIVITY_KIND_RUNTIME r ON r.correlationId = k.correlationId ORDER BY r.start
"""


def count(path: Path) -> dict[str, object]:
    """Ranges by name, and launches by the step and by the phase they fall into."""
    with sqlite3.connect(path) as base:
        ranges = base.execute(RANGES).fetchall()
        launches = [start for (start,) in base.execute(LAUNCHES)]
        device = base.execute("SELECT name FROM TARGET_INFO_GPU").fetchone()
    steps = [row for row in ranges if re.fullmatch(r"step \d+", row[0])]
    phases = [row for row in ranges if not row[0].startswith("step ")]

    def inside(rows: list[tuple[str, int, int]]) -> Counter[str]:
        found: Counter[str] = Counter()
        for name, start, end in rows:
            found[name] += sum(start <= launch <= end for launch in launches)
        return found

    per_step = sorted(inside(steps).values())
    return {
        "recorded_on": device[0] if device else None,
        "step_ranges": len(steps),
        "ranges": dict(Counter(name for name, _, _ in phases)),
        "kernels": len(launches),
        "kernels_in_steps": sum(per_step),
        "kernels_per_step_median": per_step[len(per_step) // 2] if per_step else None,
        "kernels_in_phases": dict(inside(phases)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sqlite", type=Path)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    options = parser.parse_args()
    figures = count(options.sqlite)
    text = json.dumps(figures, indent=1)
    (options.out / "nsys_kernels.json").write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
