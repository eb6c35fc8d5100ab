"""The order of the Gluon backward's blocks, by its own functions on plain integers."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from trainscope_kernels.attention.call import Call

pytest.importorskip("triton")
walk = pytest.importorskip("trainscope_kernels.attention.gluon_backward_walk")
mask = pytest.importorskip("trainscope_kernels.attention.gluon_backward_mask")
launch = pytest.importorskip("trainscope_kernels.attention.gluon_backward_launch")
sizes = pytest.importorskip("trainscope_kernels.attention.gluon_backward_sizes")

PROGRAMS = 128
ROWS, KEYS = 64, 128


@pytest.fixture(autouse=True)
def on_integers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets the device functions run here."""
    plain = SimpleNamespace(
        where=lambda condition, x, y: x if condition else y,
        minimum=min,
        maximum=max,
        cdiv=lambda x, y: -(-x // y),
    )
    monkeypatch.setattr(walk, "gl", plain)
    monkeypatch.setattr(mask, "gl", plain)


def steps(
    first: int, edge: int, stop: int, group: int, key_block: int, cohort: int, how: str
) -> Iterator[tuple[int, int]]:
    """(block, head of the group) of each step of a program, heads counted as the kernel does.

    Producer and consumers take them so; a consumer in two loops, the second from where the first
    has come to.
    """
    way = walk.way_of.fn(key_block, cohort, how)
    block, member, head = walk.begin.fn(first, edge, stop, way, how), 0, 0
    for _ in range((stop - first) * group):
        yield block, head
        block, member, heads = walk.after.fn(block, member, first, stop, group, way, how)
        head += heads


@pytest.mark.parametrize("key_block", [0, 3])
@pytest.mark.parametrize(
    ("how", "group"),
    [("up", 1), *((how, group) for how in ("heads", "turns", "apart") for group in (1, 2, 5))],
)
def test_each_block_of_each_head_is_visited_once(how, group, key_block) -> None:
    for first, edge, stop in ((0, 0, 7), (0, 2, 7), (4, 6, 7), (5, 7, 7), (6, 7, 7), (6, 6, 7)):
        edge = edge if how == "apart" else first
        visited = list(steps(first, edge, stop, group, key_block, 2, how))
        wanted = {(block, head) for block in range(first, stop) for head in range(group)}
        assert len(visited) == len(wanted)
        assert set(visited) == wanted
        # the first loop, of so many steps, has no mask
        assert all(block >= edge for block, _ in visited[: (stop - edge) * group])


@pytest.mark.parametrize("cohort", [1, 2])
def test_blocks_go_down_or_up_and_round_to_those_at_the_diagonal(cohort) -> None:
    down = [block for block, _ in steps(3, 5, 9, 1, 0, cohort, "apart")]
    up = [block for block, _ in steps(3, 5, 9, 1, cohort, cohort, "apart")]
    assert down == [8, 7, 6, 5, 4, 3]
    assert up == [5, 6, 7, 8, 3, 4]


def test_blocks_from_the_edge_on_need_no_mask_and_all_before_it_do() -> None:
    for high in (-70, -64, 0, 1, 63, 64, 200):
        for key in range(0, 512, KEYS):
            for row_blocks in (1, 2, 5, 8):
                first, stop = mask.blocks_that_see.fn(
                    key, -(2**30), high, row_blocks, ROWS, KEYS, "diagonal"
                )
                edge = mask.past_diagonal.fn(key, high, first, stop, ROWS, KEYS)
                assert first <= edge <= stop
                for block in range(first, stop):
                    first_query_sees = block * ROWS + high
                    assert (block >= edge) == (first_query_sees >= key + KEYS - 1)


@pytest.mark.parametrize(("how", "group"), [("turns", 3), ("apart", 3), ("apart", 1)])
@pytest.mark.parametrize(("key_heads", "key_blocks"), [(16, 32), (64, 16), (8, 128), (32, 64)])
def test_under_a_causal_mask_programs_of_a_key_head_meet_at_the_same_block(
    key_heads, key_blocks, how, group
) -> None:
    rows = 2 * key_blocks
    of_call = sizes.Sizes(1, key_heads * group, key_heads, 64 * rows, 64 * rows, 64, 64)
    section, cohort = launch.down_and_up(of_call, key_blocks, PROGRAMS)
    assert section * cohort == PROGRAMS
    # of one section, in the order in which the kernel takes them
    waiting = [(block, head) for block in range(key_blocks) for head in range(section)]
    running: list[tuple[tuple[int, int], int, list[tuple[int, int]]]] = []
    while waiting or running:
        while waiting and len(running) < PROGRAMS:
            key_block, head = waiting.pop(0)
            first = 2 * key_block
            edge = first + 2 if how == "apart" else first
            to_do = steps(first, edge, rows, group, key_block, cohort, how)
            running.append(((head, key_block // cohort), edge, list(to_do)))
        at: dict[tuple[int, int], set[tuple[int, int]]] = {}
        for who, edge, to_do in running:
            block, member = to_do.pop(0)
            if block >= edge:
                at.setdefault(who, set()).add((block, member))
        assert all(len(each) == 1 for each in at.values())
        running = [each for each in running if each[2]]


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


@pytest.mark.parametrize(
    ("dim", "key_heads", "left", "right", "deterministic", "wanted"),
    [
        (128, 4, -1, 0, False, ("apart", 64)),
        (96, 4, -1, 0, False, ("apart", 64)),
        (128, 2, -1, 0, False, ("apart", 64)),
        (128, 4, -1, 0, True, ("up", 0)),
        (128, 2, -1, 0, True, ("turns", 0)),
        (64, 4, -1, 0, False, ("up", 64)),
        (64, 2, -1, 0, False, ("turns", 64)),
        (128, 4, -1, -1, False, ("up", 64)),
        (128, 2, -1, -1, False, ("heads", 64)),
        (128, 4, 100, 0, False, ("up", 0)),
        (64, 2, 100, 0, False, ("heads", 64)),
    ],
)
def test_a_launch_goes_apart_where_v_would_not_fit_beside_a_causal_mask(
    monkeypatch, dim, key_heads, left, right, deterministic, wanted
) -> None:
    launched: list[tuple[dict[str, Any], dict[str, Any]]] = []

    def take(kernel: Any, programs: int, kind: Any, arguments: Any, **constants: Any) -> None:
        if kernel is launch.attention_backward:
            names = dict(zip(kernel.arg_names, arguments, strict=False))
            launched.append((names, constants))

    monkeypatch.setattr(torch.cuda, "current_device", lambda: None)
    monkeypatch.setattr(launch, "start", take)
    monkeypatch.setattr(launch, "queries_alone", lambda *call: None)
    monkeypatch.setattr(launch, "multiprocessors", lambda device: 132)
    q = torch.zeros((3, 4, 512, dim), dtype=torch.bfloat16)
    k = torch.zeros((3, key_heads, 512, dim), dtype=torch.bfloat16)
    call = Call(q, k, k, None, None, None, 1.0, 0.0, left, right, False)
    grads = torch.empty_like(q), torch.empty_like(k), torch.empty_like(k)
    launch.backward(call, q, None, q, torch.zeros(q.shape[:3]), grads, deterministic=deterministic)

    [(arguments, constants)] = launched
    assert (constants["WALK"], constants["V_IN_REGISTERS"]) == wanted
    of_call = sizes.sizes_of(call)
    together = of_call.key_heads_together, 1
    if wanted[0] in ("turns", "apart"):
        together = launch.down_and_up(of_call, 4, 132)
    assert (arguments["section"], arguments["cohort"]) == together
