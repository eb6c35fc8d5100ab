"""The large packages say in their docstrings where to look; each file of theirs is in it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = (
    "trainscope/analysis",
    "trainscope/bench",
    "trainscope/record",
    "trainscope/report",
    "trainscope/sync",
    "kernels/trainscope_kernels/attention",
)


@pytest.mark.parametrize("package", PACKAGES)
def test_a_map_names_each_file_and_folder_once(package: str) -> None:
    folder = ROOT / package
    text = ast.get_docstring(ast.parse((folder / "__init__.py").read_text(encoding="utf-8")))
    named = re.findall(r"``(\w+)``", (text or "").partition("Where to look:")[2])
    files = [path.stem for path in folder.glob("*.py") if path.stem != "__init__"]
    folders = [path.parent.name for path in folder.glob("*/__init__.py")]
    assert sorted(named) == sorted([*files, *folders])
