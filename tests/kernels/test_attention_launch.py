"""A launch of a known kind is found again, and only for a call of that very kind."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from trainscope_kernels.attention import triton_launch
from trainscope_kernels.attention.call import Call
from trainscope_kernels.triton_start import FUSED


class Kernel:
    """Stands for a compiled Triton kernel and notes how it is started."""

    arg_names = ("x", "length", "DIM", "num")

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.found: list[tuple[Any, ...]] = []

    def fn(self) -> None: ...

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        def ask_triton(*arguments: Any, **constants: Any) -> Any:
            self.asked.append(constants)
            return Compiled(self)

        return ask_triton


class Compiled:
    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel

    def __getitem__(self, grid: tuple[int, int, int]) -> Any:
        return lambda *arguments: self.kernel.found.append((grid, *arguments))


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    monkeypatch.setattr(triton_launch, "_ready", {})
    made = Kernel()
    made.fn = made.fn  # one bound method, one key  # type: ignore[method-assign]
    return made


def launch(kernel: Kernel, call: Call) -> None:
    triton_launch.start(
        kernel,
        (call.q, None),
        triton_launch.kind_of(call),
        lambda: triton_launch.Launch(7, (call.q.shape[2],), {"DIM": call.q.shape[3]}, 4, 2),
    )


X = torch.zeros(1, 1, 8, 4)
OFFSETS = torch.zeros(3, dtype=torch.int32)
PLAIN = Call(X, X, X, None, None, None, 1.0, 0.0, -1, -1, False)
PACKED = PLAIN._replace(cu_q=OFFSETS, cu_k=OFFSETS)
MASKED = PLAIN._replace(mask=torch.zeros(1, 1, 8, 8))


def test_the_second_launch_asks_triton_nothing(kernel: Kernel) -> None:
    launch(kernel, PLAIN)
    other = torch.ones_like(X)
    launch(kernel, PLAIN._replace(q=other))
    assert kernel.asked == [{"DIM": 4, "num_warps": 4, "num_stages": 2, **FUSED}]
    assert kernel.found == [((7, 1, 1), other.data_ptr(), None, 8, 4)]


@pytest.mark.parametrize(
    ("first", "other"),
    [
        (PLAIN, PLAIN._replace(q=torch.zeros(1, 1, 9, 4))),
        (PLAIN, PLAIN._replace(k=torch.zeros(1, 1, 4, 8).mT)),
        (PLAIN, PLAIN._replace(v=torch.zeros(1, 1, 8, 5))),
        (PLAIN, PLAIN._replace(q=X.half(), k=X.half(), v=X.half())),
        (PLAIN, PLAIN._replace(q=torch.zeros(33)[1:].view(1, 1, 8, 4))),
        (PLAIN, PLAIN._replace(scale=0.5)),
        (PLAIN, PLAIN._replace(right=0)),
        (PLAIN, MASKED),
        (MASKED, MASKED._replace(mask=torch.zeros(1, 1, 8, 1).expand(1, 1, 8, 8))),
        (MASKED, MASKED._replace(mask=torch.zeros(1, 1, 8, 8, dtype=torch.bool))),
        (PLAIN, PACKED),
        (PACKED, PACKED._replace(cu_q=OFFSETS[1:], cu_k=OFFSETS[1:])),
        (PACKED, PACKED._replace(cu_k=OFFSETS.long())),
    ],
    ids=[
        "length", "strides", "value dim", "dtype", "address", "scale", "causal", "a mask",
        "a mask's strides", "a mask's dtype", "packed", "sequences", "dtype of offsets",
    ],
)  # fmt: skip
def test_another_kind_of_call_is_not_mistaken_for_it(
    kernel: Kernel, first: Call, other: Call
) -> None:
    launch(kernel, first)
    launch(kernel, other)
    assert len(kernel.asked) == 2
    assert kernel.found == []


def test_the_precision_of_float32_is_part_of_the_kind(kernel: Kernel) -> None:
    launch(kernel, PLAIN)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        launch(kernel, PLAIN)
    finally:
        torch.set_float32_matmul_precision(before)
    assert len(kernel.asked) == 2


def test_ever_new_lengths_do_not_grow_without_end(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(triton_launch, "MOST_READY", 3)
    for length in range(1, 12):
        launch(kernel, PLAIN._replace(q=torch.zeros(1, 1, length, 4)))
        assert len(triton_launch._ready) <= 3
