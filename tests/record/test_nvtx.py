"""Ranges reach a tool whether or not the nvtx package believes that one listens."""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from nsys_tool import export_sqlite, nsys, profile, ranges_of_domain  # noqa: F401

from trainscope.record import nvtx as ours

_TOOL_SOURCE = Path(__file__).parent / "nvtx_tool" / "tool.c"

PROGRAM = """
from trainscope.record import nvtx
domain = nvtx.open_domain()
for step in (7, 8):
    domain.push(f"step {step}")
    for phase in ("forward", "backward"):
        domain.push(phase)
        domain.pop()
    domain.pop()
domain.push("step change")
domain.pop()
print(nvtx.reach().backend)
"""


@pytest.fixture(scope="module", params=["answers", "old nsys"])
def tool(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tool that logs; "old nsys" refuses extensions, so the nvtx package hands out a dummy."""
    pytest.importorskip("nvtx")
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler to build the NVTX tool with")
    library = tmp_path_factory.mktemp("tool") / "tool.so"
    flags = ["-DOLD_NSYS"] if request.param == "old nsys" else []
    subprocess.run(
        [compiler, "-D_GNU_SOURCE", "-Wall", "-Werror", "-shared", "-fPIC", *flags]
        + ["-o", str(library), str(_TOOL_SOURCE)],
        check=True,
    )
    return library


def _run(program: str, library: Path, log: Path) -> tuple[str, list[str]]:
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "NVTX_INJECTION64_PATH": str(library), "NVTX_TOOL_LOG": str(log)},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip(), log.read_text().splitlines()


def test_the_tool_gets_every_push_and_pop_in_order(tool: Path, tmp_path: Path) -> None:
    backend, log = _run(PROGRAM, tool, tmp_path / "log")
    assert backend in ("nvtx", "nvtx past its check")
    assert [line for line in log if not line.startswith("register")] == [
        "push\ttrainscope\tstep 7\t7",
        "push\ttrainscope\tforward\t",
        "pop\ttrainscope",
        "push\ttrainscope\tbackward\t",
        "pop\ttrainscope",
        "pop\ttrainscope",
        "push\ttrainscope\tstep 8\t8",
        "push\ttrainscope\tforward\t",
        "pop\ttrainscope",
        "push\ttrainscope\tbackward\t",
        "pop\ttrainscope",
        "pop\ttrainscope",
        "push\ttrainscope\tstep change\t",
        "pop\ttrainscope",
    ]


def test_a_name_is_registered_once(tool: Path, tmp_path: Path) -> None:
    _, log = _run(PROGRAM, tool, tmp_path / "log")
    registered = [line.split("\t")[2] for line in log if line.startswith("register")]
    for name in ("forward", "backward", "step 7", "step 8", "step change"):
        assert registered.count(name) == 1


def test_which_way_was_taken_is_told(tool: Path, tmp_path: Path) -> None:
    probe = (
        "import nvtx; from nvtx._lib import lib; from trainscope.record import nvtx as ours;"
        "print(type(nvtx.get_domain('x')).__name__, '|', ours.reach().backend, '|',"
        " ours.reach().tool_attached)"
    )
    (tmp_path / "log").touch()
    printed, _ = _run(probe, tool, tmp_path / "log")
    assert printed in (
        "Domain | nvtx | True",
        "DummyDomain | nvtx past its check | True",
        "Domain | nvtx past its check | True",  # 0.2.12 says yes here and no to nsys
    )


def test_memory_stays_flat_over_many_steps(tool: Path, tmp_path: Path) -> None:
    """The tool may keep each step's name; this process must not."""
    probe = (
        "import gc, sys; from trainscope.record import nvtx; domain = nvtx.open_domain()\n"
        "def steps(first, last):\n"
        "    for i in range(first, last): domain.push(f'step {i}'); domain.pop()\n"
        "steps(0, 100); gc.collect(); before = len(gc.get_objects())\n"
        "steps(100, 5100); gc.collect()\n"
        "print(len(gc.get_objects()) - before < 50, len(domain._known))"
    )
    printed, log = _run(probe, tool, tmp_path / "log")
    assert printed == "True 0"
    assert sum(line.startswith("push") for line in log) == 5100


def test_names_without_end_are_shown_and_not_kept(tool: Path, tmp_path: Path) -> None:
    probe = (
        "from trainscope.record import nvtx; nvtx._MAX_NAMES = 3; domain = nvtx.open_domain()\n"
        "for i in [*range(6), 0]: domain.push(f'doc-{i}'); domain.pop()\n"
        "print(len(domain._known))"
    )
    printed, log = _run(probe, tool, tmp_path / "log")
    assert printed == "3"
    pushed = [line.split("\t")[2:] for line in log if line.startswith("push")]
    assert pushed == [[f"doc-{i}", ""] for i in [*range(6), 0]]


# ---- no tool, no package -------------------------------------------------------------------------
def test_with_no_tool_there_is_no_domain() -> None:
    assert ours.open_domain({}) is None
    reach = ours.reach({})
    assert (reach.tool_attached, reach.reason.startswith("no tool is attached")) == (False, True)


def test_a_stale_path_is_no_tool(tmp_path: Path) -> None:
    gone = str(tmp_path / "gone.so")
    reach = ours.reach({"NVTX_INJECTION64_PATH": gone})
    assert reach.backend is None
    assert reach.reason == f"NVTX_INJECTION64_PATH names {gone}, which is not there; unset it"


def test_nvtx_disable_is_honoured(tmp_path: Path) -> None:
    (tmp_path / "tool.so").touch()
    environ = {"NVTX_INJECTION64_PATH": str(tmp_path / "tool.so"), "NVTX_DISABLE": "1"}
    assert ours.open_domain(environ) is None
    assert "NVTX_DISABLE" in ours.reach(environ).reason


@pytest.fixture
def no_nvtx_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, str]:
    """As on macOS, but with a tool attached; the environment to pass."""
    real = importlib.import_module

    def without(name: str, package: str | None = None) -> object:
        if name.partition(".")[0] == "nvtx":
            raise ImportError(name)
        return real(name, package)

    monkeypatch.setattr(importlib, "import_module", without)
    (tmp_path / "tool.so").touch()
    return {"NVTX_INJECTION64_PATH": str(tmp_path / "tool.so")}


