"""``trainscope nsys script.py args…``: a program under Nsight Systems, with our ranges in it."""

from __future__ import annotations

import itertools
import os
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from trainscope.cli.nsys_tool import (
    GET_NSYS,
    cuda_of_torch,
    find_nsys,
    lost_rows_note,
    nsys_version,
    tried_note,
)
from trainscope.cli.nsys_watch import PID_FILE_VARIABLE, wait_for
from trainscope.cli.run import RunCommand

__all__ = ["COMMAND_SETTINGS", "NsysPlan", "command_line", "nsys"]

COMMAND_SETTINGS = {"cls": RunCommand}

_NOT_FOUND = 127  # as a shell says it
_WINDOW = {"wait": 20, "warmup": 3, "active": 4}


@dataclass(frozen=True)
class NsysPlan:
    """What is to be profiled and where the files go."""

    target: tuple[str, ...]
    """The script, or ``-m`` and a module, and its arguments."""
    run_dir: Path
    report: Path
    """Without the ending ``.nsys-rep``, which nsys adds."""
    window: Mapping[str, int] | None
    """``wait``, ``warmup`` and ``active`` steps, or None for the whole program."""
    trace: str = "cuda,nvtx,osrt"


def command_line(plan: NsysPlan, *, nsys_path: str, python: str) -> list[str]:
    """The words of the whole command.

    CPU sampling is off: it slows the program down and shows no ranges. The end of the capture
    range is named because its default ends the program in some versions of nsys. Processes that
    the program leaves behind, a service of a logger say, are not waited for.
    """
    words = [nsys_path, "profile", f"--trace={plan.trace}", "--sample=none", "--cpuctxsw=none"]
    words.append("--wait=primary")
    if plan.window is not None:
        words += ["--capture-range=cudaProfilerApi", "--capture-range-end=stop"]
    words += [f"--output={plan.report}", python, "-m", "trainscope", "run"]
    words += [f"--run-dir={plan.run_dir}"]
    window = {"active": 0} if plan.window is None else plan.window
    words += [f"--{name}={steps}" for name, steps in window.items()]
    return [*words, *plan.target]


def nsys(
    program: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="SCRIPT [ARGS]...",
            help="The script, then its own arguments; with -m only its arguments.",
            show_default=False,
        ),
    ] = None,
    module: Annotated[
        str | None, typer.Option("-m", metavar="MODULE", help="Run a module, as python -m does.")
    ] = None,
    run_dir: Annotated[
        Path | None, typer.Option(help="Where the files go. Default: runs/NAME-OF-THE-SCRIPT.")
    ] = None,
    wait: Annotated[
        int | None,
        typer.Option(min=0, help="Steps before the window; with none of these three: no window."),
    ] = None,
    warmup: Annotated[
        int | None, typer.Option(min=0, help="Steps between those and the window.")
    ] = None,
    active: Annotated[int | None, typer.Option(min=1, help="Steps in the window.")] = None,
    trace: Annotated[str, typer.Option(help="What nsys traces.")] = "cuda,nvtx,osrt",
    print_command: Annotated[
        bool, typer.Option("--print-command", help="Print the command and run nothing.")
    ] = False,
) -> None:
    """Profile a training script, unedited, with Nsight Systems: steps and phases on its timeline.

    Without --wait, --warmup or --active the whole program is in the timeline, else the window of
    these steps. The exit status is the program's; 127 when there is no nsys.
    """
    words = tuple(program or ())
    if module is None and not words:
        raise typer.BadParameter("name a script to run, or a module with -m", param_hint="SCRIPT")
    name = Path(words[0]).stem if module is None else module.removesuffix(".__main__")
    plan = _plan(
        words if module is None else ("-m", module, *words),
        run_dir if run_dir is not None else Path("runs") / name.rpartition(".")[2],
        {"wait": wait, "warmup": warmup, "active": active},
        trace,
        os.environ,
    )
    found = find_nsys(os.environ)
    line = command_line(plan, nsys_path=str(found or "nsys"), python=sys.executable)
    if print_command:
        typer.echo(shlex.join(line))
        return
    if found is None:
        given = os.environ.get("NSYS")
        where = f"NSYS={given} names no program" if given else "there is no nsys on PATH"
        _tell(f"{where}; {GET_NSYS}")
        raise typer.Exit(_NOT_FOUND)
    version = nsys_version(found)
    if version is None:
        _tell(f"{found} --version prints no version")
    else:
        whole = plan.window is None
        for note in (
            tried_note(version),
            lost_rows_note(version, cuda_of_torch()) if whole else None,
        ):
            if note is not None:
                _tell(note)
    plan.run_dir.mkdir(parents=True, exist_ok=True)
    status = _run(line, plan)
    _say_where(plan)
    raise typer.Exit(status)


def _plan(
    target: tuple[str, ...],
    asked: Path,
    steps: Mapping[str, int | None],
    trace: str,
    environ: Mapping[str, str],
) -> NsysPlan:
    window = None
    if any(value is not None for value in steps.values()):
        given = {name: value for name, value in steps.items() if value is not None}
        window = {**_WINDOW, **given}
    rank = environ.get("RANK", "0")
    # each rank has an nsys of its own, and they must agree on the directory
    alone = environ.get("WORLD_SIZE", "1") == "1"
    directory = _unused(asked) if alone else asked
    return NsysPlan(target, directory, directory / f"nsys-rank{rank}", window, trace)


def _unused(asked: Path) -> Path:
    """``asked``, or ``asked-2``, ``asked-3`` … where it holds anything, as for any run."""
    siblings = (asked.with_name(f"{asked.name}-{number}") for number in itertools.count(2))
    for path in itertools.chain([asked], siblings):
        if not path.exists() or (path.is_dir() and not any(path.iterdir())):
            return path
    raise AssertionError("the siblings never end")


def _run(line: Sequence[str], plan: NsysPlan) -> int:
    """Run it to its end; returns the status a shell would show."""
    handle, name = tempfile.mkstemp(prefix="trainscope-nsys-", suffix=".pid")
    os.close(handle)
    pid_file = Path(name)
    process = subprocess.Popen(line, env={**os.environ, PID_FILE_VARIABLE: name})
    before = signal.signal(signal.SIGTERM, lambda *_: process.terminate())
    try:
        return wait_for(process, pid_file, report=_report_of(plan), tell=_tell)
    finally:
        signal.signal(signal.SIGTERM, before)
        pid_file.unlink(missing_ok=True)


def _report_of(plan: NsysPlan) -> Path:
    return plan.report.with_name(f"{plan.report.name}.nsys-rep")


def _say_where(plan: NsysPlan) -> None:
    report = _report_of(plan)
    if report.is_file():
        _tell(f"the timeline is in {report}; open it with: nsys-ui {shlex.quote(str(report))}")
    elif (raw := report.with_suffix(".qdstrm")).is_file():
        _tell(
            f"nsys wrote only its raw record, {raw}: the importer that makes a report of it is "
            "not beside this nsys. Copy it to a machine with a whole Nsight Systems of the same "
            "version and run QdstrmImporter there"
        )
    elif plan.window is not None:
        steps = " ".join(f"--{name} {count}" for name, count in plan.window.items())
        _tell(
            f"nsys wrote no timeline: the window ({steps}) never began. It needs a GPU and "
            "a program of more steps than that; without these options the whole program is shown"
        )
    else:
        _tell(f"nsys wrote no {report}; what it says above tells why")


def _tell(text: str) -> None:
    typer.echo(f"trainscope nsys: {text}", err=True)
