"""The fixture ``nsys``: a real Nsight Systems, or a skip that says what is missing."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
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
