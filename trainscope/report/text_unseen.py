"""What every dry run cannot see, in few words; the JSON has the detector's own."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["in_short"]

_SHORT = (
    (
        "how long a line would wait; code that runs only where there is a GPU",
        (
            "dry run: how long a wait would block",
            "dry run: code that runs only where CUDA is available",
        ),
    ),
    (
        "syncs inside CUDA libraries, extensions, torch.distributed and compiled regions, and "
        "results of compiled code under no_grad",
        (
            "dry run: syncs inside CUDA libraries",
            "dry run: results of compiled code under no_grad",
            "dry run: operators that a compiled function runs beside its graphs",
        ),
    ),
    (
        "other threads, worker processes, and scripts with no source on disk",
        (
            "dry run: operators on threads other than",
            "dry run: a script with no source on disk",
        ),
    ),
    (
        "the GPU itself: tensors stand for its own that are made with a device, moved with .to() "
        "or .cuda(), or computed from such; a literal 'cpu' is the host",
        ("dry run: a tensor stands for a GPU one when",),
    ),
    (
        "the GPU itself: the script names no device, so parameters and what follows from them "
        "stand for its tensors; copies of the input to it are not counted",
        ("dry run: the script names no device",),
    ),
)
"""Words, and the beginnings of the sentences that they stand for."""


def in_short(sentences: Sequence[str]) -> list[str]:
    """The sentences, those that hold for any dry run joined; any other stays as it is."""
    known = tuple(begin for _, begins in _SHORT for begin in begins)
    joined = [
        words
        for words, begins in _SHORT
        if any(sentence.startswith(begins) for sentence in sentences)
    ]
    return [*joined, *(each for each in sentences if not each.startswith(known))]
