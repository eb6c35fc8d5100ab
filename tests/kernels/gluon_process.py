"""Runs a check of Gluon attention in a process of its own, which is killed if it hangs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from trainscope_kernels.attention.gluon_envelope import gpu_refusal

ROUNDING = {"bfloat16": 2**-8, "float16": 2**-11}


def found_by(script: str, name: str, arguments: dict[str, Any]) -> Any:
    """What the check of that name found; skips where the kernels are not offered.

    One that hangs is killed, and the last that it wrote is named.
    """
    refusal = gpu_refusal(torch.device("cuda", 0))
    if refusal is not None:
        pytest.skip(f"the Gluon kernels are not offered here: {refusal}")
    command = [sys.executable, str(Path(__file__).with_name(script)), name, json.dumps(arguments)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        said, complained = process.communicate(timeout=120)
    except subprocess.TimeoutExpired:
        process.kill()
        said, complained = process.communicate()
        last = said.splitlines()[-1:] or complained.splitlines()[-1:]
        pytest.fail(f"{name} {arguments} did not end in 120 s; the last it wrote: {last}")
    assert process.returncode == 0, (said.splitlines()[-1:], complained[-4000:])
    return json.loads(said.splitlines()[-1])
