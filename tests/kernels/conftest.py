"""Where there is no GPU, Triton kernels run in NumPy: set before anything imports Triton."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

HERE = Path(__file__).parent

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # NumPy warns of the inf and NaN that a GPU computes in silence, and of how Triton calls it
    quiet = [
        pytest.mark.filterwarnings(f"ignore::{category}:triton.runtime.interpreter")
        for category in ("RuntimeWarning", "DeprecationWarning")
    ]
    for item in items:
        if HERE in item.path.parents:
            for each in quiet:
                item.add_marker(each)


@pytest.fixture(scope="session")
def device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


@pytest.fixture(autouse=True)
def seeded() -> None:
    """The same inputs every time, whichever tests ran before."""
    torch.manual_seed(0)


@pytest.fixture
def as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """CPU tensors stand for those of the current GPU where calls are done again the short way."""
    from trainscope_kernels import repeats

    monkeypatch.setattr(repeats, "_on_current", lambda x: True)
    monkeypatch.setattr(repeats, "_current_device", lambda: -1)


@pytest.fixture
def measured_triton() -> None:
    """For what was looked at in the code of one release: another one allots registers otherwise."""
    import triton

    if not triton.__version__.startswith("3.6."):
        pytest.skip(f"Triton {triton.__version__} is not the one that was measured, 3.6")


@pytest.fixture(scope="session")
def compiled_for_gpus(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What compile_for_gpus.py makes of GELU and softmax."""
    return printed_once("compile_for_gpus", tmp_path_factory)


@pytest.fixture(scope="session")
def compiled_attention(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What compile_attention_for_gpus.py makes of attention."""
    return printed_once("compile_attention_for_gpus", tmp_path_factory)


def printed_once(script: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The JSON that a script prints; it runs once, whichever worker asks first."""
    place = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        place = place.parent
    answer = place / f"{script}.json"
    try:
        (place / f"{script}.begun").touch(exist_ok=False)
    except FileExistsError:
        give_up = time.monotonic() + 300
        while not answer.exists():
            assert time.monotonic() < give_up, "another worker compiles for more than 5 minutes"
            time.sleep(0.1)
        return json.loads(answer.read_text())
    done = subprocess.run(
        [sys.executable, str(HERE / f"{script}.py")],
        env=os.environ | {"TRITON_INTERPRET": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        # without an answer the other worker would wait; with this one its tests fail as well
        done.stdout = json.dumps({"raised": done.stderr[-3000:]})
    written = answer.with_suffix(".part")
    written.write_text(done.stdout)
    written.rename(answer)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)
