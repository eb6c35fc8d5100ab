"""A device that a library chose by itself is the host; one that the program gave is not."""

from __future__ import annotations

import importlib
import sys
import textwrap
from pathlib import Path
from types import ModuleType

import pytest
import torch

from trainscope.sync.detector import SyncDetector

LIBRARY = """
    import torch

    class Sampler:
        def __init__(self, scale, device=None):
            '''Where a GPU is there, ``device="cuda"`` draws on it.'''
            self.scale = scale
            self.set_device(device)

        def set_device(self, device=None):
            if device is None:
                device = torch.device("cpu")
            self.device = device
            self.bound = bound(self.scale, device=device)

        def draw(self):
            return torch.rand(2, device=self.device).max().item()

    def bound(scale, device):
        made = torch.tensor(scale, device=device)
        if made > 10:
            raise ValueError
        return made

    def by_default(scale, device="cpu"):
        return bound(scale, device).item()

    def asks_for_a_gpu(scale, device="cuda"):
        if not torch.cuda.is_available():
            device = "cpu"
        return bound(scale, device).item()

    def chooses(scale, fast=False):
        device = "cpu"
        if fast:
            device = pick()
        return bound(scale, device).item()

    def pick():
        return "cpu"
"""


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    folder = tmp_path / "site-packages"
    folder.mkdir()
    (folder / "handing.py").write_text(textwrap.dedent(LIBRARY))
    monkeypatch.syspath_prepend(str(folder))
    sys.modules.pop("handing", None)
    return importlib.import_module("handing")


def waits(library: ModuleType, program: str, folder: Path) -> int:
    names = {"handing": library, "device": torch.device("cpu"), "name": "cpu"}
    file = folder / "program.py"
    file.write_text(program)
    with SyncDetector(dry_run=True) as detector:
        exec(compile(program, str(file), "exec"), names)
    return sum(site.count for site in detector.sites())


@pytest.mark.skipif(sys.version_info < (3, 11), reason="needs instruction positions")
@pytest.mark.parametrize(
    ("program", "expected"),
    [
        ("s = handing.Sampler(1.0); s.draw(); s.draw()", 0),
        ("s = handing.Sampler(1.0, device); s.draw()", 3),  # made there, compared, drawn
        ("handing.by_default(1.0)", 0),
        ("handing.by_default(1.0, device=name)", 3),
        ("handing.asks_for_a_gpu(1.0)", 3),
        ("handing.chooses(1.0)", 3),  # cannot be told from what pick() chose
    ],
)
def test_who_chose_the_device(
    library: ModuleType, program: str, expected: int, tmp_path: Path
) -> None:
    assert waits(library, program, tmp_path) == expected
