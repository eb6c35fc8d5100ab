"""The packages that sinks stand on: which release each needs, and how to get it."""

from __future__ import annotations

import importlib.util
import re
from importlib.metadata import PackageNotFoundError, version

from trainscope.errors import MissingDependencyError

__all__ = ["install_command", "oldest", "require", "too_old"]

_OLDEST: dict[str, tuple[int, ...]] = {
    "wandb": (0, 19, 10),  # the first in which one run can stand beside another ("create_new")
    "tensorboard": (2, 14),
}


def oldest(package: str) -> str:
    """The oldest release that its sink works with."""
    return ".".join(map(str, _OLDEST[package]))


def too_old(package: str, installed: str) -> bool:
    """Whether this release is older than that."""
    match = re.match(r"\d+(\.\d+)*", installed)
    return match is not None and tuple(map(int, match[0].split("."))) < _OLDEST[package]


def install_command(package: str) -> str:
    """What to type; it holds for an installed trainscope and for a clone, and replaces an older."""
    return f"pip install '{package}>={oldest(package)}'"


def require(package: str, sink: str) -> None:
    """Raise MissingDependencyError where the package is missing or too old for the sink."""
    if importlib.util.find_spec(package) is None:
        raise MissingDependencyError(
            f"{sink} needs the package {package}: {install_command(package)}"
        )
    try:
        installed = version(package)
    except PackageNotFoundError:  # imported from a folder, say
        return
    if too_old(package, installed):
        raise MissingDependencyError(
            f"{sink} needs {package} {oldest(package)} or newer, and {installed} is installed: "
            f"{install_command(package)}"
        )
