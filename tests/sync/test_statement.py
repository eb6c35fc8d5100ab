"""Advice reads the whole statement where a line is only a part of one."""

from __future__ import annotations

import runpy
import textwrap
from pathlib import Path

import pytest

from trainscope.sync.detector import SyncDetector
from trainscope.sync.statement import whole_statement

PROGRAM = textwrap.dedent(
    """
    import torch
    x = torch.ones(3, device="cuda")
    for step in range(3):
        print('Loss: %.3f  scale: %.3f' % (
            x.sum().item(), x[0].item()))
    if x.sum() > 2:
        mask = torch.zeros(
            3,
            dtype=torch.bool,
        ).to("cuda")
    y = x[:2]; x.mean().item()
    """
).lstrip()


@pytest.fixture
def program(tmp_path: Path) -> str:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return str(path)


def line_of(text: str) -> tuple[int, str]:
    lines = PROGRAM.splitlines()
    number = next(at for at, line in enumerate(lines, 1) if text in line)
    return number, lines[number - 1].strip()


@pytest.mark.parametrize(
    ("text", "begins"),
    [
        ("x.sum().item(), x[0]", "print('Loss"),
        ('.to("cuda")', "mask = torch.zeros("),
        ("if x.sum()", "if x.sum() > 2:"),
        ("y = x[:2]", "y = x[:2]; x.mean().item()"),
    ],
)
def test_the_statement_that_a_line_is_in(program: str, text: str, begins: str) -> None:
    number, source = line_of(text)
    assert whole_statement(program, number, source).startswith(begins)


def test_a_line_of_a_file_that_has_changed_or_gone_is_left_as_it_was(program: str) -> None:
    assert whole_statement(program, 5, "loss.item()") == "loss.item()"
    assert whole_statement("<cell>", 5, "loss.item()") == "loss.item()"
    assert whole_statement(program, 99, "loss.item()") == "loss.item()"


def test_what_is_printed_in_the_second_line_of_a_print_is_advised_as_what_is_logged(
    program: str,
) -> None:
    with SyncDetector(dry_run=True) as detector:
        runpy.run_path(program)
    advised = {site.source: site.advice for site in detector.sites()}
    _number, source = line_of("x.sum().item(), x[0]")
    assert advised[source].startswith("keep it on the GPU: scope.log(name=tensor)")
    assert advised[').to("cuda")'].startswith("make it on the GPU: pass device=device")
