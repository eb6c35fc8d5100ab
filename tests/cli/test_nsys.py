"""``trainscope nsys``: the command, the program's exit status, and ranges in a real report."""

from __future__ import annotations

import os
import shlex
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from nsys_tool import alone, export_sqlite, nsys, ranges_of_domain  # noqa: F401

from trainscope.cli.nsys import NsysPlan, command_line
from trainscope.cli.nsys_tool import (
    cuda_of_torch,
    find_nsys,
    lost_rows_note,
    nsys_version,
    tried_note,
)

FLAGS = ["--trace=cuda,nvtx,osrt", "--sample=none", "--cpuctxsw=none", "--wait=primary"]
RANGE = ["--capture-range=cudaProfilerApi", "--capture-range-end=stop"]

PROGRAM = """
import sys
import torch

model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    loss = model(torch.ones(2, 4)).sum()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print("arguments:", sys.argv[1:])
sys.exit(5)
"""


def trainscope(
    *words: str, cwd: Path, environ: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "trainscope", "nsys", *words],
        cwd=cwd,
        env={**os.environ, **(environ or {})},
        capture_output=True,
        text=True,
        timeout=180,
    )


@pytest.fixture
def fake_nsys(tmp_path: Path) -> dict[str, str]:
    """An nsys that prints a version and writes the report it is asked for; it runs nothing."""
    tool = tmp_path / "tool" / "nsys"
    tool.parent.mkdir()
    tool.write_text(
        "#!/bin/sh\n"
        'if [ "$1" = --version ]; then echo "Nsight Systems version $FAKE_VERSION"; exit; fi\n'
        'for word in "$@"; do case "$word" in --output=*) report="${word#--output=}";; esac; done\n'
        '[ -n "$FAKE_WRITES_NOTHING" ] || echo report > "$report.nsys-rep"\n'
        'exit "${FAKE_STATUS:-0}"\n'
    )
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    torch_for(tmp_path, None)
    path = os.pathsep.join([str(tmp_path / "tool"), os.environ.get("PYTHONPATH", "")])
    return {
        **{"NSYS": str(tool), "FAKE_VERSION": "2023.4.4.54-234433681190v0"},
        "PYTHONPATH": path.rstrip(os.pathsep),
    }


def torch_for(tmp_path: Path, cuda: str | None) -> None:
    """A torch built for that CUDA; nothing here imports it."""
    package = tmp_path / "tool" / "torch"
    package.mkdir(exist_ok=True)
    (package / "__init__.py").write_text("raise AssertionError('imported')")
    (package / "version.py").write_text(f"__version__ = '9'\ncuda: Optional[str] = {cuda!r}\n")


# ---- the command ---------------------------------------------------------------------------------
def test_the_whole_program() -> None:
    plan = NsysPlan(("train.py", "--lr", "1"), Path("runs/a"), Path("runs/a/nsys-rank0"), None)
    assert command_line(plan, nsys_path="nsys", python="python3") == [
        *("nsys", "profile", *FLAGS, "--output=runs/a/nsys-rank0"),
        *("python3", "-m", "trainscope", "run", "--run-dir=runs/a", "--active=0"),
        *("train.py", "--lr", "1"),
    ]


def test_a_window_names_the_end_of_the_capture_range() -> None:
    window = {"wait": 1, "warmup": 2, "active": 3}
    plan = NsysPlan(("-m", "pkg"), Path("d"), Path("d/nsys-rank0"), window, trace="cuda,nvtx")
    assert command_line(plan, nsys_path="nsys", python="python3") == [
        *("nsys", "profile", "--trace=cuda,nvtx", *FLAGS[1:], *RANGE),
        *("--output=d/nsys-rank0", "python3", "-m", "trainscope", "run", "--run-dir=d"),
        *("--wait=1", "--warmup=2", "--active=3", "-m", "pkg"),
    ]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (
            ["train.py", "--wait", "3"],  # after the script, its own
            [
                *FLAGS,
                *("--output=runs/train/nsys-rank0", sys.executable, "-m", "trainscope", "run"),
                *("--run-dir=runs/train", "--active=0", "train.py", "--wait", "3"),
            ],
        ),
        (
            ["--wait", "7", "-m", "pkg.tool", "--help"],
            [
                *FLAGS,
                *RANGE,
                *("--output=runs/tool/nsys-rank0", sys.executable, "-m", "trainscope", "run"),
                *("--run-dir=runs/tool", "--wait=7", "--warmup=3", "--active=4"),
                *("-m", "pkg.tool", "--help"),
            ],
        ),
        (
            ["--run-dir", "my runs/x", "--active=2", "train.py"],
            [
                *FLAGS,
                *RANGE,
                *("--output=my runs/x/nsys-rank0", sys.executable, "-m", "trainscope", "run"),
                *("--run-dir=my runs/x", "--wait=20", "--warmup=3", "--active=2", "train.py"),
            ],
        ),
    ],
)
def test_print_command_prints_it_and_runs_nothing(
    words: list[str], expected: list[str], tmp_path: Path, fake_nsys: dict[str, str]
) -> None:
    done = trainscope("--print-command", *words, cwd=tmp_path, environ=fake_nsys)
    assert done.returncode == 0, done.stderr
    assert shlex.split(done.stdout) == [fake_nsys["NSYS"], "profile", *expected]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tool"]


