"""Each kernel on inputs small enough for NVIDIA's compute-sanitizer, forward and backward.

PYTORCH_NO_CUDA_MEMORY_CACHING=1 compute-sanitizer --tool memcheck --error-exitcode 1 \\
    --report-api-errors no python tests/kernels/sanitized_cases.py [KERNEL ...]

A kernel is gelu, softmax, attention or gluon. The same with racecheck, synccheck and initcheck.
Without torch's cache each tensor is an allocation of its own, so that one element past its end is
seen. API errors are left out: cuda-bindings asks the driver for functions that it may not have.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch

from trainscope_kernels import bias_gelu, flash_attention, flash_attention_varlen, gelu, softmax
from trainscope_kernels.attention.gluon_envelope import gpu_refusal
from trainscope_kernels.softmax.cuda_impl import cuda_reason

Case = tuple[str, Callable[..., Any], list[torch.Tensor]]
HALVES = (torch.bfloat16, torch.float16)
DTYPES = (*HALVES, torch.float32)


def leaves(*shapes: tuple[int, ...], dtype: torch.dtype) -> list[torch.Tensor]:
    """Tensors that want a gradient."""
    return [torch.randn(each, device="cuda", dtype=dtype).requires_grad_() for each in shapes]


def gelu_cases() -> Iterator[Case]:
    """Lengths around a vector and a block, and odd addresses."""
    for impl, dtype, n in itertools.product(("triton", "cuda"), DTYPES, (1, 7, 1000, 2049)):
        made = leaves((n,), dtype=dtype)
        yield f"gelu {impl} {dtype} {n}", lambda x, i=impl: gelu(x, "tanh", impl=i), made
        made = leaves((n + 1,), dtype=dtype)
        yield f"gelu {impl} {dtype} odd {n}", lambda x, i=impl: gelu(x[1:], impl=i), made
    for impl, dtype, shape in itertools.product(
        ("triton", "cuda"), DTYPES, ((1, 1), (70, 33), (9, 520))
    ):
        made = leaves(shape, shape[1:], dtype=dtype)
        name = f"bias_gelu {impl} {dtype} {shape}"
        yield name, lambda x, b, i=impl: bias_gelu(x, b, impl=i), made


def softmax_cases() -> Iterator[Case]:
    """Rows of one tile, of two launches, of a cluster, and columns that are apart."""
    for dtype, shape, dim in itertools.product(
        DTYPES, ((3, 1), (5, 100), (2, 3000), (2, 40001)), (0, 1)
    ):
        made = leaves(shape, dtype=dtype)
        yield f"softmax {dtype} {shape} {dim}", lambda x, d=dim: softmax(x, d, impl="triton"), made
    if cuda_reason(torch.device("cuda", 0)) is None:
        for dtype, columns in itertools.product(DTYPES, (5, 3000, 40000, 40001)):
            made = leaves((3, columns), dtype=dtype)
            yield f"softmax cuda {dtype} {columns}", lambda x: softmax(x, impl="cuda"), made


def attention_cases() -> Iterator[Case]:
    """Tiles that end early, every way of hiding keys, packed sequences."""
    mask = torch.rand(70, 130, device="cuda") > 0.3
    ways: list[dict[str, Any]] = [
        {},
        {"causal": "bottom-right"},
        {"window": (20, 5), "softcap": 3.0},
        {"mask": mask},
        {"mask": torch.zeros(130, device="cuda").masked_fill(~mask[0], -torch.inf)},
    ]
    for how, dtype, dim in itertools.product(ways, (torch.bfloat16, torch.float32), (40, 128)):
        made = leaves((1, 4, 70, dim), (1, 2, 130, dim), (1, 2, 130, dim), dtype=dtype)
        name = f"attention {sorted(how)} {dtype} {dim}"
        yield name, lambda *a, h=how: flash_attention(*a, impl="triton", **h), made
    cu = torch.tensor([0, 0, 33, 34, 90], device="cuda", dtype=torch.int32)
    made = leaves((95, 2, 64), (95, 1, 64), (95, 1, 64), dtype=torch.bfloat16)
    packed = lambda *a: flash_attention_varlen(*a, cu, cu, causal=True, impl="triton")  # noqa: E731
    yield "attention of packed sequences", packed, made


def gluon_cases() -> Iterator[Case]:
    """Full and causal, where this GPU has it."""
    if gpu_refusal(torch.device("cuda", 0)) is not None:
        return
    for dim, n, causal in itertools.product((64, 128), (128, 384), (None, "top-left")):
        made = leaves(*[(1, 2, n, dim)] * 3, dtype=torch.bfloat16)
        attend = lambda *a, c=causal: flash_attention(*a, causal=c, impl="gluon")  # noqa: E731
        yield f"gluon {dim} {n} {causal}", attend, made


CASES = {
    "gelu": gelu_cases,
    "softmax": softmax_cases,
    "attention": attention_cases,
    "gluon": gluon_cases,
}


def main() -> None:
    """Run the cases that are named, all by default, and look at what comes out."""
    for name in sys.argv[1:] or CASES:
        count = 0
        for case, call, made in CASES[name]():
            out = call(*made)
            grads = torch.autograd.grad(out, made, torch.ones_like(out))
            without = call(
                *[x.detach() for x in made]
            )  # another way, and for attention another code
            for each in (out, *grads, without):
                assert bool(torch.isfinite(each).all()), case
            count += 1
        torch.cuda.synchronize()
        print(f"{name}: {count} cases ran")


if __name__ == "__main__":
    main()
