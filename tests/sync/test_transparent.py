"""torch.compile and torch itself see no difference: what compiled before compiles after."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from warm import Command, warm

from trainscope.sync.detector import SyncDetector
from trainscope.sync.probes import READS

# what compiling loads too, as far as it does not load torch._dynamo
PROGRAM = Command(
    (str(Path(__file__).parent / "fullgraph_program.py"),),
    loaded=("torch", "torch.fx.experimental.symbolic_shapes", "torch.distributed.fsdp"),
)


def outcome(order: str) -> list[str]:
    """Run the program that compiles each patched name; return its lines."""
    done = warm(PROGRAM, order, cwd=Path.cwd()).end()
    assert done.status == 0, done.err[-2000:]
    return done.out.splitlines()


@pytest.fixture(scope="module")
def plain() -> list[str]:
    lines = outcome("plain")
    assert [line for line in lines if line.endswith(" ok")]
    return lines


@pytest.mark.parametrize("order", ["torch._dynamo first", "detector first", "stopped again"])
def test_every_patched_name_compiles_as_before(plain: list[str], order: str) -> None:
    assert outcome(order) == plain


def test_the_program_tries_every_patched_name(plain: list[str]) -> None:
    tried = {line.split()[0] for line in plain}
    assert tried >= {*READS, "to", "cuda", "copy_", "stream", "event"}


def test_starting_does_not_recompile() -> None:
    import torch._dynamo.testing

    counter = torch._dynamo.testing.CompileCounter()

    @torch.compile(backend=counter, fullgraph=True)
    def step(x: torch.Tensor) -> torch.Tensor:
        return x.to(torch.float64) * 2

    x = torch.ones(3)
    step(x)
    with SyncDetector(dry_run=False) as detector:
        step(x)
        detector.begin_step(0)
        step(x)
    step(x)
    assert counter.frame_count == 1
    torch._dynamo.reset()


@pytest.mark.parametrize("dry_run", [False, True])
def test_where_a_graph_breaks_nothing_of_ours_is_compiled(dry_run: bool) -> None:
    import torch._dynamo.utils

    def step(x: torch.Tensor) -> torch.Tensor:
        torch._dynamo.graph_break()
        x = x.to(torch.float64) * x.sum().item()
        return x.cpu() + x.tolist()[0]

    def frames() -> int:
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
        torch.compile(step, backend="eager")(torch.ones(3))
        return torch._dynamo.utils.counters["frames"]["total"]

    bare = frames()
    with SyncDetector(dry_run=dry_run):
        assert frames() == bare


@pytest.mark.gpu
def test_a_read_at_which_a_graph_breaks_is_timed_on_a_gpu() -> None:
    def step(x: torch.Tensor) -> torch.Tensor:
        return x * x.sum().item()

    torch._dynamo.reset()
    x = torch.ones(3, device="cuda")
    with SyncDetector() as detector:
        compiled = torch.compile(step, backend="eager")
        for _ in range(3):
            compiled(x)
    reads = [site for site in detector.sites() if site.kind == "item"]
    assert [(site.function, site.count, site.timed) for site in reads] == [("step", 3, 3)]


def test_results_are_the_same_objects_and_values() -> None:
    x = torch.tensor([1.5, -2.0])
    with SyncDetector(dry_run=False):
        assert x.cpu() is x
        assert x.to(x.device) is x
        assert x.copy_(x) is x
        assert x.numpy().base is not None
        assert (x.tolist(), x.sum().item(), [7, 8][torch.tensor(1)]) == ([1.5, -2.0], -0.5, 8)
        assert f"{x.sum():.2f}" == "-0.50"
        with pytest.raises(RuntimeError, match="device"):
            x.to("nonsense")


def test_tensor_subclasses_keep_their_own_methods_and_torch_function() -> None:
    seen: list[str] = []

    class Logged(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            seen.append(func.__name__)
            return super().__torch_function__(func, types, args, kwargs or {})

        def tolist(self) -> str:  # type: ignore[override]
            return "mine"

    x = torch.ones(1).as_subclass(Logged)
    with SyncDetector(dry_run=False):
        assert (x.item(), x.tolist()) == (1.0, "mine")
    assert "item" in seen


def test_copies_and_pickles_under_the_detector_load_without_it() -> None:
    import copy
    import pickle

    model = torch.nn.Linear(2, 2)
    with SyncDetector(dry_run=False):
        data = pickle.dumps(model)
        twin = copy.deepcopy(model)
    assert b"trainscope" not in data
    assert torch.equal(pickle.loads(data).weight, twin.weight)


def test_weights_are_bit_equal_with_and_without() -> None:
    def train() -> torch.Tensor:
        torch.manual_seed(0)
        net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU(), torch.nn.Linear(8, 1))
        optimizer = torch.optim.AdamW(net.parameters())
        for _ in range(50):
            loss = net(torch.randn(4, 8)).square().mean()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            float(loss.detach())
        return torch.cat([p.detach().flatten() for p in net.parameters()])

    bare = train()
    with SyncDetector(dry_run=False):
        assert torch.equal(train(), bare)
