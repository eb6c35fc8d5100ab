"""A wait in a notebook's cell is told by the cell's number, line and source."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from trainscope.sync import cells
from trainscope.sync.detector import SyncDetector
from trainscope.trace.syncs import SyncSite

TIMED = "<timed exec>"


class Notebook:
    """Runs cells as IPython does: in its history first, their code under files of its own."""

    def __init__(self) -> None:
        self.names: dict[str, Any] = {"torch": torch}
        self.history_manager: Any = SimpleNamespace(input_hist_raw=[""], input_hist_parsed=[""])
        self.files = 0

    def run(self, cell: str, body: str | None = None, *, file: str | None = None) -> None:
        """Run a cell; ``body`` is what a magic runs of it, as code of ``file``."""
        run = cell if body is None else "get_ipython().run_cell_magic('time', '', '…')\n"
        self.history_manager.input_hist_raw.append(cell)
        self.history_manager.input_hist_parsed.append(run)
        magics = SimpleNamespace(run_cell_magic=lambda *_: self.execute(body or "", file))
        self.names["get_ipython"] = lambda: magics
        self.execute(run)

    def execute(self, text: str, file: str | None = None) -> None:
        if file is None:
            self.files += 1
            file = f"/tmp/ipykernel_12/{self.files}.py"
            linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
        code = compile(text, file, "exec")
        exec(code if file == TIMED else code.replace(co_name="<cell line: 1>"), self.names)


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> Iterator[Notebook]:
    made = Notebook()
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: made))  # type: ignore[arg-type]
    before = set(linecache.cache)
    cells._named.clear()
    cells._timed.clear()
    yield made
    cells._named.clear()
    for file in set(linecache.cache) - before:
        if file.startswith(("In[", "/tmp/ipykernel_12/")):
            del linecache.cache[file]


def places(sites: tuple[SyncSite, ...]) -> set[tuple[str, str]]:
    return {(f"{site.file}:{site.line}", site.source) for site in sites}


def test_a_cell_has_its_number_and_so_has_the_cell_that_called_it(notebook: Notebook) -> None:
    notebook.run("def read(x):\n    return x.tolist()\n")
    with SyncDetector(dry_run=True) as detector:
        notebook.run("x = torch.zeros((), device='cpu'.lower())")
        notebook.run("# twice\nread(x)\nx.item()\n")
    sites = detector.sites()
    assert places(sites) == {("In[1]:2", "return x.tolist()"), ("In[3]:3", "x.item()")}
    assert {(site.line, site.function) for site in sites} == {(2, "read"), (3, "<module>")}
    assert {site.caller for site in sites if site.file == "In[1]"} == {"In[3]:2"}


def test_at_the_end_when_ipython_has_no_history_a_cell_keeps_its_number(notebook: Notebook) -> None:
    notebook.run("def read(x):\n    return x.tolist()\n")
    with SyncDetector(dry_run=True) as detector:
        notebook.run("read(torch.zeros((), device='cpu'.lower()))")
    notebook.history_manager = None
    assert {(site.file, site.caller) for site in detector.sites()} == {("In[1]", "In[2]:1")}


def test_a_cell_that_is_run_again_has_its_new_number(notebook: Notebook) -> None:
    cell = "x = torch.zeros((), device='cpu'.lower())\nx.item()"
    notebook.run(cell)
    notebook.run("1 + 1")
    with SyncDetector(dry_run=True) as detector:
        notebook.run(cell)
    assert {site.file for site in detector.sites()} == {"In[3]"}


@pytest.mark.parametrize("file", [TIMED, None])
def test_under_a_magic_the_lines_are_those_of_the_cell(
    notebook: Notebook, file: str | None
) -> None:
    make = "x = torch.zeros((), device='cpu'.lower())\n"
    with SyncDetector(dry_run=True) as detector:
        for read in ("x.item()", "x.tolist()"):
            notebook.run(f"%%magic\n\n{make}{read}\n", f"{make}{read}\n", file=file)
    assert places(detector.sites()) == {("In[1]:4", "x.item()"), ("In[2]:4", "x.tolist()")}


def test_code_that_calls_into_a_timed_cell_s_function_is_at_the_cell_s_line(
    notebook: Notebook,
) -> None:
    notebook.run("def read(x):\n    return x.tolist()\n")
    body = "x = torch.zeros((), device='cpu'.lower())\nread(x)\n"
    with SyncDetector(dry_run=True) as detector:
        notebook.run(f"%%time\n{body}", body, file=TIMED)
    notebook.run("later = 1")
    assert {site.caller for site in detector.sites()} == {"In[2]:3"}


def test_the_line_of_a_magic_is_its_own(notebook: Notebook) -> None:
    notebook.run("\n%%time\n1\n", "1")
    call = compile("1", "/tmp/ipykernel_12/1.py", "exec")
    assert cells.cell_of(call) == cells.Cell("In[1]", above=1)


def test_under_time_a_literal_cpu_is_read_in_the_source(notebook: Notebook) -> None:
    body = "x = torch.zeros((), device='cpu'.lower())\nx.to('cpu').item()\n"
    with SyncDetector(dry_run=True) as detector:
        notebook.run(f"%%time\n{body}", body, file=TIMED)
    assert [(site.kind, site.line) for site in detector.sites()] == [("d2h", 3)]


@pytest.mark.gpu
def test_on_a_gpu_a_wait_that_is_no_call_is_named_by_its_source(notebook: Notebook) -> None:
    body = "x = torch.ones(4, device='cuda')\nfor _ in range(3):\n    x[x > 0]\n"
    with SyncDetector() as detector:
        notebook.run(f"%%time\n{body}", body, file=TIMED)
        notebook.run(body)
    told = {(site.kind, f"{site.file}:{site.line}", site.count) for site in detector.sites()}
    assert told == {("nonzero", "In[1]:4", 3), ("nonzero", "In[2]:3", 3)}


def test_code_of_a_magic_within_a_cell_is_at_no_line_of_it(notebook: Notebook) -> None:
    notebook.history_manager.input_hist_raw.append("y = 1\n%time x.item()")
    with SyncDetector(dry_run=True) as detector:
        notebook.execute("x = torch.zeros((), device='cpu'.lower()); x.item()", TIMED)
    assert {site.file for site in detector.sites()} == {TIMED}


def test_a_file_that_a_notebook_imports_keeps_its_name(notebook: Notebook) -> None:
    assert cells.cell_of(compile("1", "/home/me/model.py", "exec")) is None
    with SyncDetector(dry_run=True) as detector:
        torch.zeros((), device="cpu".lower()).item()
    assert {site.file for site in detector.sites()} == {__file__}
