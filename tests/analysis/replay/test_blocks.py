"""Launches put together take as long as one by one."""

import random

import numpy as np
import pytest

from trainscope.analysis.replay.blocks import Launches, Single, blocks_of
from trainscope.analysis.replay.machine import run, run_for_drawing
from trainscope.analysis.replay.program import Act, Item, Program
from trainscope.analysis.replay.samples import Samples


def launch(cost: float, length: float, lane: int = 0, **more) -> Item:
    return Item(
        0.0, 0.0, fixed_ns=cost, act=Act.LAUNCH, lane=lane, length_ns=length, gap_ns=3.0,
        latency_ns=20.0, **more,
    )  # fmt: skip


def program(items: list[Item], lanes: int = 2) -> Program:
    return Program(tuple(items), 1, tuple((0, lane) for lane in range(lanes)), (), 1, 0)


def samples(count: int) -> Samples:
    shares = np.linspace(0.8, 1.2, count)
    return Samples(100 * shares, shares, shares[::-1], *[shares] * 4)


def test_a_run_of_launches_is_three_sums() -> None:
    items = [launch(10, 100), Item(0, 0, fixed_ns=500), launch(10, 40), Item(0, 0, fixed_ns=7)]
    (block,) = blocks_of(program(items), Samples.as_recorded())
    assert isinstance(block, Launches)
    assert (block.count, block.cpu_ns[0]) == (2, 527)
    assert block.first_from_cpu_ns[0] == 30
    assert block.from_cpu_ns[0] == 520 + 20 + 40  # the second one, launched late, ends last
    assert block.from_stream_ns[0] == 3 + 100 + 3 + 40


def test_what_is_no_launch_and_another_stream_end_a_run() -> None:
    items = [
        launch(1, 1), launch(1, 1), launch(1, 1, lane=1), Item(0, 0, act=Act.WAIT, lane=0),
        Item(0, 0, fixed_ns=5), launch(1, 1, also=(1,)),
    ]  # fmt: skip
    found = blocks_of(program(items), Samples.as_recorded())
    assert [type(block) for block in found] == [Launches, Launches, Single, Single, Single]
    assert [block.cpu_ns[0] for block in found] == [2, 1, 0, 5, 1]


@pytest.mark.parametrize("seed", range(12))
def test_a_turn_takes_as_long_as_item_by_item(seed: int) -> None:
    chance = random.Random(seed)
    items: list[Item] = []
    for _ in range(chance.randint(20, 200)):
        act = chance.choice(["launch"] * 6 + ["cpu", "copy", "wait", "all", "event", "graph"])
        lane = int(chance.random() < 0.2)
        if act == "cpu":
            items.append(Item(chance.uniform(0, 900), 2.0, backward=chance.random() < 0.5))
        elif act == "wait":
            items.append(Item(30.0, 2.0, act=Act.WAIT, lane=lane, wake_ns=6.0))
        elif act == "all":
            items.append(Item(30.0, 2.0, act=Act.WAIT))
        elif act == "event":
            items.append(Item(20.0, 2.0, act=Act.RECORD, lane=lane, event=len(items)))
            items.append(Item(20.0, 2.0, act=Act.STREAM_WAIT, lane=1 - lane, event=len(items) - 1))
        elif act == "graph":
            items.append(launch(50, chance.uniform(0, 900), lane, also=(1 - lane,)))
        else:
            length = chance.uniform(0, 400)
            waited = chance.choice([0.0, length / 2]) if act != "copy" else 0.0
            cost = chance.uniform(0, 300)
            items.append(launch(cost, length, lane, is_copy=act == "copy", rank_wait_ns=waited))
    made, guesses = program(items), samples(5)
    together = run(made, guesses)
    for place in range(5):
        _, alone_ns = run_for_drawing(made, guesses.take([place]))
        assert alone_ns == pytest.approx(together[place], rel=1e-6)


def test_samples_in_parts_are_the_samples() -> None:
    whole = samples(7)
    parts = list(whole.parts(3))
    assert [len(part) for part in parts] == [3, 3, 1]
    assert np.concatenate([part.cpu_scale for part in parts]) == pytest.approx(whole.cpu_scale)
