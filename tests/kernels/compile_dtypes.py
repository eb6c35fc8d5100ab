"""Compiles GELU and softmax for every dtype that they take and says what did not compile.

The interpreter runs what no GPU compiles (what stands behind a return is compiled all the same), so
each dtype has to be seen here. compile_for_gpus.py imports it, in a process of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import compile_gelu
import compile_softmax
import triton
from triton.backends.compiler import GPUTarget

from trainscope_kernels.gelu import triton_impl
from trainscope_kernels.triton_start import FUSED

SIZES = {"bf16": 2, "fp16": 2, "fp32": 4, "fp64": 8}
SOFTMAX_SHAPES = [((6, 33), 1), ((2, 17, 5), 1), ((2, 40_000), 1), ((2, 300_000), 1)]
CAPABILITY = 80


def cases() -> Iterator[tuple[str, Callable[[], object]]]:
    """A name and what compiles it."""
    compile_softmax.ITEMSIZES.update(SIZES)
    compile_gelu.TYPES.update(SIZES)
    for dtype in SIZES:
        for what in compile_softmax.KERNELS:
            for shape, dim in SOFTMAX_SHAPES:
                yield (
                    f"softmax {what} {dtype} {shape}",
                    lambda a=(what, dtype, shape, dim): compile_softmax.compiled(*a, CAPABILITY),
                )
        for kernel in ("forward", "backward", "bias_forward", "bias_backward"):
            for tanh in (False, True):
                yield (
                    f"gelu {kernel} {dtype} tanh={tanh}",
                    lambda a=(kernel, dtype, tanh): gelu(*a),
                )


def gelu(kernel: str, dtype: str, tanh: bool) -> object:
    source, (_, warps) = compile_gelu.source(kernel, dtype, tanh)
    return triton.compile(
        source, target=GPUTarget("cuda", CAPABILITY, 32), options={"num_warps": warps, **FUSED}
    )


def found() -> dict[str, object]:
    """How many were compiled, and what was said of those that could not be."""
    assert triton_impl.FORWARD_BLOCK.keys() == set(SIZES.values())
    failed, count = {}, 0
    for name, compiled in cases():
        count += 1
        try:
            compiled()
        except Exception as error:
            failed[name] = f"{type(error).__name__}: {str(error)[-400:]}"
    return {"compiled": count, "failed": failed}
