"""Compiles a function around each patched name, fullgraph; prints which compile, and the result.

The argument says whether and when the detector is on. Run in a process of its own: the order of
the imports is part of what is tested.
"""

from __future__ import annotations

import importlib
import operator
import sys
from collections.abc import Callable

import torch


def index_list(x: torch.Tensor) -> torch.Tensor:
    return x * [1, 2, 3, 4][x.argmax()]


def branch(x: torch.Tensor) -> torch.Tensor:
    if x.sum() > 0:
        return x + 1
    return x - 1


def stream(x: torch.Tensor) -> torch.Tensor:
    torch.cuda.Stream().synchronize()
    return x + 1


def event(x: torch.Tensor) -> torch.Tensor:
    torch.cuda.Event().synchronize()
    return x + 1


def device(x: torch.Tensor) -> torch.Tensor:
    torch.cuda.synchronize()
    return x + 1


TRIED: list[tuple[str, Callable[[torch.Tensor], torch.Tensor]]] = [
    ("item", lambda x: x * x.sum().item()),
    ("tolist", lambda x: x * x.tolist()[0]),
    ("cpu", lambda x: x.cpu() * 2),
    ("numpy", lambda x: torch.from_numpy(x.numpy() * 2)),
    ("__bool__", lambda x: x * bool(x.sum() > 0)),
    ("__bool__", branch),
    ("__int__", lambda x: x * int(x.sum())),
    ("__float__", lambda x: x * float(x.sum())),
    ("__index__", lambda x: x * operator.index(x.argmax())),
    ("__index__", index_list),
    ("__index__", lambda x: x[x.argmax()]),
    ("__repr__", lambda x: x * len(repr(x))),
    ("__format__", lambda x: x * len(f"{x.sum()}")),
    ("to", lambda x: x.to("cpu", torch.float64) * 2),
    ("to", lambda x: x.to(device=torch.device("cpu"), non_blocking=True) * 2),
    ("to", lambda x: x.to(x) * 2),
    ("cuda", lambda x: x.cuda()),
    ("copy_", lambda x: torch.empty_like(x).copy_(x) + 1),
    ("stream", stream),
    ("event", event),
    ("synchronize", device),
]


def main(order: str) -> None:
    if order == "torch._dynamo first":
        from torch._dynamo import trace_rules

        trace_rules.get_torch_obj_rule_map()
        trace_rules.get_tensor_method()
    detector = None
    if order != "plain":
        from trainscope.sync.detector import SyncDetector

        detector = SyncDetector(dry_run=False)
        detector.start()
    if order == "stopped again":
        assert detector is not None
        torch.compile(lambda x: x + 1, backend="eager")(torch.ones(1))
        detector.stop()
        torch.compiler.reset()
    config = importlib.import_module("torch._dynamo.config")
    for scalars, backend in ((False, "eager"), (True, "aot_eager")):
        config.capture_scalar_outputs = scalars
        for name, function in TRIED:
            torch.compiler.reset()
            try:
                result = torch.compile(function, fullgraph=True, backend=backend)(torch.ones(3))
                words = f"{result.tolist()} ok"
            except Exception as error:
                words = type(error).__name__
            print(name, scalars, backend, words)


if __name__ == "__main__":
    main(sys.argv[1])
