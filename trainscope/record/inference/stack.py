"""Where in the program an event happened: the way from its outermost frame to the event.

The frames of torch, of trainscope and of the standard library are left out; those of other
libraries, such as a trainer's, stay: the training loop may be theirs.
"""

from __future__ import annotations

import dis
import os
import sysconfig
from dataclasses import dataclass
from importlib.util import find_spec
from types import CodeType, FrameType

from trainscope.record.inference.regions import Branch, Region
from trainscope.record.inference.syntax import Span, source_tree

__all__ = ["At", "Call", "Element", "LoopOnWay", "Way", "program_begins_in", "way_to"]


@dataclass(frozen=True)
class At:
    """An instruction within its statement."""

    offset: int


@dataclass(frozen=True)
class Call:
    """The step into a function's frame; ``code_id`` is the identity of its code."""

    code_id: int


Element = Branch | At | Call


@dataclass(frozen=True)
class LoopOnWay:
    """A loop that the event is in: at ``index`` of the elements, in the frame number ``depth``."""

    region: Region
    index: int
    depth: int
    resumable: bool
    """The frame is a generator's or a coroutine's: it can be left and come back to in mid-turn."""
    repeated: bool
    """The same loop runs again farther in: recursion."""


@dataclass(frozen=True, eq=False)
class Way:
    """Branches, calls and instructions down to an event, and the loops among them."""

    elements: tuple[Element, ...]
    loops: tuple[LoopOnWay, ...]
    blind: str | None
    """A loop may be hidden here: code that has a backward jump and no source, in words."""


_ways: dict[tuple[object, ...], Way] = {}
_MAX_WAYS = 20_000


def program_begins_in(code: CodeType) -> None:
    """Nothing farther out than frames of this code, such as a command line's, is the program's."""
    _first_seen(code).outermost = True


def way_to(frame: FrameType | None) -> tuple[Way, tuple[int, ...]]:
    """The way to the event that the frame is inside of, and the identities of its frames.

    Two frames that both run have two identities; one that has ended may pass its on. No frame is
    kept: that would keep its tensors.
    """
    innermost = frame
    key: list[object] = []
    frame_ids: list[int] = []
    look_up = _codes.get
    add = key.append
    add_id = frame_ids.append
    while frame is not None:
        code = frame.f_code
        known = look_up(id(code)) or _first_seen(code)
        if not known.skipped:
            add(known)
            add(frame.f_lasti)
            add_id(id(frame))
        elif known.outermost:
            break
        frame = frame.f_back
    found = _ways.get(tuple(key))
    if found is None:
        if len(_ways) >= _MAX_WAYS:
            _ways.clear()
        found = _ways[tuple(key)] = _build(innermost)
    frame_ids.reverse()
    return found, tuple(frame_ids)


def _first_seen(code: CodeType) -> _Code:
    known = _codes[id(code)] = _Code(code)
    return known


def _build(frame: FrameType | None) -> Way:
    frames: list[FrameType] = []
    while frame is not None:
        known = _codes[id(frame.f_code)]
        if known.outermost:
            break
        if not known.skipped:
            frames.insert(0, frame)
        frame = frame.f_back
    elements: list[Element] = []
    blind = None
    found: list[tuple[Branch, int, int, bool]] = []
    for depth, frame in enumerate(frames):
        known = _codes[id(frame.f_code)]
        if depth:
            elements.append(Call(id(frame.f_code)))
        branches = known.branches(frame)
        if branches is None:
            branches = ()
            if known.may_loop():
                code = frame.f_code
                blind = f"the source of {code.co_name} in {code.co_filename} cannot be followed"
        if any(branch.in_turn for branch in branches):
            blind = None  # a hidden loop farther out does not matter
        for branch in branches:
            if branch.in_turn:
                found.append((branch, len(elements), depth, known.resumable))
            elements.append(branch)
        elements.append(At(known.instruction(frame.f_lasti)))
    regions = [branch.region for branch, *_ in found]
    loops = tuple(
        LoopOnWay(branch.region, index, depth, resumable, branch.region in regions[at + 1 :])
        for at, (branch, index, depth, resumable) in enumerate(found)
    )
    return Way(tuple(elements), loops, blind)


# ---- one code object ------------------------------------------------------------------------
_RESUMABLE = 0x20 | 0x80 | 0x200  # generator, coroutine, asynchronous generator
_FOR_ITER = dis.opmap["FOR_ITER"]
_CACHE = dis.opmap.get("CACHE", 0)  # Python 3.10 has none, and no instruction 0


def _folders(package: str) -> list[str]:
    spec = find_spec(package)
    found = () if spec is None else spec.submodule_search_locations or ()
    return [os.path.join(os.path.abspath(folder), "") for folder in found]


_SKIPPED = (*_folders("torch"), *_folders("trainscope"), "<frozen ")
_STANDARD = tuple(sysconfig.get_paths()[name] + os.sep for name in ("stdlib", "platstdlib"))
_INSTALLED = ("site-packages", "dist-packages")


class _Code:
    """What is known of a code object; holds it, so that its identity is not passed on."""

    __slots__ = ("_branches", "_may_loop", "code", "outermost", "resumable", "skipped")

    def __init__(self, code: CodeType) -> None:
        file = code.co_filename
        standard = file.startswith(_STANDARD) and not any(part in file for part in _INSTALLED)
        self.code = code
        self.skipped = standard or file.startswith(_SKIPPED)
        self.outermost = False
        self.resumable = bool(code.co_flags & _RESUMABLE)
        self._branches: dict[int, tuple[Branch, ...] | None] = {}
        self._may_loop: bool | None = None

    def branches(self, frame: FrameType) -> tuple[Branch, ...] | None:
        """The way through its source to the instruction the frame is at; None without source."""
        code, offset = self.code, self.instruction(frame.f_lasti)
        if offset not in self._branches:
            tree = source_tree(code.co_filename, frame.f_globals)
            self._branches[offset] = (
                None
                if tree is None or offset < 0
                else tree.way_to(
                    _span(code, offset) or _line(frame),
                    code.co_name,
                    asks_next=code.co_code[offset] == _FOR_ITER,
                )
            )
        return self._branches[offset]

    def instruction(self, offset: int) -> int:
        """Where the instruction begins that a frame is at.

        From Python 3.12 on a frame that a ``for`` has called for its next value, a generator's,
        leaves its caller behind the instruction's cache, but only once that is specialized.
        """
        instructions = self.code.co_code
        while offset > 0 and instructions[offset] == _CACHE:
            offset -= 2
        return offset

    def may_loop(self) -> bool:
        """Whether it jumps backward anywhere."""
        if self._may_loop is None:
            jumps = {*dis.hasjrel, *dis.hasjabs}
            self._may_loop = any(
                each.opcode in jumps and each.argval <= each.offset
                for each in dis.get_instructions(self.code)
            )
        return self._may_loop


_codes: dict[int, _Code] = {}


def _line(frame: FrameType) -> Span:
    line = frame.f_lineno or frame.f_code.co_firstlineno
    return (line, -1, line, -1)


def _span(code: CodeType, offset: int) -> Span | None:
    positions = getattr(code, "co_positions", None)
    if positions is None:  # Python 3.10
        return None
    for at, (line, end_line, column, end_column) in enumerate(positions()):
        if at == offset // 2:
            if line is None or end_line is None or column is None or end_column is None:
                return None
            return (line, column, end_line, end_column)
    return None
