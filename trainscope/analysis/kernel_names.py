"""Short names of kernels, and which kernels are collectives."""

from __future__ import annotations

import re

__all__ = ["LONGEST", "collective_of", "short_name"]

LONGEST = 90
"""Characters of a short name; what is left is enough to tell it by."""
_FUNCTION = re.compile(
    r"(\w+?)(?:_kernel_cuda|_functor|_kernel_impl|CUDAKernelImpl)\b|CUDAFunctor(?:OnSelf)?_(\w+)"
)
_FUNCTOR = re.compile(r"(\w+)Functor\b")
_ANONYMOUS = "(anonymous namespace)"
_NO_NAMES = frozenset({"Kernel", "Kernel2", "kernel", "device_kernel"})
"""Names that a library gives to all its kernels; the first template argument tells them apart."""
_COLLECTIVE = re.compile(
    r"(?:ncclDevKernel|ncclKernel|ncclSymkDevKernel|rcclGenericKernel|nccl)_?(?P<what>[A-Za-z]+)",
)  # fmt: skip


def short_name(name: str) -> str:
    """The bare name of a kernel; with the function that an element-wise one applies."""
    text = name.removeprefix("void ").replace("<unnamed>", _ANONYMOUS)  # as nsys writes it
    inside = text[len(_outside(text)) :]
    bare = _outside(text).replace(_ANONYMOUS + "::", "").rpartition("::")[2] or text
    if bare in _NO_NAMES:
        first = re.match(r"<\s*(?:\w+::)*(\w+)", inside)
        bare = f"{bare} [{first.group(1)}]" if first is not None else bare
    elif (function := _FUNCTION.search(inside)) is not None:
        bare = f"{bare} [{function.group(1) or function.group(2)}]"
    elif functors := _FUNCTOR.findall(inside):
        bare = f"{bare} [{functors[-1]}]"  # the innermost: what the others are made of
    return bare if len(bare) <= LONGEST else f"{bare[: LONGEST - 1]}…"


def collective_of(name: str) -> str | None:
    """``AllReduce``, ``SendRecv`` or the like for a kernel of NCCL; None for any other."""
    if "nccl" not in name[:60].lower() and "rccl" not in name[:60].lower():
        return None
    match = _COLLECTIVE.search(name)
    return match.group("what") if match is not None else "collective"


def _outside(text: str) -> str:
    """What stands before template and call arguments."""
    text = text.replace(_ANONYMOUS, "\0")
    ends = [place for place in (text.find("<"), text.find("(")) if place > 0]
    return (text[: min(ends)] if ends else text).replace("\0", _ANONYMOUS)
