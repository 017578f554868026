"""The document of runs: which are selected, and that all sums agree with them."""

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import reduce

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.asking import FakeOperator, asking
from harness.chronicle import conforms
from kit.facts import changed
from symphony.api.interface import RUN_OUTCOMES, RUN_SUMS, RunQuery
from symphony.api.runs import runs_document
from symphony.domain import RunFacts, Tokens, WorkSize
from symphony.journal.model import RunRecord
from symphony.scheduler import OutcomeKind

NOW = datetime(2026, 3, 8, 12, 0, tzinfo=UTC)
NOW_MS = int(NOW.timestamp() * 1000)
HOUR_MS = 3_600_000
RECORDS = st.lists(
    st.builds(
        RunRecord,
        run_id=st.text("abc", min_size=1, max_size=3),
        issue_id=st.just("id"),
        issue_identifier=st.sampled_from(["SYM-1", "SYM-2", "SYM-3"]),
        started_wall_ms=st.integers(NOW_MS - 100 * HOUR_MS, NOW_MS),
        ended_wall_ms=st.none() | st.integers(NOW_MS, NOW_MS + HOUR_MS),
        outcome=st.sampled_from([None, "succeeded", "failed"]),
        agent_name=st.sampled_from([None, "codex", "claude"]),
        issue_state=st.sampled_from([None, "Todo", "Review"]),
        facts=st.builds(
            RunFacts,
            turn_count=st.integers(0, 9),
            work=st.builds(WorkSize, commits=st.integers(0, 3)),
            tokens=st.builds(
                Tokens,
                input_tokens=st.integers(0, 1_000),
                cache_read_tokens=st.integers(0, 1_000),
                total_tokens=st.integers(0, 2_000),
            ),
            cost_usd=st.none() | st.integers(0, 400).map(lambda quarters: quarters / 4),
            unpriced_tokens=st.integers(0, 2_000),
        ),
    ),
    max_size=12,
)
QUERIES = st.builds(
    RunQuery,
    since_s=st.none() | st.integers(0, 100).map(lambda hours: hours * 3_600.0),
    by=st.sampled_from([None, *RUN_SUMS]),
    issues=st.frozensets(st.sampled_from(["SYM-1", "SYM-2"])),
    agents=st.frozensets(st.sampled_from(["codex"])),
    outcomes=st.frozensets(st.sampled_from(["running", "failed"])),
    limit=st.integers(0, 15),
)


@given(RECORDS, QUERIES)
def test_sums_by_anything_agree_with_the_runs(records: list[RunRecord], query: RunQuery) -> None:
    found = runs_document(records, query, now=NOW)
    whole = runs_document(records, replace(query, limit=100), now=NOW)
    assert found.runs == whole.runs[: query.limit]
    assert (found.left_out, whole.left_out) == (len(whole.runs) - len(found.runs), 0)
    assert (found.groups, found.total) == (whole.groups, whole.total), "a limit limits no sum"
    total = found.total
    assert total.runs == len(whole.runs)
    assert total.turns == sum(run.turn_count for run in whole.runs)
    assert total.commits == sum(run.work.commits for run in whole.runs)
    assert total.unpriced_tokens == sum(run.unpriced_tokens for run in whole.runs)
    for name, count in total.tokens.counts().items():
        assert count == sum(run.tokens.counts()[name] for run in whole.runs)
    if query.by is not None:
        for name in ("turns", "commits", "unpriced_tokens"):
            assert getattr(total, name) == sum(getattr(one, name) for one in found.groups)
        assert total.tokens == reduce(Tokens.plus, (one.tokens for one in found.groups), Tokens())
    known = [run.cost_usd for run in whole.runs if run.cost_usd is not None]
    assert total.cost_usd == (sum(known) if known else None), "unpriced is not 0"
    keys = {
        "day": lambda run: run.started_at[:10],
        "agent": lambda run: run.agent,
        "issue": lambda run: run.issue_identifier,
        "state": lambda run: run.issue_state,
    }
    if query.by is not None:
        counted = Counter(keys[query.by](run) for run in whole.runs)
        assert {one.key: one.runs for one in found.groups} == counted


@given(RECORDS, QUERIES)
def test_only_selected_runs_are_listed(records: list[RunRecord], query: RunQuery) -> None:
    for run in runs_document(records, query, now=NOW).runs:
        assert not query.issues or run.issue_identifier in query.issues
        assert not query.agents or run.agent in query.agents
        assert not query.outcomes or (run.outcome or "running") in query.outcomes
        if query.since_s is not None:
            started = datetime.fromisoformat(run.started_at)
            assert NOW - started < timedelta(seconds=query.since_s + 1)


def test_the_words_of_a_query_are_those_of_the_scheduler() -> None:
    assert {*RUN_OUTCOMES} == {"running", "interrupted", *(kind.value for kind in OutcomeKind)}


RUN = changed(RunRecord(
    run_id="r-1", issue_id="1", issue_identifier="SYM-1", started_wall_ms=1_772_366_400_000,
    ended_wall_ms=1_772_366_460_500, outcome="failed", agent_name="codex"), model="gpt-5.5",
    total_tokens=70, cost_usd=0.1 + 0.2, unpriced_tokens=3,
)  # fmt: skip


@pytest.mark.asyncio
async def test_the_route_answers_with_the_selected_runs_and_refuses_senseless_values() -> None:
    operator = FakeOperator(records=(RUN,))
    async with asking(operator) as client:
        answer = await client.get("/api/v1/runs?since=12h&by=day&issue=SYM-1&issue=&agent=codex&limit=5")
        document = answer.json()
        conforms(document, "Runs")
        for query in ("since=soon", "by=moon", "outcome=odd", "limit=1001", "limit=-1"):
            refused = await client.get(f"/api/v1/runs?{query}")
            assert (refused.status_code, refused.json()["error"]["code"]) == (400, "bad_request"), query
    assert operator.queries == [
        RunQuery(
            since_s=43_200.0, by="day", issues=frozenset({"SYM-1"}), agents=frozenset({"codex"}), limit=5
        )
    ]
    (row,) = document["runs"]
    assert (row["model"], row["seconds"]) == ("gpt-5.5", 60.5)
    assert (row["cost_usd"], row["unpriced_tokens"]) == (0.3, 3)
    assert [one["key"] for one in document["groups"]] == ["2026-03-01"]
