"""An evaluation inside training, unedited: its waits are listed apart, and advised as such."""

from __future__ import annotations

from pathlib import Path

from launched import under_run, write

import trainscope

PROGRAM = """
    import torch
    from torch import nn

    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.1), nn.Linear(8, 3)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    criterion = nn.CrossEntropyLoss()
    batches = [(torch.randn(6, 4), torch.randint(0, 3, (6,))) for _ in range(5)]

    @torch.no_grad()
    def evaluate():
        model.eval()
        correct = 0
        for x, y in batches:
            x, y = x.to(device), y.to(device)
            correct += (model(x).argmax(1) == y).sum().item()  # EVALUATION
        model.train()
        return correct

    for step in range(12):
        x, y = batches[step % 5]
        x, y = x.to(device), y.to(device)
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        with torch.no_grad():
            running = loss.item()  # TRAINING
        if step % 4 == 3:
            evaluate()
"""
ADVICE = "add up on the GPU and read the result once, after the evaluation"


def test_an_evaluation_loop_inside_training(tmp_path: Path) -> None:
    script = write(tmp_path, "train.py", PROGRAM)
    done = under_run("--run-dir", str(tmp_path / "run"), str(script), cwd=tmp_path)
    assert done.status == 0, done.err
    report = trainscope.analyze(trainscope.load(tmp_path / "run"))
    assert report.steps.count == 12
    reads = {sync.source.split("# ")[1]: sync for sync in report.syncs if sync.kind == "item"}
    evaluation, training = reads["EVALUATION"], reads["TRAINING"]
    assert (evaluation.during, evaluation.count, evaluation.per_step) == ("evaluation", 15, None)
    assert evaluation.advice == ADVICE
    assert (training.during, training.count, training.per_step) == ("training", 12, 1.0)
    copies = [sync for sync in report.syncs if sync.source == "x, y = x.to(device), y.to(device)"]
    assert sorted((sync.during, sync.count) for sync in copies) == [
        ("evaluation", 30),  # those of the first batch, before anything is known, too
        ("training", 24),
    ]
    lines = [line.strip() for line in done.err.splitlines()]
    heading = lines.index("Other waits: asked for, allowed, or outside training")
    at = next(number for number, line in enumerate(lines) if line.endswith("# EVALUATION"))
    assert at > heading
    assert lines[at - 1].endswith("in evaluate: TS101 item, 15 times in evaluation") or (
        "15 times in evaluation" in " ".join(lines[at - 3 : at])
    )
    assert lines[at + 1] == f"→ {ADVICE}"
    assert next(n for n, line in enumerate(lines) if line.endswith("# TRAINING")) < heading
