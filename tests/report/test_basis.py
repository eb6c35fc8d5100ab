"""Which step times a replay is given."""

from __future__ import annotations

from typing import Any

import pytest
from made_runs import step_rows, trace
from made_windows import Made

from trainscope.report import basis

MS = 1_000_000
EVEN, UNEVEN = (20_400,), (19_000, 20_400, 20_400, 26_000, 20_300)


@pytest.mark.parametrize(
    ("wall_us", "step_ms", "times"),
    [
        (EVEN, None, (20.4, [])),
        ((20_300, 20_400, 20_500), None, (20.4, [])),  # all but the same
        (UNEVEN * 2 + (26_000,) * 5, None, (20.4, [26.0])),
        (UNEVEN, 18.0, (18.0, [])),  # of steps of that time nobody knows more
        ((19_000, 20_400, 26_000), None, (20.4, [19.0, 26.0])),
    ],
)
def test_the_quartiles_of_uneven_steps_are_replayed_too(
    monkeypatch: pytest.MonkeyPatch,
    wall_us: tuple[int, ...],
    step_ms: float | None,
    times: tuple[float, list[float]],
) -> None:
    given: list[dict[str, Any]] = []
    monkeypatch.setattr(basis, "what_if", lambda *_, **words: given.append(words))
    made = Made()
    for step in range(4):
        at = step * 20 * MS
        made.range(f"ProfilerStep#{step}", at, at + 20 * MS - 1)
        made.launch(at + 1000, at + 2000, at + MS)
    basis.basis_of(trace(step_rows(61, wall_us=wall_us), windows=(made.window(),)), step_ms)
    (words,) = given
    usual, others = times
    assert words["step_ns"] == pytest.approx(usual * MS)
    assert words["other_steps_ns"] == pytest.approx([each * MS for each in others])
