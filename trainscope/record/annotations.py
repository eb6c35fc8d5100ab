"""Ranges as torch.profiler shows them: ``record_function``, only while a window is captured."""

from __future__ import annotations

import torch

__all__ = ["ProfilerAnnotations"]


class ProfilerAnnotations:
    """A stack of open ``record_function`` ranges; one costs about 10 µs, hence windows only."""

    def __init__(self) -> None:
        self._open: list[torch.autograd.profiler.record_function] = []

    def push(self, name: str) -> None:
        """Open an annotation of that name."""
        annotation = torch.autograd.profiler.record_function(name)
        annotation.__enter__()
        self._open.append(annotation)

    def pop(self) -> None:
        """Close the innermost annotation."""
        if self._open:
            self._open.pop().__exit__(None, None, None)
