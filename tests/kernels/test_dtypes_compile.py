"""Every dtype of every Triton kernel compiles for a GPU, which the interpreter does not show."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path


def test_every_dtype_of_every_kernel_compiles() -> None:
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("compile_dtypes.py")],
        env={**os.environ, "TRITON_INTERPRET": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["failed"] == {}
    assert found["compiled"] == 4 * (2 * 4 + 4 * 2)
