from __future__ import annotations

from made_runs import ITEM, MS, site, step_rows, trace

from trainscope.analysis.ranks import RankLine, compare_ranks


def test_the_slowest_rank_is_named_and_lines_are_merged() -> None:
    slow = trace(
        step_rows(20, wall_us=(30_600,)),
        rank=2,
        syncs=(ITEM, site(line=7, timed=0, blocked_ns_total=0, blocked_ns_median=None)),
    )
    made = trace(syncs=(ITEM,), ranks=(slow, trace(rank=3)), missing_ranks=(1,))
    ranks = compare_ranks(made)
    assert (ranks.slowest, ranks.slowest_over_median, ranks.missing) == (2, 1.5, (1,))
    assert [(r.rank, r.steps, r.step_ns_median) for r in ranks.per_rank] == [
        (0, 480, 20.4 * MS),
        (2, 20, 30.6 * MS),
        (3, 480, 20.4 * MS),
    ]
    assert ranks.lines == (
        RankLine(ITEM.file, 42, "item", (0, 2), 960, 10_272 * MS),
        RankLine(ITEM.file, 7, "item", (2,), 480, None),
    )


def test_of_equally_slow_ranks_the_lowest_is_named_and_one_alone_is_not_slow() -> None:
    assert compare_ranks(trace(ranks=(trace(rank=1),))).slowest == 0
    alone = compare_ranks(trace(ranks=(trace([], rank=1),)))
    assert (alone.slowest, alone.slowest_over_median) == (None, None)
    assert alone.per_rank[1].step_ns_median is None
