"""GELU against torch, torch.compile, the formula in eager torch and a naive CUDA kernel."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F

from trainscope_kernels.benchmarks.case import Case
from trainscope_kernels.benchmarks.gelu_baselines import manual_gelu, naive_cuda_gelu
from trainscope_kernels.gelu.op import bias_gelu, gelu

__all__ = ["benchmarks"]

ELEMENTS = 64_000_000
ROWS, FEATURES = 16384, 4096
ON_CPU = 250_000
"""Elements where there is no GPU: the figures say nothing there, the run shows that it works."""

Impls = dict[str, Callable[..., Any]]


def benchmarks() -> list[Case]:
    """The cases for the default device: everything on CUDA, what runs there on a CPU."""
    cuda = torch.get_default_device().type == "cuda"
    elements = ELEMENTS if cuda else ON_CPU
    cases = []
    for form in ("tanh", "none"):
        for dtype in (torch.float32, torch.bfloat16):
            for backward in (False, True):
                cases.append(_flat(form, dtype, backward, elements, cuda))
    for backward in (False, True):
        cases.append(_biased(torch.bfloat16, backward, cuda))
    cases.append(_flat("tanh", torch.float32, False, 1024, cuda))
    return cases


def _flat(form: str, dtype: torch.dtype, backward: bool, elements: int, cuda: bool) -> Case:
    impls: Impls = {"torch": partial(F.gelu, approximate=form)}
    if form == "tanh":
        impls["manual"] = manual_gelu
    if cuda:
        impls["compile"] = torch.compile(partial(F.gelu, approximate=form), dynamic=False)
        if form == "tanh" and dtype == torch.float32 and not backward:
            impls["naive CUDA"] = naive_cuda_gelu
        impls["cuda"] = partial(gelu, approximate=form, impl="cuda")
        impls["triton"] = partial(gelu, approximate=form, impl="triton")
    else:
        impls["reference"] = partial(gelu, approximate=form, impl="reference")
    return Case(
        name=f"gelu {form} {_way(backward)} {_short(dtype)} {elements:_}".replace("_", ","),
        impls=impls,
        make_inputs=lambda: (torch.randn(elements, dtype=dtype),),
        # the eager formula rounds each of its steps to the dtype; held to torch's error, it would
        # not be timed
        reference="manual" if "manual" in impls else "torch",
        bytes_moved=(3 if backward else 2) * elements * dtype.itemsize,
        flops=None,
        backward=backward,
    )


def _biased(dtype: torch.dtype, backward: bool, cuda: bool) -> Case:
    rows = ROWS if cuda else ON_CPU // FEATURES
    impls: Impls = {"torch": _torch_bias_gelu}
    if cuda:
        impls["compile"] = torch.compile(_torch_bias_gelu, dynamic=False)
        impls["cuda"] = partial(bias_gelu, approximate="tanh", impl="cuda")
        impls["triton"] = partial(bias_gelu, approximate="tanh", impl="triton")
    else:
        impls["reference"] = partial(bias_gelu, approximate="tanh", impl="reference")
    return Case(
        name=f"bias_gelu tanh {_way(backward)} {_short(dtype)} {rows}x{FEATURES}",
        impls=impls,
        make_inputs=lambda: (
            torch.randn(rows, FEATURES, dtype=dtype),
            torch.randn(FEATURES, dtype=dtype),
        ),
        reference="torch",
        bytes_moved=(3 if backward else 2) * rows * FEATURES * dtype.itemsize,
        flops=None,
        backward=backward,
    )


def _torch_bias_gelu(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return F.gelu(x + bias, approximate="tanh")


def _way(backward: bool) -> str:
    return "backward" if backward else "forward"


def _short(dtype: torch.dtype) -> str:
    return {torch.float32: "fp32", torch.bfloat16: "bf16"}[dtype]
