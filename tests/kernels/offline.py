"""Triton kernels compiled for a GPU that is not there: what a launch asks for, but never run.

The launchers are called on CPU tensors, and where they would start a kernel it is only compiled: so
what is compiled is what a call compiles. Import it before anything imports Triton.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

os.environ["TRITON_INTERPRET"] = "0"
# ptxas says nothing of what comes out of the cache
os.environ |= {"TRITON_DUMP_PTXAS_LOG": "1", "TRITON_ALWAYS_COMPILE": "1"}
os.environ["TRITON_DISABLE_LINE_INFO"] = "1"  # the code is the same, a tenth of the time saved

import triton
from triton.backends.compiler import GPUTarget
from triton.runtime.jit import JITFunction

TOOLS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"


class Driver:
    """As much of a Triton driver as compiling for a GPU that is not there asks for."""

    def __init__(self, capability: int) -> None:
        self.capability = capability

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", self.capability, 32)

    def get_current_device(self) -> int:
        # Triton asks once for each device what it is
        return self.capability

    def get_current_stream(self, device: int) -> int:
        return 0


class Launched(NamedTuple):
    """A kernel that a launch asked for, compiled, and what ptxas said of it."""

    name: str
    made: Any
    said: str


@contextlib.contextmanager
def launches(capability: int, only: str = "") -> Iterator[list[Launched]]:
    """The launches inside the block, compiled for ``capability``; ``only`` those of this name."""
    found: list[Launched] = []

    def at(kernel: Any, grid: tuple[int, ...]) -> Any:
        def compile_only(*arguments: Any, **constants: Any) -> None:
            name = kernel.fn.__name__
            if name == (only or name):
                said = io.StringIO()
                with contextlib.redirect_stdout(said):
                    made = kernel.warmup(*arguments, grid=grid, **constants)
                found.append(Launched(name, made, said.getvalue()))

        return compile_only

    triton.runtime.driver.set_active(Driver(capability))  # type: ignore[arg-type]
    before = JITFunction.__getitem__
    JITFunction.__getitem__ = at
    try:
        yield found
    finally:
        JITFunction.__getitem__ = before


def disassembled(launched: Launched, *, always: bool = False) -> str:
    """The machine code as text; unless ``always`` empty where ptxas put nothing into local memory.

    It takes half a second, as long as ptxas itself.
    """
    frames = re.findall(r"(\d+) bytes stack frame", launched.said)
    assert frames, launched.said
    if not always and not any(int(each) for each in frames):
        return ""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(launched.made.asm["cubin"])
        file.flush()
        command = [str(TOOLS / "nvdisasm"), "-c", file.name]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout
