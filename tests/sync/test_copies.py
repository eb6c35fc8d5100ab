"""What kind of copy a call makes: the rule, each branch of it."""

from __future__ import annotations

import pytest
import torch

from trainscope.sync.copies import asks_non_blocking, copy_kind, target_type

MIB = 1 << 20
MS = 1_000_000


@pytest.mark.parametrize(
    ("to_device", "pinned", "non_blocking", "waited", "bytes_moved", "blocked_ns", "kind"),
    [
        (True, False, False, True, 4, 100, "h2d-pageable"),
        (True, True, False, True, 4, 100, "h2d-pinned"),
        (False, False, False, True, 4, 100, "d2h"),
        (False, True, False, True, 4, 100, "d2h"),
        (True, False, False, False, 4 * MIB, 5 * MS, None),  # nothing waited: an empty or fake one
        (True, True, True, False, 256 * MIB, 5 * MS, None),  # pinned and non_blocking
        (False, True, True, False, 256 * MIB, 124 * MS, None),  # the result's first allocation
        (True, False, True, False, 1 * MIB, 5 * MS, None),  # measured never to wait
        (True, False, True, False, 4 * MIB, 199_999, None),
        (True, False, True, False, 4 * MIB, 200_000, "h2d-nonblocking-pageable"),
        (False, False, True, False, 256 * MIB, 9 * MS, "d2h-nonblocking-pageable"),
        (True, True, True, True, 4, 100, "h2d-pinned"),  # torch says that it waited
    ],
)
def test_kind(
    to_device: bool, pinned: bool, non_blocking: bool, waited: bool, bytes_moved: int,
    blocked_ns: int, kind: str | None,
) -> None:  # fmt: skip
    found = copy_kind(
        to_device=to_device, pinned=pinned, non_blocking=non_blocking, waited=waited,
        bytes_moved=bytes_moved, blocked_ns=blocked_ns,
    )  # fmt: skip
    assert found == kind


@pytest.mark.parametrize(
    ("args", "kwargs", "target"),
    [
        (("cuda",), {}, "cuda"),
        (("cuda:3",), {}, "cuda"),
        ((torch.device("cpu"),), {}, "cpu"),
        ((2, torch.float16), {}, "cuda"),
        ((torch.ones(1),), {}, "cpu"),
        ((), {"other": torch.ones(1)}, "cpu"),
        ((), {"device": "cpu", "dtype": torch.float16}, "cpu"),
        ((torch.float16,), {}, None),
        ((), {"dtype": torch.float16}, None),
        ((torch.float16,), {"device": "cuda"}, "cuda"),
        (("meta",), {}, "meta"),
    ],
)
def test_target(args: tuple, kwargs: dict, target: str | None) -> None:
    assert target_type(args, kwargs) == target


@pytest.mark.parametrize(
    ("args", "kwargs", "asked"),
    [
        (("cuda",), {}, False),
        (("cuda",), {"non_blocking": True}, True),
        (("cuda", torch.float16, True), {}, True),
        (("cuda", torch.float16, False, True), {}, False),  # the second bool is copy=
        ((torch.float16, True), {}, True),
        ((True,), {}, True),
    ],
)
def test_non_blocking(args: tuple, kwargs: dict, asked: bool) -> None:
    assert asks_non_blocking(args, kwargs) is asked
