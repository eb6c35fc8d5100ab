"""What a swapped model runs under: checkpoints, transforms, contexts, wrappers, a fast path."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from swapped_nets import ALL, Small, ops_of, small_input
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from trainscope_kernels import swap


@pytest.fixture
def x() -> torch.Tensor:
    return small_input()


class Checkpointed(nn.Module):
    """Runs a part again in backward: a module, a method, or a function of its own."""

    def __init__(self, part: str, *, reentrant: bool) -> None:
        super().__init__()
        self.part = part
        self.reentrant = reentrant
        self.block = Small()

    def method(self, x: torch.Tensor) -> torch.Tensor:
        q = x[None]
        return F.gelu(F.scaled_dot_product_attention(q, q, q)[0])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts: dict[str, Callable[..., Any]] = {
            "module": self.block,
            "call": self.block.__call__,
            "method": self.method,
            "function": lambda x: F.softmax(F.gelu(self.block(x)), -1),
        }
        return checkpoint(parts[self.part], x, use_reentrant=self.reentrant)


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("part", ["module", "call", "method", "function"])
def test_what_is_checkpointed_runs_twice_alike(x: torch.Tensor, part: str, reentrant: bool) -> None:
    model = Checkpointed(part, reentrant=reentrant)
    grads = []
    for swapped in (False, True):
        if swapped:
            swap(model, impl="reference")
        x = x.detach().clone().requires_grad_()
        model(x).square().sum().backward()
        grads.append(x.grad)
    torch.testing.assert_close(grads[1], grads[0])
    if part in ("module", "call"):
        assert ops_of(model, x) == ALL


def test_a_whole_model_that_is_checkpointed(x: torch.Tensor) -> None:
    model = Small()
    swap(model, impl="reference")
    assert ops_of(lambda: checkpoint(model, x, use_reentrant=False)) == ALL
    checkpoint(model, x, use_reentrant=False).sum().backward()
    assert model.project.weight.grad is not None


@pytest.mark.parametrize(
    "context",
    [
        torch.inference_mode,
        torch.no_grad,
        lambda: torch.autocast("cpu", torch.bfloat16),
        lambda: torch.device("cpu"),
        lambda: torch.autograd.graph.save_on_cpu(),
    ],
)
def test_contexts(x: torch.Tensor, context: Callable[[], AbstractContextManager[Any]]) -> None:
    model = Small()
    with context():
        expected = model(x)
        swap(model, impl="reference")
        got = model(x)
        assert ops_of(model, x) == ALL
    assert got.dtype == expected.dtype
    torch.testing.assert_close(got, expected, rtol=2e-2, atol=2e-2)


def transformed(model: nn.Module, x: torch.Tensor) -> dict[str, Callable[[], torch.Tensor]]:
    from torch.func import functional_call, grad, jacrev, jvp, vmap

    weights = dict(model.named_parameters())

    def loss(weights: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        return functional_call(model, weights, (x,)).square().sum()

    many = torch.stack([x, x * 2])
    return {
        "vmap": lambda: vmap(model)(many),
        "grad": lambda: grad(loss)(weights, x)["project.weight"],
        "grad of each": lambda: vmap(grad(loss), (None, 0))(weights, many)["project.weight"],
        "jacrev": lambda: jacrev(model)(x),
        "jvp": lambda: jvp(Activations(), (x,), (x,))[1],
    }


class Activations(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.act = nn.GELU()
        self.norm = nn.Softmax(dim=-1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(F.gelu(self.act(x)))


@pytest.mark.parametrize("name", ["vmap", "grad", "grad of each", "jacrev"])
def test_transforms_of_functions_are_left_to_torch(x: torch.Tensor, name: str) -> None:
    model = Small()
    expected = transformed(model, x)[name]()
    swap(model, impl="reference")
    torch.testing.assert_close(transformed(model, x)[name](), expected)


def test_forward_mode_is_left_to_torch(x: torch.Tensor) -> None:
    model = Activations()
    expected = torch.func.jvp(model, (x,), (x,))[1]
    swap(model, impl="reference")
    torch.testing.assert_close(torch.func.jvp(model, (x,), (x,))[1], expected)


class Special(torch.Tensor):
    pass


@pytest.mark.parametrize(
    "special",
    [
        lambda x: x.as_subclass(Special),
        lambda x: x.double(),
        lambda x: x.to("meta"),
        lambda x: torch.nested.nested_tensor([x[0], x[1, :2]], layout=torch.jagged),
        lambda x: torch.nested.nested_tensor([x[0], x[1, :2]]),
    ],
)
def test_special_tensors_pass_modules_and_calls(
    x: torch.Tensor, special: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    model = Activations()
    expected = model(special(x))
    swap(model, impl="reference")
    got = model(special(x))
    assert (type(got), got.dtype, got.layout) == (type(expected), expected.dtype, expected.layout)


def test_a_bias_that_is_more_than_a_tensor(x: torch.Tensor) -> None:
    from torch.nn.attention.bias import causal_lower_right

    class Biased(nn.Module):
        def forward(self, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
            bias = causal_lower_right(q.shape[2], k.shape[2])
            return F.scaled_dot_product_attention(q, k, k, attn_mask=bias)

    model, q, k = Biased(), x[None, :, :3], x[None]
    expected = model(q, k)
    swap(model, impl="reference")
    torch.testing.assert_close(model(q, k), expected)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("mask_check", [False, True])  # with it, newer torch has it in eager only
def test_torchs_transformer_keeps_its_fast_path(compiled: bool, mask_check: bool) -> None:
    """It gives 0 where the padding is, which the slow path does not."""
    layer = nn.TransformerEncoderLayer(16, 2, 32, activation="gelu", batch_first=True, dropout=0.0)
    model = nn.TransformerEncoder(layer, 2, mask_check=mask_check).eval()
    x, padding = torch.randn(3, 6, 16), torch.zeros(3, 6, dtype=torch.bool)
    padding[0, 4:] = True
    outer = nn.Sequential(model)  # as part of another

    def run(call: Callable[..., torch.Tensor]) -> torch.Tensor:
        run_it = torch.compile(call, backend="eager") if compiled else call
        with torch.no_grad():
            return run_it(x, src_key_padding_mask=padding)

    expected = run(model)
    torch._dynamo.reset()
    swap(outer, impl="reference")
    assert torch.equal(run(model), expected)
    assert ops_of(model.train(), x) == ["gelu"] * 2


class Encoder(nn.TransformerEncoder):
    def forward(self, src: torch.Tensor, padding: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return super().forward(F.gelu(src), src_key_padding_mask=padding)


def test_a_class_of_torchs_transformer_keeps_its_fast_path() -> None:
    layer = nn.TransformerEncoderLayer(16, 2, 32, activation="gelu", batch_first=True, dropout=0.0)
    model = Encoder(layer, 2).eval()
    x, padding = torch.randn(3, 6, 16), torch.zeros(3, 6, dtype=torch.bool)
    padding[:, 4:] = True
    with torch.no_grad():
        expected = model(x, padding)
        swaps = swap(model, impl="reference")
        assert torch.equal(model(x, padding), expected)
    assert not expected[:, 4:].any()
    assert ops_of(model.train(), x, padding) == ["gelu"] * 3
    assert [each.now for each in swaps.changed] == ["trainscope_kernels.gelu in training"]


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("layers", [0, 2])
def test_the_activation_of_torchs_decoder_is_replaced(layers: int, training: bool) -> None:
    """Its attention is not; and having no fast path it is swapped in eval mode too."""
    layer = nn.TransformerDecoderLayer(16, 2, 32, activation="gelu", batch_first=True, dropout=0.0)
    model = (nn.TransformerDecoder(layer, layers) if layers else layer).train(training)
    x = torch.randn(3, 6, 16)
    expected = model(x, x)
    swap(model, impl="reference")
    torch.testing.assert_close(model(x, x), expected)
    assert ops_of(model, x, x) == ["gelu"] * max(layers, 1)


@pytest.mark.parametrize("when", ["compiled before", "run before", "the compiled one"])
def test_what_was_compiled_before_is_swapped_too(x: torch.Tensor, when: str) -> None:
    model = Small()
    expected = model(x)
    compiled = torch.compile(model, backend="eager")
    if when == "run before":
        compiled(x)
    swaps = swap(compiled if when == "the compiled one" else model, impl="reference")
    assert swaps.left == []
    torch.testing.assert_close(compiled(x), expected)
    assert ops_of(compiled, x) == ALL
    clone = copy.deepcopy(compiled)
    with torch.no_grad():
        model.project.weight.zero_()
    torch.testing.assert_close(clone(x), expected)
    assert ops_of(clone, x) == ALL


def test_alike_parts_are_compiled_as_often_as_before(x: torch.Tensor) -> None:
    from torch._dynamo.testing import CompileCounter

    counts = []
    for swapped in (False, True):
        torch._dynamo.reset()
        counter = CompileCounter()
        model = nn.Sequential(*(Small() for _ in range(4)))
        for part in model:
            part.compile(backend=counter)
        if swapped:
            swap(model, impl="reference")
        for _ in range(3):
            model(x)
        counts.append(counter.frame_count)
    assert counts[0] == counts[1]


@pytest.fixture
def one_process(tmp_path: Path) -> Iterator[None]:
    store = f"file://{tmp_path / 'store'}"
    dist.init_process_group("gloo", init_method=store, rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def ddp(model: nn.Module) -> nn.Module:
    return nn.parallel.DistributedDataParallel(model)


def fsdp2(model: nn.Module) -> nn.Module:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    fully_shard(model, mesh=init_device_mesh("cpu", (1,)))
    return model


def data_parallel(model: nn.Module) -> nn.Module:
    return nn.DataParallel(model)


@pytest.mark.usefixtures("one_process")
@pytest.mark.parametrize("order", ["swap first", "wrap first"])
@pytest.mark.parametrize("wrap", [ddp, fsdp2, data_parallel])
def test_wrapped_for_several_gpus(
    x: torch.Tensor, wrap: Callable[[nn.Module], nn.Module], order: str
) -> None:
    model = nn.Sequential(Small(), nn.Linear(8, 8))
    expected = copy.deepcopy(model)(x)
    if order == "swap first":
        swap(model, impl="reference")
    run = wrap(model)
    if order == "wrap first":
        assert swap(run, impl="reference").left == []
    got = run(x)
    torch.testing.assert_close(got, expected)
    got.sum().backward()
    assert all(p.grad is not None for p in run.parameters())
    assert ops_of(run, x) == ALL
