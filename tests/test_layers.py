"""Which package may import which, and which may load torch: read from the source, not run."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import trainscope

ROOT = Path(trainscope.__file__).parent.parent

# Layer: the layers it may import at module level. The root module itself is lazy and free.
ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "notice": set(),
    "catalogue": set(),
    "trace": {"errors"},
    "analysis": {"trace", "catalogue", "errors"},
    "report": {"analysis", "trace", "catalogue", "errors"},
    "api": {"report", "analysis", "trace", "errors"},
    "sync": {"trace", "catalogue", "errors", "notice"},
    "metrics": {"trace", "errors", "notice"},
    "record": {"sync", "metrics", "trace", "catalogue", "errors", "notice"},
    "bench": {"errors"},
    "integrations": {"record", "sync", "metrics", "api", "report", "trace", "catalogue", "errors"},
    "cli": {
        *("api", "report", "analysis", "trace", "catalogue", "errors", "notice"),
        *("record", "sync", "metrics", "bench", "integrations"),
    },
    "__main__": {"cli"},
}
# Layer: the layers it may import inside a function as well.
ALLOWED_LAZILY: dict[str, set[str]] = {"record": {"api"}}

NO_TORCH = {"errors", "notice", "catalogue", "trace", "analysis", "report", "api", "__main__"}
NO_TORCH_AT_IMPORT = (
    *("cli/main.py", "cli/report.py", "cli/nsys.py", "cli/doctor.py"),
    *("cli/compare.py", "cli/check.py", "cli/bench.py"),
    "record/schedule.py",
)
"""So too what these import from their own package at module level."""
NEEDS_TORCH = {"record", "sync", "metrics", "bench", "integrations"}
"""Layers that load torch when imported, so a layer without torch takes them lazily at most."""


@dataclass(frozen=True)
class Import:
    """One name that a file imports when it runs: not those under TYPE_CHECKING."""

    name: str
    line: int
    lazy: bool


def imports_of(file: Path, root: Path) -> Iterator[Import]:
    package = file.relative_to(root).with_suffix("").parts[:-1]
    yield from _walk(ast.parse(file.read_text(encoding="utf-8")), package, lazy=False)


def _walk(node: ast.AST, package: tuple[str, ...], *, lazy: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from (Import(alias.name, child.lineno, lazy) for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            base = package[: len(package) - child.level + 1] if child.level else ()
            module = ".".join((*base, *([child.module] if child.module else [])))
            for alias in child.names:
                yield Import(f"{module}.{alias.name}", child.lineno, lazy)
        elif isinstance(child, ast.If) and ast.unparse(child.test).endswith("TYPE_CHECKING"):
            for other in child.orelse:
                yield from _walk(other, package, lazy=lazy)
        else:
            inside = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            yield from _walk(child, package, lazy=lazy or inside)


def layer_of(name: str) -> str | None:
    """The layer of ours that a dotted name is in; None for other packages and the lazy root."""
    parts = name.split(".")
    if parts[0] != "trainscope" or len(parts) == 1 or parts[1] == "__version__":
        return None
    return trainscope._HOME.get(parts[1], f"trainscope.{parts[1]}").split(".")[1]


def faults(root: Path) -> list[str]:
    found = []
    torch_late = _torch_late(root)
    for file in sorted((root / "trainscope").rglob("*.py")):
        inside = file.relative_to(root / "trainscope")
        if inside == Path("__init__.py"):
            continue
        layer = inside.parts[0].removesuffix(".py")
        if layer not in ALLOWED:
            found.append(f"{inside}: layer {layer} is not in the table")
            continue
        for each in imports_of(file, root):
            fault = _fault(layer, each, torch_late=inside.as_posix() in torch_late)
            if fault is not None:
                found.append(f"{inside.as_posix()}:{each.line} {fault}")
    kernels = root / "kernels" / "trainscope_kernels"
    for file in sorted(kernels.rglob("*.py")):
        found += [
            f"{file.relative_to(root).as_posix()}:{each.line} imports {each.name}"
            for each in imports_of(file, root / "kernels")
            if each.name.split(".")[0] == "trainscope"
        ]
    return found


def _torch_late(root: Path) -> set[str]:
    """Files that must load no torch when imported, though their layer may use it."""
    found: set[str] = set()
    waiting = [file for file in NO_TORCH_AT_IMPORT if (root / "trainscope" / file).exists()]
    while waiting:
        file = waiting.pop()
        if file in found:
            continue
        found.add(file)
        folder = file.partition("/")[0]
        for each in imports_of(root / "trainscope" / file, root):
            parts = each.name.split(".")
            if each.lazy or parts[:2] != ["trainscope", folder] or len(parts) < 3:
                continue
            near = f"{folder}/{parts[2]}.py"
            if (root / "trainscope" / near).exists():
                waiting.append(near)
    return found


def _fault(layer: str, each: Import, *, torch_late: bool) -> str | None:
    top = each.name.split(".")[0]
    if top == "trainscope_kernels":
        return f"imports {each.name}"
    torch_free = layer in NO_TORCH
    if top == "torch" and (torch_free or (torch_late and not each.lazy)):
        return "imports torch"
    other = layer_of(each.name)
    if other is None or other == layer:
        return None
    allowed = ALLOWED[layer] | (ALLOWED_LAZILY.get(layer, set()) if each.lazy else set())
    if other not in allowed:
        return f"imports {each.name}"
    loads_torch = other in NEEDS_TORCH and not each.name.startswith("trainscope.record.schedule")
    if torch_late and loads_torch and not each.lazy:
        return f"imports {each.name} at module level, which loads torch"
    return None


def test_every_import_stands_in_the_table() -> None:
    assert faults(ROOT) == []


@pytest.mark.parametrize(
    ("file", "source", "expected"),
    [
        ("trace/a.py", "from trainscope.report import model", "1 imports trainscope.report.model"),
        ("trace/a.py", "from ..report.model import Report", "1 imports trainscope.report.model"),
        ("trace/a.py", "import trainscope.analysis.x", "1 imports trainscope.analysis.x"),
        ("trace/a.py", "from trainscope import Scope", "1 imports trainscope.Scope"),
        ("trace/a.py", "def f():\n    import torch", "2 imports torch"),
        (
            "report/a.py",
            "try:\n    import torch.nn\nexcept ImportError:\n    pass",
            "2 imports torch",
        ),
        ("record/a.py", "from trainscope import api", "1 imports trainscope.api"),
        ("record/a.py", "def f():\n    from trainscope.report import text", "2 imports"),
        ("record/schedule.py", "import torch", "1 imports torch"),
        ("cli/main.py", "from torch import nn", "1 imports torch"),
        ("cli/report.py", "from trainscope.record.scope import Scope", "at module level"),
        ("sync/a.py", "from trainscope.record import recorder", "1 imports trainscope.record"),
        ("metrics/a.py", "import trainscope_kernels", "1 imports trainscope_kernels"),
        ("more/a.py", "", "layer more is not in the table"),
        ("../kernels/trainscope_kernels/a.py", "import trainscope", "1 imports trainscope"),
    ],
)
def test_the_check_finds_what_is_not_allowed(
    tmp_path: Path, file: str, source: str, expected: str
) -> None:
    path = tmp_path / "trainscope" / file
    (tmp_path / "trainscope").mkdir()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(source)
    (fault,) = faults(tmp_path)
    assert expected in fault


def test_the_check_follows_what_the_command_line_starts_with(tmp_path: Path) -> None:
    folder = tmp_path / "trainscope" / "cli"
    folder.mkdir(parents=True)
    (folder / "main.py").write_text("from trainscope.cli import a")
    (folder / "a.py").write_text("from trainscope.cli.b import f\ndef f():\n    from . import c")
    (folder / "b.py").write_text("import torch")
    (folder / "c.py").write_text("import torch")
    assert faults(tmp_path) == ["cli/b.py:1 imports torch"]


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("record/a.py", "def f():\n    from trainscope import api"),
        ("record/a.py", "import torch\nimport trainscope\nfrom trainscope.sync import own"),
        (
            "cli/main.py",
            "def f():\n    import torch\n    from trainscope.record.scope import Scope",
        ),
        ("cli/a.py", "import torch"),
        (
            "trace/a.py",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from trainscope import Scope",
        ),
        ("trace/a.py", "from . import ranges\nfrom .ranges import Ranges\nfrom .. import errors"),
    ],
)
def test_the_check_lets_pass_what_is_allowed(tmp_path: Path, file: str, source: str) -> None:
    path = tmp_path / "trainscope" / file
    path.parent.mkdir(parents=True)
    path.write_text(source)
    assert faults(tmp_path) == []
