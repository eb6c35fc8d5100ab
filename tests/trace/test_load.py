from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from made_runs import trace, write_run

from trainscope.errors import RunDirectoryError, TraceError
from trainscope.trace.load import load


def test_a_run_is_loaded_by_directory_rank_folder_or_run_json(tmp_path: Path) -> None:
    path = write_run(tmp_path / "mlp.json", trace()).path  # a directory may have such a name
    for given in (path, str(path), path / "rank0", path / "run.json"):
        assert len(load(given).ranges) == 480 * 5


TRACE = {
    "deviceProperties": [{"id": 0, "name": "NVIDIA H200"}],
    "baseTimeNanoseconds": 1_700_000_000_000_000_000,
    "traceEvents": [
        {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 2, "ts": 5.5, "dur": 1.25}
    ],
}


@pytest.mark.parametrize("name", ["t.json", "t.json.gz", "anything"])
def test_a_trace_of_torch_profiler_is_a_trace_of_one_window(tmp_path: Path, name: str) -> None:
    text = json.dumps(TRACE).encode()
    (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    found = load(tmp_path / name)
    (window,) = found.windows
    assert (found.info.source, found.info.device) == ("torch.profiler", "NVIDIA H200")
    assert (len(found.ranges), found.detector, found.counts.optimizer_steps) == (0, None, None)
    assert (window.ops.start_ns.tolist(), window.ops.end_ns.tolist()) == ([0], [1250])
    assert window.unix_ns_at_zero == 1_700_000_000_000_005_500


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"", "is empty: was the program killed while it wrote it"),
        (b"hello", "is no trace of torch.profiler: JSON is malformed"),
        (b'{"a": 1}', "it has no traceEvents; give a file that export_chrome_trace wrote"),
        (b'{"traceEvents": [{"ph": "X"', "is cut off or damaged: Input data was truncated"),
    ],
)
def test_what_is_no_trace_is_told(tmp_path: Path, text: bytes, words: str) -> None:
    (tmp_path / "t.json").write_bytes(text)
    with pytest.raises(TraceError, match=words):
        load(tmp_path / "t.json")


def test_a_missing_trace_is_told_to_be_missing(tmp_path: Path) -> None:
    with pytest.raises(RunDirectoryError, match=r"t\.json does not exist"):
        load(tmp_path / "t.json")
