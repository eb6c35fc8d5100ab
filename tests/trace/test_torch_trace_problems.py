"""What is missing in a window is said with counts, the worst first."""

from __future__ import annotations

from pathlib import Path

from made_traces import MadeTrace

from trainscope.trace.torch_trace import read_torch_trace


def problems(made: MadeTrace, folder: Path) -> tuple[str, ...]:
    return read_torch_trace(made.write(folder / "t.json")).problems


def test_nothing_is_said_of_a_whole_window(tmp_path: Path) -> None:
    made = MadeTrace().launch(0, 9, 20, 5).launch(10, 20, 30, 6)
    made.call("cudaMemcpyAsync", 40, 45, 7).gpu("Memcpy DtoH", 50, 60, 7, cat="gpu_memcpy")
    made.call("cudaStreamSynchronize", 46, 60, 8).call("cudaEventQuery", 61, 62, 9)
    assert problems(made, tmp_path) == ()


def test_kernels_launched_before_the_window(tmp_path: Path) -> None:
    made = MadeTrace().launch(0, 9, 20, 50)
    for i in range(12):
        made.gpu("k", i, i + 1, 30 + i)
    assert problems(made, tmp_path) == (
        "12 of 13 GPU ops have no launch in the trace: it came before the window",
    )


def test_kernels_whose_launch_was_lost(tmp_path: Path) -> None:
    made = MadeTrace().launch(0, 9, 20, 50).gpu("k", 30, 40, 51)
    assert problems(made, tmp_path) == (
        "1 of 2 GPU ops has no launch in the trace: the profiler lost it",
    )


def test_launches_whose_kernels_were_lost(tmp_path: Path) -> None:
    made = MadeTrace().launch(0, 9, 20, 50)
    for i, name in enumerate(("cudaLaunchKernelExC", "cuLaunchKernelEx", "cudaMemsetAsync")):
        made.call(name, 30 + i, 31 + i, 60 + i)
    assert problems(made, tmp_path) == (
        "3 of 4 launches have no GPU work in the trace: the profiler lost it, or it ran after the "
        "window",
    )


def test_launches_into_a_cuda_graph_launch_nothing(tmp_path: Path) -> None:
    made = MadeTrace().launch(0, 9, 20, 50)
    made.call("cudaStreamBeginCapture", 30, 31, 60)
    made.call("cudaLaunchKernel", 32, 33, 61).call("cudaLaunchKernel", 34, 35, 62)
    made.call("cudaStreamEndCapture_v10000", 36, 37, 63)
    made.call("cudaGraphLaunch", 40, 45, 64).gpu("a", 50, 60, 64).gpu("b", 60, 70, 64)
    assert problems(made, tmp_path) == ()
    made.call("cudaLaunchKernel", 80, 81, 70)
    assert problems(made, tmp_path) == (
        "1 of 2 launches has no GPU work in the trace: the profiler lost it, or it ran after the "
        "window",
    )


def test_a_capture_that_began_before_the_window(tmp_path: Path) -> None:
    made = MadeTrace().call("cudaLaunchKernel", 0, 1, 5)
    made.call("cudaStreamEndCapture", 2, 3, 6).launch(10, 20, 30, 7)
    made.call("cudaLaunchKernel", 4, 5, 8, tid=99)  # of a thread that captures nothing
    assert problems(made, tmp_path) == (
        "1 of 2 launches has no GPU work in the trace: the profiler lost it, or it ran after the "
        "window",
    )


def test_no_gpu_work_in_spite_of_calls(tmp_path: Path) -> None:
    made = MadeTrace().op("aten::mm", 0, 9).call("cudaLaunchKernel", 1, 2, 5)
    assert problems(made, tmp_path) == (
        "1 CUDA call and no GPU work: was another profiler attached, or only the CPU recorded?",
    )


def test_only_the_cpu_was_recorded(tmp_path: Path) -> None:
    assert problems(MadeTrace().op("aten::mm", 0, 9), tmp_path) == (
        "no CUDA calls and no GPU work: only the CPU was recorded",
    )


def test_correlation_ids_that_are_not_unique(tmp_path: Path) -> None:
    made = MadeTrace().launch(0, 9, 20, 5).launch(10, 20, 30, 5).launch(20, 30, 40, 5)
    assert problems(made, tmp_path) == (
        "2 CUDA calls share a correlation id with another, so whose GPU work is whose is not sure",
        "2 GPU ops share a launch of a single kernel with another, so which one it launched is "
        "not sure",
    )
