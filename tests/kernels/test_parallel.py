"""Under DDP and FSDP2 a model of our kernels trains as it does in one process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

SCRIPT = Path(__file__).with_name("parallel_model.py")
RANKS = 2
few = torch.cuda.is_available() and torch.cuda.device_count() < RANKS


@pytest.mark.gpu
@pytest.mark.skipif(few, reason="needs two GPUs")
@pytest.mark.parametrize("impl", ["triton", "cuda"])
@pytest.mark.parametrize("way", ["ddp", "fsdp", "compiled"])
def test_two_ranks_lose_what_one_process_loses(way: str, impl: str) -> None:
    command = [sys.executable, str(SCRIPT), way, impl]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count("the same losses") == RANKS
