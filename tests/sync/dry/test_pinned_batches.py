"""Batches of a class of their own that a loader with ``pin_memory=True`` lets pin themselves."""

from __future__ import annotations

import torch
from torch.utils.data import DataLoader

from trainscope.sync.detector import SyncDetector


class Store:
    def __init__(self, x: torch.Tensor) -> None:
        self.mapping = {"x": x, "size": len(x)}


class Batch:
    """As a graph library's: the tensors are in a store, and each is moved by itself."""

    def __init__(self, rows: list[torch.Tensor]) -> None:
        self.store = Store(torch.stack(rows))
        self.owner = self

    def to(self, device: str, **how: bool) -> torch.Tensor:
        return self.store.mapping["x"].to(device, **how)


class Pinning(Batch):
    pinned = 0

    def pin_memory(self) -> Pinning:
        Pinning.pinned += 1
        return self


def kinds(batch: type[Batch], *, pin_memory: bool, non_blocking: bool) -> set[str]:
    loader = DataLoader(torch.ones(6, 2), 2, collate_fn=batch, pin_memory=pin_memory)
    with SyncDetector(dry_run=True) as detector:
        for each in loader:
            each.to("cuda", non_blocking=non_blocking)
    return {site.kind for site in detector.sites()}


def test_a_batch_that_pins_itself_is_copied_from_pinned_memory() -> None:
    assert kinds(Pinning, pin_memory=True, non_blocking=False) == {"h2d-pinned"}
    assert kinds(Pinning, pin_memory=True, non_blocking=True) == set()
    assert kinds(Pinning, pin_memory=False, non_blocking=False) == {"h2d-pageable"}
    assert Pinning.pinned == 0, "the program's own code is not called where it would not be"


def test_a_batch_that_cannot_pin_itself_stays_pageable() -> None:
    assert kinds(Batch, pin_memory=True, non_blocking=False) == {"h2d-pageable"}
