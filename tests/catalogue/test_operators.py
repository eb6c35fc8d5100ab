"""Advice for what operators of torch read of their own accord."""

from __future__ import annotations

import pytest

from trainscope.catalogue.advice import advice


@pytest.mark.parametrize(
    ("kind", "source", "told"),
    [
        ("item-implicit", "x.masked_fill_(mask, weight)", "where the operator takes a number"),
        ("item-implicit", "a = torch.linalg.pinv(K)", "it reads whether it converged"),
        ("item-implicit", "s = torch.linalg.svdvals(K)", "it reads whether it converged"),
        ("item-implicit", "a = torch.inverse(K)", "torch.linalg's forms in _ex"),
        ("size-readback", "y = f(unique_ids, one_hot_size)", "give the size of the result"),
        ("size-readback", "n = ids.unique_consecutive()", "work with all values and a mask"),
        ("nonzero", "x = torch.argwhere(m)", "keep the mask, or torch.nonzero_static"),
        ("nonzero", "y = somewhere(x[m])", "keep the mask: torch.where"),
    ],
)
def test_an_operator_is_known_by_its_whole_name(kind: str, source: str, told: str) -> None:
    said = advice(kind, source=source, phase="forward", during="training", via=None)
    assert said.startswith(told)


def test_what_a_distribution_draws_is_not_its_validation() -> None:
    place = {"source": "p = Normal(m, s).sample()", "phase": None, "during": "training"}
    drawn = advice("item-implicit", via="torch.distributions.normal:80 sample", **place)
    assert drawn.startswith("sample() of a Normal tests that no scale is negative: rsample()")
    tested = advice("bool", via="torch.distributions.distribution:76 __init__", **place)
    assert "validate_args=False" in tested


def test_an_optimizer_that_sums_a_sparse_gradient_does_not_read_its_lr() -> None:
    place = {"source": "sparse.step()", "phase": "optimizer", "during": "training"}
    summed = advice("size-readback", via="torch.optim._functional:44 sparse_adam", **place)
    assert "sparse=False in the embedding" in summed
    assert "lr" not in summed
