"""Which tensors are like one of before, and what becomes of a log call where torch cannot tell."""

from __future__ import annotations

import weakref
from collections.abc import Callable

import pytest
import torch
from metrics_rig import Rig

from trainscope.metrics import likeness
from trainscope.metrics.likeness import likeness_of
from trainscope.metrics.split import Splitter

OTHERS: dict[str, Callable[[], object]] = {
    "a number": lambda: 1.0,
    "nothing": lambda: None,
    "another dtype": lambda: torch.ones((), dtype=torch.float64),
    "another device": lambda: torch.ones((), device="meta"),
    "another shape": lambda: torch.ones(1),
    "one that wants a gradient": lambda: torch.ones((), requires_grad=True),
    "a parameter": lambda: torch.nn.Parameter(torch.ones(()), requires_grad=False),
    "a lazy minus": lambda: torch.tensor(1 - 2j).conj().imag,
    "a zero without memory": lambda: torch._efficientzerotensor(()),  # pyright: ignore[reportPrivateImportUsage]
    "a sparse one": lambda: torch.ones(()).to_sparse(),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_differs_is_not_alike(name: str) -> None:
    is_like = likeness_of(torch.ones(()))
    assert is_like is not None
    assert is_like(torch.zeros(()))
    assert not is_like(OTHERS[name]())


def test_a_tensor_is_not_kept_alive() -> None:
    tensor = torch.ones(())
    gone = weakref.ref(tensor)
    is_like = likeness_of(tensor)
    del tensor
    assert gone() is None
    assert is_like is not None
    assert is_like(torch.zeros(()))


def test_a_loss_and_a_value_without_gradient_are_known_beside_each_other() -> None:
    splitter = Splitter()

    def call() -> dict[str, object]:
        return {"loss": torch.ones((), requires_grad=True) * 2, "norm": torch.ones(()), "lr": 0.1}

    layout = splitter.split(call())[0]
    assert splitter.split(call())[0] is layout
    twice = {"loss": (one := torch.ones(())), "again": one}
    assert splitter.split(twice)[0] is splitter.split(twice)[0]


def test_calls_arrive_where_torch_has_no_such_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(likeness, "_TensorGuards", None)
    assert likeness_of(torch.ones(())) is None
    with Rig() as rig:
        for step in range(3):
            rig.logger.log(step, {"loss": torch.tensor(step / 2), "n": torch.tensor(step), "lr": 1})
        expected = [(step, {"loss": step / 2, "n": step, "lr": 1}) for step in range(3)]
        assert rig.close() == expected
