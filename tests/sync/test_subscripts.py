"""Subscripts: a dry run counts each wait, and a live one gives the same name where it waits."""

from __future__ import annotations

import linecache
from types import FrameType
from typing import Any

import pytest
import torch
from emulated import OnDevice
from gpu_detector import found
from subscript_cases import CASES, MADE, Case

from trainscope.sync.detector import SyncDetector
from trainscope.sync.implicit import implicit_kind


def name_of(source: str) -> str:
    return f"<case {source}>"


def compiled(source: str) -> Any:
    name = name_of(source)
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    return compile(source, name, "exec")


def named(case: Case) -> dict[str, int]:
    """What a live run finds: torch announces waits without saying which, so one name for all."""
    return {case.live: sum(case.waits.values())} if case.live else case.waits


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.source)
def test_a_dry_run_counts_each_wait(case: Case) -> None:
    with SyncDetector(dry_run=True) as making:
        names: dict[str, object] = {}
        exec(compiled(MADE), names)
        with SyncDetector(dry_run=True) as detector:
            exec(compiled(case.source), names)
    assert {site.kind: site.count for site in detector.sites()} == case.waits
    assert making.cannot_see  # the marks of the tensors are of one dry run for both


@pytest.mark.gpu
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.source)
def test_the_gpu_waits_as_often_and_the_name_is_the_same(case: Case) -> None:
    names: dict[str, object] = {}
    exec(compiled(MADE), names)
    exec(compiled(case.source), names)  # once for the kernels to be loaded
    sites = found(lambda: exec(compiled(case.source), names))
    assert {site.kind: site.count for site in sites} == named(case)


# ---- the live name, with no GPU -----------------------------------------------------------------
class Stopped(Exception):
    """Raised where a wait would be announced."""


class Stops(OnDevice):
    """A tensor that says it is on the GPU and stops at the last subscript of a statement."""

    left = 0

    def __getitem__(self, index: Any) -> Any:
        Stops.left -= 1
        if Stops.left < 0:
            raise Stopped
        return super().__getitem__(index)

    def __setitem__(self, index: Any, value: Any) -> None:
        raise Stopped

    def index_put_(self, indices: Any, values: Any) -> Any:  # type: ignore[override]
        raise Stopped


class StopsOnHost(torch.Tensor):
    """A tensor on the host that does so."""

    __getitem__ = Stops.__getitem__
    __setitem__ = Stops.__setitem__


def emulated() -> dict[str, object]:
    names: dict[str, object] = {}
    exec(compiled(MADE.replace(', device="cuda"', "")), names)
    for name in ("x", "X", "v", "s", "m", "flag", "i", "j"):
        names[name] = names[name].as_subclass(Stops)  # type: ignore[attr-defined]
    names["host"] = names["host"].as_subclass(StopsOnHost)  # type: ignore[attr-defined]
    return names


def stopped_at(case: Case, reads: int) -> FrameType:
    Stops.left = reads
    with pytest.raises(Stopped) as stopped:
        exec(compiled(case.source), emulated())
    frames = [entry.frame.raw for entry in stopped.traceback]
    return next(frame for frame in frames if frame.f_code.co_filename == name_of(case.source))


READS_FIRST = {"x[i[:1]] = 0.0": 1, "x[i[:1]] = -n / 2": 1, "x[:4][1:3] = hv[1:3]": 1}
READS_FIRST |= {"host.view(2, 3)[0] = (v * 2)[:3]": 1, "host[1:3] = v[1:3]": 1}
READS_FIRST |= {"x[m] = v[:3]": 1}
"""How many silent reads a statement makes on tensors of the GPU before it waits."""


@pytest.mark.skipif(torch.cuda.is_available(), reason="emulates a GPU where none is")
@pytest.mark.parametrize(
    "case", [case for case in CASES if case.waits], ids=lambda case: case.source
)
def test_the_live_name_is_that_of_the_dry_run(case: Case) -> None:
    frame = stopped_at(case, READS_FIRST.get(case.source, 0))
    assert [implicit_kind(frame, frame)] == list(named(case))
