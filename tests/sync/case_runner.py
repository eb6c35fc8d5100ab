"""Runs one program as ``__main__`` under a detector and writes what it found, as JSON.

python case_runner.py live|dry PROGRAM OUT
"""

from __future__ import annotations

import dataclasses
import json
import runpy
import sys
from pathlib import Path

from trainscope.sync.detector import SyncDetector


def main(source: str, program: str, out: str) -> None:
    detector = SyncDetector(dry_run=source == "dry")
    sys.argv = [program]
    with detector:
        runpy.run_path(program, run_name="__main__")
    state = detector.state()
    found = {
        "sites": [dataclasses.asdict(site) for site in detector.sites()],
        "races": [dataclasses.asdict(site) for site in state.races],
        "cannot_see": state.cannot_see,
    }
    Path(out).write_text(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
