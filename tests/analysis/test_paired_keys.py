"""Which sync is which in two runs: no sync hides behind another's entry."""

from __future__ import annotations

import time

import pytest

from trainscope.analysis.paired_keys import paired_keys
from trainscope.analysis.sync_keys import SyncKey


def keys(*files: str, source: str = "x.item()") -> list[SyncKey]:
    return [SyncKey(file, "forward", source, "item") for file in files]


@pytest.mark.parametrize(
    ("new", "old", "places"),
    [
        (["a.py", "b.py"], ["b.py", "a.py"], [1, 0]),
        (["a.py", "sub/a.py"], ["a.py"], [0, None]),  # the second is new, though it ends alike
        (["sub/a.py", "a.py"], ["a.py"], [None, 0]),
        (["/x/a.py", "/x/sub/a.py"], ["a.py", "sub/a.py"], [0, 1]),  # the longer end first
        (["/x/sub/a.py"], ["a.py"], [0]),
        ([r"C:\me\sub\a.py"], ["sub/a.py"], [0]),
        ([r"sub\a.py"], ["/home/me/sub/a.py"], [0]),
        (["aa.py"], ["a.py"], [None]),
        (["x/a.py"], ["y/a.py"], [None]),
        (["a.py"], [""], [None]),
        ([""], [""], [0]),
        (["<stdin>"], ["<stdin>"], [0]),
        (["In[4]", "In[9]"], ["In[9]", "In[3]"], [1, 0]),  # a cell before it is new
        (["In[4]", "In[5]"], ["In[3]"], [0, None]),
        (["In[4]"], ["a.py"], [None]),
    ],
)
def test_paths(new: list[str], old: list[str], places: list[int | None]) -> None:
    found = paired_keys(keys(*new), keys(*old))
    assert [found.get(key) for key in keys(*new)] == places


def test_other_words_are_another_sync() -> None:
    assert paired_keys(keys("a.py"), keys("a.py", source="y.item()")) == {}


def test_many_syncs_take_no_time() -> None:
    many = [SyncKey(f"p{i}.py", "f", f"x{i}", "item") for i in range(20_000)]
    began = time.perf_counter()
    assert len(paired_keys(many, many[::-1])) == len(many)
    assert time.perf_counter() - began < 2
