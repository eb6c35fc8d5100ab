"""Each sink writes what it was given, exactly."""

from __future__ import annotations

import io
import json
import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console as RichConsole

from trainscope.errors import ConfigError, MissingDependencyError
from trainscope.metrics import sinks
from trainscope.metrics.records import MetricRecord, SinkContext
from trainscope.metrics.sinks import Console, Jsonl, TensorBoard, Wandb, needed
from trainscope.trace.metrics import read_metrics

RECORDS = (
    MetricRecord(0, 10, {"loss": 0.1, "tokens": 2**60 + 1}),
    MetricRecord(1, 11, {"loss": math.nan, "up": math.inf, "down": -math.inf}),
    MetricRecord(2, 12, {'quote" and \\': 1e-300, "größe": -0.0}),
)
LINES = (
    '{"step":0,"time_unix_ns":10,"loss":0.1,"tokens":1152921504606846977}\n'
    '{"step":1,"time_unix_ns":11,"loss":"NaN","up":"Infinity","down":"-Infinity"}\n'
    '{"step":2,"time_unix_ns":12,"quote\\" and \\\\":1e-300,"größe":-0.0}\n'
)


def context(folder: Path, rank: int = 0) -> SinkContext:
    return SinkContext(folder, folder / f"rank{rank}", rank, 2, "run")


def same(first: float, second: float) -> bool:
    return first == second or (math.isnan(first) and math.isnan(second))


def test_jsonl_is_strict_json_line_by_line(tmp_path: Path) -> None:
    sink = Jsonl()
    sink.open(context(tmp_path))
    sink.write(RECORDS[:2])
    sink.write(RECORDS[2:])
    sink.close()
    path = tmp_path / "rank0" / "metrics.jsonl"
    assert path.read_text(encoding="utf-8") == LINES

    def refuse(word: str) -> float:
        raise AssertionError(f"{word} is no JSON")

    for line in LINES.splitlines():
        json.loads(line, parse_constant=refuse)
    back = read_metrics(path)
    assert [(r.step, r.time_unix_ns, list(r.values)) for r in back] == [
        (r.step, r.time_unix_ns, list(r.values)) for r in RECORDS
    ]
    for read, written in zip(back, RECORDS, strict=True):
        assert all(same(read.values[name], value) for name, value in written.values.items())


@pytest.mark.parametrize(
    ("name", "value", "back"),
    [
        ("big", 2**100, 2**100),
        ("unsigned", 2**64 - 1, 2**64 - 1),
        ("round", 1e16, 1e16),
        ("tiny", 5e-324, 5e-324),
        ("numpy", np.float64(0.1), 0.1),
        ("null", 0.25, 0.25),
        ("half a pair \ud800", 0.25, 0.25),
        ("line\nbreak", 0.25, 0.25),
    ],
)
def test_an_odd_record_comes_back_among_usual_ones(
    tmp_path: Path, name: str, value: float, back: float
) -> None:
    sink = Jsonl(tmp_path / "own.jsonl")
    sink.open(context(tmp_path))
    sink.write([RECORDS[0], MetricRecord(7, 8, {name: value, "loss": 0.1}), RECORDS[2]])
    sink.close()
    readable = name.encode("utf-8", "replace").decode()
    assert read_metrics(tmp_path / "own.jsonl") == (
        RECORDS[0],
        MetricRecord(7, 8, {readable: back, "loss": 0.1}),
        RECORDS[2],
    )


def test_jsonl_writes_each_flush_with_one_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[bytes] = []
    sink = Jsonl(tmp_path / "deep" / "own.jsonl")
    sink.open(context(tmp_path))
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda _, data: written.append(bytes(data)) or len(data))
        sink.write(RECORDS)
    sink.close()
    assert [data.decode() for data in written] == [LINES]


def test_jsonl_goes_on_after_a_short_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = Jsonl(tmp_path / "own.jsonl")
    sink.open(context(tmp_path))
    with monkeypatch.context() as patch:
        real = os.write
        patch.setattr(os, "write", lambda file, data: real(file, data[:7]))
        sink.write(RECORDS)
    sink.close()
    assert (tmp_path / "own.jsonl").read_text(encoding="utf-8") == LINES


