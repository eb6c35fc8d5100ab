"""``trainscope doctor``: what works on this machine, and what to do about what does not."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from enum import Enum
from typing import Annotated

import typer

from trainscope.cli.doctor_checks import Check, Status, checks

__all__ = ["DOCTOR_SCHEMA_VERSION", "Format", "as_json", "as_table", "doctor"]

DOCTOR_SCHEMA_VERSION = 1
_STYLE = {Status.ok: "green", Status.attention: "yellow", Status.not_there: "dim"}


class Format(str, Enum):
    """What the findings can be written as."""

    text = "text"
    json = "json"


def doctor(
    format: Annotated[Format, typer.Option(help="text or json.")] = Format.text,
) -> None:
    """Say what works on this machine, and what to do about what does not.

    The exit status is 1 only when something that trainscope needs is broken.
    """
    from trainscope.cli.doctor_probes import look

    found = checks(look())
    typer.echo(as_json(found) if format is Format.json else as_table(found), nl=False)
    if any(check.broken for check in found):
        raise typer.Exit(1)


def as_json(found: Sequence[Check]) -> str:
    """The checks as one JSON object."""
    rows = [asdict(check) for check in found]
    ok = not any(check.broken for check in found)
    document = {"schema_version": DOCTOR_SCHEMA_VERSION, "ok": ok, "checks": rows}
    return json.dumps(document, indent=2) + "\n"


def as_table(found: Sequence[Check], width: int | None = None) -> str:
    """The checks as a table and a verdict; coloured on a terminal, else plain and 100 wide."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(width=width)
    if width is None and not console.is_terminal:
        console.width = 100
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_edge=False)
    for heading in ("what", "", "found"):
        table.add_column(heading, overflow="fold")
    for check in found:
        told = Text(check.found)
        if check.todo:
            told.append(f"\n-> {check.todo}", style=_STYLE[check.status])
        table.add_row(check.name, Text(check.status.value, style=_STYLE[check.status]), told)
    with console.capture() as captured:
        console.print(table)
        console.print()
        console.print(_verdict(found), highlight=False)
    return captured.get()


def _verdict(found: Sequence[Check]) -> str:
    broken = [check.name for check in found if check.broken]
    if broken:
        return f"trainscope cannot work here: {', '.join(broken)}"
    attention = [check.name for check in found if check.status is Status.attention]
    if attention:
        return f"trainscope works here; worth a look: {', '.join(attention)}"
    return "trainscope works here"
