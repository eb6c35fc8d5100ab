"""Kinds from the expression that was running, at exact instructions."""

from __future__ import annotations

import linecache
import sys
import types
from types import FrameType
from typing import Any

import pytest
import torch
from emulated import on_device

from trainscope.sync import implicit
from trainscope.sync.implicit import classify_line, implicit_kind


class Stopped(Exception):
    """Raised where a wait would be announced."""


class Waits:
    """Anything done with it stops there, in C-like fashion: the frame is the caller's."""

    def __getitem__(self, index: object) -> object:
        raise Stopped

    def __setitem__(self, index: object, value: object) -> None:
        raise Stopped

    def __add__(self, other: object) -> object:
        raise Stopped

    def __getattr__(self, name: str) -> Any:
        def stop(*args: object, **kwargs: object) -> None:
            raise Stopped

        return stop


MASK = on_device(1.0, 0.0) > 0.5
NAMES = {
    "x": Waits(), "y": Waits(), "torch": Waits(), "F": Waits(), "opt": Waits(),
    "equal": Waits().equal, "m": MASK, "mc": torch.zeros(2, dtype=torch.bool),
    "ids": [1, 2], "h": 7, "arr": object(), "i": torch.tensor(1).as_subclass(type(MASK)),
    "a": on_device(1.0, 2.0), "s": on_device(1.0).sum(), "host": torch.ones(2), "dev": "cuda",
    "cudas": [on_device(1.0)], "gpu": on_device(1.0), "zeros": lambda size, device: on_device(0.0),
}  # fmt: skip


def frame_at(source: str, name: str = "<program>") -> FrameType:
    """Run `source` until it stops; return its frame, still at that instruction."""
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    with pytest.raises(Stopped) as stopped:
        exec(compile(source, name, "exec"), dict(NAMES))
    trace = stopped.value.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename != name:
        trace = trace.tb_next
    assert trace is not None
    return trace.tb_frame


EXPRESSIONS = [
    ("a1 = x[m]", "nonzero"),
    ("a1 = x[m > 0]", "nonzero"),
    ("a1 = x[:, m]", "nonzero"),
    ("a1 = x[[1, 2, 3]]", "h2d-list"),
    ("a1 = x[ids]", "h2d-list"),
    ("a1 = x[:, ids]", "h2d-list"),
    ("a1 = x[mc]", "h2d-pageable"),
    ("a1 = x[i]", "index"),
    ("a1 = x[a.argmax()]", "index"),
    ("y[m] = a * 2", "nonzero"),
    ("y[m] = a", "nonzero"),
    ("y[m] = s", "item-implicit"),
    ("y[m] = zeros((), device=dev)", "item-implicit"),
    ("y[m] = a.mean()", "item-implicit"),
    ("y[m] = host", "h2d-pageable"),
    ("y[0] = host", "h2d-pageable"),
    ("y[:, 1:] = host", "h2d-pageable"),
    ("y[ids] = a", "h2d-list"),
    ("k = x.nonzero()", "nonzero"),
    ("k = torch.argwhere(m)", "nonzero"),
    ("k = torch.masked_select(a, m)", "nonzero"),
    ("k = torch.where(m)", "nonzero"),
    ("k = torch.where(m, a, s)", "item-implicit"),
    ("k = x.repeat_interleave(a)", "size-readback"),
    ("k = torch._unique2(a, sorted=True)", "size-readback"),
    ("k = torch.unique_consecutive(a)", "size-readback"),
    ("k = F.one_hot(a)", "size-readback"),
    ("k = torch.bincount(a)", "size-readback"),
    ("k = torch.tensor(h, device=dev)", "h2d-scalar"),
    ("k = torch.tensor(1e-3, device=dev)", "h2d-scalar"),
    ("k = torch.tensor(h + 1, device=dev)", "h2d-scalar"),
    ("k = torch.tensor(len(ids), device=dev)", "h2d-scalar"),
    ("k = torch.tensor([1, 2, 3], device=dev)", "h2d-list"),
    ("k = torch.as_tensor(ids, device=dev)", "h2d-list"),
    ("k = torch.tensor([j for j in ids], device=dev)", "h2d-list"),
    ("k = torch.tensor(range(3), device=dev)", "h2d-list"),
    ("k = torch.tensor(arr, device=dev)", "h2d-pageable"),
    ("k = torch.tensor(data=h, device=dev)", "h2d-scalar"),
    ("k = torch.tensor(cudas)", "item-implicit"),
    ("k = torch.tensor(a.shape, device=dev)[None]", "h2d-list"),
    ("k = torch.tensor(a.size(), device=dev)", "h2d-list"),
    ("k = torch.tensor(a.shape[1:], device=dev)", "h2d-list"),
    ("k = torch.tensor(a.shape[0], device=dev)", "h2d-scalar"),
    ("k = torch.tensor(a.size(0), device=dev)", "h2d-scalar"),
    ("k = torch.equal(a, a)", "bool"),
    ("k = equal(a, a)", "bool"),
    ("k = torch.is_nonzero(s)", "bool"),
    ("k = torch.allclose(a, a)", "bool"),
    ("x.synchronize()", "stream"),
    ("x.copy_(gpu)", "d2h"),
    ("opt.step()", "item-implicit"),
    ("k = x + s", "item-implicit"),
]


