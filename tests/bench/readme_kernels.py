"""The README's tables of the kernels, from ``kernels/bench/results``."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[2] / "kernels" / "bench" / "results"


def kernel_figures() -> str:
    """All tables."""
    parts = [
        memory_bound("gelu", "GELU, tanh form"),
        memory_bound("softmax", "Softmax over the last dim"),
        attention(),
        gluon_and_cudnn(),
        train_transformer(),
        attention_memory(),
        op_cost(),
        claims(),
    ]
    return "\n\n".join(parts) + "\n"


def memory_bound(name: str, title: str) -> str:
    """Times of every function, and ours as a share of a copy of the same bytes."""
    cases = read(name)
    shown = ("torch", "torch.compile", "manual", "naive CUDA", "one row a program")
    columns = [key for key in (*shown, "cuda", "triton") if in_any(cases, key)]
    lines = [
        f"{title}: µs, and in brackets the share of a copy of the same bytes, timed in the same "
        f"rounds ({measured_on(cases[0])}; `kernels/bench/figures.py`):",
        "",
        f"| case | {' | '.join(columns)} |",
        "|---" * (len(columns) + 1) + "|",
    ]
    for case in cases:
        rows = by_name(case)
        lines.append(f"| {case['name']} | {' | '.join(cell(rows.get(key)) for key in columns)} |")
    if any("refused" in line for line in lines):
        lines += ["", "Refused: its result was further off than allowed, so no time was told."]
    return "\n".join(lines)


def cell(row: dict[str, Any] | None) -> str:
    """Median and share of a copy; why not, where there is no time."""
    if row is None:
        return ""
    if row["time"] is None:
        return "refused"
    share = "" if row["of_copy"] is None else f" ({row['of_copy']['value']:.2f})"
    return f"{row['time']['median_us']:.1f}{share}"


def attention() -> str:
    """TFLOP/s of every function."""
    cases = read("attention")
    columns = [
        key for key in ("sdpa fa2", "sdpa cudnn", "flex", "triton", "gluon") if in_any(cases, key)
    ]
    lines = [
        f"Attention, batch x heads x length x dim, bfloat16: nominal TFLOP/s, and how many times "
        f"faster than FlashAttention-2 in SDPA ({measured_on(cases[0])}; "
        "`kernels/bench/figures.py`):",
        "",
        f"| case | {' | '.join(columns)} |",
        "|---" * (len(columns) + 1) + "|",
    ]
    for case in cases:
        rows = by_name(case)
        lines.append(
            f"| {case['name'].removeprefix('attention ')} | "
            f"{' | '.join(rate(rows.get(key)) for key in columns)} |"
        )
    return "\n".join(lines)


def rate(row: dict[str, Any] | None) -> str:
    """TFLOP/s and ratio."""
    if row is None:
        return ""
    if row["time"] is None:
        return "refused"
    return f"{row['roofline']['tflop_s']:.0f} ({row['ratio']['value']:.2f}x)"


def gluon_and_cudnn() -> str:
    """TFLOP/s in turn, and the ratio with its range over the rounds."""
    found = read("gluon_vs_cudnn")
    lines = [
        f"The Hopper kernels beside cuDNN {found['cudnn'] // 10000}.{found['cudnn'] // 100 % 100} "
        f"through SDPA, {found['rounds']} rounds in changing order on a warm card, bfloat16: "
        f"TFLOP/s (FlexAttention's at one length), and cuDNN's time by ours, median, least and "
        f"most ({found['device']}, torch "
        f"{found['torch']}, Triton {found['triton']}, {found['date']}; "
        f"`kernels/bench/gluon_vs_cudnn.py`{'; ' + found['note'] if 'note' in found else ''}):",
        "",
        "| shape | | gluon | cuDNN | FlashAttention-2 | FlexAttention | triton | cuDNN / gluon |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for cell in found["cells"]:
        rates = [
            f"{cell['tflops'][name]:.0f}" if name in cell["tflops"] else ""
            for name in ("gluon", "cudnn", "fa2", "flex", "triton")
        ]
        what = f"{cell['pass']}, {'causal' if cell['causal'] else 'full'}"
        lines.append(
            f"| {cell['shape']} | {what} | {' | '.join(rates)} | {cell['ratio']:.2f} "
            f"({cell['ratio_min']:.2f} to {cell['ratio_max']:.2f}) |"
        )
    return "\n".join(lines)


def train_transformer() -> str:
    """Tokens a second of the example's GPT, and how far the loss curves are apart."""
    found = read("train_transformer")
    model, apart = found["model"], found["largest_relative_difference_to_sdpa"]
    speeds = {name: statistics.median(each) for name, each in found["tokens_per_second"].items()}
    used = found["attention_kernels"]["sdpa"]
    cudnn = " (cuDNN's kernels)" if any("cudnn" in name for name in used) else ""
    return (
        f"The example's GPT with {model['layers']} layers of width {model['width']}, "
        f"{model['heads']} heads, context {model['context']}, batch {model['batch']}, trained in "
        f"bfloat16 by autocast, variants in turn ({found['device']}, torch {found['torch']}, "
        f"{found['date']}; `kernels/bench/train_transformer.py`): {speeds['sdpa']:,.0f} tokens/s "
        f"with SDPA as it comes{cudnn}, {speeds['sdpa fa2']:,.0f} with its FlashAttention-2, "
        f"{speeds['kernels']:,.0f} with `swap`: "
        f"{found['ratio_to_sdpa']['kernels']:.2f}x SDPA. Over {found['steps']} steps from one seed "
        f"the loss fell from {found['losses']['sdpa'][0]:.2f} to {found['losses']['sdpa'][-1]:.2f} "
        f"and was never further from SDPA's than {apart['kernels']:.1e} of it; FlashAttention-2's "
        f"was {apart['sdpa fa2']:.1e} off."
    )


