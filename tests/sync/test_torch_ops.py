"""A wait in an operator called through torch.ops is heard as any other is."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest
import torch
from torch.overrides import TorchFunctionMode

from trainscope import SyncDetector
from trainscope.sync import armed, live, torch_ops
from trainscope.sync.patches import Patches

# a warning of C++, as that of a wait is
RESIZED = "An output with one or more elements was resized"


class Listening:
    active = True


@pytest.fixture
def listener() -> Iterator[Listening]:
    patches, listener = Patches(), Listening()
    torch_ops.install(patches, listener)
    yield listener
    assert patches.undo() == ()


def resizes(op) -> torch.Tensor:
    return op(torch.ones(3), torch.ones(3), out=torch.ones(5))


@pytest.fixture(autouse=True)
def each_time() -> Iterator[None]:
    torch.set_warn_always(True)
    yield
    torch.set_warn_always(False)


OPS = {"packet": torch.ops.aten.add, "overload": torch.ops.aten.add.out}


@pytest.mark.parametrize("name", OPS)
def test_a_warning_of_the_operators_reaches_python_at_the_callers_line(
    listener, name, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.warns(UserWarning, match=RESIZED):
        assert resizes(OPS[name]).tolist() == [2, 2, 2]
    assert RESIZED not in capfd.readouterr().err


@pytest.mark.parametrize("name", OPS)
def test_without_a_listener_it_is_torchs_own(
    listener, name, capfd: pytest.CaptureFixture[str]
) -> None:
    listener.active = False
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert resizes(OPS[name]).tolist() == [2, 2, 2]
    assert RESIZED in capfd.readouterr().err


def test_results_gradients_and_errors_are_those_of_the_operator(listener) -> None:
    x = torch.ones(3, requires_grad=True)
    y, indices = torch.ops.aten.sort(x)
    y.sum().backward()
    assert (x.grad, indices.tolist()) == (pytest.approx(torch.ones(3)), [0, 1, 2])
    with torch.inference_mode():
        assert torch.ops.aten.add(x, 1).is_inference()
    with pytest.raises(RuntimeError, match="size of tensor a"):
        torch.ops.aten.add.Tensor(torch.ones(2), torch.ones(3))
    with pytest.raises(RuntimeError, match="no number"):
        torch.ops.aten.add.Tensor(torch.ones(2), other="no number")


def test_a_mode_of_the_programs_sees_no_other_call(listener) -> None:
    seen = []

    class Sees(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            seen.append(func.__name__)
            return func(*args, **(kwargs or {}))

    def told() -> list[str]:
        seen.clear()
        with Sees():
            torch.ops.aten.add(torch.ones(2), 1)
            torch.ops.aten.add.Tensor(torch.ones(2), 1)
        return list(seen)

    heard = told()
    listener.active = False
    assert heard == told()
    assert "add.Tensor" in heard


@pytest.mark.parametrize("name", OPS)
def test_a_default_device_hides_no_warning(listener, name) -> None:
    x, resized = torch.ones(3), torch.ones(5)
    with torch.device("meta"), pytest.warns(UserWarning, match=RESIZED):
        assert OPS[name](x, x, out=resized) is resized
    assert resized.tolist() == [2, 2, 2]


def test_it_is_heard_where_it_began_under_a_fake_mode() -> None:
    from torch._subclasses import FakeTensorMode

    patches = Patches()
    with FakeTensorMode():
        torch_ops.install(patches, Listening())
    with pytest.warns(UserWarning, match=RESIZED):
        assert resizes(torch.ops.aten.add).tolist() == [2, 2, 2]
    assert patches.undo() == ()


def test_a_compiled_function_keeps_its_graph_whole(listener) -> None:
    compiled = torch.compile(
        lambda x: torch.ops.aten.add(x, 1) * 2, fullgraph=True, backend="eager"
    )
    assert compiled(torch.ones(2)).tolist() == [4, 4]
    assert torch.vmap(lambda x: torch.ops.aten.add(x, 1))(torch.ones(2)).tolist() == [2, 2]


def test_a_wait_in_it_is_told_at_the_line_that_called_it(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(armed, "SYNC_TEXT", RESIZED)  # the only warning of C++ without a GPU
    monkeypatch.setattr(live, "cuda_present", lambda: True)
    with SyncDetector(dry_run=False) as detector:
        for _ in range(3):
            torch.ops.aten.add(torch.ones(3), torch.ones(3), out=torch.ones(5))
    (site,) = detector.sites()
    assert (site.count, site.via) == (3, None)
    assert site.source.startswith("torch.ops.aten.add(")
    assert RESIZED not in capfd.readouterr().err


@pytest.mark.gpu
def test_on_a_gpu_it_is_found_at_its_line_and_nothing_is_printed(
    capfd: pytest.CaptureFixture[str],
) -> None:
    mask = torch.tensor([True, False], device="cuda")
    with SyncDetector() as detector:
        for _ in range(3):
            torch.ops.aten.nonzero(mask)
    (site,) = detector.sites()
    assert (site.kind, site.count) == ("nonzero", 3)
    assert site.source == "torch.ops.aten.nonzero(mask)"
    assert "synchronizing" not in capfd.readouterr().err
