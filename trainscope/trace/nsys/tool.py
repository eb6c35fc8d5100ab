"""Where nsys is, and turning its recordings into SQLite files."""

from __future__ import annotations

import glob
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from trainscope.errors import TraceError

__all__ = ["GET_NSYS", "export", "find_nsys"]

GET_NSYS = (
    "install Nsight Systems (it comes with the CUDA toolkit; by itself from "
    "https://developer.nvidia.com/nsight-systems, or as the package nsight-systems of NVIDIA's and "
    "Debian's non-free repositories), then put nsys on PATH or set NSYS to its path"
)

_PLACES = (
    "/opt/nvidia/nsight-systems/*/bin/nsys",
    "/usr/local/cuda*/bin/nsys",
    "/usr/lib/nsight-systems/bin/nsys",
    "/usr/lib/x86_64-linux-gnu/nsight-systems/target-linux-x64/nsys",
)
_BAR = re.compile(r"\[=*\d+% *")


def find_nsys(
    environ: Mapping[str, str],
    *,
    which: Callable[[str], str | None] = shutil.which,
    places: Iterable[str] = _PLACES,
) -> Path | None:
    """Path of nsys: ``$NSYS``, then PATH, then the folders that installers use, newest first.

    ``$NSYS`` that names no file finds nothing: it is not passed over in silence.
    """
    given = environ.get("NSYS")
    if given:
        found = which(given)
        return Path(found) if found else None
    on_path = which("nsys")
    if on_path:
        return Path(on_path)
    for place in places:
        for candidate in sorted(glob.glob(place), reverse=True):
            if which(candidate):
                return Path(candidate)
    return None


def export(
    recording: Path, database: Path, environ: Mapping[str, str], *, shown: Path | None = None
) -> None:
    """Write a ``.nsys-rep`` or ``.qdrep`` as a SQLite file; errors call it ``shown``.

    Raises TraceError when there is no nsys, or with its last words when it fails.
    """
    shown = recording if shown is None else shown
    nsys = find_nsys(environ)
    if nsys is None:
        given = environ.get("NSYS")
        why = f"NSYS={given} is no program" if given else "nsys is not found"
        raise TraceError(
            f"{shown} has to be exported by nsys, and {why}: {GET_NSYS}; or give what "
            "`nsys export --type sqlite` writes on another machine"
        )
    command = [str(nsys), "export", "--type=sqlite", "--force-overwrite=true"]
    command += [f"--output={database}", str(recording.absolute())]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace"
        )
    except OSError as error:
        raise TraceError(f"{nsys} cannot be run: {error.strerror or error}") from error
    if done.returncode != 0 or not database.is_file():
        raise TraceError(
            f"{shown} cannot be exported by {nsys}: {_last_words(done)}; an nsys older than "
            "the one that recorded it cannot read it"
        )


def _last_words(done: subprocess.CompletedProcess[str]) -> str:
    """The end of what it said, without its progress bar."""
    said = f"{done.stdout}\n{done.stderr}".replace("\r", "\n").splitlines()
    lines = [line.strip() for line in said if line.strip() and not _BAR.search(line)]
    return " ".join(lines[-3:])[-500:].rstrip(".") or f"it ended with status {done.returncode}"
