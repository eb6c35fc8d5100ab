"""Recordings that nsys itself has to export, by a stand-in for nsys and by a real one."""

from __future__ import annotations

import gzip
import sys
from pathlib import Path

import pytest
from nsys_file import gid, write
from nsys_tool import nsys, profile  # noqa: F401

from trainscope.errors import TraceError
from trainscope.trace.nsys.read import RECORDED, read_nsys
from trainscope.trace.torch_trace import read_torch_trace

KERNEL = {"start": 3, "end": 4, "deviceId": 0, "streamId": 7, "globalPid": gid(), "shortName": 1}


@pytest.fixture
def exporter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program in the place of nsys that copies a built export to where it is told."""
    built = write(tmp_path / "built.sqlite", {"KERNEL": [KERNEL]}, strings=("gelu",))
    program = tmp_path / "nsys"
    program.write_text(
        f"#!{sys.executable}\n"
        "import shutil, sys\n"
        "assert sys.argv[1:4] == ['export', '--type=sqlite', '--force-overwrite=true']\n"
        "output, recording = sys.argv[4:]\n"
        "assert open(recording, 'rb').read().startswith(b'NVIDIA')\n"
        f"shutil.copy({str(built)!r}, output.removeprefix('--output='))\n"
        f"open({str(tmp_path / 'where')!r}, 'w').write(output.removeprefix('--output='))\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("NSYS", str(program))
    return program


@pytest.mark.parametrize("name", ["r.nsys-rep", "r.qdrep", "renamed", "r.nsys-rep.gz"])
def test_a_recording_is_exported_into_a_folder_that_is_gone_afterwards(
    tmp_path: Path, exporter: Path, name: str
) -> None:
    content = RECORDED + b" 2023.4"
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    window = read_nsys(tmp_path / name)
    assert window.names[window.gpu.name_id[0]] == "gelu"
    assert window.file == str(tmp_path / name)
    assert not Path((tmp_path / "where").read_text()).parent.exists()
    assert not (tmp_path / "r.sqlite").exists()


@pytest.mark.parametrize(
    ("program", "words"),
    [
        (
            r"printf 'Processing 9: [==9%% ]\rProcessing 9: [==99%% ]\nWrong magic.\n' >&2; exit 1",
            r"r\.nsys-rep cannot be exported by .*nsys: Wrong magic; an nsys older than",
        ),
        ("exit 3", r"r\.nsys-rep cannot be exported by .*: it ended with status 3"),
        ("exit 0", r"r\.nsys-rep cannot be exported by .*: it ended with status 0"),
    ],
)
def test_what_nsys_said_last_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, words: str
) -> None:
    (tmp_path / "r.nsys-rep").write_bytes(RECORDED)
    (tmp_path / "nsys").write_text(f"#!/bin/sh\n{program}\n")
    (tmp_path / "nsys").chmod(0o755)
    monkeypatch.setenv("NSYS", str(tmp_path / "nsys"))
    with pytest.raises(TraceError, match=words):
        read_nsys(tmp_path / "r.nsys-rep")


def test_without_nsys_it_is_told_how_to_get_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "r.nsys-rep").write_bytes(RECORDED)
    monkeypatch.setenv("NSYS", str(tmp_path / "none"))
    with pytest.raises(TraceError, match=r"has to be exported by nsys, and NSYS=.*none is no prog"):
        read_nsys(tmp_path / "r.nsys-rep")


def test_a_recording_is_no_trace_of_torch_profiler(tmp_path: Path) -> None:
    (tmp_path / "r").write_bytes(RECORDED)
    with pytest.raises(TraceError):
        read_torch_trace(tmp_path / "r")


PROGRAM = """
import ctypes, glob, nvtx._lib.lib as lib, time
domain = object.__new__(lib.Domain); domain.handle = lib.DomainHandle("trainscope")
domain.__init__("trainscope")
for step in range(3):
    lib.push_range(domain.get_event_attributes(message=f"step {step}"), domain.handle)
    lib.push_range(domain.get_event_attributes(message="forward"), domain.handle)
    time.sleep(0.01)
    lib.pop_range(domain.handle)
    lib.pop_range(domain.handle)
"""


def test_ranges_of_a_real_recording(
    tmp_path: Path,
    nsys: str,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "loop.py").write_text(PROGRAM)
    done = profile(nsys, tmp_path / "r", str(tmp_path / "loop.py"))
    assert done.returncode == 0, done.stderr
    monkeypatch.setenv("NSYS", nsys)
    window = read_nsys(tmp_path / "r.nsys-rep")
    names = [window.names[i] for i in window.ranges.name_id]
    assert names == ["step 0", "forward", "step 1", "forward", "step 2", "forward"]
    length = (window.ranges.end_ns - window.ranges.start_ns)[1::2]
    assert ((length >= 10_000_000) & (length < 1_000_000_000)).all()
    (thread,) = window.threads
    assert thread.pid == thread.tid
    assert window.problems[0].startswith("no CUDA calls and no GPU work: record with --trace=")
    assert window.unix_ns_at_zero is not None
    assert abs(window.unix_ns_at_zero / 1e9 - (tmp_path / "r.nsys-rep").stat().st_mtime) < 600
