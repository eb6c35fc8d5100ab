"""The measured sync cases against the detector: a table, and a result file.

    python tests/bench/sync_cases.py [--dry-run] [--out FOLDER]

Each program of tests/sync/cases runs in a process of its own under the detector; each judged line
of expected.json is compared. Exits 1 when a line is wrong. A race is seen in a dry run only, an
explicit wait of these programs on a GPU only: those lines are shown as not judged.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from pathlib import Path

import torch
from outcome import write_result

sys.path.insert(0, str(Path(__file__).parents[1] / "sync"))
from judged_cases import Judged, judge_all

_WORDS = {True: "right", False: "WRONG", None: "not judged"}


def table(judged: list[Judged]) -> str:
    """One line a judged line."""
    head = f"{'case':<11}{'line':>4}  {'verdict':<9}{'kind':<15}{'count':>6}  {'found':<32}"
    rows = [
        f"{row.case:<11}{row.line:>4}  {row.verdict:<9}{row.kind or '-':<15}"
        f"{'many' if row.count is None else row.count:>6}  "
        f"{', '.join(f'{kind} x{n}' for kind, n in row.found.items()) or '-':<32}"
        f"{_WORDS[row.passed]}"
        for row in judged
    ]
    return "\n".join([head, *rows])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dry-run", action="store_true", help="without a GPU, by provenance")
    parser.add_argument("--out", type=Path, help="folder of the result file")
    given = parser.parse_args()
    if not given.dry_run and not torch.cuda.is_available():
        parser.error("no CUDA device here: give --dry-run")
    source = "dry" if given.dry_run else "live"
    judged = judge_all(source)
    print(table(judged))
    counts = {word: sum(row.passed is key for row in judged) for key, word in _WORDS.items()}
    print(", ".join(f"{count} {word}" for word, count in counts.items()))
    figures = {"source": source, "counts": counts, "lines": [asdict(row) for row in judged]}
    name = "sync_cases" if source == "live" else "sync_cases_dry"
    print(write_result(name, figures, given.out))
    sys.exit(1 if counts["WRONG"] else 0)


if __name__ == "__main__":
    main()
