"""Run a small program under a dry run and count what it reports, by line and kind."""

from __future__ import annotations

import re
import runpy
from collections import Counter
from types import FrameType

from trainscope.sync.blame import blame
from trainscope.sync.dry import DryRun

Found = dict[tuple[int, str], int]

_MARKER = re.compile(r"# WAITS (.+)$")


class Collector:
    """Collects what a dry run reports, by the user's file, line and kind."""

    def __init__(self) -> None:
        self.seen: Counter[tuple[str, int, str]] = Counter()
        self.internal: set[str] = set()

    def __call__(self, kind: str, frame: FrameType, *, internal: bool = False) -> None:
        user = blame(frame).user
        assert user is not None
        self.seen[(user.f_code.co_filename, user.f_lineno, kind)] += 1
        if internal:
            self.internal.add(kind)

    def of(self, file: str) -> Found:
        return {(line, kind): n for (path, line, kind), n in self.seen.items() if path == file}


def run_file(path: str) -> tuple[Found, DryRun, dict[str, object]]:
    collector = Collector()
    dry_run = DryRun(collector)
    dry_run.start()
    try:
        names = runpy.run_path(path, run_name="__main__")
    finally:
        dry_run.stop()
    assert dry_run.fault is None
    return collector.of(path), dry_run, names


def expected_of(source: str) -> Found:
    """Read the markers ``# WAITS item 3, bool`` at the ends of lines."""
    expected: Found = {}
    for number, line in enumerate(source.splitlines(), start=1):
        marker = _MARKER.search(line)
        for part in marker.group(1).split(",") if marker else ():
            kind, _, count = part.strip().partition(" ")
            expected[(number, kind)] = int(count or 1)
    return expected
