"""How the verbs write: an error is one line on standard error, and no character ends them."""

from __future__ import annotations

import sys
from typing import TextIO

import typer

__all__ = ["error_line", "show_any_character"]


def error_line(verb: str, error: Exception | str) -> None:
    """Print ``trainscope VERB: …`` in one line, without what would drive the terminal."""
    from trainscope.report.text_parts import plain

    typer.echo(f"trainscope {verb}: {plain(str(error))}", err=True)


def show_any_character() -> None:
    """Let standard output replace what its encoding lacks: a name in another script, a µ."""
    stream: TextIO = sys.stdout
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is not None and stream.errors == "strict":
        reconfigure(errors="replace")
