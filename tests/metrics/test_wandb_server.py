"""A wandb server that refuses or never answers: the loop and the other sinks do not notice."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from warm import warm_script

pytest.importorskip("wandb")

SERVER_PROGRAM = """
import sys, time
from pathlib import Path
import torch
from trainscope.metrics.logger import MetricsLogger
from trainscope.metrics.sinks import Jsonl, SinkContext, Wandb
from trainscope.metrics.worker import Worker

folder = Path(sys.argv[1])
worker = Worker(0.05)
logger = MetricsLogger(
    [Jsonl(), Wandb(project="demo")],
    context=SinkContext(folder, folder, 0, 1, "run"), worker=worker,
)
worker.start()
slowest_s = 0.0
for step in range(1000):
    began_s = time.perf_counter()
    logger.log(step, {"loss": torch.tensor(step / 4)})
    slowest_s = max(slowest_s, time.perf_counter() - began_s)
    time.sleep(0.001)
began_s = time.perf_counter()
logger.close(timeout_s=2)
close_s = time.perf_counter() - began_s
state = {sink.name: sink for sink in logger.state().sinks}
print(slowest_s, close_s, state["jsonl"].written, state["wandb"].written, state["wandb"].dropped)
"""


@pytest.mark.parametrize("server", ["refuses", "never_answers"])
def test_a_server_that_is_not_there_slows_nothing(
    place: Path,
    server: str,
    silent_port: Callable[[], int],
    closed_port: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    port = closed_port if server == "refuses" else silent_port()
    environment = {
        "WANDB_BASE_URL": f"http://127.0.0.1:{port}",
        "WANDB_API_KEY": "0123456789" * 4,
        "WANDB_DIR": str(place),
        "WANDB_MODE": "online",
        "WANDB_SILENT": "true",
        "WANDB_INIT_TIMEOUT": "5",
    }
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    began_s = time.monotonic()
    done = warm_script(place, SERVER_PROGRAM, str(place)).end()
    assert done.status == 0, done.err
    slowest_s, close_s, jsonl, taken, dropped = map(float, done.out.split())
    # a wait for the server would be seconds; half of one allows for a busy test machine
    assert slowest_s < 0.5
    assert close_s < 4
    assert (jsonl, taken, dropped) == (1000, 0, 1000)
    assert time.monotonic() - began_s < 60


@pytest.fixture
def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture
def silent_port() -> Iterator[Callable[[], int]]:
    """A server that takes connections and says nothing."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(16)
    yield lambda: listener.getsockname()[1]
    listener.close()
