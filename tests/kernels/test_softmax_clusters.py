"""Softmax in CUDA, a cluster of thread blocks a row: what is planned, refused and compiled."""

from __future__ import annotations

import re
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from trainscope_kernels import softmax
from trainscope_kernels.errors import ImplUnavailableError
from trainscope_kernels.softmax import cuda_impl

NVCC = shutil.which("nvcc")
NVDISASM = Path(str(find_spec("triton").origin)).parent / "backends/nvidia/bin/nvdisasm"  # type: ignore[union-attr]


NAMES = ["forward", "backward"]


@given(st.sampled_from(NAMES), st.integers(1, 300_000), st.sampled_from([2, 4]))
def test_a_cluster_holds_the_row_wherever_its_first_vector_begins(name, columns, itemsize) -> None:
    plan = cuda_impl.plan_of(name, columns, itemsize)
    lanes = 16 // itemsize
    if plan is None:
        assert columns * itemsize > cuda_impl.MOST_BYTES - 16
        return
    held = plan.threads * plan.cluster * plan.vectors * lanes
    assert held >= columns + (lanes - 1 if columns % lanes else 0)
    assert 1 <= plan.cluster <= 8
    assert plan.threads <= 512
    assert plan.threads % 64 == 0
    # no warp more than the row has work for, in steps of 64 threads a block
    assert held - columns <= 2 * lanes + plan.cluster * 64 * plan.vectors * lanes


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("columns", "itemsize"), [(262144, 2), (262143 - 7, 2), (131072, 4), (131071 - 3, 4)]
)
def test_the_longest_rows_have_a_plan(name, columns, itemsize) -> None:
    assert cuda_impl.plan_of(name, columns, itemsize) is not None
    assert cuda_impl.plan_of(name, cuda_impl.MOST_BYTES // itemsize + 1, itemsize) is None


@pytest.mark.parametrize(
    ("shape", "strides", "stride"),
    [
        ((64, 1000), (1000, 1), 1000),
        ((4, 16, 1000), (16000, 1000, 1), 1000),
        ((64, 1000), (1008, 1), 1008),
        ((64, 1001), (1001, 1), 1001),  # shifted from row to row, as the result is
        ((64, 1001), (1009, 1), 1009),
        ((64, 1000), (0, 1), 0),
        ((1000,), (1,), 1000),
        ((1, 1000), (7, 1), 1000),
        ((64, 1000), (1001, 1), None),
        ((64, 1001), (1004, 1), None),
        ((64, 1001), (0, 1), None),
        ((64, 1000), (1, 64), None),
        ((4, 16, 1000), (1000, 4000, 1), None),
    ],
)
def test_rows_are_read_where_they_are_only_if_their_vectors_are_the_results(
    shape, strides, stride
) -> None:
    plan = cuda_impl.plan_of("forward", shape[-1], 2)
    launch = cuda_impl._launch(shape, strides, 2, plan)
    assert (launch and launch.lengths) == (None if stride is None else (shape[-1], stride))


@pytest.mark.parametrize(
    ("columns", "last", "dtype", "result", "says"),
    [
        (10, True, torch.float64, torch.float64, "takes float32, bfloat16 and float16, x has"),
        (10, True, torch.float16, torch.float32, "torch.float32 was asked for"),
        (10, False, torch.float16, torch.float16, "the last dim only"),
        (262145, True, torch.float16, torch.float16, "262145 columns is longer than 524288 bytes"),
    ],
)
def test_calls_that_are_not_for_clusters_are_told_why(columns, last, dtype, result, says) -> None:
    assert says in str(cuda_impl.call_reason(columns, last, dtype, result))


def test_an_explicit_choice_is_refused_where_it_cannot_run() -> None:
    with pytest.raises(ImplUnavailableError, match="needs a CUDA tensor, this one is on cpu"):
        softmax(torch.ones(3, 4), impl="cuda")


def test_a_gpu_before_hopper_has_no_clusters(monkeypatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _device: (8, 6))
    monkeypatch.setattr(torch.version, "hip", None)
    reason = cuda_impl.cuda_reason.__wrapped__(torch.device("cuda", 0))
    assert "9.0 or newer (clusters), this GPU has (8, 6)" in str(reason)


@pytest.mark.skipif(NVCC is None, reason="nvcc is not installed")
@pytest.mark.parametrize(
    ("name", "scalar", "columns"),
    [
        ("forward", 0, 131072),
        ("forward", 2, 50257),
        ("backward", 0, 50257),
        ("backward", 1, 131072),
        ("backward", 1, 262144),
    ],
)
def test_nvcc_finds_no_spill_and_each_vector_is_read_and_written_once(
    name, scalar, columns, tmp_path
) -> None:
    plan = cuda_impl.plan_of(name, columns, 2 if scalar else 4)
    assert plan is not None
    macros = {"SCALAR": scalar, "STREAM": 0, "VECTORS": plan.vectors}
    macros |= {"THREADS": plan.threads, "CLUSTER": plan.cluster}
    cubin = tmp_path / "out.cubin"
    command = [NVCC, "-cubin", "-arch=sm_90", "-std=c++17", "-Xptxas", "-v", "-o", str(cubin)]
    command += [f"-I{cuda_impl.HERE.parent}", str(cuda_impl.HERE / "softmax.cu")]
    command += [f"-D{name}={value}" for name, value in macros.items()]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert "warning" not in ended.stderr
    (_, ours) = re.split(rf"Compiling entry function '{name}'", ended.stderr)
    (spilled,) = re.findall(r"(\d+) bytes spill stores", ours)[:1]
    # the code for the ends of a row that fills no vectors may, a little: two threads run it
    assert int(spilled) <= (0 if columns % 8 == 0 else 32)
    listing = subprocess.run([NVDISASM, "-c", cubin], check=True, capture_output=True, text=True)
    (sass,) = [each for each in listing.stdout.split(".text.") if each.startswith(f"{name}:")]
    operands = {"forward": 1, "backward": 2}[name]
    # once in the code for whole blocks, once in that for the ends of a row
    assert len(re.findall(r"LDG\.E[.\w]*\.128", sass)) == 2 * operands * plan.vectors
    assert len(re.findall(r"STG\.E[.\w]*\.128", sass)) == 2 * plan.vectors
