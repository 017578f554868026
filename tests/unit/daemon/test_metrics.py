"""What the metrics count, in virtual time; test_metrics.py of the acceptance tests drives a real daemon."""

from typing import TYPE_CHECKING, Any

import pytest
from typing_extensions import override

from harness.asking import BEARER, LOOPBACK, FakeOperator, asking
from harness.binding import StoryCore
from harness.chronicle import SKILLS
from harness.journalling import pull_request
from harness.scheduling import Story, make_failure, make_issue
from harness.scraping import Scrape, parsed
from symphony.daemon.metrics import Metrics
from symphony.domain import Blame, Category, CheckRun, Issue, Verification
from symphony.scheduler import (
    CLUSTER,
    ClaimKind,
    Command,
    Event,
    Outcome,
    OutcomeKind,
    Recovered,
    RunEnded,
    RunPlaced,
    StoredClaim,
    WakeAsked,
)

if TYPE_CHECKING:
    from symphony.journal.model import PullRequestRecord

pytestmark = pytest.mark.asyncio


class Counted(Story):
    """A story whose steps are counted."""

    def __init__(self, *issues: Issue, **settings: Any) -> None:
        super().__init__(*issues, **settings)
        self.pull_requests: tuple[PullRequestRecord, ...] = ()
        self.metrics = Metrics(
            StoryCore(
                state=lambda: self.state,
                now_ms=lambda: self.now,
                wall_ms=lambda: 1_000_000_000_000 + self.now,
            ),
            journal_health=lambda: None,
            pull_requests=lambda: self.pull_requests,
        )

    @override
    def _step(self, fact: Event) -> tuple[Command, ...]:
        before = self.state
        commands = super()._step(fact)
        self.metrics(before, fact, self.state, commands)
        return commands

    async def scrape(self) -> Scrape:
        return parsed((await self.metrics.exposition()).content.decode())


async def test_the_wait_of_an_issue_counts_from_the_poll_that_found_it() -> None:
    story = Counted(make_issue("1", priority=1), make_issue("2"), max_concurrent_agents=1).begin()
    story.advance(500).streams("1")
    story.advance(3_500).put("1", state="Done")
    story.turn_ends("1").ends("1").streams("2")
    found = await story.scrape()
    assert found.value("symphony_queue_wait_seconds_count", agent="codex") == 2
    assert found.value("symphony_queue_wait_seconds_sum", agent="codex") == 4.0
    assert found.value("symphony_dispatch_seconds_sum", agent="codex") == 4.5
    assert found.value("symphony_run_duration_seconds_sum", outcome="succeeded") == 4.0


async def test_rehearsals_count_by_their_result() -> None:
    story = Counted().begin()
    story.metrics.rehearsed("ok")
    story.metrics.rehearsed("failed")
    story.metrics.rehearsed("ok")
    found = await story.scrape()
    assert found.value("symphony_rehearsals_total", result="ok") == 2
    assert found.value("symphony_rehearsals_total", result="failed") == 1


async def test_checks_count_by_name_and_result_and_so_many_names_at_most() -> None:
    story = Counted(make_issue("1")).begin()
    checks = (
        CheckRun(name="lint", exit_code=0, duration_ms=2_000),
        CheckRun(name="tests", exit_code=1, duration_ms=40_000),
        CheckRun(name="old", exit_code=1, duration_ms=1_000, fails_on_base=True),
        CheckRun(name="slow", problem="did not end within 1 ms", duration_ms=1),
        CheckRun(name="docs", skipped=True),
        *(CheckRun(name=f"one of many {number}", exit_code=0) for number in range(200)),
    )
    outcome = Outcome(kind=OutcomeKind.SUCCEEDED, verification=Verification(head="abc", checks=checks))
    story.tell(RunEnded(run_id=story.run_id("1"), outcome=outcome))
    found = await story.scrape()
    results = {name: found.value("symphony_checks_total", check=name) for name in ("lint", "tests", "docs")}
    assert results == {"lint": 1, "tests": 1, "docs": 1}
    expected = {"passed", "failed", "base_failed", "not_done", "skipped"}
    assert found.labels("symphony_checks_total", "result") == expected
    assert found.value("symphony_check_duration_seconds_sum", check="tests") == 40
    assert found.value("symphony_check_duration_seconds_count", check="docs") == 0
    assert found.value("symphony_checks_total", check="other", result="passed") == 105


