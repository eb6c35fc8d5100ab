"""The debug mode and the filter: ours while armed, the user's before, meanwhile and after."""

from __future__ import annotations

import functools
import sys
import threading
import types
import warnings
from collections.abc import Iterator
from types import FrameType

import pytest
import torch
from emulated import ANNOUNCEMENT, DebugMode, debug_mode

from trainscope.sync import probes
from trainscope.sync.armed import Armed

__all__ = ["debug_mode"]


class Heard(list[str]):
    """Lines of the waits heard, as file-less ``function`` names; `error` is raised at each."""

    error: Exception | None = None

    def __call__(self, frame: FrameType | None) -> None:
        self.append("?" if frame is None else frame.f_code.co_name)
        if self.error is not None:
            raise self.error


@pytest.fixture
def heard(debug_mode: DebugMode) -> Iterator[tuple[Heard, Armed]]:
    found = Heard()
    armed = Armed(found)
    armed.start()
    yield found, armed
    armed.stop()


def user_line(mode: DebugMode) -> None:
    mode.call()


def test_each_wait_is_heard_and_nothing_is_shown(
    heard: tuple[Heard, Armed], debug_mode: DebugMode, recwarn: pytest.WarningsRecorder
) -> None:
    found, armed = heard
    assert debug_mode.mode == 1
    armed.repair()  # recwarn has set a filter of its own
    for _ in range(3):
        user_line(debug_mode)
    assert found == ["call", "call", "call"]
    assert len(recwarn) == 0


def test_stop_restores_filters_and_mode_exactly(debug_mode: DebugMode) -> None:
    before, listed = list(warnings.filters), warnings.filters
    setter = torch._C._cuda_set_sync_debug_mode
    armed = Armed(Heard())
    armed.start()
    assert warnings.filters[0][1] is armed
    armed.stop()
    assert (list(warnings.filters), warnings.filters is listed) == (before, True)
    assert torch._C._cuda_set_sync_debug_mode is setter
    assert debug_mode.mode == 0


def test_a_user_s_filter_of_the_meantime_stays(debug_mode: DebugMode) -> None:
    with warnings.catch_warnings():
        armed = Armed(Heard())
        armed.start()
        warnings.filterwarnings("ignore", message="mine")
        mine = warnings.filters[0]
        armed.stop()
        assert warnings.filters[0] is mine


def test_once_only_warnings_do_not_show_again(debug_mode: DebugMode) -> None:
    source = "import warnings\ndef say():\n    warnings.warn('slow', UserWarning)\n"
    module = types.ModuleType("once_only")
    exec(compile(source, "once_only.py", "exec"), vars(module))
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("default")
        module.say()
        armed = Armed(Heard())
        armed.start()
        for _ in range(3):
            module.say()
            assert armed.repair() is None
        armed.stop()
        module.say()
        assert [str(w.message) for w in shown] == ["slow"]


def test_the_error_raised_at_a_wait_comes_out_of_it(
    heard: tuple[Heard, Armed], debug_mode: DebugMode
) -> None:
    found, armed = heard
    armed.repair()
    found.error = KeyError("forbidden")
    with pytest.raises(KeyError, match="forbidden"):
        user_line(debug_mode)
    assert found == ["call"]


def test_inside_a_wrapper_a_wait_is_only_noted(
    heard: tuple[Heard, Armed], debug_mode: DebugMode
) -> None:
    found, armed = heard
    armed.repair()
    probes.here.inside, probes.here.announced = True, False
    user_line(debug_mode)
    probes.here.inside = False
    assert (found, probes.here.announced) == ([], True)


# ---- catch_warnings ---------------------------------------------------------------------------
def test_a_catch_warnings_around_part_of_the_loop_is_told_and_repaired(
    heard: tuple[Heard, Armed], debug_mode: DebugMode
) -> None:
    found, armed = heard
    armed.repair()
    assert armed.repair() is None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        user_line(debug_mode)  # missed
        assert armed.announces() is False
        assert armed.repair() == "a warnings filter set in the program came first"
        assert armed.announces() is True
        user_line(debug_mode)
    assert armed.repair() is None
    user_line(debug_mode)
    assert found == ["call", "call"]


def test_a_filter_that_cannot_hide_a_wait_is_not_told(heard: tuple[Heard, Armed]) -> None:
    _found, armed = heard
    armed.repair()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="lr_scheduler")
        warnings.simplefilter("ignore", category=FutureWarning)
        assert armed.announces() is False
        assert armed.repair() is None
        assert armed.announces() is True
        warnings.filterwarnings("ignore", message="called a sync")
        assert armed.repair() == "a warnings filter set in the program came first"


