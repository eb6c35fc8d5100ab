"""The kinds of syncs and the codes: stable, complete, each once."""

from __future__ import annotations

import json
from pathlib import Path

from trainscope.catalogue.codes import CODES, RACE
from trainscope.catalogue.kinds import KINDS

STABLE = {
    "item": "TS101",
    "item-implicit": "TS102",
    "bool": "TS103",
    "int": "TS104",
    "float": "TS105",
    "index": "TS106",
    "tolist": "TS107",
    "numpy": "TS108",
    "cpu": "TS109",
    "repr": "TS110",
    "format": "TS111",
    "nonzero": "TS112",
    "size-readback": "TS113",
    "h2d-pageable": "TS114",
    "h2d-pinned": "TS115",
    "h2d-scalar": "TS116",
    "h2d-list": "TS117",
    "h2d-nonblocking-pageable": "TS118",
    "d2h": "TS119",
    "d2h-nonblocking-pageable": "TS120",
    "stream": "TS121",
    "event": "TS122",
    "synchronize": "TS123",
    "empty_cache": "TS124",
}


def test_codes_never_change() -> None:
    assert {name: kind.code for name, kind in KINDS.items()} == STABLE
    assert all(name == kind.name for name, kind in KINDS.items())


def test_explicit_are_the_waits_that_a_user_asks_for() -> None:
    explicit = {name for name, kind in KINDS.items() if kind.explicit}
    assert explicit == {"stream", "event", "synchronize", "empty_cache"}


def test_no_code_is_used_twice() -> None:
    assert not set(CODES) & set(STABLE.values())
    assert CODES[RACE] == "a value is read before its non_blocking copy has landed"
    assert set(CODES) == {"TS501", "TS502", "TS503", "TS504", "TS505", "TS506"}


def test_every_kind_of_the_measured_cases_is_known() -> None:
    path = Path(__file__).parents[1] / "sync" / "cases" / "expected.json"
    cases = json.loads(path.read_text())["cases"]
    kinds = {e["kind"] for case in cases.values() for e in case if e["verdict"] != "ok"} - {None}
    assert kinds <= set(KINDS)
