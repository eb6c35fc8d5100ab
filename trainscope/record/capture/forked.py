"""The end of a child that is forked after torch.profiler has run.

kineto, torch's profiler library, keeps a thread that waits on a condition, and at exit destroys the
condition when nobody waits any more. A forked child has the waiting thread's mark and no thread:
where it ends by itself, not by ``os._exit`` as those of multiprocessing do, it hangs for ever.
"""

from __future__ import annotations

import ctypes
import os

__all__ = ["let_children_end"]

_registered = False


def let_children_end() -> None:
    """Have each child forked from now on end without the exit handlers of C++ libraries.

    All that Python does at exit comes before, and the exit status is the child's own.
    """
    global _registered
    if _registered or not hasattr(os, "register_at_fork"):
        return
    _registered = True
    libc = ctypes.CDLL(None)
    on_exit, end = getattr(libc, "on_exit", None), libc._exit
    if on_exit is not None:  # of glibc alone; elsewhere no hang has been seen
        # handlers run in reverse order, so that this one is the first
        os.register_at_fork(after_in_child=lambda: on_exit(end, None))
