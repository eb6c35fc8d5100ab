"""Functions that raise, lie, wait, change what they get, or return odd things: each is told."""

from __future__ import annotations

import math
from collections import namedtuple
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch

import trainscope as ts
from trainscope.errors import BenchmarkError, ConfigError, TrainscopeError

QUICK = {"trials": 2}
Pair = namedtuple("Pair", "values indices")


@pytest.fixture
def x() -> torch.Tensor:
    return torch.randn(64, generator=torch.Generator().manual_seed(0))


def refusals(
    x: torch.Tensor, reference: Callable[..., Any], *functions: Callable[..., Any]
) -> list[str | None]:
    """Why each function beside the reference got no time."""
    impls = {"reference": reference, **{str(i): fn for i, fn in enumerate(functions)}}
    found = ts.bench.compare(impls, (x,), reference="reference", **QUICK)
    assert found["reference"].time is not None
    for row in found.rows:
        assert (row.time is None) == (row.refused is not None)
    return [row.refused for row in found.rows[1:]]


def test_values_with_names_are_found_by_them(x: torch.Tensor) -> None:
    assert refusals(
        x,
        lambda x: {"y": x + 1, "z": x},
        lambda x: {"z": x, "y": x + 1},
        lambda x: {"y": x + 1, "w": x},
        lambda x: {"y": x + 1},
        lambda x: (x + 1, x),
    ) == [
        None,
        "it returns ['y'], ['w'], the reference ['y'], ['z']",
        "it returns 1 values, the reference 2 values",
        "it returns [0], [1], the reference ['y'], ['z']",
    ]


def test_values_without_names_are_taken_in_order(x: torch.Tensor) -> None:
    assert refusals(
        x,
        lambda x: torch.max(x, 0),
        lambda x: tuple(torch.max(x, 0)),
        lambda x: list(torch.max(x, 0)),
        lambda x: Pair(*torch.max(x, 0)),
    ) == [None, None, None]
    assert refusals(x, torch.exp, lambda x: [x.exp()], lambda x: {"y": x.exp()}) == [None, None]


def test_values_that_are_no_tensors_are_compared_too(x: torch.Tensor) -> None:
    assert refusals(
        x,
        lambda x: (x, 3, np.arange(4)),
        lambda x: (x, 3, np.arange(4)),
        lambda x: (x, 4, np.arange(4)),
        lambda x: (x, np.zeros(3), np.arange(4)),
        lambda x: (x, None, np.arange(4)),
        lambda x: (x, 3, np.arange(4)[::-1].copy()),
    ) == [
        None,
        "output 1 is 4, the reference's 3",
        "output 1 is of type Tensor, the reference's 3",
        "output 1 is None, the reference's 3",
        "output 2: 4 of 4 values differ",
    ]


def test_complex_values_have_a_tolerance(x: torch.Tensor) -> None:
    assert (
        refusals(
            x,
            torch.fft.fft,
            lambda x: torch.fft.fft(x) * (1 + 1e-7),
            lambda x: torch.fft.fft(x) * 1.01,
        )[0]
        is None
    )
    found = ts.bench.compare(
        {"a": lambda z: z * 2, "b": lambda z: z + z}, (torch.complex(x, x),), reference="a", **QUICK
    )
    assert found["b"].refused is None
    assert found["b"].agreement is not None
    assert found["b"].agreement.rule == "float64"