def test_without_the_package_torch_shows_the_ranges_with_a_prefix(
    no_nvtx_package: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[object] = []
    fake = SimpleNamespace(range_push=calls.append, range_pop=lambda: calls.append("pop"))
    monkeypatch.setattr(ours, "_torch_nvtx", lambda: fake)
    domain = ours.open_domain(no_nvtx_package)
    assert domain is not None
    domain.push("step 3")
    domain.push("forward")
    domain.pop()
    domain.pop()
    assert calls == ["trainscope: step 3", "trainscope: forward", "pop", "pop"]
    assert ours.reach(no_nvtx_package).backend == "torch.cuda.nvtx"


def test_with_neither_there_is_none_and_the_reason_says_what_to_install(
    no_nvtx_package: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ours, "_torch_nvtx", lambda: None)
    assert ours.open_domain(no_nvtx_package) is None
    reach = ours.reach(no_nvtx_package)
    assert (reach.backend, reach.version, reach.tool_attached) == (None, None, True)
    assert "pip install nvtx" in reach.reason


def test_an_nvtx_with_other_inner_parts_falls_back(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class DummyDomain: ...

    lib = SimpleNamespace(DummyDomain=DummyDomain)  # no Domain, no DomainHandle
    package = SimpleNamespace(get_domain=lambda name: DummyDomain())
    real = importlib.import_module
    monkeypatch.setattr(
        importlib,
        "import_module",
        lambda name, package_name=None: (
            {"nvtx": package, "nvtx._lib.lib": lib}.get(name) or real(name, package_name)
        ),
    )
    monkeypatch.setattr(ours, "_torch_nvtx", lambda: None)
    ours._build_past_check.cache_clear()
    (tmp_path / "tool.so").touch()
    reach = ours.reach({"NVTX_INJECTION64_PATH": str(tmp_path / "tool.so")})
    assert reach.backend is None
    assert "has other inner parts than trainscope knows" in reach.reason


def test_importing_it_loads_neither_torch_nor_nvtx() -> None:
    probe = (
        "import sys, trainscope.record.nvtx;"
        "print([m for m in ('torch', 'nvtx') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# ---- the real one --------------------------------------------------------------------------------
@pytest.mark.nsys
def test_a_real_nsys_shows_nested_ranges_in_our_domain(nsys: str, tmp_path: Path) -> None:  # noqa: F811
    pytest.importorskip("nvtx")
    (tmp_path / "program.py").write_text(PROGRAM)
    done = profile(nsys, tmp_path / "report", str(tmp_path / "program.py"))
    assert done.returncode == 0, done.stderr
    ranges = ranges_of_domain(export_sqlite(nsys, tmp_path / "report.nsys-rep"), "trainscope")
    assert [name for name, _, _ in ranges] == [
        *("step 7", "forward", "backward"),
        *("step 8", "forward", "backward"),
        "step change",
    ]
    for step, *phases in (ranges[0:3], ranges[3:6]):
        ends = step[1]
        for _, start, end in phases:
            assert ends <= start <= end <= step[2]
            ends = end
