"""On a GPU: every kind of the catalogue once, at its line; and what must not be flagged."""

from __future__ import annotations

import operator
from collections.abc import Callable

import pytest
import torch
from gpu_detector import found, gpu

from trainscope.catalogue.kinds import KINDS

pytestmark = pytest.mark.gpu

DEV = "cuda"
MIB = 1 << 20


@pytest.fixture(scope="module", autouse=True)
def warm() -> None:
    """Load the kernels that the tests use, so that no first-time cost looks like a wait."""
    if torch.cuda.is_available():
        x = torch.randn(64, 64, device=DEV)
        (x @ x).sum().item()
        busy(1)
        torch.cuda.synchronize()


def busy(ms: int = 30) -> None:
    """Queue about `ms` milliseconds of work at 2 GHz, without waiting for it."""
    torch.cuda._sleep(2_000_000 * ms)


def pageable(mib: int) -> torch.Tensor:
    return torch.ones(mib * MIB, dtype=torch.uint8)


def blocked_to_device() -> None:
    source = pageable(8)
    busy()
    source.to(DEV, non_blocking=True)


def blocked_to_host() -> None:
    source, target = torch.ones(64 * MIB, dtype=torch.uint8, device=DEV), pageable(64)
    busy()
    target.copy_(source, non_blocking=True)


def recorded_event() -> None:
    event = torch.cuda.Event()
    event.record()
    event.synchronize()


NUMBERS = [1, 2, 3]

EACH_KIND: dict[str, Callable[[], object]] = {
    "item": lambda: gpu(1).item(),
    "item-implicit": lambda: torch.add(gpu(1), gpu(1), alpha=gpu(1).sum()),  # type: ignore[arg-type]
    "bool": lambda: bool(gpu(1)),
    "int": lambda: int(gpu(1)),
    "float": lambda: float(gpu(1)),
    "index": lambda: operator.index(torch.zeros((), dtype=torch.int64, device=DEV)),
    "tolist": lambda: gpu(3).tolist(),
    "numpy": lambda: gpu(3).numpy(force=True),
    "cpu": lambda: gpu(3).cpu(),
    "repr": lambda: repr(gpu(1000)),
    "format": lambda: f"{gpu(1).sum():.3f}",
    "nonzero": lambda: (gpu(3) > 0).nonzero(),
    "size-readback": lambda: torch.unique(gpu(3)),
    "h2d-pageable": lambda: torch.ones(3).to(DEV),
    "h2d-pinned": lambda: torch.ones(3).pin_memory().to(DEV),
    "h2d-scalar": lambda: torch.tensor(7, device=DEV),
    "h2d-list": lambda: torch.tensor(NUMBERS, device=DEV),
    "h2d-nonblocking-pageable": blocked_to_device,
    "d2h": lambda: gpu(3).to("cpu"),
    "d2h-nonblocking-pageable": blocked_to_host,
    "stream": lambda: torch.cuda.current_stream().synchronize(),
    "event": recorded_event,
    "synchronize": lambda: torch.cuda.synchronize(),
    "empty_cache": lambda: torch.cuda.empty_cache(),
}


def test_the_list_is_the_catalogue() -> None:
    assert list(EACH_KIND) == list(KINDS)


@pytest.mark.parametrize("kind", list(EACH_KIND))
def test_each_kind_once_at_its_line(kind: str) -> None:
    call = EACH_KIND[kind]
    (site,) = found(call)
    assert (site.kind, site.code, site.explicit) == (kind, KINDS[kind].code, KINDS[kind].explicit)
    assert (site.file, site.count, site.thread) == (__file__, 1, "main")
    first = call.__code__.co_firstlineno
    assert first <= site.line <= first + 3
    timed = kind not in ("item-implicit", "nonzero", "size-readback", "h2d-scalar", "h2d-list")
    assert site.timed == timed
    assert (site.blocked_ns_total > 0) is timed
    assert site.counted_internally is (kind in ("repr", "format"))


