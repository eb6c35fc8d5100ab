"""Softmax as torch sees it: registered ops, compilation, checkpointing, autocast, errors."""

from __future__ import annotations

import pytest
import torch
from softmax_truth import IMPLS, INTERPRETED
from torch._dynamo.testing import CompileCounter
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

from trainscope_kernels.errors import ArgumentError, ImplUnavailableError
from trainscope_kernels.modules import Softmax
from trainscope_kernels.softmax import softmax

FORWARD = torch.ops.trainscope_kernels.softmax_forward.default
BACKWARD = torch.ops.trainscope_kernels.softmax_backward.default


@pytest.mark.parametrize("impl", IMPLS)
@pytest.mark.parametrize(("shape", "dim"), [((3, 7), 1), ((3, 7, 2), 1), ((), 0), ((0, 4), 1)])
def test_opcheck_finds_schema_fake_and_autograd_right(shape, dim, impl, device) -> None:
    x = torch.randn(shape, device=device, requires_grad=True)
    torch.library.opcheck(FORWARD, (x, dim, torch.float32, impl))
    dy = torch.randn(shape, device=device)
    backward = (dy, x.detach().softmax(dim), dim, torch.float32, impl)
    torch.library.opcheck(BACKWARD, backward)


@pytest.mark.parametrize("impl", IMPLS)
def test_the_fake_has_the_true_strides_for_views_too(impl, device) -> None:
    x = torch.randn(4, 5, 6, device=device).permute(2, 0, 1).requires_grad_()
    torch.library.opcheck(FORWARD, (x, 1, torch.float16, impl))


@pytest.mark.parametrize("impl", ["triton", "auto"])
@pytest.mark.parametrize("dynamic", [False, True])
def test_compiles_in_one_graph_forward_and_backward(dynamic, impl, device) -> None:
    torch._dynamo.reset()

    def loss_of(x):
        return (softmax(x.t(), 0, impl=impl) * torch.arange(x.shape[0], device=x.device)).sum()

    compiled = torch.compile(loss_of, fullgraph=True, dynamic=dynamic, backend="aot_eager")
    for rows in (4, 6):
        x = torch.randn(rows, 5, device=device, requires_grad=True)
        eager = x.detach().clone().requires_grad_()
        loss, wanted = compiled(x), loss_of(eager)
        loss.backward()
        wanted.backward()
        torch.testing.assert_close(loss, wanted)
        torch.testing.assert_close(x.grad, eager.grad)


def test_a_dynamic_batch_is_compiled_once(device) -> None:
    torch._dynamo.reset()
    counter = CompileCounter()
    compiled = torch.compile(lambda x: softmax(x) + 1, dynamic=True, backend=counter)
    for rows in range(2, 9):
        compiled(torch.randn(rows, 5, device=device))
    assert counter.frame_count == 1


@pytest.mark.parametrize("impl", IMPLS)
@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointing_gives_the_same_gradient(reentrant, impl, device) -> None:
    x = torch.randn(4, 9, device=device, requires_grad=True)

    def block(each):
        return softmax(each * 2, impl=impl).square()

    (wanted,) = torch.autograd.grad(block(x).sum(), x)
    checkpoint(block, x, use_reentrant=reentrant).sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad, wanted)


def test_selective_checkpointing_keeps_the_result_by_the_name_of_the_op(device) -> None:
    seen = []

    def policy(_context, op, *_arguments, **_options):
        if op is FORWARD:
            seen.append(op)
            return CheckpointPolicy.MUST_SAVE
        return CheckpointPolicy.PREFER_RECOMPUTE

    x = torch.randn(4, 9, device=device, requires_grad=True)
    contexts = lambda: create_selective_checkpoint_contexts(policy)  # noqa: E731

    def block(each):
        return softmax(each.sin()).square().sum()

    (dx,) = torch.autograd.grad(checkpoint(block, x, use_reentrant=False, context_fn=contexts), x)
    assert seen
    assert torch.equal(dx, torch.autograd.grad(block(x), x)[0])


@pytest.mark.parametrize("impl", IMPLS)
def test_under_autocast_the_result_has_the_dtype_that_torch_gives(impl, device) -> None:
    x = torch.randn(4, 9, device=device).bfloat16().requires_grad_()
    with torch.autocast(device.type, torch.bfloat16):
        y, torchs = softmax(x, impl=impl), torch.softmax(x, -1)
    assert y.dtype == torchs.dtype == (torch.float32 if x.is_cuda else torch.bfloat16)
    torch.testing.assert_close(y, torchs)
    y.square().sum().backward()
    assert x.grad is not None
    assert x.grad.dtype == torch.bfloat16


def test_meta_and_exported_programs_have_the_op(device) -> None:
    meta = softmax(torch.empty(3, 4, device="meta").t(), impl="reference")
    assert (meta.shape, meta.stride()) == (torch.Size((4, 3)), (3, 1))
    program = torch.export.export(Softmax(-1, impl="reference"), (torch.randn(3, 4),))
    assert FORWARD in [node.target for node in program.graph.nodes]


@pytest.mark.parametrize(
    ("arguments", "options", "words"),
    [
        ((torch.ones(2, 3), 2), {}, "dim is 2; x has 2 dims, so -2 to 1 are allowed"),
        ((torch.ones(2, 3), None), {}, "dim must be an int, got NoneType; -1 is the last one"),
        ((torch.tensor(1.0), 1), {}, "dim is 1; x has 0 dims, so -1 to 0 are allowed"),
        ((torch.ones(2, 3).int(),), {}, "x has dtype torch.int32"),
        ((torch.ones(2, 3),), {"dtype": torch.int64}, "dtype is torch.int64"),
        ((torch.ones(2, 3),), {"impl": "cudnn"}, "'auto', 'reference', 'triton', 'cuda'"),
        (([1.0],), {}, "x must be a tensor, got list"),
        ((torch.ones(2, 3).to_sparse(),), {}, "use x.to_dense()"),
        ((torch.nested.nested_tensor([torch.ones(2)], layout=torch.jagged),), {}, "x is a nested"),
    ],
)
def test_a_bad_argument_is_named_with_what_is_allowed(arguments, options, words) -> None:
    with pytest.raises(ArgumentError) as raised:
        softmax(*arguments, **options)
    assert words in str(raised.value)


def test_an_impl_asked_for_by_name_never_falls_back(monkeypatch) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "0")
    from trainscope_kernels import impls

    monkeypatch.setattr(impls, "_reasons", {})
    with pytest.raises(ImplUnavailableError, match="on cpu"):
        softmax(torch.ones(2, 3), impl="triton")


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize("impl", IMPLS)
def test_vmap_runs_row_by_row(impl, device) -> None:
    x = torch.randn(3, 4, 5, device=device)
    mapped = torch.func.vmap(lambda each: softmax(each, 0, impl=impl), in_dims=1)(x)
    torch.testing.assert_close(mapped, torch.softmax(x, 0).transpose(0, 1))


def test_the_module_is_the_function_and_says_its_arguments(device) -> None:
    x = torch.randn(3, 4, 5, device=device)
    module = Softmax(1, impl="reference")
    assert torch.equal(module(x), softmax(x, 1, impl="reference"))
    assert repr(module) == "Softmax(dim=1, impl='reference')"


@pytest.mark.skipif(not INTERPRETED, reason="auto takes Triton where there is a GPU")
def test_auto_is_the_reference_where_there_is_no_gpu() -> None:
    x = torch.randn(3, 4)
    assert torch.equal(softmax(x), softmax(x, impl="reference"))
