"""What to do about a sync, fitting its kind and its place.

The rules stand by what waits: ``libraries`` (torch's own code and that of others), ``values`` (the
program reads them), ``operators`` (torch reads them) and ``copies``.
"""

from __future__ import annotations

from trainscope.catalogue.copies import of_copy
from trainscope.catalogue.kinds import KINDS
from trainscope.catalogue.libraries import LIBRARY_KINDS, library_of, of_library, of_part
from trainscope.catalogue.operators import of_operator
from trainscope.catalogue.reading import moves_in_words
from trainscope.catalogue.values import VALUE_KINDS, of_value

__all__ = ["advice"]

_ONCE = {
    "setup": "before the first step: nothing to do",
    "teardown": "after the last step: nothing to do",
    "compilation": "while compiling, once: nothing to do",
}
_ASKED_FOR = {
    "stream": "asked for: wait for one event instead, or make the other stream wait (wait_stream)",
    "event": "asked for; it costs nothing when the event is waited for as late as possible",
    "synchronize": "asked for: leave it out of the loop; to time a part, read CUDA events later",
    "empty_cache": "asked for: never in each step, for it also makes the next allocations slow",
}
_BY_OPERATORS = frozenset({"item-implicit", "nonzero", "size-readback"})


def advice(kind: str, *, source: str, phase: str | None, during: str, via: str | None) -> str:
    """Return one sentence of advice for a sync of `kind` at the line `source`.

    `phase`, `during` and `via` are those of its `SyncSite`. A read that the program needs is
    never said to be removable. Raises `KeyError` for a kind that is not in `KINDS`.
    """
    known = KINDS[kind]
    if during in _ONCE:
        return _ONCE[during]
    if known.explicit:
        return _ASKED_FOR[kind]
    known_part = of_part(kind, source, via)
    if known_part is not None:
        return known_part
    library = library_of(via)
    if kind in VALUE_KINDS:
        return of_value(kind, source, phase, during, library)
    own_copy = kind.startswith("h2d") and moves_in_words(source)
    if library is not None and kind in LIBRARY_KINDS and not own_copy:
        return of_library(kind, library)
    if kind in _BY_OPERATORS:
        return of_operator(kind, source, phase)
    return of_copy(kind, source, phase, via)
