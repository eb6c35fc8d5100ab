"""The way to a place of which only the line is known, as before Python 3.11."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from trainscope.record.inference.syntax import SourceTree


def way(text: str, line: int, code_name: str, tmp_path: Path) -> list[tuple[str, int]] | None:
    """(kind, slot) of each branch, or None where the line does not say which part is meant."""
    tree = SourceTree(str(tmp_path / "program.py"), textwrap.dedent(text))
    found = tree.way_to((line, -1, line, -1), code_name, asks_next=False)
    return None if found is None else [(each.region.kind, each.slot) for each in found]


@pytest.mark.parametrize(
    ("line", "code_name"),
    [
        ("[step(i) for i in range(3)]", "<listcomp>"),
        ("losses = [step(i) for i in range(3)]", "<listcomp>"),
        ("a.b, c[d] = e, {step(i): i for i in range(3)}", "<dictcomp>"),
        ("total: float = sum(step(i) for i in range(3))", "<genexpr>"),
        ("print(before(), *{step(i) for i in range(3)}, sep=after())", "<setcomp>"),
    ],
)
def test_a_comprehension_is_found_beside_what_else_is_on_its_line(
    line: str, code_name: str, tmp_path: Path
) -> None:
    assert way(line, 1, code_name, tmp_path) == [("loop", 1)]


def test_a_lambda_is_found_among_arguments(tmp_path: Path) -> None:
    assert way("call(first, second[0], lambda: step(), last=1)", 1, "<lambda>", tmp_path) == []


def test_two_comprehensions_on_a_line_are_not_told_apart(tmp_path: Path) -> None:
    line = "a = [step(i) for i in x] + [step(i) for i in y]"
    assert way(line, 1, "<listcomp>", tmp_path) is None


def test_a_call_that_may_call_many_times_is_not_told_from_its_arguments(tmp_path: Path) -> None:
    assert way("losses = list(map(step, data()))", 1, "<module>", tmp_path) is None


def test_statements_are_looked_for_before_what_stands_in_front_of_them(tmp_path: Path) -> None:
    text = """
    for i in data():
        if i:
            step(i)
    """
    assert way(text, 2, "<module>", tmp_path) == [("block", 0), ("loop", -1)]
    assert way(text, 4, "<module>", tmp_path) == [
        *(("block", 0), ("loop", 1), ("block", 0), ("if", 1), ("block", 0)),
    ]
