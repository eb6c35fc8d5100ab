"""The judging of cases itself, and (on a GPU) every judged line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from judged_cases import CASES, expected, judge, run_case


def site(kind: str, line: int, count: int, explicit: bool = False) -> dict[str, Any]:
    file = str(CASES / "case_01.py")
    return {"kind": kind, "file": file, "line": line, "count": count, "explicit": explicit}


def passed(source: str, row: dict[str, Any], *sites: dict[str, Any]) -> bool | None:
    found = {
        "sites": [s for s in sites if s["kind"] != "race"],
        "races": [s for s in sites if s["kind"] == "race"],
    }
    return judge(source, "case_01.py", {"line": 9, **row}, found).passed


SYNC = {"verdict": "sync", "kind": "item", "count": 20}
PRINT = {"verdict": "sync", "kind": "repr", "count": None}
EVENT = {"verdict": "explicit", "kind": "event", "count": 7}
FINE = {"verdict": "ok", "kind": None, "count": 0}
RACE = {"verdict": "race", "kind": None, "count": 0}


@pytest.mark.parametrize(
    ("source", "row", "sites", "verdict"),
    [
        ("live", SYNC, [("item", 9, 20)], True),
        ("live", SYNC, [("item", 9, 12), ("item", 9, 8)], True),  # before and after the first step
        ("live", SYNC, [("item", 9, 19)], False),
        ("live", SYNC, [("item", 9, 20), ("bool", 9, 1)], False),
        ("live", SYNC, [("item", 10, 20)], False),
        ("live", SYNC, [("item", 9, 20, True)], False),
        ("live", PRINT, [("repr", 9, 1)], True),
        ("live", PRINT, [], False),
        ("live", EVENT, [("event", 9, 7, True)], True),
        ("live", EVENT, [("event", 9, 7)], False),
        ("dry", EVENT, [], None),
        ("live", FINE, [], True),
        ("live", FINE, [("item", 9, 1)], False),
        ("live", RACE, [], None),
        ("live", RACE, [("float", 9, 1)], False),
        ("dry", RACE, [("race", 9, 1)], True),
        ("dry", RACE, [], False),
    ],
)
def test_judging(source: str, row: dict[str, Any], sites: list, verdict: bool | None) -> None:
    assert passed(source, row, *(site(*each) for each in sites)) is verdict


def test_the_truth_is_as_it_was_measured() -> None:
    measured = Path(__file__).parents[3] / "shared" / "data" / "sync_cases"
    if not measured.is_dir():
        pytest.skip("the measured cases are not beside this checkout")
    for path in measured.iterdir():
        assert (CASES / path.name).read_bytes() == path.read_bytes(), path.name


def test_every_case_is_there() -> None:
    assert sorted(expected()) == sorted(path.name for path in CASES.glob("case_*.py"))
    assert json.loads((CASES / "expected.json").read_text())["measured_on"].startswith("NVIDIA")


@pytest.mark.gpu
@pytest.mark.parametrize("case", sorted(expected()))
def test_each_judged_line_on_the_gpu(case: str) -> None:
    found = run_case("live", CASES / case)
    judged = [judge("live", case, row, found) for row in expected()[case]]
    assert [row for row in judged if row.passed is False] == []


@pytest.mark.gpu
def test_a_hook_s_wait_is_the_autograd_thread_s() -> None:
    found = run_case("live", CASES / "case_14.py")
    (item,) = [s for s in found["sites"] if s["kind"] == "item"]
    assert (item["thread"], item["phase"], item["function"]) == ("autograd", "backward", "hook")


@pytest.mark.gpu
def test_a_wait_in_a_function_names_its_most_frequent_caller() -> None:
    found = run_case("live", CASES / "case_05.py")
    (item,) = [s for s in found["sites"] if s["kind"] == "item"]
    assert item["caller"] in [f"{CASES / 'case_05.py'}:{line}" for line in (17, 18)]
