"""Hooks that open ranges of a recorder which notes what was asked of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from written_ranges import WrittenRanges

from trainscope.record.hooks import Hooks


@pytest.fixture
def ranges() -> WrittenRanges:
    """Where the ranges of ``hooks`` are noted."""
    return WrittenRanges()


@pytest.fixture
def hooks(ranges: WrittenRanges) -> Iterator[Hooks]:
    """Hooks of nothing yet, taken out after the test."""
    hooks = Hooks(ranges)
    yield hooks
    hooks.remove()
