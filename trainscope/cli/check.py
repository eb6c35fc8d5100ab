"""``trainscope check``: fail a CI when a run has a new sync or exceeds a budget. No torch."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trainscope.cli.later_run import tell_of_a_later_run
from trainscope.cli.output import error_line, show_any_character
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
    from trainscope.errors import TrainscopeError

    show_any_character()
    try:
        if update:
            _update(run_dir, baseline, format)
            return
        passed = _hold(run_dir, baseline, format)
    except TrainscopeError as error:
        error_line("check", error)
        raise typer.Exit(2) from None
    if not passed:
        raise typer.Exit(1)


def _update(run_dir: Path, baseline: Path, format: TextFormat) -> None:
    from trainscope import api
    from trainscope.errors import ConfigError
    from trainscope.report.gate.baseline_file import read_baseline, write_baseline
    from trainscope.report.gate.judge import updated
    from trainscope.report.text_parts import plain
    from trainscope.report.wording import count_of

    if format is TextFormat.json:
        raise ConfigError("--update judges nothing that --format json could show: leave one out")
    known = read_baseline(baseline)
    trace = api.load(run_dir)
    tell_of_a_later_run("check", trace)
    new = updated(trace, known)
    write_baseline(baseline, new)
    written = count_of(len(new.syncs), "known sync")
    typer.echo(plain(f"{baseline}: {written} written"))


def _hold(run_dir: Path, baseline: Path, format: TextFormat) -> bool:
    """Print the judgement; whether the run passed."""
    from trainscope import api
    from trainscope.errors import ConfigError
    from trainscope.report import json
    from trainscope.report.gate.baseline_file import read_baseline
    from trainscope.report.gate.judge import judge
    from trainscope.report.gate.text import render

    known = read_baseline(baseline)
    if known is None:
        raise ConfigError(
            f"--baseline {baseline} does not exist: write it from this run with --update, "
            "read it, and commit it"
        )
    trace = api.load(run_dir)
    tell_of_a_later_run("check", trace)
    judgement = judge(trace, known)
    typer.echo(json.render(judgement) if format is TextFormat.json else render(judgement), nl=False)
    return judgement.passed