@pytest.mark.parametrize(
    "make",
    [
        lambda x: x.to_sparse(),
        lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8),
        lambda x: x.to(torch.float8_e4m3fn),
        lambda x: x * math.nan,
        lambda x: x * math.inf,
        lambda x: x[:0],
        lambda x: x > 0,
        lambda x: x.sum(),
    ],
)
def test_odd_values_agree_with_themselves(
    x: torch.Tensor, make: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    assert refusals(x, make, make) == [None]


def test_values_that_cannot_be_compared_are_refused(x: torch.Tensor) -> None:
    def nested(x: torch.Tensor) -> torch.Tensor:
        return torch.nested.nested_tensor([x, x])

    found = ts.bench.compare({"a": nested}, (x,), reference="a", **QUICK)
    assert (found["a"].refused or "").startswith("its output cannot be compared: RuntimeError")


def exits(x: torch.Tensor) -> torch.Tensor:
    raise SystemExit(3)


def fails(x: torch.Tensor) -> torch.Tensor:
    raise RuntimeError("line 1 \x1b[2J\nline 2")


def test_what_raises_or_exits_is_told_in_one_line(x: torch.Tensor) -> None:
    assert refusals(x, torch.exp, exits, fails) == [
        "it raised SystemExit: 3",
        "it raised RuntimeError: line 1 ?[2J",
    ]
    for broken in (exits, fails):
        with pytest.raises(BenchmarkError, match=rf"{broken.__name__} raised \w+: \S"):
            ts.bench.benchmark(broken, x, **QUICK)
        with pytest.raises(BenchmarkError, match=rf"the reference {broken.__name__} raised"):
            ts.bench.compare({"exp": torch.exp}, (x,), reference=broken, **QUICK)


@pytest.mark.parametrize("calls", [1, 3, 8, 200])
def test_what_raises_later_is_told_and_the_others_are_timed(x: torch.Tensor, calls: int) -> None:
    left = [calls]

    def later(x: torch.Tensor) -> torch.Tensor:
        left[0] -= 1
        if left[0] < 0:
            raise RuntimeError("out of handles")
        return x.exp()

    assert refusals(x, torch.exp, later) == [
        "after it had agreed, 0 raised RuntimeError: out of handles"
    ]
    left[0] = calls
    with pytest.raises(BenchmarkError, match="later raised RuntimeError: out of handles"):
        ts.bench.benchmark(later, x, **QUICK)


def test_an_interrupt_ends_it(x: torch.Tensor) -> None:
    def interrupted(x: torch.Tensor) -> torch.Tensor:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ts.bench.compare({"a": torch.exp, "b": interrupted}, (x,), reference="a", **QUICK)


def test_what_writes_into_its_inputs_agrees_and_they_are_put_back(x: torch.Tensor) -> None:
    before = x.clone()
    for reference, other in ((torch.exp, torch.exp_), (torch.exp_, torch.exp)):
        found = ts.bench.compare(
            {"reference": reference, "other": other}, (x,), reference="reference", **QUICK
        )
        flags = {
            row.name: [f.code for f in row.flags if f.code == "changes-inputs"]
            for row in found.rows
        }
        assert [len(codes) for codes in flags.values()] == (
            [0, 1] if reference is torch.exp else [1, 0]
        )
        assert [row.refused for row in found.rows] == [None, None]
        assert torch.equal(x, before)
    alone = ts.bench.benchmark(torch.exp_, x, reference=torch.exp, **QUICK)
    assert "changes-inputs" in [flag.code for flag in alone.flags]
    assert torch.equal(x, before)


@pytest.mark.parametrize(
    "change", [lambda x: x.resize_(3), lambda x: x.set_(torch.zeros(5)), lambda x: x.t_()]
)
def test_what_gives_its_inputs_another_shape_does_not_harm_the_next(
    change: Callable[[torch.Tensor], object],
) -> None:
    x = torch.randn(8, 4)
    before = x.clone()

    def changes(x: torch.Tensor) -> torch.Tensor:
        result = x.exp()
        change(x)
        return result

    found = ts.bench.compare(
        {"exp": torch.exp, "changes": changes, "again": torch.exp}, (x,), reference="exp", **QUICK
    )
    assert "changes-inputs" in [flag.code for flag in found["changes"].flags]
    assert found["again"].refused is None
    assert torch.equal(x, before)


def test_functions_that_share_the_memory_of_their_output(x: torch.Tensor) -> None:
    """The reference's values are kept, though another function writes where they were."""
    out = torch.empty_like(x)
    (why,) = refusals(x, lambda x: torch.exp(x, out=out), lambda x: torch.sin(x, out=out))
    assert "largest error" in (why or "")


def test_a_reference_of_chance_is_named_as_the_reason(x: torch.Tensor) -> None:
    (why,) = refusals(x, torch.rand_like, torch.rand_like)
    assert (why or "").endswith(
        "reference, the reference, gives something else each time: seed its random numbers"
    )


async def waits(x: torch.Tensor) -> torch.Tensor:
    return x


def streams(x: torch.Tensor) -> Iterator[torch.Tensor]:
    yield x


def maps(x: torch.Tensor) -> Iterator[torch.Tensor]:
    return map(torch.exp, [x])


def submits(x: torch.Tensor) -> Future[torch.Tensor]:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(torch.exp, x)


def forks(x: torch.Tensor) -> Any:
    return torch.jit.fork(torch.exp, x)


@pytest.mark.filterwarnings("ignore:coroutine")
@pytest.mark.parametrize("lazy", [streams, waits, maps, submits, forks])
def test_what_computes_nothing_yet_is_refused(x: torch.Tensor, lazy: Callable[..., Any]) -> None:
    with pytest.raises(BenchmarkError, match="which need not be computed before it is read"):
        ts.bench.benchmark(lazy, x, **QUICK)
    with pytest.raises(BenchmarkError, match="which need not be computed before it is read"):
        ts.bench.scaling(lambda size: lambda: lazy(x), **QUICK)
    assert (refusals(x, torch.exp, lazy)[0] or "").startswith("output 0 is no tensor but ")


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_no_ceiling_is_claimed_for_what_torch_does_not_multiply_fast(
    x: torch.Tensor, dtype: torch.dtype
) -> None:
    found = ts.bench.benchmark(lambda x: x.float(), x.to(dtype), flops=1000, **QUICK)
    assert found.roofline is None


@pytest.mark.parametrize("bytes_moved", [0, 10**18])
@pytest.mark.usefixtures("known_ceilings")
def test_a_copy_that_no_memory_can_hold_is_not_made(x: torch.Tensor, bytes_moved: int) -> None:
    found = ts.bench.compare(
        {"exp": torch.exp}, (x,), reference="exp", bytes_moved=bytes_moved, **QUICK
    )
    assert found.copy_of_bytes is None
    assert found["exp"].time is not None


@pytest.fixture
def known_ceilings(monkeypatch: pytest.MonkeyPatch) -> None:
    from trainscope.bench import ceilings

    monkeypatch.setattr(ceilings, "_copy", lambda device: 1e12)
    monkeypatch.setattr(ceilings, "_STORE", ceilings.CeilingStore())


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"impls": [torch.exp]}, "impls is of type list; pass the functions by their names"),
        ({"impls": {1: torch.exp}}, "a name in impls is 1; pass text of one line"),
        ({"impls": {"a\nb": torch.exp}}, r"a name in impls is 'a\\nb'; pass text"),
        ({"impls": {"a": "exp"}}, r"impls\['a'\] is of type str; pass a function"),
        ({"reference": None}, "reference is None; pass a function"),
        ({"inputs": None}, r"inputs is None; pass a tuple of the arguments, such as \(x,\)"),
        ({"inputs": torch.ones(3)}, "inputs is of type Tensor; pass a tuple"),
        ({"inputs": "abc"}, "inputs is of type str; pass a tuple"),
        ({"inputs": {"x": 1}}, "inputs is of type dict; pass a tuple"),
        ({"inputs": (torch.ones(3, device="meta"),)}, "inputs hold a tensor on meta"),
        ({"bytes_moved": -1}, "bytes_moved=-1 is not allowed; pass a whole number"),
        ({"bytes_moved": 8.0}, r"bytes_moved=8\.0 is not allowed"),
        ({"bytes_moved": True}, "bytes_moved=True is not allowed"),
        ({"flops": "many"}, "flops='many' is not allowed"),
        ({"tolerance": -1}, "tolerance=-1 is not allowed; pass a share"),
        ({"tolerance": math.nan}, "tolerance=nan is not allowed"),
        ({"tolerance": "x"}, "tolerance='x' is not allowed"),
        ({"cache": "hot"}, "cache='hot' is not allowed; pass 'cold', 'warm' or None"),
        ({"seconds": math.inf}, "seconds=inf is not allowed"),
        ({"seconds": "1"}, "seconds='1' is not allowed"),
        ({"name": 3}, "name is 3; pass text of one line"),
        ({"device": 3.5}, r"device '3\.5' is not supported"),
    ],
)
def test_what_an_argument_may_be(x: torch.Tensor, changed: dict[str, object], said: str) -> None:
    arguments: dict[str, Any] = {
        "impls": {"exp": torch.exp},
        "inputs": (x,),
        "reference": "exp",
        "trials": 2,
        **changed,
    }
    with pytest.raises(ConfigError, match=said):
        ts.bench.compare(arguments.pop("impls"), arguments.pop("inputs"), **arguments)


