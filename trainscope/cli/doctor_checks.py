"""What ``trainscope doctor`` makes of the facts it found: pure, and without any of the tools."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

from trainscope.cli.doctor_facts import Facts
from trainscope.cli.nsys_tool import GET_NSYS, lost_rows_note, tried_note

__all__ = ["Check", "Status", "checks"]

OLDEST_PYTHON = (3, 10)
OLDEST_TORCH = (2, 9)
_OLDEST_NVTX = (0, 2, 11)
_CHECKED_SINCE = (0, 2, 12)  # the nvtx package asks the tool whether it listens
_ANSWERS_SINCE = (2025, 3)  # first nsys seen to answer it
_NO_SUCH = ("no CUDA device", "`trainscope run` makes a dry run here: it finds lines, not times")


class Status(str, Enum):
    """How one thing stands."""

    ok = "ok"
    attention = "attention"
    not_there = "not there"


@dataclass(frozen=True)
class Check:
    """One line of the doctor's table."""

    name: str
    status: Status
    found: str
    todo: str = ""
    """What to do about it; empty when nothing is to be done."""
    broken: bool = False
    """Something that trainscope needs does not work."""


def checks(facts: Facts) -> tuple[Check, ...]:
    """Judge each fact, in the order a reader would ask."""
    return (
        _python(facts),
        _torch(facts),
        *_gpu(facts),
        _driver(facts),
        *_other_devices(facts),
        _profiler(facts),
        _nsys(facts),
        _nvtx(facts),
        _triton(facts),
        _sink("wandb", facts.wandb, "ts.sinks.Wandb"),
        _sink("tensorboard", facts.tensorboard, "ts.sinks.TensorBoard"),
        _kernels(facts),
    )


def _python(facts: Facts) -> Check:
    found = ".".join(map(str, facts.python))
    if facts.python[:2] >= OLDEST_PYTHON:
        return Check("Python", Status.ok, found)
    todo = "install Python {}.{} or newer".format(*OLDEST_PYTHON)
    return Check("Python", Status.attention, found, todo, broken=True)


def _torch(facts: Facts) -> Check:
    torch = facts.torch
    if torch is None:
        if facts.torch_error is None:
            todo = "install it as https://pytorch.org says for this machine"
            return Check("torch", Status.not_there, "not installed", todo, broken=True)
        todo = "reinstall it as https://pytorch.org says for this machine"
        return Check("torch", Status.attention, facts.torch_error, todo, broken=True)
    build = "CPU build"
    if torch.hip is not None:
        build = f"ROCm {torch.hip}"
    elif torch.cuda is not None:
        build = f"CUDA {torch.cuda}"
    found = f"{torch.version}, {build}"
    if _numbers(torch.version)[:2] < OLDEST_TORCH:
        todo = "install torch {}.{} or newer".format(*OLDEST_TORCH)
        return Check("torch", Status.attention, found, todo, broken=True)
    if torch.cuda is None and torch.hip is None and facts.nvidia_gpus:
        todo = "this torch cannot use the GPU: install a CUDA build as https://pytorch.org says"
        return Check("torch", Status.attention, found, todo)
    return Check("torch", Status.ok, found)


def _gpu(facts: Facts) -> tuple[Check, ...]:
    torch = facts.torch
    if torch is not None and torch.cuda_available:
        return (Check("GPU", Status.ok, ", ".join(torch.gpus)),)
    if facts.nvidia_gpus:
        found = f"{', '.join(facts.nvidia_gpus)}, not usable by this torch"
        todo = "is CUDA_VISIBLE_DEVICES empty, or the driver older than torch's CUDA needs?"
        return (Check("GPU", Status.attention, found, todo),)
    return (Check("GPU", Status.not_there, *_NO_SUCH),)


def _driver(facts: Facts) -> Check:
    if facts.driver is not None:
        return Check("NVIDIA driver", Status.ok, facts.driver)
    if facts.torch is not None and facts.torch.cuda_available and facts.torch.hip is None:
        return Check("NVIDIA driver", Status.attention, "nvidia-smi does not say its version")
    return Check("NVIDIA driver", Status.not_there, "none")


def _other_devices(facts: Facts) -> tuple[Check, ...]:
    torch = facts.torch
    found = []
    if torch is not None and torch.hip is not None:
        text = "treated as CUDA, and not tested: check what it reports against rocprof"
        found.append(Check("ROCm", Status.attention, f"ROCm {torch.hip}", text))
    if torch is not None and torch.mps_available:
        text = "not supported: waits for Apple's GPU are not seen; use --dry-run on the CPU"
        found.append(Check("MPS", Status.attention, "Apple GPU", text))
    return tuple(found)


