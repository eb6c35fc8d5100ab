"""Softmax along one dim, forward and backward."""

from trainscope_kernels.softmax.op import softmax

__all__ = ["softmax"]
