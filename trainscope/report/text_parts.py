"""The pieces a text report is made of."""

from __future__ import annotations

from io import StringIO

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

__all__ = ["hanging", "heading", "plain", "plain_console", "table"]

INDENT = 2


def plain(text: str) -> str:
    """``text`` without control characters, so that a source line cannot drive the terminal."""
    return "".join(c if c.isprintable() else " " if c.isspace() else "?" for c in text)


def plain_console(file: StringIO, width: int) -> Console:
    """A console that prints to ``file`` without colour, in a notebook too."""
    return Console(
        file=file,
        width=width,
        color_system=None,
        force_terminal=False,
        force_jupyter=False,  # in a notebook it would display what it prints, whatever the file
    )


def heading(text: str) -> Text:
    """A section's title after an empty line."""
    return Text.assemble("\n", (text, "bold cyan"))


def hanging(marker: str, text: str | Text, indent: int = INDENT, style: str = "") -> Padding:
    """An indented paragraph whose later lines stand under the first, after the marker."""
    grid = Table.grid(padding=0)
    if marker:
        grid.add_column(width=len(marker), no_wrap=True)
    grid.add_column(overflow="fold")
    body = text if isinstance(text, Text) else Text(text, style=style)
    grid.add_row(*([Text(marker)] if marker else []), body)
    return Padding(grid, (0, 0, 0, indent))


def table(first: str, *numbers: str) -> Table:
    """An empty table: one column of words that may wrap, then columns of numbers."""
    grid = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=True, header_style="dim")
    grid.add_column(first, overflow="fold")
    for name in numbers:
        grid.add_column(name, justify="right", no_wrap=True)
    return grid