def test_reset_filters_are_told(heard: tuple[Heard, Armed]) -> None:
    _found, armed = heard
    armed.repair()
    with warnings.catch_warnings():
        warnings.resetwarnings()
        assert armed.repair() == "the warnings filters were reset or replaced"
        assert armed.announces() is True


def test_another_thread_s_catch_warnings_is_told(
    heard: tuple[Heard, Armed], debug_mode: DebugMode
) -> None:
    """It changes the filters of the whole process, for as long as it lasts."""
    found, armed = heard
    armed.repair()
    inside, leave = threading.Event(), threading.Event()

    def other() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            inside.set()
            leave.wait(5)

    thread = threading.Thread(target=other)
    thread.start()
    inside.wait(5)
    assert armed.repair() == "a warnings filter set in the program came first"
    user_line(debug_mode)
    leave.set()
    thread.join()
    assert armed.repair() is None
    assert found == ["call"]


def test_the_version_tells_of_a_block_that_is_over(heard: tuple[Heard, Armed]) -> None:
    _found, armed = heard
    armed.repair()
    before = armed.version()
    assert armed.version() == before
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
    assert armed.repair() is None
    assert armed.version() != before


def test_stopped_inside_a_block_that_began_before_it_is_deaf(debug_mode: DebugMode) -> None:
    found = Heard()
    armed = Armed(found)
    armed.start()
    with warnings.catch_warnings():
        armed.stop()
    with pytest.warns(UserWarning, match="called a synchronizing"):
        warnings.warn(ANNOUNCEMENT, stacklevel=1)
    assert found == []
    assert not [entry for entry in warnings.filters if isinstance(entry[1], Armed)]


# ---- the user's own debug mode ----------------------------------------------------------------
def test_the_user_s_warn_mode_still_warns_and_comes_back(debug_mode: DebugMode) -> None:
    debug_mode.set(1)
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("default")
        user_line(debug_mode)  # shown, so its module remembers it
        found = Heard()
        armed = Armed(found)
        armed.start()
        for _ in range(3):
            user_line(debug_mode)
        armed.stop()
        lines = {(w.filename, w.lineno) for w in shown}
        assert len(found) == 3
        assert len(shown) == 2  # by the default filter: once before us, once by us
        assert len(lines) <= 2
    assert debug_mode.mode == 1


def test_the_user_s_always_filter_shows_each(debug_mode: DebugMode) -> None:
    debug_mode.set(1)
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        found = Heard()
        armed = Armed(found)
        armed.start()
        for _ in range(3):
            user_line(debug_mode)
        armed.stop()
        assert (len(found), [str(w.message) for w in shown]) == (3, [ANNOUNCEMENT] * 3)


def test_the_user_s_error_filter_raises(debug_mode: DebugMode) -> None:
    debug_mode.set(1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = Heard()
        armed = Armed(found)
        armed.start()
        with pytest.raises(UserWarning, match="called a synchronizing"):
            user_line(debug_mode)
        armed.stop()
        assert found == ["call"]


def test_the_user_s_error_mode_stays(debug_mode: DebugMode) -> None:
    debug_mode.set(2)
    armed = Armed(Heard())
    armed.start()
    assert armed.announces() is False
    with pytest.raises(RuntimeError, match="called a synchronizing"):
        user_line(debug_mode)
    armed.stop()
    assert debug_mode.mode == 2


def test_a_mode_set_meanwhile_is_remembered(heard: tuple[Heard, Armed]) -> None:
    _found, armed = heard
    mode = torch._C._cuda_set_sync_debug_mode.__self__._set.__self__  # type: ignore[attr-defined]
    set_mode, get_mode = torch._C._cuda_set_sync_debug_mode, torch._C._cuda_get_sync_debug_mode
    for wish, real in ((0, 1), (2, 2), (1, 1)):
        set_mode(wish)
        assert (get_mode(), mode.mode) == (wish, real)
    with pytest.raises(RuntimeError, match="invalid mode 7"):
        set_mode(7)
    assert get_mode() == 1
    armed.stop()
    assert mode.mode == 1


def test_a_build_without_the_mode_announces_nothing() -> None:
    if hasattr(torch._C, "_cuda_set_sync_debug_mode"):
        pytest.skip("this build of torch has the debug mode")
    armed = Armed(Heard())
    armed.start()
    assert (armed.available, armed.announces()) == (False, False)
    armed.stop()


def test_a_wait_with_no_python_frame_is_heard() -> None:
    found = Heard()
    armed = Armed(found)
    armed.start()
    thread = threading.Thread(target=functools.partial(armed.match, ANNOUNCEMENT))
    thread.start()
    thread.join()
    armed.stop()
    assert found == ["run"]
    assert sys._getframe(0).f_code.co_name not in found
