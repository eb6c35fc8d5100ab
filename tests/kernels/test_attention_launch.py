"""A launch of a known kind is found again, and only for tensors of that very kind."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from trainscope_kernels.attention import triton_launch


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


def launch(kernel: Kernel, x: torch.Tensor, settings: Any = None) -> None:
    triton_launch.start(
        kernel,
        (x, None),
        settings,
        lambda: triton_launch.Launch(7, (x.shape[0],), {"DIM": x.shape[1]}, 4, 2),
    )


def test_the_second_launch_asks_triton_nothing(kernel: Kernel) -> None:
    x = torch.zeros(8, 4)
    launch(kernel, x)
    launch(kernel, x)
    assert kernel.asked == [{"DIM": 4, "num_warps": 4, "num_stages": 2}]
    assert kernel.found == [((7, 1, 1), x, None, 8, 4)]


@pytest.mark.parametrize(
    "other",
    [
        torch.zeros(9, 4),
        torch.zeros(4, 8).mT,
        torch.zeros(8, 4, dtype=torch.float16),
        torch.zeros(33)[1:].view(8, 4),
    ],
    ids=["length", "strides", "dtype", "address"],
)
def test_another_kind_of_tensor_is_not_mistaken_for_it(kernel: Kernel, other: torch.Tensor) -> None:
    launch(kernel, torch.zeros(8, 4))
    launch(kernel, other)
    assert len(kernel.asked) == 2
    assert kernel.found == []


def test_other_settings_are_another_launch(kernel: Kernel) -> None:
    x = torch.zeros(8, 4)
    launch(kernel, x, (1.0, 2))
    launch(kernel, x, (1.0, 3))
    assert len(kernel.asked) == 2


def test_ever_new_lengths_do_not_grow_without_end(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(triton_launch, "MOST_READY", 3)
    for length in range(1, 12):
        launch(kernel, torch.zeros(length, 4))
        assert len(triton_launch._ready) <= 3
