"""The printed table, exactly."""

from __future__ import annotations

import pytest

from trainscope.bench.model import (
    Agreement,
    Comparison,
    Environment,
    Flag,
    GpuState,
    Measurement,
    Ratio,
    Roofline,
    Spread,
)
from trainscope.bench.table import text_of

HERE = Environment(
    device="NVIDIA H200",
    cuda="13.0",
    driver="580.159",
    torch="2.11.0",
    triton="3.6.0",
    trainscope="0.1.0",
    python="3.12.4",
    platform="Linux",
    threads=16,
    date="2026-11-29T12:00:00+00:00",
)


def spread_of(median_us: float) -> Spread:
    return Spread(
        trials=100,
        mean_us=median_us * 1.01,
        mean_ci95_us=(median_us * 1.0, median_us * 1.02),
        median_us=median_us,
        p10_us=median_us * 0.98,
        p90_us=median_us * 1.05,
        min_us=median_us * 0.97,
    )


def row(name: str, median_us: float, **more: object) -> Measurement:
    fields: dict[str, object] = {
        "timer": "cuda-events",
        "cache": "cold",
        "calls_per_trial": 1,
        "time": spread_of(median_us),
        "cpu_us": 8.0,
        "first_call_us": 2_500.0,
        "memory_peak_bytes": 256 << 20,
        "roofline": Roofline(
            bound="memory",
            least_us=125,
            share=125 / median_us,
            gb_s=512e3 / median_us,
            tflop_s=None,
        ),
        "of_copy": Ratio(to="copy", value=126 / median_us, low=0.9, high=1.0),
        "ratio": Ratio(to="eager", value=1330 / median_us, low=10.5, high=10.9),
        "state": GpuState(
            sm_clock_mhz=1980,
            memory_clock_mhz=None,
            temperature_c=45,
            power_w=None,
            throttled_by=(),
        ),
        "environment": HERE,
    }
    return Measurement.model_validate({"name": name, **fields, **more})


MADE = Comparison(
    name="gelu fp32 64 M",
    reference="eager",
    baseline="eager",
    bytes_moved=512_000_000,
    flops=None,
    rows=(
        row("eager", 1330.0, ratio=None, first_call_us=110.0),
        row("triton", 125.0),
        row(
            "magic",
            50.0,
            flags=(Flag(code="not-believable", text="2.50 of the memory ceiling"),),
        ),
        row(
            "wrong",
            1.0,
            time=None,
            refused="output 0: largest error 4.95, allowed 2.2e-06 (rule: float64)",
        ),
        row(
            "loose",
            140.0,
            agreement=Agreement(ok=True, rule="tolerance", reason="it has no float64"),
        ),
    ),
    copy_of_bytes=row("copy", 126.0, of_copy=None, ratio=None, first_call_us=None),
    environment=HERE,
)

WANTED = """\
gelu fp32 64 M
         median    mean (95 %)          p10 to p90      CPU    naive   memory
eager   1.33 ms  1.34 ms ±1.0%  1.30 ms to 1.40 ms  8.00 us   110 us  256 MiB
triton   125 us   126 us ±1.0%    122 us to 131 us  8.00 us  2.50 ms  256 MiB
magic   50.0 us  50.5 us ±1.0%  49.0 us to 52.5 us  8.00 us  2.50 ms  256 MiB
wrong   refused
loose    140 us   141 us ±1.0%    137 us to 147 us  8.00 us  2.50 ms  256 MiB
copy     126 us   127 us ±1.0%    123 us to 132 us  8.00 us           256 MiB
              rate  of roofline  of a copy  times faster than eager (95 %)
eager     385 GB/s         9.4%       9.5%
triton   4096 GB/s       100.0%     100.8%          10.64 (10.50 to 10.90)
magic   10240 GB/s       250.0%     252.0%          26.60 (10.50 to 10.90)
loose    3657 GB/s        89.3%      90.0%           9.50 (10.50 to 10.90)
copy     4063 GB/s        99.2%
eager: one call without warm-up and sync would have claimed 110 us, 12.1 times faster than it is
magic: not-believable: 2.50 of the memory ceiling
wrong: refused, output 0: largest error 4.95, allowed 2.2e-06 (rule: float64)
loose: checked by tolerance only, it has no float64
100 trials of 1 call · cuda-events · L2 flushed before each call · SM 1980 MHz · 45 C
outputs held against eager's · CPU: until a call returned · naive: first call, no warm-up, no sync
NVIDIA H200 · torch 2.11.0 · CUDA 13.0 · driver 580.159 · triton 3.6.0 · trainscope 0.1.0 ·
2026-11-29T12:00:00+00:00
"""


def test_the_table_says_all_that_is_known() -> None:
    assert text_of(MADE, width=100) == WANTED


def test_the_same_text_is_what_print_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    assert str(MADE) == WANTED


def test_on_the_cpu_there_is_no_memory_and_no_share() -> None:
    plain = row(
        "f",
        20.0,
        timer="perf_counter",
        memory_peak_bytes=None,
        roofline=None,
        of_copy=None,
        ratio=None,
    )
    text = text_of(plain, width=100)
    assert "memory" not in text
    assert "roofline" not in text
    assert "20.0 us" in text


def test_a_name_is_printed_as_it_is_and_markup_in_it_means_nothing() -> None:
    assert "[red]f[/red]" in text_of(row("[red]f[/red]", 20.0), width=100)


def test_in_a_notebook_the_table_is_text_that_nothing_has_displayed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    one = row("eager", 160)
    said = text_of(one)
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    assert (str(one), repr(one)) == (said, said)
