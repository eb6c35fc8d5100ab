"""What the arguments of a benchmark may be: each that is not allowed is told by its name."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

import torch
from torch.utils import _pytree as pytree

from trainscope.errors import ConfigError

__all__ = [
    "check_amounts",
    "check_callable",
    "check_impls",
    "check_inputs",
    "check_name",
    "is_number",
]


def check_impls(impls: object) -> None:
    """Functions by name, and at least one.

    Raises:
        ConfigError: they are something else.
    """
    if not isinstance(impls, Mapping):
        raise ConfigError(
            f"impls is {_a(impls)}; pass the functions by their names, such as {{'exp': torch.exp}}"
        )
    if not impls:
        raise ConfigError("impls is empty; pass at least one function by its name")
    for name, fn in impls.items():
        check_name("a name in impls", name)
        check_callable(f"impls[{name!r}]", fn)


def check_callable(argument: str, fn: object) -> None:
    """Raise ConfigError for what cannot be called."""
    if not callable(fn):
        raise ConfigError(f"{argument} is {_a(fn)}; pass a function")


def check_name(argument: str, name: object) -> None:
    """Raise ConfigError for what is no text that a table can show in a line."""
    if not isinstance(name, str) or not name.isprintable():
        raise ConfigError(f"{argument} is {name!r:.80}; pass text of one line")


def check_inputs(inputs: object) -> None:
    """Arguments one after another, their tensors on the CPU or a GPU.

    Raises:
        ConfigError: they are something else; one tensor would be taken apart into its rows.
    """
    if not isinstance(inputs, Sequence) or isinstance(inputs, str | bytes):
        raise ConfigError(f"inputs is {_a(inputs)}; pass a tuple of the arguments, such as (x,)")
    for each in pytree.tree_leaves(tuple(inputs)):
        if torch.is_tensor(each) and each.device.type not in ("cpu", "cuda"):
            raise ConfigError(
                f"inputs hold a tensor on {each.device}; benchmarks run on cuda and cpu"
            )


def check_amounts(bytes_moved: object, flops: object, tolerance: object, cache: object) -> None:
    """Raise ConfigError for a count that is none, a tolerance below 0, and another cache."""
    for argument, value in (("bytes_moved", bytes_moved), ("flops", flops)):
        if value is not None and not _is_count(value):
            raise ConfigError(
                f"{argument}={value!r:.80} is not allowed; pass a whole number from 0, or None"
            )
    if tolerance is not None and not _is_share(tolerance):
        raise ConfigError(
            f"tolerance={tolerance!r:.80} is not allowed; pass a share from 0, or None"
        )
    if cache not in (None, "cold", "warm"):
        raise ConfigError(f"cache={cache!r:.80} is not allowed; pass 'cold', 'warm' or None")


def is_number(value: Any) -> bool:
    """Whether it is a real number and no bool."""
    return isinstance(value, Real) and not isinstance(value, bool)


def _is_share(value: Any) -> bool:
    return is_number(value) and 0 <= value < math.inf


def _is_count(value: Any) -> bool:
    try:
        return not isinstance(value, bool) and operator.index(value) >= 0
    except TypeError:
        return False


def _a(value: object) -> str:
    return "None" if value is None else f"of type {type(value).__name__}"
