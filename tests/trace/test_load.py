from __future__ import annotations

from pathlib import Path

import pytest
from made_runs import trace, write_run

from trainscope.errors import RunDirectoryError, TraceError
from trainscope.trace.load import load


def test_a_run_is_loaded_by_directory_rank_folder_or_run_json(tmp_path: Path) -> None:
    path = write_run(tmp_path / "mlp.json", trace()).path  # a directory may have such a name
    for given in (path, str(path), path / "rank0", path / "run.json"):
        assert len(load(given).ranges) == 480 * 5


@pytest.mark.parametrize("name", ["t.json", "t.json.gz", "t.sqlite", "t.nsys-rep"])
def test_traces_of_other_tools_are_refused_with_what_to_do(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"")
    with pytest.raises(TraceError, match="reads run directories only: give the directory that a"):
        load(tmp_path / name)


def test_a_missing_trace_is_told_to_be_missing(tmp_path: Path) -> None:
    with pytest.raises(RunDirectoryError, match=r"t\.json does not exist"):
        load(tmp_path / "t.json")
