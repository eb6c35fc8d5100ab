"""What may be logged, and in which kind of device row a tensor's value travels."""

from __future__ import annotations

import numbers

import numpy as np
import torch

from trainscope.errors import MetricError
from trainscope.trace.metrics import RESERVED_NAMES

__all__ = ["ROW_DTYPES", "capturing", "check_name", "host_number", "row_kind", "scalar"]

ROW_DTYPES: dict[str, tuple[torch.dtype, type[np.generic]]] = {
    "float32": (torch.float32, np.float32),
    "float64": (torch.float64, np.float64),
    "int64": (torch.int64, np.int64),
    "uint64": (torch.int64, np.uint64),  # the same 64 bits, read without a sign
}
"""Row kind: the dtype of its device buffer, and how the host reads the bytes."""

# Half-precision values are widened by the copy kernel itself, which is exact and saves a ring.
_KIND_OF = {
    torch.float64: "float64",
    torch.uint64: "uint64",
    torch.bool: "int64",
    torch.uint8: "int64",
    torch.int8: "int64",
    torch.int16: "int64",
    torch.uint16: "int64",
    torch.int32: "int64",
    torch.uint32: "int64",
    torch.int64: "int64",
    torch.float32: "float32",
    torch.float16: "float32",
    torch.bfloat16: "float32",
    torch.float8_e4m3fn: "float32",
    torch.float8_e5m2: "float32",
}


def check_name(name: object) -> None:
    """Raise ``MetricError`` unless ``name`` can name a metric."""
    if not isinstance(name, str) or not name:
        raise MetricError(f"log: a metric's name is a non-empty string, not {name!r}")
    if name in RESERVED_NAMES:
        raise MetricError(
            f"log: the name {name!r} is taken: every record has its own {name!r}; "
            f"choose another, such as {'my_' + name!r}"
        )


def host_number(name: str, value: object) -> float | int:
    """Return a Python number equal to ``value``: ints exactly, bools as 0 or 1.

    Raises:
        MetricError: it is no real number.
    """
    if isinstance(value, np.ndarray):
        if value.size != 1:
            raise _too_many(name, "an array", tuple(value.shape))
        value = value.reshape(()).item()
    if isinstance(value, (numbers.Integral, np.bool_)):
        return int(value)
    if isinstance(value, numbers.Real):
        return float(value)
    raise MetricError(
        f"log: {name!r} is a {type(value).__name__} ({value!r:.60}); allowed are real numbers, "
        f"NumPy scalars and tensors of one element; log a number computed from it"
    )


def row_kind(name: str, tensor: torch.Tensor) -> str:
    """Return the row kind for a tensor's dtype.

    Raises:
        MetricError: the dtype holds no real number, or the device none that can be copied.
    """
    kind = _KIND_OF.get(tensor.dtype)
    if kind is None:
        raise MetricError(
            f"log: {name!r} has dtype {tensor.dtype}; allowed are floats, integers and bool"
            + ("; log its .abs() or its .real" if tensor.is_complex() else "")
        )
    if tensor.device.type not in ("cpu", "cuda"):
        raise MetricError(
            f"log: {name!r} is on device {tensor.device}; allowed are cpu and cuda tensors"
        )
    return kind


def scalar(name: str, tensor: torch.Tensor) -> torch.Tensor:
    """Return a 0-d view of a tensor of one element, whatever its shape.

    Raises:
        MetricError: it has another number of elements, or its value is not in this process.
    """
    if hasattr(tensor, "to_local"):
        raise MetricError(
            f"log: {name!r} is a {type(tensor).__name__}, spread over ranks; "
            f"log {name}.full_tensor() or {name}.to_local()"
        )
    if tensor.numel() != 1:
        raise _too_many(name, "a tensor", tuple(tensor.shape))
    if tensor.layout is not torch.strided:
        raise MetricError(f"log: {name!r} has layout {tensor.layout}; log {name}.to_dense()")
    return tensor.detach().reshape(())


def _too_many(name: str, what: str, shape: tuple[int, ...]) -> MetricError:
    return MetricError(
        f"log: {name!r} is {what} of shape {list(shape)}; a metric is one number: "
        f"log {name}.mean(), .sum() or another reduction of it"
    )


def capturing(name: str) -> MetricError:
    """The error for a ``log`` call while a CUDA graph is being captured."""
    return MetricError(
        f"log: a CUDA graph is being captured, so {name!r} has no value yet; "
        f"log the graph's output after graph.replay()"
    )
