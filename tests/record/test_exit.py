"""However a program ends: its exit status is its own, and what it logged is on disk."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from trainscope.trace.metrics import read_metrics

needs_posix = pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals and fork")

PRELUDE = """
import faulthandler, os, signal, sys, threading, time
from pathlib import Path
import torch
from trainscope.metrics.logger import MetricsLogger
from trainscope.metrics.sinks import Jsonl, SinkContext
from trainscope.metrics.worker import Worker
from trainscope.record.exit import at_end

folder = Path(sys.argv[1])

def record(sinks=()):
    worker = Worker()
    logger = MetricsLogger(
        [Jsonl(), *sinks], context=SinkContext(folder, folder, 0, 1, "run"), worker=worker
    )
    worker.start()
    def close():
        logger.close(timeout_s=5)
        worker.close(timeout_s=5)
    return logger, at_end(close, flush=logger.flush)

def train(logger, first=0, last=5):
    for step in range(first, last):
        logger.log(step, {"loss": torch.tensor(step / 4)})

def wait_for_signal():
    print("ready", flush=True)
    while True:
        time.sleep(0.01)
"""

FIVE = [(step, {"loss": step / 4}) for step in range(5)]


def logged(folder: Path) -> list[tuple[int, dict[str, float | int]]]:
    return [(r.step, dict(r.values)) for r in read_metrics(folder / "metrics.jsonl")]


def run(folder: Path, program: str, *signals: signal.Signals) -> tuple[int, str]:
    """Run the program, send the signals once it says "ready"; its exit status and stderr."""
    process = subprocess.Popen(
        [sys.executable, "-c", PRELUDE + textwrap.dedent(program), str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        if signals:
            assert process.stdout.readline() == "ready\n"
        for number in signals:
            process.send_signal(number)
        _, stderr = process.communicate(timeout=60)
    finally:
        process.kill()
    return process.returncode, stderr


@pytest.mark.parametrize(
    ("ending", "status", "last_line"),
    [
        ("", 0, ""),
        ("sys.exit(3)", 3, ""),
        ("sys.exit('no more data')", 1, "no more data"),
        ("raise ValueError('user')", 1, "ValueError: user"),
        ("raise SystemExit", 0, ""),
    ],
)
def test_program_that_ends_by_itself(
    tmp_path: Path, ending: str, status: int, last_line: str
) -> None:
    program = f"logger, handle = record()\ntrain(logger)\n{ending}\n"
    code, stderr = run(tmp_path, program)
    assert code == status
    assert logged(tmp_path) == FIVE
    assert stderr.strip().rpartition("\n")[2] == last_line


@needs_posix
def test_keyboard_interrupt_dies_by_sigint(tmp_path: Path) -> None:
    program = "logger, handle = record()\ntrain(logger)\nwait_for_signal()\n"
    code, stderr = run(tmp_path, program, signal.SIGINT)
    assert code == -signal.SIGINT
    assert stderr.rstrip().endswith("KeyboardInterrupt")
    assert logged(tmp_path) == FIVE


@needs_posix
def test_sigterm_closes_then_kills(tmp_path: Path) -> None:
    program = "logger, handle = record()\ntrain(logger)\nwait_for_signal()\n"
    assert run(tmp_path, program, signal.SIGTERM) == (-signal.SIGTERM, "")
    assert logged(tmp_path) == FIVE


@needs_posix
def test_sigterm_in_the_middle_of_log_calls(tmp_path: Path) -> None:
    """The handler runs on the very thread that may be inside log(): no deadlock, no torn record."""
    program = """
    logger, handle = record()
    print("ready", flush=True)
    step = 0
    while True:
        logger.log(step, {"loss": torch.tensor(step / 4), "lr": 0.5})
        step += 1
    """
    assert run(tmp_path, program, signal.SIGTERM) == (-signal.SIGTERM, "")
    assert all(values == {"loss": s / 4, "lr": 0.5} for s, values in logged(tmp_path))


@needs_posix
@pytest.mark.parametrize(("ending", "status"), [("sys.exit(7)", 7), ("os._exit(9)", 9)])
def test_sigterm_of_a_program_with_a_handler(tmp_path: Path, ending: str, status: int) -> None:
    program = f"""
    def handler(number, frame):
        assert number == signal.SIGTERM
        {ending}
    signal.signal(signal.SIGTERM, handler)
    logger, handle = record()
    train(logger)
    wait_for_signal()
    """
    assert run(tmp_path, program, signal.SIGTERM) == (status, "")
    assert logged(tmp_path) == FIVE


@needs_posix
def test_a_graceful_handler_lets_the_loop_go_on_logging(tmp_path: Path) -> None:
    program = """
    stop = []
    signal.signal(signal.SIGTERM, lambda number, frame: stop.append(number))
    logger, handle = record()
    train(logger)
    print("ready", flush=True)
    while not stop:
        time.sleep(0.01)
    train(logger, 5, 8)
    """
    assert run(tmp_path, program, signal.SIGTERM) == (0, "")
    assert logged(tmp_path) == [*FIVE, *((s, {"loss": s / 4}) for s in (5, 6, 7))]


@needs_posix
def test_an_ignored_sigterm_stays_ignored(tmp_path: Path) -> None:
    program = """
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    logger, handle = record()
    train(logger, 0, 2)
    os.kill(os.getpid(), signal.SIGTERM)
    train(logger, 2, 5)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    """
    assert run(tmp_path, program) == (0, "")
    assert logged(tmp_path) == FIVE


@needs_posix
def test_cancel_puts_the_signal_back_and_closes_nothing(tmp_path: Path) -> None:
    program = """
    logger, handle = record()
    second = at_end(lambda: print("second"))
    handle.cancel()
    handle.cancel()
    assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
    second.cancel()
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    train(logger)
    os._exit(0) if logger.state().sinks[0].written else sys.exit(4)
    """
    assert run(tmp_path, program) == (4, "")
    assert logged(tmp_path) == []


@needs_posix
def test_sigterm_while_closing_waits_for_the_close(tmp_path: Path) -> None:
    program = """
    class Slow:
        name = "slow"
        def open(self, run): pass
        def write(self, records): time.sleep(0.3)
        def close(self): (folder / "closed").touch()
    logger, handle = record([Slow()])
    train(logger)
    with handle:
        print("ready", flush=True)
        logger.close()
    sys.exit(5)
    """
    assert run(tmp_path, program, signal.SIGTERM) == (-signal.SIGTERM, "")
    assert logged(tmp_path) == FIVE
    assert (tmp_path / "closed").exists()


@needs_posix
@pytest.mark.parametrize("daemon", [True, False])
def test_sigterm_with_the_recording_made_off_the_main_thread(tmp_path: Path, daemon: bool) -> None:
    """The main thread waits in join, where no Python signal handler of a thread could be put."""
    program = f"""
    def loop():
        logger, handle = record()
        train(logger)
        wait_for_signal()
    thread = threading.Thread(target=loop, daemon={daemon})
    thread.start()
    thread.join()
    """
    assert run(tmp_path, program, signal.SIGTERM) == (-signal.SIGTERM, "")
    assert logged(tmp_path) == FIVE


def test_a_loop_on_another_thread_outlives_the_main_thread(tmp_path: Path) -> None:
    program = """
    logger, handle = record()
    def loop():
        train(logger, 0, 2)
        time.sleep(0.5)
        train(logger, 2, 5)
    threading.Thread(target=loop).start()
    """
    assert run(tmp_path, program) == (0, "")
    assert logged(tmp_path) == FIVE


def test_closes_before_the_exit_handlers_of_others(tmp_path: Path) -> None:
    """wandb ends its service in an exit handler: what comes after that is lost."""
    program = """
    import atexit
    logger, handle = record()
    atexit.register(lambda: print("handler sees", logger.state().sinks[0].written, file=sys.stderr))
    train(logger)
    """
    assert run(tmp_path, program) == (0, "handler sees 5\n")


@needs_posix
def test_a_forked_child_writes_nothing_and_dies_on_its_own(tmp_path: Path) -> None:
    program = """
    import warnings
    warnings.simplefilter("ignore", DeprecationWarning)  # fork with threads: what is tested
    logger, handle = record()
    train(logger, 0, 3)
    exiting = os.fork()
    if exiting == 0:
        train(logger, 100, 110)
        logger.flush()
        logger.close()
        sys.exit(6)
    waiting = os.fork()
    if waiting == 0:
        time.sleep(60)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(exiting, 0)[1]) == 6
    os.kill(waiting, signal.SIGTERM)
    assert os.waitstatus_to_exitcode(os.waitpid(waiting, 0)[1]) == -signal.SIGTERM
    train(logger, 3, 5)
    """
    assert run(tmp_path, program) == (0, "")
    assert logged(tmp_path) == FIVE


@needs_posix
def test_sigterm_to_a_child_forked_off_the_main_thread_spares_the_parent(tmp_path: Path) -> None:
    program = """
    import warnings
    warnings.simplefilter("ignore", DeprecationWarning)
    def loop():
        logger, handle = record()
        train(logger)
        child = os.fork()
        if child == 0:
            time.sleep(60)
            os._exit(1)
        time.sleep(0.1)
        os.kill(child, signal.SIGTERM)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGTERM
        time.sleep(0.2)
    thread = threading.Thread(target=loop)
    thread.start()
    thread.join()
    """
    assert run(tmp_path, program) == (0, "")
    assert logged(tmp_path) == FIVE


@needs_posix
def test_kill_9_loses_at_most_what_the_last_flush_did_not_hold(tmp_path: Path) -> None:
    program = """
    logger, handle = record()
    train(logger)
    time.sleep(1.5)  # two intervals without another log: the worker comes by itself
    print("ready", flush=True)
    wait_for_signal()
    """
    code, _ = run(tmp_path, program, signal.SIGKILL)
    assert code == -signal.SIGKILL
    assert logged(tmp_path) == FIVE


def test_a_fault_in_closing_is_printed_and_changes_no_status(tmp_path: Path) -> None:
    program = """
    def fail():
        raise OSError("disk")
    at_end(fail)
    sys.exit(2)
    """
    code, stderr = run(tmp_path, program)
    assert (code, stderr) == (2, "trainscope: closing at the end failed: OSError('disk')\n")
