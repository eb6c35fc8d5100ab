"""Every judged line of the case programs: found, or left alone, as a real GPU had it."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import pytest
from dry_programs import Found, run_file

CASES = Path(__file__).parents[1] / "cases"
EXPECTED = CASES / "expected.json"


def _rows() -> list[tuple[str, dict[str, Any]]]:
    cases = json.loads(EXPECTED.read_text())["cases"]
    return [(case, row) for case, rows in cases.items() for row in rows]


@functools.lru_cache
def _found(case: str) -> Found:
    return run_file(str(CASES / case))[0]


@pytest.mark.parametrize(
    ("case", "row"), _rows(), ids=lambda value: value if isinstance(value, str) else value["line"]
)
def test_line(case: str, row: dict[str, Any]) -> None:
    kinds = {kind: count for (line, kind), count in _found(case).items() if line == row["line"]}
    if row["verdict"] == "sync":
        assert set(kinds) == {row["kind"]}
        if row["count"] is not None:
            assert kinds == {row["kind"]: row["count"]}
    elif row["verdict"] == "race":
        assert kinds == {"race": 1}
    else:  # an ok line waits for nothing; an explicit one sits behind `if dev == "cuda"`
        assert kinds == {}


def test_print_is_one_read_a_call() -> None:
    found = _found("case_08.py")
    assert {key: found[key] for key in [(12, "repr"), (13, "format"), (15, "repr")]} == {
        (12, "repr"): 1,
        (13, "format"): 2,
        (15, "repr"): 1,
    }


def test_nothing_is_found_on_a_line_that_is_not_judged_a_sync() -> None:
    for case, rows in json.loads(EXPECTED.read_text())["cases"].items():
        judged = {row["line"] for row in rows if row["verdict"] in ("sync", "race")}
        assert {line for line, _ in _found(case)} <= judged
