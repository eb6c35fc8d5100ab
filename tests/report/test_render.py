"""The renderers against golden files; TRAINSCOPE_WRITE_GOLDEN=1 writes them anew, to be read."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from made_runs import ARMED, INFO, ITEM, MS, NAMES, full_trace, site, step_rows, trace
from rich.cells import cell_len
from rich.console import Console

from trainscope import api
from trainscope.report import json as json_renderer
from trainscope.report import text
from trainscope.report.build import build
from trainscope.report.model import Report, Spread
from trainscope.report.wording import duration, number_ranges, range_name
from trainscope.trace.counts import Counts
from trainscope.trace.paths import relative_path
from trainscope.trace.trace import Trace

GOLDEN = Path(__file__).parent / "golden"


def ranks_trace() -> Trace:
    slow = trace(step_rows(480, wall_us=(24_000,)), rank=1, syncs=(ITEM,))
    return replace(
        trace(syncs=(ITEM,)),
        info=INFO.model_copy(update={"world_size": 4}),
        ranks=(slow, trace(rank=3)),
        missing_ranks=(2,),
    )


def dry_trace() -> Trace:
    untimed = {"timed": 0, "blocked_ns_total": 0, "blocked_ns_median": None}
    info = INFO.model_copy(update={"dry_run": True, "device": None})
    sites = (site(count=20, **untimed), site(line=57, kind="bool", code="TS103", **untimed))
    detector = replace(
        ARMED,
        dry_run=True,
        armed_steps=20,
        disarmed=("steps 3-4: off",),
        cannot_see=(
            "dry run: how long a wait would block, and whether the copy it waits for is slow",
            "dry run: syncs inside CUDA libraries, custom CUDA extensions and torch.distributed",
            "dry run: everything after its own fault: LookupError: ours",
        ),
    )
    return trace(step_rows(20), info=info, syncs=sites, detector=detector)


def odd_trace() -> Trace:
    """Long steps, ranges that are no phases, a rare line, one line in two phases."""
    rows = step_rows(50, wall_us=(20_400,) * 24 + (1_020_400,))
    begins = {step: start for step, _, depth, start, _ in rows if depth == 0}
    inside = [
        (step, 5, 2, begin + 2 * MS, begin + 3 * MS + half * MS // 2)  # in forward
        for step, begin in begins.items()
        for half in range(1 + step % 2)
    ]
    outside = [(-1, 6, 1, 0, 900), (-1, 7, 2, 10, 500), (-1, 7, 2, 510, 800)]
    ordered = sorted([*rows, *inside, *outside], key=lambda row: (row[4], -row[2]))
    sites = (
        site(
            count=100,
            timed=100,
            blocked_ns_median=2 * MS,
            phase="h2d",
            caller="/home/me/project/a.py:1",
            steps=50,
        ),
        site(count=40, timed=0, blocked_ns_total=0, blocked_ns_median=None, phase=None, steps=40),
        site(line=50, count=9, timed=9, blocked_ns_median=900_000, steps=3, caller=None),
    )
    names = (*NAMES, "attention", "validation", "batch")
    return trace(ordered, names=names, syncs=sites)


TRACES = {
    "full": full_trace,
    "clean": trace,
    "ranks": ranks_trace,
    "dry": dry_trace,
    "odd": odd_trace,
}


def check(name: str, made: str) -> None:
    file = GOLDEN / name
    if os.environ.get("TRAINSCOPE_WRITE_GOLDEN") == "1":
        file.write_text(made, encoding="utf-8")
    assert made == file.read_text(encoding="utf-8")


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("name", TRACES)
def test_text(name: str, width: int) -> None:
    made = text.render(build(TRACES[name]()), width=width)
    check(f"{name}_{width}.txt", made)


@pytest.mark.parametrize("name", TRACES)
def test_json(name: str) -> None:
    check(f"{name}.json", json_renderer.render(build(TRACES[name]())))


@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
@pytest.mark.parametrize("name", TRACES)
def test_no_line_is_wider_than_asked_and_the_first_words_are_the_verdict(
    name: str, width: int
) -> None:
    report = build(TRACES[name]())
    lines = text.render(report, width=width).splitlines()
    assert max(cell_len(line) for line in lines) <= width
    until = lines.index("")
    assert " ".join(lines[:until]) == report.verdict


def test_a_hostile_source_line_is_shown_and_obeyed_by_nothing() -> None:
    source = "x = '[red]' + \"[/]\" + ':smile:' + '\x1b[31m\a' + \"[link=http://a]\" # 値"
    made = text.render(build(trace(syncs=(site(source=source),))), width=120)
    assert "    x = '[red]' + \"[/]\" + ':smile:' + '?[31m?' + \"[link=http://a]\" # 値\n" in made
    assert "\x1b" not in made


def test_steps_that_cannot_be_told_are_counted_by_nothing() -> None:
    info = INFO.model_copy(update={"counted_by": "cannot tell: two loops"})
    made = text.render(build(trace([], info=info)), width=80)
    assert "\n  0 steps, 480 optimizer steps, cannot tell: two loops\n" in made


def test_an_optimizer_that_is_not_torch_s_is_not_said_to_have_made_no_step() -> None:
    made = text.render(build(replace(trace(), counts=Counts(optimizer_steps=0))), width=80)
    assert "\n  480 steps, no step of a torch.optim optimizer seen, counted by" in made


def test_long_paths_are_shown_whole_on_a_narrow_screen() -> None:
    file = "/data/" + "very/deep/" * 10 + "train.py"
    made = text.render(build(trace(syncs=(site(file=file),))), width=80)
    assert file in made.replace("\n", "")


def test_colour_only_in_a_terminal() -> None:
    report = build(full_trace())
    assert "\x1b[" not in text.render(report)
    file = StringIO()
    text.show(report, Console(file=file, force_terminal=True, color_system="standard", width=80))
    assert "\x1b[1m" in file.getvalue()


def test_many_lines_are_cut_and_counted() -> None:
    sites = tuple(site(line=i) for i in range(1, 31))
    made = text.render(build(trace(syncs=sites)))
    assert made.count("TS101 item, in forward") == 20
    assert "  and 10 more: --format json lists all\n" in made


def test_a_wait_in_evaluation_is_listed_apart_with_its_advice() -> None:
    source, advice = "correct += (p == y).sum().item()", "add up on the GPU and read once"
    evaluated = {"during": "evaluation", "source": source, "advice": advice, "count": 6}
    sites = (site(line=8), site(line=9, **evaluated), site(line=10, **evaluated, explicit=True))
    made = text.render(build(trace(syncs=sites)))
    others = made.split("Other waits: asked for, allowed, or outside training\n")[1]
    lines = [line.strip() for line in others.split("\n\n")[0].splitlines()]
    at = next(number for number, line in enumerate(lines) if "train.py:9 " in line)
    assert "6 times in evaluation" in lines[at]
    assert lines[at + 1 : at + 3] == [source, f"→ {advice}"]
    assert made.count(advice) == 1  # none for what was asked for


def test_a_wait_listed_apart_says_through_which_library_it_came() -> None:
    checked = site(line=9, during="setup", count=1, via="torch/nn/init.py:20 in normal_")
    made = text.render(build(trace(syncs=(checked,))), width=200)
    others = made.split("Other waits: asked for, allowed, or outside training\n")[1]
    assert "1 time in setup, through torch/nn/init.py:20 in normal_" in others.splitlines()[0]


def test_several_places_of_a_library_that_wait_for_one_line_are_named_with_their_counts() -> None:
    vias = (("trainer:40 step", 30), ("trainer:41 step", 20), ("mask:9 all", 10), ("a:1 b", 5))
    parts = (
        site(count=35, phase="forward", via="trainer:40 step", vias=(vias[0], vias[3])),
        site(count=30, phase=None, via="trainer:41 step", vias=(vias[1], vias[2])),
        site(count=7, phase="backward", via="mask:9 all"),
    )
    report = build(trace(syncs=parts))
    assert report.syncs[0].vias == {**dict(vias), "mask:9 all": 17}
    words = "through trainer:40 step (30 times), trainer:41 step (20), mask:9 all (17) and 1 other"
    assert words in text.render(report, width=300)
    assert words in api.page(trace(syncs=parts))
    alone = (site(count=3, via="a:1 b"), site(count=2, phase="forward", via="a:1 b"))
    assert "through a:1 b\n" in text.render(build(trace(syncs=alone)), width=300)


def test_a_wait_listed_apart_says_on_which_thread_it_was() -> None:
    elsewhere = site(line=9, during="setup", count=5, thread="Thread-1 (train)")
    made = text.render(build(trace(syncs=(elsewhere,))), width=200)
    assert "TS101 item, 5 times in setup, on thread Thread-1 (train), " in made


def test_a_wait_behind_the_loop_is_not_said_to_be_between_its_steps() -> None:
    made = text.render(build(trace(syncs=(site(line=9, during="between", count=1),))), width=200)
    assert "TS101 item, 1 time between or after steps" in made


def test_str_of_a_report_is_its_text() -> None:
    report = build(full_trace())
    assert str(report) == text.render(report)


def test_in_a_notebook_a_report_is_text_that_nothing_has_displayed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said = str(build(full_trace()))
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    report = build(full_trace())
    assert (str(report), repr(report)) == (said, said)


def test_the_width_is_the_terminals_and_80_where_there_is_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    report = build(full_trace())
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setattr("sys.__stdout__", StringIO())
    assert text.render(report) == text.render(report, width=80)
    monkeypatch.setenv("COLUMNS", "120")
    assert text.render(report) == text.render(report, width=120)
    monkeypatch.setenv("COLUMNS", "3")
    assert text.render(report) == text.render(report, width=40)


@pytest.mark.parametrize("name", TRACES)
def test_json_reads_back_and_renders_to_the_same(name: str) -> None:
    rendered = json_renderer.render(build(TRACES[name]()))
    assert json_renderer.render(Report.model_validate_json(rendered)) == rendered


def test_json_is_rounded_and_knows_no_nan() -> None:
    report = build(trace())
    nan = Spread(median=float("nan"), p10=20.123456789, p90=float("inf"))
    report = report.model_copy(update={"steps": report.steps.model_copy(update={"wall_ms": nan})})
    wall = json.loads(json_renderer.render(report), parse_constant=pytest.fail)["steps"]["wall_ms"]
    assert wall == {"median": None, "p10": 20.1235, "p90": None}


def test_the_published_schema_reads_and_none_of_its_keys_is_lost() -> None:
    sample = json.loads((GOLDEN / "schema_1.json").read_text())
    made = Report.model_validate(sample).model_dump()

    def lost(before: object, after: object, at: str) -> list[str]:
        if isinstance(before, dict):
            assert isinstance(after, dict)
            return [
                fault
                for key, value in before.items()
                for fault in (
                    lost(value, after[key], f"{at}.{key}") if key in after else [f"{at}.{key}"]
                )
            ]
        if isinstance(before, list):
            assert isinstance(after, list)
            pairs = enumerate(zip(before, after, strict=True))
            return [fault for i, (a, b) in pairs for fault in lost(a, b, f"{at}[{i}]")]
        return [] if before == after else [f"{at}: {before} became {after}"]

    assert lost(sample, made, "report") == []
    assert text.render(Report.model_validate(sample)).startswith("The GPU idles 3.0 ms of every")


@pytest.mark.parametrize(
    ("ms", "words"),
    [
        (0, "0 µs"),
        (0.00028, "0.28 µs"),
        (0.0105, "10.5 µs"),
        (0.9994, "999 µs"),
        (0.9996, "1.00 ms"),
        (9.994, "9.99 ms"),
        (9.996, "10.0 ms"),
        (99.96, "100 ms"),
        (999.6, "1.00 s"),
        (5136, "5.14 s"),
        (3.6e6, "3600 s"),
    ],
)
def test_durations_have_three_digits(ms: float, words: str) -> None:
    assert duration(ms) == words


def test_paths_are_relative_to_the_programs_directory_on_any_system() -> None:
    assert relative_path("/a/b/c.py", "/a/b") == "c.py"
    assert relative_path("/a/b/c.py", "/a/b/") == "c.py"
    assert relative_path("/a/bc.py", "/a/b") == "/a/bc.py"
    assert relative_path("<stdin>", "/a/b") == "<stdin>"
    assert relative_path("C:\\a\\b\\c.py", "C:\\a") == "b\\c.py"
    assert relative_path("/a/b.py", None) == "/a/b.py"


def test_numbers_in_a_row_are_a_range() -> None:
    assert number_ranges([0, 1, 2, 3, 7, 9, 10]) == "0-3, 7, 9-10"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Optimizer.step#AdamW.step", "AdamW.step"),
        ("Optimizer.zero_grad#SGD.zero_grad", "SGD.zero_grad"),
        ("enumerate(DataLoader)#_Iter.__next__", "_Iter.__next__"),
        ("Optimizer.step#", "Optimizer.step#"),
        ("my Optimizer.step#AdamW.step", "my Optimizer.step#AdamW.step"),
        ("step#1", "step#1"),
    ],
)
def test_what_torch_says_twice_is_said_once(name: str, said: str) -> None:
    assert range_name(name) == said
