"""Batches of a class of their own that a loader with ``pin_memory=True`` lets pin themselves."""

from __future__ import annotations

import torch
from torch.utils.data import DataLoader, TensorDataset

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


def test_a_loader_made_of_another_one_pins_as_that_does() -> None:
    """As opacus and poutyne make one again, with a sampler of their own."""

    rows = TensorDataset(torch.ones(6, 2))
    ready = torch.cuda.is_available()
    found: list[set[str]] = []
    for pageable in (True, False):
        with SyncDetector(dry_run=True) as detector:
            if pageable:
                given = DataLoader(rows, 2, pin_memory=False)
            else:
                given = DataLoader(rows, 2, pin_memory=ready)
            for (x,) in DataLoader(given.dataset, 3, pin_memory=given.pin_memory):
                x.to("cuda")
        found.append({site.kind for site in detector.sites()})
    assert found == [{"h2d-pageable"}, {"h2d-pinned"}]


def test_a_copy_that_waits_only_where_there_is_no_gpu() -> None:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    with SyncDetector(dry_run=True) as detector:
        x = torch.ones(4).pin_memory()
        x.to(device, non_blocking=device.type == "cuda")
        x.to(device, non_blocking=device.type == "xpu")
    assert [(site.kind, site.count) for site in detector.sites()] == [("h2d-pinned", 1)]
