"""Which tiles of keys the Gluon forward reads and masks, by its own functions on plain integers."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from trainscope_kernels.attention.call import Call

pytest.importorskip("triton")
gluon_band = pytest.importorskip("trainscope_kernels.attention.gluon_band")
gluon_forward_sizes = pytest.importorskip("trainscope_kernels.attention.gluon_forward_sizes")

ROWS = 64


def call_of(dim: int, queries: int, keys: int, *band: Any) -> Call:
    with torch.device("meta"):
        q = torch.empty(1, 1, queries, dim, dtype=torch.bfloat16)
        k = torch.empty(1, 1, keys, dim, dtype=torch.bfloat16)
    return Call(q, k, k, None, None, None, 1.0, 0.0, *band)


def seen(row: int, keys: int, queries: int, left: int, right: int, from_end: bool) -> set[int]:
    level = row + (keys - queries if from_end else 0)
    begin = 0 if left < 0 else max(level - left, 0)
    end = keys if right < 0 else min(level + right + 1, keys)
    return set(range(begin, end))


@pytest.fixture
def on_integers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets the device functions run here; a division rounds as the GPU's: towards zero."""
    plain = SimpleNamespace(
        minimum=min,
        maximum=max,
        cdiv=lambda x, y: Towards(x + y - 1) // y,
        where=lambda condition, x, y: x if condition else y,
    )
    monkeypatch.setattr(gluon_band, "gl", plain)
    monkeypatch.setattr(gluon_band, "tiles_seen", gluon_band.tiles_seen.fn)


class Towards(int):
    """An integer that divides as C's, and stays one through sums, min and max."""

    def __floordiv__(self, other: int) -> Towards:
        return Towards(abs(int(self)) // other * (1 if self >= 0 else -1))

    def __add__(self, other: int) -> Towards:
        return Towards(int(self) + other)

    __radd__ = __add__

    def __sub__(self, other: int) -> Towards:
        return Towards(int(self) - other)


def cases() -> list[tuple[Any, ...]]:
    draw = random.Random(0)
    lengths = [1, 3, 63, 64, 65, 127, 128, 129, 200, 256, 300, 511, 640]
    sides = [-1, 0, 1, 5, 63, 64, 100, 128, 300, 10**12]
    made = [
        (
            draw.choice([64, 128, 256]),
            draw.choice(lengths),
            draw.choice(lengths),
            draw.choice(sides),
            draw.choice(sides),
            draw.random() < 0.5,
        )
        for _ in range(600)
    ]
    causal = [(dim, n, n, -1, 0, False) for dim in (64, 128, 256) for n in lengths]
    return made + causal


def test_every_key_that_is_seen_is_read_and_what_is_not_masked_is_seen(on_integers: None) -> None:
    kinds = set()
    for case in cases():
        _, queries, keys = case[:3]
        plan = gluon_forward_sizes.plan_of(call_of(*case))
        low, high, mask = gluon_forward_sizes.band_of_call(call_of(*case))
        kinds.add(mask)
        block = plan.warpgroups * ROWS

        def tiles(row: int, rows: int, band: Any = (low, high, keys, plan, mask)) -> tuple:
            low, high, keys, plan, mask = band
            return gluon_band.tiles_seen(
                Towards(row), low, high, Towards(keys), rows, plan.keys, mask
            )

        for block_row in range(0, queries, block):
            block_first, block_end = tiles(block_row, block)
            for row in range(block_row, block_row + block, ROWS):
                first, end = tiles(row, ROWS)
                assert 0 <= block_first <= first < end <= max(block_end, 1), case
                if mask in ("none", "end") or (mask == "diagonal" and block <= plan.keys):
                    # no warpgroup gives tiles back unread
                    assert (first, end) == (block_first, block_end), case
                assert (end - 1) * plan.keys < keys, case
                own = gluon_band.tiles_of_warpgroup.fn(
                    Towards(block_row), Towards(row), queries, low, high, Towards(keys),
                    ROWS, block, plan.keys, mask,
                )  # fmt: skip
                # one past the last query takes one tile of its block's, and gives the rest back
                taken = (first, end) if row < queries else (block_first, block_first + 1)
                assert own == (*taken, block_first, block_end), case
                begin, stop = gluon_band.open_keys.fn(
                    Towards(row), low, high, keys, ROWS, plan.keys
                )
                rows = [seen(r, keys, queries, *case[3:]) for r in range(row, row + ROWS)]
                read = set(range(first * plan.keys, end * plan.keys))
                for each in rows[: max(queries - row, 0)]:
                    assert each <= read, case
                for tile in range(first, end - 1):
                    whole = set(range(tile * plan.keys, (tile + 1) * plan.keys))
                    # rows past the last query may see anything, they are not stored
                    all_see = all(whole <= each for each in rows[: max(queries - row, 0)])
                    if mask == "band":
                        if begin <= tile * plan.keys < stop:
                            assert all_see, case
                    else:
                        assert all_see, case
                if mask == "diagonal":
                    for each in rows[: max(queries - row, 0)]:
                        assert each & set(range((end - 1) * plan.keys, end * plan.keys)), case
    assert kinds == {"none", "end", "diagonal", "band"}


@pytest.mark.parametrize(
    ("dim", "queries", "keys", "band", "mask"),
    [
        (128, 256, 256, (-1, -1, False), "none"),
        (128, 256, 200, (-1, -1, False), "end"),
        (256, 256, 192, (-1, -1, False), "none"),
        (128, 256, 256, (-1, 0, False), "diagonal"),
        (128, 1000, 1000, (-1, 0, True), "diagonal"),
        (128, 256, 256 + 128, (-1, 0, True), "diagonal"),
        (256, 256, 256 + 64, (-1, 0, True), "diagonal"),
        (128, 256, 256 + 64, (-1, 0, True), "band"),
        (128, 256, 256 + 63, (-1, 0, True), "band"),
        (128, 256, 200, (-1, 0, True), "band"),
        (128, 256, 256, (300, 300, True), "none"),
        (128, 256, 256, (300, 0, True), "diagonal"),
        (128, 256, 256, (100, 0, True), "band"),
    ],
)
def test_the_cheapest_mask_is_taken(dim, queries, keys, band, mask) -> None:
    assert gluon_forward_sizes.band_of_call(call_of(dim, queries, keys, *band)).mask == mask


@pytest.mark.parametrize("dim", [64, 96, 128, 192, 256])
def test_a_mask_changes_how_much_is_computed_at_once_but_not_the_tiles_of_keys(dim: int) -> None:
    # whether a tile needs a mask is found out before how the call is computed
    assert gluon_forward_sizes.MASKED[dim].keys == gluon_forward_sizes.PLANS[dim].keys


def test_what_is_a_diagonal_in_tiles_of_keys_is_one_in_the_smaller_tiles_of_a_short_call() -> None:
    for dim, plan in gluon_forward_sizes.SHORT_CAUSAL.items():
        assert gluon_forward_sizes.PLANS[dim].keys % plan.keys == 0
    short, long = (
        gluon_forward_sizes.plan_of(call_of(64, length, length, -1, 0, False))
        for length in (512, 513)
    )
    assert (short.keys, long.keys) == (64, 128)
