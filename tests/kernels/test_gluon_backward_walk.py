"""The order of the Gluon backward's blocks, by its own functions on plain integers."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import pytest

pytest.importorskip("triton")
walk = pytest.importorskip("trainscope_kernels.attention.gluon_backward_walk")
launch = pytest.importorskip("trainscope_kernels.attention.gluon_backward_launch")
sizes = pytest.importorskip("trainscope_kernels.attention.gluon_backward_sizes")

PROGRAMS = 128


@pytest.fixture(autouse=True)
def on_integers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets the device functions run here."""
    plain = SimpleNamespace(where=lambda condition, x, y: x if condition else y)
    monkeypatch.setattr(walk, "gl", plain)


def steps(
    first: int, stop: int, group: int, key_block: int, cohort: int, in_turn: bool
) -> Iterator[tuple[int, int]]:
    """(block, head of the group) of each step of a program, heads counted as the kernel does."""
    way = walk.way_of.fn(key_block, cohort, in_turn)
    block, member, head = walk.begin.fn(first, stop, way, in_turn), 0, 0
    for _ in range((stop - first) * group):
        yield block, head
        block, member, heads = walk.after.fn(block, member, first, stop, group, way, in_turn)
        head += heads


@pytest.mark.parametrize("in_turn", [False, True])
@pytest.mark.parametrize("group", [1, 2, 5])
@pytest.mark.parametrize("key_block", [0, 3])
def test_each_block_of_each_head_is_visited_once(key_block, group, in_turn) -> None:
    for first, stop in ((0, 7), (4, 7), (6, 7)):
        visited = list(steps(first, stop, group, key_block, 2, in_turn))
        wanted = {(block, head) for block in range(first, stop) for head in range(group)}
        assert len(visited) == len(wanted)
        assert set(visited) == wanted


@pytest.mark.parametrize(("key_heads", "key_blocks"), [(16, 32), (64, 16), (8, 128), (32, 64)])
def test_under_a_causal_mask_programs_of_a_key_head_meet_at_the_same_block(
    key_heads, key_blocks
) -> None:
    group, rows = 3, 2 * key_blocks
    of_call = sizes.Sizes(1, key_heads * group, key_heads, 64 * rows, 64 * rows, 64, 64)
    section, cohort = launch.down_and_up(of_call, key_blocks, PROGRAMS)
    assert section * cohort == PROGRAMS
    # of one section, in the order in which the kernel takes them
    waiting = [(block, head) for block in range(key_blocks) for head in range(section)]
    running: list[tuple[tuple[int, int], list[tuple[int, int]]]] = []
    while waiting or running:
        while waiting and len(running) < PROGRAMS:
            key_block, head = waiting.pop(0)
            to_do = steps(2 * key_block, rows, group, key_block, cohort, True)
            running.append(((head, key_block // cohort), list(to_do)))
        at: dict[tuple[int, int], set[tuple[int, int]]] = {}
        for who, to_do in running:
            at.setdefault(who, set()).add(to_do.pop(0))
        assert all(len(each) == 1 for each in at.values())
        running = [(who, to_do) for who, to_do in running if to_do]


@pytest.mark.parametrize(
    ("key_heads", "key_blocks", "programs", "wanted"),
    [
        (16, 32, 132, (8, 16)),
        (64, 16, 132, (16, 8)),
        (8, 128, 132, (2, 66)),
        (3, 32, 132, (1, 132)),
        (8, 1000, 132, (1, 132)),
        (512, 1, 132, (256, 1)),
    ],
)
def test_a_section_is_begun_twice_in_every_place(key_heads, key_blocks, programs, wanted) -> None:
    of_call = sizes.Sizes(1, key_heads * 2, key_heads, 1, key_blocks * 128, 64, 64)
    assert launch.down_and_up(of_call, key_blocks, programs) == wanted
