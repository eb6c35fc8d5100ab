"""What to look for in the machine code of the Gluon attention kernels: local memory, lost operands.

ptxas 12.8 has been seen to put a step's dS into the registers of a K or V that was loaded before
the loop as an operand of its wgmmas, so that the next step multiplied by dS. It says nothing of it.
"""

from __future__ import annotations

import re
from typing import NamedTuple

__all__ = ["operands_overwritten", "spills_in_loops"]

WRITES = re.compile(r"(?:@!?U?P\w+ )?([A-Z][\w.]*) (?:!?P\w+, )*R(\d+)\b")
NO_WRITE = ("ST", "RED", "HGMMA", "SYNCS", "BAR")


class Code(NamedTuple):
    """instructions: of a kernel, in order. loops: their places in the innermost with a wgmma."""

    instructions: list[str]
    loops: list[range]


def spills_in_loops(sass: str) -> int:
    """Local loads and stores in the innermost loops around tensor-core work."""
    code = parsed(sass)
    return sum(
        bool(re.search(r"\b(LDL|STL)\b", code.instructions[each]))
        for loop in code.loops
        for each in loop
    )


def operands_overwritten(sass: str) -> list[str]:
    """What in a loop writes a register that came from shared memory before it, for its wgmmas."""
    code = parsed(sass)
    found = []
    for loop in code.loops:
        body = [code.instructions[each] for each in loop]
        operands = {
            int(named[1]) + each
            for instruction in body
            if (named := re.search(r"HGMMA\S* R\d+, R(\d+), gdesc", instruction))
            for each in range(4)
        }
        before: dict[int, str] = {}
        for instruction in code.instructions[: loop[0]]:
            for register in written(instruction):
                before[register] = instruction
        kept = {
            register for register in operands if re.search(r"\bLDSM\b", before.get(register, ""))
        }
        found += [each for each in body if kept & set(written(each))]
    return found


def parsed(sass: str) -> Code:
    """Loops are backward branches; what spins on a barrier stands apart and branches back too."""
    instructions: list[str] = []
    labels: dict[str, int] = {}
    for line in sass.splitlines():
        if label := re.match(r"\s*(\.L_x_\d+):", line):
            labels[label[1]] = len(instructions)
        elif instruction := re.match(r"\s*/\*[0-9a-f]{4,}\*/\s+(.*?);", line):
            instructions.append(instruction[1].replace(".reuse", ""))
    loops = []
    for end, instruction in enumerate(instructions):
        target = re.search(r"BRA.*`\((\.L_x_\d+)\)", instruction)
        if target and labels.get(target[1], end + 1) <= end:
            body = range(labels[target[1]], end + 1)
            if any("HGMMA" in instructions[each] for each in body):
                loops.append(body)
    # real loops nest: of two that cross, the later is the way back from what spins apart
    loops = [loop for loop in loops if not any(o[0] < loop[0] <= o[-1] < loop[-1] for o in loops)]
    innermost = [
        loop
        for loop in loops
        if not any(loop[0] <= each[0] and each[-1] <= loop[-1] and each != loop for each in loops)
    ]
    assert innermost or not sass
    return Code(instructions, innermost)


def written(instruction: str) -> list[int]:
    """The registers that an instruction writes, wgmmas apart."""
    named = WRITES.match(instruction)
    if named is None or named[1].startswith(NO_WRITE):
        return []
    width = 1
    if "128" in named[1] or ".M88.4" in named[1]:
        width = 4
    elif ".64" in named[1] or named[1].startswith(("CS2R", "IMAD.WIDE")):
        width = 2
    return [int(named[2]) + each for each in range(width)]
