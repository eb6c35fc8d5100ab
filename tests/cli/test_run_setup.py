"""What a program tries before its loop is set-up: of the loop's first turn all is training's."""

from __future__ import annotations

from pathlib import Path

import pytest
from launched import under_run, write

import trainscope

HEAD = """
    import torch
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = torch.nn.Linear(4, 1).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.ones(2, 4, device=device)
"""
LOOP = """
    for step in range(5):
        first = model(x).mean()
        first.item()  # IN EACH
        first.backward()
        optimizer.step()
"""
TRIALS = {
    "one forward": """
    out = model(x)
    out.mean().item()  # BEFORE
""",
    "forwards to warm up": """
    for _ in range(4):
        out = model(x)
        out.mean().item()  # BEFORE
    table = torch.tensor([1.0, 2.0], device=device)  # BEFORE
""",
    "a backward to look at gradients": """
    model(x).mean().backward()
    model.weight.grad.norm().item()  # BEFORE
    optimizer.zero_grad()
""",
    "an episode before the loop": """
    def act():
        return model(x).mean().item()  # BEFORE
    while act() > 1e9:
        act()
""",
}


@pytest.mark.parametrize("trial", TRIALS)
def test_a_trial_before_the_loop_is_in_no_step(trial: str, tmp_path: Path) -> None:
    script = write(tmp_path, "train.py", HEAD + TRIALS[trial] + LOOP)
    run = ("--active", "0", "--run-dir", str(tmp_path / "run"))
    done = under_run(*run, str(script), cwd=tmp_path)
    assert done.status == 0, done.err
    report = trainscope.analyze(trainscope.load(tmp_path / "run"))
    assert report.steps.count == 5
    before = [sync for sync in report.syncs if "BEFORE" in (sync.source or "")]
    assert before
    assert {(sync.during, sync.per_step) for sync in before} == {("setup", None)}
    assert [
        (sync.during, sync.count, sync.per_step)
        for sync in report.syncs
        if "IN EACH" in (sync.source or "")
    ] == [("training", 5, 1.0)]


def test_an_episode_of_many_waits_is_all_in_the_first_turn(tmp_path: Path) -> None:
    """As in REINFORCE: forwards that act, then one backward over all of them."""
    program = """
        for episode in range(3):
            losses = []
            for _ in range(700):
                out = model(x).mean()
                out.item()  # ACTS
                losses.append(out)
            torch.stack(losses).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    """.replace("\n    ", "\n")
    script = write(tmp_path, "train.py", HEAD + program)
    run = ("--active", "0", "--run-dir", str(tmp_path / "run"))
    done = under_run(*run, str(script), cwd=tmp_path)
    assert done.status == 0, done.err
    report = trainscope.analyze(trainscope.load(tmp_path / "run"))
    acts = [sync for sync in report.syncs if "ACTS" in (sync.source or "")]
    assert [(sync.during, sync.count, sync.per_step) for sync in acts] == [("training", 2100, 700)]


def test_the_step_of_a_program_without_a_loop_has_its_waits(tmp_path: Path) -> None:
    program = """
    loss = model(x).mean()
    loss.item()  # ONCE
    loss.backward()
    optimizer.step()
    """
    script = write(tmp_path, "train.py", HEAD + program)
    run = ("--active", "0", "--run-dir", str(tmp_path / "run"))
    done = under_run(*run, str(script), cwd=tmp_path)
    assert done.status == 0, done.err
    report = trainscope.analyze(trainscope.load(tmp_path / "run"))
    assert report.steps.count == 1
    once = [sync for sync in report.syncs if "ONCE" in (sync.source or "")]
    assert [(sync.during, sync.count) for sync in once] == [("training", 1)]


def test_what_inferring_the_steps_takes_is_in_what_trainscope_takes(tmp_path: Path) -> None:
    program = """
    from time import perf_counter
    from trainscope.record.inference import StepInference
    infers = StepInference.on_event

    def slow(self, kind, **words):
        until = perf_counter() + 2e-3
        while perf_counter() < until:
            pass
        return infers(self, kind, **words)

    StepInference.on_event = slow
    for _ in range(8):
        model(x).mean().backward()
        optimizer.step()
    """
    script = write(tmp_path, "train.py", HEAD + program)
    run = ("--active", "0", "--sync", "off", "--run-dir", str(tmp_path / "run"))
    done = under_run(*run, str(script), cwd=tmp_path)
    assert done.status == 0, done.err
    overhead = trainscope.analyze(trainscope.load(tmp_path / "run")).overhead
    assert overhead is not None
    # backward and optimizer; the forward's event begins the step
    assert 4_000 < overhead.per_step_us < 20_000
