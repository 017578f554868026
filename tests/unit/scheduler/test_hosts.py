"""Which host a run is given to, hosts that rest, and where the workspace of an issue is."""

from dataclasses import replace
from typing import Any

import pytest

from harness.scheduling import Story, make_failure, make_issue
from symphony.domain import Blame, Category
from symphony.scheduler import (
    CLUSTER,
    FAILURES_BEFORE_REST,
    MAX_REST_MS,
    CleanWorkspace,
    Eligible,
    Ineligible,
    Notify,
    OperatorAction,
    OperatorAsked,
    OutcomeKind,
    ReasonCode,
    Recovered,
    RemoteWorkspace,
    RunPlaced,
    SettingsChanged,
    StartRun,
    Timer,
    TimerKind,
    WakeAsked,
    WorkspaceRef,
    choose_host,
    eligibility,
    log_text,
    rest_ms,
    run_once_finished,
    slots_of,
)

LOST = make_failure("the link was cut", category=Category.WORKER_LOST, blame=Blame.HOST, hint="look at it")
QUIET: dict[str, Any] = {"poll_interval_ms": 10_000_000, "stall_timeout_ms": 0}


def _story(count: int, *hosts: str, **settings: Any) -> Story:
    issues = [make_issue(str(number)) for number in range(1, count + 1)]
    return Story(*issues, hosts=hosts, **QUIET | settings)


def _placed(story: Story) -> list[tuple[str, str | None]]:
    return [(command.issue.id, command.host) for command in story.said(StartRun)]


def _lose(story: Story, issue_id: str = "1") -> None:
    story.fails(issue_id, LOST, progress=None)


def _rest(story: Story) -> None:
    """The only host fails as often as it may."""
    for _ in range(FAILURES_BEFORE_REST):
        if not story.state.running:
            story.advance(min(retry.due_ms for retry in story.state.retrying.values()) - story.now)
        _lose(story, next(iter(story.state.running)))


def test_a_cluster_chooses_the_machine_of_a_run() -> None:
    story = _story(2, CLUSTER).begin()
    assert _placed(story) == [("1", CLUSTER), ("2", CLUSTER)]
    assert not story.state.remote_workspaces
    run = story.state.running["1"]
    assert run.machine == CLUSTER
    story.tell(RunPlaced(run_id=run.run_id, host="node-1"))
    story.streams()
    run = story.state.running["1"]
    assert (run.host, run.machine) == (CLUSTER, "node-1")
    assert story.state.remote_workspaces["1"].host == "node-1"
    _lose(story)
    assert story.notices("run_ended")[0].fields["host"] == "node-1"
    assert story.state.troubled_hosts.keys() == {CLUSTER}
    story.advance(story.state.retrying["1"].due_ms - story.now)
    assert story.said(StartRun)[-1].last_host == "node-1"


def test_without_hosts_runs_are_carried_out_here() -> None:
    story = _story(2).begin()
    assert _placed(story) == [("1", None), ("2", None)]
    assert not story.state.remote_workspaces


@pytest.mark.conformance("X-1")
def test_runs_go_to_the_host_with_the_fewest_and_then_in_order() -> None:
    story = _story(5, "a", "b").begin()
    assert [host for _, host in _placed(story)] == ["a", "b", "a", "b", "a"]
    story.ends("1", OutcomeKind.CANCELED)
    assert choose_host(story.state, "other") == "a"
    assert story.notices("run_started")[1].fields["host"] == "b"
    assert ", on b, by codex" in log_text(story.notices("run_started")[1])


@pytest.mark.conformance("X-1")
def test_a_full_host_gets_no_run_and_everybody_is_told() -> None:
    story = _story(5, "a", "b", max_agents_per_host=2).begin()
    assert [host for _, host in _placed(story)] == ["a", "b", "a", "b"]
    verdict = eligibility(story.board["5"], story.state)
    assert verdict == Ineligible(ReasonCode.NO_HOST_SLOT, "no host has a free slot: 2 of 2 on a, 2 of 2 on b")
    story.put("1", state="Done")
    story.forget().ends("1", OutcomeKind.CANCELED)
    assert _placed(story) == [("5", "a")]


def test_many_hosts_are_counted() -> None:
    story = _story(
        11, *(f"h{number}" for number in range(10)), max_agents_per_host=1, max_concurrent_agents=20
    ).begin()
    verdict = eligibility(make_issue("99"), story.state)
    assert isinstance(verdict, Ineligible)
    assert verdict.message.endswith("1 of 1 on h7, and 2 more")


@pytest.mark.conformance("X-1")
def test_a_retry_that_no_host_takes_waits_and_says_so() -> None:
    story = _story(2, "a", max_agents_per_host=1).begin()
    story.fails("1")
    assert [host for _, host in _placed(story)] == ["a", "a"], "the other issue took the slot"
    story.advance(10_000)
    retry = story.state.retrying["1"]
    assert (retry.attempt, retry.error) == (2, "no host has a free slot: 1 of 1 on a")


