"""GPU time by operator, shape and kernel; copies; collectives."""

from __future__ import annotations

from dataclasses import replace
from time import perf_counter

import numpy as np
import pytest
from made_windows import Made, empty_window
from sample_traces import sample

from trainscope.analysis.communication import communication_times
from trainscope.analysis.copies import copies_by_kind
from trainscope.analysis.kernel_names import collective_of, short_name
from trainscope.analysis.kernels import NO_OPERATOR, OperatorKernels
from trainscope.analysis.kernels import kernels_by_operator as by_operator
from trainscope.analysis.launch_chains import launch_chains
from trainscope.analysis.launches import launch_times, queue_depth
from trainscope.analysis.window_steps import find_steps
from trainscope.trace.window import Calls, CopyKind, GpuOps, Memory, Spans, Window


def kernels_of(window: Window) -> tuple[OperatorKernels, ...]:
    return by_operator(window, find_steps(window))


def multiplying() -> Made:
    """``aten::mm`` with two shapes, each with a kernel of its own, and an ``aten::add``."""
    made = Made()
    calls = (("mm", "[8, 8]", "small", 10), ("mm", "[8, 8]", "small", 14))
    calls += (("mm", "[99, 99]", "large", 100), ("add", "[8, 8]", "add", 6))
    for place, (name, shape, kernel, length) in enumerate(calls):
        at = place * 1000
        made.op("aten::linear", at, at + 60).op(f"aten::{name}", at + 1, at + 50, shape=shape)
        made.launch(at + 5, at + 100, at + 100 + length, name=kernel)
    return made


def test_time_goes_to_the_innermost_operator_by_shape_and_kernel() -> None:
    mm, add = kernels_of(multiplying().window())
    assert (mm.operator, mm.count, mm.total_ns) == ("aten::mm", 3, 124)
    assert mm.share == 124 / 130
    assert [(u.kernel, u.shape, u.count, u.total_ns, u.median_ns) for u in mm.uses] == [
        ("large", "[99, 99]", 1, 100, 100.0),
        ("small", "[8, 8]", 2, 24, 12.0),
    ]
    assert (add.operator, add.count, add.share) == ("aten::add", 1, 6 / 130)


def test_an_operator_that_picks_different_kernels_for_different_shapes_is_shown() -> None:
    mm, add = kernels_of(multiplying().window())
    assert mm.kernel_by_shape == (("[99, 99]", "large"), ("[8, 8]", "small"))
    assert add.kernel_by_shape == ()


def test_without_operators_the_range_stands_for_them() -> None:
    made = Made().range("forward", 0, 50).launch(5, 60, 70).launch(90, 95, 99).kernel(200, 201)
    found = kernels_of(made.window())
    assert [(o.operator, o.total_ns) for o in found] == [("forward", 10), (NO_OPERATOR, 5)]
    assert found[0].uses[0].shape is None


def test_without_operators_a_step_s_own_range_stands_for_none() -> None:
    made = Made()
    for at in (0, 1000, 2000):
        made.range(f"step {at // 1000}", at, at + 900).launch(at + 5, at + 60, at + 70)
    (found,) = kernels_of(made.window())
    assert (found.operator, found.count) == (NO_OPERATOR, 3)


def test_without_operators_backward_belongs_to_the_range_that_waits_for_it() -> None:
    made = Made()
    for at in (0, 1000):
        made.range(f"step {at // 1000}", at, at + 1000).range("backward", at + 100, at + 900)
        made.launch(at + 10, at + 20, at + 50).launch(at + 200, at + 210, at + 290, thread=1)
    found = kernels_of(made.window())
    assert {o.operator: o.total_ns for o in found} == {
        "backward": 160,
        NO_OPERATOR: 60,
    }


def test_no_kernels_gives_no_operators() -> None:
    assert kernels_of(empty_window()) == ()
    assert copies_by_kind(empty_window()) == ()
    assert communication_times(empty_window()) == ()


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("nvjet_sm90_tst_128x128_64x6_2x1_v_bz_NNT", "nvjet_sm90_tst_128x128_64x6_2x1_v_bz_NNT"),
        ("triton_poi_fused_add_0", "triton_poi_fused_add_0"),
        (
            "void at::native::vectorized_elementwise_kernel<8, "
            "at::native::bfloat16_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda(float)#1}, "
            "std::array<char*, 2ul> >(int, float)",
            "vectorized_elementwise_kernel [bfloat16_copy]",
        ),
        (
            "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, "
            "std::array<char*, 3ul> >(int)",
            "vectorized_elementwise_kernel [add]",
        ),
        (
            "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float>(int)",
            "vectorized_layer_norm_kernel",
        ),
        (
            "void at::native::vectorized_elementwise_kernel<4, at::native::BinaryFunctor<float, "
            "float, float, at::native::binary_internal::MulFunctor<float> >, x>(int)",
            "vectorized_elementwise_kernel [Mul]",
        ),
        (
            "void at::native::vectorized_elementwise_kernel<(int)4, at::native::GeluCUDAKernelImpl("
            "at::TensorIteratorBase &, at::native::GeluType)::[lambda() (instance 2)]>(int, T2)",
            "vectorized_elementwise_kernel [Gelu]",
        ),
        (
            "void at::native::<unnamed>::multi_tensor_apply_kernel<at::native::<unnamed>::Tensor"
            "ListMetadata<(int)1>, at::native::<unnamed>::BinaryOpScalarFunctor<float>>(T1)",
            "multi_tensor_apply_kernel [BinaryOpScalar]",
        ),
        (
            "void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_128x128_nt_align4>(Params)",
            "Kernel2 [cutlass_80_tensorop_s1688gemm_128x128_nt_align4]",
        ),
        ("", ""),
        ("<>", "<>"),
        ("k" * 500, "k" * 89 + "…"),
    ],
)
def test_short_names_of_kernels(name: str, short: str) -> None:
    assert short_name(name) == short


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "AllReduce"),
        ("ncclKernel_ReduceScatter_RING_LL_Sum_bf16", "ReduceScatter"),
        ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", "SendRecv"),
        ("void gemm<float>(int)", None),
    ],
)
def test_collectives_are_told_by_their_kernels(name: str, what: str | None) -> None:
    assert collective_of(name) == what


