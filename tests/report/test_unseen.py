"""What every dry run cannot see is told in few words, what is of this run in its own."""

from __future__ import annotations

import pytest

from trainscope.report.text_unseen import in_short
from trainscope.sync.dry.run import DryRun


def test_the_sentences_of_a_dry_run_are_joined_to_four_lines_at_most() -> None:
    sentences = DryRun(lambda *_, **__: None).cannot_see
    short = in_short(sentences)
    assert len(sentences) >= 7
    assert len(short) == 4
    assert not [line for line in short if line.startswith("dry run: ")]


@pytest.mark.parametrize(
    "sentence",
    [
        "dry run: whether the non_blocking copies of small pageable tensors wait (3 seen): why",
        "dry run: everything after its own fault: LookupError: ours",
        "waits inside C++ extensions",
    ],
)
def test_what_is_of_this_run_stays_as_it_is_and_stands_last(sentence: str) -> None:
    general = "dry run: how long a wait would block, and more"
    assert in_short([sentence, general]) == [
        "how long a line would wait; code that runs only where there is a GPU",
        sentence,
    ]
    assert in_short([]) == []
