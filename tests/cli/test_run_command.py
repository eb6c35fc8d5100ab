"""The command itself: its options, what it refuses, and that its help needs no torch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from launched import alone, in_place, under_cold_run, under_run, write
from typer.testing import CliRunner

from trainscope.cli.main import app
from trainscope.cli.run import RunRequest


def parsed(*words: str) -> RunRequest:
    """What ``trainscope run WORDS`` asks for."""
    requests: list[RunRequest] = []
    result = CliRunner().invoke(app, ["run", *words], obj=requests)
    assert result.exit_code == 0, result.output
    (request,) = requests
    return request


@pytest.mark.parametrize(
    ("words", "target", "is_module", "args"),
    [
        (["a.py", "--help"], "a.py", False, ("--help",)),
        (["a.py", "-m", "b", "--wait", "1"], "a.py", False, ("-m", "b", "--wait", "1")),
        (["--wait", "1", "a.py", "--", "x"], "a.py", False, ("--", "x")),
        (["--wait=1", "--", "a.py", "x"], "a.py", False, ("x",)),
        (["-m", "b"], "b", True, ()),
        (["-mb", "--help"], "b", True, ("--help",)),
        (["--dry-run", "-m", "b", "--wait", "7", "-m", "c"], "b", True, ("--wait", "7", "-m", "c")),
        (["--run-dir", "-m", "-m", "b", "x"], "b", True, ("x",)),
    ],
)
def test_all_after_the_program_is_the_programs(
    words: list[str], target: str, is_module: bool, args: tuple[str, ...]
) -> None:
    request = parsed(*words)
    assert (request.target, request.is_module, request.args) == (target, is_module, tuple(args))


def test_options_before_the_program_are_ours() -> None:
    steps = ("--wait", "5", "--warmup", "1", "--active", "2")
    request = parsed("--dry-run", "--run-dir=D", *steps, "--sync", "warn", "--stacks", "a.py")
    assert request.run_dir == Path("D")
    assert (request.wait, request.warmup, request.active) == (5, 1, 2)
    assert (request.sync, request.stacks, request.dry_run) == ("warn", True, True)


@pytest.mark.parametrize("verb", ["--help", "run --help", "report --help", "nsys --help"])
def test_help_loads_no_torch(verb: str) -> None:
    command = [sys.executable, "-X", "importtime", "-m", "trainscope", *verb.split()]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "typer" in loaded
    assert not loaded & {"torch", "numpy"}


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        ([], 2, "name a script to run, or a module with -m"),
        (["absent.py"], 2, "absent.py': No such file or directory"),
        (["folder"], 1, "'folder' is a folder with no __main__.py; name a Python file, or"),
        (["-m", "no_such_module_here"], 1, "no module named 'no_such_module_here'"),
        (["-m", "folder.absent"], 1, "no module named 'folder.absent'"),
        (["binary.py"], 1, "binary.py is not Python source: it holds null bytes"),
        (["book.ipynb"], 1, "'book.ipynb' is a notebook, which is run in a kernel: make a"),
        (["--wait", "-1", "ok.py"], 2, "--wait"),
        (
            ["-m", "torch.distributed.run", "ok.py"],
            2,
            "let it start trainscope: python -m torch.distributed.run … -m trainscope run train.py",
        ),
        (["torchrun", "ok.py"], 2, "start trainscope: torchrun … -m trainscope run train.py"),
        (["accelerate", "launch", "ok.py"], 2, "accelerate launch … -m trainscope run train.py"),
        (["python3", "ok.py"], 2, "name the script without Python: trainscope run train.py"),
        (["env", "ok.py"], 2, "the command of that name: trainscope run /"),
        (["--sync", "loud", "ok.py"], 2, "loud"),
        (["--lr", "3", "ok.py"], 2, "No such option"),
    ],
)
def test_what_cannot_be_run_is_refused(
    words: list[str], status: int, said: str, tmp_path: Path
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "binary.py").write_bytes(b"\x7fELF\0\0")
    write(tmp_path, "book.ipynb", '{"cells": []}')
    write(tmp_path, "ok.py", "")
    ours = under_cold_run(*words, cwd=tmp_path)
    assert ours.status == status, ours.err
    assert said in " ".join(ours.err.replace("│", " ").split())
    assert "Traceback" not in ours.err
    assert not (tmp_path / "runs").exists()


def test_a_directory_that_cannot_be_is_told_in_one_line(tmp_path: Path) -> None:
    write(tmp_path, "train.py", "")
    ours = under_run("--dry-run", "--run-dir", "train.py", "train.py", cwd=tmp_path)
    assert ours.status == 2
    place = tmp_path / "train.py"
    said = f"trainscope run: {place} is a file; a run needs a directory: give another name\n"
    assert ours.err == said


def test_a_syntax_error_reads_as_python_shows_it(tmp_path: Path) -> None:
    write(tmp_path, "train.py", "for x in range(3):\nprint(x)\n")
    plain = alone("train.py", cwd=tmp_path)
    ours = under_run("train.py", cwd=tmp_path)
    assert (ours.status, ours.err) == (plain.status, plain.err)
    assert not (tmp_path / "runs").exists()


def test_without_a_gpu_it_says_that_it_is_a_dry_run(tmp_path: Path) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    write(tmp_path, "train.py", "print('ran')")
    ours = under_run("train.py", cwd=tmp_path)
    assert (ours.status, ours.out) == (0, "ran\n")
    assert ours.err.startswith("trainscope: no CUDA device here, so this is a dry run")


def test_torch_keeps_its_state_for_the_program(place: Path) -> None:
    program = """
        import torch
        print(torch.cuda.is_initialized(), torch.is_grad_enabled())
        print(torch.manual_seed(0).initial_seed(), torch.randn(3).tolist())
        print(torch.nn.Module.__call__.__name__, torch.optim.SGD.step.__name__)
    """
    plain = in_place(place, program)
    ours = under_run("train.py", cwd=place)
    assert ours.out == plain.out, ours.err


def test_switched_off_it_only_runs_the_program(tmp_path: Path) -> None:
    write(tmp_path, "train.py", "print('here')")
    done = subprocess.run(
        [sys.executable, "-m", "trainscope", "run", "train.py"],
        cwd=tmp_path,
        env={**os.environ, "TRAINSCOPE_DISABLED": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "here\n", "")
    assert not (tmp_path / "runs").exists()
