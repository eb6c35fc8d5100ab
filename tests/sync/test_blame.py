"""Whose code a frame is: the user's, a library's, or generated."""

from __future__ import annotations

import os
import sys
import sysconfig
import types
from pathlib import Path
from types import FrameType

import pytest
import torch

from trainscope.sync import blame as module
from trainscope.sync.blame import blame, is_user_file, library_frame, working_frame

STDLIB = sysconfig.get_paths()["stdlib"]
PURELIB = sysconfig.get_paths()["purelib"]


@pytest.mark.parametrize(
    ("filename", "user"),
    [
        ("/home/me/train.py", True),
        ("train.py", True),
        ("<stdin>", True),
        ("<string>", True),
        ("<ipython-input-3-abcdef>", True),
        ("/tmp/ipykernel_12/345.py", True),
        ("/home/me/project/src/editable_package/loop.py", True),
        (__file__, True),
        (os.path.join(STDLIB, "contextlib.py"), False),
        (os.path.join(PURELIB, "lightning", "loop.py"), False),
        ("/home/me/.venv/lib/python3.12/site-packages/x.py", False),
        ("/usr/lib/python3/dist-packages/x.py", False),
        (torch.nn.functional.__file__, False),
        (module.__file__, False),
        ("<frozen runpy>", False),
        (os.path.join(sysconfig.get_paths()["scripts"], "torchrun"), False),
        ("<eval_with_key>.12", False),
        ("/tmp/torchinductor_me/ab/cab.py", False),
        ("/home/me/.vscode/bundled/libs/debugpy/_vendored/pydevd/pydevd.py", False),
        ("/home/me/.vscode/bundled/libs/debugpy/server/cli.py", False),
        ("/home/me/.vscode/bundled/libs/debugpy/__main__.py", False),
        ("/opt/pycharm/plugins/python/helpers/pydev/pydevd.py", False),
        ("/home/me/pydev/train.py", True),
    ],
)
def test_whose_file(filename: str, user: bool) -> None:
    assert is_user_file(filename) is user


