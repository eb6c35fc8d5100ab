"""Which directory a run takes: empty, and claimed by one launch alone, on whichever rank."""

from __future__ import annotations

import itertools
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

from trainscope.errors import RunDirectoryError

__all__ = ["absolute", "claim", "make_rank_dir", "wait_for_claim", "working_directory"]

_POLL_S = 0.05


def working_directory() -> str | None:
    """Where the program is; None where that is deleted."""
    try:
        return os.getcwd()
    except OSError:
        return None


def absolute(path: str | os.PathLike[str]) -> Path:
    """The whole path of a directory; raises RunDirectoryError where it cannot be one."""
    given = f"{os.fspath(path)!r:.200}"
    try:
        absolute = os.path.abspath(path)
        os.fsencode(absolute)
    except OSError as error:
        raise RunDirectoryError(
            f"{given} is relative to a working directory that is deleted; name an absolute path"
        ) from error
    except ValueError as error:
        raise RunDirectoryError(f"{given} is no name for a directory: {error}") from error
    if "\0" in absolute:
        raise RunDirectoryError(f"{given} is no name for a directory: it holds a NUL")
    return Path(absolute)


def _siblings(asked: Path) -> Iterator[Path]:
    yield asked
    for number in itertools.count(2):
        yield asked.with_name(f"{asked.name}-{number}")


def claim(asked: Path, launch_id: str, world_size: int) -> Path:
    """The first of ``asked``, ``asked-2``, … that is empty, now holding our ``run.json``.

    Raises RunDirectoryError where none can.
    """
    body = json.dumps({"schema_version": 1, "launch_id": launch_id, "world_size": world_size})
    try:
        if asked.exists() and not asked.is_dir():
            raise RunDirectoryError(
                f"{asked} is a file; a run needs a directory: give another name"
            )
        if str(asked) in (working_directory(), asked.anchor) and any(asked.iterdir()):
            raise RunDirectoryError(
                f"{asked} is not empty, and a numbered sibling of it would lie outside; "
                "name a directory of its own, such as 'runs/mlp'"
            )
        for path in _siblings(asked):
            if path.exists() and (not path.is_dir() or any(path.iterdir())):
                continue
            path.mkdir(parents=True, exist_ok=True)
            if _create_exclusively(path / "run.json", body):
                return path
    except OSError as error:
        raise RunDirectoryError(
            f"cannot make a run directory at {asked}: {error.strerror or error}; "
            "name a place that can be written to"
        ) from error
    raise AssertionError("the siblings never end")


def _create_exclusively(path: Path, body: str) -> bool:
    try:
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
    except FileExistsError:
        return False  # another launch was faster
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write(body)
    return True


def make_rank_dir(path: Path) -> None:
    """Make the folder of one rank; raises RunDirectoryError."""
    try:
        path.mkdir()
    except OSError as error:
        raise RunDirectoryError(f"cannot make {path}: {error.strerror or error}") from error


def wait_for_claim(asked: Path, rank: int, launch_id: str, wait_s: float) -> Path | None:
    """Rank 0's directory of this launch, this rank's folder made in it; None after ``wait_s``."""
    deadline = time.monotonic() + wait_s
    while True:
        for path in itertools.takewhile(Path.exists, _siblings(asked)):
            if _launch_of(path / "run.json") != launch_id:
                continue
            try:
                (path / f"rank{rank}").mkdir()
            except FileExistsError:
                continue  # an older launch under the same id: its folder is not ours to mix with
            except OSError as error:
                raise RunDirectoryError(
                    f"rank {rank} cannot make its folder in {path}: {error.strerror or error}"
                ) from error
            return path
        if time.monotonic() >= deadline:
            return None
        time.sleep(_POLL_S)


def _launch_of(run_json: Path) -> str | None:
    """The launch that holds a directory; None where there is none, or its claim is half written."""
    try:
        data = json.loads(run_json.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return data.get("launch_id") if isinstance(data, dict) else None
