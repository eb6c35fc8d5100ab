from __future__ import annotations

import json
from pathlib import Path

import pytest
from made_runs import full_trace, step_rows, trace, write_run

from trainscope.errors import RunDirectoryError
from trainscope.trace.ranges import Ranges, Row
from trainscope.trace.read_run import read_run


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_run(tmp_path / "mlp", trace(step_rows(3))).path


@pytest.mark.parametrize("torn_bytes", range(1, 40))
def test_a_torn_last_row_is_left_out_and_told(run: Path, torn_bytes: int) -> None:
    file = run / "rank0" / "ranges.i64"
    with file.open("ab") as appended:
        appended.write(b"\x01" * torn_bytes)
    read = read_run(run)
    assert len(read.ranges) == 15
    assert read.notes == (
        f"rank0/ranges.i64 ends in a torn row ({torn_bytes} bytes left out): killed mid-write",
    )


def test_a_kill_before_the_first_save_leaves_a_run_that_says_so(run: Path) -> None:
    for file in (run / "rank0").iterdir():
        file.unlink()
    read = read_run(run)
    assert len(read.ranges) == 0
    assert read.detector is None
    assert read.notes == (
        "rank0/ranges.i64 is missing: killed before it was first saved?",
        "rank0/syncs.json is missing: killed before it was first saved?",
    )
    (run / "rank0").rmdir()
    assert read_run(run).notes == ("no rank wrote anything: was it killed at once?",)


def test_a_run_that_recorded_no_range_is_whole(run: Path) -> None:
    (run / "rank0" / "ranges.i64").unlink()
    read = read_run(run)
    assert (len(read.ranges), read.notes) == (0, ())


def test_names_that_are_missing_are_question_marks(run: Path) -> None:
    (run / "rank0" / "names.json").write_text('["step", "data"]')
    read = read_run(run)
    assert [read.name(i) for i in range(4)] == ["step", "data", "?", "?"]
    assert read.notes == ("rank0/names.json lacks names of ranges, shown as ?: killed mid-write?",)


@pytest.mark.parametrize(
    "row",
    [(-2, 0, 0, 0, 1), (0, -1, 0, 0, 1), (0, 0, -1, 0, 1), (0, 0, 0, 2, 1), (0, 0, 0, -1, 1)],
)
def test_a_row_that_is_no_range_is_named(run: Path, row: Row) -> None:
    whole = step_rows(20_000)  # more rows than are read at once
    run_dir = write_run(run.parent / "long", trace([*whole, row, *whole]))
    with pytest.raises(RunDirectoryError, match=r"rank0/ranges\.i64 row 100000 is no range: \{"):
        read_run(run_dir.path)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("run.json", "{", r"run\.json is not JSON: "),
        ("run.json", "[" * 100_000, r"run\.json is not JSON: "),
        ("run.json", "[]", r"run\.json at top level: "),
        ("run.json", "{}", r"run\.json at launch_id: Field required"),
        (
            "run.json",
            '{"schema_version": 2}',
            r"schema_version 2; this trainscope reads up to 1: install a newer one",
        ),
        ("run.json", '{"launch_id": "a", "world_size": 0}', r"run\.json at world_size: "),
        ("rank0/names.json", '["a", 7]', r"names\.json at 1: .* but it holds 7"),
        ("rank0/names.json", "\xff", r"names\.json is not JSON: "),
        ("rank0/syncs.json", "[]", r"syncs\.json holds no JSON object, but list"),
        ("rank0/syncs.json", '{"sites": [{}]}', r"syncs\.json at sites\.0\.kind: "),
        ("rank0/syncs.json", '{"detector": {"armed_steps": "x"}}', r"at detector\.armed_steps: "),
        ("rank0/counts.json", '{"forwards": []}', r"counts\.json at forwards: "),
        ("rank0/metrics.json", '{"logged": null}', r"metrics\.json at logged: "),
        ("rank0/captures.json", '{"windows": 3}', r"captures\.json at windows: "),
    ],
)
def test_a_foreign_file_is_named_with_the_place(
    run: Path, file: str, content: str, message: str
) -> None:
    (run / file).write_bytes(content.encode("latin-1"))
    with pytest.raises(RunDirectoryError, match=message):
        read_run(run)


def test_what_is_no_run_directory_is_told(tmp_path: Path) -> None:
    with pytest.raises(RunDirectoryError, match="nowhere does not exist"):
        read_run(tmp_path / "nowhere")
    with pytest.raises(RunDirectoryError, match=r"holds no run\.json"):
        read_run(tmp_path)


def test_unknown_keys_of_a_later_version_are_ignored(run: Path) -> None:
    file = run / "run.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "weather": "fine"}))
    syncs = run / "rank0" / "syncs.json"
    syncs.write_text(json.dumps({**json.loads(syncs.read_text()), "weather": "fine"}))
    assert read_run(run).notes == ()


def test_ranks_are_read_together_or_one_alone(tmp_path: Path) -> None:
    ranks = (trace(step_rows(2), rank=2), trace(step_rows(3), rank=10))
    path = write_run(tmp_path / "mlp", trace(step_rows(1), ranks=ranks), world_size=11).path
    for given in (path, path / "run.json"):
        read = read_run(given)
        assert [each.rank for each in (read, *read.ranks)] == [0, 2, 10]
        assert [len(each.ranges) for each in (read, *read.ranks)] == [5, 10, 15]
        assert read.missing_ranks == (1, 3, 4, 5, 6, 7, 8, 9)
    alone = read_run(path / "rank10")
    assert (alone.path, alone.rank, alone.ranks, alone.missing_ranks) == (path, 10, (), ())


def test_a_rank_folder_is_found_from_inside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_run(tmp_path / "mlp", full_trace()).path
    monkeypatch.chdir(path / "rank0")
    assert read_run(".").rank == 0


def test_ranges_closed_before_their_turn_was_known_to_be_a_step_are_that_steps(
    tmp_path: Path,
) -> None:
    rows: list[Row] = [
        (-1, 1, 1, 5, 12),  # ends in the step, but began before it
        (-1, 1, 1, 10, 20),
        (-1, 2, 2, 22, 24),
        (0, 2, 1, 40, 50),
        (0, 0, 0, 10, 60),
        (-1, 1, 1, 60, 61),
        (1, 0, 0, 70, 80),
        (-1, 1, 1, 75, 90),
    ]
    write_run(tmp_path, trace(rows))
    read = read_run(tmp_path).ranges
    assert read.step.tolist() == [-1, 0, 0, 0, 0, -1, 1, -1]
    assert read.start_ns.tolist() == [row[3] for row in rows]


def test_columns_keep_the_order_of_rows() -> None:
    ranges = Ranges.of([(0, 1, 1, 5, 9), (0, 0, 0, 4, 10)])
    assert ranges.duration_ns.tolist() == [4, 6]
    assert len(Ranges.of([])) == 0
