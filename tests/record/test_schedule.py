"""Schedule: torch.profiler's words and results, and an error that helps for each bad value."""

from __future__ import annotations

import copy
import itertools
import pickle
import subprocess
import sys
import warnings

import pytest
import torch.profiler

from trainscope.errors import ConfigError, TrainscopeError
from trainscope.record.schedule import Action, Schedule

_TORCH_WORDS = {
    torch.profiler.ProfilerAction.NONE: Action.NONE,
    torch.profiler.ProfilerAction.WARMUP: Action.WARMUP,
    torch.profiler.ProfilerAction.RECORD: Action.ACTIVE,
    torch.profiler.ProfilerAction.RECORD_AND_SAVE: Action.LAST,
}

EVERY = [
    dict(skip_first=skip_first, wait=wait, warmup=warmup, active=active, repeat=repeat)
    for skip_first, wait, warmup, active, repeat in itertools.product(
        (0, 3), (0, 1, 4), (0, 2), (1, 2, 3), (0, 1, 2)
    )
]


@pytest.mark.parametrize("arguments", EVERY, ids=lambda a: "-".join(map(str, a.values())))
def test_each_step_gets_what_torch_profiler_gives_it(arguments: dict[str, int]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of warmup=0
        theirs = torch.profiler.schedule(**arguments)
    ours = Schedule(**arguments)
    assert [ours.action(i) for i in range(40)] == [_TORCH_WORDS[theirs(i)] for i in range(40)]


@pytest.mark.parametrize("arguments", EVERY, ids=lambda a: "-".join(map(str, a.values())))
def test_next_window_is_the_first_step_that_leaves_none_behind(arguments: dict[str, int]) -> None:
    schedule = Schedule(**arguments)
    cycle = schedule.wait + schedule.warmup + schedule.active
    horizon = 60
    starts = [
        i
        for i in range(horizon + 2 * cycle)
        if schedule.action(i) is not Action.NONE
        and (i - schedule.skip_first) % cycle == schedule.wait
    ]
    for i in range(horizon):
        assert schedule.next_window(i) == next((s for s in starts if s >= i), None)


def test_a_table_by_hand() -> None:
    schedule = Schedule(skip_first=1, wait=2, warmup=1, active=2)
    n, w, a, last = Action.NONE, Action.WARMUP, Action.ACTIVE, Action.LAST
    assert [schedule.action(i) for i in range(9)] == [n, n, n, w, a, last, n, n, n]


def test_defaults_capture_once() -> None:
    schedule = Schedule(active=2)
    assert schedule.model_dump() == {
        "skip_first": 0,
        "wait": 0,
        "warmup": 0,
        "active": 2,
        "repeat": 1,
        "max_bytes": 1 << 30,
    }


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            {"active": 0},
            "Schedule got active=0; active must be a whole number, 1 or more (steps to capture)",
        ),
        (
            {"active": True},
            "Schedule got active=True; active must be a whole number, 1 or more (steps to capture)",
        ),
        (
            {"active": 2, "wait": -1},
            "Schedule got wait=-1; wait must be a whole number, 0 or more "
            "(steps of each cycle that run undisturbed)",
        ),
        (
            {"active": 2, "warmup": 1.0},
            "Schedule got warmup=1.0; warmup must be a whole number, 0 or more "
            "(steps with the profiler on and their record thrown away)",
        ),
        (
            {"active": 2, "skip_first": "3"},
            "Schedule got skip_first='3'; skip_first must be a whole number, 0 or more "
            "(steps to leave out once, before the first cycle)",
        ),
        (
            {"active": 2, "repeat": None},
            "Schedule got repeat=None; repeat must be a whole number, 0 or more "
            "(how many cycles, 0 for as many as max_bytes allows)",
        ),
        (
            {"active": 2, "max_bytes": 0},
            "Schedule got max_bytes=0; max_bytes must be a whole number, 1 or more "
            "(size of all traces of a rank at which no further window begins)",
        ),
        (
            {"wait": 20},
            "Schedule needs active: a whole number, 1 or more (steps to capture), "
            "as in Schedule(wait=20, warmup=3, active=4)",
        ),
        (
            {"active": 2, "warm_up": 1},
            "Schedule takes no 'warm_up', did you mean 'warmup'? "
            "It takes skip_first, wait, warmup, active, repeat, max_bytes",
        ),
        (
            {"active": 2, "xyz": 1},
            "Schedule takes no 'xyz'. It takes skip_first, wait, warmup, active, repeat, max_bytes",
        ),
    ],
)
def test_a_bad_value_is_named_with_what_is_allowed(arguments: dict[str, object], text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Schedule(**arguments)  # pyright: ignore[reportArgumentType]
    assert str(caught.value) == text
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, TrainscopeError)


def test_two_faults_are_told_together() -> None:
    with pytest.raises(ConfigError, match=r"wait=-1;.*; Schedule got active=0;"):
        Schedule(wait=-1, active=0)


def test_a_negative_step_index_is_refused() -> None:
    with pytest.raises(ConfigError, match="step_index=-1 is negative; steps count from 0"):
        Schedule(active=1).action(-1)


def test_it_is_frozen_hashable_and_survives_pickle_and_copy() -> None:
    schedule = Schedule(wait=20, warmup=3, active=4)
    with pytest.raises(ValueError, match="frozen"):
        schedule.wait = 3  # pyright: ignore[reportAttributeAccessIssue]
    assert schedule.wait == 20
    assert pickle.loads(pickle.dumps(schedule)) == schedule
    assert copy.deepcopy(schedule) == schedule
    assert len({schedule, Schedule(wait=20, warmup=3, active=4)}) == 1
    assert Schedule.model_validate(schedule.model_dump()) == schedule


def test_it_needs_no_torch() -> None:
    program = (
        "import sys; from trainscope.record.schedule import Schedule; Schedule(active=1);"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"
