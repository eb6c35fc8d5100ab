"""The measured cases: each judged line beside what a detector found there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CASES = Path(__file__).parent / "cases"
RUNNER = Path(__file__).parent / "case_runner.py"


@dataclass(frozen=True)
class Judged:
    """One judged line; `found` maps kind to count, `passed` None where the source cannot tell."""

    case: str
    line: int
    verdict: str
    kind: str | None
    count: int | None
    found: dict[str, int]
    passed: bool | None


def expected() -> dict[str, list[dict[str, Any]]]:
    return json.loads((CASES / "expected.json").read_text())["cases"]


def run_case(source: str, program: Path) -> dict[str, Any]:
    """Run `program` in a process of its own under a ``live`` or a ``dry`` detector."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "found.json"
        done = subprocess.run(
            [sys.executable, str(RUNNER), source, str(program), str(out)],
            capture_output=True,
            text=True,
            timeout=300,
        )
        if done.returncode != 0:
            raise RuntimeError(f"{program.name} failed:\n{done.stderr[-3000:]}")
        return json.loads(out.read_text())


def judge(source: str, case: str, row: dict[str, Any], found: dict[str, Any]) -> Judged:
    """Compare one row of expected.json with what was found at its line."""
    path = str(CASES / case)
    at = [s for s in found["sites"] if (s["file"], s["line"]) == (path, row["line"])]
    races = [s for s in found["races"] if (s["file"], s["line"]) == (path, row["line"])]
    kinds: dict[str, int] = {}
    for site in [*at, *races]:
        kinds[site["kind"]] = kinds.get(site["kind"], 0) + site["count"]
    passed: bool | None
    if row["verdict"] == "race":
        # seen in a dry run only; live, such a line must not be called a sync
        passed = kinds == {"race": 1} if source == "dry" else None if not kinds else False
    elif row["verdict"] == "ok":
        passed = not kinds
    elif row["verdict"] == "explicit" and source == "dry":
        passed = None if not kinds else False  # it stands behind `if dev == "cuda"`
    else:
        explicit = row["verdict"] == "explicit"
        passed = set(kinds) == {row["kind"]} and all(s["explicit"] is explicit for s in at)
        passed = passed and row["count"] in (None, kinds.get(row["kind"]))
    return Judged(case, row["line"], row["verdict"], row["kind"], row["count"], kinds, passed)


def judge_all(source: str) -> list[Judged]:
    """Run every case and judge every line of expected.json."""
    cases = expected()
    with ThreadPoolExecutor(max(1, (os.cpu_count() or 1) // 2)) as pool:
        runs = pool.map(lambda case: run_case(source, CASES / case), cases)
        return [
            judge(source, case, row, found)
            for (case, rows), found in zip(cases.items(), runs, strict=True)
            for row in rows
        ]