def attention_memory() -> str:
    """Peak memory of forward and backward."""
    found = read("attention_memory")
    peaks = found["peak_bytes"]
    shape = "x".join(map(str, found["shape"]))
    return (
        f"Memory of an attention forward and backward at {shape}, above the inputs: "
        f"{peaks['triton'] / 2**20:,.0f} MiB, FlashAttention-2 in SDPA "
        f"{peaks['sdpa fa2'] / 2**20:,.0f} MiB; the score matrix alone would take "
        f"{found['shape'][0] * found['shape'][1] * found['shape'][2] ** 2 * 2 / 2**30:,.0f} GiB."
    )


def op_cost() -> str:
    """CPU time of one call."""
    found = read("op_cost")
    shown = ("F.gelu", "gelu triton", "gelu cuda", "torch.softmax", "softmax triton", "SDPA")
    shown += ("flash_attention auto", "flash_attention gluon")
    lines = [
        f"CPU time of one call on a small input, µs ({found['device']}, torch {found['torch']}; "
        "`kernels/bench/op_cost.py`):",
        "",
        "| call | without grad | with grad |",
        "|---|---|---|",
    ]
    lines += [
        f"| {name} | {row['no_grad_us']:.1f} | {row['grad_us']:.1f} |"
        for name, row in found["calls"].items()
        if name in shown
    ]
    return "\n".join(lines)


def claims() -> str:
    """What ``examples/chapter10.py`` printed: claims of a text, and this GPU."""
    table = (RESULTS / "claims_h200.txt").read_text()
    return (
        "What texts claim of such kernels on an A100 or H100, and what is so here; x: how many "
        "times faster than the first of the group (`examples/chapter10.py`):\n\n"
        f"```\n{table}```"
    )


def read(name: str) -> Any:
    """A result file."""
    return json.loads((RESULTS / f"{name}.json").read_text())


def by_name(case: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The rows of a case; ``compile`` and ``torch.compile`` are one."""
    names = {"compile": "torch.compile"}
    return {names.get(str(row["name"]), str(row["name"])): row for row in case["rows"]}


def in_any(cases: list[dict[str, Any]], key: str) -> bool:
    """Whether some case has such a row."""
    return any(key in by_name(case) for case in cases)


def measured_on(case: dict[str, Any]) -> str:
    """Device, versions and date in words."""
    where = case["environment"]
    return (
        f"{where['device']}, torch {where['torch']}, Triton {where['triton']}, {where['date'][:10]}"
    )
