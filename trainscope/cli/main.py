"""The ``trainscope`` command: a table of verbs, none of which loads torch to show its help."""

from __future__ import annotations

import importlib
from importlib.util import find_spec

import typer

from trainscope.cli.run import RunCommand, RunRequest, execute

__all__ = ["app", "main"]

VERBS = {
    "report": "trainscope.cli.report",
    "nsys": "trainscope.cli.nsys",
    "doctor": "trainscope.cli.doctor",
}
"""Verb to the module whose function of that name is the command; none imports torch at its top."""

app = typer.Typer(
    help="Where each training step's time goes, and which line makes the GPU wait.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _register() -> None:
    from trainscope.cli.run import run

    app.command("run", cls=RunCommand)(run)
    for verb, module in VERBS.items():
        if find_spec(module) is None:
            continue
        found = importlib.import_module(module)
        settings = getattr(found, "COMMAND_SETTINGS", {})
        app.command(verb, **settings)(getattr(found, verb))


_register()


@app.callback()
def _root() -> None:
    """Show nothing of its own; makes Typer keep the verbs when there is only one."""


def main() -> None:
    """Run the command line; a script to run starts only once the parser's frames are gone."""
    requests: list[RunRequest] = []
    try:
        app(prog_name="trainscope", obj=requests)
    except SystemExit:
        if not requests:
            raise
    execute(requests[0])
