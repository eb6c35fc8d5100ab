"""What to do about a sync that a library makes in its own code: torch's parts, and others'."""

from __future__ import annotations

import re

from trainscope.catalogue.kinds import KINDS
from trainscope.catalogue.reading import calls_scaler

__all__ = ["CHECKPOINT_FRAMES", "LIBRARY_KINDS", "library_of", "of_library", "of_part"]

CHECKPOINT_FRAMES = ("torch.serialization", "torch.storage")
"""How the frames begin in which torch.save and torch.load copy; ``cpu`` is in torch.storage."""
_CHECKPOINT = (
    "a checkpoint has to be read: save it less often, or let "
    "torch.distributed.checkpoint.async_save write it while training goes on"
)
_STATE = (
    "a checkpoint has to be copied to the host: save it less often, and with async_save, which "
    "waits for that copy alone"
)
_LOAD = "load it once, before the loop"
_SCALER = (
    "GradScaler itself reads, once a step, whether a gradient overflowed: bfloat16 needs no "
    "scaler; with float16 there is nothing to remove"
)
_SPARSE = (
    "a sparse gradient is sorted and summed here, and its size read: sparse=False in the embedding "
    "makes it dense, which does not wait, where the table is small enough for that"
)
_SAMPLE = (
    "sample() of a Normal tests that no scale is negative: rsample(), under torch.no_grad(), draws "
    "without that test"
)

_ANY = frozenset(KINDS)
_TO_GPU = frozenset(kind for kind in KINDS if kind.startswith("h2d"))
_READS = _ANY - _TO_GPU
"""Where the advice is how to read less, which is no answer to a copy to the GPU."""

_OF_PARTS: tuple[tuple[str, frozenset[str], str], ...] = (
    (r".* _load_from_state_dict", _TO_GPU, _LOAD),
    (r"torch\.(serialization|storage)", _TO_GPU, _LOAD),
    (r"torch\.(serialization|storage)", _READS, _CHECKPOINT),
    (r"torch\.distributed\.(checkpoint|_state_dict_utils)", _READS, _STATE),
    (
        r"torch\.distributed\.distributed_c10d:.* (_object_to_tensor|\w+_object(_list)?)$",
        _ANY,
        "ranks send Python objects as tensors on the device of their group: send them outside the "
        "loop, or in a group of gloo, which keeps them on the host",
    ),
    (
        r"torch\.autograd\.graph:.* pack_to_cpu$",
        frozenset({"cpu"}),
        "save_on_cpu waits for each tensor that it keeps on the host: use it with pin_memory=True, "
        "around fewer layers, or recompute them (torch.utils.checkpoint)",
    ),
    (
        r"torch\.autograd\.graph:.* unpack_from_cpu$",
        frozenset({"h2d-pageable"}),
        "save_on_cpu brings back here what it keeps on the host: with pin_memory=True it does so "
        "without a wait",
    ),
    (r"torch\.distributions\.normal:", frozenset({"item-implicit"}), _SAMPLE),
    (
        r"torch\.distributions",
        _READS - {"item-implicit"},
        "pass validate_args=False to the distribution, or call "
        "torch.distributions.Distribution.set_default_validate_args(False), once it is right",
    ),
    (
        r"torch\.nn\.utils\.clip_grad",
        _READS,
        "pass error_if_nonfinite=False, and scope.log(norm=norm) names a norm that is not finite",
    ),
    (
        r"torch\.amp.* (get_scale|_get_growth_tracker)$",
        _READS,
        "GradScaler's scale is read here: ask for it only where it is shown or saved",
    ),
    (r"torch\.(cuda\.)?amp", _READS, _SCALER),
    (r"torch\.optim", frozenset({"size-readback"}), _SPARSE),
    (
        r"torch\.optim\.lbfgs",
        _ANY,
        "L-BFGS chooses its steps on the CPU, by values that it has to read: a smaller max_iter, "
        "or no line search, reads fewer",
    ),
    (
        r"torch\.optim\.lr_scheduler",
        _ANY,
        "the scheduler compares this value on the CPU, so it has to be read: call it once an "
        "evaluation, not in every step",
    ),
    (
        r"torch\.optim\.swa_utils",
        _ANY,
        "AveragedModel reads or copies its counter at each update: update it every N steps, or "
        "average the parameters with torch._foreach_lerp_, which reads nothing",
    ),
    (
        r"torch\.optim",
        _ANY,
        "give the optimizer a number or a CPU tensor for lr, or capturable=True",
    ),
    (
        r"torchmetrics\..* _\w+_tensor_validation$",
        _READS,
        "torchmetrics tests what it is given: validate_args=False in the metric leaves that out, "
        "once it is right",
    ),
    (
        r"torchmetrics\.aggregation:.* _cast_and_nan_check_input$",
        _READS,
        'torchmetrics looks for NaN: nan_strategy="disable" in the metric leaves that out',
    ),
    (
        r"IPython\.(lib\.pretty|core\.formatters):",
        _READS,
        "it is read to be shown beneath the cell: put a ; behind the last line, or no display()",
    ),
    (r"(pdb|bdb):", _READS, "the debugger shows it: without a breakpoint nothing reads it here"),
)
"""How the frame is written, for which kinds, and what to do; the first that fits counts.

A frame is ``module:line function``.
"""

_SIZE = (
    "{} needs a size that only the GPU knows: it may take that size as an argument, or have "
    "another function that keeps the shape; else it has to wait"
)
_MADE_ANEW = (
    "{} makes this tensor anew, from numbers of the CPU: hand it one that is on the GPU, if "
    "it takes one, or call it less often"
)
_OF_OTHERS = {
    "read": (
        "{} reads it: it may have a setting to do so on fewer steps (logging, a progress bar, a "
        "test for NaN); what it needs it has to read"
    ),
    "item-implicit": (
        "an operator that {} calls reads a value: it may take a number or a CPU tensor instead, or "
        "be called less often; what it needs it has to read"
    ),
    "nonzero": _SIZE,
    "size-readback": _SIZE,
    "h2d-scalar": _MADE_ANEW,
    "h2d-list": _MADE_ANEW,
    "h2d-pageable": (
        "of a batch: pin it (pin_memory=True in the DataLoader), and let {} copy it with "
        "non_blocking=True, if it has that setting; anything else is best handed to it on the GPU"
    ),
    "h2d-nonblocking-pageable": (
        "{} copies with non_blocking=True, which frees the CPU from pinned memory only: of a "
        "batch, pin it (pin_memory=True in the DataLoader)"
    ),
    "h2d-pinned": (
        "the memory is pinned already: let {} copy it with non_blocking=True, if it has that "
        "setting"
    ),
}
"""By kind; ``read`` stands for all by which values are read."""
LIBRARY_KINDS = frozenset(_OF_OTHERS)


def of_part(kind: str, source: str, via: str | None) -> str | None:
    """Return what is known of the part of a library that made the sync; None where nothing is."""
    if kind in _TO_GPU and "torch.load(" in source:
        return _LOAD
    for frame, kinds, words in _OF_PARTS:
        if via is not None and kind in kinds and re.match(frame, via):
            return words
    return _SCALER if kind == "item" and calls_scaler(source) else None


def library_of(via: str | None) -> str | None:
    """Return the package, other than torch, in which the sync is; None where there is none."""
    if via is None:
        return None
    package = via.partition(":")[0].partition(".")[0]
    return package if package.isidentifier() and package != "torch" else None


def of_library(kind: str, library: str) -> str:
    """Return what to do about a sync that another library makes; `kind` is in LIBRARY_KINDS."""
    return _OF_OTHERS[kind].format(library)
