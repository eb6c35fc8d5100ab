"""What to do about a wait inside an operator of torch that reads values of its own accord."""

from __future__ import annotations

__all__ = ["COALESCED", "IN_BACKWARD", "SAMPLED", "of_operator"]

IN_BACKWARD = (
    "an operator of backward waits for what its forward was given: an index that is a mask or on "
    "the CPU, a parameter or input on the CPU that gets a gradient, or ctc_loss"
)
COALESCED = (
    "a sparse gradient is sorted and summed here, and its size read: sparse=False in the embedding "
    "makes it dense, which does not wait, where the table is small enough for that"
)
SAMPLED = (
    "sample() of a Normal tests that no scale is negative: rsample(), under torch.no_grad(), draws "
    "without that test"
)
_EX = (
    "torch.linalg's forms in _ex (cholesky_ex, inv_ex, solve_ex) do not read whether it failed, "
    "and do not wait"
)
_CONVERGED = (
    "it reads whether it converged: several matrices in one batch read once, and a Cholesky or QR "
    "decomposition, where one will do, waits less or not at all"
)
_BY_NAME = (
    (
        "ctc_loss",
        "it reads lengths and copies offsets at each call: with targets and lengths that stay on "
        "the CPU it waits less often",
    ),
    (("cholesky(", "inv(", "inverse(", "solve(", "lu_factor("), _EX),
    (("svd", "eig", "lstsq(", "pinv(", "matrix_rank(", "cond(", "matrix_norm("), _CONVERGED),
    ("matrix_exp(", "it reads norms to choose its number of terms: call it once for a batch"),
    (
        "normal(",
        "it tests that no std is negative: mean + std * torch.randn_like(std) does not",
    ),
    ("histc(", "give min and max: without them it reads both"),
)
_NUMBER = (
    "where the operator takes a number, give it a Python number or a CPU tensor instead of a GPU "
    "one"
)


def of_operator(source: str) -> str:
    """Return what can be done, by the operator that the line `source` names."""
    for names, what in _BY_NAME:
        if any(name in source for name in ((names,) if isinstance(names, str) else names)):
            return what
    return _NUMBER
