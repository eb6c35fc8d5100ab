"""``trainscope bench``: time the benchmarks that installed packages offer. Help needs no torch."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trainscope.cli.output import error_line, show_any_character

if TYPE_CHECKING:
    import torch

    from trainscope.bench.entry_points import Benchmark
    from trainscope.bench.model import Comparison

__all__ = ["bench"]

JSON_SCHEMA_VERSION = 1


def bench(
    name: Annotated[
        str | None, typer.Argument(help="A benchmark; without one, those that are installed.")
    ] = None,
    filter: Annotated[
        str, typer.Option("--filter", help="Only the cases whose name contains this.")
    ] = "",
    device: Annotated[
        str | None,
        typer.Option(help="Where to make the inputs: cpu, cuda or cuda:1; a GPU if there is one."),
    ] = None,
    seconds: Annotated[
        float, typer.Option(help="How long to time each function; slow ones take longer.")
    ] = 0.5,
    baseline: Annotated[
        str | None,
        typer.Option(help="Whose time the others are ratios to; the reference's unless given."),
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write every result to this file too.")
    ] = None,
    remeasure: Annotated[
        bool, typer.Option("--remeasure", help="Measure this device's ceilings anew, first.")
    ] = False,
) -> None:
    """Time a benchmark's functions in turn, each only once its outputs agree with the reference.

    The exit status is 1 when a case failed, or a function was refused or is not believable.
    """
    from trainscope.bench.entry_points import found
    from trainscope.errors import TrainscopeError

    show_any_character()
    if name is None:
        for each in found().values():
            typer.echo(f"{each.name}  {each.value}")
        if not found():
            typer.echo(
                "no benchmarks are installed; a package offers them in trainscope.benchmarks"
            )
        return
    try:
        good = _run(name, filter, device, seconds, baseline, json_file, remeasure=remeasure)
    except TrainscopeError as error:
        error_line("bench", error)
        raise typer.Exit(2) from None
    if not good:
        raise typer.Exit(1)


def _run(
    name: str,
    part: str,
    device: str | None,
    seconds: float,
    baseline: str | None,
    json_file: Path | None,
    *,
    remeasure: bool,
) -> bool:
    """Whether every function of every case got a time that is believable."""
    from rich.console import Console

    from trainscope.bench.cases import run_case, select
    from trainscope.bench.device import device_named
    from trainscope.bench.measure import effort
    from trainscope.bench.table import show, text_of
    from trainscope.errors import TrainscopeError

    place = device_named(device)
    effort(None, seconds)
    cases: list[Benchmark] = select(name, part, place)
    _check_baseline(cases, baseline)
    if remeasure:
        _remeasure(place)
    results: list[Comparison] = []
    failed = False
    if json_file is not None:
        _check_writable(json_file)
    for case in cases:
        try:
            result = run_case(case, place, seconds=seconds, baseline=baseline)
        except TrainscopeError as error:  # the other cases are worth their time
            error_line("bench", f"{case.name}: {error}")
            failed = True
            continue
        results.append(result)
        if sys.stdout.isatty():
            show(result, Console())
        else:
            typer.echo(text_of(result), nl=False)
        typer.echo()
        if json_file is not None:  # after each, so that an interrupted run keeps what it has
            _write(json_file, name, results)
    if json_file is not None and not results:
        _write(json_file, name, results)
    return not failed and not any(_bad(result) for result in results)


def _remeasure(place: torch.device) -> None:
    import torch

    from trainscope.bench.ceilings import ceiling

    ceiling("copy", place, remeasure=True)
    for dtype in (torch.bfloat16, torch.float32):
        ceiling("matmul", place, dtype, remeasure=True)


def _check_baseline(cases: list[Benchmark], baseline: str | None) -> None:
    from trainscope.errors import ConfigError

    if baseline is not None and not any(baseline in case.impls for case in cases):
        names = ", ".join(dict.fromkeys(name for case in cases for name in case.impls))
        raise ConfigError(f"--baseline {baseline!r} is none of the functions: {names}")


def _check_writable(file: Path) -> None:
    """Tell before the work what cannot be written; what the file holds stays until there is more.

    Raises ConfigError.
    """
    from trainscope.errors import ConfigError

    try:
        if file.is_fifo():  # opening it waits for whoever reads it
            raise ConfigError(f"--json {file} is a pipe; name a file")
        with file.open("a", encoding="utf-8"):
            pass
    except OSError as error:
        raise _unwritable(file, error) from None


def _write(file: Path, name: str, results: list[Comparison]) -> None:
    """Replace the file's content; a number that JSON has not is null."""
    document = {
        "schema_version": JSON_SCHEMA_VERSION,
        "benchmark": name,
        "results": [json.loads(result.model_dump_json()) for result in results],
    }
    try:
        file.write_text(json.dumps(document, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    except OSError as error:
        raise _unwritable(file, error) from None


def _unwritable(file: Path, error: OSError) -> Exception:
    from trainscope.errors import ConfigError

    return ConfigError(
        f"--json {file} cannot be written: {error.strerror}; name a file in a directory that exists"
    )


def _bad(result: Comparison) -> bool:
    return any(
        row.refused is not None or any(flag.code == "not-believable" for flag in row.flags)
        for row in result.rows
    )
