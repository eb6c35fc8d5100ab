"""Where there is no GPU, Triton kernels run in NumPy: set before anything imports Triton."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

HERE = Path(__file__).parent

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # NumPy warns of the inf and NaN that a GPU computes in silence, and of how Triton calls it
    quiet = [
        pytest.mark.filterwarnings(f"ignore::{category}:triton.runtime.interpreter")
        for category in ("RuntimeWarning", "DeprecationWarning")
    ]
    for item in items:
        if HERE in item.path.parents:
            for each in quiet:
                item.add_marker(each)


@pytest.fixture(scope="session")
def device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


@pytest.fixture(autouse=True)
def seeded() -> None:
    """The same inputs every time, whichever tests ran before."""
    torch.manual_seed(0)
