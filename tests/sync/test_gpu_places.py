"""On a GPU: blame in backward, guards, the user's debug mode, CUDA graphs and compiled code."""

from __future__ import annotations

import threading

import pytest
import torch
from gpu_detector import found, gpu

import trainscope as ts
from trainscope.sync.detector import SyncDetector

pytestmark = pytest.mark.gpu


# ---- backward -----------------------------------------------------------------------------------
def test_a_hook_is_blamed_at_its_line_on_the_autograd_thread() -> None:
    w = torch.nn.Parameter(gpu(8))

    def hook(p: torch.Tensor) -> None:
        assert p.grad is not None
        p.grad.norm().item()

    here = hook.__code__.co_firstlineno + 2
    w.register_post_accumulate_grad_hook(hook)

    def call() -> None:
        for _ in range(3):
            (w * 2).sum().backward()

    (site,) = found(call)
    assert (site.kind, site.line, site.count) == ("item", here, 3)
    assert (site.thread, site.phase, site.function) == ("autograd", "backward", "hook")


class Reading(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):  # type: ignore[no-untyped-def]
        return x * 2

    @staticmethod
    def backward(ctx, grad):  # type: ignore[no-untyped-def]
        return grad[grad > 0].sum() + grad * bool(grad.sum() > 0)


def test_a_custom_function_s_backward_is_blamed_at_its_line() -> None:
    x = gpu(4).requires_grad_()

    def call() -> None:
        Reading.apply(x).sum().backward()

    here = Reading.backward.__code__.co_firstlineno + 2
    sites = found(call)
    assert sorted((s.kind, s.line, s.function, s.thread, s.phase) for s in sites) == [
        ("bool", here, "backward", "autograd", "backward"),
        ("nonzero", here, "backward", "autograd", "backward"),
    ]


# ---- guards and modes ---------------------------------------------------------------------------
def test_no_sync_raises_at_the_line() -> None:
    x = gpu(3)
    words = r"TS101 item: .*\.py:\d+ in test_no_sync_raises_at_the_line"
    with pytest.raises(ts.SyncError, match=words), ts.no_sync():
        x.sum().item()
    with pytest.raises(ts.SyncError, match="TS112 nonzero"), ts.no_sync():
        x[x > 0]
    with pytest.raises(ts.SyncError, match="TS123 synchronize"), ts.no_sync():
        torch.cuda.synchronize()
    with ts.no_sync():
        x * 2
        with ts.allow_sync("the test"):
            x.sum().item()
    assert torch.cuda.get_sync_debug_mode() == 0


def test_no_sync_raises_out_of_backward() -> None:
    w = torch.nn.Parameter(gpu(8))

    def hook(p: torch.Tensor) -> None:
        assert p.grad is not None
        p.grad.norm().item()

    w.register_post_accumulate_grad_hook(hook)
    with pytest.raises(ts.SyncError, match="in hook makes the CPU wait"), ts.no_sync():
        (w * 2).sum().backward()
    (w * 2).sum().backward()


def test_no_sync_is_of_one_thread() -> None:
    x, values = gpu(1), []
    with ts.no_sync():
        thread = threading.Thread(target=lambda: values.append(x.item()))
        thread.start()
        thread.join()
    assert values == [1.0]


def test_the_user_s_debug_mode_comes_back() -> None:
    torch.cuda.set_sync_debug_mode("warn")
    try:
        x = gpu(1)
        with SyncDetector(dry_run=False) as detector:
            with pytest.warns(UserWarning, match="called a synchronizing CUDA operation"):
                x.item()
            assert torch.cuda.get_sync_debug_mode() == 1
            torch.cuda.set_sync_debug_mode(0)
            assert torch.cuda.get_sync_debug_mode() == 0
            x.item()
        assert [site.count for site in detector.sites()] == [1, 1]
        assert torch.cuda.get_sync_debug_mode() == 0
    finally:
        torch.cuda.set_sync_debug_mode(0)


def test_steps_are_armed_and_nothing_is_printed(recwarn: pytest.WarningsRecorder) -> None:
    x = gpu(1)
    with SyncDetector(dry_run=False) as detector:
        for step in range(5):
            detector.begin_step(step)
            x.item()
            x[x > 0]
    state = detector.state()
    assert (state.armed_steps, state.disarmed) == (5, ())
    assert [str(w.message) for w in recwarn if "synchroniz" in str(w.message)] == []


def test_cuda_graph_capture_and_replay_work_and_wait_for_nothing() -> None:
    x = gpu(64)
    graph = torch.cuda.CUDAGraph()
    with SyncDetector(dry_run=False) as detector:
        with torch.cuda.graph(graph):
            y = x * 2 + 1
        before = sum(site.count for site in detector.sites() if not site.explicit)
        for _ in range(3):
            graph.replay()
        assert sum(site.count for site in detector.sites() if not site.explicit) == before
    assert y.tolist() == [3.0] * 64


def test_compiled_code_is_apart_from_compiling_it() -> None:
    def step(x: torch.Tensor) -> torch.Tensor:
        return (x * 2).sum()

    compiled = torch.compile(step, fullgraph=True)
    x = gpu(64)
    with SyncDetector(dry_run=False) as detector:
        for _ in range(3):
            compiled(x)
        torch.cuda.synchronize()
    training = [s for s in detector.sites() if s.during == "training" and not s.explicit]
    assert [(s.kind, s.source, s.via) for s in training] == []
    torch.compiler.reset()
