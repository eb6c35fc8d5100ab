"""Endings with threads and forks: who closes, and who must not."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from exit_program import FIVE, logged, needs_posix, run


@needs_posix
@pytest.mark.parametrize("daemon", [True, False])
def test_sigterm_with_the_recording_made_off_the_main_thread(place: Path, daemon: bool) -> None:
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
    assert run(place, program, signal.SIGTERM) == (-signal.SIGTERM, "")
    assert logged(place) == FIVE


def test_a_loop_on_another_thread_outlives_the_main_thread(place: Path) -> None:
    program = """
    logger, handle = record()
    def loop():
        train(logger, 0, 2)
        time.sleep(0.5)
        train(logger, 2, 5)
    threading.Thread(target=loop).start()
    """
    assert run(place, program) == (0, "")
    assert logged(place) == FIVE


@needs_posix
def test_a_forked_child_writes_nothing_and_dies_on_its_own(place: Path) -> None:
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
    assert run(place, program) == (0, "")
    assert logged(place) == FIVE


@needs_posix
def test_sigterm_to_a_child_forked_off_the_main_thread_spares_the_parent(place: Path) -> None:
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
    assert run(place, program) == (0, "")
    assert logged(place) == FIVE
