"""Recorded Python functions: which are the user's, and what the line in their names means.

torch.profiler names a function ``file(line): name``. Tried with torch 2.13: the line of a function
called while recording is its first (that of a decorator, where it has one), never the line that
runs; a function that was already running when recording began carries the line it was on then. So
these names tell the function in which a wait happened and not the line; see ``WindowSite.line_is``.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass

__all__ = ["Frame", "is_users", "read_frame"]

_FRAME = re.compile(r"(?s)(.+)\((\d+)\): (.+)")
_LIBRARIES = frozenset(
    [
        "torch",
        "torchvision",
        "torchaudio",
        "torchdata",
        "torchao",
        "torchtune",
        "triton",
        "numpy",
        "scipy",
        "pandas",
        "lightning",
        "lightning_fabric",
        "pytorch_lightning",
        "lightning_utilities",
        "transformers",
        "accelerate",
        "deepspeed",
        "datasets",
        "diffusers",
        "peft",
        "trl",
        "timm",
        "einops",
        "wandb",
        "tensorboard",
        "tensorboardX",
        "mlflow",
        "torchmetrics",
        "apex",
        "flash_attn",
        "xformers",
        "bitsandbytes",
        "megatron",
        "composer",
        "hydra",
        "omegaconf",
        "fsspec",
        "tqdm",
        "rich",
        "nvtx",
        "cupy",
        "pytest",
        "_pytest",
        "pluggy",
        "trainscope",
    ]
)
_NAMES_OF_USERS = frozenset({"test", "code", "profile", "trace", "this"})
"""Modules of Python's own that no training loop passes through, and scripts are called so."""
_INSTALLED = ("site-packages", "dist-packages")
_PYTHON = re.compile(r"(?:^|/)lib/python3(?:\.\d+)?t?/")


@dataclass(frozen=True)
class Frame:
    """A recorded Python function."""

    file: str
    line: int
    function: str


def read_frame(name: str) -> Frame | None:
    """Take a name ``file(line): function`` apart; None for built-in functions and modules."""
    match = _FRAME.fullmatch(name) if len(name) < 5000 else None
    if match is None or len(match.group(2)) > 9:
        return None
    return Frame(match.group(1), int(match.group(2)), match.group(3))


def is_users(frame: Frame) -> bool:
    """Whether a file is the user's: outside the standard library and installed packages.

    torch.profiler cuts what is on Python's path off the names of files, so ``torch/nn/…`` and
    ``typing.py`` are told by their first part.
    """
    file = frame.file.replace("\\", "/")
    if file.startswith(("<frozen ", "<eval_with_key>", "<__array_function__", "<attrs generated")):
        return False
    if any(part in file.split("/") for part in _INSTALLED) or _PYTHON.search(file):
        return False
    if file.startswith(("/", "<", "./", "../")) or re.match(r"[A-Za-z]:/", file):
        return True
    top = file.split("/")[0].removesuffix(".py")
    pythons = top in sys.stdlib_module_names and top not in _NAMES_OF_USERS
    return top not in _LIBRARIES and not pythons
