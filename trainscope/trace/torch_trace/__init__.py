"""Reading what torch.profiler wrote: JSON or JSON.gz to a ``Window``."""

from trainscope.trace.torch_trace.read import read_torch_trace

__all__ = ["read_torch_trace"]
