"""What is told of a function's memory, where it can be counted by hand."""

from __future__ import annotations

import torch

from trainscope_kernels import flash_attention
from trainscope_kernels.benchmarks.attention import manual_attention
from trainscope_kernels.benchmarks.gelu_baselines import manual_gelu
from trainscope_kernels.benchmarks.traffic import Traffic, kept_bytes, traffic_of

BATCH, HEADS, LENGTH, DIM = 2, 3, 64, 16
OF_QKV = BATCH * HEADS * LENGTH * DIM * 4
OF_SCORES = BATCH * HEADS * LENGTH * LENGTH * 4


def qkv() -> list[torch.Tensor]:
    return [torch.randn(BATCH, HEADS, LENGTH, DIM) for _ in range(3)]


def by_hand(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return manual_attention(q, k, v, causal=False)


def test_each_operator_of_a_formula_goes_through_memory() -> None:
    x = torch.randn(1000)
    # x**3, * 0.044715, x +, * root, tanh, 1 +, 0.5 * x, their product: two of them take two
    assert traffic_of(manual_gelu, x) == Traffic(8, (8 * 2 + 2) * x.nbytes)


def test_views_are_nothing_and_expanded_memory_is_there_once() -> None:
    x = torch.randn(4, 1)
    assert traffic_of(lambda x: x.mT.reshape(-1)[1:].expand(5, 3), x) == Traffic(0, 0)
    assert traffic_of(lambda x: x.expand(4, 100).sum(), x) == Traffic(1, x.nbytes + 4)


def test_attention_moves_its_scores_and_flash_attention_does_not() -> None:
    # written by q @ k, read and written by * and by softmax, read by @ v
    assert traffic_of(by_hand, *qkv()).bytes_moved == 6 * OF_SCORES + 4 * OF_QKV
    lse = BATCH * HEADS * LENGTH * 4
    assert traffic_of(flash_attention, *qkv()) == Traffic(1, 4 * OF_QKV + lse)


def test_attention_keeps_its_probabilities_and_flash_attention_a_number_a_row() -> None:
    assert kept_bytes(by_hand, *qkv()) == OF_SCORES
    assert kept_bytes(flash_attention, *qkv()) == BATCH * HEADS * LENGTH * 4
