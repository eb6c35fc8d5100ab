"""Results as text: one row a function, then what must be said beside the times."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from io import StringIO

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from trainscope.bench.model import (
    Comparison,
    Environment,
    Measurement,
    Ratio,
    Roofline,
    Scaling,
)
from trainscope.bench.remarks import FLAGGED, REFUSED, how, remarks
from trainscope.bench.time_text import time_text

__all__ = ["show", "text_of"]

_NO_TERMINAL = (100, 24)


def text_of(result: Comparison | Measurement | Scaling, *, width: int | None = None) -> str:
    """The result as plain text; as wide as the terminal, 100 columns where there is none."""
    file = StringIO()
    if width is None:
        width = shutil.get_terminal_size(_NO_TERMINAL).columns
    console = Console(
        file=file,
        width=width,
        color_system=None,
        force_terminal=False,
        force_jupyter=False,  # in a notebook it would display what it prints, whatever the file
    )
    show(result, console)
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines()) + "\n"


def show(result: Comparison | Measurement | Scaling, console: Console) -> None:
    """Print the result to a console, in its width and colours."""
    for part in _parts(result):
        console.print(part, highlight=False, markup=False)


def _parts(result: Comparison | Measurement | Scaling) -> Iterator[RenderableType]:
    if isinstance(result, Scaling):
        yield _points(result)
        yield Text(result.verdict)
    else:
        rows = (result,) if isinstance(result, Measurement) else result.rows
        copy = None if isinstance(result, Measurement) else result.copy_of_bytes
        rows_and_copy = rows if copy is None else (*rows, copy)
        yield _times(rows_and_copy, _title(result))
        yield from _against(rows_and_copy)
        yield from remarks(rows_and_copy)
        yield from how(rows)
        yield Text(_legend(result), style="dim")
    yield Text(_where(result.environment), style="dim")


def _title(result: Comparison | Measurement) -> str | None:
    return result.name or None if isinstance(result, Comparison) else None


def _legend(result: Comparison | Measurement) -> str:
    words = "CPU: until a call returned · naive: first call, no warm-up, no sync"
    held = f"outputs held against {result.reference}'s · " if isinstance(result, Comparison) else ""
    return held + words


def _times(rows: Sequence[Measurement], title: str | None) -> Table:
    memory = any(row.memory_peak_bytes is not None for row in rows)
    headings = ["median", "mean (95 %)", "p10 to p90", "CPU", "naive"]
    table = _table([*headings, *(["memory"] if memory else [])], title)
    for row in rows:
        if row.time is None:
            table.add_row(Text(row.name), Text("refused", style=REFUSED))
            continue
        low, high = row.time.mean_ci95_us
        cells = [
            time_text(row.time.median_us),
            f"{time_text(row.time.mean_us)} ±{(high - low) / 2 / row.time.mean_us:.1%}",
            f"{time_text(row.time.p10_us)} to {time_text(row.time.p90_us)}",
            _time(row.cpu_us),
            _time(row.first_call_us),
            _memory(row.memory_peak_bytes),
        ]
        table.add_row(_name(row), *(Text(cell) for cell in cells[: len(table.columns) - 1]))
    return table


def _against(rows: Sequence[Measurement]) -> Iterator[Table]:
    """What the times are worth: against the ceilings, a copy and the baseline; if anything."""
    timed = [row for row in rows if row.time is not None]
    baseline = next((f"than {row.ratio.to} " for row in timed if row.ratio is not None), "")
    columns = {
        "rate": [_rate(row.roofline) for row in timed],
        "of roofline": [_share(row.roofline) for row in timed],
        "of a copy": [_percent(row.of_copy) for row in timed],
        f"times faster {baseline}(95 %)": [_times_faster(row.ratio) for row in timed],
    }
    known = {heading: cells for heading, cells in columns.items() if any(cells)}
    if not known:
        return
    table = _table(list(known), None)
    for index, row in enumerate(timed):
        table.add_row(_name(row), *(Text(cells[index]) for cells in known.values()))
    yield table


def _table(headings: Sequence[str], title: str | None) -> Table:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("", no_wrap=True)
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def _name(row: Measurement) -> Text:
    return Text(row.name, style=FLAGGED if row.flags else "")


def _points(result: Scaling) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("size", "work", "time", "median"):
        table.add_column(heading, justify="right")
    for point in result.points:
        table.add_row(
            f"{point.size:g}",
            f"{point.work:.3g}x",
            f"{point.time:.3g}x",
            time_text(point.median_us),
        )
    return table


def _time(us: float | None) -> str:
    return "" if us is None else time_text(us)


def _rate(roofline: Roofline | None) -> str:
    if roofline is None:
        return ""
    if roofline.bound == "compute" and roofline.tflop_s is not None:
        return f"{_digits(roofline.tflop_s)} TFLOP/s"
    return "" if roofline.gb_s is None else f"{_digits(roofline.gb_s)} GB/s"


def _digits(rate: float) -> str:
    return f"{rate:.0f}" if rate >= 100 else f"{rate:.3g}"


def _share(roofline: Roofline | None) -> str:
    return "" if roofline is None else f"{roofline.share:.1%}"


def _percent(ratio: Ratio | None) -> str:
    return "" if ratio is None else f"{ratio.value:.1%}"


def _times_faster(ratio: Ratio | None) -> str:
    return "" if ratio is None else f"{ratio.value:.2f} ({ratio.low:.2f} to {ratio.high:.2f})"


def _memory(size: int | None) -> str:
    return "" if size is None else f"{size / 2**20:.4g} MiB"


def _where(here: Environment) -> str:
    parts = [
        here.device,
        f"torch {here.torch}",
        None if here.cuda is None else f"CUDA {here.cuda}",
        None if here.driver is None else f"driver {here.driver}",
        None if here.triton is None else f"triton {here.triton}",
        f"trainscope {here.trainscope}",
        here.date,
    ]
    return " · ".join(part for part in parts if part)
