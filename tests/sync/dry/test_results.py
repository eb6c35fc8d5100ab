"""A dry run changes nothing: not one bit of the weights, no exception, no alias."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from trainscope.errors import SyncError
from trainscope.sync.detector import SyncDetector
from trainscope.sync.dry import DryRun


def _ignore(kind: str, frame: object, *, internal: bool = False) -> None:
    return None


def _both_ways(program: Callable[[], list[Tensor]]) -> None:
    torch.manual_seed(0)
    plain = program()
    torch.manual_seed(0)
    dry_run = DryRun(_ignore)
    dry_run.start()
    try:
        dry = program()
    finally:
        dry_run.stop()
    assert dry_run.fault is None
    assert len(plain) == len(dry) > 0
    for left, right in zip(plain, dry, strict=True):
        assert left.dtype == right.dtype
        assert left.stride() == right.stride()
        assert torch.equal(left, right)


def _mlp() -> list[Tensor]:
    device = "cpu"
    net = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 4))
    net.to(device)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    losses = []
    for _ in range(50):
        x = torch.randn(8, 16).to(device)
        y = torch.randint(4, (8,)).to(device, non_blocking=True)
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach().cpu())
    return [*net.state_dict().values(), *losses]


def _transformer() -> list[Tensor]:
    device = torch.device("cpu")
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True)
    net = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-2, momentum=0.9, foreach=True)
    for _ in range(50):
        x = torch.randn(2, 5, 16, device=device)
        loss = net(x, mask=nn.Transformer.generate_square_subsequent_mask(5)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
    net.eval()
    with torch.no_grad():
        return [net(torch.ones(1, 5, 16, device=device)).cpu(), *net.state_dict().values()]


def _compiled() -> list[Tensor]:
    device = "cpu"
    torch._dynamo.reset()
    net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)).to(device)
    step = torch.compile(net, fullgraph=True, backend="aot_eager")
    optimizer = torch.optim.Adam(net.parameters())
    for _ in range(50):
        step(torch.randn(8, 4, device=device)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return list(net.state_dict().values())


def _aliases() -> list[Tensor]:
    """On the CPU a `.cpu()` or `.to(device)` of a CPU tensor is that tensor; scripts see it."""
    device = "cpu"
    net = nn.Linear(3, 3).to(device)
    best = {name: value.cpu() for name, value in net.state_dict().items()}
    with torch.no_grad():
        net.weight.add_(1.0)
    net.load_state_dict(best)
    host = torch.zeros(4)
    moved = host.to(device)
    moved.add_(1.0)
    array = moved.cpu().numpy()
    array += 1.0
    column = torch.arange(6.0).view(2, 3).t().to(device)
    part = torch.arange(6.0)[2:5].to(device)
    part.mul_(2.0)
    return [host, moved, column, part, part.cpu(), *net.state_dict().values()]


def _grown() -> list[Tensor]:
    """As `torch.distributed` makes the objects of all ranks equally long."""
    device = "cpu"
    sent = torch.ByteTensor(torch.ByteStorage._from_buffer(b"abc")).to(device)
    sent.resize_(5)[3:] = 0
    row = torch.arange(3.0).to(device)
    row.resize_((2, 3))[1] = 7.0
    part = torch.arange(6.0)[4:].to(device)
    part.resize_(torch.Size([3]))[2] = 9.0
    counted = torch.zeros(1).to(device)
    counted.resize_(torch.tensor(2))[1] = 3.0  # type: ignore[arg-type]
    host = torch.arange(4.0)
    shorter = host.to(device)
    shorter.resize_(2).add_(1.0)
    return [sent, row, part, counted, shorter, host[:2]]


def _gradients() -> list[Tensor]:
    device = "cpu"
    leaf = torch.randn(3, requires_grad=True)
    same = leaf.to(device)
    assert same is leaf
    middle = (leaf * 2).to(device).cpu().to(device)
    (gradient,) = torch.autograd.grad(middle.pow(3).sum(), leaf, create_graph=True)
    gradient.pow(2).sum().backward()
    assert leaf.grad is not None
    return [gradient.detach(), leaf.grad, middle.detach()]


def _tensors_in_lists() -> list[Tensor]:
    """C takes a tensor for a sequence once its class has a Python ``__getitem__``, and for good."""
    device = "cpu"
    returns = torch.linspace(0.0, 1.0, 3).to(device)
    target = torch.tensor([returns[0]], device=device)
    same = torch.tensor([value for value in returns])
    index = [torch.tensor(0), torch.tensor(2)]
    old = torch.Tensor([returns[1], returns[2]])
    return [target, same, old, torch.as_tensor([returns.sum()]), torch.eye(3)[index, index]]


@pytest.mark.parametrize(
    "program", [_mlp, _transformer, _compiled, _aliases, _grown, _gradients, _tensors_in_lists]
)
def test_values_are_equal_bit_for_bit(program: Callable[[], list[Tensor]]) -> None:
    _both_ways(program)


def test_what_was_moved_and_grew_stays_where_it_was() -> None:
    with SyncDetector(dry_run=True) as detector:
        moved = torch.ones(2).to("cuda")
        moved.resize_(3)
        moved.tolist()
        read = moved.cpu()
        read.resize_(4)
        read.tolist()
    assert [site.kind for site in detector.sites()] == ["h2d-pageable", "tolist", "cpu"]


def test_memory_that_cannot_grow_without_us_still_cannot() -> None:
    with SyncDetector(dry_run=True), pytest.raises(RuntimeError, match="not resizable"):
        torch.from_numpy(np.ones(2)).resize_(3)


def test_an_error_of_the_script_passes_through_and_everything_is_put_back() -> None:
    dry_run = DryRun(_ignore)
    with pytest.raises(ZeroDivisionError):
        dry_run.start()
        try:
            torch.zeros(3, device="cuda").sum().item() / 0
            1 / 0  # noqa: B018
        finally:
            dry_run.stop()
    with pytest.raises((AssertionError, RuntimeError)):
        torch.zeros(3, device="cuda")


def test_what_observe_raises_reaches_the_line_that_waits() -> None:
    refusals = iter([SyncError, UserWarning, RuntimeError, SyncError, LookupError, SyncError])

    def refuse(kind: str, frame: object, *, internal: bool = False) -> None:
        raise refusal(kind)

    dry_run = DryRun(refuse)
    dry_run.start()
    try:
        x = torch.ones(3, device="cuda")
        for wait, kind in [
            (lambda: x.sum().item(), "item"),
            (lambda: x.nonzero(), "nonzero"),
            (lambda: torch.ones(2).cuda(), "h2d-pageable"),
            (lambda: x.cpu(), "cpu"),
            (lambda: torch.tensor(1.0, device="cuda"), "h2d-scalar"),
            (lambda: torch.cuda.synchronize(), "synchronize"),
        ]:
            refusal = next(refusals)
            with pytest.raises(refusal, match=kind):
                wait()
        assert dry_run.fault is None
    finally:
        dry_run.stop()


def test_a_fault_of_ours_ends_the_dry_run_with_one_warning_and_the_script_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*args: object) -> None:
        raise LookupError("ours")

    monkeypatch.setattr("trainscope.sync.dry.mode.waits_of", broken)
    dry_run = DryRun(_ignore)
    dry_run.start()
    try:
        with pytest.warns(RuntimeWarning, match="LookupError: ours") as caught:
            x = torch.ones(3, device="cuda")
            assert x.sum().item() == 3.0
            assert x.nonzero().tolist() == [[0], [1], [2]]
            assert x.cpu().sum().item() == 3.0
        assert len(caught) == 1
        assert dry_run.fault == "LookupError: ours"
        assert any("LookupError: ours" in line for line in dry_run.cannot_see)
    finally:
        dry_run.stop()


def test_a_copy_to_the_gpu_runs_inside_the_range_that_is_asked_for() -> None:
    order: list[str] = []

    @contextmanager
    def h2d() -> Iterator[None]:
        order.append("open")
        yield
        order.append("close")

    def observe(kind: str, frame: object, *, internal: bool = False) -> None:
        order.append(kind)

    dry_run = DryRun(observe, h2d)
    dry_run.start()
    try:
        x = torch.ones(3).to("cuda")
        x.to("cuda").cpu()
    finally:
        dry_run.stop()
    assert order == ["open", "h2d-pageable", "close", "cpu"]


def test_the_frame_given_is_the_one_that_made_the_call() -> None:
    frames: list[tuple[str, str]] = []

    def observe(kind: str, frame: FrameType, *, internal: bool = False) -> None:
        frames.append((kind, frame.f_code.co_filename))

    dry_run = DryRun(observe)
    dry_run.start()
    try:
        p = nn.Parameter(torch.ones(3, device="cuda"))
        p.grad = torch.ones_like(p)
        rate = torch.full((), 0.1, device="cuda")
        torch.optim.SGD([p], lr=rate, foreach=False).step()
        rate.item()
    finally:
        dry_run.stop()
    here, sgd = __file__, inspect.getfile(torch.optim.SGD)
    assert frames == [("item-implicit", sgd), ("item-implicit", sgd), ("item", here)]


TRACED: dict[str, Callable[[Tensor], Tensor]] = {
    "item": lambda x: x * x.sum().item(),
    "a number of a list": lambda x: x * x.tolist()[0][1],
    "rows counted": lambda x: x * 2 + sum(x[i] for i in range(x.size(0))),
    "size": lambda x: torch.arange(x.shape[1]) + x,
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", TRACED)
def test_a_traced_function_runs_on_its_constants(name: str) -> None:
    x = torch.arange(6.0).reshape(2, 3)
    traced: Callable[..., Callable[[Tensor], Tensor]] = torch.jit.trace  # type: ignore[assignment]
    _both_ways(lambda: [traced(TRACED[name], (x,))(x)])
