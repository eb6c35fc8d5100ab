"""What a user of GELU meets besides values: errors, the rule of auto, the module, the names."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys

import pytest
import torch

from trainscope_kernels import GELU, bias_gelu, gelu
from trainscope_kernels.errors import ArgumentError, ImplUnavailableError


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: gelu([1.0]), "x must be a tensor, got list"),
        (lambda: gelu(torch.arange(3)), r"dtype torch.int64; allowed: float32, bfloat16"),
        (lambda: gelu(torch.ones(2, dtype=torch.complex64)), "dtype torch.complex64"),
        (lambda: gelu(torch.eye(2).to_sparse()), r"layout torch.sparse_coo.*to_dense"),
        (lambda: gelu(torch.nested.nested_tensor([torch.ones(2)])), "x is a nested tensor"),
        (lambda: gelu(torch.ones(2), "erf"), "approximate='erf'; allowed: 'none'.*'tanh'"),
        (lambda: gelu(torch.ones(2), impl="cudnn"), "impl='cudnn'; allowed: 'auto', 'reference'"),
        (lambda: bias_gelu(torch.ones(2, 3), torch.ones(2)), r"\(2,\); allowed.*\(2, 3\)"),
        (lambda: bias_gelu(torch.ones(2, 3), torch.ones(2, 3)), r"\(2, 3\); allowed: one dim"),
        (lambda: bias_gelu(torch.tensor(1.0), torch.ones(1)), r"which has shape \(\)"),
        (lambda: bias_gelu(torch.ones(3), torch.ones(3).half()), "bias has dtype torch.float16"),
        (lambda: bias_gelu(torch.ones(3), torch.ones(3, device="meta")), "on meta and x on cpu"),
        (lambda: bias_gelu(torch.ones(3), torch.ones(3).to_sparse()), r"use bias.to_dense\(\)"),
        (lambda: bias_gelu(torch.ones(3), None), "bias must be a tensor, got NoneType"),
    ],
)
def test_a_bad_argument_is_named_with_what_is_allowed(call: object, words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        call()  # type: ignore[operator]


def test_an_impl_asked_for_by_name_never_falls_back() -> None:
    with pytest.raises(ImplUnavailableError, match=r"impl='cuda'.*needs a CUDA tensor.*on cpu"):
        gelu(torch.ones(2), impl="cuda")


def test_auto_is_the_reference_off_the_gpu() -> None:
    x = torch.linspace(-5, 5, 999)
    assert torch.equal(gelu(x), gelu(x, impl="reference"))


def test_the_module_is_torchs_module_with_another_kernel(device: torch.device) -> None:
    module = GELU("tanh", impl="reference")
    x = torch.randn(3, 5, device=device)
    torch.testing.assert_close(module(x), torch.nn.GELU("tanh")(x))
    assert repr(module) == "GELU(approximate='tanh', impl='reference')"
    assert module.state_dict() == {}
    for twin in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert torch.equal(twin(x), module(x))


def test_the_name_is_the_function_whatever_is_imported_first() -> None:
    program = (
        "import sys, trainscope_kernels as t\n"
        "assert not {'torch', 'triton'} & set(sys.modules)\n"
        "import trainscope_kernels.gelu.op, trainscope_kernels.modules\n"
        "from trainscope_kernels import gelu\n"
        "assert t.gelu is gelu and gelu.__name__ == 'gelu', gelu\n"
        "assert 'triton' not in sys.modules\n"
        "import torch; gelu(torch.ones(3))\n"
        "assert 'trainscope_kernels.gelu.triton_impl' not in sys.modules\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (0, "")
