"""Which cell of a notebook, or input of IPython's prompt, code is from.

The name of its file, with the process id in it, means nothing to the user. The one that IPython's
own tracebacks use, ``In[3]``, stands beside the cell, and is the same whenever the notebook is run
from top to bottom.
"""

from __future__ import annotations

import linecache
import re
import sys
import weakref
from dataclasses import dataclass
from types import CodeType
from typing import Any

__all__ = ["Cell", "cell_of", "lines_of", "source_of"]

_TIMED = ("<timed exec>", "<timed eval>")
"""What ``%%time`` calls the code of whatever cell it runs."""
_MAGIC_CALL = "get_ipython().run_cell_magic("
"""What IPython runs in the place of a cell that begins with a ``%%magic``."""
_CELL = re.compile(r"ipython-input-\d+|ipykernel_\d+")


@dataclass(frozen=True)
class Cell:
    """A cell, by the name under which linecache has its text."""

    file: str
    above: int
    """Lines of the cell that come before the code, which does not count them: ``%%time``, say."""


_timed: weakref.WeakKeyDictionary[CodeType, Cell] = weakref.WeakKeyDictionary()
_named: dict[str, tuple[int, Cell | None]] = {}
"""For each file the cell, and how many inputs there were when it was looked up."""


def cell_of(code: CodeType) -> Cell | None:
    """Return the cell that ``code`` is from; None where it is from none, or which is unknown.

    Code under ``%%time`` says it only while it runs, and is known from the first time it is asked.
    """
    history = _history()
    name = code.co_filename
    if name in _TIMED:
        if history is not None and code not in _timed and code.co_name == "<module>":
            cell = _cell(history, len(history.input_hist_raw) - 1, [])
            if cell.above:  # else it is a ``%time`` within the cell, and begins who knows where
                _timed[code] = cell
        return _timed.get(code)
    inputs, known = _named.get(name, (0, None))
    if history is None or inputs == len(history.input_hist_raw):
        return known
    # run again as it was it has a new number
    cell = _cell_named(history, name)
    _named[name] = len(history.input_hist_raw), cell
    return cell


def source_of(code: CodeType) -> Cell:
    """Return where linecache has the text that the line numbers of ``code`` count in."""
    cell = cell_of(code) if code.co_filename in _TIMED else None
    return Cell(code.co_filename, above=0) if cell is None else cell


def lines_of(code: CodeType, module_globals: dict[str, Any] | None = None) -> list[str]:
    """Return the lines that the line numbers of ``code`` count; empty where they are unknown."""
    source = source_of(code)
    return linecache.getlines(source.file, module_globals)[source.above :]


def _history() -> Any:
    """What was typed in this process; None where nothing can be, or at its end any more."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return getattr(shell, "history_manager", None)


def _cell_named(history: Any, name: str) -> Cell | None:
    if _CELL.search(name) is None:
        return None
    lines = linecache.getlines(name)
    number = _number(history, "".join(lines).strip("\n"))
    return None if number is None else _cell(history, number, lines)


def _number(history: Any, text: str) -> int | None:
    """The newest input with that text. IPython's own numbers for code that a magic runs are off."""
    ran = [each.strip("\n") for each in history.input_hist_parsed]
    if text in ran:
        return len(ran) - 1 - ran[::-1].index(text)
    typed = history.input_hist_raw
    for number in range(len(typed) - 1, 0, -1):
        above = _magics(typed[number].splitlines())[1]
        if above and "\n".join(typed[number].splitlines()[above:]).strip("\n") == text:
            return number
    return None


def _cell(history: Any, number: int, lines: list[str]) -> Cell:
    """The cell of that number, whose text goes to linecache; ``lines`` are those of the code."""
    typed = history.input_hist_raw[number].splitlines()
    first, above = _magics(typed)
    file = f"In[{number}]"
    is_call = "".join(lines).startswith(_MAGIC_CALL)
    if above:
        lines = [f"{line}\n" for line in [""] * above + typed[above:]]  # so that it is Python
    linecache.cache[file] = (sum(map(len, lines)), None, lines, file)
    return Cell(file, first if is_call else above)


def _magics(lines: list[str]) -> tuple[int, int]:
    """How many lines come before the first ``%%magic`` of a cell, and how many before its code."""
    first = above = 0
    for number, line in enumerate(lines):
        if line.startswith("%%"):
            first = first if above else number
            above = number + 1
        elif line.strip():
            break
        elif above:  # IPython takes empty lines off the beginning
            above = number + 1
    return first, above
