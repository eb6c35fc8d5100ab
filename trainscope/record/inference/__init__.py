"""Steps of a program that names none, inferred from what the hooks see.

A step is one turn of the innermost loop whose turns each run a training backward; loops inside it
that train too are parts of it, where it also runs one in none of them. The hooks tell
of each forward, backward and optimizer step as it begins; the Python stack at that moment and the
syntax trees of its frames say which loops it is in and where in their bodies. A place that is not
after the last one begins a new turn. Where that leaves a doubt, the answer is "cannot tell" with
its reason: never a count that may be wrong.

A step begins at the first event of a turn, where a ``DataLoader`` is asked for its batch, and ends
at the first of the next; what a turn does before its first event falls to the step before. Over
many steps, wall times, windows and counts per step are right; a single step is shifted by that
much. The first turn of a loop is known to train when its backward comes: its step is then moved
back to its first event, and what waited before that is claimed for it.

Where the program has left the loop, the step ends with its newest range: validation between
epochs is in no step. That it has left is seen at each event, at each wait and at the first batch of
a new iterator; a pause that ends with none of these is charged to the last step before it.
"""

from __future__ import annotations

from trainscope.record.inference.inference import StepInference
from trainscope.record.inference.stack import program_begins_in

__all__ = ["StepInference", "program_begins_in"]
