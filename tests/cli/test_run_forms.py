"""Whatever Python runs: folders, archives, bytecode, standard input, scripts with taken names."""

from __future__ import annotations

import py_compile
import zipapp
from pathlib import Path
from textwrap import dedent

import pytest
from launched import alone, in_place, under_cold_run, under_run, write
from test_run_main import WHAT_MAIN_SEES

LOOP = """
    import torch
    model = torch.nn.Linear(2, 1)
    for step in range(5):
        model(torch.ones(4, 2)).sum().backward()
    print(__name__, model.weight.grad.tolist())
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path, "data.txt", "here")
    write(tmp_path, "app/sibling.py", "NAME = 'beside the program'")
    write(tmp_path, "app/__main__.py", WHAT_MAIN_SEES)
    return tmp_path


@pytest.mark.parametrize("form", ["app", "app.pyz", "app/__main__.pyc"])
def test_a_program_sees_what_it_sees_under_python(form: str, folder: Path) -> None:
    zipapp.create_archive(folder / "app", folder / "app.pyz")
    py_compile.compile(str(folder / "app/__main__.py"), str(folder / "app/__main__.pyc"))
    plain = alone(form, "--help", cwd=folder)
    ours = under_run("--sync", "off", form, "--help", cwd=folder)
    assert plain.status == ours.status == 0, ours.err
    assert "sibling beside the program" in plain.out
    assert ours.out == plain.out
    assert (folder / "runs" / Path(form).stem / "run.json").is_file()


def test_a_program_from_standard_input_sees_what_it_sees_under_python(folder: Path) -> None:
    write(folder, "sibling.py", "NAME = 'in the working directory'")
    program = dedent(WHAT_MAIN_SEES)
    plain = alone("-", "--help", cwd=folder, stdin=program)
    ours = under_run("--sync", "off", "-", "--help", cwd=folder, stdin=program)
    assert plain.status == ours.status == 0, ours.err
    assert ours.out == plain.out
    assert (folder / "runs" / "stdin" / "run.json").is_file()


@pytest.mark.parametrize("name", ["trainscope.py", "random.py", "rich.py", "torch.py"])
def test_a_script_may_have_the_name_of_anything(name: str, tmp_path: Path) -> None:
    program = "print('my own')" if name == "torch.py" else LOOP
    write(tmp_path, f"code/{name}", program)
    ours = under_cold_run(f"code/{name}", cwd=tmp_path)
    assert ours.status == 0, ours.err
    assert ours.out in ("my own\n", "__main__ [[20.0, 20.0]]\n")
    assert "trainscope report runs" in ours.err.replace(f"{tmp_path}/", "")


ENDS = {
    "none": "sys.stdout = sys.stderr = None",
    "closed": "sys.stderr.close()",
    "descriptor": "os.close(2)",
    "full": "sys.stderr = open('/dev/full', 'w', buffering=1)",
    "object": "sys.stderr = object()",
    "argv": "del sys.argv; os.environ.update(RANK='abc', WORLD_SIZE='0')",
    "imports": "os.environ.clear(); sys.path.clear(); sys.meta_path.clear(); sys.modules.clear()",
    "warnings": "warnings.simplefilter('error'); warnings.showwarning = 5; shutil.rmtree('runs')",
    "moved": "os.rename('runs', 'moved'); gc.disable(); __file__ = __name__ = None",
    "recursion": "sys.setrecursionlimit(60)",
    "builtins": "builtins.print = builtins.open = builtins.isinstance = builtins.len = None",
}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_the_status_stays_the_programs_whatever_it_leaves_behind(end: str, place: Path) -> None:
    names = "import builtins, gc, os, shutil, sys, warnings"
    (place / "runs").mkdir()
    plain = in_place(place, f"{LOOP}\n    {names}\n    {end}\n    raise SystemExit(7)\n")
    (place / "runs").mkdir(exist_ok=True)
    ours = under_run("--active", "0", "train.py", cwd=place)
    assert plain.status in (7, 120), plain.err  # 120: Python could not flush standard error
    assert (ours.status, ours.out) == (plain.status, plain.out), ours.err
