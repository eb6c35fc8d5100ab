"""What to do about a wait inside an operator of torch: for a value, a size or the places of a mask.

Advice goes by the names of the functions that the line calls.
"""

from __future__ import annotations

from collections.abc import Mapping

from trainscope.catalogue.reading import called, reads_by_index, stored_value

__all__ = ["KEEP_MASK", "of_operator"]

_IN_BACKWARD = (
    "an operator of backward waits for what its forward was given: an index that is a mask or on "
    "the CPU, a parameter or input on the CPU that gets a gradient, or ctc_loss"
)
_GIVE_A_NUMBER = (
    "where the operator takes a number, give it a Python number or a CPU tensor instead of a GPU "
    "one"
)
_EX = (
    "torch.linalg's forms in _ex (cholesky_ex, inv_ex, solve_ex) do not read whether it failed, "
    "and do not wait"
)
_CONVERGED = (
    "it reads whether it converged: several matrices in one batch read once, and a Cholesky or QR "
    "decomposition, where one will do, waits less or not at all"
)
_READS_VALUE = {
    "ctc_loss": (
        "it reads lengths and copies offsets at each call: with targets and lengths that stay on "
        "the CPU it waits less often"
    ),
    **dict.fromkeys(("cholesky", "inv", "inverse", "solve", "lu_factor"), _EX),
    **dict.fromkeys(("svd", "svdvals", "svd_lowrank", "pca_lowrank", "lobpcg"), _CONVERGED),
    **dict.fromkeys(("eig", "eigh", "eigvals", "eigvalsh", "lstsq", "pinv"), _CONVERGED),
    **dict.fromkeys(("matrix_rank", "cond", "matrix_norm"), _CONVERGED),
    "matrix_exp": "it reads norms to choose its number of terms: call it once for a batch",
    "normal": "it tests that no std is negative: mean + std * torch.randn_like(std) does not",
    "histc": "give min and max: without them it reads both",
}

_GIVE_A_SIZE = "give the size of the result, or keep to a fixed one: only the GPU knows it"
_NMS = "it chooses on the CPU: call it once for all images (batched_nms), with fewer boxes"
_UNIQUE = "work with all values and a mask, or call it once, outside of the step"
_READS_SIZE = {
    "repeat_interleave": "pass output_size=, if the total is known on the CPU",
    "one_hot": "pass num_classes=",
    "bincount": "torch.zeros(n).scatter_add_(0, x, ones) counts with a size that is known",
    **dict.fromkeys(("nms", "batched_nms"), _NMS),
    **dict.fromkeys(("unique", "unique_consecutive"), _UNIQUE),
}

KEEP_MASK = "keep the mask: torch.where(mask, x, other), or a masked sum and mean"
_KEEP_OR_BOUND = "keep the mask, or torch.nonzero_static(mask, size=n) with a known bound"
_ASSIGN = (
    "assign on the GPU: x = torch.where(mask, value, x), or x.masked_fill_(mask, number); "
    "values for the set places alone: x.masked_scatter_(mask, values)"
)
_COUNTS_PLACES = {
    **dict.fromkeys(("nonzero", "where", "argwhere"), _KEEP_OR_BOUND),
    "masked_select": "torch.where(mask, x, other), or a masked sum and mean, keeps the shape",
}


def of_operator(kind: str, source: str, phase: str | None) -> str:
    """Return what to do about an ``item-implicit``, ``size-readback`` or ``nonzero``."""
    if kind == "item-implicit":
        if phase == "backward":
            return _IN_BACKWARD
        return _by_call(source, _READS_VALUE) or _GIVE_A_NUMBER
    if kind == "size-readback":
        return _by_call(source, _READS_SIZE) or _GIVE_A_SIZE
    by_name = _by_call(source, _COUNTS_PLACES)
    if by_name is not None:
        return by_name
    value = stored_value(source)
    # else the mask may be that of the value
    return _ASSIGN if value is not None and not reads_by_index(value) else KEEP_MASK


def _by_call(source: str, table: Mapping[str, str]) -> str | None:
    """Return what the table has for a function that the line calls, first row first."""
    names = called(source)
    return next((what for name, what in table.items() if name in names), None)