@pytest.mark.parametrize(
    ("make", "sizes", "said"),
    [
        (lambda size: None, (1, 2), r"make\(1\) is None; pass a function"),
        (lambda size: 1 / 0, (1, 2), r"make\(1\) raised ZeroDivisionError"),
        (lambda size: lambda: 1 / (2 - size), (1, 2), r"make\(2\)\(\) raised ZeroDivisionError"),
        (lambda size: int, (1, math.nan), "pass at least two, in the order of growing work"),
        (lambda size: int, (1, math.inf), "pass at least two, in the order of growing work"),
        (lambda size: int, ("a", "b"), "are not all numbers"),
        (lambda size: int, None, "sizes=None is not allowed"),
    ],
)
def test_what_scaling_may_be_given(make: Any, sizes: Any, said: str) -> None:
    with pytest.raises(TrainscopeError, match=said):
        ts.bench.scaling(make, sizes, **QUICK)


def test_no_more_time_is_fixed_than_the_smallest_takes() -> None:
    from trainscope.bench.scaling_check import judged

    linear, fixed_us, verdict = judged([1, 2, 3], [10.0, 10.1, 9.8])
    assert (linear, fixed_us) == (False, 10.0)
    assert "time grows slower than the work" in verdict
    assert list(ts.bench.scaling(lambda size: int, (i for i in (1, 2)), **QUICK).points)
