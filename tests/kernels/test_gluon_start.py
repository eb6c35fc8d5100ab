"""A Gluon kernel started again gets from us what it gets from Triton, and each map is made once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from trainscope_kernels.attention.call import Call

pytest.importorskip("triton")
gluon_start = pytest.importorskip("trainscope_kernels.attention.gluon_start")
gluon_forward_launch = pytest.importorskip("trainscope_kernels.attention.gluon_forward_launch")
driver = pytest.importorskip("triton.backends.nvidia.driver")

META = {
    "swizzle": 3,
    "elem_size": 2,
    "elem_type": 7,
    "block_size": [1, 1, 64, 64],
    "fp4_padded": False,
}


class Compiled:
    """A compiled kernel, on no GPU: tensor maps, then pointers, then numbers and constants."""

    def __init__(self, maps: int, pointers: int, launched: list[tuple[Any, ...]]) -> None:
        kinds = ["tensordesc<bf16[1, 1, 64, 64],Layout>"] * maps + ["*fp32"] * pointers
        launcher = driver.CudaLauncher.__new__(driver.CudaLauncher)
        launcher.num_ctas = 1
        launcher.global_scratch_size = launcher.profile_scratch_size = 0
        launcher.global_scratch_align = launcher.profile_scratch_align = 1
        launcher.launch_cooperative_grid = launcher.launch_pdl = False
        launcher.launch = driver.wrap_handle_tensordesc(
            lambda *given: launched.append(given), dict(enumerate(kinds)), [META] * maps
        )
        self._launcher: Any = launcher
        self._run: Any = None
        self.function, self.packed_metadata = None, "packed"
        self.metadata = SimpleNamespace(tensordesc_meta=[META] * maps)

    @property
    def run(self) -> Any:
        if self._run is None:  # as Triton's, it is loaded when first asked to run
            self._run, self.function = self._launcher, "function"
        return self._run

    def __getitem__(self, grid: tuple[int, int, int]) -> Any:
        def start(*arguments: Any) -> None:
            run = self.run
            own = self.function, self.packed_metadata, None, None, None
            run(*grid, "stream", *own, *arguments)

        return start


class Kernel:
    """Launches the long way, as Triton would, takes note of that and gives what it compiled."""

    def __init__(self, arg_names: tuple[str, ...], compiled: Compiled) -> None:
        self.arg_names, self.compiled = arg_names, compiled
        self.fn = object()
        self.long_ways = 0

    def __getitem__(self, grid: tuple[int]) -> Any:
        def start(*arguments: Any, num_warps: int, **constants: Any) -> Compiled:
            self.long_ways += 1
            given = (x.data_ptr() if isinstance(x, torch.Tensor) else x for x in arguments)
            in_order = (constants[name] for name in self.arg_names if name in constants)
            self.compiled[grid[0], 1, 1](*given, *in_order)
            return self.compiled

        return start

    def warmup(self, *arguments: Any, grid: Any, num_warps: int, **constants: Any) -> Compiled:
        return self.compiled


@pytest.fixture
def encoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The addresses of the tensors whose maps were encoded, in order."""
    addresses: list[int] = []

    def fill(address: int, *rest: Any) -> tuple[Any, ...]:
        addresses.append(address)
        return ("map", address, *(tuple(each) if isinstance(each, list) else each for each in rest))

    active = SimpleNamespace(utils=SimpleNamespace(fill_tma_descriptor=fill))
    monkeypatch.setattr(driver.triton.runtime, "driver", SimpleNamespace(active=active))
    monkeypatch.setattr(
        torch._C, "_cuda_getCurrentRawStream", lambda device: "stream", raising=False
    )
    monkeypatch.setattr(gluon_start, "_ready", {})
    return addresses


def test_the_short_way_passes_what_triton_passes(encoded: list[int]) -> None:
    launched: list[tuple[Any, ...]] = []
    names = "a_map", "b_map", "pointer", "count", "scale", "KIND"
    kernel = Kernel(names, Compiled(2, 1, launched))
    x = torch.zeros(2, 3, 70, 64, dtype=torch.bfloat16)
    y = torch.zeros(2, 70, 3, 64, dtype=torch.bfloat16).transpose(1, 2)
    pointer = torch.zeros(4)
    arguments = gluon_start.tensor_map(x, 64), gluon_start.tensor_map(y, 64), pointer, 5, 0.25

    for _ in range(3):
        gluon_start.start(kernel, 12, (0, "kind"), arguments, KIND="none")

    assert kernel.long_ways == 1
    by_triton, again, once_more = launched
    assert by_triton[:3] == (12, 1, 1)
    assert again == once_more == by_triton
    # twice by Triton, twice by us
    assert encoded == [x.data_ptr(), y.data_ptr()] * 2


