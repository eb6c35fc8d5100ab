"""Compiles the attention kernels for real GPUs, with none needed; prints what came of it as JSON.

A process for all of it, see compile_for_gpus.py, and two below it: Triton holds the interpreter's
lock while it compiles.
"""

from __future__ import annotations

import json
from concurrent.futures import ProcessPoolExecutor

import compile_attention
import triton


def main() -> None:
    """Long jobs first, so that both processes end together."""
    gluon = []
    with ProcessPoolExecutor(2) as pool:
        if triton.__version__.startswith("3.6."):  # the one that the Gluon kernels are for
            import compile_gluon

            gluon = [pool.submit(compile_gluon.backward, each) for each in compile_gluon.BACKWARD]
            gluon += [pool.submit(compile_gluon.forward, each) for each in compile_gluon.FORWARD]
        cases = [pool.submit(compile_attention.compiled, each) for each in compile_attention.CASES]
        options = {
            str(each): pool.submit(compile_attention.failure, *each)
            for each in compile_attention.OPTIONS
        }
        made = {
            "triton": [each.result() for each in cases],
            "gluon": [row for each in gluon for row in each.result()],
            "options": {name: each.result() for name, each in options.items()},
        }
    print(json.dumps(made))


if __name__ == "__main__":
    main()
