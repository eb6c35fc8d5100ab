"""Subclasses of Tensor are told torch's own functions, live and in a dry run, and nothing more."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any, ClassVar
from unittest import mock

import pytest
import torch

from trainscope.sync.detector import SyncDetector
from trainscope.sync.methods import replace_attribute, replace_method
from trainscope.sync.patches import Patches

BOTH = pytest.mark.parametrize("dry_run", [False, True])

CALLS: dict[str, Callable[[torch.Tensor], object]] = {
    "to": lambda x: x.to("cpu", torch.float64),
    "cpu": lambda x: x.cpu(),
    "item": lambda x: x.item(),
    "tolist": lambda x: x.tolist(),
    "numpy": lambda x: x.numpy(),
    "copy_": lambda x: x.copy_(torch.ones(1)),
    "new_zeros": lambda x: x.new_zeros(2),
    "__bool__": bool,
    "__float__": float,
    "__format__": lambda x: f"{x}",
    "__repr__": repr,
}


class Told(torch.Tensor):
    """Keeps what torch says was called on it."""

    functions: ClassVar[list[object]] = []

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> object:
        cls.functions.append(func)
        return super().__torch_function__(func, types, args, kwargs or {})


def told(call: Callable[[torch.Tensor], object]) -> list[object]:
    x = torch.ones(1).as_subclass(Told)
    Told.functions.clear()
    call(x)
    return list(Told.functions)


@BOTH
@pytest.mark.parametrize("name", CALLS)
def test_a_subclass_is_told_the_function_that_is_in_its_table(name: str, dry_run: bool) -> None:
    bare = told(CALLS[name])
    table = {getattr(torch.Tensor, name)}
    assert table & set(bare)
    with SyncDetector(dry_run=dry_run):
        assert getattr(torch.Tensor, name) in table
        watched = told(CALLS[name])
    assert watched == bare  # and nothing else: one may raise at what it does not know


@BOTH
def test_one_that_another_tensor_is_made_alike_is_told_nothing_more(dry_run: bool) -> None:
    other = torch.ones(1, dtype=torch.float64)
    bare = told(other.to)
    with SyncDetector(dry_run=dry_run):
        assert told(lambda x: other.to(x)) == bare


@BOTH
def test_what_a_subclass_keeps_for_some_functions_it_keeps(dry_run: bool) -> None:
    """As torchvision's tv_tensors, which stay images only where they are moved or copied."""

    class Image(torch.Tensor):
        @classmethod
        def __torch_function__(
            cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> object:
            with torch._C.DisableTorchFunctionSubclass():
                result = func(*args, **(kwargs or {}))
            return result.as_subclass(cls) if func in stay else result

    stay = {torch.Tensor.to, torch.Tensor.detach}
    with SyncDetector(dry_run=dry_run):
        image = torch.ones(2).as_subclass(Image)
        assert type(image.to("cpu", torch.float64)) is Image
        assert type(image + 1) is torch.Tensor


@BOTH
def test_a_lazy_module_is_moved_and_then_takes_its_shape(
    dry_run: bool, recwarn: pytest.WarningsRecorder
) -> None:
    with SyncDetector(dry_run=dry_run) as detector:
        net = torch.nn.Sequential(torch.nn.LazyLinear(3), torch.nn.LazyBatchNorm1d())
        net.to(torch.device("cpu")).cpu()
        assert net(torch.ones(4, 2)).shape == (4, 3)
        assert "Uninitialized" not in repr(net[0].weight)
        assert not [each for each in detector.cannot_see if "fault" in each]
    assert not [each for each in recwarn if "trainscope" in str(each.message)]


@pytest.mark.parametrize("imported_before", [True, False])
def test_a_table_of_torch_s_functions_holds_whenever_it_was_made(imported_before: bool) -> None:
    """As tensordict's, whose TensorDict is no tensor."""

    class Many:
        table: ClassVar[dict[object, str]] = {}

        @classmethod
        def __torch_function__(
            cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> object:
            return cls.table.get(func, NotImplemented)

    if imported_before:
        Many.table[torch.empty_like] = "many"
    with SyncDetector(dry_run=True):
        Many.table.setdefault(torch.empty_like, "many")
        assert torch.empty_like(Many(), device="cpu") == "many"  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="__torch_function__"):
            torch.zeros_like(Many())  # type: ignore[arg-type]
    assert torch.empty_like(Many()) == "many"  # type: ignore[arg-type]


def test_a_function_is_copied_and_pickled_as_torch_s_own() -> None:
    zeros = torch.zeros
    with SyncDetector(dry_run=True):
        held = [torch.zeros, torch.fft.fftfreq]
        twin, data = copy.deepcopy(held), pickle.dumps(held)
        assert twin == held
        assert torch.zeros is not zeros
        assert torch.zeros(2, device="cuda").tolist() == [0.0, 0.0]
    assert pickle.loads(data)[0] is zeros
    assert b"trainscope" not in data


def test_one_in_front_of_another_calls_it_and_either_leaves_first() -> None:
    def adding(number: int) -> Callable[[Any], Any]:
        return lambda original: lambda x: original(x) + number

    bare = dict(vars(torch.Tensor))
    for first, second in ((0, 1), (1, 0)):
        patches = Patches(), Patches()
        replace_method(patches[0], "item", adding(10))
        replace_method(patches[1], "item", adding(100))
        assert torch.ones(()).item() == 111
        assert torch.Tensor.item(torch.ones(())) == 1
        patches[first].undo()
        patches[second].undo()
        assert dict(vars(torch.Tensor)) == bare


def test_an_attribute_is_read_by_ours_and_set_as_before() -> None:
    patches = Patches()
    x = torch.ones(2, requires_grad=True)
    original = torch.Tensor.grad
    replace_attribute(patches, "grad", lambda tensor: "ours")
    try:
        assert x.grad == "ours"
        assert torch.Tensor.grad is original
        x.grad = torch.zeros(2)
        with pytest.raises(AttributeError):
            x.shape = ()  # type: ignore[assignment]
    finally:
        patches.undo()
    assert x.grad.tolist() == [0.0, 0.0]


@pytest.mark.gpu
def test_a_lazy_module_is_moved_to_the_gpu() -> None:
    with SyncDetector() as detector:
        net = torch.nn.Sequential(torch.nn.LazyLinear(3), torch.nn.LazyBatchNorm1d()).to("cuda")
        assert net(torch.ones(4, 2, device="cuda")).shape == (4, 3)
        kinds = {site.kind for site in detector.sites()}
    assert kinds <= {"h2d-pageable"}


@BOTH
def test_a_test_may_mock_a_method_by_its_signature(dry_run: bool) -> None:
    with SyncDetector(dry_run=dry_run):
        with mock.patch.object(torch.Tensor, "cpu", autospec=True) as cpu:
            torch.ones(1).cpu()
        assert cpu.call_count == 1
        assert torch.ones(1).cpu().item() == 1
