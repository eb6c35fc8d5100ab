"""The ``trainscope`` command: a table of verbs, none of which loads torch to show its help."""

from __future__ import annotations

import importlib
from importlib.util import find_spec
from typing import Annotated

import typer

from trainscope import __version__
from trainscope.cli.run import RunCommand, RunRequest, execute

__all__ = ["app", "main"]

VERBS = {
    "report": "trainscope.cli.report",
    "compare": "trainscope.cli.compare",
    "check": "trainscope.cli.check",
    "bench": "trainscope.cli.bench",
    "nsys": "trainscope.cli.nsys",
    "doctor": "trainscope.cli.doctor",
}
"""Verb to the module whose function of that name is the command; none imports torch at its top."""

app = typer.Typer(
    help="Where each training step's time goes, and which line makes the CPU wait.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",  # lines of a docstring flow together to paragraphs
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


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"trainscope {__version__}")
        raise typer.Exit()


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """Take the options that stand before the verb."""


def main() -> None:
    """Run the command line; a script to run starts only once the parser's frames are gone."""
    requests: list[RunRequest] = []
    try:
        app(prog_name="trainscope", obj=requests)
    except SystemExit:
        if not requests:
            raise
    execute(requests[0])