def _profiler(facts: Facts) -> Check:
    if facts.torch is None:
        return Check("torch.profiler", Status.not_there, "needs torch")
    if facts.torch.kineto:
        return Check("torch.profiler", Status.ok, "captures the windows of a schedule")
    todo = "this torch was built without Kineto: windows hold no trace; use a build of pytorch.org"
    return Check("torch.profiler", Status.attention, "built without Kineto", todo)


def _nsys(facts: Facts) -> Check:
    if facts.nsys_path is None:
        return Check("nsys", Status.not_there, "not found", f"for timelines, {GET_NSYS}")
    if facts.nsys_version is None:
        todo = f"{facts.nsys_path} --version prints no version; {GET_NSYS}"
        return Check("nsys", Status.attention, facts.nsys_path, todo)
    found = "{}.{} ".format(*facts.nsys_version) + f"({facts.nsys_path})"
    cuda = None if facts.torch is None else facts.torch.cuda
    said = (tried_note(facts.nsys_version), lost_rows_note(facts.nsys_version, cuda))
    todo = "; ".join(note for note in said if note is not None)
    return Check("nsys", Status.attention if todo else Status.ok, found, todo)


def _nvtx(facts: Facts) -> Check:
    """Whether ranges show under the nsys that is here, or under the tool attached now."""
    package = f"nvtx {facts.nvtx}"
    if facts.tool_attached:
        if facts.nvtx_backend is None:
            return Check("NVTX ranges", Status.attention, "not shown", facts.nvtx_reason)
        found = f"shown to the attached tool through {facts.nvtx_backend}"
        return Check("NVTX ranges", Status.ok, found)
    if facts.nvtx is None:
        if facts.platform == "darwin":
            found = "the nvtx package has no wheel for macOS, nor is there an nsys to record them"
            return Check("NVTX ranges", Status.not_there, found)
        if facts.torch is not None and facts.torch.cuda is not None:
            found = "no nvtx package: shown through torch.cuda.nvtx, with a prefix and no domain"
            return Check("NVTX ranges", Status.attention, found, "pip install nvtx")
        found = "no nvtx package, so no ranges on a timeline"
        return Check("NVTX ranges", Status.not_there, found, "pip install nvtx")
    if "NVTX_DISABLE" in facts.nvtx_reason or "NVTX_INJECTION64_PATH" in facts.nvtx_reason:
        return Check("NVTX ranges", Status.attention, package, facts.nvtx_reason)
    if _numbers(facts.nvtx) < _OLDEST_NVTX:
        todo = "trainscope needs nvtx 0.2.11 or newer: pip install -U nvtx"
        return Check("NVTX ranges", Status.attention, package, todo)
    if facts.nsys_version is None:
        return Check("NVTX ranges", Status.ok, f"{package}: shown once there is an nsys")
    how = "shown"
    if facts.nsys_version < _ANSWERS_SINCE and _numbers(facts.nvtx) >= _CHECKED_SINCE:
        how = "shown past its check"  # which takes this nsys for nobody
    nsys = "nsys {}.{}".format(*facts.nsys_version)
    return Check("NVTX ranges", Status.ok, f"{package} under {nsys}: ranges {how}")


def _sink(package: str, version: str | None, sink: str) -> Check:
    from trainscope.metrics.sinks.needed import install_command, oldest, too_old

    install = install_command(package)
    if version is None:
        found = f"not installed; only {sink} needs it"
        return Check(package, Status.not_there, found, f"{install}, if you want it")
    if too_old(package, version):
        todo = f"{sink} needs {oldest(package)}: {install}"
        return Check(package, Status.attention, version, todo)
    return Check(package, Status.ok, version)


def _triton(facts: Facts) -> Check:
    if facts.triton is None:
        found = "not installed; only the Triton kernels of trainscope_kernels need it"
        todo = "pip install triton, if you want them" if facts.platform == "linux" else ""
        return Check("triton", Status.not_there, found, todo)
    return Check("triton", Status.ok, facts.triton)


def _kernels(facts: Facts) -> Check:
    if facts.kernels is None:
        found = "nothing, as it should be: it is Hugging Face's name"
        return Check("import kernels", Status.ok, found)
    if facts.kernels == "namespace":
        found = (
            "an empty namespace, from the folder of trainscope_kernels in an editable install: "
            "harmless, and Hugging Face's package of that name takes its place once installed"
        )
        return Check("import kernels", Status.ok, found)
    return Check("import kernels", Status.ok, f"Hugging Face's kernels {facts.kernels}")


def _numbers(version: str) -> tuple[int, ...]:
    """Leading numbers of a version: (2, 11, 0) of ``2.11.0+cu130``."""
    match = re.match(r"\d+(\.\d+)*", version)
    return tuple(map(int, match[0].split("."))) if match else ()
