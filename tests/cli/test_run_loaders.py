"""Unedited programs with a ``DataLoader``: a step has its batch, and ends where its loop does."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

import pytest
from launched import under_run, write

import trainscope
from trainscope.trace.trace import Trace

START = """
    import time
    import torch
    from torch import nn

    class Slow(torch.utils.data.Dataset):
        def __init__(self, length):
            self.length = length

        def __len__(self):
            return self.length

        def __getitem__(self, at):
            time.sleep(0.004)
            return torch.randn(4), torch.randn(1)

    def loader(batches, **options):
        return torch.utils.data.DataLoader(Slow(4 * batches), batch_size=4, **options)

    def pause():
        time.sleep(0.5)

    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def learn(batch):
        x, y = batch
        loss = (model(x) - y).square().mean()
        loss.backward()
        return loss

    def train(batch):
        loss = learn(batch)
        optimizer.step()
        optimizer.zero_grad()
        return loss

    def validate(batches):
        model.eval()
        with torch.no_grad():
            for x, y in batches:
                print((model(x) - y).square().mean().item())  # VALIDATION
        model.train()
"""
EPOCHS = """
    batches, held_out = loader(3), loader(2)
    print(model.weight.sum().item())  # SETUP
    for epoch in range(2):
        for x, y in batches:
            loss = train((x, y))
            print(loss.item())  # TRAINING
        validate(held_out)
        pause()
        print(loss.item())  # EPOCH
    pause()
    print(loss.item())  # END
"""
WORKERS = """
    if __name__ == "__main__":
        for batch in loader(4, num_workers=1):
            train(batch)
        pause()
        print(model.weight.sum().item())  # END
"""
WRAPPED = """
    def progress(items):
        for item in items:
            yield item

    for at, batch in enumerate(progress(loader(5))):
        if at % 2:
            continue
        train(batch)
        print(model.weight.sum().item())  # TRAINING
    pause()
    print(model.weight.sum().item())  # END
"""
GENERATOR = """
    def steps(epochs):
        batches = loader(2)
        for epoch in range(epochs):
            for batch in batches:
                yield train(batch)

    for loss in steps(2):
        print(loss.item())  # TRAINING
    pause()
    print(loss.item())  # END
"""
MICRO = """
    total = torch.zeros(())
    for x, y in loader(3):
        total += x.sum()
    for x, y in loader(3):
        for part in zip(x.chunk(2), y.chunk(2)):
            loss = learn(part)
        print(loss.item())  # TRAINING
        optimizer.step()
        optimizer.zero_grad()
    pause()
    print(loss.item())  # END
"""
INSIDE = """
    held_out = loader(2)
    for step, batch in enumerate(loader(4)):
        loss = train(batch)
        print(loss.item())  # TRAINING
        if step == 1:
            validate(held_out)
    pause()
"""
SHARED = """
    def epoch(batches, training):
        model.train(training)
        for x, y in batches:
            with torch.set_grad_enabled(training):
                loss = (model(x) - y).square().mean()
            if training:
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()

    for _ in range(2):
        epoch(loader(3), True)
        pause()
        epoch(loader(2), False)
        pause()
"""


@dataclass(frozen=True)
class Expected:
    """What a program's recording holds."""

    program: str
    steps: int
    fetches: int
    """Ranges ``data`` in steps."""
    outside: int
    """Ranges in no step: fetches that found none, and what validates."""
    waits: tuple[tuple[str, str, int], ...] = ()
    """Marked line, ``during``, count."""
    evaluations: int = 0
    """Ranges ``evaluation`` in steps."""


