"""The way to an event is the same wherever within an instruction Python says that a frame is."""

from __future__ import annotations

import dis
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from trainscope.record.inference.stack import way_to


def turns(loader: Any) -> None:
    for batch in loader:
        loader.take(batch)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 has no inline caches")
def test_a_frame_within_the_cache_of_an_instruction_is_at_that_instruction() -> None:
    def frame(offset: int) -> Any:
        return SimpleNamespace(
            f_code=turns.__code__, f_lasti=offset, f_globals=globals(), f_back=None, f_lineno=20
        )

    instructions = turns.__code__.co_code
    checked = 0
    for each in dis.get_instructions(turns):
        behind = each.offset + 2
        if each.opname in ("CALL", "FOR_ITER", "LOAD_METHOD", "LOAD_ATTR"):
            while behind < len(instructions) and instructions[behind] == dis.opmap["CACHE"]:
                at, within = way_to(frame(each.offset))[0], way_to(frame(behind))[0]
                assert within.elements == at.elements
                assert within.loops == at.loops
                behind += 2
                checked += 1
    assert checked


def test_a_batch_that_a_generator_fetches_is_its_turn_s_from_the_first_turn_to_the_last() -> None:
    """Python specializes the loop's instruction after a few turns, and steps over its cache."""
    ways: list[Any] = []

    def fetching() -> Iterator[int]:
        for number in range(40):
            ways.append(way_to(sys._getframe(0))[0].elements)
            yield number

    def train() -> None:
        for _ in fetching():
            torch.ones(1)

    train()
    assert len(ways) == 40
    assert set(ways) == {ways[0]}
