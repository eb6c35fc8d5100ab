"""The attention op and what torch does with an op: tracing, fakes, export, recomputing, copies."""

from __future__ import annotations

import copy
import pickle
from functools import partial
from typing import Any

import pytest
import torch
from torch._dynamo.testing import CompileCounter
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

from trainscope_kernels import GELU, Attention, Softmax, flash_attention, flash_attention_varlen
from trainscope_kernels.attention import reference

OPS = torch.ops.trainscope_kernels
OP = OPS.flash_attention.default
BACKWARD = OPS.flash_attention_backward.default
# float64 runs in Triton's interpreter only
IMPLS = ("reference",) if torch.cuda.is_available() else ("reference", "triton")


def doubles(n_q: int = 18, n_k: int = 20, wants: bool = True) -> list[torch.Tensor]:
    torch.manual_seed(0)
    shapes = [(1, 2, n_q, 4), (1, 1, n_k, 4), (1, 1, n_k, 3)]
    return [torch.randn(s, dtype=torch.float64).requires_grad_(wants) for s in shapes]


def packed() -> tuple[list[torch.Tensor], torch.Tensor]:
    torch.manual_seed(0)
    qkv = [torch.randn(1, 2, 9, 4, dtype=torch.float64).requires_grad_() for _ in range(3)]
    return qkv, torch.tensor([0, 4, 4, 9], dtype=torch.int32)


@pytest.mark.parametrize("impl", IMPLS)
def test_opcheck_with_a_mask_and_packed_sequences(impl: str) -> None:
    masked = (*doubles(), torch.rand(1, 2, 18, 20) > 0.3, None, None, 0.5, 2.0, -1, -1, False, impl)
    qkv, cu = packed()
    sequences = (*qkv, None, cu, cu, 0.5, 0.0, -1, 0, False, impl)
    for arguments in (masked, sequences):
        assert set(torch.library.opcheck(OP, arguments).values()) == {"SUCCESS"}


@pytest.mark.parametrize("impl", IMPLS)
def test_opcheck_of_the_backward(impl: str) -> None:
    qkv = doubles(wants=False)
    call = (*qkv, None, None, None, 0.5, 0.0, -1, 0, True)
    out, lse = OP(*call, impl)
    grad, grad_lse = torch.randn_like(out), torch.randn_like(lse)
    utils = ("test_schema", "test_faketensor", "test_autograd_registration")
    for wanted in ((True, True), (True, False), (False, True)):
        arguments = (*call, grad, grad_lse, out, lse, impl, *wanted)
        result = torch.library.opcheck(BACKWARD, arguments, test_utils=utils)
        assert set(result.values()) == {"SUCCESS"}


@pytest.mark.parametrize("impl", IMPLS)
def test_dynamic_lengths_are_compiled_once_and_right(impl: str) -> None:
    torch._dynamo.reset()

    def loss(*qkv: torch.Tensor) -> torch.Tensor:
        return flash_attention(*qkv, causal="bottom-right", impl=impl).square().sum()

    counter = CompileCounter()
    counted = torch.compile(loss, fullgraph=True, dynamic=True, backend=counter)
    compiled = torch.compile(loss, fullgraph=True, dynamic=True, backend="aot_eager")
    for n_q, n_k in ((5, 7), (6, 19), (17, 18), (33, 40)):
        leaves = doubles(n_q, n_k)
        counted(*(x.detach() for x in leaves))
        for ours, right in zip(
            torch.autograd.grad(compiled(*leaves), leaves),
            torch.autograd.grad(loss(*leaves), leaves),
            strict=True,
        ):
            torch.testing.assert_close(ours, right)
    assert counter.frame_count == 1


def test_every_option_compiles_whole() -> None:
    torch._dynamo.reset()

    def attend(q: torch.Tensor, mask: torch.Tensor, width: int) -> list[torch.Tensor]:
        ways: list[dict[str, Any]] = [
            {"window": (width, 0), "causal": True},
            {"window": [1, 2], "scale": 0.3, "softcap": 2.0},
            {"mask": mask, "causal": "bottom-right"},
            {"deterministic": True, "impl": "reference"},
        ]
        return [flash_attention(q, q, q, **how) for how in ways]

    compiled = torch.compile(attend, fullgraph=True, backend="aot_eager", dynamic=True)
    for length in (6, 9):
        q = torch.randn(1, 2, length, 4)
        given = q, torch.rand(length, length) > 0.3, length - 3
        torch.testing.assert_close(compiled(*given), attend(*given))