@pytest.mark.parametrize(("source", "kind"), EXPRESSIONS)
def test_kind_of_an_expression(source: str, kind: str) -> None:
    frame = frame_at(source)
    assert implicit_kind(frame, frame) == kind
    assert implicit_kind(frame, frame) == kind  # and from the cached plan


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ("torch.UntypedStorage(a.size()).copy_(a, False)", "d2h"),  # as torch.save does
        ("torch.empty(a.shape, dtype=a.dtype).copy_(a)", "d2h"),
        ("torch.empty(2, device='cpu').copy_(a)", "d2h"),
        ("torch.zeros(2, device=host.device).copy_(a)", "d2h"),
        ("torch.zeros(2, device=gpu.device).copy_(host)", "h2d-pageable"),
        ("torch.empty(2, device=dev).copy_(host)", "h2d-pageable"),
        ("torch.zeros(len(a)).to(dev)", "h2d-pageable"),
    ],
)
def test_what_is_made_with_no_device_is_on_the_host(
    source: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def made(*size: object, **given: object) -> Waits:
        return Waits()

    makes = types.SimpleNamespace(UntypedStorage=made, empty=made, zeros=made)
    monkeypatch.setitem(NAMES, "torch", makes)
    frame = frame_at(source)
    assert implicit_kind(frame, frame) == kind
    if "device" not in source and "Storage" not in source:
        with torch.device("meta"):  # any that is not the CPU
            assert implicit_kind(frame, frame) != kind


@pytest.mark.skipif(sys.version_info < (3, 11), reason="positions of instructions came with 3.11")
def test_of_several_on_one_line_the_one_that_ran_counts() -> None:
    frame = frame_at("p = (ids[0], len(ids), 'é', x.nonzero(), x.repeat_interleave(a))")
    assert implicit_kind(frame, frame) == "nonzero"
    frame = frame_at("q = ids[0]; y[\n  m\n] = (a *\n 2)")
    assert implicit_kind(frame, frame) == "nonzero"


def test_the_same_line_with_another_value_has_another_kind() -> None:
    def make(value: object) -> None:
        NAMES["torch"].tensor(value, device="cuda")

    kinds = []
    for value in (7, [1, 2]):
        with pytest.raises(Stopped) as stopped:
            make(value)
        frame = stopped.traceback[1].frame.raw
        kinds.append(implicit_kind(frame, frame))
    assert kinds == ["h2d-scalar", "h2d-list"]


def test_the_user_s_call_tells_what_the_library_s_line_does_not() -> None:
    library = frame_at("x + s", "<library>")
    user = frame_at("k = x.unique()", "<user>")
    assert implicit_kind(library, user) == "size-readback"
    assert implicit_kind(library, frame_at("k = opt.step()", "<user2>")) == "item-implicit"


def test_a_frame_with_no_source_is_an_implicit_read() -> None:
    frame = frame_at("x[m]", "<gone>")
    linecache.cache.pop("<gone>")
    implicit._plans.clear()
    assert implicit_kind(frame, frame) == "item-implicit"


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("a = x[m]", "nonzero"),
        ("if torch.equal(a, b):", "bool"),
        ("elif torch.equal(a, b):", "bool"),
        ("for row in mask.nonzero():", "nonzero"),
        ("k = one_hot(a)", "size-readback"),
        ("param.add_(grad, alpha=-lr)", None),
        ("f(a,", None),
        ("", None),
    ],
)
def test_a_whole_line_where_the_instruction_is_not_known(line: str, kind: str | None) -> None:
    assert classify_line(line).kind == kind
