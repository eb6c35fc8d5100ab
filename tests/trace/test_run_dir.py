from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from made_runs import INFO, trace, write_run

from trainscope.errors import RunDirectoryError
from trainscope.trace.files import jsonable
from trainscope.trace.read_run import read_run
from trainscope.trace.run_dir import RunDirectory


def test_missing_and_empty_directories_are_used(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for path in (tmp_path / "a" / "b", tmp_path / "empty"):
        made = RunDirectory.create(path, launch_id="one")
        assert (made.path, made.moved_from) == (path, None)
        assert json.loads((path / "run.json").read_text())["launch_id"] == "one"
        assert made.rank_dir == path / "rank0"
        assert made.rank_dir.is_dir()


def test_a_directory_in_use_is_left_alone_and_numbered_siblings_follow(tmp_path: Path) -> None:
    foreign = tmp_path / "mlp" / "thesis.tex"
    foreign.parent.mkdir()
    foreign.write_text("mine")
    made = [RunDirectory.create(tmp_path / "mlp", launch_id=str(i)) for i in range(3)]
    assert [run.path.name for run in made] == ["mlp-2", "mlp-3", "mlp-4"]
    assert {run.moved_from for run in made} == {tmp_path / "mlp"}
    assert [p.name for p in foreign.parent.iterdir()] == ["thesis.tex"]
    assert foreign.read_text() == "mine"


def test_a_file_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "mlp").write_text("")
    with pytest.raises(RunDirectoryError, match=r"mlp is a file; a run needs a directory"):
        RunDirectory.create(tmp_path / "mlp", launch_id="one")


def test_a_full_current_directory_is_refused_for_its_sibling_would_lie_outside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = tmp_path / "project"
    inner.mkdir()
    (inner / "train.py").write_text("")
    monkeypatch.chdir(inner)
    with pytest.raises(RunDirectoryError, match="name a directory of its own, such as 'runs/mlp'"):
        RunDirectory.create(".", launch_id="one")
    assert [p.name for p in tmp_path.iterdir()] == ["project"]


def test_ranks_of_one_launch_agree_though_the_others_come_first(tmp_path: Path) -> None:
    RunDirectory.create(tmp_path / "mlp", launch_id="older")
    found: dict[int, RunDirectory] = {}

    def create(rank: int) -> None:
        found[rank] = RunDirectory.create(
            tmp_path / "mlp", rank=rank, world_size=3, launch_id="ours", wait_s=20
        )

    threads = [threading.Thread(target=create, args=(rank,)) for rank in (2, 1, 0)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {run.path.name for run in found.values()} == {"mlp-2"}
    assert sorted(p.name for p in (tmp_path / "mlp-2").iterdir()) == [
        "rank0",
        "rank1",
        "rank2",
        "run.json",
    ]
    assert [found[rank].owner for rank in range(3)] == [True, False, False]


def test_a_rank_without_rank_0_stands_alone_and_says_so(tmp_path: Path) -> None:
    RunDirectory.create(tmp_path / "mlp", launch_id="another")
    alone = RunDirectory.create(
        tmp_path / "mlp", rank=1, world_size=2, launch_id="ours", wait_s=0.01
    )
    alone.write_info(INFO.model_copy(update={"world_size": 2}))
    assert alone.path == tmp_path / "mlp-rank1"
    made = read_run(alone.path)
    assert (made.rank, made.missing_ranks) == (1, (0,))
    assert made.info.launch_id == "ours"
    assert made.info.notes == [
        f"rank 1 of 2 found no directory of rank 0 at {tmp_path / 'mlp'} within 0.01 s and stands "
        "alone here: are the ranks on one file system?"
    ]


def test_a_launch_id_used_again_does_not_mix_with_the_older_run(tmp_path: Path) -> None:
    for expected in ("mlp", "mlp-2"):
        for rank in range(2):
            run = RunDirectory.create(
                tmp_path / "mlp", rank=rank, world_size=2, launch_id="same", wait_s=1
            )
            assert run.path.name == expected


def test_unrelated_launches_at_one_moment_each_get_their_own(tmp_path: Path) -> None:
    program = (
        "import sys; from trainscope.trace.run_dir import RunDirectory\n"
        "print(RunDirectory.create(sys.argv[1], launch_id=sys.argv[2]).path.name)"
    )
    running = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(tmp_path / "mlp"), str(i)],
            stdout=subprocess.PIPE,
            text=True,
        )
        for i in range(4)
    ]
    names = sorted(process.communicate()[0].strip() for process in running)
    assert names == ["mlp", "mlp-2", "mlp-3", "mlp-4"]


