"""``trainscope run script.py args…``: record a program that was not edited."""

from __future__ import annotations

import importlib
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer.core import TyperCommand

from trainscope.cli.launchers import behind_launcher
from trainscope.cli.nsys_watch import leave_pid
from trainscope.cli.script import (
    Program,
    ProgramError,
    load_module,
    load_script,
    show_own_traceback,
)
from trainscope.errors import TrainscopeError
from trainscope.notice import say

if TYPE_CHECKING:
    from trainscope.cli.recording import Recording

__all__ = ["RunCommand", "RunRequest", "execute", "run"]

SyncMode = Literal["record", "warn", "error", "off"]


@dataclass(frozen=True)
class RunRequest:
    """What ``trainscope run`` was asked for."""

    target: str
    is_module: bool
    args: tuple[str, ...]
    run_dir: Path | None
    wait: int
    warmup: int
    active: int
    sync: SyncMode
    stacks: bool
    dry_run: bool

    def load(self) -> Program:
        """Find and compile the program. Raises ProgramError or SyntaxError."""
        return load_module(self.target) if self.is_module else load_script(self.target)


class RunCommand(TyperCommand):
    """All that follows the script, or the module of ``-m``, is the program's, ``--help`` too."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put a ``--`` where our own options end, then let click parse."""
        takes_value = {
            name
            for parameter in self.params
            if parameter.param_type_name == "option" and not getattr(parameter, "is_flag", False)
            for name in (*parameter.opts, *parameter.secondary_opts)
        }
        at = 0
        while at < len(args) and args[at].startswith("-") and args[at] not in ("-", "--"):
            arg = args[at]
            if arg.startswith("-m") and not arg.startswith("--"):
                at += 2 if arg == "-m" else 1
                args = [*args[:at], "--", *args[at:]]
                break
            at += 2 if arg in takes_value else 1
        else:
            if at < len(args) and args[at] != "--":
                args = [*args[:at], "--", *args[at:]]
        return super().parse_args(ctx, args)


def run(
    ctx: typer.Context,
    program: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="SCRIPT [ARGS]...",
            help="The script, then its own arguments; with -m only its arguments.",
            show_default=False,
        ),
    ] = None,
    module: Annotated[
        str | None,
        typer.Option("-m", metavar="MODULE", help="Run a module, as python -m does."),
    ] = None,
    run_dir: Annotated[
        Path | None,
        typer.Option(help="Where the files go. Default: runs/NAME-OF-THE-SCRIPT."),
    ] = None,
    wait: Annotated[int, typer.Option(help="Steps before the captured window.", min=0)] = 20,
    warmup: Annotated[int, typer.Option(help="Steps with the profiler warming up.", min=0)] = 3,
    active: Annotated[int, typer.Option(help="Steps captured; 0 for no window.", min=0)] = 4,
    sync: Annotated[
        SyncMode, typer.Option(help="What happens at a line that waits for the GPU.")
    ] = "record",
    stacks: Annotated[
        bool, typer.Option("--stacks", help="Record Python stacks in the window (slows it).")
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Without a GPU: find the lines that would wait for one."),
    ] = False,
) -> None:
    """Run a training script, unedited, and report where its steps spend their time.

    The steps are inferred, the report goes to standard error when the program ends, and the exit
    status is the program's. A program that ends in os._exit, replaces itself by os.execv, or is
    killed outright, ends without a report; what was recorded by then is in the run directory.
    """
    words = list(program or ())
    if module is None and not words:
        raise typer.BadParameter("name a script to run, or a module with -m", param_hint="SCRIPT")
    ctx.obj.append(
        RunRequest(
            target=module if module is not None else words[0],
            is_module=module is not None,
            args=tuple(words if module is not None else words[1:]),
            run_dir=run_dir,
            wait=wait,
            warmup=warmup,
            active=active,
            sync=sync,
            stacks=stacks,
            dry_run=dry_run,
        )
    )


def execute(request: RunRequest) -> None:
    """Run the program under a recording. Its exception, ``SystemExit`` too, goes on to Python."""
    leave_pid(os.environ)
    try:
        program = request.load()
    except ProgramError as error:
        say(f"trainscope run: {error}")
        raise SystemExit(error.status) from None
    except SyntaxError as error:
        sys.excepthook(type(error), error.with_traceback(None), None)
        raise SystemExit(1) from None
    from trainscope.record.settings import switched_off

    if not switched_off():
        launcher = behind_launcher(request.target, request.args)
        if launcher is not None:
            say(
                f"trainscope run: {request.target} starts the training in processes of their own, "
                f"which would not be recorded; let it start trainscope: {launcher}"
            )
            raise SystemExit(2)
        # before the program's folder comes first on sys.path: it may hold a torch.py of its own
        importlib.import_module("trainscope.cli.recording")
    program.prepare(request.args)
    recording = None if switched_off() else _start(request, program)
    pid = os.getpid()
    try:
        program.run()
    except SystemExit:  # which shows no traceback
        if recording is not None and os.getpid() == pid:
            recording.finish_left()
        raise
    except BaseException:
        show_own_traceback(program)
        raise
    finally:
        # a child made by os.fork comes through here as well, and the recording is its parent's
        if recording is not None and os.getpid() == pid:
            recording.finish()


def _start(request: RunRequest, program: Program) -> Recording:
    from trainscope.cli.recording import Recording  # imports torch

    try:
        return Recording(
            request.run_dir if request.run_dir is not None else Path("runs") / program.name,
            window=(request.wait, request.warmup, request.active),
            sync=request.sync,
            stacks=request.stacks,
            dry_run=request.dry_run,
        )
    except TrainscopeError as error:
        say(f"trainscope run: {error}")
        raise SystemExit(2) from None
