"""A baseline that people edit, merge, link and lock: each fault is one line, none is a guess."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from made_runs import ITEM, site, trace, write_run
from typer.testing import CliRunner, Result

from trainscope.cli.main import app

Known = dict[str, Any]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_run(tmp_path / "mlp", trace(syncs=(ITEM,))).path


def check(run: Path, file: Path | str, *more: str) -> Result:
    return CliRunner().invoke(app, ["check", str(run), "--baseline", str(file), *more])


@pytest.fixture
def known(run: Path, tmp_path: Path) -> Known:
    assert check(run, tmp_path / "syncs.json", "--update").exit_code == 0
    return json.loads((tmp_path / "syncs.json").read_text())


def refused(run: Path, file: Path | str, *more: str) -> str:
    """The one line of an error."""
    done = check(run, file, *more)
    assert (done.exit_code, done.stdout) == (2, ""), done.exception
    (line,) = done.stderr.splitlines()
    assert line.startswith("trainscope check: ")
    assert line.isprintable()
    return line


@pytest.mark.parametrize(
    "encode", [lambda s: b"\xef\xbb\xbf" + s, lambda s: s.replace(b"\n", b"\r\n")]
)
def test_what_an_editor_makes_of_it_is_read(
    run: Path, tmp_path: Path, known: Known, encode: Callable[[bytes], bytes]
) -> None:
    file = tmp_path / "syncs.json"
    file.write_bytes(encode(file.read_bytes()))
    assert check(run, file).exit_code == 0
    assert check(run, file, "--update").exit_code == 0
    assert json.loads(file.read_bytes()) == known


def test_a_key_that_stands_twice_is_refused(run: Path, tmp_path: Path, known: Known) -> None:
    file = tmp_path / "syncs.json"
    text = json.dumps(known)
    file.write_text(text.replace('"budgets"', '"budgets": {"step_ms": 1}, "budgets"'))
    assert "has the key 'budgets' twice in one object" in refused(run, file)
    file.write_text(text.replace('"per_step"', '"per_step": 9, "per_step"'))
    assert "has the key 'per_step' twice in one object" in refused(run, file, "--update")


def test_a_sync_that_stands_twice_is_refused(run: Path, tmp_path: Path, known: Known) -> None:
    file = tmp_path / "syncs.json"
    again = {**known["syncs"][0], "per_step": 9.0}
    file.write_text(json.dumps({**known, "syncs": [*known["syncs"], again]}))
    assert "at syncs.1: the same sync stands at syncs.0; keep one" in refused(run, file)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("budgets.step_ms", "3"),
        ("budgets.step_ms", True),
        ("budgets.step_ms", 10**400),
        ("budgets", None),
        ("steps", "480"),
        ("steps", True),
        ("dry_run", "no"),
        ("syncs", {}),
        ("syncs.0", None),
        ("syncs.0.lines", "1"),
        ("syncs.0.lines", True),
        ("syncs.0.per_step", "1"),
        ("syncs.0.file", 3),
        ("syncs.0.reason", 3),
        ("syncs.0.a\nb\x1b[2J", 1),
    ],
)
def test_a_value_of_another_type_is_no_number(
    run: Path, tmp_path: Path, known: Known, place: str, value: object
) -> None:
    *outer, last = (int(part) if part.isdigit() else part for part in place.split("."))
    inside: Any = known
    for part in outer:
        inside = inside[part]
    inside[last] = value
    file = tmp_path / "syncs.json"
    file.write_text(json.dumps(known))
    told = "".join(c if c.isprintable() else " " if c.isspace() else "?" for c in place)
    assert f", at {told}: " in refused(run, file)


@pytest.mark.parametrize("per_step", [1e308, 1e-320])
def test_an_absurd_rate_is_compared(
    run: Path, tmp_path: Path, known: Known, per_step: float
) -> None:
    known["syncs"][0]["per_step"] = per_step
    file = tmp_path / "syncs.json"
    file.write_text(json.dumps(known))
    assert check(run, file).exit_code == (0 if per_step > 1 else 1)


@pytest.mark.parametrize("more", [[], ["--update"]])
def test_places_that_hold_no_file(run: Path, tmp_path: Path, more: list[str]) -> None:
    pipe, circle = tmp_path / "pipe", tmp_path / "circle"
    os.mkfifo(pipe)
    circle.symlink_to(circle)
    assert "cannot be read: Is no regular file" in refused(run, pipe, *more)
    assert "cannot be read: Is no regular file" in refused(run, "/dev/null", *more)
    assert "cannot be read: Is a directory" in refused(run, tmp_path, *more)
    assert "cannot be read: Is a directory" in refused(run, "", *more)
    assert "cannot be read: Too many levels" in refused(run, circle, *more)
    assert "cannot be read: File name too long" in refused(run, tmp_path / ("x" * 300), *more)
    assert "a b?[2J" in refused(run, tmp_path / "a\nb\x1b[2J" / "x", *more)


def test_the_longest_name_that_the_disk_takes_is_written(run: Path, tmp_path: Path) -> None:
    assert check(run, tmp_path / ("x" * 255), "--update").exit_code == 0
    assert check(run, tmp_path / ("x" * 255)).exit_code == 0


def test_a_name_that_is_no_text_is_written_and_told(run: Path, tmp_path: Path) -> None:
    file = os.fsdecode(os.fsencode(tmp_path) + b"/\xff.json")
    done = check(run, file, "--update")
    assert (done.exit_code, done.stdout) == (0, f"{tmp_path}/?.json: 1 known sync written\n")
    assert check(run, file).exit_code == 0


def test_links_and_modes_stay(run: Path, tmp_path: Path, known: Known) -> None:
    file, link, dangling = (tmp_path / name for name in ("syncs.json", "link", "dangling"))
    file.write_text("{}")
    file.chmod(0o640)
    link.symlink_to(file)
    dangling.symlink_to("new.json")
    for each in (link, dangling):
        assert check(run, each, "--update").exit_code == 0
        assert each.is_symlink()
        assert json.loads(each.read_text()) == known
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert not list(tmp_path.glob(".*"))


def test_a_read_only_file_is_left(
    run: Path, tmp_path: Path, known: Known, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "syncs.json"
    file.write_text("{}")
    file.chmod(0o444)
    access = os.access  # root may write anything
    monkeypatch.setattr(
        os,
        "access",
        lambda path, mode: not (mode & os.W_OK and path == file) and access(path, mode),
    )
    assert "it is read-only; make it writable" in refused(run, file, "--update")
    assert file.read_text() == "{}"


def test_json_of_an_update_is_refused(run: Path, tmp_path: Path) -> None:
    line = refused(run, tmp_path / "new.json", "--update", "--format", "json")
    assert "--update judges nothing that --format json could show" in line
    assert not (tmp_path / "new.json").exists()


def test_a_run_that_ended_before_its_first_step_passes_nothing(
    run: Path, tmp_path: Path, known: Known
) -> None:
    file = tmp_path / "syncs.json"
    nothing = write_run(tmp_path / "killed", trace([])).path
    assert "rank 0 recorded no step, and the baseline's run had 480" in refused(nothing, file)
    other_rank = trace(ranks=(trace([], rank=1),))
    half = write_run(tmp_path / "half", other_rank, world_size=2).path
    assert "rank 1 recorded no step" in refused(half, file)


def test_a_new_sync_in_a_file_that_ends_alike_is_told(tmp_path: Path, run: Path) -> None:
    file = tmp_path / "syncs.json"
    check(run, file, "--update")
    more = (ITEM, site(file="/home/me/project/sub/train.py"))
    failed = check(write_run(tmp_path / "more", trace(syncs=more)).path, file)
    assert failed.exit_code == 1
    assert "new sync: sub/train.py:42 in main" in failed.stdout
