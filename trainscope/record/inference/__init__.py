"""Steps of a program that names none, inferred from what the hooks see.

A step is one turn of the innermost loop whose turns each run a training backward. The hooks tell
of each forward, backward and optimizer step as it begins; the Python stack at that moment and the
syntax trees of its frames say which loops it is in and where in their bodies. A place that is not
after the last one begins a new turn. Where that leaves a doubt, the answer is "cannot tell" with
its reason: never a count that may be wrong.

A step begins at the first event of a turn and ends at the first of the next, so what a turn does
before its first event (loading its batch, say) falls to the step before. Over many steps, wall
times, windows and counts per step are right; a single step is shifted by that much. What the very
first turn did before its first event is claimed for it, once it is known that it trained.
"""

from __future__ import annotations

from trainscope.record.inference.inference import StepInference

__all__ = ["StepInference"]
