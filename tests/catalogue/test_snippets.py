"""Lines of code beside a finding: Python, fitting the use of the value; none where none fits."""

from __future__ import annotations

import ast

import pytest

from trainscope.catalogue.idle_findings import IDLE_FINDINGS
from trainscope.catalogue.kinds import KINDS
from trainscope.catalogue.snippets import snippet

SOURCES = (
    "",
    "print(loss.item())",
    "total += loss.item()",
    "losses.append(loss.item())",
    "if torch.isnan(loss):",
    "assert torch.isfinite(loss)",
    "if loss > 3:",
    "env.step(action.item())",
)


@pytest.mark.parametrize("kind", KINDS)
def test_every_snippet_is_python(kind: str) -> None:
    for source in SOURCES:
        found = snippet(kind, source)
        if found is not None:
            ast.parse(found)
            assert found == found.strip()


def test_snippets_of_findings_are_python() -> None:
    texts = [found.snippet for found in IDLE_FINDINGS.values() if found.snippet is not None]
    assert len(texts) >= 5
    for text in texts:
        ast.parse(text)


@pytest.mark.parametrize(
    ("source", "begins"),
    [
        ("print(loss.item())", "scope.log("),
        ("total += loss.item()", "total = torch.zeros("),
        ("losses.append(loss.item())", "losses = []"),
        ("assert mask.all().item()", "torch._assert_async("),
    ],
)
def test_a_read_is_answered_by_its_use(source: str, begins: str) -> None:
    found = snippet("item", source)
    assert found is not None
    assert found.startswith(begins)


def test_what_is_asked_for_or_needed_has_none() -> None:
    assert snippet("synchronize", "torch.cuda.synchronize()") is None
    assert snippet("item", "env.step(action.item())") is None
    assert snippet("item", "") is None
    with pytest.raises(KeyError):
        snippet("no such kind", "")


@pytest.mark.parametrize(
    ("kind", "source"),
    [
        ("h2d-pageable", "x = data[rows]"),
        ("h2d-pageable", "x = torch.zeros(4).to(device)"),
        ("h2d-scalar", "x[0] = 1.0"),
        ("nonzero", "y[m] = a * 2"),
        ("bool", "total = max(scores.sum(), 1)"),
        ("cpu", "print(loss.cpu())"),
    ],
)
def test_code_for_another_case_does_not_stand_beside_its_advice(kind: str, source: str) -> None:
    assert snippet(kind, source) is None


def test_where_a_library_copies_nothing_is_written_instead_of_the_line_that_calls_it() -> None:
    for kind in ("h2d-pinned", "h2d-pageable", "h2d-nonblocking-pageable", "nonzero"):
        assert snippet(kind, "trainer.train()", via="accelerate.utils.operations:160 send") is None
        assert snippet(kind, "trainer.train()", via="torch.nn.functional:9 f") is not None
    own = "batch = batch.to(device)"
    assert snippet("h2d-pinned", own, via="lightning.fabric:3 to") == snippet("h2d-pinned", own)