EXPECTED = {
    "epochs": Expected(
        EPOCHS,
        steps=6,
        fetches=6,
        outside=10,  # a fetch and a forward a batch, and the fetch behind them
        waits=(
            ("END", "between", 1),
            ("EPOCH", "between", 2),
            ("SETUP", "setup", 1),
            ("TRAINING", "training", 6),
            ("VALIDATION", "evaluation", 4),
        ),
    ),
    "workers": Expected(WORKERS, 4, 4, 0, (("END", "between", 1),)),
    "wrapped": Expected(WRAPPED, 3, 5, 0, (("END", "between", 1), ("TRAINING", "training", 3))),
    "generator": Expected(GENERATOR, 4, 4, 0, (("END", "between", 1), ("TRAINING", "training", 4))),
    "micro-batches": Expected(
        MICRO,
        6,
        2,  # the first came before the loop in which it is taken apart was known to train
        outside=4 + 1 + 1,
        waits=(("END", "between", 1), ("TRAINING", "training", 3)),
    ),
    "validation in a turn": Expected(
        INSIDE,
        4,
        4,
        0,
        (("TRAINING", "training", 4), ("VALIDATION", "evaluation", 2)),
        evaluations=5,
    ),
    "one function for both": Expected(SHARED, 6, 6, outside=8),
}


def ranges_named(trace: Trace, name: str, *, in_step: bool) -> list[int]:
    """The steps of the ranges of that name, directly in a step or in none."""
    ranges = trace.ranges
    chosen = ranges.name_id == trace.names.index(name) if name in trace.names else ranges.step < -1
    chosen = chosen & (ranges.depth == 1) & ((ranges.step >= 0) == in_step)
    return ranges.step[chosen].tolist()


@pytest.mark.parametrize("name", EXPECTED)
def test_steps_have_their_batches_and_end_where_the_loop_is_left(name: str, tmp_path: Path) -> None:
    expected = EXPECTED[name]
    script = write(tmp_path, "train.py", dedent(START) + dedent(expected.program))
    done = under_run("--active", "0", "--run-dir", str(tmp_path / "run"), str(script), cwd=tmp_path)
    assert done.status == 0, done.err
    trace = trainscope.load(tmp_path / "run")
    report = trainscope.analyze(trace)
    ranges = trace.ranges
    is_step = (ranges.depth == 0) & (ranges.step >= 0)
    assert report.steps.counted_by is not None
    assert report.steps.counted_by.startswith("trainscope run: "), report.steps.counted_by
    assert ranges.step[is_step].tolist() == list(range(expected.steps))
    assert len(ranges_named(trace, "data", in_step=True)) == expected.fetches
    assert len(ranges_named(trace, "evaluation", in_step=True)) == expected.evaluations
    outside = ranges_named(trace, "data", in_step=False)
    outside += ranges_named(trace, "evaluation", in_step=False)
    assert len(outside) == expected.outside
    # no pause and no other loop's validation is in a step, and no two steps overlap
    start_ns, end_ns = ranges.start_ns[is_step], ranges.end_ns[is_step]
    assert (end_ns - start_ns).max() < 450e6
    assert (start_ns[1:] >= end_ns[:-1]).all()
    inside = ranges.step >= 0
    steps = ranges.step[inside]
    assert (ranges.start_ns[inside] >= start_ns[steps]).all()
    assert (ranges.end_ns[inside] <= end_ns[steps]).all()
    waits = Counter[tuple[str, str]]()
    for sync in report.syncs:
        if "# " in sync.source:
            waits[sync.source.split("# ")[1], sync.during] += sync.count
    assert tuple((*key, waits[key]) for key in sorted(waits)) == expected.waits


def test_the_time_in_the_loader_is_the_phase_data(tmp_path: Path) -> None:
    script = write(tmp_path, "train.py", dedent(START) + "for batch in loader(8): train(batch)\n")
    done = under_run("--active", "0", "--run-dir", str(tmp_path / "run"), str(script), cwd=tmp_path)
    assert done.status == 0, done.err
    report = trainscope.analyze(trainscope.load(tmp_path / "run"))
    data = next(phase for phase in report.phases if phase.name == "data")
    assert data.steps == 7  # of 8, without the first
    assert data.share is not None
    assert data.share > 0.6
    assert data.per_step_ms.median > 4 * 4
