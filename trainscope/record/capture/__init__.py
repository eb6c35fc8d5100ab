"""Capturing windows of steps, with torch.profiler or, under it, nsys."""

from trainscope.record.capture.capture import Capture as Capture

__all__ = ["Capture"]
