"""Programs that start the training in processes of their own: trainscope belongs behind them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence

__all__ = ["behind_launcher", "instead_of"]

_OURS = "-m trainscope run train.py"
_LAUNCHERS = {
    "torchrun": f"torchrun … {_OURS}",
    "torch.distributed.run": f"python -m torch.distributed.run … {_OURS}",
    "torch.distributed.launch": f"python -m torch.distributed.launch … {_OURS}",
    "accelerate.commands.launch": f"accelerate launch … {_OURS}",
    "accelerate launch": f"accelerate launch … {_OURS}",
    "deepspeed": "deepspeed … --module trainscope run train.py",
    "deepspeed.launcher.runner": "deepspeed … --module trainscope run train.py",
}


def behind_launcher(target: str, args: Sequence[str]) -> str | None:
    """How a launcher, given as a script or a module, starts trainscope; None of anything else."""
    name = os.path.basename(target)
    return _LAUNCHERS.get(name) or _LAUNCHERS.get(" ".join([name, *args[:1]]))


def instead_of(path: str) -> str:
    """What to type where the script ``path`` is not there; empty where nothing comes to mind."""
    if os.path.basename(path).startswith("python"):
        return "; name the script without Python: trainscope run train.py"
    launcher = behind_launcher(path, ["launch"])
    if launcher is not None:
        return f"; a launcher has to start trainscope: {launcher}"
    command = shutil.which(path)
    return "" if command is None else f"; to run the command of that name: trainscope run {command}"
