"""``trainscope report``: read a run or a trace and say what it shows. Imports no torch."""

from __future__ import annotations

import sys
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trainscope.cli.later_run import tell_of_a_later_run
from trainscope.cli.output import error_line, show_any_character

if TYPE_CHECKING:
    from trainscope.trace.trace import Trace

__all__ = ["Format", "report"]


class Format(str, Enum):
    """What a report can be written as."""

    text = "text"
    json = "json"
    html = "html"


def report(
    path: Annotated[
        Path,
        typer.Argument(
            help="A run directory, such as runs/mlp, or a trace of torch.profiler or nsys."
        ),
    ],
    format: Annotated[
        Format, typer.Option(help="text, json, or html: one page that works offline.")
    ] = Format.text,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write to this file.")
    ] = None,
    step_ms: Annotated[
        float | None,
        typer.Option(
            "--step-ms",
            help="Time of a step in ms with no profiler on: a trace alone does not tell how far "
            "profiling slowed the loop. A run directory knows it.",
        ),
    ] = None,
    keep: Annotated[
        list[str] | None,
        typer.Option(
            "--keep",
            metavar="PLACE",
            help="A place that waits and must stay, such as train.py:42, in the report's words: "
            "the replay takes all others out. May be given several times.",
        ),
    ] = None,
) -> None:
    """Say where each step's time went and which lines made the CPU wait."""
    from trainscope import api
    from trainscope.errors import TrainscopeError
    from trainscope.report import json, text

    show_any_character()
    try:
        trace = _load(path)
        tell_of_a_later_run("report", trace)
        if format is Format.html:
            if output is None and sys.stdout.isatty():
                typer.echo("trainscope report: a page is no text; add -o page.html", err=True)
                raise typer.Exit(2)
            _put(output, api.page(trace, step_ms=step_ms, keep=keep or ()))
            return
        made = api.analyze(trace, step_ms=step_ms, keep=keep or ())
    except TrainscopeError as error:
        error_line("report", error)
        raise typer.Exit(2) from None
    if output is not None or format is Format.json:
        _put(output, json.render(made) if format is Format.json else text.render(made))
    else:
        _show(made)


def _put(output: Path | None, rendered: str) -> None:
    if output is None:
        typer.echo(rendered, nl=False)
    else:
        _write(output, rendered)


def _load(path: Path) -> Trace:
    """The trace, with a progress bar on standard error where reading takes more than a second."""
    from time import monotonic

    from rich.console import Console
    from rich.progress import Progress

    from trainscope import api

    began_s = monotonic()
    bar = Progress(console=Console(stderr=True), transient=True)
    task = bar.add_task(f"reading {path.name}")

    def show(done: int, total: int) -> None:
        if monotonic() - began_s > 1:
            bar.start()  # once more does nothing
            bar.update(task, completed=done, total=total)

    try:
        return api.load(path, progress=show)
    finally:
        if bar.live.is_started:
            bar.stop()


def _write(output: Path, rendered: str) -> None:
    from trainscope.trace.whole_file import how_to_write, write_whole_file

    try:
        write_whole_file(output, rendered)
    except OSError as error:
        words = f"--output {output} cannot be written: {error.strerror}; {how_to_write(error)}"
        error_line("report", words)
        raise typer.Exit(2) from None


def _show(made: object) -> None:
    """Print in the terminal's width and colours; plain and 100 wide where it is none."""
    from rich.console import Console

    from trainscope.report import text
    from trainscope.report.model import Report

    assert isinstance(made, Report)
    if not sys.stdout.isatty():
        typer.echo(text.render(made), nl=False)
        return
    text.show(made, Console())