def test_print_command_needs_no_nsys(tmp_path: Path) -> None:
    gone = {"NSYS": str(tmp_path / "gone")}
    done = trainscope("--print-command", "train.py", cwd=tmp_path, environ=gone)
    assert (done.returncode, shlex.split(done.stdout)[:2]) == (0, ["nsys", "profile"])


def test_a_directory_in_use_is_left_alone(tmp_path: Path, fake_nsys: dict[str, str]) -> None:
    for name in ("train", "train-2"):
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "run.json").touch()
    done = trainscope("--print-command", "train.py", cwd=tmp_path, environ=fake_nsys)
    assert "--run-dir=runs/train-3" in shlex.split(done.stdout)


def test_ranks_share_the_directory_and_name_their_report(
    tmp_path: Path, fake_nsys: dict[str, str]
) -> None:
    (tmp_path / "runs" / "train" / "rank0").mkdir(parents=True)  # rank 0 was faster
    environ = {**fake_nsys, "RANK": "3", "WORLD_SIZE": "4"}
    done = trainscope("--print-command", "train.py", cwd=tmp_path, environ=environ)
    assert "--output=runs/train/nsys-rank3" in shlex.split(done.stdout)


def test_no_program_is_an_error_that_says_so(tmp_path: Path) -> None:
    done = trainscope(cwd=tmp_path)
    assert done.returncode == 2
    assert "name a script to run, or a module with -m" in done.stderr.replace("\n", " ")


# ---- running it ----------------------------------------------------------------------------------
def test_missing_nsys_is_127_and_says_how_to_get_it(tmp_path: Path) -> None:
    gone = str(tmp_path / "gone")
    done = trainscope("train.py", cwd=tmp_path, environ={"NSYS": gone})
    assert done.returncode == 127
    assert done.stderr.startswith(f"trainscope nsys: NSYS={gone} names no program; install Nsight")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("status", [0, 7, 143])
def test_the_exit_status_is_passed_on(
    status: int, tmp_path: Path, fake_nsys: dict[str, str]
) -> None:
    done = trainscope("t.py", cwd=tmp_path, environ={**fake_nsys, "FAKE_STATUS": str(status)})
    assert done.returncode == status
    assert "the timeline is in runs/t/nsys-rank0.nsys-rep" in done.stderr


def test_an_nsys_that_is_killed_shows_as_a_shell_shows_it(
    tmp_path: Path, fake_nsys: dict[str, str]
) -> None:
    Path(fake_nsys["NSYS"]).write_text(
        '#!/bin/sh\n[ "$1" = --version ] && { echo "version 2023.4"; exit; }\nkill -KILL $$\n'
    )
    done = trainscope("t.py", cwd=tmp_path, environ=fake_nsys)
    assert done.returncode == 137
    assert "nsys wrote no runs/t/nsys-rank0.nsys-rep" in done.stderr


def test_an_nsys_without_its_importer_is_told(tmp_path: Path, fake_nsys: dict[str, str]) -> None:
    (tmp_path / "train.py").write_text("")
    tool = Path(fake_nsys["NSYS"])
    tool.write_text(tool.read_text().replace("$report.nsys-rep", "$report.qdstrm"))
    done = trainscope("--active", "4", "train.py", cwd=tmp_path, environ=fake_nsys)
    assert "nsys wrote only its raw record, runs/train/nsys-rank0.qdstrm" in done.stderr


def test_a_window_that_never_began_is_told(tmp_path: Path, fake_nsys: dict[str, str]) -> None:
    environ = {**fake_nsys, "FAKE_WRITES_NOTHING": "1"}
    done = trainscope("--wait=9", "t.py", cwd=tmp_path, environ=environ)
    assert (
        "nsys wrote no timeline: the window (--wait 9 --warmup 3 --active 4) never began"
        in done.stderr
    )