def test_copies_by_direction_and_host_memory() -> None:
    made = Made()
    for start, end, kind, memory, size in (
        (0, 100, CopyKind.H2D, Memory.PAGEABLE, 1000),
        (100, 150, CopyKind.H2D, Memory.PAGEABLE, 500),
        (200, 210, CopyKind.H2D, Memory.PINNED, 600),
        (300, 301, CopyKind.D2H, Memory.PINNED, 4),
        (400, 440, CopyKind.D2D, Memory.UNKNOWN, 80),
    ):
        made.copy(start, end, -1, kind, memory, size=size)
    made.kernel(90, 120, stream=9).kernel(400, 500, stream=9)
    found = copies_by_kind(made.window())
    rows = [(c.title, c.host_memory, c.count, c.total_ns, c.bytes_moved, c.alone_ns) for c in found]
    assert rows == [
        ("host to device", Memory.PAGEABLE, 2, 150, 1500, 120),
        ("device to device", None, 1, 40, 80, 0),
        ("host to device", Memory.PINNED, 1, 10, 600, 10),
        ("device to host", Memory.PINNED, 1, 1, 4, 1),
    ]
    assert found[0].gb_per_s == 10.0


def test_memsets_stand_beside_copies_and_a_missing_size_is_not_zero() -> None:
    window = Made().copy(0, 100, -1, CopyKind.D2D, size=-1).kernel(200, 210).window()
    kind = np.array([1, 2])
    window = replace(window, gpu=replace(window.gpu, kind=kind))
    copies, sets = copies_by_kind(window)
    assert (copies.bytes_moved, copies.gb_per_s) == (None, None)
    assert (sets.title, sets.copy_kind, sets.total_ns) == ("memset", None, 10)


def test_communication_is_hidden_where_another_kernel_runs() -> None:
    made = Made()
    reduce = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)"
    made.kernel(0, 100, name=reduce, stream=20).kernel(90, 150, name=reduce, stream=21)
    made.kernel(200, 210, name="ncclDevKernel_AllGather_RING_LL(x)", stream=20)
    made.kernel(20, 60, stream=7).kernel(50, 70, stream=8).kernel(140, 300, stream=7)
    made.kernel(0, 300, device=1)
    (found,) = communication_times(made.window())
    assert (found.device, found.count, found.total_ns) == (0, 3, 160)
    assert (found.hidden_ns, found.exposed_ns) == (50 + 10 + 10, 90)
    assert found.by_collective == (("AllReduce", 2, 160), ("AllGather", 1, 10))


def test_samples_give_their_operators_and_copies() -> None:
    top = kernels_of(sample("mid_sync"))
    assert sum(operator.share for operator in top) == pytest.approx(1.0)
    assert {operator.operator for operator in top[:3]} >= {"aten::mm", "aten::addmm"}
    copies = {(c.title, c.host_memory): c.count for c in copies_by_kind(sample("h2d_sync"))}
    assert copies[("host to device", Memory.PAGEABLE)] == 4


def test_a_million_rows_take_less_than_a_second_each() -> None:
    count = 300_000
    ids = np.arange(count)
    start = ids * 1000
    base = Made().op("aten::mm", 0, 1).launch(0, 1, 2).window()
    name = {text: place for place, text in enumerate(base.names)}
    outer = {"start_ns": start, "end_ns": start + 500, "thread": ids * 0}
    inner = {"start_ns": start + 1, "end_ns": start + 400, "thread": ids * 0}
    window = replace(
        base,
        shapes=tuple(f"[{i}]" for i in range(50)),
        ops=Spans.of(
            {
                **{key: np.concatenate((outer[key], inner[key])) for key in outer},
                "name_id": np.zeros(2 * count) + name["aten::mm"],
                "shape_id": np.concatenate((ids % 50, ids % 50)),
            }
        ),
        calls=Calls.of(
            {
                "start_ns": start + 10,
                "end_ns": start + 15,
                "thread": ids * 0,
                "name_id": ids * 0 + name["cudaLaunchKernel"],
                "correlation": ids,
            }
        ),
        gpu=GpuOps.of(
            {
                "start_ns": start + 20,
                "end_ns": start + 700,
                "name_id": ids * 0 + name["kernel"],
                "kind": ids * 0,
                "device": ids * 0,
                "stream": ids % 3000,
                "correlation": ids,
            }
        ),
    )
    steps = find_steps(window)
    for analysis in (
        lambda: kernels_of(window),
        lambda: copies_by_kind(window),
        lambda: communication_times(window),
        lambda: launch_times(window, steps),
        lambda: queue_depth(window, 0),
        lambda: launch_chains(window, steps),
    ):
        began_s = perf_counter()
        analysis()
        assert perf_counter() - began_s < 1
    (mm,) = kernels_of(window)
    assert (mm.count, len(mm.uses), mm.kernel_by_shape) == (count, 50, ())
