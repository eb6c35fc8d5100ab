"""Ctrl-C at any place inside trainscope: the loop's next steps are whole and closing cleans up.

An exception is raised between two bytecodes of ours, as a signal handler of the program's would.
"""

from __future__ import annotations

import shutil
import sys
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch
from torch import nn

import trainscope as ts
from trainscope.record import exit as record_exit
from trainscope.record import facts
from trainscope.record.hooks.engine import ENGINE
from trainscope.record.hooks.methods import CALLS, STEPS
from trainscope.sync.detector import SyncDetector
from trainscope.sync.process import DRY, LIVE

OURS = str(Path(ts.__file__).parent)
WHOLE = {
    **{("step", 0): 1, ("mine", 1): 1, ("forward", 2): 1, ("0", 3): 1, ("1", 3): 1},
    **{("backward", 1): 1, ("optimizer", 1): 1},
}


class Interrupt:
    """Raises KeyboardInterrupt at the ``at``-th bytecode of trainscope's on this thread.

    ``within`` leaves only the code objects of these names.
    """

    def __init__(self, at: int, within: tuple[str, ...] = ()) -> None:
        self._left = at
        self._within = within
        self.where = ""

    def calls(self, frame: FrameType, event: str, arg: object) -> Any:
        code = frame.f_code
        if not code.co_filename.startswith(OURS):
            return None
        if self._within and code.co_name not in self._within:
            return self.calls  # it may call one of them
        frame.f_trace_opcodes = True
        return self.inside

    def inside(self, frame: FrameType, event: str, arg: object) -> Any:
        if event == "opcode":
            self._left -= 1
            if self._left == 0:
                code = frame.f_code
                self.where = f"{code.co_filename[len(OURS) :]}:{frame.f_lineno} {code.co_name}"
                sys.settrace(None)
                raise KeyboardInterrupt
        return self.inside


def interrupted_run(run_dir: Path, at: int) -> tuple[str, list[str]]:
    """Where the interrupt came (empty: the run was over before), and what was wrong after it."""
    interrupt, caught = Interrupt(at), 0
    scope = ts.Scope(run_dir)
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scope.wrap(model, optimizer, module_depth=1)
    batch = torch.ones(2, 4)

    def turn() -> None:
        torch.set_grad_enabled(True)
        with scope.range("mine"):
            loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        scope.log(loss=loss)

    def loop() -> None:
        nonlocal caught
        for _ in range(2):
            try:
                for _ in scope.steps(range(1)):
                    turn()
                with scope.step():
                    turn()
            except KeyboardInterrupt:
                caught += 1

    sys.settrace(interrupt.calls)
    loop()
    came, first_after = interrupt.where, scope._session.calls._next_step  # type: ignore[union-attr]
    loop()
    try:
        scope.close()
    except KeyboardInterrupt:
        caught += 1
    sys.settrace(None)
    scope.close()
    faults = [] if caught == bool(interrupt.where) else [f"caught {caught} times"]
    trace = ts.load(run_dir)
    rows = zip(
        trace.ranges.step.tolist(),
        [trace.name(number) for number in trace.ranges.name_id],
        trace.ranges.depth.tolist(),
        strict=True,
    )
    found: dict[int, Counter[tuple[str, int]]] = {}
    for step, name, depth in rows:
        found.setdefault(step, Counter())[name, depth] += 1
    for step, counted in found.items():
        del counted["data", 1]
        if counted["step", 0] > 1:
            faults.append(f"step {step} stands there {counted['step', 0]} times")
        elif came and step > first_after and counted != WHOLE:
            faults.append(f"step {step}, after the interrupt, is {dict(counted)}")
    if came and len([step for step in found if step > first_after]) < 3:
        faults.append("steps after the interrupt are missing")
    return interrupt.where, faults + left_behind()


def free_locks() -> None:
    """Release what this thread holds: another test's thread would wait for it for ever.

    The exception may come between the last bytecode of a ``with lock`` and the call that releases
    it. Python runs no signal handler there, so that is no fault of the code under test.
    """
    for lock in (LIVE._lock, DRY._lock):
        while lock._is_owned():  # type: ignore[attr-defined]
            lock.release()


def left_behind() -> list[str]:
    """What of trainscope's is still in place, when nothing should be."""
    free_locks()
    hooks = (ENGINE.watchers, CALLS.entries, CALLS._patches, STEPS.entries, STEPS._patches)
    held = (record_exit._handles, record_exit._sigterm._holders)
    watched = (LIVE.source, LIVE._watchers, DRY.source, DRY._watchers)
    return [f"left behind: {each}" for each in (*hooks, *held, *watched) if each]


@pytest.mark.parametrize("first", range(8))
def test_an_interrupt_anywhere_leaves_the_next_steps_whole(
    first: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(facts, "_range_cost_ns", lambda: 1.0)  # 20,000 bytecodes, all alike
    wrong: dict[str, list[str]] = {}
    at = 0
    for at in range(1 + 97 * first, 10**9, 797):
        where, faults = interrupted_run(tmp_path / "run", at)
        shutil.rmtree(tmp_path / "run")
        if not where:
            break
        if faults:
            wrong[where] = faults
    assert at > 10_000
    assert wrong == {}


@pytest.mark.skipif(
    sys.version_info < (3, 11), reason="Python 3.10 leaves a try block an instruction before return"
)
@pytest.mark.parametrize("dry_run", [False, True])
def test_an_interrupt_while_a_scope_is_made_leaves_nothing(dry_run: bool, tmp_path: Path) -> None:
    wrong: dict[str, list[str]] = {}
    at = 0
    for at in range(5, 10**9, 2003 if dry_run else 83):
        interrupt = Interrupt(at)
        sys.settrace(interrupt.calls)
        try:
            ts.Scope(tmp_path / f"{at}", dry_run=dry_run)
        except KeyboardInterrupt:
            assert interrupt.where
        finally:
            sys.settrace(None)
        if not interrupt.where:
            break
        if left := left_behind():
            wrong[interrupt.where] = left
    for handle in tuple(record_exit._handles):
        handle.close()
    assert at > 3000
    assert wrong == {}


def test_an_interrupt_while_the_end_is_arranged_leaves_nothing(tmp_path: Path) -> None:
    where: set[str] = set()
    for at in range(1, 10**9):
        interrupt = Interrupt(at, ("_start", "at_end", "enlist", "install"))
        sys.settrace(interrupt.calls)
        try:
            ts.Scope(tmp_path / f"{at}").close()
        except KeyboardInterrupt:
            where.add(interrupt.where.split()[-1])
        finally:
            sys.settrace(None)
        assert left_behind() == [], interrupt.where
        if not interrupt.where:
            break
    assert {"_start", "enlist", "install"} <= where


def test_an_interrupted_stop_goes_on_when_asked_again(tmp_path: Path) -> None:
    at = 0
    for at in range(1, 10**9, 23):
        interrupt = Interrupt(at)
        detector = SyncDetector(dry_run=True)
        detector.start()
        sys.settrace(interrupt.calls)
        try:
            detector.stop()
        except KeyboardInterrupt:
            sys.settrace(None)
            detector.stop()
        sys.settrace(None)
        assert left_behind() == [], interrupt.where
        if not interrupt.where:
            break
    assert at > 1000
