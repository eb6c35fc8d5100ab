"""Which calls the Gluon kernels take, what auto makes of it, and how tiles are shared out."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from trainscope_kernels.attention import (
    flash_attention,
    flash_attention_varlen,
    gluon_envelope,
    gluon_schedule,
    op,
    run,
    varlen,
)
from trainscope_kernels.attention.gluon_schedule import balanced_lists, heads_together
from trainscope_kernels.errors import ImplUnavailableError, KernelError


class Chosen(Exception):
    """Carries the impl out of the call, which goes no further."""


@pytest.fixture
def hopper(monkeypatch: pytest.MonkeyPatch) -> FakeTensorMode:
    """Tensors that say they are on a Hopper GPU with Triton 3.6."""

    def stop(*arguments: Any) -> None:
        raise Chosen(arguments[-1])

    monkeypatch.setattr(gluon_envelope, "_answers", {0: None})
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(op, "triton_reason", lambda device: None)
    monkeypatch.setattr(op, "require_triton", lambda device: None)
    monkeypatch.setattr(op, "attention_op", stop)
    monkeypatch.setattr(op, "GLUON_FROM", 0)
    monkeypatch.setattr(varlen, "attention_op", stop)
    return FakeTensorMode()


def tensors(
    length: int = 256,
    dim: int = 128,
    *,
    heads: int = 8,
    key_heads: int = 8,
    keys: int | None = None,
    dtype: torch.dtype = torch.bfloat16,
    grad: bool = False,
) -> tuple[torch.Tensor, ...]:
    kind: dict[str, Any] = {"dtype": dtype, "device": "cuda:0", "requires_grad": grad}
    shape = (2, key_heads, length if keys is None else keys, dim)
    return (
        torch.empty((2, heads, length, dim), **kind),
        torch.empty(shape, **kind),
        torch.empty(shape, **kind),
    )


def impl_of(qkv: tuple[torch.Tensor, ...], **settings: Any) -> str:
    with pytest.raises(Chosen) as chosen:
        flash_attention(*qkv, **settings)
    return chosen.value.args[0]


TAKEN = {
    "128": ({}, {}),
    "64": ({"dim": 64}, {}),
    "float16": ({"dtype": torch.float16}, {}),
    "top-left": ({}, {"causal": "top-left"}),
    "bottom-right": ({}, {"causal": "bottom-right"}),
    "causal and any window to the right": ({}, {"causal": True, "window": (-1, 7)}),
    "bottom-right with fewer queries": ({"keys": 300}, {"causal": "bottom-right"}),
    "bottom-right with more queries": ({"dim": 192, "keys": 100}, {"causal": "bottom-right"}),
    "fewer keys": ({"dim": 96, "keys": 100}, {}),
    "one query": ({"length": 1}, {}),
    "window": ({}, {"window": (100, 0)}),
    "a window ahead": ({"dim": 96}, {"window": (-1, 5)}),
    "a window of a causal call": (
        {"dim": 256, "keys": 300},
        {"causal": "top-left", "window": (100, 7)},
    ),
    "softcap": ({}, {"softcap": 30.0}),
    "96": ({"dim": 96}, {"causal": True}),
    "192": ({"dim": 192}, {}),
    "256": ({"dim": 256, "dtype": torch.float16}, {}),
    "ragged": ({"length": 1000}, {"causal": True}),
    "grouped heads": ({"key_heads": 2}, {}),
    "a gradient": ({"grad": True}, {"causal": True}),
    "ragged with a gradient": ({"length": 200, "grad": True}, {"causal": True}),
    "grouped heads with a gradient": ({"key_heads": 2, "grad": True}, {}),
    "float16 with a gradient": ({"grad": True, "dtype": torch.float16}, {}),
    "96 with a gradient": ({"dim": 96, "grad": True}, {}),
    "more keys with a gradient": (
        {"keys": 300, "grad": True},
        {"causal": "bottom-right"},
    ),
    "window with a gradient": ({"grad": True}, {"window": (100, 0)}),
    "softcap with a gradient": ({"grad": True}, {"softcap": 30.0}),
    "256 with a gradient": ({"dim": 256, "grad": True}, {}),
    "a scale": ({}, {"scale": 3.0}),
    "the LSE": ({}, {"return_lse": True}),
}
REFUSED = {
    "float32": ({"dtype": torch.float32}, {}, "bfloat16 and float16, got torch.float32"),
    "80": ({"dim": 80}, {}, "64, 96, 128, 192 or 256, equal; got 80 and 80"),
    "no key": ({"keys": 0}, {}, "1 to 2**24 - 1 keys, got 0"),
    "no query": ({"length": 0}, {}, "1 to 2**24 - 1 queries"),
    "2**24 queries": ({"length": 2**24, "heads": 1, "key_heads": 1}, {}, "1 to 2**24 - 1 queries"),
    "2**31 rows": ({"length": 2**20, "heads": 1024, "key_heads": 1024}, {}, "under 2**31 rows"),
    "negative scale": ({}, {"scale": -1.0}, "a scale of 2**-64 and up, got -1.0"),
    "scale 0": ({}, {"scale": 0.0}, "a scale of 2**-64 and up, got 0.0"),
    "a high softcap": ({}, {"softcap": 2000.0}, "a softcap of 2**-64 to 2**10, got 2000.0"),
    "a softcap of nearly 0": ({}, {"softcap": 1e-30}, "a softcap of 2**-64 to 2**10, got 1e-30"),
}


@pytest.mark.parametrize("case", TAKEN)
def test_what_the_table_has_is_taken_by_auto_and_by_name(hopper: FakeTensorMode, case: str) -> None:
    shape, settings = TAKEN[case]
    with hopper:
        qkv = tensors(**shape)
        assert impl_of(qkv, **settings) == "gluon"
        assert impl_of(qkv, **settings, impl="gluon") == "gluon"
        assert impl_of(qkv, **settings, impl="triton") == "triton"


def test_auto_leaves_short_sequences_to_triton(
    hopper: FakeTensorMode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(op, "GLUON_FROM", 512)
    with hopper:
        assert impl_of(tensors(length=511)) == "triton"
        assert impl_of(tensors(length=512)) == "gluon"
        assert impl_of(tensors(length=511), impl="gluon") == "gluon"


@pytest.mark.parametrize("case", REFUSED)
def test_what_it_has_not_goes_to_triton_or_says_why(hopper: FakeTensorMode, case: str) -> None:
    shape, settings, why = REFUSED[case]
    with hopper:
        qkv = tensors(**shape)
        assert impl_of(qkv, **settings) == "triton"
        with pytest.raises(ImplUnavailableError, match=r"impl='gluon' cannot run: ") as refused:
            flash_attention(*qkv, **settings, impl="gluon")
    assert why in str(refused.value)
    assert str(refused.value).endswith("; or pass impl='auto'")


def test_a_mask_is_refused(hopper: FakeTensorMode) -> None:
    with hopper:
        q, k, v = tensors()
        mask = torch.ones(256, 256, dtype=torch.bool, device="cuda:0")
        assert impl_of((q, k, v), mask=mask) == "triton"
        with pytest.raises(ImplUnavailableError, match="it has no mask"):
            flash_attention(q, k, v, mask=mask, impl="gluon")


def test_packed_sequences_are_taken(hopper: FakeTensorMode) -> None:
    with hopper:
        packed = torch.empty(256, 8, 96, dtype=torch.bfloat16, device="cuda:0")
        starts = torch.zeros(3, dtype=torch.int32, device="cuda:0")

        def chosen(x: torch.Tensor, **settings: Any) -> str:
            with pytest.raises(Chosen) as chosen:
                flash_attention_varlen(x, x, x, starts, starts, **settings)
            return chosen.value.args[0]

        assert chosen(packed, impl="gluon") == "gluon"
        assert chosen(packed, impl="gluon", causal=True, window=(9, 0), softcap=3.0) == "gluon"
        with pytest.raises(ImplUnavailableError, match="head_dim and value dim 64, 96, 128, 192"):
            chosen(packed.narrow(2, 0, 80), impl="gluon")
        # auto: where it was seen to be faster
        assert chosen(packed) == "triton"
        for rows, dim, impl in (
            (50_000, 128, "gluon"),
            (49_999, 128, "triton"),
            (50_000, 64, "triton"),
        ):
            many = torch.empty(rows, 8, dim, dtype=torch.bfloat16, device="cuda:0")
            assert chosen(many) == impl
        in_float32 = torch.empty(50_000, 8, 128, device="cuda:0")
        assert chosen(in_float32) == "triton"


@pytest.mark.parametrize("scheduled", [False, True])
def test_in_a_capture_auto_takes_gluon_where_its_schedule_is_there(
    hopper: FakeTensorMode, monkeypatch: pytest.MonkeyPatch, scheduled: bool
) -> None:
    launches = SimpleNamespace(is_scheduled=lambda call: scheduled)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    monkeypatch.setattr(run, "gluon", lambda: launches)
    with hopper:
        qkv = tensors()
        assert impl_of(qkv, causal=True) == ("gluon" if scheduled else "triton")
        # a call without a mask has no schedule, and by name it goes on to where its absence is said
        assert impl_of(qkv) == "gluon"
        assert impl_of(qkv, causal=True, impl="gluon") == "gluon"


def test_a_schedule_is_not_copied_in_a_capture(monkeypatch: pytest.MonkeyPatch) -> None:
    tiling = gluon_schedule.Tiling(0, 2, 3, 128, 128, 0, 1, 6)
    lists = torch.zeros(1), torch.zeros(1)
    monkeypatch.setattr(gluon_schedule, "_ready", {tiling: lists})
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    assert gluon_schedule.is_ready(tiling)
    assert gluon_schedule.schedule_on(tiling) is lists
    other = tiling._replace(instances=4)
    assert not gluon_schedule.is_ready(other)
    with pytest.raises(KernelError, match="call it once before the capture"):
        gluon_schedule.schedule_on(other)


def test_torchs_own_switch_for_determinism_counts(hopper: FakeTensorMode) -> None:
    with hopper:
        qkv = tensors(grad=True)
        assert impl_of(qkv, deterministic=True) == "gluon-deterministic"
        torch.use_deterministic_algorithms(True)
        try:
            assert impl_of(qkv) == "gluon-deterministic"
            assert impl_of(qkv, impl="triton") == "triton"
        finally:
            torch.use_deterministic_algorithms(False)
        assert impl_of(qkv) == "gluon"


def laid_out(shape: tuple[int, ...], strides: tuple[int, ...]) -> torch.Tensor:
    return torch.empty_strided(shape, strides, dtype=torch.bfloat16, device="cuda:0")


def test_strides_that_tma_takes(hopper: FakeTensorMode) -> None:
    shape = (2, 8, 256, 128)
    with hopper:
        of_qkv = laid_out(shape, (256 * 3 * 1024, 128, 3 * 1024, 1))
        assert impl_of((of_qkv, of_qkv, of_qkv)) == "gluon"
        plain = laid_out(shape, (2**18, 2**15, 128, 1))
        refused = {
            "rows of 260 bytes": (8 * 256 * 130, 256 * 130, 130, 1),
            "inner stride 2": (2**19, 2**16, 256, 2),
            "inner dims swapped": (2**18, 2**15, 1, 256),
            "heads that are one": (2**15, 0, 128, 1),
        }
        for name, strides in refused.items():
            k = laid_out(shape, strides)
            assert impl_of((plain, k, plain)) == "triton", name
            with pytest.raises(ImplUnavailableError, match=r"k is not laid out .* k\.contiguous"):
                flash_attention(plain, k, plain, impl="gluon")
        any_batch_stride = laid_out((1, 8, 256, 128), (3, 2**15, 128, 1))
        assert impl_of((any_batch_stride,) * 3) == "gluon"


def test_cpu_tensors_are_refused_by_name() -> None:
    q = torch.zeros(1, 1, 128, 64, dtype=torch.bfloat16)
    with pytest.raises(ImplUnavailableError, match="it needs CUDA tensors, these are on cpu"):
        flash_attention(q, q, q, impl="gluon")
    assert flash_attention(q, q, q).shape == q.shape


@pytest.mark.parametrize(
    ("capability", "version", "why"),
    [
        ((8, 0), "3.6.0", r"compute capability 9.0 \(Hopper\), this GPU has \(8, 0\)"),
        ((10, 0), "3.6.0", r"this GPU has \(10, 0\)"),
        ((9, 0), "3.5.1", "written for Triton 3.6, 3.5.1 is installed"),
        ((9, 0), "3.7.0+git", r"written for Triton 3.6, 3.7.0\+git is installed"),
    ],
)
def test_another_gpu_or_triton_is_refused(
    monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int], version: str, why: str
) -> None:
    triton = pytest.importorskip("triton")
    monkeypatch.setattr(gluon_envelope, "_answers", {})
    monkeypatch.setattr(gluon_envelope, "interpreting", lambda: False)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda index: capability)
    monkeypatch.setattr(triton, "__version__", version)
    with FakeTensorMode():
        q = torch.empty(1, 1, 128, 64, dtype=torch.bfloat16, device="cuda:0")
        with pytest.raises(ImplUnavailableError, match=why):
            flash_attention(q, q, q, impl="gluon")


def test_the_rule_is_traced_in_one_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gluon_envelope, "_answers", {0: None})

    def ask(q: torch.Tensor) -> tuple[torch.Tensor, str | None]:
        refusal = gluon_envelope._answer(0) or gluon_envelope.call_refusal(
            q, q, q, scale=1.0, softcap=0.0, masked=False
        )
        return q + 1, refusal

    compiled = torch.compile(ask, fullgraph=True, backend="eager")
    for length in (128, 200, 256, 300):
        for dim in (64, 80):
            q = torch.zeros(1, 2, length, dim, dtype=torch.bfloat16, requires_grad=True)
            refusal = compiled(q)[1]
            assert (refusal is None) == (dim == 64)


@pytest.mark.parametrize(
    ("instances", "blocks", "together", "programs"),
    [(128, 32, 16, 132), (1, 1, 1, 1), (3, 5, 2, 132), (7, 11, 100, 4), (32, 128, 1, 132)],
)
def test_every_tile_is_on_one_list(instances, blocks, together, programs) -> None:
    steps = list(range(1, blocks + 1))
    programs = min(programs, instances * blocks)
    table, lists = balanced_lists(instances, steps, together, programs)
    counts, offsets = lists[:programs], lists[programs:]
    tiles = [tile for n, at in zip(counts, offsets, strict=True) for tile in table[at : at + n]]
    assert sorted(tiles) == list(range(instances * blocks))
    # the entry after a list's last is there to be fetched
    assert max(n + at for n, at in zip(counts, offsets, strict=True)) < len(table)


def test_lists_are_equally_long_to_one_tile() -> None:
    steps = list(range(1, 33))
    table, lists = balanced_lists(128, steps, 16, 132)
    work = [
        sum(steps[tile % 32] + 1 for tile in table[at : at + n])
        for n, at in zip(lists[:132], lists[132:], strict=True)
    ]
    assert max(work) - min(work) <= 33
    assert max(work) < 1.01 * sum(work) / 132


def test_heads_that_share_the_l2_cache() -> None:
    assert heads_together(4096 * 128 * 4) == 16
    assert heads_together(2**40) == 1
