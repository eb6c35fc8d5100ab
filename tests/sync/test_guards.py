"""no_sync and allow_sync: by thread, nested, with a detector and without."""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Iterator

import pytest
import torch
from emulated import announce, on_device

from trainscope.errors import ConfigError, SyncError
from trainscope.sync import guards, permits, process
from trainscope.sync.detector import SyncDetector
from trainscope.sync.guards import allow_sync, no_sync
from trainscope.sync.messages import SyncWarning

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="emulates a GPU where none is")


@pytest.fixture(autouse=True)
def as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(guards, "fitting", lambda: process.LIVE)
    yield
    assert permits._stacks == {}
    assert process.LIVE.source is None


def test_it_raises_at_the_line_without_any_detector() -> None:
    x = on_device(1.0).sum()
    with no_sync():
        torch.ones(1).item()
        with pytest.raises(SyncError, match=r"TS101 item: .*test_guards\.py:\d+ in test_it_raises"):
            x.item()
        with pytest.raises(SyncError, match="TS102 item-implicit"):
            announce()
    assert x.item() == 1.0


def test_pytest_ends_the_traceback_at_the_users_line() -> None:
    for guarded_dry in (False, True):
        x = on_device(1.0).sum()
        with pytest.MonkeyPatch.context() as patched:
            if guarded_dry:
                patched.setattr(guards, "fitting", lambda: process.DRY)
                x = torch.nn.Parameter(torch.ones(1)).sum()
            with pytest.raises(SyncError) as raised, no_sync():
                x.item()
        shown = raised.traceback.filter(raised)
        assert [entry.path.name for entry in shown] == ["test_guards.py"]
        assert len(raised.traceback) > 1


def test_the_error_leaves_the_block_as_any_other() -> None:
    x = on_device(1.0).sum()
    with pytest.raises(SyncError), no_sync():
        x.item()
    assert x.item() == 1.0


def test_warn_warns_once_a_line() -> None:
    x = on_device(1.0).sum()
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("default")
        with no_sync("warn"):
            for _ in range(3):
                assert x.item() == 1.0
            x.item()
    assert [(w.category, w.filename) for w in shown] == [(SyncWarning, __file__)] * 2
    assert shown[1].lineno == shown[0].lineno + 1


def test_nested_the_innermost_counts() -> None:
    x = on_device(1.0).sum()
    with no_sync():
        with allow_sync("the checkpoint"):
            assert x.item() == 1.0
            with no_sync(), pytest.raises(SyncError):
                x.item()
            assert x.item() == 1.0
        with pytest.raises(SyncError):
            x.item()


def test_other_threads_are_not_affected() -> None:
    x, results = on_device(1.0).sum(), []
    with no_sync():
        thread = threading.Thread(target=lambda: results.append(x.item()))
        thread.start()
        thread.join()
    assert results == [1.0]


def test_allowed_waits_are_recorded_with_their_reason() -> None:
    x = on_device(1.0).sum()
    with SyncDetector(dry_run=False) as detector:
        with no_sync(), allow_sync("  read the epoch's loss "):
            x.item()
        with pytest.raises(SyncError), no_sync():
            x.item()
        x.item()
    assert sorted((s.allowed or "", s.count) for s in detector.sites()) == [
        ("", 1), ("", 1), ("read the epoch's loss", 1),
    ]  # fmt: skip


def test_a_hook_that_backward_runs_is_under_the_block() -> None:
    x, w = on_device(1.0).sum(), torch.nn.Parameter(torch.ones(2))

    def hook(p: torch.Tensor) -> None:
        x.item()

    w.register_post_accumulate_grad_hook(hook)
    with no_sync(), pytest.raises(SyncError, match="in hook makes the CPU wait"):
        (w * 2).sum().backward()
    with no_sync(), allow_sync("statistics"):
        (w * 2).sum().backward()


def test_the_engine_s_thread_is_under_the_block_of_the_thread_in_backward(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On a GPU, hooks run on a thread of the engine while the caller waits in backward()."""
    held, names = threading.Lock(), dict[str, object]()
    held.acquire()
    exec("def _engine_run_backward(wait):\n    wait()\n", names)

    def loop() -> None:
        with no_sync():
            names["_engine_run_backward"](held.acquire)  # type: ignore[operator]

    thread = threading.Thread(target=loop)
    thread.start()
    assert permits.here() is None  # this thread is no engine's
    monkeypatch.setattr(torch._C, "_current_graph_task_id", lambda: 7)
    permit, until = None, time.monotonic() + 5
    while permit is None and time.monotonic() < until:
        permit = permits.here()
    held.release()
    thread.join()
    assert permit is not None
    assert permit.mode == "error"


def test_blocks_may_end_in_any_order() -> None:
    x = on_device(1.0).sum()
    first, second = no_sync(), allow_sync("a generator left open")
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert x.item() == 1.0
    second.__exit__(None, None, None)


def test_arguments_are_checked() -> None:
    with pytest.raises(ConfigError) as error, no_sync("raise"):
        pass
    assert str(error.value) == "mode='raise' is not one of error, warn"
    with pytest.raises(ConfigError) as error, allow_sync(" "):
        pass
    assert str(error.value) == "reason=' ' must say why, as in allow_sync(\"checkpoint\")"
