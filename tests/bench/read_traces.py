"""How fast and how small torch.profiler traces are read: which decoder, and against what.

    python tests/bench/read_traces.py [--mb 26 250 1000] [--hta PYTHON] [--out FOLDER]

Each reader runs in a process of its own, in turn (A B C A B C). Times are CPU time, which for these
readers of one thread is the time on a quiet machine, and the least of the repeats counts. The
memory is what the process had at most more than after its imports (Linux only). ``--hta`` names a
Python that has HolisticTraceAnalysis.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from made_big_trace import write_big_trace
from outcome import write_result

LOOP = """
for event in document["traceEvents"]:
    if event.get("ph") == "X":
        args = event.get("args", {})
        rows.append((event["cat"], event["name"], event["ts"], event["dur"],
                     args.get("correlation")))
"""
COLUMNS = """
from trainscope.trace.torch_trace.read import _Reading
from trainscope.trace.torch_trace.split import Frame
reading = _Reading(); reading.add(events); reading.window(path, Frame())
"""
YARDSTICK = "json.load and a loop"
READERS = {
    YARDSTICK: ("import json\nrows = []", f"document = json.load(open(path))\n{LOOP}"),
    "orjson and a loop": (
        "import orjson\nrows = []",
        f"document = orjson.loads(open(path, 'rb').read())\n{LOOP}",
    ),
    "msgspec, untyped, and a loop": (
        "import msgspec\nrows = []",
        f"document = msgspec.json.decode(open(path, 'rb').read())\n{LOOP}",
    ),
    "msgspec, typed, whole, into columns": (
        "import msgspec\nfrom trainscope.trace.torch_trace.events import Document\n"
        "import trainscope.trace.torch_trace",
        "events = msgspec.json.decode(open(path, 'rb').read(), type=Document).traceEvents\n"
        + COLUMNS,
    ),
    "trainscope: msgspec, typed, in pieces": (
        "from trainscope.trace.torch_trace import read_torch_trace",
        "window = read_torch_trace(path)",
    ),
    "HolisticTraceAnalysis": (
        "from hta.common.trace_parser import parse_trace_dataframe\n"
        "from hta.configs.parser_config import ParserConfig",
        "parse_trace_dataframe(path, ParserConfig.get_default_cfg())",
    ),
}
SOME_MB = 500
"""How much each reader reads of a size altogether: larger files are read less often."""
LARGE_MB = 500
"""From here on only ours and the yardstick: the others take five to seven times the file."""
OURS = "trainscope: msgspec, typed, in pieces"
# The high-water mark of ru_maxrss outlives exec, that of /proc can be set back.
MEASURED = """
import json, re, sys, time
path = sys.argv[1]
{imports}
def most():
    return int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) * 1024
open("/proc/self/clear_refs", "w").write("5")
before = most()
began = time.process_time()
{work}
took = time.process_time() - began
print("MEASURED", json.dumps([took, most() - before]))
"""


def measured(reader: str, path: Path, python: str) -> tuple[float, int] | None:
    """Seconds and bytes of one reading; None where the reader is not installed."""
    imports, work = READERS[reader]
    code = MEASURED.format(imports=imports, work=work)
    done = subprocess.run(
        [python, "-c", code, str(path)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        if "ModuleNotFoundError" in done.stderr:
            return None
        raise RuntimeError(f"{reader} failed:\n{done.stderr[-2000:]}")
    line = next(x for x in done.stdout.splitlines() if x.startswith("MEASURED"))
    seconds, size = json.loads(line.removeprefix("MEASURED"))
    return seconds, size


def compared(path: Path, readers: list[str], repeats: int, hta: str | None) -> dict[str, object]:
    """Every reader on one file."""
    found: dict[str, list[tuple[float, int]]] = {}
    for _ in range(repeats):
        for reader in readers:
            python = hta if reader == "HolisticTraceAnalysis" else sys.executable
            if python is None:
                continue
            one = measured(reader, path, python)
            if one is not None:
                found.setdefault(reader, []).append(one)
    size = path.stat().st_size
    ours = min(seconds for seconds, _ in found[OURS])
    return {
        "bytes": size,
        "readers": {
            reader: {
                "cpu_s": round(min(s for s, _ in all_runs), 3),
                "cpu_s_each": [round(s, 3) for s, _ in all_runs],
                "times_ours": round(min(s for s, _ in all_runs) / ours, 1),
                "memory_of_json": round(max(m for _, m in all_runs) / size, 2),
            }
            for reader, all_runs in found.items()
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="How fast and how small traces are read.")
    parser.add_argument("--mb", type=int, nargs="+", default=[26, 250])
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--hta", help="a Python that has HolisticTraceAnalysis")
    parser.add_argument("--only", nargs="+", choices=list(READERS), default=list(READERS))
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    given = parser.parse_args()
    files = {}
    with tempfile.TemporaryDirectory() as folder:
        for mb in given.mb:
            path = Path(folder) / f"{mb}.json"
            write_big_trace(path, mb * 1_000_000)
            readers = [r for r in given.only if mb < LARGE_MB or r in (YARDSTICK, OURS)]
            repeats = max(1, min(given.repeats, SOME_MB // mb))
            files[f"{mb} MB"] = compared(path, readers, repeats, given.hta)
            path.unlink()
            print(json.dumps(files[f"{mb} MB"], indent=2))
    write_result("read_traces", {"files": files}, given.out)


if __name__ == "__main__":
    main()
