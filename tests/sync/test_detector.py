"""The detector from the outside: what it sees, when it raises, what it leaves behind."""

from __future__ import annotations

import sys
import threading
import warnings
from contextlib import AbstractContextManager, nullcontext
from types import FrameType

import pytest
import torch
from emulated import Host, announce, debug_mode, on_device

from trainscope.errors import ConfigError, SyncError
from trainscope.sync import process
from trainscope.sync.detector import SyncDetector
from trainscope.sync.guards import allow_sync
from trainscope.sync.loop import LoopState
from trainscope.sync.messages import SyncWarning
from trainscope.sync.own import own_work
from trainscope.trace.syncs import SyncSite

__all__ = ["debug_mode"]

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="emulates a GPU where none is")


def live(mode: str = "record", **given: object) -> SyncDetector:
    return SyncDetector(mode, dry_run=False, **given)  # type: ignore[arg-type]


def seen(detector: SyncDetector) -> list[tuple[str, int, int]]:
    return sorted((site.kind, site.line, site.count) for site in detector.sites())


def line() -> int:
    return sys._getframe(1).f_lineno


nonzero = announce
"""Called by this name, the announcement comes from an expression that says its kind."""


def test_both_ways_of_seeing_make_one_list() -> None:
    x = on_device(1.0).sum()
    with live() as detector:
        detector.begin_step(0)
        here = line()
        for _ in range(3):
            x.item()
        nonzero()
        print(x)
    assert seen(detector) == [
        ("item", here + 2, 3), ("nonzero", here + 3, 1), ("repr", here + 4, 1),
    ]  # fmt: skip
    by_kind = {site.kind: site for site in detector.sites()}
    assert (by_kind["item"].timed, by_kind["nonzero"].timed) == (3, 0)
    assert by_kind["repr"].counted_internally is True
    assert by_kind["item"].source == "x.item()"
    assert by_kind["item"].function == "test_both_ways_of_seeing_make_one_list"


def test_off_installs_nothing() -> None:
    before = (dict(vars(torch.Tensor)), list(warnings.filters))
    with live("off") as detector:
        assert (dict(vars(torch.Tensor)), list(warnings.filters)) == before
        on_device(1.0).item()
        detector.begin_step(0)
    assert detector.sites() == ()
    assert detector.state().mode == "off"


def test_everything_is_put_back() -> None:
    owners = (torch.Tensor, torch.cuda.Stream, torch.cuda.Event, torch.cuda, torch._C)
    before = [dict(vars(owner)) for owner in owners], list(warnings.filters)
    first, second = live(), live()
    first.start()
    first.start()
    assert vars(torch.Tensor)["item"] is not before[0][0].get("item")
    second.start()
    first.stop()
    first.stop()
    on_device(1.0).item()
    assert vars(torch.Tensor)["item"] is not before[0][0].get("item")
    second.stop()
    assert ([dict(vars(owner)) for owner in owners], list(warnings.filters)) == before
    assert (len(first.sites()), len(second.sites())) == (0, 1)
    assert process.LIVE.source is None


def test_an_exception_in_the_loop_passes_and_everything_is_put_back() -> None:
    before = dict(vars(torch.Tensor))
    with pytest.raises(KeyError, match="theirs"), live():
        raise KeyError("theirs")
    assert dict(vars(torch.Tensor)) == before


@pytest.mark.parametrize("mode", ["Record", "", "raise"])
def test_a_mode_that_is_none_is_refused(mode: str) -> None:
    with pytest.raises(ConfigError) as error:
        SyncDetector(mode)
    assert str(error.value) == f"mode={mode!r} is not one of record, warn, error, off"


# ---- modes --------------------------------------------------------------------------------------
def test_warn_warns_once_a_site_at_the_user_s_line() -> None:
    x = on_device(1.0).sum()
    with live("warn"), warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        for _ in range(3):
            x.item()
    (warning,) = shown
    assert warning.category is SyncWarning
    assert (warning.filename, warning.lineno) == (__file__, line() - 3)
    assert str(warning.message) == (
        f"TS101 item: {__file__}:{warning.lineno} in "
        "test_warn_warns_once_a_site_at_the_user_s_line makes the CPU wait for the GPU "
        "(`x.item()`): keep the value on the GPU, and read it only on the steps that use it; "
        "several values: one .tolist()"
    )


