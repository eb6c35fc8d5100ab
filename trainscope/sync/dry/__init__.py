"""The dry run: on a machine with no GPU, which lines would wait for one."""

from trainscope.sync.dry.run import DryRun

__all__ = ["DryRun"]
