"""What the code of a model's classes calls, by name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from typing import Any

from torch import nn

from trainscope_kernels.swapping.called import (
    NAMES,
    called_in,
    function_of,
    names_in,
    replaced_name,
)
from trainscope_kernels.swapping.record import Swap

__all__ = ["INSIDE_TORCH", "names_a_call", "own_class", "places_of_calls", "runs_forward_of"]

INSIDE_TORCH = (
    *(nn.MultiheadAttention, nn.Transformer),
    *(nn.TransformerEncoder, nn.TransformerEncoderLayer),
)
"""Modules of torch's whose code calls what is replaced."""
ATTENDING = (nn.MultiheadAttention, nn.Transformer, nn.TransformerEncoderLayer)
"""Those whose forward does not leave all attention to other modules."""
CALLED = ("F.gelu", "F.softmax", "F.scaled_dot_product_attention")
NOW = {
    "F.gelu": "trainscope_kernels.gelu{}",
    "F.softmax": "trainscope_kernels.softmax{}",
    "F.scaled_dot_product_attention": "trainscope_kernels.flash_attention{}, but for dropout_p > 0 "
    "and a mask that wants a gradient",
}
"""In the braces: where."""
ENTRIES = ("forward", "__call__")
"""Methods by which a module is run; others run where code that runs names them."""


def places_of_calls(model: nn.Module, reached: Set[int], impl: str) -> Iterator[Swap]:
    """One for each class and function that its methods call below a forward.

    ``reached`` are the ids of the modules that run below a forward which replaces calls.
    """
    modules = [each for each in model.named_modules() if id(each[1]) in reached]
    run = _names_run(modules)
    seen: set[type] = set()
    listed: set[tuple[type, str]] = set()
    for name, module in modules:
        kind = type(module)
        if kind not in seen and runs_forward_of(ATTENDING, kind):
            was = f"nn.{kind.__name__}" if kind in ATTENDING else kind.__name__
            why = "torch calls its attention where no call can be replaced"
            yield Swap(name or "the model", was, None, why)
        own = own_class(module)
        if own is not None:
            calls = {replaced_name(each) for each in vars(module).values()}  # self.act = F.gelu
            if kind not in seen:
                calls |= {called for each in _methods(kind, run) for called in called_in(each)}
            for called in CALLED:
                if called in calls and (own, called) not in listed:
                    listed.add((own, called))
                    where = " on a GPU" if impl == "auto" else ""
                    if runs_forward_of(INSIDE_TORCH, kind):
                        where += " in training"
                    yield Swap(f"calls in {own.__name__}", called, NOW[called].format(where))
        seen.add(kind)


def runs_forward_of(torchs: tuple[type, ...], kind: type) -> bool:
    """Whether the class has the forward of one of torch's, or its own calls that."""
    forwards = [vars(each)["forward"] for each in torchs]
    return any(each in forwards for each in _methods(kind, {"forward"}, kind.__mro__))


def own_class(module: nn.Module) -> type | None:
    """The class whose forward it runs; None where that is torch's or ours.

    FSDP and parametrizations give a module a class that they make from its own.
    """
    for kind in type(module).__mro__:
        if "forward" in vars(kind):
            package = kind.__module__.partition(".")[0]
            return None if package in ("torch", "trainscope_kernels") else kind
    return None


def names_a_call(kind: type) -> bool:
    """Whether the name of a replaced function stands in the class's code, that of its bases too."""
    every = {name for base in _own_bases(kind) for name in vars(base)}
    names = {name for method in _methods(kind, every) for name in _names(method)}
    return not names.isdisjoint(NAMES)


def _own_bases(kind: type) -> list[type]:
    foreign = ("torch", "trainscope_kernels", "builtins")
    return [base for base in kind.__mro__ if base.__module__.partition(".")[0] not in foreign]


def _names_run(modules: list[tuple[str, nn.Module]]) -> set[str]:
    """What the code names that may run below the modules' forwards.

    A method that none of it names is left out: what ``generate`` does besides calling the model
    is not below its forward.
    """
    kinds = {type(module) for _, module in modules}
    names: set[str] = set(ENTRIES)
    looked: set[str] = set()
    while names - looked:
        now, looked = names - looked, set(names)
        for kind in kinds:
            for method in _methods(kind, now):
                names |= _names(method)
    return names


def _methods(kind: type, names: Set[str], bases: Sequence[type] | None = None) -> Iterator[Any]:
    """The class's own methods of these names, with those of its bases that these may call."""
    bases = _own_bases(kind) if bases is None else bases
    to_next = {"super", *(base.__name__ for base in bases)}
    for name in names:
        for base in bases:
            if name in vars(base):
                yield vars(base)[name]
                if to_next.isdisjoint(_names(vars(base)[name])):
                    break


def _names(method: Any) -> set[str]:
    function = function_of(method)
    return set() if function is None else names_in(function.__code__)
