"""What the phase ``evaluation`` means where most steps hold one: a teacher is no validation."""

from __future__ import annotations

import pytest
from made_runs import INFO, NAMES, step_rows, trace

from trainscope.report import text
from trainscope.report.build import build

WORDS = "evaluation is in most steps here: a forward in eval mode or without gradients"


@pytest.mark.parametrize(
    ("every", "counted_by", "said"),
    [
        (1, "trainscope run: turns of the loop at train.py:9", True),
        (2, "trainscope run: turns of the loop at train.py:9", False),
        (1, "scope.steps", False),
    ],
)
def test_an_evaluation_in_most_steps_is_explained(every: int, counted_by: str, said: bool) -> None:
    data = NAMES.index("data")
    rows = [
        (row[0], len(NAMES), *row[2:]) if row[1] == data and row[0] % every == 0 else row
        for row in step_rows(480)
    ]
    info = INFO.model_copy(update={"counted_by": counted_by})
    report = build(trace(rows, names=(*NAMES, "evaluation"), info=info))
    steps = {phase.name: phase.steps or 0 for phase in report.phases}
    assert steps["evaluation"] == (steps["forward"] if every == 1 else steps["forward"] // 2)
    assert (WORDS in text.render(report, width=200)) is said