def test_a_length_that_is_marked_as_dynamic_compiles_once() -> None:
    torch._dynamo.reset()
    counter = CompileCounter()
    attend = lambda q: flash_attention(q, q, q, impl="reference")  # noqa: E731
    compiled = torch.compile(attend, fullgraph=True, backend=counter)
    for length in (8, 9, 12):
        q = torch.randn(1, 2, length, 4)
        torch._dynamo.mark_dynamic(q, 2)
        compiled(q)
    assert counter.frame_count == 1


def test_packed_sequences_compile_whole() -> None:
    torch._dynamo.reset()

    def attend(x: torch.Tensor, cu: torch.Tensor) -> torch.Tensor:
        return flash_attention_varlen(x, x, x, cu, cu, causal=True, impl="reference")

    compiled = torch.compile(attend, fullgraph=True, backend="aot_eager")
    x = torch.randn(9, 2, 4)
    cu = torch.tensor([0, 4, 9], dtype=torch.int32)
    torch.testing.assert_close(compiled(x, cu), attend(x, cu))


def test_fake_and_meta_tensors_get_the_true_shapes_dtypes_and_strides() -> None:
    views = [lambda x: x, lambda x: x.transpose(1, 2).contiguous().transpose(1, 2)]
    for view in views:
        q, k, v = (view(x.detach()) for x in doubles())
        real = flash_attention(q, k, v, impl="reference", return_lse=True)
        with FakeTensorMode() as mode:
            fake = flash_attention(
                *(mode.from_tensor(x) for x in (q, k, v)), impl="reference", return_lse=True
            )
        meta = flash_attention(
            *(x.to("meta") for x in (q, k, v)), impl="reference", return_lse=True
        )
        for a, b, c in zip(real, fake, meta, strict=True):
            assert a.shape == b.shape == c.shape
            assert a.stride() == b.stride() == c.stride()
            assert a.dtype == b.dtype == c.dtype


def test_an_exported_program_and_a_traced_graph_have_the_op() -> None:
    qkv = tuple(x.detach() for x in doubles())
    module = Attention(causal="top-left", impl="reference")
    program = torch.export.export(module, qkv)
    assert OP in [node.target for node in program.graph.nodes]
    assert torch.equal(program.module()(*qkv), module(*qkv))
    traced = make_fx(lambda *qkv: module(*qkv))(*qkv)
    assert OP in [node.target for node in traced.graph.nodes]


def test_selective_checkpointing_keeps_it_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[Any] = []
    forward = reference.forward
    monkeypatch.setattr(reference, "forward", lambda call: (begun.append(1), forward(call))[1])

    def policy(_: object, op: object, *args: object, **kwargs: object) -> CheckpointPolicy:
        return CheckpointPolicy.MUST_SAVE if op is OP else CheckpointPolicy.PREFER_RECOMPUTE

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return flash_attention(q.sin(), k, v, impl="reference").exp()

    leaves = doubles()
    contexts = partial(create_selective_checkpoint_contexts, policy)
    out = checkpoint(attend, *leaves, use_reentrant=False, context_fn=contexts)
    ours = torch.autograd.grad(out.sum(), leaves)
    assert begun == [1], "what is kept is not computed again"
    right = torch.autograd.grad(attend(*leaves).sum(), leaves)
    assert all(torch.equal(a, b) for a, b in zip(ours, right, strict=True))


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize("impl", IMPLS)
def test_vmap_is_one_call_for_each(impl: str) -> None:
    q = torch.randn(3, 1, 2, 9, 4, dtype=torch.float64)
    attend = partial(flash_attention, causal=True, impl=impl)
    mapped = torch.func.vmap(lambda x: attend(x, x, x))(q)
    torch.testing.assert_close(mapped, torch.stack([attend(x, x, x) for x in q]))


@pytest.mark.parametrize(
    ("module", "inputs"),
    [
        (GELU("tanh", impl="reference"), 1),
        (Softmax(2, impl="reference"), 1),
        (Attention(window=(3, 0), softcap=2.0, scale=0.5, impl="reference"), 3),
    ],
    ids=["GELU", "Softmax", "Attention"],
)
def test_copies_and_pickles_of_modules_compute_the_same(module, inputs) -> None:
    given = [torch.randn(1, 2, 6, 4) for _ in range(inputs)]
    for twin in (copy.copy(module), copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert torch.equal(twin(*given), module(*given))
        assert repr(twin) == repr(module)