def test_what_is_written_is_read(tmp_path: Path) -> None:
    from made_runs import full_trace

    made = full_trace()
    write_run(tmp_path / "mlp", made)
    read = read_run(tmp_path / "mlp")
    for name in ("step", "name_id", "depth", "start_ns", "end_ns"):
        np.testing.assert_array_equal(getattr(read.ranges, name), getattr(made.ranges, name))
    assert (read.names, read.syncs, read.detector) == (made.names, made.syncs, made.detector)
    assert (read.captures, read.counts) == (made.captures, made.counts)
    assert repr(read.metrics) == repr(made.metrics)  # holds a NaN, which equals nothing
    assert (read.ranks, read.missing_ranks) == ((), ())
    (note,) = read.notes  # the made run has no file of its window
    assert note.startswith("a captured window is left out: ")
    assert note.endswith("trace-000.json.gz cannot be read: No such file or directory")
    assert read.info.device == "NVIDIA H200"


def test_rows_appended_in_parts_are_one_file_of_five_little_endian_words(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "mlp", launch_id="one")
    run.append_rows([0, 1, 1, 10, 20])
    run.append_rows([])
    run.append_rows([0, 0, 0, 10, 2**40, -1, 2, 1, 0, 0])
    raw = (run.rank_dir / "ranges.i64").read_bytes()
    assert np.frombuffer(raw, "<i8").reshape(-1, 5).tolist() == [
        [0, 1, 1, 10, 20],
        [0, 0, 0, 10, 2**40],
        [-1, 2, 1, 0, 0],
    ]


def test_a_full_disk_leaves_whole_rows(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "mlp", launch_id="one")
    run.append_rows([0, 1, 1, 10, 20])
    program = (
        "import resource, signal, sys\nfrom pathlib import Path\n"
        "from trainscope.trace.files import RowFile\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))\n"
        "try: RowFile(Path(sys.argv[1])).append([0, 0, 0, 1, 2] * 5)\n"
        "except OSError: print('full')"
    )
    file = run.rank_dir / "ranges.i64"
    out = subprocess.run(
        [sys.executable, "-c", program, str(file)], capture_output=True, text=True, check=True
    )
    assert out.stdout == "full\n"
    assert file.stat().st_size == 40


def test_a_replaced_file_is_never_seen_half_written(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "mlp", launch_id="one")
    names = [[f"{i}-{k}" for k in range(2000)] for i in range(2)]
    run.write_names(names[0])
    stop = threading.Event()

    def rewrite() -> None:
        while not stop.is_set():
            run.write_names(names[1])
            run.write_names(names[0])

    writer = threading.Thread(target=rewrite)
    writer.start()
    seen = [json.loads((run.rank_dir / "names.json").read_bytes()) for _ in range(200)]
    stop.set()
    writer.join()
    assert all(each in names for each in seen)
    assert sorted(p.name for p in run.rank_dir.iterdir()) == ["names.json"]


def test_values_without_a_json_word_are_spelt() -> None:
    values = {"a": float("nan"), "b": (float("-inf"), 1.5), "c": Path("x"), "d": "\udcff"}
    assert jsonable(values) == {"a": "nan", "b": ["-inf", 1.5], "c": "x", "d": "?"}


def test_only_the_owner_writes_run_json(tmp_path: Path) -> None:
    owner = RunDirectory.create(tmp_path / "mlp", world_size=2, launch_id="one")
    other = RunDirectory.create(tmp_path / "mlp", rank=1, world_size=2, launch_id="one")
    other.write_info(INFO)
    assert json.loads((owner.path / "run.json").read_text()) == {
        "schema_version": 1,
        "launch_id": "one",
        "world_size": 2,
    }


def test_the_start_directory_is_kept_for_relative_names(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "mlp", launch_id="one")
    run.write_info(trace().info.model_copy(update={"cwd": None}))
    assert read_run(run.path).info.cwd == str(Path.cwd())
