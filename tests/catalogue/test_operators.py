"""Advice for what operators of torch read of their own accord."""

from __future__ import annotations

from trainscope.catalogue.advice import advice


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
