"""The fixture ``nsys``: a real Nsight Systems, or a skip that says what is missing."""

from __future__ import annotations

import fcntl
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

_INSTALL = Path(__file__).parents[2] / "shared" / "tools" / "install_nsys.sh"


@pytest.fixture(scope="session")
def nsys() -> str:
    """Path of an nsys: ``$NSYS``, PATH, or what the script beside the checkout installs."""
    given = os.environ.get("NSYS") or shutil.which("nsys")
    if given:
        return given
    if not _INSTALL.is_file():
        pytest.skip("no nsys: put it on PATH or set NSYS to its path")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "trainscope-nsys"
    done = subprocess.run(
        ["bash", str(_INSTALL), str(cache)], capture_output=True, text=True, timeout=600
    )
    if done.returncode != 0:
        pytest.skip(f"no nsys, and {_INSTALL.name} failed: {done.stderr.strip()[-200:]}")
    return done.stdout.strip().splitlines()[-1]


def alone(run: Callable[[], subprocess.CompletedProcess[str]]) -> subprocess.CompletedProcess[str]:
    """Do ``run`` while no other test runs an nsys; again where nsys lost its own agent.

    On a machine as busy as that of parallel tests nsys 2023.4 now and then ends with "End of
    file", before the program has started, when the agent that it starts does not answer.
    """
    lock = Path(tempfile.gettempdir()) / f"trainscope-tests-nsys-{os.getuid()}.lock"
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        done = run()
        for _ in range(2):
            if done.returncode == 0 or "End of file" not in done.stderr:
                break
            done = run()
    return done


def profile(nsys: str, report: Path, *program: str) -> subprocess.CompletedProcess[str]:
    """Run Python with these words under nsys, NVTX alone, and leave ``report``.nsys-rep."""
    command = [nsys, "profile", "--trace=nvtx", "--sample=none", "--cpuctxsw=none"]
    command += ["--force-overwrite=true", f"--output={report}", sys.executable, *program]
    return alone(
        lambda: subprocess.run(command, capture_output=True, text=True, timeout=180),
    )


def export_sqlite(nsys: str, report: Path) -> sqlite3.Connection:
    """Export an ``.nsys-rep`` and open the database."""
    database = report.with_suffix(".sqlite")
    subprocess.run(
        [nsys, "export", "--type=sqlite", "--force-overwrite=true", f"--output={database}"]
        + [str(report)],
        check=True,
        capture_output=True,
        timeout=120,
    )
    return sqlite3.connect(database)


def ranges_of_domain(database: sqlite3.Connection, domain: str) -> list[tuple[str, int, int]]:
    """(name, start_ns, end_ns) of each push/pop range of the domain, by start."""
    found = database.execute(
        "select domainId from NVTX_EVENTS where eventType = 75 and text = ?", (domain,)
    ).fetchone()
    if found is None:
        return []
    return database.execute(
        "select coalesce(e.text, s.value), e.start, e.end from NVTX_EVENTS e "
        "left join StringIds s on s.id = e.textId "
        "where e.eventType = 59 and e.domainId = ? order by e.start, e.end desc",
        found,
    ).fetchall()
