"""Compiles GELU and softmax for real GPUs, with none needed; prints what came of it as JSON.

A process for all of it (``TRITON_INTERPRET=0 python compile_for_gpus.py``): where kernels are
interpreted they cannot be compiled, and to start one takes as long as all the compiling.
"""

from __future__ import annotations

import json

import compile_dtypes
import compile_gelu
import compile_softmax

if __name__ == "__main__":
    made = {
        "gelu": compile_gelu.rows(),
        "softmax": list(compile_softmax.rows(compile_softmax.FEW)),
        "dtypes": compile_dtypes.found(),
    }
    print(json.dumps(made))
