"""What to do about a sync that a library makes in its own code: torch's parts, and others'."""

from __future__ import annotations

__all__ = ["SCALER", "by_library", "library_of", "of_library"]

SCALER = (
    "GradScaler itself reads, once a step, whether a gradient overflowed: bfloat16 needs no "
    "scaler; with float16 there is nothing to remove"
)
_SCALE = "GradScaler's scale is read here: ask for it only where it is shown or saved"
_OTHERS = {
    "read": (
        "{} reads it: it may have a setting to do so on fewer steps (logging, a progress bar, a "
        "test for NaN); what it needs it has to read"
    ),
    "nonzero": (
        "{} needs a size that only the GPU knows: it may take that size as an argument, or have "
        "another function that keeps the shape; else it has to wait"
    ),
    "h2d-scalar": (
        "{} makes this tensor anew, from numbers of the CPU: hand it one that is on the GPU, if "
        "it takes one, or call it less often"
    ),
    "h2d-pageable": (
        "of a batch: pin it (pin_memory=True in the DataLoader), and let {} copy it with "
        "non_blocking=True, if it has that setting; anything else is best handed to it on the GPU"
    ),
}
_OTHERS["h2d-pinned"] = (
    "the memory is pinned already: let {} copy it with non_blocking=True, if it has that setting"
)
_OTHERS["item-implicit"] = (
    "an operator that {} calls reads a value: it may take a number or a CPU tensor instead, or be "
    "called less often; what it needs it has to read"
)
_OTHERS["size-readback"] = _OTHERS["nonzero"]
_OTHERS["h2d-list"] = _OTHERS["h2d-scalar"]

_CHECKPOINT = (
    "a checkpoint has to be read: save it less often, or let "
    "torch.distributed.checkpoint.async_save write it while training goes on"
)

_BY_LIBRARY = (
    (
        "torch.optim.lbfgs",
        "L-BFGS chooses its steps on the CPU, by values that it has to read: a smaller max_iter, "
        "or no line search, reads fewer",
    ),
    (
        "torch.optim.lr_scheduler",
        "the scheduler compares this value on the CPU, so it has to be read: call it once an "
        "evaluation, not in every step",
    ),
    (
        "torch.optim.swa_utils",
        "AveragedModel reads or copies its counter at each update: update it every N steps, or "
        "average the parameters with torch._foreach_lerp_, which reads nothing",
    ),
    ("torch.serialization", _CHECKPOINT),
    ("torch.storage", _CHECKPOINT),  # its cpu, by which torch.save reads
    (
        "torch.nn.utils.clip_grad",
        "pass error_if_nonfinite=False, and scope.log(norm=norm) names a norm that is not finite",
    ),
    (
        "torch.distributions",
        "pass validate_args=False to the distribution, or call "
        "torch.distributions.Distribution.set_default_validate_args(False), once it is right",
    ),
    (
        "torch.optim",
        "give the optimizer a number or a CPU tensor for lr, or capturable=True",
    ),
    ("torch.amp", SCALER),
    ("torch.cuda.amp", SCALER),
)

_OF_SCALE = (" get_scale", " _get_growth_tracker")
_ONLY_READS = frozenset({"torch.nn.utils.clip_grad", "torch.distributions", "torch.amp"})
"""What is told of these is how to read less: no answer to a copy to the GPU."""


def by_library(via: str | None, *, to_device: bool) -> str | None:
    """Return what is known of the part of torch that made the sync; None where nothing is."""
    if via is not None and via.startswith("torch.amp") and via.endswith(_OF_SCALE):
        return None if to_device else _SCALE
    for library, what in _BY_LIBRARY:
        if via is not None and via.startswith(library):
            return None if to_device and library in _ONLY_READS else what
    return None


def library_of(via: str | None) -> str | None:
    """Return the package, other than torch, in which the sync is; None where there is none."""
    if via is None:
        return None
    package = via.partition(":")[0].partition(".")[0]
    return package if package.isidentifier() and package != "torch" else None


def of_library(kind: str, library: str) -> str | None:
    """Return what can be done about a library's own sync of that kind, or ``read``."""
    words = _OTHERS.get(kind)
    return None if words is None else words.format(library)