def test_slots_that_are_reserved_count_as_used() -> None:
    story = _story(3, "a", "b", max_agents_per_host=1)
    story.slow = True
    story.begin()
    story.answer_poll()
    assert len(story.state.pending_candidates) == 2
    story.slow = False
    story.answer()
    assert len(_placed(story)) == 2


@pytest.mark.conformance("X-1")
def test_an_issue_returns_to_the_host_with_its_workspace() -> None:
    story = _story(2, "a", "b", "c").begin()
    story.fails("2")
    story.forget().advance(10_000)
    (command,) = story.said(StartRun)
    assert (command.host, command.last_host) == ("b", "b"), "although c has no run"


def test_a_workspace_on_a_host_keeps_the_identifier_that_it_was_made_under() -> None:
    story = _story(1, "a").begin()
    former = story.state.running["1"].issue
    story.fails("1")
    story.board["1"] = replace(former, identifier="OPS-9")
    story.forget().advance(60_000)
    (command,) = story.said(StartRun)
    assert (command.issue.identifier, command.last_identifier) == ("OPS-9", former.identifier)


@pytest.mark.conformance("X-1")
def test_it_goes_elsewhere_after_a_failure_of_the_host() -> None:
    story = _story(1, "a", "b").begin()
    _lose(story)
    assert story.state.retrying["1"].attempts_without_progress == 0
    story.forget().advance(10_000)
    (command,) = story.said(StartRun)
    assert (command.host, command.last_host) == ("b", "a")


@pytest.mark.parametrize("category", [Category.WORKER_LOST, Category.HOST_UNAVAILABLE])
def test_a_host_rests_after_three_failures_in_a_row(category: Category) -> None:
    story = _story(1, "a").begin()
    for number in range(FAILURES_BEFORE_REST):
        if number:
            story.advance(story.state.retrying["1"].due_ms - story.now)
        assert not story.notices("host_resting")
        story.fails("1", replace(LOST, category=category), progress=None)
    (notice,) = story.notices("host_resting")
    assert dict(notice.fields) == {
        "host": "a",
        "failures": 3,
        "delay_ms": 30_000,
        "reason": f"{category.value}: the link was cut",
        "hint": "look at it",
    }
    assert slots_of(story.state, "a") == 0
    verdict = eligibility(make_issue("2"), story.state)
    assert isinstance(verdict, Ineligible)
    assert verdict.message == "no host has a free slot: a rests after 3 failures (the link was cut)"


def test_a_host_that_rested_gets_one_run_until_an_agent_starts_there() -> None:
    story = _story(3, "a", max_concurrent_agents=1).begin()
    _rest(story)
    story.forget().advance(30_000)
    assert len(_placed(story)) == 1
    assert slots_of(story.state, "a") == 1
    (issue_id,) = story.state.running
    story.streams(issue_id)
    assert story.state.troubled_hosts, "nothing started so far"
    story.streams(issue_id, pid=7)
    assert not story.state.troubled_hosts
    (notice,) = story.notices("host_recovered")
    assert notice.fields["host"] == "a"


def test_each_further_failure_doubles_the_rest() -> None:
    assert [rest_ms(failures) for failures in range(1, 6)] == [0, 0, 30_000, 60_000, 120_000]
    assert rest_ms(1_000) == MAX_REST_MS
    story = _story(1, "a").begin()
    _rest(story)
    story.advance(600_000)
    _lose(story)
    assert story.state.troubled_hosts["a"].failures == 4
    assert story.state.timer_due_ms(Timer(TimerKind.HOST, "a")) == story.now + 60_000


def test_runs_that_began_before_the_rest_do_not_count_again() -> None:
    story = _story(5, "a").begin()
    for issue_id in "12345":
        _lose(story, issue_id)
    assert story.state.troubled_hosts["a"].failures == 3
    assert len(story.notices("host_resting")) == 1


def test_another_end_of_a_run_shows_that_its_host_works() -> None:
    story = _story(1, "a").begin()
    _lose(story)
    story.advance(10_000)
    story.fails("1")
    assert not story.state.troubled_hosts
    assert not story.notices("host_recovered"), "nobody was told that it rests"


def test_an_agent_that_starts_during_a_rest_ends_it() -> None:
    story = _story(4, "a").begin()
    for issue_id in "123":
        _lose(story, issue_id)
    story.streams("4", pid=7)
    assert not story.state.troubled_hosts
    assert Timer(TimerKind.HOST, "a") not in story.state.timers


def test_an_operator_who_retries_an_issue_ends_the_rests() -> None:
    story = _story(4, "a", "b").begin()
    for issue_id in "13":
        _lose(story, issue_id)
    story.advance(5)
    _lose(story, "2")
    story.advance(60_000)
    for issue_id in sorted(story.state.running):
        _lose(story, issue_id)
    assert any(trouble.until_ms for trouble in story.state.troubled_hosts.values())
    assert any(trouble.until_ms is None for trouble in story.state.troubled_hosts.values())
    (issue_id, *_) = story.state.retrying
    story.tell(OperatorAsked(action=OperatorAction.RETRY, issue_id=issue_id))
    story.advance(1)
    assert all(trouble.until_ms is None for trouble in story.state.troubled_hosts.values())
    assert issue_id in story.state.running


