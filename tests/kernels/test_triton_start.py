"""A compiled kernel started the short way gets what Triton itself would have given it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import triton
from triton.backends.nvidia.driver import CudaLauncher
from triton.compiler import CompiledKernel

from trainscope_kernels.triton_start import compiled_start, starter


class Driver:
    """What Triton asks where it launches itself."""

    def get_current_device(self) -> int:
        return 1

    def get_current_stream(self, device: int) -> int:
        return {1: 55}[device]


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[Any, ...]]]:
    """What the C function of the launcher is called with."""
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", {1: 55}.__getitem__, raising=False)
    # not the fixture of the tests in which Triton finds a driver: it must be as before afterwards
    config = triton.runtime.driver
    before = dict(vars(config))
    config.set_active(Driver())  # type: ignore[arg-type]
    yield []
    vars(config).clear()
    vars(config).update(before)


def compiled(given: list[tuple[Any, ...]], **more: Any) -> Any:
    """A kernel that is loaded already, with Triton's own way to a C function that takes note."""
    launcher = CudaLauncher.__new__(CudaLauncher)
    launcher.launch = lambda *arguments: given.append(arguments)
    for name, value in {
        "num_ctas": 1,
        "global_scratch_size": 0,
        "global_scratch_align": 1,
        "profile_scratch_size": 0,
        "profile_scratch_align": 1,
        "launch_cooperative_grid": False,
        "launch_pdl": True,
        "gsan_enabled": False,
        "arg_annotations": ["annotations"],
        "kernel_signature": b"signature",
        **more,
    }.items():
        setattr(launcher, name, value)
    kernel = CompiledKernel.__new__(CompiledKernel)
    kernel.module, kernel.function, kernel.packed_metadata = 1, 3, (8, 1, 0)
    kernel.name, kernel.src, kernel._run = "kernel", None, launcher
    kernel._module_pid = 0  # nothing of it is loaded in this process, so nothing is unloaded
    return kernel


ADDRESSES = (1 << 40, None)
REST = (4096, (1, 2, 3), True, "constant")
ARGUMENTS = ADDRESSES + REST


def test_the_c_function_gets_what_triton_gives_it(given) -> None:
    kernel = compiled(given)
    kernel[(7, 1, 1)](*ARGUMENTS)
    start = starter(kernel, 1)
    assert len(given) == 1, "asking how a kernel is started starts none"
    start(7, ADDRESSES, REST)
    triton_gave, ours = given
    # Triton tells hooks that nobody waits for
    without_hooks = [
        None if type(each).__name__ in ("HookChain", "LazyDict") else each for each in triton_gave
    ]
    assert list(ours) == without_hooks


def test_the_short_way_goes_round_tritons_python(given, monkeypatch) -> None:
    kernel = compiled(given)
    start = starter(kernel, 1)
    monkeypatch.setattr(CompiledKernel, "__getitem__", lambda *_: pytest.fail("Triton was asked"))
    monkeypatch.setattr(CudaLauncher, "__call__", lambda *_: pytest.fail("Triton was asked"))
    start(7, ADDRESSES, REST)
    start(8, ADDRESSES, REST)
    assert [each[0] for each in given] == [7, 8]


@pytest.mark.parametrize("side", ["enter", "exit"])
def test_hooks_are_told_as_soon_as_they_are_there(given, side) -> None:
    kernel = compiled(given)
    start = starter(kernel, 1)
    hook = getattr(triton.knobs.runtime, f"launch_{side}_hook")
    seen: list[Any] = []
    hook.add(seen.append)
    try:
        start(7, ADDRESSES, REST)
    finally:
        hook.remove(seen.append)
    start(7, ADDRESSES, REST)
    told, untold = given
    assert hook in told, "the C function calls the hooks that it gets"
    assert hook not in untold
    assert [each.get()["name"] for each in told if type(each).__name__ == "LazyDict"] == ["kernel"]


def test_hooks_that_are_put_in_place_of_tritons_are_told(given, monkeypatch) -> None:
    start = starter(compiled(given), 1)
    mine = triton.knobs.HookChain()
    mine.add(print)
    monkeypatch.setattr(triton.knobs.runtime, "launch_enter_hook", mine)
    start(7, ADDRESSES, REST)
    assert mine in given[0]


@pytest.mark.parametrize(
    "launcher",
    [{"global_scratch_size": 16}, {"profile_scratch_size": 16}, {"gsan_enabled": True}],
    ids=lambda each: next(iter(each)),
)
def test_a_launcher_that_does_more_than_pass_on_is_left_to_triton(given, launcher) -> None:
    kernel = compiled(given, **launcher)
    asked = []
    kernel_of_grid = type("Asked", (), {"__getitem__": lambda _, grid: lambda *a: asked.append(a)})
    stands_in = kernel_of_grid()
    stands_in.run = kernel.run
    starter(stands_in, 1)(7, ADDRESSES, REST)
    assert asked == [ARGUMENTS]
    assert given == []


@pytest.mark.parametrize("gives", [(), (1,), (5, 6, 7, 8, 9)])
def test_a_launcher_in_an_unknown_order_is_left_to_triton(given, gives) -> None:
    asked = []

    class Unknown:
        function, packed_metadata = 3, ()
        global_scratch_size = profile_scratch_size = 0

        def __init__(self) -> None:
            self.launch = lambda *arguments: given.append(arguments)

        @property
        def run(self) -> Unknown:
            return self

        def __call__(self, *_: Any) -> None:
            self.launch(*gives)

        def __getitem__(self, grid: tuple[int, ...]) -> Any:
            return lambda *arguments: asked.append((grid, arguments))

    starter(Unknown(), 1)(7, ADDRESSES, REST)
    assert asked == [((7, 1, 1), ARGUMENTS)]
    assert given == []


def test_a_kernel_can_be_compiled_without_being_started(given) -> None:
    class Kernel:
        def warmup(self, *arguments: Any, **options: Any) -> Any:
            self.asked = (arguments, options)
            return compiled(given)

    kernel = Kernel()
    start = compiled_start(kernel, 1, (torch.float32, 5), {"num_warps": 4})
    assert kernel.asked == ((torch.float32, 5), {"grid": (1,), "num_warps": 4})
    assert given == []
    start(7, ADDRESSES, REST)
    assert len(given) == 1