def test_a_line_torn_by_a_kill_is_left_out_and_a_broken_one_is_named(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    assert read_metrics(path) == ()
    path.write_text(LINES + '{"step":3,"time_un', encoding="utf-8")
    assert [record.step for record in read_metrics(path)] == [0, 1, 2]
    path.write_text("{nonsense\n" + LINES, encoding="utf-8")
    with pytest.raises(ValueError, match=r"metrics\.jsonl:1: not a JSON object"):
        read_metrics(path)


def shown(per_second: float, names: list[str] | None, batches: list[tuple[float, int]]) -> str:
    """What the console shows of one-record writes at these times, closed at the end."""
    now_s = [0.0]
    screen = io.StringIO()
    sink = Console(
        per_second,
        names=names,
        console=RichConsole(file=screen, width=20, highlight=False),
        clock_s=lambda: now_s[0],
    )
    sink.open(context(Path("run")))
    for time_s, step in batches:
        now_s[0] = time_s
        sink.write([MetricRecord(step, 0, {"loss": step / 7, "[bold]n": step})])
    sink.close()
    return screen.getvalue()


def test_the_console_prints_the_newest_at_its_pace_and_the_last_always() -> None:
    batches = [(0.0, 1), (0.4, 2), (0.5, 3), (0.9, 4), (1.0, 5), (1.1, 6)]
    assert shown(2.0, None, batches) == (
        "step 1  loss 0.14286  [bold]n 1\n"
        "step 3  loss 0.42857  [bold]n 3\n"
        "step 5  loss 0.71429  [bold]n 5\n"
        "step 6  loss 0.85714  [bold]n 6\n"
    )


def test_the_console_shows_chosen_names_in_that_order() -> None:
    assert shown(1.0, ["[bold]n", "gone", "loss"], [(0.0, 7)]) == "step 7  [bold]n 7  loss 1\n"


def test_the_console_of_another_rank_is_silent() -> None:
    screen = io.StringIO()
    sink = Console(console=RichConsole(file=screen))
    sink.open(context(Path("run"), rank=1))
    sink.write(RECORDS[:1])
    sink.close()
    assert screen.getvalue() == ""


def test_the_console_prints_lines_in_a_notebook_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    sink = Console()
    sink.open(context(Path("run")))
    sink.write(RECORDS[:1])
    sink.close()
    assert capsys.readouterr().err == "step 0  loss 0.1  tokens 1152921504606846977\n"


@pytest.mark.parametrize("per_second", [0, -1.0, math.nan])
def test_a_pace_that_is_none(per_second: float) -> None:
    with pytest.raises(ConfigError, match="per_second is"):
        Console(per_second)


def test_tensorboard_holds_each_value_with_step_and_time(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    sink = TensorBoard()
    sink.open(context(tmp_path))
    sink.write([MetricRecord(s, s * 10**9, {"loss": s / 4, "n": s}) for s in range(5)])
    sink.close()
    events = EventAccumulator(str(tmp_path / "rank0" / "tensorboard"))
    events.Reload()
    assert sorted(events.Tags()["scalars"]) == ["loss", "n"]
    assert [(e.step, e.wall_time, e.value) for e in events.Scalars("loss")] == [
        (s, float(s), s / 4) for s in range(5)
    ]


NEEDS = [(TensorBoard, "tensorboard", "2.14"), (Wandb, "wandb", "0.19.10")]


@pytest.mark.parametrize(("sink", "package", "oldest"), NEEDS)
def test_a_missing_package_is_named_with_the_command(
    sink: type, package: str, oldest: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingDependencyError, match=f"pip install '{package}>={oldest}'"):
        sink()


@pytest.mark.parametrize(("sink", "package", "oldest"), NEEDS)
def test_a_package_that_is_too_old_is_named_with_what_is_needed(
    sink: type, package: str, oldest: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(needed, "version", lambda name: {package: "0.19.9"}[name])
    words = f"needs {package} {oldest} or newer, and 0.19.9 is installed: pip install"
    with pytest.raises(MissingDependencyError, match=words):
        sink()
    for enough in (oldest, f"{oldest}.1", "99.0rc1"):
        monkeypatch.setattr(needed, "version", lambda name, enough=enough: enough)
        sink()


def test_the_extras_ask_for_the_same_releases() -> None:
    project = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    for _, package, oldest in NEEDS:
        assert f'\n{package} = ["{package}>={oldest}"]' in project


def test_the_sinks_are_loaded_when_used() -> None:
    program = (
        "import sys; from trainscope.metrics import sinks\n"
        "assert 'Jsonl' in dir(sinks); sinks.Jsonl\n"
        "late = {'wandb', 'tensorboard', 'rich', 'trainscope.metrics.sinks.console'}\n"
        "sys.exit(sorted(late & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_name_that_is_no_sink() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Csv'"):
        sinks.Csv  # noqa: B018
    assert set(sinks.__all__) <= set(dir(sinks))