def test_an_operator_who_retries_a_blocked_issue_ends_the_rests_too() -> None:
    story = _story(1, "a").begin()
    story.ends("1", OutcomeKind.INPUT_REQUIRED, make_failure(category=Category.TURN_INPUT_REQUIRED))
    story.tell(OperatorAsked(action=OperatorAction.RETRY, issue_id="1"))
    story.advance(2_000)
    assert story.state.running["1"].host == "a"


def test_the_end_of_a_rest_that_is_over_changes_nothing() -> None:
    story = _story(1, "a").begin()
    _rest(story)
    story.state = story.state.changed(troubled_hosts={})
    story.advance(30_000)
    assert not story.state.troubled_hosts


# --- workspaces ---


def test_a_workspace_is_removed_on_its_host() -> None:
    story = _story(1, "a").begin()
    story.streams("1")
    story.put("1", state="Done")
    story.ends("1")
    story.advance(5_000)
    (command,) = story.said(CleanWorkspace)
    assert (command.issue_id, command.host, command.path) == ("1", "a", None)
    assert not story.state.remote_workspaces


def test_a_workspace_without_a_claim_is_removed_on_its_host_by_the_next_daemon() -> None:
    story = Story(make_issue("1", state="Done"), make_issue("2", state="Done"), hosts=("a",), **QUIET)
    left = {"1": RemoteWorkspace(identifier="SYM-1", host="b")}
    local = WorkspaceRef(issue_id="2", identifier="SYM-2", path="/ws/2")
    story.tell(Recovered(remote_workspaces=left, workspaces=(local,)))
    assert [(each.issue_id, each.host, each.path) for each in story.said(CleanWorkspace)] == [
        ("1", "b", None),
        ("2", None, "/ws/2"),
    ]


def test_the_next_daemon_prefers_the_host_with_the_workspace() -> None:
    story = _story(1, "a", "b")
    story.tell(Recovered(remote_workspaces={"1": RemoteWorkspace(identifier="SYM-1", host="b")}))
    (command,) = story.said(StartRun)
    assert (command.host, command.last_host) == ("b", "b")
    assert story.state.running["1"].report.facts.workspace_path is None


def test_a_host_that_is_no_longer_named_gets_no_run() -> None:
    story = _story(1, "a", "b").begin()
    story.tell(SettingsChanged(settings=replace(story.state.settings, hosts=("b",))))
    assert story.state.running["1"].host == "a", "running sessions keep their host"
    story.forget().fails("1").advance(10_000)
    (command,) = story.said(StartRun)
    assert (command.host, command.last_host) == ("b", "a")


def test_without_hosts_again_the_run_comes_here() -> None:
    story = _story(1, "a").begin()
    story.tell(SettingsChanged(settings=replace(story.state.settings, hosts=())))
    story.forget().fails("1").advance(10_000)
    (command,) = story.said(StartRun)
    assert (command.host, command.last_host) == (None, "a")
    assert not story.state.remote_workspaces


# --- `run --once` ---


def test_run_once_waits_for_a_host_that_rests_but_not_for_ever() -> None:
    story = _story(4, "a").begin()
    for issue_id in "1234":
        _lose(story, issue_id)
        story.put(issue_id, state="Backlog")
    story.board["5"] = make_issue("5")
    story.tell(WakeAsked(reason="t"))
    story.advance(15_000)
    assert not isinstance(eligibility(story.board["5"], story.state), Eligible)
    assert not run_once_finished(story.state, story.now)
    trouble = replace(story.state.troubled_hosts["a"], failures=100)
    story.state = story.state.changed(troubled_hosts={"a": trouble})
    assert run_once_finished(story.state, story.now)
    elsewhere = replace(story.state.settings, hosts=("b",), max_agents_per_host=1)
    story.state = story.state.changed(settings=elsewhere)
    assert isinstance(eligibility(story.board["5"], story.state), Eligible)


def test_no_line_names_a_host_where_there_is_none() -> None:
    story = _story(1).begin()
    assert ", on " not in log_text(story.said(Notify)[0])


LIMITED = make_failure(category=Category.AGENT_USAGE_LIMIT)


def test_one_of_several_hosts_does_not_stop_an_agent_everywhere() -> None:
    story = _story(2, "a", "b").begin()
    story.fails("1", LIMITED)
    assert not story.state.limited_agents
    assert story.state.troubled_hosts.keys() == {"a"}
    story.fails("2", LIMITED)
    assert story.state.limited_agents.keys() == {"codex"}, "all hosts say so"


@pytest.mark.parametrize("hosts", [(), ("a",), (CLUSTER,)])
def test_a_limit_on_the_only_host_is_one_of_the_agent(hosts: tuple[str, ...]) -> None:
    story = _story(1, *hosts).begin()
    story.fails("1", LIMITED)
    assert story.state.limited_agents.keys() == {"codex"}