async def test_a_retry_waits_in_no_queue_and_has_a_cause() -> None:
    story = Counted(make_issue("1"), max_concurrent_agents=1, max_attempts_without_progress=9).begin()
    story.streams("1").fails("1")
    story.board["2"] = make_issue("2")
    story.advance(500).tell(WakeAsked(reason="changed"))
    story.advance(10_000)
    assert story.started() == ["SYM-1", "SYM-2"]
    used = {"input_tokens": 70, "output_tokens": 30, "total_tokens": 100, "cache_read_tokens": 20}
    story.streams("2", turn_count=2, **used, cost_usd=0.25, unpriced_tokens=40)
    story.advance(400_000)
    story.ends("2", OutcomeKind.CANCELED)
    found = await story.scrape()
    assert found.labels("symphony_retries_total", "cause") == {"turn_failed", "no_slot", "stalled"}
    assert found.value("symphony_runs_ended_total", outcome="canceled", category="stalled") == 1
    assert found.value("symphony_queue_wait_seconds_count") == 2
    assert found.value("symphony_turns_total", agent="codex") == 2
    assert found.value("symphony_tokens_total", kind="input") == 70
    assert found.value("symphony_tokens_total", kind="output") == 30
    assert found.value("symphony_tokens_total", kind="cache_read") == 20
    assert found.value("symphony_cost_usd_total") == 0.25
    assert found.value("symphony_unpriced_tokens_total") == 40


async def test_reads_of_the_tracker_have_a_result_and_a_duration() -> None:
    story = Counted(make_issue("1"))
    story.slow = True
    story.begin()
    story.advance(2_000).fail_poll()
    story.advance(60_000)
    limited = make_failure(
        category=Category.TRACKER_RATE_LIMITED, blame=Blame.TRACKER, retry_after_ms=900_000
    )
    story.fail_poll(limited)
    found = await story.scrape()
    assert found.value("symphony_tracker_requests_total", operation="poll", result="failed") == 1
    assert found.value("symphony_tracker_requests_total", operation="poll", result="rate_limited") == 1
    assert found.value("symphony_tracker_request_seconds_sum", operation="poll") >= 2.0
    assert found.value("symphony_polls_total", result="failed") == 2
    assert found.value("symphony_tracker_circuit_open") == 1
    assert "symphony_last_poll_timestamp_seconds" not in found
    assert found.value("symphony_polls_total", result="ok") == 0


async def test_what_a_predecessor_left_is_shown_and_not_counted_again() -> None:
    story = Counted()
    issue = make_issue("1")
    claim = StoredClaim(issue=issue, kind=ClaimKind.BLOCKED, failure=make_failure(), run_id="x-1")
    story.board["1"] = issue
    story.tell(Recovered(claims=(claim,), day="2026-03-01", day_tokens=500))
    found = await story.scrape()
    assert found.value("symphony_issues", status="blocked") == 1
    assert found.value("symphony_day_tokens") == 500
    assert "symphony_blocks_total" not in found


async def test_the_number_of_series_does_not_grow_with_the_board() -> None:
    small, large = [
        await Counted(*(make_issue(str(n)) for n in range(count)), max_concurrent_agents=5).begin().scrape()
        for count in (10, 2_000)
    ]
    assert large.value("symphony_issues", status="waiting") == 1_995
    assert {name: len(series) for name, series in large.items()} == {
        name: len(series) for name, series in small.items()
    }


async def test_skills_are_counted_once_per_run_and_shown_as_the_latest_run_has_them() -> None:
    story = Counted()
    for run_id in ("a", "a", "b"):
        story.metrics.skills_loaded("1", run_id, SKILLS)
    found = await story.scrape()
    assert found.value("symphony_skills_dropped_total", reason="count") == 2
    assert found.value("symphony_skill_problems") == 1
    assert found.value("symphony_skill_problems", severity="error") == 1


async def test_pull_requests_are_shown_by_what_they_wait_for_until_they_are_merged() -> None:
    story = Counted()
    codes = ("checks_pending", "checks_pending", "closed", "merged")
    story.pull_requests = tuple(pull_request(number, code=code) for number, code in enumerate(codes))
    found = await story.scrape()
    assert found.value("symphony_pull_requests", code="checks_pending") == 2
    assert found.value("symphony_pull_requests") == 3


async def test_runs_on_a_cluster_count_for_their_nodes() -> None:
    story = Counted(make_issue("1"), make_issue("2"), hosts=(CLUSTER,)).begin()
    story.tell(RunPlaced(run_id=story.state.running["1"].run_id, host="node-1"))
    found = await story.scrape()
    assert {host: found.value("symphony_host_runs", host=host) for host in (CLUSTER, "node-1")} == {
        CLUSTER: 1,
        "node-1": 1,
    }
    assert found.labels("symphony_host_slots", "host") == {CLUSTER}


async def test_a_scrape_needs_what_any_question_of_the_api_needs() -> None:
    async with asking(FakeOperator(), LOOPBACK) as client:
        refused = await client.get("/metrics")
        shown = await client.get("/metrics", headers=BEARER)
        posted = await client.post("/metrics", headers=BEARER)
    assert (refused.status_code, shown.status_code, posted.status_code) == (401, 200, 405)
    assert shown.headers["content-type"] == "text/plain; version=0.0.4"
