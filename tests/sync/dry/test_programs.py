"""Small programs whose marked lines, and no others, wait; `# WAITS kind count` says how."""

from __future__ import annotations

import textwrap

import pytest

HEAD = """
import torch
import torch.nn.functional as F
device = "cuda" if torch.cuda.is_available() else "cpu"
"""

PROGRAMS = {
    "weights read from a file by native code": """
        import numpy as np
        model = torch.nn.Linear(2, 1, bias=False).to(device)    # WAITS h2d-pageable
        def read(file):  # as safetensors.torch.load_file, whose device is "cpu" by default
            call = {"device": file.device, "dtype": torch.uint8}
            return torch.asarray(file.bytes, **call).view(torch.float32).view(1, 2)
        class File:
            device, bytes = "cpu", torch.zeros(2).untyped_storage()
        weight = read(File)
        weight.sum().item()
        model.load_state_dict({"weight": weight})               # WAITS h2d-pageable
    """,
    "weights read from a file in a script that names no device": """
        model = torch.nn.Linear(2, 1, bias=False)
        named = {"device": str(torch.zeros(1).device), "dtype": torch.uint8}
        weight = torch.asarray(torch.zeros(2).untyped_storage(), **named)
        model.weight.sum().item()                               # WAITS item
    """,
    "a Lightning Trainer's copies": """
        library = {"__name__": "lightning.fabric.utilities.apply_func"}
        exec("def move(x, device, **kwargs): return x.to(device, **kwargs)", library)
        batch = library["move"](torch.ones(3), device)
        batch.sum().item()                                      # WAITS item
    """,
    "tensors that other processes share": """
        from multiprocessing.reduction import ForkingPickler
        import torch.multiprocessing
        model = torch.nn.Linear(2, 1).to(device)                # WAITS h2d-pageable 2
        model.share_memory()
        shared = torch.ones(3, device=device).share_memory_()
        for_a_queue = ForkingPickler.dumps(torch.ones(3, device=device))
        (shared.sum() + model.bias).item()                      # WAITS item
    """,
    "packed sequences": """
        from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
        embedding = torch.nn.Embedding(9, 4).to(device)         # WAITS h2d-pageable
        lstm = torch.nn.LSTM(4, 5, batch_first=True).to(device) # WAITS h2d-pageable 4
        x = torch.ones(3, 6, dtype=torch.long, device=device)
        packed = pack_padded_sequence(embedding(x), torch.tensor([6, 4, 2]), batch_first=True)
        hidden, lengths = pad_packed_sequence(lstm(packed)[0], batch_first=True)
        hidden.sum().backward()
        longest = int(lengths.max())
        norm = float(embedding.weight.grad.norm())              # WAITS float
        host = torch.zeros(3)
        host.copy_(hidden[:, 0, 0].detach())                    # WAITS d2h
        legacy = torch.Tensor([1.0, 2.0]).to(device)            # WAITS h2d-pageable
        torch.block_diag(legacy, legacy).sum().item()           # WAITS item
    """,
    "constructors": """
        import collections
        import numpy as np
        a = torch.tensor(1.0, device=device)                    # WAITS h2d-scalar
        b = torch.tensor([1, 2], device=torch.device(device))   # WAITS h2d-list
        c = torch.tensor([1, 2], device="cpu")
        d = torch.zeros(3, device=device) + torch.full((3,), 2.0, device=device)
        e = torch.as_tensor([[1.0], [2.0]], device=device)      # WAITS h2d-list
        q = torch.tensor(collections.deque([1]), device=device)  # WAITS h2d-list
        r = torch.tensor(np.float32(1.0), device=device)        # WAITS h2d-scalar
        f = torch.as_tensor(d, device=device)
        g = torch.tensor([], device=device)
        import numpy as np
        h = torch.tensor(np.ones(3), device=device)             # WAITS h2d-pageable
        i = torch.as_tensor(np.ones(3), device=device)          # WAITS h2d-pageable
        j = d.new_tensor([1.0, 2.0])                            # WAITS h2d-list
        k = d.new_zeros(3) + d.new_full((3,), 1.0)
        k.sum().item()                                          # WAITS item
        c.sum().item()
        torch.zeros_like(d).sum().item()                        # WAITS item
        torch.zeros_like(d, device="cpu").sum().item()
        torch.zeros_like(c, device=device).sum().item()         # WAITS item
        d.copy_(4)                                              # WAITS h2d-scalar
        c.copy_(4)
        """,
    "moves": """
        x = torch.randn(3)
        y = x.to(device)                          # WAITS h2d-pageable
        z = y.to(device).to(device, torch.float64)
        x.sum().item()
        y.sum().item()                            # WAITS item
        w = z.to("cpu")                           # WAITS d2h
        v = z.cpu()                               # WAITS cpu
        u = z.to(torch.device("cpu"))             # WAITS d2h
        t = z.to(device="cpu", dtype=torch.int)   # WAITS d2h
        w.sum().item(), v.sum().item(), u.sum().item(), t.sum().item()
        x.cpu(), x.to("cpu"), x.numpy(), x.tolist()
        s = x.to(y)                               # WAITS h2d-pageable
        r = x.to(y.device)                        # WAITS h2d-pageable
        q = y.to(x.device)                        # WAITS d2h
        where = y.device
        p = torch.zeros(3, device=where)
        p.sum().item()                            # WAITS item
        o = torch.zeros(3, device=x.device)
        o.sum().item()
        n = torch.empty(0).to(device)
        """,
    "copy_": """
        host, gpu = torch.randn(4), torch.zeros(4, device=device)
        gpu.copy_(host)                           # WAITS h2d-pageable
        gpu.copy_(gpu + 1)
        host.copy_(gpu)                           # WAITS d2h
        host.sum().item()
        gpu[1:3] = host[1:3]                      # WAITS h2d-pageable
        gpu[1:3] = 0.0
        gpu[0] = 1.0                              # WAITS h2d-scalar
        gpu[0] = gpu[1]
        gpu.sum().item()                          # WAITS item
        """,
    "pinned": """
        a = torch.ones(3).pin_memory()
        b = a.to(device, non_blocking=True)
        c = a.to(device)                          # WAITS h2d-pinned
        d = torch.ones(3).to(device, non_blocking=True)
        e = torch.empty(3, pin_memory=True)
        e.copy_(b, non_blocking=True)
        torch.cuda.synchronize()                  # WAITS synchronize
        e.sum().item()
        f = torch.empty(3, pin_memory=(device == "cuda")).cuda()     # WAITS h2d-pinned
        g = torch.empty(3, pin_memory=False).cuda()                  # WAITS h2d-pageable
        assert a.is_pinned() and not d.is_pinned()
        h = torch.empty(1 << 20).to(device, non_blocking=True)      # WAITS h2d-nonblocking-pageable
        i = torch.empty(1 << 20)
        i.copy_(h, non_blocking=True)             # WAITS d2h-nonblocking-pageable
        """,
    "reads": """
        x = torch.arange(4, device=device); one = x[1]
        int(one)                                  # WAITS int
        float(one)                                # WAITS float
        bool(one)                                 # WAITS bool
        list(range(one))                          # WAITS index
        x.tolist()                                # WAITS tolist
        x.numpy()                                 # WAITS numpy
        not one                                   # WAITS bool
        one == 1 and one                          # WAITS bool
        if one > 0 or one < 0: pass               # WAITS bool
        print(x, one)                             # WAITS repr 2
        str([x])                                  # WAITS repr
        f"{x}" + "{:d}".format(one)               # WAITS format 2
        "%d" % one                                # WAITS int
        max(x[0], x[1])                           # WAITS bool
        1 in x                                    # WAITS item
        complex(one)                              # WAITS item
        len(x), x.shape, x.dtype, x.device, x.numel(), x.dim(), x.is_cuda, id(x), hash(x)
        for value in x: value + 1
        """,
    "masks": """
        x = torch.arange(6.0, device=device); m = x > 2; host = torch.zeros(6, dtype=torch.bool)
        x[m]                                      # WAITS nonzero
        x[host]
        x[m] = 0.0
        x[m] = x[m]                               # WAITS nonzero 2
        x[m] = torch.zeros((), device=device)     # WAITS item-implicit
        x.masked_fill(m, 0.0); x.masked_fill_(m, 1.0)
        x.masked_fill(m, x[0])                    # WAITS item-implicit
        torch.masked_select(x, m)                 # WAITS nonzero
        m.nonzero()                               # WAITS nonzero
        torch.where(m)                            # WAITS nonzero
        torch.argwhere(m)                         # WAITS nonzero
        torch.where(m, x, 0.0)
        x[[0, 1]]                                 # WAITS h2d-list
        x[torch.tensor([0, 1])]                   # WAITS h2d-pageable
        x[torch.zeros(2, dtype=torch.long, device=device)]
        x[m.sum() - m.sum()]                      # WAITS index
        x[0], x[1:3], x[None], x[...], x[::2]
        x[[0, 1]] = 1.0                           # WAITS h2d-list, h2d-scalar
        host[[0, 1]], host[host]
        """,
    "sizes": """
        x = torch.arange(4, device=device); n = torch.tensor([1, 0, 2, 1])
        r = n.to(device)                          # WAITS h2d-pageable
        x.repeat_interleave(r)                    # WAITS size-readback 2
        torch.repeat_interleave(x, r, output_size=4)
        x.repeat_interleave(2), n.repeat_interleave(n)
        torch.unique(x)                           # WAITS size-readback
        x.unique(dim=0)                           # WAITS size-readback
        torch.unique_consecutive(x)               # WAITS size-readback
        F.one_hot(x)                              # WAITS size-readback
        F.one_hot(x, 4), F.one_hot(n), torch.unique(n), torch.bincount(n)
        torch.bincount(x)                         # WAITS size-readback 2
        torch.histc(x.float())                    # WAITS item-implicit 2
        torch.histc(x.float(), 4, 0, 4)
        """,
    "implicit": """
        x = torch.ones(3, device=device); s = x.sum()
        torch.equal(x, x + 0)                     # WAITS bool
        torch.equal(x, x), torch.equal(x, x[:2]), torch.equal(x, x.view(3).detach())
        torch.equal(x[:2], x[1:])                 # WAITS bool
        torch.allclose(x, x)                      # WAITS bool
        torch.is_nonzero(s)                       # WAITS bool
        torch.add(x, x, alpha=s)                  # WAITS item-implicit
        torch.full((3,), s, device=device)        # WAITS item-implicit
        torch.arange(s, device=device)            # WAITS item-implicit
        torch.linalg.inv(torch.eye(2, device=device))      # WAITS item-implicit
        x.fill_(s); x.clamp_(max=s); x * s + 1.0; x ** s
        torch.equal(torch.ones(2), torch.ones(2))
        x * torch.tensor(2.0)
        """,
    "hard-coded": """
        x = torch.randn(3, device="cuda")
        y = torch.randn(3).cuda()                 # WAITS h2d-pageable
        z = torch.randn(3).to("cuda:0")           # WAITS h2d-pageable
        w = torch.randn(3).to(0)                  # WAITS h2d-pageable
        v = torch.zeros(3, device=torch.device("cuda"))
        net = torch.nn.Linear(3, 3).cuda()        # WAITS h2d-pageable 2
        net(x + y + z + w + v).sum().item()       # WAITS item
        net = torch.nn.Linear(3, 3, device="cuda")
        net(x).sum().item()                       # WAITS item
        net.cpu()                                 # WAITS cpu 2
        net(torch.randn(3)).sum().item()
        net.to("cuda")                            # WAITS h2d-pageable 2
        net.to("cpu")                             # WAITS d2h 2
        torch.nn.Linear(3, 3, device="cpu")(torch.randn(3)).sum().item()
        """,
    "cuda calls": """
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        side = torch.cuda.Stream()
        with torch.cuda.stream(side): x = torch.zeros(3, device=device)
        torch.cuda.current_stream().wait_stream(side)
        x.record_stream(torch.cuda.current_stream())
        end.record()
        torch.cuda.synchronize()                  # WAITS synchronize
        start.elapsed_time(end)
        end.synchronize()                         # WAITS event
        side.synchronize()                        # WAITS stream
        torch.cuda.empty_cache()                  # WAITS empty_cache
        torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated()
        torch.cuda.reset_peak_memory_stats(); torch.cuda.set_device(0)
        torch.cuda.manual_seed_all(0)
        with torch.cuda.nvtx.range("step"): pass
        assert not torch.cuda.is_available()
        """,
    "races": """
        x = torch.full((4,), 3.0, device=device)
        h = x.to("cpu", non_blocking=True)
        h.sum()                                   # WAITS race
        h[0].item()                               # WAITS race
        h.tolist()                                # WAITS race
        h.view(2, 2).shape, h.detach().dtype
        x.sum().item()                            # WAITS item
        h.sum(), h.tolist()
        k = x.to("cpu", non_blocking=True)
        torch.cuda.current_stream().synchronize()  # WAITS stream
        k.sum()
        """,
    "no device named": """
        net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))
        opt = torch.optim.Adam(net.parameters())
        x, y = torch.randn(8, 4), torch.zeros(8, 4)
        for _ in range(3):
            loss = (net(x) - y).square().mean()
            loss.backward(); opt.step(); opt.zero_grad()
            loss.item()                           # WAITS item 3
            y.sum().item(); x.mean().item()
        net[0].weight.data.norm().item()          # WAITS item
        net[1].running_mean.sum().item()          # WAITS item
        w = torch.randn(3, requires_grad=True)
        float(w.sum())                            # WAITS float
        loss.detach().cpu()                       # WAITS cpu
        """,
    "model moved late": """
        net = torch.nn.Linear(4, 4)
        net.to(device)                            # WAITS h2d-pageable 2
        net.to(device)
        net(torch.randn(2, 4, device=device)).sum().item()     # WAITS item
        torch.nn.Linear(4, 4)(torch.randn(2, 4)).sum().item()
        """,
    "tied weights and buffers": """
        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.a, self.b = torch.nn.Linear(4, 4, False), torch.nn.Linear(4, 4, False)
                self.b.weight = self.a.weight
                self.register_buffer("scale", torch.ones(4))
            def forward(self, x): return self.b(self.a(x)) * self.scale
        net = Net().to(device)                    # WAITS h2d-pageable 2
        assert net.a.weight is net.b.weight
        net.scale.sum().item()                    # WAITS item
        net(torch.randn(4, device=device)).sum().item()        # WAITS item
        """,
    "copies of models": """
        import copy, io
        net = torch.nn.Linear(4, 4).to(device)    # WAITS h2d-pageable 2
        twin = copy.deepcopy(net)
        twin.weight.sum().item()                  # WAITS item
        state = twin.state_dict()
        net.load_state_dict(state)
        copy.deepcopy(state)["bias"].sum().item() # WAITS item
        file = io.BytesIO()
        torch.save(state, file); file.seek(0)   # WAITS d2h 2
        state = torch.load(file, map_location="cpu")
        state["bias"].sum().item()
        net.load_state_dict(state)                # WAITS h2d-pageable 2
        file.seek(0)
        state = torch.load(file, map_location=device)                # WAITS h2d-pageable 2
        state["bias"].sum().item()                                   # WAITS item
        shared = torch.ones(6, device=device)
        file = io.BytesIO()
        torch.save([shared[:2], shared[2:], torch.ones(0)], file)    # WAITS d2h
        file.seek(0)
        torch.load(file, map_location=device)                        # WAITS h2d-pageable
        """,
    "gradients": """
        net = torch.nn.Linear(4, 4).to(device)    # WAITS h2d-pageable 2
        x = torch.randn(2, 4, device=device, requires_grad=True)
        g, = torch.autograd.grad(net(x).square().sum(), x, create_graph=True)
        g.square().sum().backward()
        g.norm().item()                           # WAITS item
        net.weight.grad.norm().item()             # WAITS item
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        torch.nn.utils.clip_grad_value_(net.parameters(), 1.0)
        x.register_hook(lambda grad: print(grad.sum().item()))   # WAITS item
        net(x).sum().backward()
        """,
    "checkpointing": """
        from torch.utils.checkpoint import checkpoint
        net = torch.nn.Linear(4, 4).to(device)    # WAITS h2d-pageable 2
        x = torch.randn(2, 4, device=device)
        def block(x):
            y = net(x)
            if y.isnan().any(): raise ValueError  # WAITS bool 2
            return y.square()
        checkpoint(block, x, use_reentrant=False).sum().backward()
        """,
    "amp": """
        net = torch.nn.Linear(4, 4).to(device)    # WAITS h2d-pageable 2
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cuda")
        for _ in range(2):
            with torch.autocast("cuda", dtype=torch.float16):
                loss = net(torch.randn(2, 4, device=device)).sum()
            scaler.scale(loss).backward()
            scaler.step(opt)                      # WAITS item 2
            scaler.update()
        torch.amp.GradScaler("cuda", enabled=False).step(opt)
        """,
    "optimizers": """
        def run(make, **more):
            p = [torch.nn.Parameter(torch.randn(3, device=device)) for _ in range(2)]
            opt = make(p, lr=0.1, **more)
            for _ in range(2):
                sum(q.square().sum() for q in p).backward()
                opt.step()
                opt.zero_grad()
        for make in (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.RMSprop):
            run(make); run(make, foreach=True); run(make, foreach=False)
        run(torch.optim.SGD, momentum=0.9, nesterov=True)
        """,
    "loaders": """
        from torch.utils.data import DataLoader, TensorDataset
        data = TensorDataset(torch.randn(6, 3), torch.arange(6))
        for x, y in DataLoader(data, 2):
            x, y = x.to(device), y.to(device)     # WAITS h2d-pageable 6
        for x, y in DataLoader(data, 2, pin_memory=True):
            x, y = x.to(device), y.to(device)     # WAITS h2d-pinned 6
        for x, y in DataLoader(data, 2, pin_memory=torch.cuda.is_available()):
            x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
        for x, y in DataLoader(data, 3, num_workers=1):
            x.to(device)                          # WAITS h2d-pageable 2
            y.tolist()
        """,
    "views and out": """
        x = torch.zeros(4, device=device); buffer = torch.empty(4, device=device)
        torch.add(x, 1.0, out=buffer)
        buffer.view(2, 2).t()[0].sum().item()     # WAITS item
        host = torch.empty(4)
        torch.add(torch.ones(4), 1.0, out=host)
        host.sum().item()
        x.data = torch.ones(4, device=device)
        x.sum().item()                            # WAITS item
        a, b = x.chunk(2); c = torch.stack([a, b]).unbind()[0]
        c[0].item()                               # WAITS item
        x.detach().data.add_(1)[0].item()         # WAITS item
        """,
    "what an operator writes into": """
        net = torch.nn.Linear(3, 3).to(device)    # WAITS h2d-pageable 2
        x = net(torch.ones(2, 3, device=device)).detach()
        total = torch.zeros(3); total.add_(x.sum(0))
        total.tolist()                            # WAITS tolist
        number = torch.zeros(3).fill_(2.0); number.tolist()
        """,
    "data parallel": """
        import torch.distributed as dist
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        for view in (False, True):
            net = torch.nn.Linear(3, 3).to(device)    # WAITS h2d-pageable 4
            net = torch.nn.parallel.DistributedDataParallel(net, gradient_as_bucket_view=view)
            for _ in range(3):
                net(torch.ones(2, 3, device=device)).sum().backward()
            net.module.weight.grad.sum().item()       # WAITS item 2
        dist.destroy_process_group()
        """,
    "default device": """
        torch.set_default_device("cuda")
        x = torch.zeros(3)
        x.sum().item()                            # WAITS item
        y = torch.tensor([1.0])                   # WAITS h2d-list
        with torch.device("cpu"): z = torch.ones(3)
        torch.set_default_device(None)
        torch.zeros(3).sum().item()
        with torch.device("cuda"):
            net = torch.nn.Linear(3, 3)
        net(x).sum().item()                       # WAITS item
        """,
    "functional transforms": """
        net = torch.nn.Linear(3, 3).to(device)    # WAITS h2d-pageable 2
        x = torch.randn(5, 3, device=device)
        y = torch.func.vmap(net)(x)
        y.sum().item()                            # WAITS item
        g = torch.func.grad(lambda v: net(v).sum())(x)
        g.sum().item()                            # WAITS item
        params = dict(net.named_parameters())
        torch.func.functional_call(net, params, (x,)).sum().item()    # WAITS item
        """,
    "sparse and others": """
        x = torch.eye(3, device=device).to_sparse()                   # WAITS size-readback
        x.coalesce().values().sum()
        torch.einsum("ij,jk->ik", torch.eye(3, device=device), torch.eye(3, device=device))
        q = torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8)
        q.dequantize().sum().item()
        c = torch.ones(3, dtype=torch.complex64).conj().to(device)    # WAITS h2d-pageable
        m = torch.empty(3, device="meta"); m + 1; m.to("meta")
        """,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(check, name: str) -> None:
    check(HEAD + textwrap.dedent(PROGRAMS[name]))
