"""The detector stays whole, says where it was not, and leaves the training alone when it fails."""

from __future__ import annotations

import os
import warnings
from contextlib import nullcontext
from typing import Literal

import pytest
import torch
from emulated import DebugMode, Host, announce, debug_mode, on_device

from trainscope.sync.detector import SyncDetector
from trainscope.sync.loop import LoopState

__all__ = ["debug_mode"]

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="emulates a GPU where none is")

nonzero = announce


def live(mode: str = "record", **given: object) -> SyncDetector:
    return SyncDetector(mode, dry_run=False, **given)  # type: ignore[arg-type]


def test_armed_steps_and_a_disarmed_stretch(debug_mode: DebugMode) -> None:
    loop = LoopState()
    with live(loop=loop) as detector:
        for step in range(10):
            detector.begin_step(step)
            loop.step = step
            if step in (4, 5):
                warnings.simplefilter("ignore")  # the test's own catch_warnings takes it back
            nonzero()
            loop.step = None
        state = detector.state()
    assert state.armed_steps == 8
    assert state.disarmed == ("steps 4-5: a warnings filter set in the program came first",)
    assert detector.state().armed_steps == 8
    assert {site.count for site in detector.sites()} == {8}


def test_a_block_inside_a_step_is_told(debug_mode: DebugMode) -> None:
    with live() as detector:
        for step in range(5):
            detector.begin_step(step)
            if step == 2:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    nonzero()
    state = detector.state()
    assert (state.armed_steps, state.disarmed, detector.sites()) == (5, (), ())
    assert state.cannot_see[-1] == (
        "implicit waits inside a catch_warnings block; steps that had one: 1"
    )


def test_each_detector_counts_each_step_that_has_blocks(debug_mode: DebugMode) -> None:
    with live() as first, live() as second:
        for step in range(64):
            for detector in (first, second):
                detector.begin_step(step)
            if step in (0, 30, 31, 61):
                for _ in range(3):
                    with warnings.catch_warnings():
                        nonzero()
    for detector in (first, second):
        assert detector.cannot_see[-1] == (
            "implicit waits inside a catch_warnings block; steps that had one: 4"
        )


def test_after_many_steps_without_a_block_the_steps_that_have_one_are_counted_as_at_least(
    debug_mode: DebugMode,
) -> None:
    with live() as detector:
        for step in range(400):
            detector.begin_step(step)
            if step in (50, 250, 399):
                with warnings.catch_warnings():
                    nonzero()
    assert detector.cannot_see[-1] == (
        "implicit waits inside a catch_warnings block; steps that had one: 3 or more"
    )


def test_without_a_gpu_it_says_that_it_sees_nothing() -> None:
    with live() as detector:
        for step in range(3):
            detector.begin_step(step)
            torch.ones(1).item()
            with warnings.catch_warnings():
                pass
        words = detector.cannot_see
    assert words == ("any wait: this machine has no CUDA device; a dry run finds them without one",)
    state = detector.state()
    assert (state.cannot_see, state.armed_steps, detector.sites()) == (words, 0, ())


def test_the_user_s_error_mode_is_told(debug_mode: DebugMode) -> None:
    debug_mode.set(2)
    with live() as detector:
        for step in range(2):
            detector.begin_step(step)
    state = detector.state()
    words = "steps 0-1: the program set torch's sync debug mode to 'error'"
    assert (state.armed_steps, state.disarmed) == (0, (words,))


def test_a_fault_of_ours_ends_the_looking_and_not_the_training(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x = on_device(1.0).sum()
    detector = live()
    detector.start()

    def broken(*args: object, **kwargs: object) -> bool:
        raise ZeroDivisionError("ours")

    monkeypatch.setattr(detector._sites, "record", broken)
    with pytest.warns(RuntimeWarning, match="stopped looking for syncs after a fault") as shown:
        assert x.item() == 1.0
        assert x.item() == 1.0
    assert len(shown) == 1
    assert "item" not in vars(torch.Tensor)
    detector.begin_step(1)
    detector.stop()
    assert detector.cannot_see == (
        "anything after a fault of trainscope's own: ZeroDivisionError('ours')",
    )


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_has_nothing_installed() -> None:
    x = on_device(1.0).sum()
    with live() as detector:
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            x.item()
            clean = "item" not in vars(torch.Tensor) and detector.sites() == ()
            os.write(write, b"clean" if clean else b"not")
            os._exit(0)
        os.waitpid(child, 0)
        assert os.read(read, 10) == b"clean"
        os.close(read)
        os.close(write)
        x.item()
    assert [site.count for site in detector.sites()] == [1]


def test_compilation_is_kept_apart() -> None:
    import torch._dynamo

    def backend(graph: torch.fx.GraphModule, inputs: object) -> object:
        nonzero()
        return graph.forward

    with live() as detector:
        torch.compile(lambda t: t * 2, backend=backend)(torch.ones(2))
    (site,) = detector.sites()
    assert (site.during, site.file) == ("compilation", __file__)


def test_a_fault_in_the_h2d_range_is_ours_too() -> None:
    loop, batch = LoopState(), torch.ones(2).as_subclass(Host)
    loop.step, loop.h2d = 0, lambda: nullcontext(1 / 0)
    with live(loop=loop) as detector, pytest.warns(RuntimeWarning, match="ZeroDivisionError"):
        assert batch.to("cuda").is_cuda
    assert detector.sites() == ()


def test_our_warning_never_ends_the_training(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    x = on_device(1.0).sum()
    with live() as detector, warnings.catch_warnings():
        warnings.simplefilter("error")
        monkeypatch.setattr(detector._sites, "record", None)
        assert x.item() == 1.0
    assert "stopped looking for syncs after a fault of its own" in capsys.readouterr().err


@pytest.mark.parametrize("action", ["always", "error"])
def test_a_second_detector_shows_no_question_of_ours(action: Literal["always", "error"]) -> None:
    with SyncDetector(dry_run=False), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter(action)
        with SyncDetector(dry_run=False) as second:
            second.begin_step(0)
            warnings.simplefilter(action)
            with SyncDetector(dry_run=False):
                second.begin_step(1)
    assert [str(each.message) for each in caught] == []
