"""GELU as torch sees it: gradients, compile, checkpointing, autocast."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from gelu_truth import FORMS, IMPLS
from torch._dynamo.backends.debugging import aot_eager
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

import trainscope_kernels
from trainscope_kernels import GELU, bias_gelu, gelu

DOUBLE_IMPLS = ["reference", "triton"]


def inputs(device: torch.device, dtype: torch.dtype = torch.float64) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(7)
    x = torch.randn(3, 5, generator=generator, dtype=torch.float64)
    b = torch.randn(5, generator=generator, dtype=torch.float64)
    return [t.to(device, dtype).requires_grad_() for t in (x, b)]


@pytest.mark.parametrize("impl", DOUBLE_IMPLS)
@pytest.mark.parametrize("approximate", FORMS)
def test_gradcheck(approximate: str, impl: str, device: torch.device) -> None:
    x, b = inputs(device)
    # along random directions, each of which every entry has a part in
    check = partial(torch.autograd.gradcheck, fast_mode=True)
    assert check(lambda t: gelu(t, approximate, impl=impl), x)
    assert check(lambda t, c: bias_gelu(t, c, approximate, impl=impl), (x, b))


@pytest.mark.parametrize("impl", IMPLS)
def test_opcheck(impl: str, device: torch.device) -> None:
    x, b = inputs(device, torch.float32)
    ops = torch.ops.trainscope_kernels
    g = torch.randn_like(x.detach())
    torch.library.opcheck(ops.gelu.default, (x, "none", impl))
    torch.library.opcheck(ops.gelu_backward.default, (g, x.detach(), "tanh", impl))
    for layout in (x.detach().t(), x.detach()[:, ::2]):  # what they change is the fake's strides
        arguments = (layout, layout, "tanh", impl)
        utils = ("test_schema", "test_faketensor")
        torch.library.opcheck(ops.gelu.default, arguments[1:], test_utils=utils)
        torch.library.opcheck(ops.gelu_backward.default, arguments, test_utils=utils)
    torch.library.opcheck(ops.bias_gelu.default, (x, b, "none", impl))
    arguments = (g, x.detach(), b.detach(), "none", impl)
    torch.library.opcheck(ops.bias_gelu_backward.default, arguments)


@pytest.mark.parametrize("impl", ["auto", "triton"])
@pytest.mark.parametrize("dynamic", [None, True])
def test_compiles_into_one_graph(dynamic: bool | None, impl: str, device: torch.device) -> None:
    def step(t: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        return trainscope_kernels.gelu(
            bias_gelu(t.t(), c, impl=impl) * 2.0, "tanh", impl=impl
        ).sum()

    torch._dynamo.reset()
    graphs = []

    def counted(graph: torch.fx.GraphModule, examples: list[torch.Tensor]) -> object:
        graphs.append(graph)
        return aot_eager(graph, examples)

    compiled = torch.compile(step, fullgraph=True, dynamic=dynamic, backend=counted)
    for columns in (6, 9, 17):
        x = torch.randn(5, columns, device=device, requires_grad=True)
        b = torch.randn(5, device=device, requires_grad=True)
        ours = torch.autograd.grad(compiled(x, b), (x, b))
        plain = torch.autograd.grad(step(x, b), (x, b))
        torch.testing.assert_close(ours, plain)
    assert len(graphs) == (1 if dynamic else 2)


def test_exports(device: torch.device) -> None:
    exported = torch.export.export(GELU("tanh"), (torch.randn(4, 8, device=device),))
    targets = [str(node.target) for node in exported.graph.nodes]
    assert "trainscope_kernels.gelu.default" in targets
    x = torch.randn(4, 8, device=device)
    assert torch.equal(exported.module()(x), gelu(x, "tanh"))


def test_meta_and_fake_tensors_need_no_kernel() -> None:
    x = torch.empty(6, 4, device="meta", dtype=torch.bfloat16).t()
    for impl in ("auto", "reference", "triton", "cuda"):
        y = gelu(x, impl=impl)
        assert (y.device.type, y.shape, y.stride(), y.dtype) == ("meta", (4, 6), (1, 4), x.dtype)


@pytest.mark.parametrize("impl", IMPLS)
@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointing_gives_the_same_gradient(
    reentrant: bool, impl: str, device: torch.device
) -> None:
    x, _ = inputs(device, torch.float32)
    block = partial(gelu, approximate="tanh", impl=impl)
    (plain,) = torch.autograd.grad(block(block(x)).sum(), x)
    checkpoint(lambda t: block(block(t)), x, use_reentrant=reentrant).sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad, plain)


def test_selective_checkpointing_knows_it_by_name(device: torch.device) -> None:
    op = torch.ops.trainscope_kernels.gelu.default
    seen = []

    def policy(ctx: object, called: object, *args: object, **kwargs: object) -> CheckpointPolicy:
        seen.append(called)
        kept = CheckpointPolicy.MUST_SAVE
        return kept if called is op else CheckpointPolicy.PREFER_RECOMPUTE

    x, _ = inputs(device, torch.float32)
    contexts = partial(create_selective_checkpoint_contexts, policy)
    y = checkpoint(lambda t: gelu(t * 2.0).exp(), x, use_reentrant=False, context_fn=contexts)
    (dx,) = torch.autograd.grad(y.sum(), x)
    (plain,) = torch.autograd.grad(gelu(x * 2.0).exp().sum(), x)
    assert torch.equal(dx, plain)
    assert op in seen


@pytest.mark.parametrize("impl", IMPLS)
def test_autocast_leaves_the_dtype_as_torch_does(impl: str, device: torch.device) -> None:
    x, b = inputs(device, torch.float32)
    with torch.autocast(device.type, torch.bfloat16):
        hidden = torch.nn.functional.linear(x, torch.eye(5, device=device))
        assert gelu(x, impl=impl).dtype == torch.float32
        assert gelu(hidden, impl=impl).dtype == torch.bfloat16
        y = bias_gelu(hidden, b, impl=impl)
    assert y.dtype == torch.bfloat16
    y.sum().backward()
    assert x.grad is not None
    assert b.grad is not None
    assert x.grad.dtype == b.grad.dtype == torch.float32


@pytest.mark.parametrize("impl", IMPLS)
def test_differentiating_twice_says_that_it_cannot(impl: str, device: torch.device) -> None:
    x, b = inputs(device, torch.float32)
    for name, y in (("gelu", gelu(x, impl=impl)), ("bias_gelu", bias_gelu(x, b, impl=impl))):
        (first,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        with pytest.raises(NotImplementedError, match=rf"{name} has no second derivative"):
            first.sum().backward()


@pytest.mark.parametrize("impl", IMPLS)
def test_no_grad_and_inference_mode(impl: str, device: torch.device) -> None:
    x, _ = inputs(device, torch.float32)
    wanted = gelu(x, impl=impl).detach()
    with torch.no_grad():
        y = gelu(x, impl=impl)
    assert not y.requires_grad
    assert torch.equal(y, wanted)
    with torch.inference_mode():
        y = gelu(x, impl=impl)
    assert y.is_inference()
    assert torch.equal(y, wanted)


def test_the_backward_can_run_twice(device: torch.device) -> None:
    x, b = inputs(device, torch.float32)
    y = bias_gelu(x, b)
    first = torch.autograd.grad(y.sum(), (x, b), retain_graph=True)
    second = torch.autograd.grad(y.sum(), (x, b))
    assert torch.equal(first[0], second[0])
    assert torch.equal(first[1], second[1])


def test_vmap(device: torch.device) -> None:
    x, _ = inputs(device, torch.float32)
    assert torch.equal(torch.func.vmap(gelu)(x), gelu(x))
