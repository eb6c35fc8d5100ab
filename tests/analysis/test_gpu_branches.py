"""Which lines no machine with a GPU runs; a line that one does run must never be among them."""

from __future__ import annotations

import pytest

from trainscope.analysis.gpu_branches import lines_without_gpu

# A line ending in "# cpu" runs only where there is no GPU; no other line does.
PROGRAMS = {
    "is_available": """
if torch.cuda.is_available():
    x = x.cuda()
else:
    x = x.to(device)  # cpu
""",
    "not": """
if not torch.cuda.is_available():
    x = x.to(device)  # cpu
    y = y.to(device)  # cpu
else:
    x = x.cuda()
""",
    "nanoGPT": """
device_type = 'cuda' if 'cuda' in device else 'cpu'
def get_batch(split):
    if device_type == 'cuda':
        x = x.pin_memory().to(device, non_blocking=True)
    else:
        x, y = x.to(device), y.to(device)  # cpu
    return x, y
""",
    "chain": """
if device.type == "cuda":
    x = x.cuda()
elif device.type == "mps":  # cpu
    x = x.to("mps")  # cpu
else:  # cpu
    x = x.to("cpu")  # cpu
""",
    "the other way round": """
if device == "cpu":
    x = x.to(device)  # cpu
elif device == "cuda:0":
    x = x.cuda()
else:
    x = x.to("mps")  # cpu
""",
    "names": """
use_cuda = torch.cuda.is_available()
gpus = torch.cuda.device_count() > 0
if gpus and use_cuda:
    a = 1
else:
    b = loss.item()  # cpu
if not gpus or not use_cuda:
    c = loss.item()  # cpu
""",
    "use_cuda by another way": """
use_cuda = not args.no_cuda and torch.cuda.is_available()
if use_cuda:
    pass
else:
    x = x.to(device)  # cpu
""",
    "a setting": """
if args.device == "cuda" and self.use_gpu:
    pass
else:
    x = x.to(device)  # cpu
""",
    "words": """
if "cuda" in str(device) or device.startswith("cuda"):
    pass
else:
    a = x.to(device)  # cpu
if device.type in ("cpu", "mps"):
    b = x.to(device)  # cpu
if device.type not in ("cuda", "xpu"):
    c = x.to(device)  # cpu
if torch.device("cuda") != device:
    d = 1
if device != torch.device("cuda"):
    e = x.to(device)  # cpu
""",
    "leaving": """
def load(x):
    if torch.cuda.is_available():
        return x.cuda()
    x = x.to(device)  # cpu
    return x  # cpu
def other(x):
    return x.item()
""",
    "a conditional expression": """
x = x.cuda() if torch.cuda.is_available() else x.to(device)  # cpu
y = f(x.cuda() if torch.cuda.is_available() else x.to(device))
z = (x.cuda() if torch.cuda.is_available() else x.to(device)) + y.item()
d = torch.device("cuda" if torch.cuda.is_available() else "cpu")
t = torch.tensor(v, device="cuda" if torch.cuda.is_available() else "cpu")
n = a if torch.cuda.is_available() else b
""",
    "a conditional expression over lines": """
x = (
    x.cuda()
    if device == "cuda"
    else x.to(device)  # cpu
)
""",
    "something else decides too": """
if torch.cuda.is_available() and step % 10 == 0:
    a = 1
else:
    b = loss.item()
if torch.cuda.is_available() or debug:
    c = 1
else:
    d = loss.item()  # cpu
if step > 3:
    e = 1
else:
    f = loss.item()
while not torch.cuda.is_available():
    g = loss.item()
if torch.cuda.device_count() > 1:
    h = 1
else:
    i = loss.item()
if x.is_cuda:
    j = 1
else:
    k = x.to(device)
""",
    "the device of one tensor": """
if x.device.type == "cpu":
    x = x.cuda()
if batch.device != torch.device("cuda"):
    batch = batch.cuda()
if x.is_cuda:
    return
x = x.cuda()
""",
    "a name with two lives": """
fast = torch.cuda.is_available()
for fast in (True, False):
    if fast:
        a = 1
    else:
        b = loss.item()
def f(slow=torch.cuda.is_available()):
    if slow:
        c = 1
    else:
        d = loss.item()
""",
    "words that are no devices": """
if name == "cudax" or mode == "train":
    a = 1
else:
    b = loss.item()
if torch.cuda.is_available() == other:
    c = 1
else:
    d = loss.item()
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_lines_that_only_a_machine_without_a_gpu_runs(name: str) -> None:
    lines = PROGRAMS[name].splitlines()
    marked = {number for number, line in enumerate(lines, 1) if line.endswith("# cpu")}
    assert lines_without_gpu(PROGRAMS[name]) == marked


@pytest.mark.parametrize("source", ["", "if x", "\0", "x = " + "(" * 5000, "-" * 100_000 + "1"])
def test_what_is_no_program_has_no_such_lines(source: str) -> None:
    assert lines_without_gpu(source) == frozenset()


def test_an_odd_escape_is_not_complained_of(recwarn: pytest.WarningsRecorder) -> None:
    assert lines_without_gpu("if not torch.cuda.is_available():\n    a = '\\d'\n") == {2}
    assert not recwarn.list
