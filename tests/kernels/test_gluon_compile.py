"""What the Gluon attention kernels become on Hopper, compiled for real, with no GPU needed."""

from __future__ import annotations

from typing import Any

import pytest
from gluon_sass import operands_overwritten

triton = pytest.importorskip("triton")

SHARED_LIMIT = 227 * 1024
WORKERS = {
    "attention_forward",
    "attention_backward",
    "attention_queries_backward",
    "attention_wide_backward",
}

pytestmark = pytest.mark.skipif(
    not triton.__version__.startswith("3.6."), reason="the Gluon kernels are for Triton 3.6"
)


@pytest.fixture
def compiled(compiled_attention: dict[str, Any]) -> list[dict]:
    return compiled_attention["gluon"]


def test_every_variant_is_compiled_and_fits_in_shared_memory(compiled: list[dict]) -> None:
    names = [each["kernel"] for each in compiled]
    assert {name: names.count(name) for name in names} == {
        "attention_forward": 21,
        "attention_backward": 12,
        "attention_wide_backward": 4,
        "attention_queries_backward": 7,
        "attention_row_terms": 4,
        "attention_dq": 3,
    }
    assert [each for each in compiled if each["shared"] > SHARED_LIMIT] == []


def test_ptxas_adds_no_wait_and_serialises_nothing(compiled: list[dict]) -> None:
    assert all(each["asked_ptxas"] for each in compiled)
    assert [each for each in compiled if each["warnings"]] == []


def test_no_loop_spills(compiled: list[dict]) -> None:
    assert [each for each in compiled if each["spills_in_loops"]] == []
    forwards = [each for each in compiled if each["kernel"] == "attention_forward"]
    # around the loop, a block's numbers and not its data
    assert [each["case"] for each in forwards if each["spilled"]] in ([], [[256, "packed", 0.0]])
    # a word or two, needed again at the end: the register they are in would be one of the loop's
    others = [each for each in compiled if each not in forwards]
    assert {each["case"][0] for each in others if each["spilled"]} <= {96, 128, 256}
    assert max(each["spilled"] for each in others) <= 16


def test_what_wgmmas_keep_in_registers_stays_there(compiled: list[dict]) -> None:
    assert [each for each in compiled if each["operands_overwritten"]] == []


def test_an_operand_that_is_overwritten_is_found() -> None:
    code = """
        /*0010*/ LDSM.16.M88.4 R180, [R4+UR16+0x6000] ;
    .L_x_8:
        /*0020*/ HGMMA.64x64x16.F32.BF16 R56, R180, gdesc[UR8], R56 ;
        /*0030*/ {} ;
        /*0040*/ @P3 BRA `(.L_x_8) ;
    """
    for instruction, count in {
        "FMUL R182, R24, R15": 1,
        "F2FP.BF16.F32.PACK_AB R183, R22.reuse, R183": 1,
        "LDS.64 R179, [R8+UR8]": 1,
        "FMUL R184, R182, R183": 0,
        "@!P0 STL [R180], R181": 0,
    }.items():
        assert len(operands_overwritten(code.format(instruction))) == count, instruction


def test_tensor_cores_tma_and_registers_that_move_are_used(compiled: list[dict]) -> None:
    assert {each["kernel"] for each in compiled} >= {*WORKERS}
    for each in compiled:
        if each["kernel"] in WORKERS:
            assert each["wgmma"] >= 20, each
            assert each["tma_loads"] >= 6, each
            assert each["tma_stores"] >= 2, each
            assert each["setmaxnreg"] >= 12, each


def test_the_kernels_around_the_backward_move_16_bytes_at_a_time(compiled: list[dict]) -> None:
    looked_at = {"attention_row_terms", "attention_dq", "attention_backward"}
    assert {each["kernel"] for each in compiled} >= looked_at
    for each in compiled:
        dim = 1 << (each["case"][0] - 1).bit_length()
        if each["kernel"] == "attention_row_terms":
            # 64 rows of O and of dO, by 128 threads
            assert each["loads_128"] == 2 * 64 * dim // 8 // 128, each
        if each["kernel"] == "attention_dq":
            assert each["loads_128"] == 64 * dim // 2 // 4 // 128, each
            assert each["stores_128"] == 64 * dim // 2 // 8 // 128, each
        if each["kernel"] == "attention_backward":
            # each of two warpgroups adds 64 rows and half of the columns of dQ, in each loop
            deterministic = each["case"][4]
            loops = 2 if each["case"][1] == "diagonal" and dim == 128 else 1
            adds = 0 if deterministic else loops * 2 * 64 * dim // 2 // 4 // 128
            assert each["adds_128"] == adds, each
