"""What stands first where a captured window tells what syncs cost."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from trainscope.report.model import IdleReport, Removal, WhatIf
from trainscope.report.model_gpu import GpuReport, IdleDetail
from trainscope.report.verdict_gain import gain_sentences

SLOW = "the CPU launches too slowly"


def sentences(busy_ms: float, **idle_ms: float) -> list[str]:
    """Of a step of 2.8 ms that is 1.12x as fast without one site."""
    names = ("sync", "launch", "data", "copy", "communication", "other")
    words = {"launch": SLOW, "data": "the loop waits for data", "sync": "a sync held the CPU"}
    details = [
        IdleDetail(cause=name, words=words[name], ms_per_step=ms) for name, ms in idle_ms.items()
    ]
    gpu = GpuReport.model_construct(
        steps=4,
        incomplete=[],
        devices=[SimpleNamespace(busy_ms_per_step=busy_ms)],
        idle=details,
    )
    idle = IdleReport.model_construct(
        per_step_ms=sum(idle_ms.values()), causes={name: idle_ms.get(name, 0.0) for name in names}
    )
    removal = Removal(sites="all", step_ms=2.5, speedup=1.12, band=(1.1, 1.14))
    one = Removal(sites=["train.py:4"], step_ms=2.5, speedup=1.12, band=(1.1, 1.14))
    what_if = WhatIf.model_construct(
        removals=[removal, one], kept=[], cannot_tell=None, baseline=None
    )
    return gain_sentences(what_if, idle, gpu, 2.8)


@pytest.mark.parametrize(
    ("busy_ms", "idle_ms", "more"),
    [
        (
            0.5,
            {"sync": 0.1, "launch": 3.0, "data": 0.4},
            [
                "Even then the GPU idles most of the time: 3.00 ms of every 4.00 ms captured step "
                f"because {SLOW}."
            ],
        ),
        (1.6, {"sync": 0.1, "launch": 1.9, "data": 0.4}, []),  # not most of it
        (0.5, {"sync": 3.0, "launch": 0.5}, []),  # that is what the syncs cost
        (0.5, {"sync": 3.0}, []),
    ],
)
def test_a_gpu_that_idles_for_another_reason_is_told_beside_a_small_gain(
    busy_ms: float, idle_ms: dict[str, float], more: list[str]
) -> None:
    first, *others = sentences(busy_ms, **idle_ms)
    assert "train.py:4" in first
    assert others == more
