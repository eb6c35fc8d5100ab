"""Statements with a subscript: what each waits for on a GPU, and how a live run names it."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["CASES", "MADE", "Case"]

MADE = """
import torch
x, X = torch.arange(6.0, device="cuda"), torch.ones(6, 6, device="cuda")
v, s = torch.ones(6, device="cuda"), torch.zeros((), device="cuda")
m, flag = x > 2, (x > 2).any()
i, j = torch.zeros(2, dtype=torch.long, device="cuda"), x.long().sum() % 3
host, hv, h0 = torch.zeros(6), torch.ones(6), torch.tensor(2.0)
hi, hm = torch.tensor([0, 1]), torch.tensor([True, False] * 3)
n = 1
"""


class Case(NamedTuple):
    """`waits` is each kind with its count; `live` how they are named where one name is all."""

    source: str
    waits: dict[str, int]
    live: str | None = None


NUMBERS = [
    Case("x[i] = 0.0", {"h2d-scalar": 1}),
    Case("x[i[:1]] = 0.0", {"h2d-scalar": 1}),
    Case("x[i[:1]] = -n / 2", {"h2d-scalar": 1}),
    Case("X[i, n] = float(n)", {"h2d-scalar": 1}),
    Case("X[i, i], v[n] = 1, 2", {"h2d-scalar": 2}),
    Case("x[n] = 1.0", {"h2d-scalar": 1}),
    Case("x[-1] = n", {"h2d-scalar": 1}),
    Case("X[n, 0] = 2", {"h2d-scalar": 1}),
    Case("x[hm] = 0.0", {"h2d-scalar": 1}),
    Case("x[n] = h0", {"h2d-scalar": 1}),
    Case("x[i] = h0", {"h2d-scalar": 1}),
    Case("x.index_put_((i,), h0)", {"h2d-scalar": 1}),
    Case("x[hi] = 0.0", {"h2d-pageable": 1, "h2d-scalar": 1}, "h2d-pageable"),
    Case("x[[0, 1]] = 0.0", {"h2d-list": 1, "h2d-scalar": 1}, "h2d-list"),
    Case("x[j] = 0.0", {"index": 1, "h2d-scalar": 1}, "index"),
    Case("x[x.argmax()] = 0.0", {"index": 1, "h2d-scalar": 1}, "index"),
    Case("x[X.argmax(1)] = 0.0", {"h2d-scalar": 1}),
    Case("X[j] = 0.0", {"index": 1}),
    Case("X[n] = 1.0", {}),
    Case("x[1:3] = 1.0", {}),
    Case("x[:] = h0", {}),
    Case("x[m] = 0.0", {}),
    Case("x[~m] = n", {}),
    Case("x[m] = h0", {}),
    Case("X[m, 0] = 0.0", {}),
    Case("x.index_fill_(0, i, 0.0); x.masked_fill_(m, 0.0); v[n].fill_(1.0)", {}),
]
TENSORS = [
    Case("x[m] = s", {"item-implicit": 1}),
    Case("x[m] = v[:3]", {"nonzero": 1}),
    Case("x[m] = v[m]", {"nonzero": 2}),
    Case("x[m] += 1.0", {"nonzero": 2}),
    Case("x.index_put_((m,), s)", {"item-implicit": 1}),
    Case("x[1:3] = hv[1:3]", {"h2d-pageable": 1}),
    Case("x[:4][1:3] = hv[1:3]", {"h2d-pageable": 1}),
    Case("x[hi] = s", {"h2d-pageable": 1}),
    Case("x[[0, 1]] = s", {"h2d-list": 1}),
    Case("host[n] = s", {"d2h": 1}),
    Case("host[1:3] = v[1:3]", {"d2h": 1}),
    Case("host.view(2, 3)[0] = (v * 2)[:3]", {"d2h": 1}),
    Case("x[i] = s", {}),
    Case("x[i] = v[:2]", {}),
    Case("x[i] += 1.0", {}),
    Case("x[n] += 1.0", {}),
    Case("x[n] = v[0]", {}),
    Case("x[hm] = s", {}),
    Case("host[n] = 1.0", {}),
    Case("host[hi] = 1.0", {}),
]
READS = [
    Case("x[m]", {"nonzero": 1}),
    Case("x[flag]", {"nonzero": 1}),
    Case("X[:, m]", {"nonzero": 1}),
    Case("x[j]", {"index": 1}),
    Case("host[j]", {"index": 1}),
    Case("X[j, m]", {"index": 1, "nonzero": 1}, "index"),
    Case("x[hi]", {"h2d-pageable": 1}),
    Case("x[[0, 1]]", {"h2d-list": 1}),
    Case("x[i], X[i, i], X[:, i]", {}),
    Case("x[n], x[1:3], x[None], x[...], x[::2]", {}),
    Case("x[hm]", {}),
    Case("x[True], x[None, False]", {}),
    Case("host[hi], host[hm], host[[0, 1]]", {}),
]
CASES = [*NUMBERS, *TENSORS, *READS]
