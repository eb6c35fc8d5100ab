"""The facts that ``trainscope doctor`` judges, looked up on this machine."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

from trainscope.cli.doctor_facts import Facts, TorchFacts
from trainscope.cli.nsys_tool import find_nsys, nsys_version

__all__ = ["look"]


def look() -> Facts:
    """Look everything up; imports torch, and runs ``nsys --version`` and ``nvidia-smi``."""
    from trainscope.record import nvtx

    torch, torch_error = _torch()
    driver, gpus = _nvidia_smi()
    reach = nvtx.reach()
    nsys = find_nsys(os.environ)
    return Facts(
        python=sys.version_info[:3],
        platform=sys.platform,
        torch=torch,
        torch_error=torch_error,
        driver=driver,
        nvidia_gpus=gpus,
        triton=_installed("triton"),
        nvtx=reach.version,
        nvtx_backend=reach.backend,
        nvtx_reason=reach.reason,
        tool_attached=reach.tool_attached,
        nsys_path=None if nsys is None else str(nsys),
        nsys_version=None if nsys is None else nsys_version(nsys),
        wandb=_installed("wandb"),
        tensorboard=_installed("tensorboard"),
        kernels=_kernels(find_spec("kernels")),
    )


def _torch() -> tuple[TorchFacts | None, str | None]:
    if find_spec("torch") is None:
        return None, None
    try:
        torch = import_module("torch")
        available = torch.cuda.is_available()
        return (
            TorchFacts(
                version=torch.__version__,
                cuda=torch.version.cuda,
                hip=torch.version.hip,
                cuda_available=available,
                mps_available=torch.backends.mps.is_available(),
                gpus=tuple(
                    torch.cuda.get_device_name(index)
                    for index in range(torch.cuda.device_count() if available else 0)
                ),
                kineto=torch.autograd.kineto_available(),
            ),
            None,
        )
    except Exception as fault:  # a broken install fails in many ways, and which one is the finding
        return None, f"does not work: {type(fault).__name__}: {fault}"


def _nvidia_smi() -> tuple[str | None, tuple[str, ...]]:
    """The driver's version and the GPUs it knows; (None, ()) where there is none."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return None, ()
    try:
        done = subprocess.run(
            [tool, "--query-gpu=driver_version,name", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=20,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None, ()
    if done.returncode != 0:
        return None, ()
    rows = [line.partition(", ") for line in done.stdout.splitlines() if ", " in line]
    return (rows[0][0] if rows else None), tuple(name for _, _, name in rows)


def _installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _kernels(spec: ModuleSpec | None) -> str | None:
    """What ``import kernels`` would give: see ``Facts.kernels``."""
    if spec is None:
        return None
    return "namespace" if spec.origin is None else _installed("kernels") or "of unknown version"
