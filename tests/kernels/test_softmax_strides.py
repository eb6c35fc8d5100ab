"""Softmax of views: every stride is followed, the result is contiguous, nothing is copied."""

from __future__ import annotations

import pytest
import torch
from softmax_truth import IMPLS

from trainscope_kernels.softmax import softmax
from trainscope_kernels.softmax.rows import rows_of

VIEWS = {
    "transposed": lambda: torch.randn(19, 21).t(),
    "every second column": lambda: torch.randn(6, 40)[:, ::2],
    "every second row": lambda: torch.randn(12, 20)[::2],
    "one element off": lambda: torch.randn(6 * 20 + 1)[1:].view(6, 20),
    "a chunk": lambda: torch.randn(4, 3, 30).chunk(3, dim=-1)[1],
    "one row expanded": lambda: torch.randn(1, 20).expand(6, 20),
    "one column expanded": lambda: torch.randn(6, 1).expand(6, 20),
    "channels last": lambda: torch.randn(2, 5, 3, 4).to(memory_format=torch.channels_last),
    "permuted heads": lambda: torch.randn(2, 7, 3, 7).permute(0, 2, 1, 3),
    "five dims, none mergeable": lambda: torch.randn(2, 3, 4, 3, 2).permute(3, 1, 4, 0, 2),
    "six dims, too many levels": lambda: torch.randn(2, 2, 3, 2, 3, 2).permute(4, 2, 0, 5, 3, 1),
    "overlapping": lambda: torch.randn(30).as_strided((5, 8), (3, 1)),
}


@pytest.mark.parametrize("impl", IMPLS)
@pytest.mark.parametrize("name", VIEWS)
def test_a_view_gives_what_its_copy_gives_along_every_dim(name, impl, device) -> None:
    x = VIEWS[name]().to(device) if device.type == "cpu" else _on(device, VIEWS[name]())
    for dim in range(x.dim()):
        leaf, dy = x.detach().requires_grad_(), torch.randn(x.shape, device=device)
        y = softmax(leaf, dim, impl=impl)
        assert y.is_contiguous()
        torch.testing.assert_close(y, torch.softmax(x, dim), atol=2e-7, rtol=2e-6)
        (dx,) = torch.autograd.grad(y, leaf, dy)
        copied = x.contiguous().requires_grad_()
        (wanted,) = torch.autograd.grad(torch.softmax(copied, dim), copied, dy)
        torch.testing.assert_close(dx, wanted, atol=5e-7, rtol=1e-5)


@pytest.mark.parametrize("impl", IMPLS)
def test_gradients_of_any_strides_are_read_as_they_lie(impl, device) -> None:
    x = torch.randn(6, 5, 8, device=device, requires_grad=True)
    gradients = [
        torch.ones((), device=device).expand(6, 5, 8),
        torch.randn(8, 5, 6, device=device).permute(2, 1, 0),
        torch.randn(6, 5, 20, device=device)[:, :, 3:19:2],
        torch.randn(6, 1, 8, device=device).expand(6, 5, 8),
        torch.randn(6, 15, 8, device=device)[:, 5:10],
    ]
    for dim in range(3):
        for dy in gradients:
            before = dy.clone()
            (dx,) = torch.autograd.grad(softmax(x, dim, impl=impl), x, dy)
            (wanted,) = torch.autograd.grad(torch.softmax(x, dim), x, before.contiguous())
            torch.testing.assert_close(dx, wanted, atol=5e-7, rtol=1e-5)
            assert torch.equal(dy, before)
            assert dx.is_contiguous()


@pytest.mark.parametrize("impl", IMPLS)
def test_values_beyond_a_view_are_neither_read_nor_written(impl, device) -> None:
    poisoned = torch.full((9, 50), float("nan"), device=device)
    poisoned[2:7, 5:42] = torch.randn(5, 37, device=device)
    kept = poisoned.clone()
    for dim in range(2):
        y = softmax(poisoned[2:7, 5:42], dim, impl=impl)
        assert y.isfinite().all()
    torch.testing.assert_close(poisoned, kept, rtol=0, atol=0, equal_nan=True)


def test_rows_are_merged_into_as_few_levels_as_their_strides_allow() -> None:
    contiguous = rows_of((2, 3, 4, 5), (60, 20, 5, 1), 3)
    assert (contiguous.rows, contiguous.inner, contiguous.sizes) == (24, 1, (24,))
    assert (contiguous.strides, contiguous.column_stride) == ((5,), 1)
    middle = rows_of((2, 3, 4, 5), (60, 20, 5, 1), 1)
    assert (middle.sizes, middle.strides) == ((2, 20), (60, 1))
    assert (middle.inner, middle.column_stride) == (20, 20)
    channels_last = rows_of((2, 5, 3, 4), (60, 1, 20, 5), 1)
    assert (channels_last.sizes, channels_last.strides) == ((24,), (5,))
    assert (channels_last.inner, channels_last.column_stride) == (12, 1)
    expanded = rows_of((6, 4, 8), (0, 0, 1), 2)
    assert (expanded.sizes, expanded.strides) == ((24,), (0,))


def _on(device: torch.device, view: torch.Tensor) -> torch.Tensor:
    """The view on another device, with its strides; ``to`` alone would pack it."""
    held = view.untyped_storage().nbytes() // view.itemsize
    flat = view.as_strided((held,), (1,), 0).to(device)
    return flat.as_strided(view.shape, view.stride(), view.storage_offset())
