"""The list of blocks of packed sequences that the Gluon forward works through."""

from __future__ import annotations

import random

import pytest
import torch

from trainscope_kernels.attention.masking import Band

pytest.importorskip("triton")
gluon_packed = pytest.importorskip("trainscope_kernels.attention.gluon_packed")

FAR = gluon_packed.BAND_OPEN


def expected(
    of_q: list[int], of_k: list[int], rows: int, band: Band
) -> list[tuple[int, int, int, int, int, int, int]]:
    """A record for every block of every sequence, one after the other."""
    records = []
    q_from = k_from = 0
    for queries, keys in zip(of_q, of_k, strict=True):
        shift = keys - queries if band.from_end else 0
        low = -FAR if band.left < 0 else shift - min(band.left, FAR)
        high = FAR if band.right < 0 else shift + band.right
        records += [
            (row, q_from, queries, k_from, keys, low, high) for row in range(0, queries, rows)
        ]
        q_from += queries
        k_from += keys
    return records


def listed(
    of_q: list[int], of_k: list[int], rows: int, band: Band, device: torch.device
) -> tuple[int, list[tuple[int, ...]]]:
    cu_q = torch.tensor([0, *of_q], device=device).cumsum(0).to(torch.int32)
    cu_k = torch.tensor([0, *of_k], device=device).cumsum(0)
    made = gluon_packed.block_records(cu_q, cu_k, rows, sum(of_q), sum(of_k), band).tolist()
    count = made[0][0]
    return count, [tuple(each[:7]) for each in made[1 : 1 + count]]


@pytest.mark.parametrize("sequences", [1, 2, 7, 127, 128, 129, 300])
@pytest.mark.parametrize("rows", [128, 192])
def test_each_block_of_each_sequence_is_listed_once(
    device: torch.device, sequences: int, rows: int
) -> None:
    draw = random.Random(sequences)
    lengths = [0, 1, 5, 127, 128, 129, 192, 300]
    of_q, of_k = ([draw.choice(lengths) for _ in range(sequences)] for _ in range(2))
    of_q[draw.randrange(sequences)] = 200
    for band in (Band(-1, -1, False), Band(-1, 0, True), Band(5, 7, True), Band(10**12, 0, False)):
        count, records = listed(of_q, of_k, rows, band, device)
        assert records == expected(of_q, of_k, rows, band)
        assert count <= gluon_packed.most_blocks(rows, sequences, sum(of_q))


def test_empty_sequences_have_no_block(device: torch.device) -> None:
    everything = Band(-1, -1, False)
    count, records = listed([0, 0, 3, 0, 130, 0], [4, 0, 0, 9, 1, 2], 128, everything, device)
    assert count == 3
    assert [record[:5] for record in records] == [
        (0, 0, 3, 4, 0),
        (0, 3, 130, 13, 1),
        (128, 3, 130, 13, 1),
    ]


def test_offsets_past_the_end_of_the_tensors_are_cut(device: torch.device) -> None:
    cu = torch.tensor([0, 100, 10**6], dtype=torch.int32, device=device)
    made = gluon_packed.block_records(cu, cu, 128, 150, 140, Band(-1, -1, False)).tolist()
    assert made[0][0] == 2
    assert [each[:5] for each in made[1:3]] == [[0, 0, 100, 0, 100], [0, 100, 50, 100, 40]]


def test_offsets_before_the_first_row_and_beyond_32_bits_are_cut(device: torch.device) -> None:
    cu = torch.tensor([-(2**40), 100, 2**32 + 120], device=device)
    made = gluon_packed.block_records(cu, cu, 128, 150, 140, Band(-1, -1, False)).tolist()
    assert made[0][0] == 2
    assert [each[:5] for each in made[1:3]] == [[0, 0, 100, 0, 100], [0, 100, 50, 100, 40]]


def test_rows_of_no_sequence_make_an_empty_list(device: torch.device) -> None:
    cu = torch.zeros(1, dtype=torch.int32, device=device)
    made = gluon_packed.block_records(cu, cu, 128, 5, 5, Band(-1, -1, False)).tolist()
    assert made[0][0] == 0


@pytest.mark.parametrize("queries", [1, 127, 128, 1000])
@pytest.mark.parametrize("sequences", [1, 3, 1000])
def test_no_lengths_have_more_blocks_than_there_is_room_for(queries: int, sequences: int) -> None:
    draw = random.Random(queries * sequences)
    room = gluon_packed.most_blocks(128, sequences, queries)
    for _ in range(50):
        cuts = sorted(draw.randrange(queries + 1) for _ in range(sequences - 1))
        lengths = [b - a for a, b in zip([0, *cuts], [*cuts, queries], strict=True)]
        assert sum(-(-each // 128) for each in lengths) <= room


@pytest.mark.parametrize("keys", [64, 128])
@pytest.mark.parametrize("sequences", [1, 7, 60])
def test_the_longest_blocks_come_first_and_none_is_lost(
    device: torch.device, sequences: int, keys: int
) -> None:
    draw = random.Random(sequences)
    of_q, of_k = ([draw.randrange(1, 700) for _ in range(sequences)] for _ in range(2))
    for band in (Band(-1, -1, False), Band(-1, 0, True), Band(100, 7, True)):
        cu_q = torch.tensor([0, *of_q], device=device).cumsum(0).to(torch.int32)
        cu_k = torch.tensor([0, *of_k], device=device).cumsum(0).to(torch.int32)
        records = gluon_packed.block_records(cu_q, cu_k, 128, sum(of_q), sum(of_k), band)
        ordered = gluon_packed.longest_first(records, 128, keys).tolist()
        wanted = expected(of_q, of_k, 128, band)
        assert ordered[0][0] == len(wanted)
        found = [tuple(each[:7]) for each in ordered[1 : 1 + len(wanted)]]
        # equally long ones stay in their order
        assert found == sorted(wanted, key=lambda each: -tiles(each, keys))


def tiles(record: tuple[int, ...], keys: int) -> int:
    """Tiles with a key that a query of the block sees, by position; one at least."""
    row, _, _, _, length, low, high = record
    end = max(-(-min(row + 128 + high, length) // keys), 1)
    return end - min(max(row + low, 0) // keys, end - 1)


def test_a_list_that_is_too_long_to_order_stays_as_it_is(
    device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gluon_packed, "MOST_ORDERED", 2)
    records = torch.zeros(4, gluon_packed.RECORD, dtype=torch.int32, device=device)
    assert gluon_packed.longest_first(records, 128, 128) is records
