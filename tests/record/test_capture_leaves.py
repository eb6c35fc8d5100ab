"""After a window CUPTI leaves the process, unless the user or the CUDA version say otherwise."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from torch.profiler.profiler import _KinetoProfile
from warm import warm_script

from trainscope.record.capture import Capture, cupti
from trainscope.record.capture.torch_window import TorchWindow
from trainscope.record.schedule import Schedule

VARIABLE = "TEARDOWN_CUPTI"


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What happens as a window ends on a machine with a GPU: the variable, and CUDA calls."""
    found: list[str] = []
    stop_trace = _KinetoProfile.stop_trace

    def told(profile: _KinetoProfile) -> None:
        found.append(f"stop {os.environ.get(VARIABLE)}")
        stop_trace(profile)

    made = TorchWindow.__init__

    def made_with_gpu(window: TorchWindow, *, with_stack: bool) -> None:
        made(window, with_stack=with_stack)
        window._cuda = True

    monkeypatch.setattr(TorchWindow, "__init__", made_with_gpu)
    monkeypatch.setattr(_KinetoProfile, "stop_trace", told)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: found.append("call"), raising=False)
    monkeypatch.setattr(cupti, "_asked", False)
    monkeypatch.delenv(VARIABLE, raising=False)
    return found


def one_window(rank_dir: Path, steps: int = 3) -> Capture:
    capture = Capture(Schedule(active=2), rank_dir, environ={})
    for step in range(steps):
        capture.begin_step(step)
        torch.ones(3).add(1)
        capture.end_step(step)
    return capture


def test_a_window_asks_it_to_leave_and_makes_the_call_in_which_it_does(seen, tmp_path) -> None:
    capture = one_window(tmp_path)
    assert seen[0] == "stop 1"
    assert set(seen[1:]) == {"call"}
    assert VARIABLE not in os.environ
    assert capture.state().windows[0].stays == ""
    calls = len(seen)
    capture.close()  # a process that ends here must not hang
    assert len(seen) > calls


def test_so_does_a_window_that_is_cut_short_or_still_in_its_warm_up(seen, tmp_path) -> None:
    capture = Capture(Schedule(warmup=2, active=2), tmp_path, environ={})
    capture.begin_step(0)
    capture.close()
    assert (seen[0], set(seen[1:])) == ("stop 1", {"call"})
    assert VARIABLE not in os.environ


@pytest.mark.parametrize(("value", "stays"), [("0", "TEARDOWN_CUPTI is '0'"), ("1", "")])
def test_a_value_of_the_users_is_theirs(seen, tmp_path, monkeypatch, value, stays) -> None:
    monkeypatch.setenv(VARIABLE, value)
    capture = one_window(tmp_path)
    assert seen[0] == f"stop {value}"
    assert os.environ[VARIABLE] == value
    assert capture.state().windows[0].stays.startswith(stays)
    assert bool(capture.state().windows[0].stays) is bool(stays)
    assert ("call" in seen) is (value == "1")


def test_with_an_old_cuda_it_stays_and_that_is_said(seen, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", "12.4")
    capture = one_window(tmp_path)
    capture.close()
    assert seen == ["stop None"]
    assert "CUDA 12.4" in capture.state().windows[0].stays


def test_a_failed_kernel_of_the_programs_does_not_cost_the_window(seen, tmp_path, monkeypatch):
    def fails() -> int:
        raise RuntimeError("CUDA error: device-side assert triggered")

    monkeypatch.setattr(torch._C, "_cuda_getDevice", fails, raising=False)
    capture = one_window(tmp_path)
    capture.close()
    assert capture.state().windows[0].complete


def test_without_cuda_there_is_nothing_to_leave(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(torch.version, "cuda", None)
    capture = one_window(tmp_path)
    capture.close()
    assert capture.state().windows[0].stays == ""


PROGRAM = """
import sys
from pathlib import Path
import torch
from trainscope.record.capture import Capture
from trainscope.record.schedule import Schedule
x = torch.randn(64, 64, device="cuda")
capture = Capture(Schedule(active=2, repeat=2), Path(sys.argv[1]), environ={})
for step in range(4):
    capture.begin_step(step)
    x @ x
    capture.end_step(step)
print(capture.state().missing)
"""


@pytest.mark.gpu
def test_a_program_that_ends_behind_its_windows_ends(tmp_path: Path) -> None:
    ended = warm_script(tmp_path, PROGRAM, str(tmp_path)).end()
    assert ended.status == 0, ended.err
    assert ended.out.strip() == "()"  # the second window has its GPU work too
    assert (tmp_path / "trace-001.json.gz").exists()
