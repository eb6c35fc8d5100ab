"""``trainscope doctor``: each fact judged by itself, and a status that fails only where it must."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import pytest

from trainscope.cli.doctor import as_json, as_table
from trainscope.cli.doctor_checks import Check, Status, checks
from trainscope.cli.doctor_facts import Facts, TorchFacts
from trainscope.cli.doctor_probes import _kernels

GPU_TORCH = TorchFacts(
    version="2.11.0+cu130", cuda="13.0", cuda_available=True, gpus=("NVIDIA H200",)
)
ALL_WELL = Facts(
    python=(3, 12, 4),
    platform="linux",
    torch=GPU_TORCH,
    driver="580.159",
    nvidia_gpus=("NVIDIA H200",),
    triton="3.6.0",
    nvtx="0.2.17",
    nvtx_backend="nvtx",
    nvtx_reason="no tool is attached",
    nsys_path="/usr/bin/nsys",
    nsys_version=(2025, 3),
    wandb="0.31.0",
    tensorboard="2.21.0",
)
CPU_TORCH = TorchFacts(version="2.13.0+cpu")


def line(name: str, **changed: Any) -> Check:
    """The line of that name where these facts are different from a machine on which all is well."""
    (found,) = (c for c in checks(replace(ALL_WELL, **changed)) if c.name == name)
    return found


def test_where_all_is_well_every_line_is_ok() -> None:
    assert [(c.name, c.status.value, c.found, c.todo) for c in checks(ALL_WELL)] == [
        ("Python", "ok", "3.12.4", ""),
        ("torch", "ok", "2.11.0+cu130, CUDA 13.0", ""),
        ("GPU", "ok", "NVIDIA H200", ""),
        ("NVIDIA driver", "ok", "580.159", ""),
        ("torch.profiler", "ok", "captures the windows of a schedule", ""),
        ("nsys", "ok", "2025.3 (/usr/bin/nsys)", ""),
        ("NVTX ranges", "ok", "nvtx 0.2.17 under nsys 2025.3: ranges shown", ""),
        ("triton", "ok", "3.6.0", ""),
        ("wandb", "ok", "0.31.0", ""),
        ("tensorboard", "ok", "2.21.0", ""),
        ("import kernels", "ok", "nothing, as it should be: it is Hugging Face's name", ""),
    ]


# ---- what is needed ------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("name", "changed", "status", "text"),
    [
        ("Python", {"python": (3, 9, 1)}, "attention", "install Python 3.10 or newer"),
        ("torch", {"torch": None}, "not there", "install it as https://pytorch.org says"),
        (
            "torch",
            {"torch": None, "torch_error": "does not work: OSError: libcudart.so.12"},
            "attention",
            "reinstall it",
        ),
        (
            "torch",
            {"torch": replace(GPU_TORCH, version="2.8.1+cu126")},
            "attention",
            "install torch 2.9 or newer",
        ),
    ],
)
def test_what_trainscope_needs_is_broken_without_it(
    name: str, changed: dict[str, Any], status: str, text: str
) -> None:
    found = line(name, **changed)
    assert (found.status.value, found.broken) == (status, True)
    assert text in found.todo


@pytest.mark.parametrize(
    "changed",
    [
        {"torch": CPU_TORCH, "driver": None, "nvidia_gpus": ()},
        {"nsys_path": None, "nsys_version": None, "nvtx": None, "nvtx_backend": None},
        {"triton": None, "wandb": None, "tensorboard": None, "kernels": "namespace"},
        {"nsys_version": (2019, 1), "wandb": "0.12.0"},
    ],
)
def test_nothing_else_is_broken(changed: dict[str, Any]) -> None:
    assert not any(check.broken for check in checks(replace(ALL_WELL, **changed)))


def test_two_digit_minors_are_no_older() -> None:
    assert line("torch", torch=replace(GPU_TORCH, version="2.10.0")).status is Status.ok
    assert line("torch", torch=replace(GPU_TORCH, version="2.9.0a0+git1234")).status is Status.ok


# ---- GPUs ----------------------------------------------------------------------------------------
def test_no_gpu_means_dry_runs() -> None:
    gpu = line("GPU", torch=CPU_TORCH, driver=None, nvidia_gpus=())
    assert (gpu.status, gpu.found) == (Status.not_there, "no CUDA device")
    assert "dry run" in gpu.todo
    assert line("torch", torch=CPU_TORCH, nvidia_gpus=()) == Check(
        "torch", Status.ok, "2.13.0+cpu, CPU build"
    )


def test_a_cpu_build_beside_a_gpu_is_told() -> None:
    torch = line("torch", torch=CPU_TORCH)
    assert (torch.status, torch.found) == (Status.attention, "2.13.0+cpu, CPU build")
    assert "install a CUDA build" in torch.todo
    assert line("GPU", torch=CPU_TORCH).found == "NVIDIA H200, not usable by this torch"


def test_a_cuda_build_that_sees_no_gpu_is_told() -> None:
    gpu = line("GPU", torch=replace(GPU_TORCH, cuda_available=False, gpus=()))
    assert gpu.status is Status.attention
    assert "CUDA_VISIBLE_DEVICES" in gpu.todo


def test_rocm_and_mps_are_told_for_what_they_are() -> None:
    rocm = replace(GPU_TORCH, cuda=None, hip="6.4", gpus=("AMD Instinct MI300X",))
    assert line("torch", torch=rocm, nvidia_gpus=()).found == "2.11.0+cu130, ROCm 6.4"
    assert "treated as CUDA, and not tested" in line("ROCm", torch=rocm).todo
    apple = replace(CPU_TORCH, mps_available=True)
    assert "not supported" in line("MPS", torch=apple, nvidia_gpus=()).todo
    names = [check.name for check in checks(ALL_WELL)]
    assert "ROCm" not in names
    assert "MPS" not in names


def test_a_torch_without_kineto_is_told() -> None:
    assert line("torch.profiler", torch=replace(GPU_TORCH, kineto=False)).status is Status.attention
    assert line("torch.profiler", torch=None).status is Status.not_there


# ---- nsys and NVTX -------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("changed", "status", "found", "todo"),
    [
        (
            {"nsys_version": (2023, 4)},
            "ok",
            "nvtx 0.2.17 under nsys 2023.4: ranges shown past its check",
            "",
        ),
        (
            {"nsys_version": (2022, 4), "nvtx": "0.2.11"},
            "ok",
            "nvtx 0.2.11 under nsys 2022.4: ranges shown",
            "",
        ),
        ({"nsys_version": None}, "ok", "nvtx 0.2.17: shown once there is an nsys", ""),
        (
            {"nvtx": "0.2.5"},
            "attention",
            "nvtx 0.2.5",
            "trainscope needs nvtx 0.2.11 or newer: pip install -U nvtx",
        ),
        (
            {"tool_attached": True, "nvtx_backend": "nvtx past its check"},
            "ok",
            "shown to the attached tool through nvtx past its check",
            "",
        ),
        (
            {"tool_attached": True, "nvtx_backend": None, "nvtx_reason": "why; what to install"},
            "attention",
            "not shown",
            "why; what to install",
        ),
        (
            {"nvtx": None, "nvtx_backend": None},
            "attention",
            "no nvtx package: shown through torch.cuda.nvtx, with a prefix and no domain",
            "pip install nvtx",
        ),
        (
            {"nvtx": None, "nvtx_backend": None, "torch": CPU_TORCH},
            "not there",
            "no nvtx package, so no ranges on a timeline",
            "pip install nvtx",
        ),
        (
            {"nvtx": None, "nvtx_backend": None, "platform": "darwin"},
            "not there",
            "the nvtx package has no wheel for macOS, nor is there an nsys to record them",
            "",
        ),
        (
            {"nvtx_backend": None, "nvtx_reason": "NVTX_DISABLE is set; unset it"},
            "attention",
            "nvtx 0.2.17",
            "NVTX_DISABLE is set; unset it",
        ),
    ],
)
def test_where_ranges_show(changed: dict[str, Any], status: str, found: str, todo: str) -> None:
    assert line("NVTX ranges", **changed) == Check("NVTX ranges", Status(status), found, todo)


@pytest.mark.parametrize(
    ("nsys", "cuda", "status"),
    [
        ((2023, 4), "13.0", "attention"),
        ((2024, 6), "14.1", "attention"),
        ((2025, 1), "13.0", "ok"),
        ((2023, 4), "12.8", "ok"),
    ],
)
def test_an_nsys_older_than_cuda_13(nsys: tuple[int, int], cuda: str, status: str) -> None:
    found = line("nsys", nsys_version=nsys, torch=replace(GPU_TORCH, cuda=cuda))
    assert found.status.value == status
    if status == "attention":
        assert found.todo.startswith(
            "nsys {}.{} is older than CUDA {}: nsys 2023.4 with torch 2.11.0+cu130".format(
                *nsys, cuda
            )
        )
        assert "profile a window" in found.todo
    else:
        assert found.todo == ""


def test_nsys_missing_silent_old_and_new() -> None:
    missing = line("nsys", nsys_path=None, nsys_version=None)
    assert (missing.status, missing.found) == (Status.not_there, "not found")
    assert "https://developer.nvidia.com/nsight-systems" in missing.todo
    assert "prints no version" in line("nsys", nsys_version=None).todo
    assert "too old" in line("nsys", nsys_version=(2020, 1)).todo
    assert "is newer" in line("nsys", nsys_version=(2030, 1)).todo


# ---- optional packages ---------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("triton", "pip install triton, if you want them"),
        ("wandb", "pip install 'wandb>=0.19.10', if you want it"),
        ("tensorboard", "pip install 'tensorboard>=2.14', if you want it"),
    ],
)
def test_an_optional_package_says_who_needs_it(name: str, command: str) -> None:
    found = line(name, **{name: None})
    assert (found.status, found.todo) == (Status.not_there, command)


def test_there_is_no_triton_to_install_elsewhere() -> None:
    assert line("triton", triton=None, platform="darwin").todo == ""


@pytest.mark.parametrize(("version", "old"), [("0.19.9", True), ("0.19.10", False), ("1.0", False)])
def test_an_old_wandb_is_told(version: str, old: bool) -> None:
    said = "ts.sinks.Wandb needs 0.19.10: pip install 'wandb>=0.19.10'"
    assert line("wandb", wandb=version).todo == (said if old else "")


def test_whose_package_the_name_kernels_is() -> None:
    assert "empty namespace" in line("import kernels", kernels="namespace").found
    assert line("import kernels", kernels="0.10.2").found == "Hugging Face's kernels 0.10.2"
    assert _kernels(None) is None
    assert _kernels(ModuleSpec("kernels", None, is_package=True)) == "namespace"


# ---- rendering -----------------------------------------------------------------------------------
def test_the_table_word_for_word() -> None:
    found = (
        Check("torch", Status.ok, "2.11.0, CUDA 13.0"),
        Check("nsys", Status.not_there, "not found", "install it"),
        Check("NVTX ranges", Status.attention, "nvtx 0.2.5", "pip install -U nvtx"),
    )
    shown = [row.rstrip() for row in as_table(found, width=60).splitlines()]
    assert shown == [
        "what                    found",
        "torch        ok         2.11.0, CUDA 13.0",
        "nsys         not there  not found",
        "                        -> install it",
        "NVTX ranges  attention  nvtx 0.2.5",
        "                        -> pip install -U nvtx",
        "",
        "trainscope works here; worth a look: NVTX ranges",
    ]


def test_the_verdict() -> None:
    def verdict(*found: Check) -> str:
        return as_table(found, width=80).splitlines()[-1].rstrip()

    well = Check("Python", Status.ok, "3.12.4")
    assert verdict(well) == "trainscope works here"
    broken = Check("torch", Status.not_there, "not installed", "install it", broken=True)
    assert verdict(well, broken) == "trainscope cannot work here: torch"


def test_json_holds_every_line() -> None:
    found = (Check("torch", Status.not_there, "not installed", "install it", broken=True),)
    assert json.loads(as_json(found)) == {
        "schema_version": 1,
        "ok": False,
        "checks": [
            {
                "name": "torch",
                "status": "not there",
                "found": "not installed",
                "todo": "install it",
                "broken": True,
            }
        ],
    }


# ---- the command ---------------------------------------------------------------------------------
def doctor(*words: str, environ: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "trainscope", "doctor", *words],
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_it_looks_at_this_machine(tmp_path: Path) -> None:
    nsys = tmp_path / "nsys"
    nsys.write_text("#!/bin/sh\necho NVIDIA Nsight Systems version 2023.4.4.54-2344\n")
    nsys.chmod(0o755)
    done = doctor("--format", "json", environ={"NSYS": str(nsys)})
    assert done.returncode == 0, done.stderr
    rows = {row["name"]: row for row in json.loads(done.stdout)["checks"]}
    assert rows["Python"]["found"] == ".".join(map(str, sys.version_info[:3]))
    assert rows["nsys"]["found"] == f"2023.4 ({nsys})"
    import torch

    assert rows["torch"]["found"].startswith(torch.__version__)


def test_a_broken_torch_fails_and_names_the_fault(tmp_path: Path) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise OSError('libcudart.so.13 is missing')")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    done = doctor(environ={"PYTHONPATH": path})
    assert done.returncode == 1
    assert "does not work: OSError: libcudart.so.13 is missing" in done.stdout
    assert done.stdout.splitlines()[-1].rstrip() == "trainscope cannot work here: torch"
