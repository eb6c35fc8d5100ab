"""Times a function as it really runs, on CUDA and CPU: ``benchmark``, ``compare``, ``scaling``.

A result says what was measured, where, and how far to believe it. Loaded when used.

Where to look:

- what a user calls: ``measure``, ``comparing``, ``scaling_check``; what it takes: ``arguments``
- what is timed, and who may be: ``subject``, ``given``, ``admission``, ``agreement``, ``outputs``
- how it is timed: ``trials``, ``timing``, ``timers``, ``cuda_timer``, ``device``
- what the times say: ``spread``, ``outcome``, ``rows``, ``ceilings``, ``ceiling_store``,
  ``dispatch_cost``, ``environment``
- what must be said beside them: ``flags``, ``remarks``, ``explicit_syncs``
- what is given back: ``model``, ``model_parts``; as text: ``table``, ``time_text``
- benchmarks of other packages: ``entry_points``, ``offers``, ``cases``
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainscope.bench.ceilings import ceiling as ceiling
    from trainscope.bench.comparing import compare as compare
    from trainscope.bench.comparing import compare_backward as compare_backward
    from trainscope.bench.measure import benchmark as benchmark
    from trainscope.bench.model import Comparison as Comparison
    from trainscope.bench.model import Measurement as Measurement
    from trainscope.bench.model import Scaling as Scaling
    from trainscope.bench.scaling_check import scaling as scaling

_HOME = {
    "Comparison": "model",
    "Measurement": "model",
    "Scaling": "model",
    "benchmark": "measure",
    "ceiling": "ceilings",
    "compare": "comparing",
    "compare_backward": "comparing",
    "scaling": "scaling_check",
}

__all__ = [
    "Comparison",
    "Measurement",
    "Scaling",
    "benchmark",
    "ceiling",
    "compare",
    "compare_backward",
    "scaling",
]


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'trainscope.bench' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"trainscope.bench.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
