"""Marks that skip visibly, and the check that no test leaves torch or warnings changed."""

from __future__ import annotations

import os
import shutil
import signal
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from warm import close_all

from trainscope.sync.armed import Armed

WATCHED = (
    (torch.Tensor, ("item", "tolist", "cpu", "numpy", "to", "cuda", "copy_")),
    (torch.Tensor, ("__bool__", "__int__", "__float__", "__index__", "__repr__", "__format__")),
    (torch.cuda.Stream, ("synchronize",)),
    (torch.cuda.Event, ("synchronize",)),
    (torch.cuda, ("synchronize", "empty_cache", "set_sync_debug_mode", "is_available")),
    (torch._C, ("_cuda_synchronize", "_cuda_emptyCache", "_cuda_set_sync_debug_mode")),
    (torch.nn.Module, ("__call__", "to", "cuda")),
    (torch.optim.Optimizer, ("step",)),
    (torch, ("tensor", "as_tensor", "load", "compile")),
)


def patched_state() -> dict[str, object]:
    """What each watched owner itself holds under each name; absent names are absent."""
    return {
        f"{owner.__name__}.{name}": vars(owner)[name]
        for owner, names in WATCHED
        for name in names
        if name in vars(owner)
    }


def pytest_configure() -> None:
    """Take Ctrl-C as it comes: whoever starts the tests in the background ignores it for them.

    And compute on one thread each: where workers share cores, waiting threads spin the time away.
    """
    torch.set_num_threads(1)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if torch.cuda.is_available():
        return
    skip = pytest.mark.skip(reason="needs a CUDA device")
    for item in items:
        if "gpu" in item.keywords:
            item.add_marker(skip)


def pytest_unconfigure() -> None:
    close_all()


@pytest.fixture(scope="session")
def one_place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("place")


@pytest.fixture
def place(one_place: Path) -> Iterator[Path]:
    """An empty folder, the same for every test, so that one Python waits for its ``train.py``."""
    yield one_place
    for each in one_place.iterdir():
        shutil.rmtree(each) if each.is_dir() else each.unlink()


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """Fail a test that leaves a patched torch name or a warnings filter of ours behind."""
    before = patched_state()
    yield
    left = [name for name, value in patched_state().items() if before.get(name) is not value]
    gone = [name for name in before if name not in patched_state()]
    assert (left, gone) == ([], [])
    assert not [entry for entry in warnings.filters if isinstance(entry[1], Armed)]
