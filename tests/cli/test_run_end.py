"""However the program ends, its status and last words are its own and the report is written."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest
import torch
from launched import in_place, start_under_run, under_run, write

import trainscope

LOOP = """
    import os, sys, time
    import torch
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(5):
        model(torch.randn(4, 2)).sum().backward()
        optimizer.step()
"""

ENDS = {
    "exit_3": "sys.exit(3)",
    "exit_text": "sys.exit('no more data')",
    "exit_none": "sys.exit(None)",
    "exit_false": "raise SystemExit(False)",
    "raise": "def f(): raise ValueError('bad value')\n    f()",
    "from": "try: 1 / 0\n    except ArithmeticError as e: raise KeyError(1) from e",
    "interrupt": "raise KeyboardInterrupt",
    "own_hook": "sys.excepthook = lambda *a: print(a[0], a[2].tb_lineno)\n    raise OSError",
    "in_model": "model(torch.randn(4, 3))",
    "in_backward": "h = model.weight.register_hook(lambda g: g.missing)\n"
    "    model(torch.randn(4, 2)).sum().backward()",
}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_status_and_last_words_are_those_of_python(end: str, place: Path) -> None:
    plain = in_place(place, f"{LOOP}\n    {end}\n")
    ours = under_run("--sync", "off", "--active", "0", "train.py", cwd=place)
    assert ours.status == plain.status
    assert ours.out == plain.out
    assert ours.err.endswith(plain.err)
    assert "5 steps, 5 optimizer steps" in ours.err


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_as_it_ends_python(stop: signal.Signals, tmp_path: Path) -> None:
    write(tmp_path, "train.py", f"{LOOP}\n    print('up', flush=True)\n    time.sleep(60)\n")
    program = start_under_run("--sync", "off", "--active", "0", "train.py", cwd=tmp_path)
    assert program.first_line() == "up"
    time.sleep(0.2)
    program.send_signal(stop)
    ours = program.end()
    assert ours.status == -stop
    steps = trainscope.analyze(trainscope.load(tmp_path / "runs" / "train")).steps
    assert (steps.count, steps.optimizer_steps) == (5, 5)
    assert (steps.counted_by or "").startswith("trainscope run: turns of the loop at train.py:")
    assert "5 steps, 5 optimizer steps" in ours.err
    if stop == signal.SIGINT:
        assert ours.err.rstrip().endswith("KeyboardInterrupt")
        assert "trainscope/" not in ours.err.partition("Traceback")[2]


def test_a_forked_child_that_runs_to_the_end_makes_no_report(tmp_path: Path) -> None:
    program = f"{LOOP}\n    child = os.fork()\n    if child: os.waitpid(child, 0)\n"
    write(tmp_path, "train.py", program)
    ours = under_run("--sync", "off", "--active", "0", "train.py", cwd=tmp_path)
    assert ours.status == 0
    assert ours.err.count("the files are in") == 1


def test_what_a_thread_does_after_the_last_line_is_waited_for(tmp_path: Path) -> None:
    write(
        tmp_path,
        "train.py",
        """
        import threading, time
        threading.Thread(target=lambda: (time.sleep(0.5), print("thread done"))).start()
        """,
    )
    ours = under_run("train.py", cwd=tmp_path)
    assert (ours.status, ours.out) == (0, "thread done\n")


def test_a_scope_of_the_programs_own_takes_over(tmp_path: Path) -> None:
    write(
        tmp_path,
        "train.py",
        """
        import torch
        import trainscope as ts
        model = torch.nn.Linear(2, 1)
        with ts.Scope("mine") as scope:
            scope.wrap(model)
            for x in scope.steps(torch.randn(3, 4, 2)):
                model(x).sum().backward()
        report = scope.report()
        print(report.steps.count, report.run.dry_run)
        """,
    )
    ours = under_run("--dry-run", "--active", "0", "train.py", cwd=tmp_path)
    assert (ours.status, ours.out) == (0, "3 True\n"), ours.err
    assert (
        ours.err == "trainscope: the program makes its own trainscope.Scope, so that one records\n"
    )
    assert sorted(each.name for each in tmp_path.iterdir()) == ["mine", "train.py"]


def test_a_scope_of_the_programs_own_knows_what_was_moved_before_it(tmp_path: Path) -> None:
    write(
        tmp_path,
        "train.py",
        """
        import torch
        import trainscope as ts
        device = torch.device("cpu")
        model = torch.nn.Linear(2, 1).to(device)
        data = torch.ones(4, 2).to(device)
        with ts.Scope("mine") as scope:
            scope.wrap(model)
            for step in scope.steps(range(3)):
                loss = model(data).sum()
                loss.backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            print(loss.item())
        print([(site.kind, site.count) for site in scope.report().syncs])
        """,
    )
    ours = under_run("--dry-run", "train.py", cwd=tmp_path)
    assert ours.out.splitlines()[-1] == "[('item', 1)]", ours.err


def test_a_scope_of_the_programs_own_may_have_the_runner_s_directory(tmp_path: Path) -> None:
    write(
        tmp_path,
        "train.py",
        """
        import torch
        import trainscope as ts
        with ts.Scope("runs/train") as scope:
            for x in scope.steps(torch.randn(3, 4, 2)):
                pass
        """,
    )
    ours = under_run("--dry-run", "train.py", cwd=tmp_path)
    assert ours.status == 0
    assert (
        ours.err == "trainscope: the program makes its own trainscope.Scope, so that one records\n"
    )
    assert [each.name for each in (tmp_path / "runs").iterdir()] == ["train"]
    assert (tmp_path / "runs" / "train" / "rank0" / "ranges.i64").stat().st_size == 2 * 3 * 40


def test_what_was_recorded_before_the_program_s_own_scope_stays(tmp_path: Path) -> None:
    write(
        tmp_path,
        "train.py",
        """
        import torch
        import trainscope as ts
        model = torch.nn.Linear(2, 1)
        for x in torch.randn(3, 4, 2):
            model(x).sum().backward()
        with ts.Scope("mine"):
            pass
        """,
    )
    ours = under_run("--dry-run", "train.py", cwd=tmp_path)
    assert ours.status == 0
    place = tmp_path / "runs" / "train"
    assert ours.err.splitlines() == [
        "trainscope: the program makes its own trainscope.Scope, so that one records; "
        f"nothing more goes to {place}"
    ]
    assert (place / "run.json").is_file()


SUDDEN_ENDS = {
    "os._exit": (7, "the program ends in os._exit", "os._exit(7)"),
    "os.execv": (
        3,
        "the program replaces itself by another (os.execv)",
        "os.execl(sys.executable, sys.executable, '-c', 'raise SystemExit(3)')",
    ),
    "os.execve": (
        3,
        "the program replaces itself by another (os.execve)",
        "os.execve(sys.executable, [sys.executable, '-c', 'raise SystemExit(3)'], os.environ)",
    ),
}


@pytest.mark.parametrize(("status", "words", "end"), SUDDEN_ENDS.values(), ids=SUDDEN_ENDS)
def test_what_ends_without_exit_handlers_is_saved_and_told(
    status: int, words: str, end: str, tmp_path: Path
) -> None:
    children = "if os.fork() == 0: os._exit(1)\n    os.wait()"
    read = "if step == 3: loss = float(model.weight.sum())"
    loop = LOOP.replace("optimizer.step()", f"optimizer.step()\n        {read}")
    write(tmp_path, "train.py", f"{loop}\n    {children}\n    {end}\n")
    ours = under_run("--active", "0", "train.py", cwd=tmp_path)
    assert ours.status == status
    place = tmp_path / "runs" / "train"
    told = [line for line in ours.err.splitlines() if "trainscope report" in line]
    assert len(told) == 1
    assert told[0].startswith(f"trainscope: {words}")
    assert told[0].endswith(f"; the files are in {place}; trainscope report {place}")
    report = trainscope.analyze(trainscope.load(place))
    assert (report.steps.count, report.steps.optimizer_steps) == (4, 5)  # the last was open
    # its model is on the CPU: where there is a GPU, reading it waits for nothing
    assert [sync.kind for sync in report.syncs] == ([] if torch.cuda.is_available() else ["float"])


def test_a_program_in_which_nothing_happened_leaves_no_files_and_one_line(tmp_path: Path) -> None:
    parser = "import argparse; argparse.ArgumentParser().parse_args()"
    write(tmp_path, "train.py", LOOP.replace("import torch\n", f"import torch; {parser}\n", 1))
    ours = under_run("--active", "0", "train.py", "--help", cwd=tmp_path)
    assert ours.status == 0
    assert ours.out.startswith("usage: train.py")
    (line,) = (line for line in ours.err.splitlines() if "no CUDA device" not in line)
    assert line.startswith("trainscope: nothing to report, so no files are left: no training")
    assert [path.name for path in tmp_path.iterdir()] == ["train.py"]
    under_run("--active", "0", "train.py", cwd=tmp_path)
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["train"]
