"""The timed wrappers: one user call is one event, of the right kind, at the user's line."""

from __future__ import annotations

import functools
import sys
import threading
from contextlib import nullcontext

import pytest
import torch
from emulated import Host, OnDevice, on_device

from trainscope.sync import probes
from trainscope.sync.own_code import leave_uncompiled
from trainscope.sync.patches import Patches


class Listening:
    """Keeps events as (kind, line, internal); `armed` says whether waits are announced."""

    def __init__(self) -> None:
        self.active = True
        self.armed = False
        self.events: list[tuple[str, int, bool]] = []
        self.blocked_ns: list[int] = []
        self.entered = 0

    def announces(self) -> bool:
        return self.armed

    def event(self, kind: str, frame: object, blocked_ns: int, internal: bool) -> None:
        self.events.append((kind, frame.f_lineno, internal))  # type: ignore[attr-defined]
        self.blocked_ns.append(blocked_ns)

    def h2d_range(self) -> nullcontext[None]:
        self.entered += 1
        return nullcontext()


@pytest.fixture
def listening():
    listener, patches = Listening(), Patches()
    probes.install(patches, listener)
    yield listener
    assert patches.undo() == ()


def line() -> int:
    return sys._getframe(1).f_lineno


def test_each_read_is_one_event_of_its_kind(listening: Listening) -> None:
    x, one, n = on_device(1.0, 2.0), on_device(3.0).sum(), torch.tensor(1).as_subclass(OnDevice)
    here = line()
    assert one.item() == 3.0
    assert x.tolist() == [1.0, 2.0]
    assert x.cpu().is_cuda is False
    assert bool(one) is True
    assert int(one) == 3
    assert float(one) == 3.0
    assert [10, 20][n] == 20
    assert x.numpy(force=True).tolist() == [1.0, 2.0]
    assert "1., 2." in repr(x)
    assert str(x) == f"{x}"
    assert "%.1f" % one == "3.0"  # noqa: UP031 - what is tested
    kinds = ["item", "tolist", "cpu", "bool", "int", "float", "index", "numpy", "repr"]
    assert listening.events == [
        *((kind, here + 1 + at, kind == "repr") for at, kind in enumerate(kinds)),
        ("repr", here + 10, True),
        ("format", here + 10, True),
        ("float", here + 11, False),
    ]
    assert all(ns > 0 for ns in listening.blocked_ns)


def test_cpu_tensors_are_no_event(listening: Listening) -> None:
    x = torch.ones(2)
    assert (x.sum().item(), x.tolist(), x.cpu() is x, repr(x), f"{x}") == (
        2.0, [1.0, 1.0], True, "tensor([1., 1.])", "tensor([1., 1.])",
    )  # fmt: skip
    assert x.to(torch.float64).copy_(x).dtype == torch.float64
    assert x.to("cpu") is x
    assert (bool(x.sum()), int(x.sum()), float(x.sum())) == (True, 2, 2.0)
    assert listening.events == []


def test_an_announcement_inside_a_wrapper_only_confirms_it(listening: Listening) -> None:
    """While armed, a read that torch did not announce (a fake or empty tensor) is no wait."""
    listening.armed = True
    x = on_device(1.0).sum()
    x.item()
    assert listening.events == []

    def announced(self: object) -> float:
        probes.here.announced = True
        return 1.0

    probe = probes._read("item", announced, listening)
    assert probe(x) == 1.0
    assert listening.events == [("item", line() - 1, False)]


