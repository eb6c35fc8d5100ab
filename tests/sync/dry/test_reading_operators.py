"""Operators that read values of their own accord; how often was counted on an H200."""

from __future__ import annotations

import textwrap
from collections.abc import Callable

import pytest

HEAD = """
import torch
import torch.nn.functional as F
device = "cuda" if torch.cuda.is_available() else "cpu"
"""

PROGRAMS = {
    "decompositions": """
        a = torch.eye(4, device=device) * 2 + 1
        torch.linalg.svd(a), torch.linalg.svdvals(a)          # WAITS item-implicit 4
        torch.linalg.eigh(a), torch.linalg.eigvalsh(a)        # WAITS item-implicit 2
        torch.linalg.eig(a)                                   # WAITS item-implicit 3
        torch.linalg.lstsq(a, a)                              # WAITS item-implicit
        torch.linalg.pinv(a)                                  # WAITS item-implicit 2
        torch.matrix_exp(a)                                   # WAITS item-implicit 3
        torch.linalg.cholesky(a @ a.T)                        # WAITS item-implicit
        torch.linalg.cholesky_ex(a @ a.T), torch.linalg.inv_ex(a), torch.linalg.qr(a)
        b = torch.eye(4)
        torch.linalg.svd(b), torch.linalg.eigh(b), torch.matrix_exp(b)
        """,
    "ctc": """
        scores = torch.randn(20, 4, 10, device=device, requires_grad=True)
        targets = torch.randint(1, 10, (4, 5), device=device)
        long, short = torch.full((4,), 20), torch.full((4,), 5)
        loss = F.ctc_loss(scores.log_softmax(-1), targets, long, short)     # WAITS item-implicit 5
        loss.backward()                                                     # WAITS item-implicit 3
        there = long.to(device), short.to(device)                           # WAITS h2d-pageable 2
        F.ctc_loss(scores.log_softmax(-1), targets, *there)                 # WAITS item-implicit 8
        F.ctc_loss(torch.randn(20, 4, 10).log_softmax(-1), targets.cpu(), long, short)  # WAITS cpu
        """,
    "random numbers": """
        std = torch.ones(3, device=device)
        torch.normal(std, std)                                # WAITS item-implicit 2
        torch.normal(0.0, std)                                # WAITS item-implicit 2
        torch.normal(std, 1.0), torch.normal(torch.zeros(3), torch.ones(3))
        torch.randn_like(std) * std, torch.bernoulli(std), torch.multinomial(std, 2)
        """,
    "sparse gradients": """
        bag = torch.nn.EmbeddingBag(50, 4, sparse=True).to(device)          # WAITS h2d-pageable
        optimizer = torch.optim.SparseAdam(list(bag.parameters()))
        rows = torch.randint(0, 50, (30,), device=device)
        bag(rows, torch.arange(0, 30, 3, device=device)).sum().backward()
        optimizer.step()                                                    # WAITS size-readback 5
        pairs = torch.stack([rows, rows])
        made = torch.sparse_coo_tensor(pairs, torch.ones(30, device=device), (50, 50))
        made = made.coalesce()                                              # WAITS size-readback 5
        made.coalesce().to_dense().sum().item()                             # WAITS item
        torch.sparse.sum(made, 0)                                           # WAITS size-readback
        host = torch.sparse_coo_tensor(pairs.cpu(), torch.ones(30), (50, 50))   # WAITS cpu
        host.coalesce().to_dense().sum().item()
        """,
}


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
@pytest.mark.parametrize("name", PROGRAMS)
def test_reading_operators(name: str, check: Callable[[str], object]) -> None:
    check(HEAD + textwrap.dedent(PROGRAMS[name]))
