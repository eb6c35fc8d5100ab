"""Which reason not to believe a replay is given, and whether it tells of the drift."""

from __future__ import annotations

from trainscope.analysis.replay.judge import WhyNot, drift_in_words, why_not
from trainscope.analysis.replay.program import Program

PROGRAM = Program((), 2, (), (), recorded_ns=2, gpu_ns=1)


def judged(drift: float, measured_step_ns: float) -> WhyNot | None:
    return why_not(
        PROGRAM,
        drift=drift,
        measured_step_ns=measured_step_ns,
        replayed_step_ns=1e6,
        band=(1.0, 1.01),
    )


def test_a_reason_that_tells_the_drift_says_that_it_does() -> None:
    for drift in (-0.1, 0.1):
        reason = judged(drift, 1e6)
        assert reason is not None
        assert reason.drifted
        assert reason.words.startswith(drift_in_words(drift))


def test_another_reason_does_not_tell_the_drift() -> None:
    reason = judged(0.0, 1.2e6)
    assert reason is not None
    assert not reason.drifted
    assert drift_in_words(0.0) not in reason.words


def test_no_reason() -> None:
    assert judged(0.0, 1e6) is None
