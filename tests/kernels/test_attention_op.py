"""The attention op inside torch: gradcheck, opcheck, compile, checkpointing, autocast."""

from __future__ import annotations

import copy
import subprocess
import sys
import warnings

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from trainscope_kernels import Attention, ImplUnavailableError, flash_attention

IMPLS = ("reference", "triton")

OP = torch.ops.trainscope_kernels.flash_attention.default


def doubles(n_q: int = 18, n_k: int = 20) -> list[torch.Tensor]:
    torch.manual_seed(0)
    shapes = [(1, 2, n_q, 4), (1, 1, n_k, 4), (1, 1, n_k, 3)]
    return [torch.randn(s, dtype=torch.float64).requires_grad_() for s in shapes]


needs_interpreter = pytest.mark.skipif(
    torch.cuda.is_available(), reason="float64 runs in Triton's interpreter only"
)


@needs_interpreter
@pytest.mark.parametrize("impl", IMPLS)
def test_gradients_of_output_and_lse_match_differences(impl: str) -> None:
    def both(*qkv: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return flash_attention(
            *qkv, causal="bottom-right", window=(9, 0), softcap=3.0, impl=impl, return_lse=True
        )

    assert torch.autograd.gradcheck(both, doubles(), fast_mode=True)


@needs_interpreter
@pytest.mark.parametrize("impl", IMPLS)
def test_opcheck(impl: str) -> None:
    arguments = (*doubles(), None, None, None, 0.5, 0.0, -1, 0, True, impl)
    result = torch.library.opcheck(OP, arguments)
    assert set(result.values()) == {"SUCCESS"}


@needs_interpreter
@pytest.mark.parametrize("impl", IMPLS)
def test_compiles_whole_and_gives_the_same(impl: str) -> None:
    def loss(*qkv: torch.Tensor) -> torch.Tensor:
        return flash_attention(*qkv, causal="top-left", impl=impl).square().sum()

    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    leaves = doubles()
    for a, b in zip(
        torch.autograd.grad(compiled(*leaves), leaves),
        torch.autograd.grad(loss(*leaves), leaves),
        strict=True,
    ):
        assert torch.equal(a, b)


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointing_gives_the_same_gradients(reentrant: bool) -> None:
    leaves = doubles()

    def attend(*qkv: torch.Tensor) -> torch.Tensor:
        return flash_attention(*qkv, causal="top-left", impl="reference")

    kept = torch.autograd.grad(attend(*leaves).square().sum(), leaves)
    checkpoint(attend, *leaves, use_reentrant=reentrant).square().sum().backward()
    assert all(torch.equal(x.grad, grad) for x, grad in zip(leaves, kept, strict=True))


@needs_interpreter
def test_only_the_gradients_asked_for_are_made() -> None:
    q, k, v = doubles()
    everything = torch.autograd.grad(flash_attention(q, k, v, impl="triton").sum(), (q, k, v))
    for wanted, at in (([q], 0), ([v], 2), ([k], 1)):
        fixed = [x if x is wanted[0] else x.detach() for x in (q, k, v)]
        (grad,) = torch.autograd.grad(flash_attention(*fixed, impl="triton").sum(), wanted)
        torch.testing.assert_close(grad, everything[at])


def test_the_lse_alone_has_a_gradient() -> None:
    q, k, v = doubles()
    _, lse = flash_attention(q, k, v, impl="reference", return_lse=True)
    grad_q, grad_v = torch.autograd.grad(lse.sum(), (q, v))
    # the LSE's gradient in q is the mean of the keys under the weights, scaled
    weights = torch.softmax(q @ k.mT * 0.5, -1)
    torch.testing.assert_close(grad_q, weights @ k * 0.5)
    assert torch.equal(grad_v, torch.zeros_like(v))


def test_a_second_derivative_is_refused() -> None:
    q, k, v = doubles()
    (grad,) = torch.autograd.grad(
        flash_attention(q, k, v, impl="reference").square().sum(), q, create_graph=True
    )
    with pytest.raises(NotImplementedError, match="no second derivative"):
        grad.sum().backward()


def test_autocast_computes_in_its_dtype() -> None:
    q, k, v = (x.detach().float() for x in doubles())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = flash_attention(q, k.half(), v)
    assert out.dtype == torch.bfloat16


def test_no_grad_records_nothing() -> None:
    with torch.no_grad():
        assert not flash_attention(*doubles(), impl="reference").requires_grad
    with torch.inference_mode():
        assert flash_attention(*doubles(), impl="reference").is_inference()


@needs_interpreter
def test_a_dtype_that_the_interpreter_multiplies_wrongly_is_refused() -> None:
    q, k, v = (x.bfloat16() for x in doubles())
    with pytest.raises(ImplUnavailableError, match="bfloat16 wrongly"):
        flash_attention(q, k, v, impl="triton")


def test_auto_on_a_cpu_is_the_reference() -> None:
    qkv = doubles()
    assert torch.equal(flash_attention(*qkv), flash_attention(*qkv, impl="reference"))


def test_the_module_says_its_settings_and_copies() -> None:
    module = Attention(causal="top-left", softcap=2.0, impl="reference")
    qkv = doubles()
    right = flash_attention(*qkv, causal="top-left", softcap=2.0, impl="reference")
    assert torch.equal(copy.deepcopy(module)(*qkv), right)
    assert "causal='top-left'" in repr(module)
    assert list(module.state_dict()) == []


def test_importing_loads_no_triton() -> None:
    program = (
        "import sys, trainscope_kernels.attention, trainscope_kernels.attention.op;"
        "print('triton' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "False", done.stderr


def test_no_warning_on_a_plain_call() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        flash_attention(*doubles(), causal="top-left", impl="reference").sum().backward()
