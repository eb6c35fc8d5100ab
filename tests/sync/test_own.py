"""trainscope's own work is told from the user's, by thread and by block."""

from __future__ import annotations

import threading

import pytest

from trainscope.sync.own import is_own, own_work


def in_thread(name: str) -> list[bool]:
    seen: list[bool] = []

    def look() -> None:
        seen.append(is_own())
        with own_work():
            seen.append(is_own())
        seen.append(is_own())

    thread = threading.Thread(target=look, name=name)
    thread.start()
    thread.join()
    return seen


def test_a_block_is_ours_and_ends_on_an_exception() -> None:
    assert is_own() is False
    with pytest.raises(KeyError), own_work(), own_work():
        assert is_own() is True
        raise KeyError
    assert is_own() is False


def test_threads_are_ours_by_name() -> None:
    assert in_thread("trainscope-worker") == [True, True, True]
    assert in_thread("wandb-sender") == [False, True, False]


def test_a_block_is_of_one_thread() -> None:
    with own_work():
        assert in_thread("other")[0] is False
