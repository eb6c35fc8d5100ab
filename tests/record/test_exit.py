"""However a program ends: its exit status is its own, and what it logged is on disk."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from exit_program import FIVE, logged, needs_posix, run


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
def test_program_that_ends_by_itself(place: Path, ending: str, status: int, last_line: str) -> None:
    program = f"logger, handle = record()\ntrain(logger)\n{ending}\n"
    code, stderr = run(place, program)
    assert code == status
    assert logged(place) == FIVE
    assert stderr.strip().rpartition("\n")[2] == last_line


@needs_posix
def test_keyboard_interrupt_dies_by_sigint(place: Path) -> None:
    program = "logger, handle = record()\ntrain(logger)\nwait_for_signal()\n"
    code, stderr = run(place, program, signal.SIGINT)
    assert code == -signal.SIGINT
    assert stderr.rstrip().endswith("KeyboardInterrupt")
    assert logged(place) == FIVE


@needs_posix
def test_sigterm_closes_then_kills(place: Path) -> None:
    program = "logger, handle = record()\ntrain(logger)\nwait_for_signal()\n"
    assert run(place, program, signal.SIGTERM) == (-signal.SIGTERM, "")
    assert logged(place) == FIVE


@needs_posix
def test_sigterm_in_the_middle_of_log_calls(place: Path) -> None:
    """The handler runs on the very thread that may be inside log(): no deadlock, no torn record."""
    program = """
    logger, handle = record()
    print("ready", flush=True)
    step = 0
    while True:
        logger.log(step, {"loss": torch.tensor(step / 4), "lr": 0.5})
        step += 1
    """
    assert run(place, program, signal.SIGTERM) == (-signal.SIGTERM, "")
    assert all(values == {"loss": s / 4, "lr": 0.5} for s, values in logged(place))


@needs_posix
@pytest.mark.parametrize(("ending", "status"), [("sys.exit(7)", 7), ("os._exit(9)", 9)])
def test_sigterm_of_a_program_with_a_handler(place: Path, ending: str, status: int) -> None:
    program = f"""
    def handler(number, frame):
        assert number == signal.SIGTERM
        {ending}
    signal.signal(signal.SIGTERM, handler)
    logger, handle = record()
    train(logger)
    wait_for_signal()
    """
    assert run(place, program, signal.SIGTERM) == (status, "")
    assert logged(place) == FIVE


@needs_posix
def test_a_graceful_handler_lets_the_loop_go_on_logging(place: Path) -> None:
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
    assert run(place, program, signal.SIGTERM) == (0, "")
    assert logged(place) == [*FIVE, *((s, {"loss": s / 4}) for s in (5, 6, 7))]


@needs_posix
def test_an_ignored_sigterm_stays_ignored(place: Path) -> None:
    program = """
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    logger, handle = record()
    train(logger, 0, 2)
    os.kill(os.getpid(), signal.SIGTERM)
    train(logger, 2, 5)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    """
    assert run(place, program) == (0, "")
    assert logged(place) == FIVE


@needs_posix
def test_cancel_puts_the_signal_back_and_closes_nothing(place: Path) -> None:
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
    assert run(place, program) == (4, "")
    assert logged(place) == []


@needs_posix
def test_sigterm_while_closing_waits_for_the_close(place: Path) -> None:
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
    assert run(place, program, signal.SIGTERM) == (-signal.SIGTERM, "")
    assert logged(place) == FIVE
    assert (place / "closed").exists()


def test_closes_before_the_exit_handlers_of_others(place: Path) -> None:
    """wandb ends its service in an exit handler: what comes after that is lost."""
    program = """
    import atexit
    logger, handle = record()
    atexit.register(lambda: print("handler sees", logger.state().sinks[0].written, file=sys.stderr))
    train(logger)
    """
    assert run(place, program) == (0, "handler sees 5\n")


@needs_posix
def test_kill_9_loses_at_most_what_the_last_flush_did_not_hold(place: Path) -> None:
    program = """
    logger, handle = record()
    train(logger)
    time.sleep(1.5)  # two intervals without another log: the worker comes by itself
    print("ready", flush=True)
    wait_for_signal()
    """
    code, _ = run(place, program, signal.SIGKILL)
    assert code == -signal.SIGKILL
    assert logged(place) == FIVE


def test_a_fault_in_closing_is_printed_and_changes_no_status(place: Path) -> None:
    program = """
    def fail():
        raise OSError("disk")
    at_end(fail)
    sys.exit(2)
    """
    code, stderr = run(place, program)
    assert (code, stderr) == (2, "trainscope: closing at the end failed: OSError('disk')\n")