def test_a_read_at_which_a_graph_breaks_is_an_event(
    listening: Listening, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What torch.compile runs as it is, is not compiling, though it may compile again in there."""
    monkeypatch.setattr(probes, "on_gpu", lambda tensor: True)

    def step(x: torch.Tensor) -> torch.Tensor:
        return x * x.sum().item()

    leave_uncompiled("trainscope.sync")
    torch._dynamo.reset()
    compiled = torch.compile(step, backend="eager")
    for _ in range(2):
        assert compiled(torch.ones(3)).tolist() == [3.0, 3.0, 3.0]
    items = [event for event in listening.events if event[0] == "item"]
    assert items == [("item", step.__code__.co_firstlineno + 1, False)] * 2


def test_an_error_passes_through_and_is_no_event(listening: Listening) -> None:
    with pytest.raises(RuntimeError, match=r"2 elements|Tensor with 2"):
        on_device(1.0, 2.0).item()
    assert listening.events == []
    assert probes.here.inside is False


@pytest.mark.parametrize(
    ("args", "kwargs", "pinned", "kind"),
    [
        (("cuda",), {}, False, "h2d-pageable"),
        (("cuda:1",), {}, False, "h2d-pageable"),
        ((0,), {}, False, "h2d-pageable"),
        ((torch.device("cuda", 1),), {}, False, "h2d-pageable"),
        ((), {"device": "cuda"}, True, "h2d-pinned"),
        ((on_device(1.0),), {}, False, "h2d-pageable"),
        (("cuda",), {"non_blocking": True}, True, None),
        (("cuda", torch.float32, True), {}, False, None),  # small: measured never to wait
    ],
)
def test_moves_to_the_device(
    listening: Listening, args: tuple, kwargs: dict, pinned: bool, kind: str | None
) -> None:
    x = torch.ones(4).as_subclass(Host)
    x.pinned = pinned
    assert x.to(*args, **kwargs).is_cuda
    assert [event[0] for event in listening.events] == ([] if kind is None else [kind])
    assert listening.entered == 1


def test_moves_by_cuda_and_copy(listening: Listening) -> None:
    host, device, plain = torch.ones(2).as_subclass(Host), on_device(1.0, 2.0), torch.zeros(2)
    here = line()
    host.cuda()
    plain.copy_(device)
    device.copy_(plain)
    device.to("cpu")
    plain.copy_(plain)
    device.copy_(device)
    device.copy_(7)  # type: ignore[arg-type]
    plain.copy_(7)  # type: ignore[arg-type]
    assert listening.events == [
        ("h2d-pageable", here + 1, False),
        ("d2h", here + 2, False),
        ("h2d-pageable", here + 3, False),
        ("d2h", here + 4, False),
        ("h2d-scalar", here + 7, False),
    ]
    assert listening.entered == 2


def test_module_to_is_one_event_a_tensor_at_torch_s_line(listening: Listening) -> None:
    net = torch.nn.Linear(2, 2)
    for name, parameter in list(net.named_parameters()):
        net.register_parameter(name, None)
        net.register_buffer(name + "_", parameter.detach().as_subclass(Host))
    net.to("cuda")
    assert [event[0] for event in listening.events] == ["h2d-pageable", "h2d-pageable"]


def test_waits_for_streams_and_events(listening: Listening) -> None:
    waited = []
    for kind in ("stream", "event", "synchronize"):
        probes._wait(kind, functools.partial(waited.append), listening)(kind)
    assert [event[0] for event in listening.events] == waited == ["stream", "event", "synchronize"]


def test_a_stopped_listener_hears_nothing(listening: Listening) -> None:
    held = on_device(1.0).item
    listening.active = False
    assert held() == 1.0
    assert listening.events == []


def test_each_thread_has_its_own_inside(listening: Listening) -> None:
    inside, leave, seen = threading.Event(), threading.Event(), []

    def slow(self: object) -> int:
        inside.set()
        leave.wait(5)
        return 1

    probe = probes._read("item", slow, listening)
    thread = threading.Thread(target=lambda: seen.append(probe(on_device(1.0))))
    thread.start()
    inside.wait(5)
    on_device(2.0).item()
    assert [event[0] for event in listening.events] == ["item"]
    leave.set()
    thread.join()
    assert (seen, len(listening.events)) == ([1], 2)


def test_wrappers_keep_name_and_doc(listening: Listening) -> None:
    original = torch._C.TensorBase.item
    ours = torch.ones(()).item
    assert ours.__func__ is not original  # type: ignore[attr-defined]
    assert (ours.__name__, ours.__doc__) == ("item", original.__doc__)