def test_warn_warns_once_a_line_in_whatever_phase_it_is_and_not_of_the_set_up() -> None:
    loop, x = LoopState(), on_device(1.0).sum()
    with live("warn", loop=loop), warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("default")
        for step, phase in ((None, None), (0, None), (1, "forward"), (2, "h2d")):
            loop.step, loop.find_phase = step, lambda phase=phase: phase
            x.item()
            if step is not None:
                announce()
    assert [warning.lineno for warning in shown] == [line() - 3, line() - 1]


def test_error_raises_at_the_line_and_counts() -> None:
    x = on_device(1.0).sum()
    with live("error") as detector:
        with pytest.raises(SyncError, match=r"TS101 item: .*test_detector\.py:\d+ in test_error"):
            x.item()
        with pytest.raises(SyncError, match=r'permit it: with trainscope\.allow_sync\("reason"\)'):
            nonzero()
        with allow_sync("checkpoint"):
            assert x.item() == 1.0
        assert torch.ones(1).item() == 1.0
    assert sorted((s.kind, s.allowed) for s in detector.sites() if s.allowed is None) == [
        ("item", None), ("nonzero", None),
    ]  # fmt: skip
    assert [s.allowed for s in detector.sites() if s.allowed] == ["checkpoint"]


def test_error_is_for_the_loop_s_thread_and_its_steps_only() -> None:
    loop, x, raised = LoopState(), on_device(1.0).sum(), []
    with live("error", loop=loop) as detector:
        assert x.item() == 1.0  # before the first step

        def helper() -> None:
            try:
                x.item()
            except SyncError as error:
                raised.append(error)

        loop.step, loop.started = 0, True
        thread = threading.Thread(target=helper, name="pin-memory")
        thread.start()
        thread.join()
        with pytest.raises(SyncError):
            x.item()
    assert raised == []
    assert sorted((s.thread, s.during) for s in detector.sites()) == [
        ("main", "setup"), ("main", "training"), ("pin-memory", "training"),
    ]  # fmt: skip


def test_own_work_is_nobody_s_sync() -> None:
    x, results = on_device(1.0).sum(), []
    with live("error") as detector:
        with own_work():
            x.item()
            nonzero()
        thread = threading.Thread(target=lambda: results.append(x.item()), name="trainscope-worker")
        thread.start()
        thread.join()
    assert (detector.sites(), results) == ((), [1.0])


# ---- places -------------------------------------------------------------------------------------
def sites_of(detector: SyncDetector) -> dict[str | None, SyncSite]:
    return {site.phase: site for site in detector.sites()}


def test_a_hook_in_backward_is_kept_under_backward() -> None:
    loop = LoopState()
    w = torch.nn.Parameter(torch.ones(2))
    x = on_device(1.0).sum()

    def hook(p: torch.Tensor) -> None:
        x.item()

    w.register_post_accumulate_grad_hook(hook)
    with live(loop=loop) as detector:
        loop.find_phase = lambda: "forward"
        x.item()
        (w * 2).sum().backward()
    by_phase = sites_of(detector)
    assert set(by_phase) == {"forward", "backward"}
    assert by_phase["backward"].caller == f"{__file__}:{line() - 3}"
    assert by_phase["backward"].function == "hook"


def test_waits_told_after_backward_belong_to_it() -> None:
    """torch tells the waits of C++ backward code when its engine has returned."""
    loop = LoopState()
    engine = "def _engine_run_backward(tell):\n    tell()\n"
    backward = "def backward(tell):\n    _engine_run_backward(tell)\n"
    names: dict[str, object] = {}
    exec(compile(engine, torch.autograd.graph.__file__, "exec"), names)
    exec(compile(backward, torch.autograd.__file__, "exec"), names)
    with live(loop=loop) as detector:
        names["backward"](announce)  # type: ignore[operator]
    (site,) = detector.sites()
    assert (site.phase, site.thread, site.file) == ("backward", "autograd", __file__)
    assert site.via == "torch.autograd:2 backward"