def test_a_map_is_made_for_each_address_and_each_layout(encoded: list[int]) -> None:
    encoder = gluon_start.Encoder(META)
    x = torch.zeros(2, 3, 64, 64, dtype=torch.bfloat16)
    laid_out = gluon_start.tensor_map(x, 64)
    moved = torch.zeros_like(x)
    turned = x.view(3, 2, 64, 64)

    made = encoder(x, laid_out)
    assert encoder(x, laid_out) is made
    assert encoder(moved, laid_out)[1:] == made[1:]
    assert encoder(turned, gluon_start.tensor_map(turned, 64))[1:] != made[1:]
    assert encoded == [x.data_ptr(), moved.data_ptr(), x.data_ptr()]


def test_maps_are_forgotten_rather_than_grow_for_ever(
    encoded: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gluon_start, "MOST_MADE", 2)
    encoder = gluon_start.Encoder(META)
    xs = [torch.zeros(1, 1, 64, 64, dtype=torch.bfloat16) for _ in range(5)]
    for x in xs:
        encoder(x, gluon_start.tensor_map(x, 64))
        assert len(encoder._made) <= 2
    assert encoded == [x.data_ptr() for x in xs]


def tensors() -> tuple[torch.Tensor, ...]:
    """q, k, v, output and LSE."""
    qkvo = (torch.zeros(2, 3, 256, 96, dtype=torch.bfloat16) for _ in range(4))
    return (*qkvo, torch.zeros(2, 3, 256))


def without_addresses(given: tuple[Any, ...], of: tuple[torch.Tensor, ...]) -> list[Any]:
    """What a launch got, a map without its address, the output's and the LSE's by name."""
    names = {of[3].data_ptr(): "out", of[4].data_ptr(): "LSE"}
    plain = [x[2:] if isinstance(x, tuple) and x[0] == "map" else x for x in given]
    return [names.get(x, x) if isinstance(x, int) else x for x in plain]


@pytest.mark.parametrize("right", [-1, 0])
def test_a_forward_like_one_of_before_is_started_with_the_same_but_its_addresses(
    encoded: list[int], monkeypatch: pytest.MonkeyPatch, right: int
) -> None:
    launched: list[tuple[Any, ...]] = []
    names = tuple(gluon_forward_launch.attention_forward.arg_names)
    kernel = Kernel(names, Compiled(4, 4, launched))
    lists = torch.zeros(4), torch.zeros(4)
    monkeypatch.setattr(gluon_forward_launch, "attention_forward", kernel)
    monkeypatch.setattr(gluon_forward_launch, "_launchers", {})
    monkeypatch.setattr(gluon_forward_launch, "schedule_on", lambda tiling: lists)
    monkeypatch.setitem(gluon_start._multiprocessors, None, 132)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: None)

    first, second = tensors(), tensors()
    for q, k, v, out, lse in (first, second):
        call = Call(q, k, v, None, None, None, 0.1, 0.0, -1, right, False)
        gluon_forward_launch.forward(call, out, lse)

    assert kernel.long_ways == 1
    assert encoded == [x.data_ptr() for x in (*first[:4], *second[:4])]
    expected = without_addresses(launched[0], first)
    assert without_addresses(launched[1], second) == expected
    assert expected.count("LSE") == (3 if right < 0 else 1)
    assert expected.count("out") == 1
    assert (lists[0].data_ptr() in expected) == (right == 0)

    again = gluon_forward_launch.forward_again(call, *second[3:], return_lse=True)
    made = again(*first[:3])
    assert kernel.long_ways == 1
    assert [x.shape for x in made] == [x.shape for x in first[3:]]
    assert without_addresses(launched[2], (*first[:3], *made)) == expected
    # Triton kept none of those that it had encoded
    assert encoded[8:] == [x.data_ptr() for x in (*first[:3], made[0])]


def test_a_forward_from_an_odd_address_is_not_started_the_short_way(
    encoded: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    launched: list[tuple[Any, ...]] = []
    names = tuple(gluon_forward_launch.attention_forward.arg_names)
    kernel = Kernel(names, Compiled(4, 4, launched))
    monkeypatch.setattr(gluon_forward_launch, "attention_forward", kernel)
    monkeypatch.setitem(gluon_start._multiprocessors, None, 132)
    q, k, v, out, lse = tensors()
    odd = torch.zeros(q.numel() + 1, dtype=q.dtype)[1:].view(q.shape)
    call = Call(q, k, v, None, None, None, 0.1, 0.0, -1, -1, False)

    again = gluon_forward_launch.forward_again(call, out, lse, return_lse=False)
    assert again(odd, k, v) is None
    assert launched == []
    assert again(q, k, v).shape == out.shape
    # compiled only, the kernel had to be loaded before it could be started
    assert [given[4] for given in launched] == ["function"]
    assert gluon_forward_launch.forward_again(call._replace(v=odd), out, lse, False) is None
