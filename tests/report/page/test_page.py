"""The page: content equals the report, hostile names stay text, a real browser finds no fault."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from made_runs import ITEM, full_trace, step_rows
from made_runs import trace as made_run
from made_windows import Made
from sample_traces import DDP, FOLDER

from trainscope import api
from trainscope.report import json as json_report
from trainscope.report import text as text_report
from trainscope.report.page.charts import curve, nice_ticks
from trainscope.report.page.history import MAX_POINTS, Series, history
from trainscope.report.page.names import kind_of_phase
from trainscope.report.page.timeline import Labels, depth_lane
from trainscope.report.wording import duration
from trainscope.trace.trace import Trace
from trainscope.trace.window import SyncKind

BROWSER = shutil.which("chromium")
HOSTILE = '</script><script>document.title="hit"</script><img src=x onerror=alert(1)>'


def page_of(trace: Trace, step_ms: float | None = None) -> tuple[str, str]:
    """The page and the JSON of its report."""
    report = api.analyze(trace, step_ms=step_ms)
    return api.page(trace, step_ms=step_ms), json_report.render(report)


def page_and_text(trace: Trace, step_ms: float | None = None) -> tuple[str, str]:
    """The page as a browser reads it, and the text of the same report on a wide terminal."""
    page, _ = page_of(trace, step_ms)
    return html.unescape(page), text_report.render(api.analyze(trace, step_ms=step_ms), width=200)


def embedded(page: str, name: str) -> object:
    (found,) = re.findall(
        rf'<script type="application/json" id="{name}">(.*?)</script>', page, re.S
    )
    return json.loads(found)


def hostile_trace() -> Trace:
    made = Made()
    for turn in range(3):
        at = turn * 1_000_000
        made.range(f"ProfilerStep#{turn}", at, at + 900_000)
        made.range(HOSTILE, at + 10, at + 800_000)
        made.op(HOSTILE, at + 100, at + 90_000)
        made.launch(at + 1000, at + 9000, at + 500_000, name=HOSTILE)
        made.wait(at + 100_000, at + 510_000)
    info = made_run().info.model_copy(update={"source": "torch.profiler", "device": HOSTILE})
    return replace(made_run(), path=Path(HOSTILE), info=info, windows=(made.window(),))


def test_the_page_holds_the_report_itself() -> None:
    page, report = page_of(made_run())
    assert embedded(page, "report") == json.loads(report)
    assert html.escape(json.loads(report)["verdict"].split(". ")[0], quote=False)[:40] in page


@pytest.mark.skipif(not FOLDER.is_dir(), reason="the sample traces are not here")
def test_the_place_to_change_stands_out_in_the_first_sentence() -> None:
    page, _ = page_of(api.load(FOLDER / "mid_sync_stack.json.gz"), 20.362)
    (heading,) = re.findall(r"<h1>(.*?)</h1>", page, re.S)
    assert re.findall(r"<code>(.*?)</code>", heading) == [
        "aten::item in step (which begins at traces2.py:24)"
    ]
    assert heading.startswith("The GPU idles 3.32 ms of every 20.4 ms step, because of <code>")


@pytest.mark.skipif(not FOLDER.is_dir(), reason="the sample traces are not here")
def test_a_gain_stands_out_only_where_it_is_more_than_a_replay_can_miss() -> None:
    page, report = page_of(api.load(FOLDER / "gpt_sync.json.gz"), 18.462)
    gains = [sync["gain_ms_per_step"] for sync in json.loads(report)["syncs"]]
    assert 0 < max(gains) < 0.01 * 18.462
    assert 'class="gain"' not in page


def test_hostile_names_stay_text() -> None:
    page, report = page_of(hostile_trace())
    assert "<img" not in page
    assert page.count("<script") == 3  # the report, the timeline, and what draws it
    assert page.count("</script>") == 3
    assert embedded(page, "report") == json.loads(report)
    assert HOSTILE in embedded(page, "timeline")["labels"]  # pyright: ignore


def test_a_name_cannot_turn_the_words_after_it_around() -> None:
    turned = "\u202egnp.exe\u2066\x1b[31m\nnext"
    info = made_run().info.model_copy(update={"device": turned})
    page, report = page_of(replace(made_run(), info=info))
    shown = page.split("<script", 1)[0]
    assert "?gnp.exe??[31m\nnext" in shown
    assert not any(sign in shown for sign in "\u202e\u2066\x1b")
    assert json.loads(report)["run"]["device"] == turned
    assert embedded(page, "report") == json.loads(report)


def test_what_to_write_instead_keeps_its_lines() -> None:
    page, _ = page_of(made_run(syncs=(replace(ITEM, kind="h2d-pageable", code="TS114"),)))
    (snippet,) = re.findall(r"<pre>(.*?)</pre>", page, re.S)
    assert html.unescape(snippet).splitlines()[1] == "for batch in loader:"


def test_where_there_is_nothing_to_do_there_is_nothing_to_write_instead() -> None:
    copied = replace(ITEM, kind="h2d-pageable", code="TS114")
    before = replace(copied, during="setup", count=1, advice="before the first step: nothing to do")
    page, _ = page_of(made_run(syncs=(copied, before)))
    rows = [row for row in re.findall(r"<tr>.*?</tr>", page, re.S) if "h2d-pageable" in row]
    assert ["write instead" in row for row in rows] == ["nothing to do" not in row for row in rows]
    assert len(rows) == 2


def test_the_page_needs_nothing_from_elsewhere() -> None:
    page, _ = page_of(made_run())
    assert not re.findall(r"(?:src|href)\s*=|@import|url\(|fetch\(|https?://", page)


@pytest.mark.skipif(not FOLDER.is_dir(), reason="the sample traces are not here")
@pytest.mark.parametrize(("name", "step_ms"), [("mid_sync_stack", 20.362), ("gpt_sync", 18.462)])
def test_a_usual_window_is_small_and_drawn_before_and_after(name: str, step_ms: float) -> None:
    page, _ = page_of(api.load(FOLDER / f"{name}.json.gz"), step_ms)
    assert len(page.encode()) < 2_000_000
    timeline = embedded(page, "timeline")
    titles = [picture["title"] for picture in timeline["pictures"]]  # pyright: ignore
    assert titles == [
        "As recorded, 4 steps",
        "Replayed with its syncs, 4 steps",
        "Replayed without them, 4 steps",
    ]
    for picture in timeline["pictures"]:  # pyright: ignore
        assert picture["lanes"][0]["name"] == "phases"
        assert len(picture["step_ends_ns"]) == 4
        assert picture["step_ends_ns"] == sorted(picture["step_ends_ns"])
    recorded, before, after = (p["length_ns"] for p in timeline["pictures"])  # pyright: ignore
    assert after <= before < recorded * 1.02
    for picture in timeline["pictures"]:  # pyright: ignore
        for lane in picture["lanes"]:
            ends = [s + n for s, n in zip(lane["start_ns"], lane["length_ns"], strict=True)]
            assert all(e <= s for e, s in zip(ends, lane["start_ns"][1:], strict=False))
            assert max(ends, default=0) <= picture["length_ns"]


@pytest.mark.skipif(BROWSER is None, reason="no chromium on this machine")
@pytest.mark.parametrize("which", ["run", "hostile", "mid_sync"])
def test_a_browser_draws_it_without_a_fault(tmp_path: Path, which: str) -> None:
    assert BROWSER is not None
    if which == "mid_sync":
        if not FOLDER.is_dir():
            pytest.skip("the sample traces are not here")
        trace = api.load(FOLDER / "mid_sync.json.gz")
    else:
        trace = made_run() if which == "run" else hostile_trace()
    page, _ = page_of(trace)
    file = tmp_path / "page.html"
    # what the script drew is told by the canvases' own sizes, which only it sets
    probe = (
        "<script>addEventListener('load',()=>setTimeout(()=>{document.body.dataset.drawn="
        "[...document.querySelectorAll('canvas')].map(c=>c.style.height).join();"
        "document.body.dataset.over=document.documentElement.scrollWidth-innerWidth;},300));</script>"
    )
    file.write_text(page.replace("</body>", probe + "</body>"), encoding="utf-8")
    done = subprocess.run(
        [
            BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--disable-sync",
            "--disable-background-networking", "--disable-component-update",
            "--enable-logging=stderr", "--window-size=500,900",
            "--virtual-time-budget=2000", "--dump-dom",
            f"--user-data-dir={tmp_path / 'profile'}", file.as_uri(),
        ],
        capture_output=True, text=True, timeout=90, check=True,
    )  # fmt: skip
    assert "CONSOLE" not in done.stderr
    assert "<title>hit" not in done.stdout
    (drawn,) = re.findall(r'data-drawn="([^"]*)"', done.stdout)
    heights = [float(part.removesuffix("px")) for part in drawn.split(",") if part]
    assert len(heights) == page.count("<canvas")
    assert int(re.findall(r'data-over="(-?\d+)"', done.stdout)[0]) <= 0  # a narrow page fits
    assert all(height > 50 for height in heights)


def test_the_page_tells_what_the_terminal_tells_of_collectives_copies_and_launches() -> None:
    page, text = page_and_text(api.load(DDP / "ddp_mean_loss_sync_stack.json.gz"), 8.328)
    for words in (
        "4 steps (4-7), ranges ProfilerStep#N, the first left out",
        "GPU 0, NVIDIA H200: 9.09 ms busy and 1.45 ms idle (14%) a step",
        "GPU 0: 6.75 ms in AllReduce x17; 1.33 ms of it hidden behind other kernels",
        "672 launches, 9% of the CPU's time in them; the CPU is ahead by 1.17 ms (median)",
        "218 of 500 kernels run for less than 8 µs, which is less than a launch takes",
    ):
        assert words in text
        assert words in page
    assert '<td class="l">device to host, pinned</td><td>4</td><td>8.93 µs</td>' in page


def test_the_page_tells_of_each_rank_and_of_what_was_logged() -> None:
    slow = made_run(step_rows(480, wall_us=(24_000,)), rank=1, syncs=(ITEM,))
    info = made_run().info.model_copy(update={"world_size": 3})
    ranks = replace(made_run(syncs=(ITEM,)), info=info, ranks=(slow,), missing_ranks=(2,))
    page, text = page_and_text(ranks)
    words = "lowest: rank 1, 1.08x the median of the ranks"
    assert words in text
    assert words in page
    assert '<td class="l">1</td><td>480</td><td>24.0 ms</td>' in page
    assert "Nothing was written by rank 2." in page
    page, text = page_and_text(full_trace())
    assert "not finite: loss = nan at step 12" in text
    assert "not finite: loss = nan at step 12" in page


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("DistributedDataParallel.forward", "forward"),
        ("DistributedDataParallel.reduce", "phase"),
        ("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "data"),
        ("load_data", "data"),
        ("update_metadata", "phase"),
        ("Optimizer.zero_grad#SGD.zero_grad", "optimizer"),
        ("trainscope: backward", "backward"),
        ("h2d", "h2d"),
    ],
)
def test_a_phase_has_the_colour_of_the_word_in_its_name(name: str, kind: str) -> None:
    assert kind_of_phase(name) == kind


def test_history_is_thinned_and_says_what_is_not_finite(tmp_path: Path) -> None:
    (tmp_path / "rank0").mkdir()
    lines = [json.dumps({"step": i, "time_unix_ns": 1, "loss": i / 10}) for i in range(5000)]
    lines += ['{"step":5000,"time_unix_ns":1,"loss":"NaN"}', "{torn"]
    (tmp_path / "rank0" / "metrics.jsonl").write_text("\n".join(lines))
    found = history(replace(made_run(), path=tmp_path))
    (loss,) = found.metrics
    assert (loss.name, loss.left_out, len(loss.step)) == ("loss", 1, MAX_POINTS)
    assert (min(loss.low), max(loss.high)) == (0.0, 499.9)
    assert loss.step[:2] == [0, 12]


def test_the_queue_is_as_high_as_many_ops_wait() -> None:
    labels = Labels()
    depth = np.array([1, 4, 0, 2])
    lane = depth_lane("queue", np.array([-5, 10, 20, 30]), depth, labels=labels, until_ns=50)
    assert lane is not None
    assert (lane.name, lane.start_ns, lane.length_ns) == (
        *("queue (most 4)", [0, 10, 30]),
        [10, 10, 20],
    )
    assert lane.height == [25, 100, 50]
    assert [labels.all()[place] for place in lane.label] == ["1 queued", "4 queued", "2 queued"]
    assert depth_lane("queue", np.array([3]), np.array([0]), labels=labels, until_ns=9) is None


def test_an_operator_goes_on_after_each_wait_in_it() -> None:
    made = Made()
    for turn in range(2):
        at = turn * 10_000_000
        made.range(f"ProfilerStep#{turn}", at, at + 9_000_000)
        made.op("aten::mm", at + 100_000, at + 2_000_000)
        made.launch(at + 110_000, at + 120_000, at + 5_000_000)
        made.launch(at + 5_100_000, at + 5_200_000, at + 7_000_000)
        made.op("aten::print", at + 3_000_000, at + 9_000_000)
        for begin, end in ((4, 5), (6, 7)):
            made.op("aten::item", at + begin * 1_000_000, at + end * 1_000_000)
            made.wait(at + begin * 1_000_000, at + end * 1_000_000, kind=SyncKind.STREAM)
    page, _ = page_of(replace(hostile_trace(), windows=(made.window(sync_records=True),)))
    drawn = embedded(page, "timeline")
    lane = drawn["pictures"][0]["lanes"][1]  # pyright: ignore
    spans = [
        (start // 1000, length // 1000, drawn["labels"][label].partition(":")[0])  # pyright: ignore
        for start, length, label in zip(
            lane["start_ns"], lane["length_ns"], lane["label"], strict=True
        )
    ]
    assert lane["name"] == "loop's thread"
    assert spans[:6] == [
        (100, 1900, "aten"),
        (3000, 1000, "aten"),
        (4000, 1000, "waits"),
        (5000, 1000, "aten"),
        (6000, 1000, "waits"),
        (7000, 2000, "aten"),
    ]


def test_curves_have_round_ticks_and_words() -> None:
    assert nice_ticks(0, 10) == [0, 5, 10]
    assert nice_ticks(0.93, 1.21) == [1.0, 1.1, 1.2]
    assert nice_ticks(3, 3) == [3]
    drawn = curve(Series("<b>", [0, 5], [1, 2], [1, 2], [1, 2], 0), " ms")
    assert "&lt;b&gt; from 1 ms at step 0 to 2 ms at step 5" in drawn
    assert "<b>" not in drawn
    assert curve(Series("x", [], [], [], [], 3)) == ""


def test_on_a_narrow_screen_each_number_has_its_word() -> None:
    page, _ = page_of(made_run(syncs=(ITEM,)))
    (table,) = re.findall(r'<table class="stack waits">(.*?)</table>', page, re.S)
    heads = re.findall(r"<th [^>]*>(.*?)</th>", table)
    assert re.findall(r'<td data-h="(.*?)"', table) == heads[1:]  # the place needs none


def test_the_curve_of_step_times_says_which_steps_it_lacks() -> None:
    page, _ = page_of(full_trace())
    lacking = api.analyze(full_trace()).steps.left_out
    assert lacking.captured > 0
    words = f"{lacking.warm_up} warm-up and {lacking.captured} captured left out"
    assert f"<b>step time, ms</b> · {words}</figcaption>" in page


def test_idle_time_under_the_profiler_stands_beside_the_step_under_the_profiler() -> None:
    trace = api.load(DDP / "ddp_item_sync.json.gz")
    gpu = api.analyze(trace).gpu
    assert gpu is not None
    (device,) = gpu.devices
    idle = duration(device.idle_ms_per_step)
    whole = duration(device.busy_ms_per_step + device.idle_ms_per_step)
    page, _ = page_of(trace)
    assert f"<b>{idle}</b><span>GPU idle a step, of {whole} under the profiler" in page