def test_an_optimizer_s_read_of_a_tensor_is_an_implicit_one() -> None:
    lr = on_device(0.1).sum()
    with live() as detector:
        torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=lr, foreach=False)
    (site,) = detector.sites()
    assert (site.kind, site.line, site.file) == ("item-implicit", line() - 2, __file__)
    assert site.via is not None
    assert site.via.startswith("torch.optim.sgd:")
    assert site.advice == "give the optimizer a number or a CPU tensor for lr, or capturable=True"


def test_evaluation_and_setup_are_kept_apart() -> None:
    loop, x = LoopState(), on_device(1.0).sum()
    with live(loop=loop) as detector:
        for started, step, evaluating, finished in (
            (False, None, False, False), (True, 0, False, False), (True, 0, True, False),
            (True, None, False, False), (True, None, False, True),
        ):  # fmt: skip
            loop.started, loop.step = started, step
            loop.evaluating, loop.finished = evaluating, finished
            x.item()
    during = {site.during for site in detector.sites()}
    assert during == {"setup", "training", "evaluation", "between", "teardown"}


def test_a_loop_that_knows_how_far_it_reaches_is_asked_at_each_wait() -> None:
    loop, x, asked = LoopState(), on_device(1.0).sum(), []
    loop.started, loop.step, inside = True, 7, [True, False, True, None]

    def check_inside(frame: FrameType | None) -> bool | None:
        while frame is not None and frame.f_code.co_filename != __file__:
            frame = frame.f_back
        assert frame is not None
        asked.append(frame.f_lineno)
        found = inside[len(asked) - 1]
        if not found:
            loop.step = None
        return found

    loop.check_inside = check_inside
    first = line() + 2
    with live(loop=loop) as detector:
        x.item()
        x.item()
        x.item()  # at the top of a turn, of which no event has been seen
        x.item()
        thread = threading.Thread(target=x.item)
        thread.start()
        thread.join()
    assert asked == [first, first + 1, first + 2, first + 3]
    sites = {(site.line, site.during): site.count for site in detector.sites()}
    assert sites[first, "training"] == sites[first + 2, "training"] == 1
    assert sites[first + 1, "between"] == sites[first + 3, "between"] == 1


def test_a_wait_between_two_steps_is_counted_with_the_one_before() -> None:
    loop, x = LoopState(), on_device(1.0).sum()
    loop.started, loop.check_inside = True, lambda frame: True
    with live(loop=loop) as detector:
        for step in range(3):
            detector.begin_step(step)
            loop.step = step
            loop.step = None
            for _ in range(4 if step else 0):
                x.item()
    (site,) = detector.sites()
    assert (site.during, site.count, site.steps) == ("training", 8, 2)


def test_no_h2d_range_in_a_step_whose_loop_has_been_left() -> None:
    loop, entered = LoopState(), []

    def h2d() -> AbstractContextManager[object]:
        entered.append(loop.step)
        return nullcontext()

    def check_inside(frame: FrameType | None) -> bool:
        loop.step = None
        return False

    loop.h2d, loop.step, loop.check_inside = h2d, 3, check_inside
    with live(loop=loop):
        torch.ones(2).as_subclass(Host).to("cuda")
    assert entered == []


def test_a_copy_to_the_device_enters_the_h2d_range_between_phases_only() -> None:
    loop, entered = LoopState(), []

    def h2d() -> AbstractContextManager[object]:
        entered.append(loop.step)
        return nullcontext()

    loop.h2d = h2d
    batch = torch.ones(2).as_subclass(Host)
    with live(loop=loop):
        batch.to("cuda")  # outside a step
        loop.step = 3
        batch.to("cuda")
        batch.to(torch.float64)
        loop.find_phase = lambda: "forward"
        batch.to("cuda")
        loop.find_phase = None
        with own_work():
            batch.to("cuda")
        thread = threading.Thread(target=lambda: batch.to("cuda"))
        thread.start()
        thread.join()
    assert entered == [3]
