"""Short names of kernels, and which kernels are collectives."""

from __future__ import annotations

import re

__all__ = ["collective_of", "short_name"]

LONGEST = 90
_FUNCTOR = re.compile(
    r"(\w+?)(?:_kernel_cuda|_functor|_kernel_impl)\b|(?:CUDAFunctor(?:OnSelf)?_?)(\w+)"
)
_COLLECTIVE = re.compile(
    r"(?:ncclDevKernel|ncclKernel|ncclSymkDevKernel|rcclGenericKernel|nccl)_?(?P<what>[A-Za-z]+)",
)  # fmt: skip


def short_name(name: str) -> str:
    """The bare name of a kernel; of torch's elementwise ones with the function that they apply."""
    text = name.removeprefix("void ")
    inside = text[len(_outside(text)) :]
    bare = _outside(text).replace("(anonymous namespace)::", "").rpartition("::")[2] or text
    functor = _FUNCTOR.search(inside)
    if functor is not None:
        bare = f"{bare} [{functor.group(1) or functor.group(2)}]"
    return bare if len(bare) <= LONGEST else f"{bare[: LONGEST - 1]}…"


def collective_of(name: str) -> str | None:
    """``AllReduce``, ``SendRecv`` or the like for a kernel of NCCL; None for any other."""
    if "nccl" not in name[:60].lower() and "rccl" not in name[:60].lower():
        return None
    match = _COLLECTIVE.search(name)
    return match.group("what") if match is not None else "collective"


def _outside(text: str) -> str:
    """What stands before template and call arguments."""
    text = text.replace("(anonymous namespace)", "\0")
    ends = [place for place in (text.find("<"), text.find("(")) if place > 0]
    return (
        text[: min(ends)].replace("\0", "(anonymous namespace)")
        if ends
        else text.replace("\0", "(anonymous namespace)")
    )
