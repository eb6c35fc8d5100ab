"""Which version nsys has, and what to say of it."""

from __future__ import annotations

import re
import subprocess
from importlib.util import find_spec
from pathlib import Path

from trainscope.trace.nsys.tool import GET_NSYS, find_nsys

__all__ = [
    "GET_NSYS",
    "NEWEST_TRIED",
    "OLDEST_TRIED",
    "cuda_of_torch",
    "find_nsys",
    "lost_rows_note",
    "nsys_version",
    "tried_note",
]

Version = tuple[int, int]

OLDEST_TRIED: Version = (2022, 4)
NEWEST_TRIED: Version = (2025, 3)

_KNOWS_CUDA_13: Version = (2025, 1)


def nsys_version(path: Path, timeout_s: float = 20.0) -> Version | None:
    """(year, minor) that ``nsys --version`` prints; None when it prints none or does not run."""
    try:
        done = subprocess.run(
            [str(path), "--version"], capture_output=True, text=True, timeout=timeout_s
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r"version (\d{4})\.(\d+)", done.stdout)
    return (int(match[1]), int(match[2])) if match else None


def cuda_of_torch() -> str | None:
    """The CUDA version that the installed torch was built for, without importing it, or None."""
    spec = find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    try:
        text = Path(spec.origin).with_name("version.py").read_text()
    except OSError:
        return None
    match = re.search(r"^cuda\b[^=\n]*= *'([\d.]+)'", text, re.MULTILINE)
    return match[1] if match else None


def lost_rows_note(version: Version, cuda: str | None) -> str | None:
    """What to say of an nsys that does not know the CUDA that torch was built for, or None."""
    if cuda is None or int(cuda.split(".")[0]) < 13 or version >= _KNOWS_CUDA_13:
        return None
    return (
        "nsys {}.{} is older than CUDA {}: ".format(*version, cuda)
        + "nsys 2023.4 with torch 2.11.0+cu130 (driver 580) showed no kernel or copy after an "
        "event it did not know when the whole program was profiled; profile a window "
        "(trainscope nsys --wait 20 --active 4), or use nsys {}.{} or newer".format(*_KNOWS_CUDA_13)
    )


def tried_note(version: Version) -> str | None:
    """What to say of a version outside the range that trainscope has been tried with, or None."""
    name = "{}.{}".format(*version)
    tried = "trainscope has been tried with nsys {}.{} to {}.{}".format(
        *OLDEST_TRIED, *NEWEST_TRIED
    )
    if version < OLDEST_TRIED:
        return f"nsys {name} is too old to rely on; {tried}: install a newer one"
    if version > NEWEST_TRIED:
        return f"nsys {name} is newer; {tried}. Check that the timeline shows ranges and kernels"
    return None
