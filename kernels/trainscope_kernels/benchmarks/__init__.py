"""The benchmarks of the kernels, for ``trainscope bench``; they import nothing of trainscope."""
