"""``trainscope check``: fail a CI when a run has a new sync or exceeds a budget. No torch."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trainscope.cli.report_format import TextFormat

__all__ = ["check"]


def check(
    run_dir: Annotated[
        Path, typer.Argument(metavar="RUN_DIR", help="A run directory, such as runs/mlp.")
    ],
    baseline: Annotated[
        Path,
        typer.Option(help="The file of known syncs and budgets: JSON, to be committed."),
    ],
    update: Annotated[
        bool,
        typer.Option(
            "--update", help="Write the run's syncs into the baseline; budgets and reasons stay."
        ),
    ] = False,
    format: Annotated[TextFormat, typer.Option(help="text or json.")] = TextFormat.text,
) -> None:
    """Hold a run against a baseline: exit 1 on a new sync or an exceeded budget, 2 on an error.

    A sync is known by file, function, source text and kind, so code may move. Syncs under
    `allow_sync` are not looked at. Budgets are edited in the file: step_ms, syncs_per_step,
    blocked_ms_per_step, gpu_idle_ms_per_step.
    """
    from trainscope import api
    from trainscope.errors import ConfigError, TrainscopeError
    from trainscope.report.gate.baseline import read_baseline, write_baseline
    from trainscope.report.gate.judge import judge, updated
    from trainscope.report.gate.text import render

    try:
        known = read_baseline(baseline) if baseline.exists() else None
        if known is None and not update:
            raise ConfigError(
                f"--baseline {baseline} does not exist: write it from this run with --update, "
                "read it, and commit it"
            )
        trace = api.load(run_dir)
        if update:
            new = updated(trace, known)
            write_baseline(baseline, new)
            typer.echo(f"{baseline}: {len(new.syncs)} known sync(s) written")
            return
        assert known is not None
        judgement = judge(trace, api.analyze(trace), known)
    except TrainscopeError as error:
        typer.echo(f"trainscope check: {error}", err=True)
        raise typer.Exit(2) from None
    if format is TextFormat.json:
        typer.echo(judgement.model_dump_json(indent=2))
    else:
        typer.echo(render(judgement), nl=False)
    if not judgement.passed:
        raise typer.Exit(1)
