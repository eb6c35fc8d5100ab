"""Reading what nsys recorded: ``.sqlite`` exports and ``.nsys-rep`` files to a ``Window``."""

from trainscope.trace.nsys.read import read_nsys, read_nsys_processes

__all__ = ["read_nsys", "read_nsys_processes"]
