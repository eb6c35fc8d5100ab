"""Every dtype of every Triton kernel compiles for a GPU, which the interpreter does not show."""

from __future__ import annotations

from typing import Any


def test_every_dtype_of_every_kernel_compiles(compiled_for_gpus: dict[str, Any]) -> None:
    found = compiled_for_gpus["dtypes"]
    assert found["failed"] == {}
    assert found["compiled"] == 4 * (2 * 4 + 4 * 2)
