"""``trainscope compare``: what changed from one run to another. Imports no torch."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from trainscope.cli.output import error_line, show_any_character
from trainscope.cli.report_format import TextFormat

__all__ = ["compare"]


def compare(
    before: Annotated[Path, typer.Argument(help="A run directory or a trace.")],
    after: Annotated[Path, typer.Argument(help="Another one, recorded after the change.")],
    format: Annotated[TextFormat, typer.Option(help="text or json.")] = TextFormat.text,
) -> None:
    """Say what changed from BEFORE to AFTER: step and phase times, syncs, idle time, kernels.

    A change of times comes with a 95 % interval from the noise within each run.
    """
    from rich.console import Console

    from trainscope import api
    from trainscope.errors import TrainscopeError
    from trainscope.report import json
    from trainscope.report.compare import text

    show_any_character()
    try:
        comparison = api.compare(api.load(before), api.load(after))
    except TrainscopeError as error:
        error_line("compare", error)
        raise typer.Exit(2) from None
    if format is TextFormat.json:
        typer.echo(json.render(comparison), nl=False)
    elif sys.stdout.isatty():
        text.show(comparison, Console())
    else:
        typer.echo(text.render(comparison), nl=False)
