"""What the short way starts computes what the long way computes: in Triton's interpreter."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from trainscope_kernels import bias_gelu, flash_attention, gelu, softmax
from trainscope_kernels.attention import triton_launch
from trainscope_kernels.gelu import triton_impl
from trainscope_kernels.repeats import Repeats
from trainscope_kernels.softmax import launch

pytestmark = pytest.mark.skipif(
    torch.cuda.is_available(), reason="in the interpreter; test_repeats_gpu.py has it on a GPU"
)


def tensor_at(address: int, dtype: torch.dtype) -> torch.Tensor:
    found = [
        each
        for each in gc.get_objects()
        if type(each) is torch.Tensor and each.dtype == dtype and address_of(each) == address
    ]
    return found[0]


def address_of(x: torch.Tensor) -> int | None:
    try:
        return x.data_ptr()
    except RuntimeError:  # a wrapper that a tracer of another test has left
        return None


@pytest.fixture
def starts(as_on_a_gpu: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The kernels that were started the short way, by name."""
    names: list[str] = []

    def compiled_start(kernel: Any, device: int, arguments: Any, constants: Any) -> Any:
        options = {name: value for name, value in constants.items() if name.startswith("num_")}

        def start(programs: int, addresses: Any, rest: tuple[Any, ...]) -> None:
            kinds = arguments[: len(addresses)]
            assert [kind is None for kind in kinds] == [each is None for each in addresses]
            tensors = [
                None if address is None else tensor_at(address, kind)
                for address, kind in zip(addresses, kinds, strict=True)
            ]
            names.append(kernel.fn.__name__)
            kernel[(programs,)](*tensors, *rest, **options)

        return start

    for module in (triton_impl, launch, triton_launch):
        monkeypatch.setattr(module, "compiled_start", compiled_start)
    before = [each for each in gc.get_objects() if type(each) is Repeats]
    for each in before:
        each._known.clear()
    yield names
    for each in before:
        each._known.clear()


def half(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float16)


def qkv(heads: int = 2, length: int = 20, dim: int = 16) -> list[torch.Tensor]:
    return [half(2, heads, length, dim) for _ in range(3)]


CALLS: dict[str, tuple[Callable[..., Any], list[torch.Tensor]]] = {
    "gelu": (lambda x: gelu(x, impl="triton"), [torch.randn(7, 130)]),
    "gelu tanh": (lambda x: gelu(x, "tanh", impl="triton"), [half(3, 5).t()]),
    "bias_gelu": (lambda x, b: bias_gelu(x, b, impl="triton"), [half(9, 40), torch.randn(40)]),
    "softmax": (lambda x: softmax(x, impl="triton"), [half(9, 40)]),
    "softmax of a middle dim": (lambda x: softmax(x, 1, impl="triton"), [torch.randn(3, 5, 7)]),
    "softmax of a view": (lambda x: softmax(x, -1, impl="triton"), [half(6, 4, 16)[:, 1].t()]),
    "softmax in float32": (
        lambda x: softmax(x, dtype=torch.float32, impl="triton"),
        [half(4, 33)],
    ),
    "attention": (lambda *a: flash_attention(*a, impl="triton"), qkv()),
    "attention, causal": (lambda *a: flash_attention(*a, causal=True, impl="triton"), qkv()),
    "attention with its LSE": (
        lambda *a: flash_attention(*a, causal="bottom-right", impl="triton", return_lse=True),
        [half(1, 4, 9, 24), half(1, 2, 40, 24), half(1, 2, 40, 24)],
    ),
    "attention, softcap and window": (
        lambda *a: flash_attention(*a, softcap=2.0, window=(5, 0), scale=-0.3, impl="triton"),
        qkv(),
    ),
    "attention, heads inside the sequence": (
        lambda *a: flash_attention(*a, impl="triton"),
        [half(2, 20, 3, 2, 16)[:, :, place].transpose(1, 2) for place in range(3)],
    ),
    "attention, another value dim": (
        lambda *a: flash_attention(*a, impl="triton"),
        [half(1, 2, 9, 16), half(1, 2, 11, 16), half(1, 2, 11, 8)],
    ),
}


@pytest.mark.parametrize(("call", "tensors"), CALLS.values(), ids=CALLS)
def test_the_short_way_gives_what_the_long_way_gives(starts, call, tensors) -> None:
    call(*tensors)
    with torch.no_grad():
        for each in tensors:
            each.copy_(each.flip(0))
    short = call(*tensors)
    assert len(starts) == 2
    with torch.device("cpu"):  # a mode, which is shown the op, and that knows no short way
        long = call(*tensors)
    assert len(starts) == 2
    for ours, theirs in zip(_several(short), _several(long), strict=True):
        assert torch.equal(ours, theirs)
        assert (ours.stride(), ours.dtype) == (theirs.stride(), theirs.dtype)


def _several(result: Any) -> tuple[torch.Tensor, ...]:
    return result if isinstance(result, tuple) else (result,)


def test_the_precision_of_float32_is_asked_each_time(starts) -> None:
    tensors = [each.float() for each in qkv()]
    flash_attention(*tensors, impl="triton")
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        flash_attention(*tensors, impl="triton")
    finally:
        torch.set_float32_matmul_precision(before)
    assert len(starts) == 1
    flash_attention(*tensors, impl="triton")
    assert len(starts) == 2


def test_a_mask_or_a_long_sequence_is_looked_at_each_time(starts) -> None:
    q, k, v = qkv()
    for _ in range(2):
        flash_attention(q, k, v, mask=torch.ones(20, 20, dtype=torch.bool), impl="triton")
    assert starts == []


@pytest.mark.parametrize(
    ("good", "bad"),
    [
        ({"causal": True}, {"causal": 1}),
        ({"window": (3, 0)}, {"window": (3.0, 0)}),
        ({}, {"impl": "tritonn"}),
        ({}, {"dropout_p": 0.1}),
        ({}, {"softcap": 0.0}),
    ],
)
def test_what_is_refused_is_refused_after_a_good_call_too(starts, good, bad) -> None:
    from trainscope_kernels import ArgumentError

    tensors = qkv()
    flash_attention(*tensors, **{"impl": "triton", **good})
    assert len(starts) == 1
    with pytest.raises(ArgumentError):
        flash_attention(*tensors, **{"impl": "triton", **bad})


def test_a_softmax_dim_that_equals_a_good_one_is_refused(starts) -> None:
    from trainscope_kernels import ArgumentError

    x = half(4, 5)
    softmax(x, 1, impl="triton")
    with pytest.raises(ArgumentError, match="dim must be an int"):
        softmax(x, 1.0, impl="triton")  # type: ignore[arg-type]
