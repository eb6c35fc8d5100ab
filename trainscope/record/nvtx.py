"""Ranges on the timeline of Nsight Systems: the NVTX domain ``trainscope``.

With no tool attached there is no domain, and a range costs nothing here. With one, ranges go
through the ``nvtx`` package with registered strings. An older nsys refuses NVTX's extensions, which
the package takes for "nobody listens"; the domain is then built past its check, since the tool
still records every push and pop.

How to read the backward range in nsys: the kernels of a backward pass are launched by the autograd
thread, while the range is pushed by the thread that called ``backward()``. So look for the launches
(``CUPTI_ACTIVITY_KIND_RUNTIME`` rows) whose start lies between the start and the end of the range,
on whichever thread, and follow their ``correlationId`` to the kernels. Asking for launches on the
range's own thread finds none of them. The call returns only when the autograd thread has launched
everything, so the range covers all of them in time.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import ModuleType
from typing import Any

__all__ = ["DOMAIN_NAME", "Domain", "NvtxReach", "TorchDomain", "open_domain", "reach"]

DOMAIN_NAME = "trainscope"
_STEP = "step "
_MAX_NAMES = 4096  # of about 700 bytes each; later names are registered anew at each push


@dataclass(frozen=True)
class NvtxReach:
    """Whether ranges reach a tool, and by which way."""

    backend: str | None
    """``nvtx``, ``nvtx past its check``, ``torch.cuda.nvtx``, or None: no range is shown."""
    version: str | None
    """Of the ``nvtx`` package; None where it is not installed."""
    tool_attached: bool
    reason: str
    """Why it is so, and what to do where no range is shown."""


class Domain:
    """Push and pop named ranges in a domain of the ``nvtx`` package.

    A name is registered with the tool once. A step's name ("step 17") is used once, so it is
    registered without being kept, and carries its number as an integer payload.
    """

    def __init__(self, lib: Any, domain: Any) -> None:
        self._domain = domain
        self._handle = domain.handle
        self._push: Callable[[Any, Any], None] = lib.push_range
        self._pop: Callable[[Any], None] = lib.pop_range
        self._register: Callable[[Any, str], Any] = lib.RegisteredString
        self._known: dict[str, Any] = {}
        # one object for all names that are not kept: the tool reads it during the push
        self._passing = domain.get_event_attributes(message="step", payload=0)

    def push(self, name: str) -> None:
        """Open a range on the calling thread."""
        self._push(self._known.get(name) or self._attributes(name), self._handle)

    def pop(self) -> None:
        """Close the innermost range of the calling thread."""
        self._pop(self._handle)

    def _attributes(self, name: str) -> Any:
        number = name[len(_STEP) :] if name.startswith(_STEP) else ""
        if number.isdecimal() or len(self._known) >= _MAX_NAMES:
            passing = self._passing
            passing.message = self._register(self._handle, name)
            passing.payload = int(number) if number.isdecimal() else None
            return passing
        attributes = self._known[name] = self._domain.get_event_attributes(message=name)
        return attributes


class TorchDomain:
    """The same through torch's own NVTX calls, which know no domain: names get a prefix."""

    def __init__(self, torch_nvtx: Any) -> None:
        self._push: Callable[[str], object] = torch_nvtx.range_push
        self._pop: Callable[[], object] = torch_nvtx.range_pop

    def push(self, name: str) -> None:
        """Open a range on the calling thread."""
        self._push(f"{DOMAIN_NAME}: {name}")

    def pop(self) -> None:
        """Close the innermost range of the calling thread."""
        self._pop()


def open_domain(environ: Mapping[str, str] | None = None) -> Domain | TorchDomain | None:
    """Return where ranges go, or None when no tool is attached or none can be reached."""
    return _open(os.environ if environ is None else environ)[0]


def reach(environ: Mapping[str, str] | None = None) -> NvtxReach:
    """Tell whether ranges of this process reach a tool, and if not, why."""
    return _open(os.environ if environ is None else environ)[1]


def _open(environ: Mapping[str, str]) -> tuple[Domain | TorchDomain | None, NvtxReach]:
    nvtx, version = _package()
    path = environ.get("NVTX_INJECTION64_PATH", "")
    if environ.get("NVTX_DISABLE"):
        reason = "NVTX_DISABLE is set in the environment; unset it to see ranges"
        return None, NvtxReach(None, version, bool(path), reason)
    if os.path.isabs(path) and not os.path.exists(path):
        reason = f"NVTX_INJECTION64_PATH names {path}, which is not there; unset it"
        return None, NvtxReach(None, version, False, reason)
    if nvtx is not None:
        try:
            lib = importlib.import_module("nvtx._lib.lib")
            domain = nvtx.get_domain(DOMAIN_NAME)
            dummy = getattr(lib, "DummyDomain", None)
            if dummy is not None and not isinstance(domain, dummy):
                return Domain(lib, domain), NvtxReach("nvtx", version, True, "a tool listens")
            if not path:
                return None, NvtxReach("nvtx", version, False, "no tool is attached")
            if dummy is None:  # up to 0.2.11 the package has no check
                return Domain(lib, domain), NvtxReach("nvtx", version, True, "a tool is attached")
            reason = "the tool answers that nobody listens, as nsys up to 2023.4 does; it does"
            return Domain(lib, _build_past_check()), NvtxReach(
                "nvtx past its check", version, True, reason
            )
        except (AttributeError, ImportError, TypeError) as error:
            why = f"nvtx {version} has other inner parts than trainscope knows ({error})"
    else:
        why = "the nvtx package is not installed (it has no wheel for macOS)"
    if not path:
        return None, NvtxReach(None, version, False, f"no tool is attached, and {why}")
    torch_nvtx = _torch_nvtx()
    if torch_nvtx is not None:
        return TorchDomain(torch_nvtx), NvtxReach("torch.cuda.nvtx", version, True, why)
    advice = "install nvtx 0.2.11 or newer: pip install nvtx"
    return None, NvtxReach(
        None, version, True, f"{why}, and this torch has no NVTX of its own; {advice}"
    )


def _package() -> tuple[ModuleType | None, str | None]:
    try:
        nvtx = importlib.import_module("nvtx")
    except ImportError:
        return None, None
    from importlib.metadata import PackageNotFoundError, version

    try:
        return nvtx, version("nvtx")
    except PackageNotFoundError:
        return nvtx, None


@lru_cache(maxsize=1)  # a second domain of the same name would be a second row in the timeline
def _build_past_check() -> Any:
    """A real ``Domain`` of the nvtx package (0.2.12 to 0.2.17), whatever its check says."""
    lib = importlib.import_module("nvtx._lib.lib")
    domain = object.__new__(lib.Domain)
    domain.handle = lib.DomainHandle(DOMAIN_NAME)
    domain.__init__(DOMAIN_NAME)
    return domain


def _torch_nvtx() -> Any:
    """``torch.cuda.nvtx`` where this torch was built with it, else None."""
    torch = importlib.import_module("torch")
    return torch.cuda.nvtx if hasattr(torch._C, "_nvtx") else None
