"""Which of the functions of a comparison is the reference, and which the baseline."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any

from trainscope.errors import ConfigError

__all__ = ["COPY", "Impls", "Reference", "chosen_baseline", "chosen_reference"]

Impls = Mapping[str, Callable[..., Any]]
Reference = str | Callable[..., Any]
COPY = "copy"
"""The name of the plain copy beside the functions."""


def chosen_reference(impls: Impls, reference: Reference) -> tuple[str, Callable[..., Any]]:
    """The reference's name and function.

    Raises:
        ConfigError: there are no functions, one has the copy's name, or the reference is unknown.
    """
    if not impls:
        raise ConfigError("impls is empty; pass at least one function by its name")
    if COPY in impls:
        raise ConfigError(f"impls holds {COPY!r}, the name of the plain copy; choose another")
    if isinstance(reference, str):
        return reference, impls[_known(impls, "reference", reference)]
    for name, fn in impls.items():
        if fn is reference:
            return name, fn
    return getattr(reference, "__name__", "reference"), reference


def chosen_baseline(impls: Impls, reference_name: str, baseline: str | None) -> str:
    """The name that is given, else the reference where it is one of the functions, else the first.

    Raises:
        ConfigError: the name is none of the functions.
    """
    if baseline is not None:
        return _known(impls, "baseline", baseline)
    return reference_name if reference_name in impls else next(iter(impls))


def _known(impls: Impls, argument: str, name: str) -> str:
    if name in impls:
        return name
    near = get_close_matches(name, impls, 1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise ConfigError(f"{argument}={name!r} is none of impls: {', '.join(impls)}{hint}")