@pytest.mark.parametrize("beside_the_program", [False, True])
def test_packages_put_into_a_folder_of_the_path_are_libraries_unless_the_program_is_there(
    beside_the_program: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``pip install --target``; an editable install leaves no such mark in a project."""
    packages, project = tmp_path / "packages", tmp_path / "project"
    (packages / "library-1.0.dist-info").mkdir(parents=True)
    (project / "mine.egg-info").mkdir(parents=True)
    main = types.ModuleType("__main__")
    main.__file__ = str((packages if beside_the_program else tmp_path) / "train.py")
    monkeypatch.setitem(sys.modules, "__main__", main)
    monkeypatch.setattr(sys, "path", [*sys.path, str(packages), str(project), "/not/there"])
    roots = module._library_roots()
    assert (str(packages) + os.sep in roots) is not beside_the_program
    assert str(project) + os.sep not in roots


def build(files: list[str]) -> FrameType:
    """Return the innermost frame of calls through functions of these files, outermost first."""
    call: object = lambda: sys._getframe(1)  # noqa: E731
    for number, file in enumerate(reversed(files)):
        names = {"inner": call}
        exec(compile(f"def f{number}():\n    return inner()", file, "exec"), names)
        call = names[f"f{number}"]
    return call()  # type: ignore[operator]


LIBRARY = os.path.join(PURELIB, "somewhere", "module.py")


def test_the_innermost_user_frame_is_blamed() -> None:
    frame = build(["/u/main.py", "/u/train.py", LIBRARY, os.path.join(STDLIB, "functools.py")])
    blamed = blame(frame)
    assert blamed.user is not None
    assert blamed.user.f_code.co_filename == "/u/train.py"
    assert blamed.caller is not None
    assert blamed.caller[0].co_filename == "/u/main.py"
    assert blamed.caller[1] == 2
    assert blamed.via is not None
    assert library_frame(*blamed.via) == "functools:2 f0"


def test_a_user_callback_inside_a_library_is_blamed_itself() -> None:
    blamed = blame(build(["/u/main.py", LIBRARY, "/u/callback.py"]))
    assert blamed.user is not None
    assert blamed.user.f_code.co_filename == "/u/callback.py"
    assert blamed.via is None
    assert blamed.caller is not None
    assert blamed.caller[0].co_filename == "/u/main.py"


def test_our_own_frames_are_never_via() -> None:
    ours = os.path.join(os.path.dirname(module.__file__), "probes.py")
    blamed = blame(build(["/u/main.py", LIBRARY, ours]))
    assert blamed.via is not None
    assert library_frame(*blamed.via) == "somewhere.module:2 f1"


TORCH = os.path.dirname(torch.__file__)
PLUMBING = [
    "_compile.py", "_dynamo/eval_frame.py", "_functorch/_aot_autograd/runtime_wrappers.py",
    "_inductor/output_code.py", "_jit_internal.py", "_library/custom_ops.py", "_ops.py",
    "amp/autocast_mode.py", "autograd/function.py", "functional.py", "fx/graph_module.py",
    "overrides.py", "utils/_contextlib.py", "utils/_device.py", "utils/_python_dispatch.py",
]  # fmt: skip


@pytest.mark.parametrize("plumbing", PLUMBING)
def test_plumbing_is_never_via(plumbing: str) -> None:
    assert os.path.exists(os.path.join(TORCH, plumbing))
    files = ["nn/utils/clip_grad.py", plumbing, "_compile.py", "_dynamo/eval_frame.py"]
    frame = build(["/u/train.py", *(os.path.join(TORCH, file) for file in files)])
    blamed = blame(frame)
    assert blamed.via is not None
    assert library_frame(*blamed.via) == "torch.nn.utils.clip_grad:2 f3"
    working = working_frame(frame)
    assert working is not None
    assert working.f_code.co_filename.endswith("clip_grad.py")


@pytest.mark.parametrize("plumbing", [*PLUMBING, "<eval_with_key>.3", "/tmp/torchinductor_me/c.py"])
def test_a_call_of_the_user_through_plumbing_alone_has_no_via(plumbing: str) -> None:
    file = plumbing if plumbing.startswith("<") else os.path.join(TORCH, plumbing)
    frame = build(["/u/train.py", file])
    blamed = blame(frame)
    assert blamed.user is working_frame(frame)
    assert blamed.via is None


def test_functions_of_a_useful_file_may_be_plumbing() -> None:
    tensor = os.path.join(TORCH, "_tensor.py")
    source = "def {0}():\n    return sys._getframe(0)\nframe = {0}()"
    found = {}
    for name in ("__torch_function__", "__contains__"):
        names: dict[str, object] = {"sys": sys}
        exec(compile(source.format(name), tensor, "exec"), names)
        via = blame(names["frame"]).via  # type: ignore[arg-type]
        found[name] = None if via is None else library_frame(*via)
    # the module's own frame, between it and this test, is of the same file
    assert found == {
        "__torch_function__": "torch._tensor:3 <module>",
        "__contains__": "torch._tensor:2 __contains__",
    }


@pytest.mark.parametrize(("file", "told"), [("meta_tensor.py", None), ("/u/mine.py", "/u/mine.py")])
def test_a_library_s_subclass_only_passes_a_call_on(file: str, told: str | None) -> None:
    """As MONAI's MetaTensor, through which each call of its metrics goes."""
    source = "def __torch_function__():\n    return sys._getframe(0)\nframe = __torch_function__()"
    names: dict[str, object] = {"sys": sys}
    exec(compile(source, os.path.join(PURELIB, file), "exec"), names)
    frame = names["frame"]
    assert isinstance(frame, FrameType)
    blamed = blame(frame)
    assert blamed.user is not None
    assert (blamed.user.f_code.co_filename == told) == (told is not None)
    working = working_frame(frame)
    assert working is not None
    assert (working.f_code.co_name == "__torch_function__") == (told is not None)


def test_a_thread_of_a_library_alone_is_blamed_on_its_innermost_frame(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "is_user_file", lambda name: False)
    blamed = blame(build([LIBRARY, os.path.join(PURELIB, "other.py")]))
    assert blamed.user is not None
    assert blamed.user.f_code.co_filename == os.path.join(PURELIB, "other.py")
    assert (blamed.caller, blamed.via) == (None, None)


def test_no_frame_at_all() -> None:
    blamed = blame(None)
    assert (blamed.user, blamed.caller, blamed.via) == (None, None, None)


def test_library_frame_names_the_package() -> None:
    code = types.FunctionType(compile("1", torch.__file__, "eval"), {}).__code__
    assert library_frame(code, 7) == "torch:7 <module>"
