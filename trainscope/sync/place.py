"""On which thread, in which phase and during what a wait happens."""

from __future__ import annotations

import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import torch

from trainscope.sync.blame import is_user_file
from trainscope.sync.loop import LoopState

__all__ = ["Place", "place"]

_ENGINE = "_engine_run_backward"
"""The function of torch under which waits of pure C++ backward code are told, afterwards."""

_MODULE = torch.nn.modules.module.__file__
_DISTRIBUTED = Path(torch.__file__).parent / "distributed"
_CHECKPOINT = (str(_DISTRIBUTED / "checkpoint"), str(_DISTRIBUTED / "_state_dict_utils.py"))
"""How the files begin that bring a state to the host to save it."""
_ON_PARAMETERS = frozenset({"_apply", "_load_from_state_dict"})


@dataclass(frozen=True)
class Place:
    """Where a wait belongs; the words of `SyncSite`."""

    thread: str
    phase: str | None
    during: str


def place(loop: LoopState, frame: FrameType | None) -> Place:
    """Return the place of a wait that this thread makes now, at `frame`, for the loop `loop`."""
    on_loop = threading.get_ident() == loop.thread_id
    in_backward = torch._C._current_graph_task_id() != -1
    inside = on_loop and loop.inside(frame)  # first: it may end the step
    replayed = frame is not None and frame.f_code.co_name == _ENGINE
    if replayed or (in_backward and not on_loop):
        thread = "autograd"
    else:
        thread = "main" if on_loop else threading.current_thread().name
    if replayed or in_backward:
        phase: str | None = "backward"
    else:
        phase = loop.phase if on_loop else None
    if _compiling():
        during = "compilation"
    elif (
        on_loop
        and phase != "backward"
        and loop.eval_mode
        and not torch.is_grad_enabled()
        and not _moves_parameters(frame)
    ):
        # What is done with the results of a model in eval mode; a training loop that reads its
        # loss without gradients has run the model in train mode.
        during = "evaluation"
    elif on_loop and phase != "backward" and loop.evaluates(frame):
        during = "evaluation"
    else:
        during = loop.during(inside)
    return Place(thread, phase, during)


def _moves_parameters(frame: FrameType | None) -> bool:
    """Whether torch moves, loads, fills or saves parameters: it turns gradients off by itself."""
    while frame is not None and not is_user_file(frame.f_code.co_filename):
        code = frame.f_code
        if code.co_name in _ON_PARAMETERS and code.co_filename == _MODULE:
            return True
        if code.co_filename == torch.nn.init.__file__ or code.co_filename.startswith(_CHECKPOINT):
            return True
        frame = frame.f_back
    return False


def _compiling() -> bool:
    if "torch._dynamo" not in sys.modules:  # importing it takes seconds
        return False
    guards = sys.modules["torch._guards"]
    return guards.CompileContext.current_compile_id() is not None
