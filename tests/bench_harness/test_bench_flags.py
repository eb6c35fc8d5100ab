"""What is said beside a time, and the share of the roofline it rests on."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from trainscope.bench.ceilings import roofline
from trainscope.bench.comparing import compare
from trainscope.bench.environment import parsed
from trainscope.bench.flags import Seen, flags_of
from trainscope.bench.model import GpuState, Roofline
from trainscope.bench.model_parts import Flag
from trainscope.bench.spread import spread

HONEST = {
    "on_gpu": True,
    "time": spread([100_000.0] * 20),
    "cpu_us": 10.0,
    "waits": False,
    "left_behind_us": 5.0,
    "wall_us": 110.0,
    "floor_us": 2.0,
    "settled": True,
}


def flagged(**changed: Any) -> list[str]:
    return [each.code for each in flags_of(Seen(**{**HONEST, **changed}))]


def memory_bound(share: float) -> Roofline:
    return Roofline(bound="memory", least_us=100 * share, share=share, gb_s=1.0, tflop_s=None)


def test_an_honest_time_has_no_flag() -> None:
    assert flagged() == []
    assert flagged(roofline=memory_bound(1.05)) == []


@pytest.mark.parametrize(
    ("changed", "codes"),
    [
        ({"waits": True}, ["syncs"]),
        ({"waits": True, "cpu_us": 120.0}, ["syncs"]),
        ({"cpu_us": 100.0}, ["dispatch-bound"]),
        ({"cpu_us": 99.9}, []),
        ({"cpu_us": 100.0, "on_gpu": False}, []),
        ({"ops_us": 50.0, "on_gpu": False}, ["dispatch-bound"]),
        ({"ops_us": 49.9, "on_gpu": False}, []),
        ({"left_behind_us": 31.0}, ["other-stream"]),
        ({"left_behind_us": 31.0, "wall_us": 320.0}, []),  # not a tenth of the whole
        ({"left_behind_us": 29.0, "wall_us": 30.0}, []),  # no more than a sync may take
        ({"floor_us": 11.0}, ["near-timer-floor"]),
        ({"settled": False}, ["unsettled"]),
        ({"roofline": memory_bound(1.051)}, ["not-believable"]),
        (
            {"roofline": memory_bound(1.5), "bytes_moved": 100, "last_level_bytes": 50},
            ["cache-resident"],
        ),
        (
            {"roofline": memory_bound(1.5), "bytes_moved": 101, "last_level_bytes": 50},
            ["not-believable"],
        ),
    ],
)
def test_each_flag_comes_exactly_where_it_should(changed: dict[str, Any], codes: list[str]) -> None:
    assert flagged(**changed) == codes


def test_operations_that_cost_more_elsewhere_are_not_said_to_be_a_part_of_the_time() -> None:
    (flag,) = flags_of(Seen(**{**HONEST, "ops_us": 250.0, "on_gpu": False}))
    assert "nothing to compute take 250 us, and it takes 100 us:" in flag.text


def test_more_flops_than_the_ceiling_are_not_believed_though_the_cache_is_warm() -> None:
    above = Roofline(bound="compute", least_us=200, share=2.0, gb_s=None, tflop_s=1.0)
    assert flagged(roofline=above, bytes_moved=1, last_level_bytes=50) == ["not-believable"]


def test_the_gravest_flag_is_first_and_the_text_has_the_figures() -> None:
    flags = flags_of(Seen(**{**HONEST, "waits": True, "left_behind_us": 2500.0, "settled": False}))
    assert [each.code for each in flags] == ["other-stream", "syncs", "unsettled"]
    assert flags[0].text.startswith("2.50 ms of its work ran on another stream")


def test_the_ceiling_that_leaves_less_room_binds() -> None:
    ceilings = {"copy_bytes_s": 4e12, "matmul_flop_s": 800e12}
    memory = roofline(50.0, bytes_moved=100_000_000, flops=1_000_000_000, **ceilings)
    assert memory == Roofline(bound="memory", least_us=25.0, share=0.5, gb_s=2000.0, tflop_s=20.0)
    compute = roofline(50.0, bytes_moved=4_000_000, flops=32_000_000_000, **ceilings)
    assert compute == Roofline(bound="compute", least_us=40.0, share=0.8, gb_s=80.0, tflop_s=640.0)


def test_without_bytes_and_flops_there_is_no_roofline() -> None:
    given = {"copy_bytes_s": None, "matmul_flop_s": None}
    assert roofline(1.0, bytes_moved=None, flops=None, **given) is None


def test_the_state_of_a_gpu_names_what_slowed_it() -> None:
    assert parsed(["1980", "3201", "45", "[N/A]", "0x0000000000000000"]) == GpuState(
        sm_clock_mhz=1980,
        memory_clock_mhz=3201,
        temperature_c=45,
        power_w=None,
        throttled_by=(),
    )
    slowed = parsed(["1200", "3201", "84", "690.5", "0x0000000000000044"])
    assert slowed.throttled_by == ("power cap", "heat (hardware)")
    assert flagged(state=slowed) == ["throttled"]


def test_an_idle_or_application_clock_is_no_throttling() -> None:
    assert parsed(["345", "3201", "30", "70", "0x0000000000000003"]).throttled_by == ()


def test_a_flag_of_the_copy_beside_is_told_too() -> None:
    x = torch.ones(64)
    result = compare(
        {"double": lambda x: x * 2}, [x], reference="double", bytes_moved=512, trials=20
    )
    copy = result.copy_of_bytes
    assert copy is not None
    flag = Flag(code="cache-resident", text="its data stays in the cache")
    told = result.model_copy(update={"copy_of_bytes": copy.model_copy(update={"flags": (flag,)})})
    assert "copy: cache-resident: its data stays in the cache" in str(told)