@pytest.mark.parametrize(
    ("version", "said"),
    [
        ("2021.1.3", "nsys 2021.1 is too old to rely on"),
        ("2099.1.1", "nsys 2099.1 is newer"),
        ("2023.4.4", None),
    ],
)
def test_an_old_or_new_version_is_told_and_tried(
    version: str, said: str | None, tmp_path: Path, fake_nsys: dict[str, str]
) -> None:
    done = trainscope("t.py", cwd=tmp_path, environ={**fake_nsys, "FAKE_VERSION": version})
    assert done.returncode == 0
    assert (said in done.stderr) if said else ("nsys 2023" not in done.stderr)


@pytest.mark.parametrize(
    ("cuda", "version", "words", "warned"),
    [
        ("13.0", "2023.4.4", [], True),
        ("13.0", "2023.4.4", ["--active=2"], False),
        ("12.8", "2023.4.4", [], False),
        (None, "2023.4.4", [], False),
        ("13.0", "2025.1.1", [], False),
    ],
)
def test_an_nsys_older_than_cuda_13_is_told_where_no_window_is_asked_for(
    cuda: str | None,
    version: str,
    words: list[str],
    warned: bool,
    tmp_path: Path,
    fake_nsys: dict[str, str],
) -> None:
    torch_for(tmp_path, cuda)
    environ = {**fake_nsys, "FAKE_VERSION": version}
    done = trainscope(*words, "t.py", cwd=tmp_path, environ=environ)
    assert done.returncode == 0
    lines = [line for line in done.stderr.splitlines() if "is older than CUDA 13.0" in line]
    assert len(lines) == warned
    if warned:
        assert "trainscope nsys --wait 20 --active 4" in lines[0]


def test_the_cuda_of_this_torch_is_read_without_importing_it() -> None:
    import torch

    assert cuda_of_torch() == torch.version.cuda
    assert lost_rows_note((2024, 9), "13.1") is not None
    assert lost_rows_note((2024, 9), None) is None


# ---- finding it ----------------------------------------------------------------------------------
def test_where_nsys_is_looked_for(tmp_path: Path) -> None:
    def make(name: str) -> Path:
        path = tmp_path / name / "bin" / "nsys"
        path.parent.mkdir(parents=True)
        path.touch(mode=0o755)
        return path

    old, new, mine = make("2023.4.4"), make("2025.3.1"), make("mine")
    places = [str(tmp_path / "20*" / "bin" / "nsys")]

    def which(name: str) -> str | None:
        return name if os.access(name, os.X_OK) else None

    assert find_nsys({"NSYS": str(mine)}, which=which, places=places) == mine
    assert find_nsys({"NSYS": str(tmp_path / "gone")}, which=which, places=places) is None
    assert find_nsys({}, which=which, places=places) == new
    new.unlink()
    assert find_nsys({}, which=which, places=places) == old
    assert find_nsys({}, which=lambda name: "/usr/bin/nsys", places=places) == Path("/usr/bin/nsys")
    assert find_nsys({}, which=which, places=()) is None


def test_a_program_that_prints_no_version_has_none(tmp_path: Path) -> None:
    assert nsys_version(Path(sys.executable)) is None
    assert nsys_version(tmp_path / "gone") is None


def test_which_versions_are_spoken_of() -> None:
    assert [tried_note(version) is None for version in [(2022, 3), (2022, 4), (2025, 3)]] == [
        *(False, True, True)
    ]
    assert tried_note((2025, 4)) is not None


# ---- the real one --------------------------------------------------------------------------------
@pytest.mark.nsys
def test_a_real_nsys_shows_steps_and_phases_of_an_unedited_program(
    nsys: str,  # noqa: F811
    tmp_path: Path,
) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    done = alone(lambda: trainscope("train.py", "--lr", "3", cwd=tmp_path, environ={"NSYS": nsys}))
    assert done.returncode == 5, done.stderr
    assert "arguments: ['--lr', '3']" in done.stdout
    report = tmp_path / "runs" / "train" / "nsys-rank0.nsys-rep"
    ranges = ranges_of_domain(export_sqlite(nsys, report), "trainscope")
    steps = [r for r in ranges if r[0].startswith("step ")]
    assert [name for name, _, _ in steps] == ["step 0", "step 1", "step 2"]
    for _, start, end in steps:
        inside = [name for name, begins, ends in ranges if start < begins and ends < end]
        assert inside == ["forward", "backward", "optimizer"]
