"""Batches of a ``DataLoader``, seen by ``add_everything`` alone."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset
from torch.utils.data.dataloader import _BaseDataLoaderIter
from written_ranges import WrittenRanges

from trainscope.record.hooks import Hooks


@pytest.fixture
def hooks(ranges: WrittenRanges) -> Iterator[Hooks]:
    hooks = Hooks(ranges)
    hooks.add_everything()
    yield hooks
    hooks.remove()


class Embedded(Dataset[torch.Tensor]):
    """Runs a model on each item, as an on-the-fly feature extractor does."""

    def __init__(self) -> None:
        self.model = nn.Linear(1, 1)

    def __len__(self) -> int:
        return 2

    def __getitem__(self, at: int) -> torch.Tensor:
        return self.model(torch.ones(1)).detach()


class Broken(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        yield 1
        raise RuntimeError("no such file")


class Nested(Dataset[int]):
    def __len__(self) -> int:
        return 1

    def __getitem__(self, at: int) -> int:
        return sum(int(batch) for batch in DataLoader([1, 2]))  # type: ignore[arg-type]


def test_each_batch_is_announced_and_the_end_is_told(hooks: Hooks, ranges: WrittenRanges) -> None:
    events: list[str] = []
    ranges.on_event = lambda event: events.append(f"{event} after {ranges.text!r}")
    loader = DataLoader([1, 2], num_workers=0)  # type: ignore[arg-type]
    assert [int(batch) for batch in loader] == [1, 2]
    assert events == [
        "first data after ''",
        "data after 'data()'",
        "data after 'data() data()'",
        "no data after 'data() data() data('",
    ]
    assert ranges.text == "data() data() data()"


def test_workers_that_stay_begin_each_epoch_anew(hooks: Hooks, ranges: WrittenRanges) -> None:
    events: list[str] = []
    ranges.on_event = events.append
    loader = DataLoader([1, 2], num_workers=1, persistent_workers=True)  # type: ignore[arg-type]
    for _ in range(2):
        assert [int(batch) for batch in loader] == [1, 2]
    assert events == ["first data", "data", "data", "no data"] * 2
    assert not ranges.open_names


def test_what_runs_in_a_fetch_is_part_of_it(hooks: Hooks, ranges: WrittenRanges) -> None:
    for _ in DataLoader(Embedded(), batch_size=2):
        pass
    assert [int(batch) for batch in DataLoader(Nested())] == [3]
    assert ranges.text == "data() data() data() data()"


def test_an_error_in_the_loader_passes_through(hooks: Hooks, ranges: WrittenRanges) -> None:
    batches = iter(DataLoader(Broken()))
    assert int(next(batches)) == 1
    with pytest.raises(RuntimeError, match="no such file"):
        next(batches)
    nn.Linear(1, 1)(torch.ones(1))
    assert ranges.text == "data() data() forward()"


@pytest.mark.parametrize(
    ("grad", "eval_mode", "begins_turn", "name"),
    [
        (True, False, False, "data"),
        (False, False, False, "evaluation"),
        (True, True, False, "evaluation"),
        (True, True, True, "data"),
        (False, True, True, "data"),
    ],
)
def test_a_fetch_for_an_evaluation_is_its_part(
    grad: bool, eval_mode: bool, begins_turn: bool, name: str, hooks: Hooks, ranges: WrittenRanges
) -> None:
    evaluating: list[bool] = []

    def collate(items: list[int]) -> int:
        evaluating.append(ranges.loop.evaluating)
        return items[0]

    ranges.on_event = lambda event: begins_turn
    ranges.loop.eval_mode = eval_mode
    loader = DataLoader([1], collate_fn=collate)  # type: ignore[arg-type]
    with torch.set_grad_enabled(grad):
        assert next(iter(loader)) == 1
    assert ranges.text == f"{name}()"
    assert evaluating == [name == "evaluation"]
    assert not ranges.loop.evaluating


def test_another_thread_s_fetches_are_not_the_loop_s(hooks: Hooks, ranges: WrittenRanges) -> None:
    loader = DataLoader([1, 2])  # type: ignore[arg-type]
    thread = threading.Thread(target=lambda: list(loader))
    thread.start()
    thread.join()
    assert ranges.text == ""


def test_models_handed_over_by_name_bring_no_loader(ranges: WrittenRanges) -> None:
    before = vars(_BaseDataLoaderIter)["__next__"]
    hooks = Hooks(ranges)
    hooks.add_model(nn.Linear(1, 1))
    assert vars(_BaseDataLoaderIter)["__next__"] is before
    hooks.remove()


def test_a_fault_of_ours_leaves_the_batches_whole(hooks: Hooks, ranges: WrittenRanges) -> None:
    def fails(event: str) -> None:
        raise ValueError("ours")

    ranges.on_event = fails
    with pytest.warns(RuntimeWarning, match="no longer records"):
        assert [int(batch) for batch in DataLoader([1, 2])] == [1, 2]  # type: ignore[arg-type]
    assert hooks.not_seen()[0] == "ranges after an error: ValueError: ours"
