"""What became of the logged values, in sentences: for the terminal and the page."""

from __future__ import annotations

from trainscope.report.model import MetricsReport, SinkReport
from trainscope.report.wording import count_of

__all__ = ["metrics_words"]

_NAMED = 5
"""Values that are not finite and shown."""


def metrics_words(metrics: MetricsReport | None) -> list[str]:
    """How many arrived, which were not finite, and what each sink did; empty where none was."""
    if metrics is None or not metrics.logged:
        return []
    arrived = f"{count_of(metrics.logged, 'log call')}, {metrics.written:,} arrived"
    said = [arrived + (f", {metrics.dropped:,} dropped" if metrics.dropped else "")]
    if metrics.nonfinite_count:
        shown = metrics.nonfinite[:_NAMED]
        more = metrics.nonfinite_count - len(shown)
        said.append(f"not finite: {', '.join(shown)}" + (f" and {more:,} more" if more else ""))
    return [*said, *(_sink(sink) for sink in metrics.sinks)]


def _sink(sink: SinkReport) -> str:
    words = [f"{sink.name}: {count_of(sink.written, 'record')}"]
    if sink.dropped:
        words.append(f"{sink.dropped:,} dropped")
    if sink.disabled:
        words.append("switched off")
    words.extend(text for text in (sink.error, sink.note) if text)
    return ", ".join(words)
