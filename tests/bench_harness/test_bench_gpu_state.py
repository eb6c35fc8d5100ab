"""The state of a GPU at work, told by a tool that stands in for ``nvidia-smi``."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from trainscope.bench import environment
from trainscope.bench.environment import ask, state_while
from trainscope.bench.model import GpuState

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the stand-in is a shell script")

OLD_DRIVER = """#!/bin/sh
echo "$@" >> "$0.calls"
case "$*" in
  *clocks_event_reasons*) echo "Field is not a valid field to query."; exit 2;;
  *clocks_throttle_reasons*) echo "1755, 3201, 61, 512.50, 0x0000000000000004";;
  *driver_version*) echo "580.159";;
esac
"""


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "nvidia-smi"
    file.write_text(OLD_DRIVER)
    file.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(environment, "smi_id", lambda device: "GPU-1234")
    return file


def test_it_is_asked_while_the_function_runs_also_of_an_old_driver(tool: Path) -> None:
    ran: list[int] = []
    found = state_while(torch.device("cuda", 0), lambda: ran.append(1))
    assert found == GpuState(
        sm_clock_mhz=1755,
        memory_clock_mhz=3201,
        temperature_c=61,
        power_w=512.5,
        throttled_by=("power cap",),
    )
    assert ran
    assert all(call.startswith("-i GPU-1234 ") for call in _calls(tool))


def test_one_field_is_one_answer(tool: Path) -> None:
    assert ask("GPU-1234", ("driver_version",)) == ["580.159"]


def test_without_the_tool_or_an_answer_the_state_is_not_known(
    tool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ask("GPU-1234", ("no_such_field",)) is None
    monkeypatch.setenv("PATH", "")
    assert ask("GPU-1234", ("driver_version",)) is None
    assert state_while(torch.device("cuda", 0), lambda: None) is None


def _calls(tool: Path) -> list[str]:
    return tool.with_name("nvidia-smi.calls").read_text().splitlines()