@pytest.mark.parametrize(
    ("call", "kind", "count"),
    [
        (lambda: gpu(3)[gpu(3) > 0], "nonzero", 1),
        (lambda: torch.masked_select(gpu(3), gpu(3) > 0), "nonzero", 1),
        (lambda: torch.argwhere(gpu(3)), "nonzero", 1),
        (lambda: torch.where(gpu(3) > 0), "nonzero", 1),
        (lambda: gpu(4)[[1, 2]], "h2d-list", 1),
        (lambda: torch.equal(gpu(3), gpu(3)), "bool", 1),
        (lambda: torch.is_nonzero(gpu(1)), "bool", 1),
        (lambda: torch.bincount(torch.arange(3, device=DEV)), "size-readback", 2),
        (lambda: torch.as_tensor(0.5, device=DEV), "h2d-scalar", 1),
        (lambda: torch.nn.Linear(2, 2).to(DEV), "h2d-pageable", 2),
        (lambda: torch.nn.Linear(2, 2).cuda(), "h2d-pageable", 2),
        (lambda: gpu(3).copy_(torch.ones(3)), "h2d-pageable", 1),
        (lambda: torch.ones(3).copy_(gpu(3)), "d2h", 1),
        (lambda: 1.0 in gpu(3), "item", 1),
        (lambda: torch.cuda.Stream().synchronize(), "stream", 1),
    ],
)
def test_other_ways_to_the_same_kinds(call: Callable, kind: str, count: int) -> None:
    assert [(s.kind, s.count, s.file) for s in found(call)] == [(kind, count, __file__)]


@pytest.mark.parametrize("mib", [4, 8, 64])
def test_a_large_pageable_copy_says_how_long_it_blocked(mib: int) -> None:
    source = pageable(mib)

    def call() -> None:
        busy(30)
        source.to(DEV, non_blocking=True)

    (site,) = found(call)
    assert site.kind == "h2d-nonblocking-pageable"
    assert site.blocked_ns_total > 10e6  # most of the 30 ms that were queued


def test_blocked_time_is_the_wait() -> None:
    x = gpu(1)

    def call() -> None:
        busy(30)
        x.item()

    (site,) = found(call)
    assert 10e6 < site.blocked_ns_total < 100e6
    assert site.blocked_ns_median == site.blocked_ns_total


def nothing_waits() -> None:
    x, m = gpu(1000), gpu(1000) > 0
    pinned = torch.ones(64 * MIB, dtype=torch.uint8).pin_memory()
    back = torch.empty(64 * MIB, dtype=torch.uint8, pin_memory=True)
    busy()
    on_gpu = pinned.to(DEV, non_blocking=True)
    pinned.cuda(non_blocking=True)
    on_gpu.copy_(pinned, non_blocking=True)
    back.copy_(on_gpu, non_blocking=True)
    torch.ones(1000).to(DEV, non_blocking=True)  # pageable, but small
    on_gpu.to("cpu", non_blocking=True)
    x[m] = 0.0
    torch.where(m, x, 0.0)
    torch.full((), 7, device=DEV)
    x.to(torch.float64).to(DEV)
    x.repeat_interleave(2)
    torch.nn.functional.one_hot(torch.arange(3, device=DEV), num_classes=4)
    torch.nn.utils.clip_grad_norm_([torch.nn.Parameter(x)], 1.0)
    torch.cuda.memory_allocated()
    torch.cuda.Event().record()
    torch.cuda.current_stream().wait_stream(torch.cuda.Stream())
    torch.ones(3).sum().item()
    torch.empty(0, device=DEV).tolist()
    str(x.shape), x.device, len(x)


def test_what_does_not_wait_is_not_reported() -> None:
    sites = found(nothing_waits)
    assert [(s.kind, s.source) for s in sites] == []
