"""Pull requests of finished work, against each forge: one for each branch, whatever goes wrong."""

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import anyio
import anyio.lowlevel
import pytest
from structlog.testing import capture_logs

from contract.forges import KINDS, ForgeDesk, forge_desk
from contract.repository import ME, STRANGER, WRITER, Pull, Thread
from contract.vendor import Fault, Given
from harness.binding import SECRET
from harness.pull_requests import BRANCH, Daemon, KilledError, given, looks_later, opened
from harness.rings import mostly_slow
from harness.scheduling import make_issue
from symphony.config import ForgeSettings
from symphony.daemon.forge import pull_requests, records
from symphony.daemon.forge.pull_request_text import (
    find_marker,
    marker_of,
    pull_request_text,
    without_mentions,
)
from symphony.daemon.forge.records import forge_failure
from symphony.domain import (
    Blame,
    Category,
    CheckState,
    DeliveredBranch,
    KeptFile,
    PullRequest,
    PullState,
    ReviewState,
    ServiceError,
    Verification,
    WorkSize,
)
from symphony.journal.model import encode
from symphony.scheduler import (
    FeedbackKind,
    IssueResult,
    NeedsYouCode,
    OperatorAction,
    OperatorAsked,
    PullRequestJudged,
    SettingsChanged,
    ThreadReply,
    WakeAsked,
)
from symphony.services.pulls import Forge

pytestmark = pytest.mark.asyncio
_LANDING = {"github": "mutation Symphony", "gitlab": "/1/merge ", "forgejo": "/1/merge "}
_POSTING = {"github": "ThreadReply", "gitlab": "/notes", "forgejo": "new_position"}
_TRIES = 3
"""How often a read is sent before it has failed."""


@pytest.fixture(params=KINDS)
def desk(request: pytest.FixtureRequest) -> ForgeDesk:
    return forge_desk(request.param)


@pytest.fixture
def daemon(desk: ForgeDesk, tmp_path: Path) -> Daemon:
    return Daemon(desk, tmp_path)


async def test_work_that_is_ready_gets_one_draft_with_the_issue_first(daemon: Daemon) -> None:
    daemon.works()
    await daemon.looks()
    await daemon.looks()
    (pull,) = daemon.opened()
    assert (pull.branch, pull.base, pull.draft) == (BRANCH, "main", True)
    assert pull.title == "SYM-1: Fix the login"
    first, *_ = pull.body.splitlines()
    assert "https://tracker.example.test/SYM-1" in first
    assert "Done it." in pull.body
    assert "2 commits, 1 files (+5 -3)" in pull.body
    assert "$0.50" in pull.body
    assert find_marker(pull.body) == marker_of(daemon.place.name, "1")
    record = daemon.record
    assert (record.number, record.ours, record.equipped, record.failure) == (pull.number, True, True, None)
    assert record.pull is not None
    assert record.pull.url.startswith("http")


async def test_what_is_wanted_when_the_daemon_ends_is_opened_once_and_nothing_else_is_waited_for(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pull_requests, "FINISH_S", math.inf)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(daemon.pulls.run)
        tasks.start_soon(daemon.jobs.run)
        await anyio.wait_all_tasks_blocked()
        daemon.works()
        await daemon.pulls.finish()
        await daemon.jobs.finish()
        tasks.cancel_scope.cancel()
    assert len(daemon.opened()) == 1


async def test_work_that_ends_gets_one_and_work_that_waits_gets_none(daemon: Daemon) -> None:
    daemon.works(state="Todo")
    await daemon.looks()
    assert daemon.opened() == []
    daemon.works(state="Done")
    await daemon.looks()
    assert len(daemon.opened()) == 1


async def test_where_work_is_verified_only_a_commit_that_passed_is_opened(
    desk: ForgeDesk, tmp_path: Path
) -> None:
    daemon = Daemon(desk, tmp_path, verify=["make test"])
    daemon.works()
    await daemon.looks()
    assert daemon.opened() == []
    daemon.put("1", state="Todo")
    daemon.look()
    daemon.works(verified=True)
    await daemon.looks()
    assert len(daemon.opened()) == 1


async def test_files_of_checks_are_named_as_data() -> None:
    kept = (KeptFile(name="a/junit.xml"), KeptFile(name="`@ann`<!--.png"))
    made = Verification(head="a" * 40, artifacts=kept)
    delivered = DeliveredBranch(work=WorkSize(commits=1), branch="symphony/SYM-1", head="a" * 40)
    result = IssueResult(issue=make_issue(), delivered=delivered, verification=made)
    _, body = pull_request_text(ForgeSettings(), result, base="main", marker="<!-- m -->")
    assert "`a/junit.xml`" in body
    assert "@ann" not in body
    assert body.count("<!--") == 1
    stale = replace(result, verification=replace(made, head="b" * 40))
    assert "junit" not in pull_request_text(ForgeSettings(), stale, base="main", marker="<!-- m -->")[1]


async def test_work_that_nobody_wants_gets_none(daemon: Daemon) -> None:
    daemon.works(state="Cancelled")
    await daemon.looks()
    assert daemon.opened() == []


async def test_work_that_ended_before_there_was_a_forge_gets_none(desk: ForgeDesk, tmp_path: Path) -> None:
    daemon = Daemon(desk, tmp_path, kind=None)
    daemon.works(state="Done")
    daemon.configure()
    daemon.restart()
    await daemon.looks()
    assert daemon.opened() == []
    assert desk.vendor.requests == []


async def test_without_a_forge_nothing_is_asked_or_recorded(desk: ForgeDesk, tmp_path: Path) -> None:
    daemon = Daemon(desk, tmp_path, kind=None)
    daemon.works()
    await daemon.looks()
    assert daemon.journal.records == {}
    assert desk.vendor.requests == []


async def test_what_is_not_pushed_waits_for_the_push(daemon: Daemon) -> None:
    daemon.works(pushed=False)
    await daemon.looks()
    assert daemon.opened() == []


async def test_settings_say_how_it_is_opened(desk: ForgeDesk, tmp_path: Path) -> None:
    desk.repository.push("develop")
    daemon = Daemon(
        desk,
        tmp_path,
        open="ready",
        base="develop",
        title="{{ issue.title | upcase }}",
        body="On {{ branch }} into {{ base }}, {{ commits }}",
        labels=["agent"],
        reviewers=[WRITER],
    )
    daemon.works()
    await daemon.looks()
    (pull,) = daemon.opened()
    assert (pull.title, pull.base, pull.draft) == ("FIX THE LOGIN", "develop", False)
    assert f"On {BRANCH} into develop, 2" in pull.body
    assert pull.labels == ["agent"]
    assert pull.reviewers == [WRITER]


async def test_text_of_others_names_nobody_and_hides_nothing(daemon: Daemon) -> None:
    theirs = marker_of("elsewhere", "9")
    daemon.put("1", title=f"@ann {SECRET}")
    daemon.works(summary=f"`@ann` @octo-team/all {theirs} {SECRET} {{{{ 1 }}}}")
    await daemon.looks()
    (pull,) = daemon.opened()
    assert find_marker(pull.body) == marker_of(daemon.place.name, "1")
    assert pull.body.count("@") == pull.body.count("`@`") == 2
    assert pull.title.startswith("SYM-1: `@`ann")
    assert SECRET not in pull.title + pull.body
    assert "{{ 1 }}" in pull.body
    assert without_mentions("a <!-- b @c") == "a &lt;!-- b `@`c"


@pytest.mark.parametrize("login", [WRITER, ME])
async def test_one_that_is_there_already_is_taken_over(daemon: Daemon, login: str) -> None:
    daemon.works()
    pull = daemon.desk.repository.open(BRANCH, title="By hand", body="Mine")
    pull.login = login
    await daemon.looks()
    assert [each.number for each in daemon.opened()] == [pull.number]
    assert (daemon.record.number, daemon.record.ours) == (pull.number, False)
    assert (pull.title, pull.body) == ("By hand", "Mine")


async def test_a_stranger_s_is_never_taken(daemon: Daemon) -> None:
    daemon.works()
    fork = daemon.desk.repository.open(BRANCH, body=marker_of(daemon.place.name, "1"))
    fork.head_repo, fork.login = "mallory/website", STRANGER
    await daemon.looks()
    assert daemon.record.number not in {None, fork.number}


async def test_a_stranger_s_in_the_way_is_told(daemon: Daemon) -> None:
    """Who copies the marker of ours is still a stranger."""
    daemon.works()
    theirs = daemon.desk.repository.open(BRANCH, body=marker_of(daemon.place.name, "1"))
    theirs.login = STRANGER
    with capture_logs() as logs:
        await daemon.looks()
    assert len(daemon.opened()) == 1
    assert daemon.record.number is None
    assert daemon.record.failure is not None
    assert STRANGER in daemon.record.failure.message
    assert [log["event"] for log in logs if log["log_level"] == "warning"] == ["job_failed"]


async def test_one_of_another_workflow_is_left_alone(daemon: Daemon) -> None:
    daemon.works()
    daemon.desk.repository.open(BRANCH, body=f"Theirs\n{marker_of('elsewhere', '1')}")
    await daemon.looks()
    assert len(daemon.opened()) == 1
    assert daemon.record.number is None
    assert daemon.record.failure is not None


@pytest.mark.parametrize("end", [PullState.CLOSED, PullState.MERGED])
async def test_one_that_ended_is_not_used_again(daemon: Daemon, end: PullState) -> None:
    daemon.works()
    await daemon.looks()
    (first,) = daemon.opened()
    daemon.desk.repository.end(first, end)
    daemon.journal.records.clear()
    daemon.restart()
    daemon.pulls.wake()
    await daemon.looks()
    assert len(daemon.opened()) == 1, "the same commit is not offered twice"
    assert daemon.record.pull is not None
    assert daemon.record.pull.state is end
    daemon.put("1", state="Todo")
    daemon.tell(WakeAsked(reason="test"))
    daemon.works()
    await daemon.looks()
    assert len(daemon.opened()) == 2
    assert daemon.record.number == 2


async def works_again(daemon: Daemon, summary: str) -> None:
    daemon.put("1", state="Todo")
    daemon.tell(WakeAsked(reason="test"))
    daemon.works(summary=summary)
    for pull in daemon.opened():
        pull.sha, pull.armed = daemon.head, False
    await looks_later(daemon)


async def test_new_work_goes_to_the_one_that_is_open_and_its_text_follows(daemon: Daemon) -> None:
    pull = await opened(daemon)
    await works_again(daemon, "Did more.")
    assert len(daemon.opened()) == 1
    assert daemon.record.head == daemon.record.described == daemon.head
    assert "Did more." in pull.body
    await works_again(daemon, "And more.")
    assert "And more." in pull.body


async def test_a_text_that_a_person_edited_stays(daemon: Daemon) -> None:
    pull = await opened(daemon)
    pull.body += "\n\nSee also #7."
    text = pull.body
    await works_again(daemon, "Did more.")
    await works_again(daemon, "And more.")
    assert pull.body == text
    assert daemon.record.failure is None


async def test_a_lost_answer_opens_no_second_one(daemon: Daemon) -> None:
    daemon.works()
    opening = {"github": "POST https://github.example.test/api/v3/repos", "gitlab": "POST", "forgejo": "POST"}
    daemon.desk.vendor.fail_next(Fault.LOST, when=opening[daemon.desk.kind])
    await daemon.looks()
    assert len(daemon.opened()) == 1
    assert daemon.record.number == 1


@pytest.mark.parametrize("nth", range(1, 8))
async def test_a_daemon_that_dies_anywhere_leaves_one(daemon: Daemon, nth: int) -> None:
    daemon.works()
    daemon.journal.dies_at = nth
    with suppress(KilledError, BaseExceptionGroup):
        await daemon.looks()
    daemon.restart()
    daemon.pulls.wake()
    await daemon.looks()
    assert len(daemon.opened()) == 1
    assert (daemon.record.number, daemon.record.ours, daemon.record.equipped) == (1, True, True)


@pytest.mark.parametrize("nth", range(8))
@pytest.mark.parametrize(
    "fault", mostly_slow([Fault.LOST, Fault.NO_CONNECTION, Given(status=502, raw=b"down")])
)
async def test_an_outage_at_any_request_leaves_one(daemon: Daemon, fault: Fault | Given, nth: int) -> None:
    daemon.configure(labels=["agent"], reviewers=[WRITER])
    daemon.works()
    daemon.desk.vendor.fail_next(fault, times=_TRIES, skip=nth)
    with capture_logs():
        for _ in range(3):
            await looks_later(daemon, 2_000_000)
    (pull,) = daemon.opened()
    assert (set(pull.labels), set(pull.reviewers)) == ({"agent"}, {WRITER})
    assert (daemon.record.number, daemon.record.failure) == (1, None)


@pytest.mark.parametrize("status", [401, 403, 404, 422, 429])
async def test_a_refusal_is_told_with_a_reason_and_a_hint(daemon: Daemon, status: int) -> None:
    daemon.works()
    refused = Given(status=status, body={"message": "no"}, headers={"retry-after": "7"})
    daemon.desk.vendor.fail_next(refused, times=20)
    with capture_logs():
        await daemon.looks()
    failure = daemon.record.failure
    assert failure is not None
    assert failure.category is Category.FORGE
    assert failure.hint
    assert daemon.desk.vendor.secret not in failure.line
    shown = daemon.pulls.shown()["1"]
    assert (shown.number, shown.failure) == (None, failure)
    assert daemon.opened() == []


async def test_a_failure_is_told_once_and_tried_again_later(daemon: Daemon) -> None:
    daemon.works()
    down = Given(status=502, raw=b"down")
    daemon.desk.vendor.fail_next(down, times=_TRIES)
    with capture_logs() as logs:
        await daemon.looks()
        await daemon.looks()
    told = [log for log in logs if log["event"] == "job_failed"]
    assert [log["log_level"] for log in told] == ["warning"]
    assert daemon.record.failure is not None
    (job,) = daemon.jobs.jobs
    assert (job.attempts, job.due_wall_ms > daemon.wall_ms) == (1, True)
    await daemon.looks()
    assert daemon.opened() == []
    daemon.wall_ms = job.due_wall_ms
    await daemon.looks()
    assert len(daemon.opened()) == 1
    assert daemon.record.failure is None
    assert not daemon.jobs.jobs


@pytest.mark.parametrize("by", ["restart", "correction", "person"])
async def test_a_start_a_correction_or_a_person_has_it_tried_again_at_once(daemon: Daemon, by: str) -> None:
    daemon.works()
    daemon.desk.vendor.fail_next(Given(status=403, body={"message": "no"}))
    await daemon.looks()
    assert daemon.record.failure is not None
    if by == "restart":
        daemon.restart()
    elif by == "correction":
        daemon.configure(labels=["agent"])
    if by == "person":
        daemon.tell(WakeAsked(reason="refresh", by_operator=True))
    else:
        daemon.tell(SettingsChanged(settings=daemon.state.settings))
    await daemon.looks()
    assert daemon.record.failure is None
    assert len(daemon.opened()) == 1


async def test_labels_and_reviewers_that_are_refused_hold_nothing_up(desk: ForgeDesk, tmp_path: Path) -> None:
    daemon = Daemon(desk, tmp_path, labels=["agent"], reviewers=["helper[bot]", WRITER])
    daemon.works()
    name = {"github": "/labels", "gitlab": "PUT", "forgejo": "/labels"}[desk.kind]
    desk.vendor.fail_next(Given(status=422, body={"message": "no such label"}), when=name)
    desk.vendor.fail_next(Given(status=422, body={"message": "no such account"}), when="helper")
    with capture_logs() as logs:
        await daemon.looks()
    assert [log["event"] for log in logs].count("pull_request_not_equipped") == 2
    assert daemon.opened()[0].reviewers == [WRITER]
    assert daemon.record.equipped
    assert daemon.record.failure is None


async def test_labels_that_cannot_be_set_are_tried_again_and_told_once(
    desk: ForgeDesk, tmp_path: Path
) -> None:
    daemon = Daemon(desk, tmp_path, labels=["agent"])
    daemon.works()
    name = {"github": "/labels", "gitlab": "PUT", "forgejo": "/labels"}[desk.kind]
    desk.vendor.fail_next(Given(status=502, raw=b"down"), when=name, times=10 * _TRIES)
    with capture_logs() as logs:
        await daemon.looks()
        for _ in range(10):
            await looks_later(daemon, 60_000)
    told = [log["log_level"] for log in logs if log["event"] == "job_failed"]
    assert told == ["warning", *["debug"] * 10]
    assert daemon.record.pull is not None, "it is watched all the same"


async def test_a_repository_without_a_branch_at_head_needs_a_base(daemon: Daemon) -> None:
    daemon.workspaces.head = None
    daemon.works()
    await daemon.looks()
    assert daemon.record.failure is not None
    assert daemon.record.failure.hint == "set forge.base"


async def test_a_template_that_fails_for_an_issue_is_told(desk: ForgeDesk, tmp_path: Path) -> None:
    daemon = Daemon(desk, tmp_path, body="{% if issue.url %}{{ 1 | divided_by: 0 }}{% endif %}")
    daemon.works()
    await daemon.looks()
    assert daemon.record.failure is not None
    assert "forge.body" in daemon.record.failure.message


async def test_a_bug_costs_one_attempt(daemon: Daemon) -> None:
    daemon.works()
    daemon.workspaces.fails = True
    with capture_logs():
        await daemon.looks()
    assert daemon.record.failure is not None


# --- observing -------------------------------------------------------------------------------------------


async def test_what_a_pull_request_waits_for_is_recorded_with_a_code(desk: ForgeDesk, tmp_path: Path) -> None:
    daemon = Daemon(desk, tmp_path, open="ready")
    pull = await opened(daemon)
    assert daemon.record.code == "checks_not_started"
    daemon.desk.repository.check(pull, "test", CheckState.PENDING)
    record = await looks_later(daemon)
    assert (record.code, record.failure) == ("checks_pending", None)
    assert record.pull is not None
    assert [check.name for check in record.pull.checks if check.sha == pull.sha] == ["test"]
    daemon.desk.repository.check(pull, "test", CheckState.PASSED)
    assert (await looks_later(daemon)).code == "settled"
    assert daemon.changed == ["checks_not_started", "checks_pending", "settled"]


async def test_an_unchanged_snapshot_writes_nothing(daemon: Daemon) -> None:
    pull = await opened(daemon)
    daemon.desk.repository.check(pull, "test", CheckState.PASSED)
    await looks_later(daemon)
    before = daemon.journal.writes
    await looks_later(daemon)
    await looks_later(daemon)
    assert daemon.journal.writes == before


async def test_all_are_looked_at_together_and_no_sooner_than_asked(daemon: Daemon) -> None:
    await opened(daemon)
    await daemon.looks()
    sent = len(daemon.desk.vendor.requests)
    daemon.pulls.wake()
    await daemon.looks()
    assert len(daemon.desk.vendor.requests) == sent
    daemon.wall_ms += 10_000
    daemon.tell(WakeAsked(reason="webhook"))
    await daemon.looks()
    assert len(daemon.desk.vendor.requests) > sent, "a webhook wakes it"


async def test_a_forge_that_is_away_is_told_once_and_asked_again_later(daemon: Daemon) -> None:
    await opened(daemon)
    daemon.wall_ms += 200_000
    daemon.desk.vendor.fail_next(Given(status=502, raw=b"down"), times=_TRIES)
    with capture_logs() as logs:
        await daemon.looks()
        await daemon.looks()
    told = [log for log in logs if log["event"] == "pull_requests_not_observed"]
    assert [log["log_level"] for log in told] == ["warning"]
    assert daemon.pulls.shown()["1"].failure is not None
    await looks_later(daemon)
    assert daemon.pulls.shown()["1"].failure is None


@pytest.mark.parametrize("by_operator", [True, False])
async def test_a_webhook_does_not_end_the_pause_after_a_failure_and_a_person_does(
    daemon: Daemon, *, by_operator: bool
) -> None:
    await opened(daemon)
    daemon.wall_ms += 200_000
    daemon.desk.vendor.fail_next(Given(status=502, raw=b"down"), times=_TRIES)
    await daemon.looks()
    daemon.wall_ms += 10_000
    daemon.pulls.look_soon()
    daemon.tell(WakeAsked(reason="test", by_operator=by_operator))
    await daemon.looks()
    assert (daemon.pulls.shown()["1"].failure is None) is by_operator


class Broken:
    """A client with a bug."""

    async def observe(self, numbers: Sequence[int]) -> NoReturn:
        await anyio.lowlevel.checkpoint()
        raise ZeroDivisionError(numbers)


async def test_a_bug_of_a_client_costs_a_look_and_not_the_daemon(daemon: Daemon) -> None:
    await opened(daemon)
    daemon.broken = Broken()
    daemon.restart()
    with capture_logs() as logs:
        await looks_later(daemon)
    assert {log["event"] for log in logs} >= {"pull_request_crashed", "pull_requests_not_observed"}
    assert daemon.pulls.shown()["1"].failure is not None


class Malformed:
    """A forge that sends the first pull request malformed."""

    def __init__(self, forge: Forge) -> None:
        self.forge = forge

    async def observe(self, numbers: Sequence[int], *, fresh: bool = False) -> Mapping[int, PullRequest]:
        if 1 in numbers:
            failure = forge_failure("the record is malformed", Blame.TRACKER)
            raise ServiceError(failure, culprits=frozenset({"1"}))
        return await self.forge.observe(numbers, fresh=fresh)


async def test_a_malformed_one_hides_no_other_and_is_not_taken_for_gone(daemon: Daemon) -> None:
    await opened(daemon)
    before = daemon.record
    pull = daemon.desk.repository.open("other")
    daemon.journal.records["2"] = replace(
        before,
        issue=replace(before.issue, id="2"),
        number=pull.number,
        branch="other",
        pull=None,
        ledger=None,
    )
    daemon.broken = Malformed(daemon.desk.forge)
    daemon.restart()

    record = await looks_later(daemon)

    assert record.failure is not None
    assert (record.code, record.pull) == (before.code, before.pull)
    other = daemon.journal.records["2"]
    assert other.failure is None
    assert other.pull is not None

    daemon.broken = None
    daemon.restart()
    assert (await looks_later(daemon, 4_000_000)).failure is None


async def test_one_that_a_person_merges_is_an_outcome(desk: ForgeDesk, tmp_path: Path) -> None:
    daemon = Daemon(desk, tmp_path, merged_state="Done")
    pull = await opened(daemon)
    daemon.tracker.issues = (daemon.board["1"],)
    daemon.desk.repository.end(pull, PullState.MERGED)
    record = await looks_later(daemon)
    assert (record.code, record.is_open) == ("merged", False)
    assert daemon.merged == ["SYM-1"]
    assert daemon.tracker.moved == [("1", "Done")]
    assert WakeAsked(reason="issue_moved") in daemon.posted, "the scheduler is told of its own move"
    sent = len(desk.vendor.requests)
    await looks_later(daemon)
    assert len(desk.vendor.requests) == sent, "it is not asked about again"


@pytest.mark.parametrize("nth", range(1, 4))
async def test_a_merge_is_an_outcome_wherever_the_daemon_dies(daemon: Daemon, nth: int) -> None:
    pull = await opened(daemon)
    daemon.desk.repository.end(pull, PullState.MERGED)
    daemon.wall_ms += 200_000
    daemon.journal.dies_at = daemon.journal.writes + nth
    with suppress(KilledError, BaseExceptionGroup):
        await daemon.looks()
    daemon.restart()
    daemon.pulls.wake()
    await looks_later(daemon)
    assert daemon.record.code == "merged"
    assert set(daemon.merged) == {"SYM-1"}
    assert set(daemon.workspaces.deleted) == {(BRANCH, pull.sha)}


async def test_a_move_that_fails_is_tried_again(desk: ForgeDesk, tmp_path: Path) -> None:
    daemon = Daemon(desk, tmp_path, merged_state="Done")
    pull = await opened(daemon)
    daemon.tracker.issues = (daemon.board["1"],)
    daemon.tracker.failure = OSError("no answer")
    daemon.desk.repository.end(pull, PullState.MERGED)
    with capture_logs():
        record = await looks_later(daemon)
    assert record.failure is not None
    assert record.code != "merged"
    daemon.tracker.failure = None
    record = await looks_later(daemon)
    assert (record.code, record.failure) == ("merged", None)


async def test_an_issue_that_somebody_gave_new_work_is_not_moved_by_the_merge(
    desk: ForgeDesk, tmp_path: Path
) -> None:
    daemon = Daemon(desk, tmp_path, merged_state="Done")
    pull = await opened(daemon)
    daemon.tracker.issues = (daemon.put("1", state="Todo"),)  # which no poll has seen yet
    desk.repository.end(pull, PullState.MERGED)
    with capture_logs() as logs:
        record = await looks_later(daemon)
    assert (record.code, daemon.merged, daemon.tracker.moved) == ("merged", ["SYM-1"], [])
    assert [log["state"] for log in logs if log["event"] == "move_skipped"] == ["Done"]


async def test_a_move_that_keeps_failing_is_tried_again_told_once_and_made_when_a_person_asks(
    desk: ForgeDesk, tmp_path: Path
) -> None:
    daemon = Daemon(desk, tmp_path, merged_state="Done")
    pull = await opened(daemon)
    daemon.tracker.issues = (daemon.board["1"],)
    daemon.tracker.failure = OSError("no answer")
    desk.repository.end(pull, PullState.MERGED)
    with capture_logs() as logs:
        for _ in range(10):
            await looks_later(daemon, 60_000)
    told = [log["log_level"] for log in logs if log["event"] == "job_failed"]
    assert told == ["warning", *["debug"] * 9]
    daemon.tracker.failure = None
    daemon.pulls.look_soon(by_person=True)
    assert (await looks_later(daemon, 0)).code == "merged"


async def test_the_branch_of_a_merged_one_is_deleted_at_the_commit_that_was_merged(daemon: Daemon) -> None:
    pull = await opened(daemon)
    daemon.desk.repository.end(pull, PullState.MERGED)
    with capture_logs() as logs:
        assert (await looks_later(daemon)).code == "merged"
    assert daemon.workspaces.deleted == [(BRANCH, pull.sha)]
    assert "branch_deleted" in {log["event"] for log in logs}


@pytest.mark.parametrize("why", ["setting", "closed", "foreign", "head", "base", "working"])
async def test_a_branch_that_somebody_may_need_stays(desk: ForgeDesk, tmp_path: Path, why: str) -> None:
    daemon = Daemon(desk, tmp_path, delete_branch=why != "setting")
    pull = await opened(daemon)
    if why == "foreign":
        desk.repository.push(BRANCH, pull)
    elif why == "head":
        desk.repository.open(BRANCH, base="release")
        desk.repository.branches["release"] = pull.sha
    elif why == "base":
        desk.repository.open("stacked", base=BRANCH)
    elif why == "working":
        daemon.put("1", state="Todo")
        daemon.tell(WakeAsked(reason="test"))
    desk.repository.end(pull, PullState.CLOSED if why == "closed" else PullState.MERGED)
    with capture_logs() as logs:
        await looks_later(daemon)
    assert daemon.record.code == ("closed" if why == "closed" else "merged")
    assert daemon.workspaces.deleted == []
    kept = [log for log in logs if log["event"] == "branch_kept"]
    assert len(kept) == (why not in {"setting", "closed"})


async def test_a_branch_that_cannot_be_deleted_holds_the_end_up_for_three_tries(daemon: Daemon) -> None:
    pull = await opened(daemon)
    daemon.workspaces.deletion_fails = True
    daemon.desk.repository.end(pull, PullState.MERGED)
    with capture_logs() as logs:
        codes = [(await looks_later(daemon)).code for _ in range(4)]
    assert codes[-2:] == ["merged", "merged"]
    assert "merged" not in codes[:2]
    assert len(daemon.workspaces.deleted) == 3
    assert [log["reason"] for log in logs if log["event"] == "branch_kept"] == ["no answer"]
    assert daemon.record.failure is None


async def test_a_number_of_another_server_is_not_taken_for_ours(desk: ForgeDesk, tmp_path: Path) -> None:
    daemon = Daemon(desk, tmp_path, merged_state="Done")
    pull = await opened(daemon)
    daemon.tracker.issues = (daemon.board["1"],)
    daemon.configure(merged_state="Done", url="https://elsewhere.example.test/api")
    pull.branch, pull.sha = "other", "f" * 40
    desk.repository.end(pull, PullState.MERGED)
    await looks_later(daemon)
    assert (daemon.merged, daemon.tracker.moved) == ([], [])
    assert daemon.record.number == 2, "it gets one there"


async def test_one_that_is_closed_needs_a_person(daemon: Daemon) -> None:
    pull = await opened(daemon)
    daemon.desk.repository.end(pull, PullState.CLOSED)
    assert (await looks_later(daemon)).code == "closed"
    assert daemon.changed[-1] == "closed"
    assert daemon.merged == []


def judged(daemon: Daemon) -> list[PullRequestJudged]:
    """What the scheduler is told since the last time; it hears it now."""
    found = [event for event in daemon.posted if isinstance(event, PullRequestJudged)]
    daemon.posted.clear()
    for event in found:
        daemon.tell(event)
    return found


async def test_a_closed_one_blocks_its_issue_until_it_is_reopened(daemon: Daemon) -> None:
    pull = await opened(daemon)
    daemon.desk.repository.end(pull, PullState.CLOSED)
    await looks_later(daemon)
    assert [event.block is not None for event in judged(daemon)] == [True]
    assert daemon.state.blocked["1"].failure.category is Category.PULL_REQUEST_CLOSED
    daemon.restart()
    assert (await looks_later(daemon)).code == "closed"
    assert judged(daemon) == []
    assert daemon.changed.count("closed") == 1, "it is said once"
    daemon.desk.repository.end(pull, PullState.OPEN)
    assert (await looks_later(daemon)).is_open
    assert judged(daemon) == [PullRequestJudged(issue_id="1")]
    assert daemon.state.entry("1") is None


async def test_a_closed_one_is_not_observed_once_its_issue_has_ended(daemon: Daemon) -> None:
    pull = await opened(daemon)
    daemon.desk.repository.end(pull, PullState.CLOSED)
    await looks_later(daemon)
    judged(daemon)
    daemon.put("1", state="Done")
    daemon.tell(WakeAsked(reason="test"))
    asked = len(daemon.desk.vendor.requests)
    await looks_later(daemon)
    assert len(daemon.desk.vendor.requests) == asked


async def test_an_agent_is_told_again_once_a_person_unblocks_its_issue(daemon: Daemon) -> None:
    pull = await opened(daemon)
    daemon.desk.repository.check(pull, "test", CheckState.FAILED)
    await looks_later(daemon)
    for event in given(daemon):
        daemon.tell(event)
    daemon.advance(1_000)
    daemon.streams(turn_count=1).turn_ends().ends().advance(2_000)
    assert (await looks_later(daemon)).code == "no_change"
    judged(daemon)
    assert daemon.state.blocked["1"].failure.category is Category.PULL_REQUEST_NEEDS_YOU
    daemon.tell(OperatorAsked(action=OperatorAction.UNBLOCK, issue_id="1"))
    await looks_later(daemon)
    (again,) = given(daemon)
    assert "check: test" in again.text


async def test_a_branch_that_somebody_else_pushed_to_needs_a_person(daemon: Daemon) -> None:
    pull = await opened(daemon)
    daemon.desk.repository.push(BRANCH, pull)
    assert (await looks_later(daemon)).code == "foreign_head"


async def test_who_gives_the_issue_back_has_the_turns_count_anew(daemon: Daemon) -> None:
    await opened(daemon)
    ledger = daemon.record.ledger
    assert ledger is not None
    used = replace(ledger, turns={FeedbackKind.CI: 3}, needs_you=NeedsYouCode.TURNS_USED)
    daemon.journal.records["1"] = replace(daemon.record, ledger=used)
    daemon.restart()
    daemon.put("1", state="Todo")
    daemon.tell(WakeAsked(reason="test"))
    daemon.works()  # in less time than there is between two looks
    released = (await looks_later(daemon)).ledger
    assert released is not None
    assert (dict(released.turns), released.needs_you) == ({}, None)


class Racing:
    """A forge that shows pull requests as they were before or after a run that ends meanwhile."""

    def __init__(self, daemon: Daemon, pull: Pull, *, seen_first: bool) -> None:
        self.daemon, self.pull, self.seen_first = daemon, pull, seen_first
        self.observe_now = daemon.desk.forge.observe

    def __getattr__(self, name: str) -> Any:
        return getattr(self.daemon.desk.forge, name)

    async def observe(self, numbers: Sequence[int], *, fresh: bool = False) -> Mapping[int, PullRequest]:
        seen = await self.observe_now(numbers, fresh=fresh)
        if self.daemon.state.running:
            self.daemon.works()
            self.pull.sha = self.daemon.head
            seen = seen if self.seen_first else await self.observe_now(numbers, fresh=True)
        return seen


@pytest.mark.parametrize("seen_first", [True, False])
async def test_a_run_that_ends_while_they_are_observed_asks_for_no_person(
    daemon: Daemon, *, seen_first: bool
) -> None:
    pull = await opened(daemon)
    daemon.desk.repository.check(pull, "test", CheckState.FAILED)
    await looks_later(daemon)
    await looks_later(daemon)
    daemon.tell(given(daemon)[0])
    daemon.advance(1_000)
    daemon.broken = Racing(daemon, pull, seen_first=seen_first)
    daemon.restart()
    record = await looks_later(daemon)
    assert not record.needs_you
    assert record.head == daemon.head
    assert judged(daemon) == []


async def test_feedback_that_is_taken_does_not_give_the_issue_back(daemon: Daemon) -> None:
    pull = await opened(daemon)
    daemon.desk.repository.check(pull, "test", CheckState.FAILED)
    await looks_later(daemon)
    daemon.tell(given(daemon)[0])
    daemon.advance(1_000)
    ledger = (await looks_later(daemon)).ledger
    assert ledger is not None
    assert (ledger.working, dict(ledger.turns)) == (True, {FeedbackKind.CI: 1})


async def test_nothing_is_judged_before_it_is_known_what_the_previous_daemon_left(daemon: Daemon) -> None:
    await opened(daemon)
    daemon.restart(recovered=False)
    sent = len(daemon.desk.vendor.requests)
    daemon.pulls.look_soon()  # a webhook may be faster
    await looks_later(daemon)
    assert len(daemon.desk.vendor.requests) == sent


async def test_an_offer_that_nobody_took_before_its_issue_ended_is_withdrawn(daemon: Daemon) -> None:
    pull = await opened(daemon)
    daemon.desk.repository.check(pull, "test", CheckState.FAILED)
    assert (await looks_later(daemon)).code == "feedback"
    daemon.put("1", state="Done")
    daemon.tell(WakeAsked(reason="test"))
    record = await looks_later(daemon)
    assert record.code == "checks_failed", "nobody works on it"
    assert record.ledger is not None
    assert (record.ledger.offered, record.ledger.told) == (None, ())


async def test_news_about_work_that_has_ended_is_left_to_people(daemon: Daemon) -> None:
    daemon.works(state="Done")
    await daemon.looks()
    (pull,) = daemon.opened()
    daemon.desk.repository.check(pull, "test", CheckState.FAILED)
    assert (await looks_later(daemon)).code == "checks_failed"
    assert given(daemon) == []


async def test_one_that_is_gone_is_told(daemon: Daemon) -> None:
    await opened(daemon)
    daemon.desk.repository.pulls.clear()
    assert (await looks_later(daemon)).code == "gone"
    assert daemon.record.needs_you
    await works_again(daemon, "More.")
    assert len(daemon.opened()) == 1, "new work gets another one"
    assert daemon.record.is_open


async def test_the_oldest_that_have_ended_make_way_between_two_looks(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    pull = await opened(daemon)
    monkeypatch.setattr(records, "MAX_RECORDS", 0)
    daemon.desk.repository.end(pull, PullState.MERGED)
    assert (await looks_later(daemon)).code == "merged"
    await looks_later(daemon)
    assert daemon.pulls.shown().keys() == {"1"}, "its result is still known"
    del daemon.board["1"]
    daemon.tell(WakeAsked(reason="test"))
    await looks_later(daemon)
    assert daemon.pulls.shown() == {}


async def test_a_thousand_long_comments_fit_into_the_journal(daemon: Daemon) -> None:
    pull = await opened(daemon)
    for _ in range(1_000):
        daemon.desk.repository.say(pull, STRANGER, "x" * 6_000)
    record = await looks_later(daemon)
    assert record.pull is not None
    assert not record.pull.complete
    assert len(encode(record)) < 4_000_000


# --- pull requests of agents -----------------------------------------------------------------------------


async def test_one_that_the_agent_opens_is_watched_where_the_daemon_opens_none(
    desk: ForgeDesk, tmp_path: Path
) -> None:
    """The agent pushes by itself, and its pull request may be late."""
    daemon = Daemon(desk, tmp_path, open="never")
    daemon.works(pushed=False)
    await daemon.looks()
    assert (daemon.journal.records, desk.repository.pulls) == ({}, {})
    pull = desk.repository.open(BRANCH, title="By the agent", body="Mine")
    desk.repository.check(pull, "test", CheckState.FAILED)
    await daemon.looks()
    assert daemon.journal.records == {}, "it is not looked for again and again"
    await looks_later(daemon)
    await looks_later(daemon)
    assert (daemon.record.number, daemon.record.ours, daemon.record.code) == (1, False, "feedback")
    assert [event.summary for event in given(daemon)][:1] == [f"ci at {pull.sha[:8]}"]
    assert (pull.title, pull.body, pull.labels) == ("By the agent", "Mine", [])
    desk.repository.end(pull, PullState.MERGED)
    assert (await looks_later(daemon)).code == "merged"
    sent = len(desk.vendor.requests)
    await looks_later(daemon)
    assert len(desk.vendor.requests) == sent


async def test_work_that_nobody_pushes_is_waited_for_and_what_somebody_pushes_is_ours(
    desk: ForgeDesk, tmp_path: Path
) -> None:
    daemon = Daemon(desk, tmp_path, open="never")
    daemon.works(pushed=False)
    pull = desk.repository.open(BRANCH)
    desk.repository.check(pull, "test", CheckState.FAILED)
    await daemon.looks()
    await looks_later(daemon)
    daemon.tell(given(daemon)[0])
    daemon.advance(1_000)
    first = pull.sha
    daemon.works(pushed=False)
    assert (await looks_later(daemon)).code == "no_change"
    assert daemon.record.head == first
    pull.sha = daemon.head
    assert (await looks_later(daemon)).code == "checks_not_started"
    assert daemon.record.head == daemon.head


@pytest.mark.parametrize("whose", ["stranger", "fork", "another workflow"])
async def test_one_of_somebody_else_is_not_watched_and_no_failure(
    desk: ForgeDesk, tmp_path: Path, whose: str
) -> None:
    daemon = Daemon(desk, tmp_path, open="never")
    daemon.works()
    body = marker_of("elsewhere", "1") if whose == "another workflow" else ""
    pull = desk.repository.open(BRANCH, body=body)
    pull.login = STRANGER if whose == "stranger" else ME
    pull.head_repo = "mallory/website" if whose == "fork" else None
    with capture_logs() as logs:
        await daemon.looks()
    assert daemon.journal.records == {}
    assert [log for log in logs if log["log_level"] == "warning"] == []


async def test_a_search_that_fails_is_told_once_and_a_person_or_a_webhook_repeats_one(
    desk: ForgeDesk, tmp_path: Path
) -> None:
    daemon = Daemon(desk, tmp_path, open="never")
    daemon.works()
    desk.vendor.fail_next(Given(status=502, raw=b"down"), times=2 * _TRIES)
    with capture_logs() as logs:
        await daemon.looks()
        daemon.wall_ms += 60_000
        await daemon.looks()
    levels = [log["log_level"] for log in logs if log["event"] == "pull_request_failed"]
    assert levels == ["warning", "debug"]
    sent = len(desk.vendor.requests)
    daemon.pulls.look_soon()
    await daemon.looks()
    assert len(desk.vendor.requests) == sent, "the pause after a failure stays"
    daemon.pulls.look_soon(by_person=True)
    await daemon.looks()
    sent = len(desk.vendor.requests)
    desk.repository.open(BRANCH)
    daemon.wall_ms += 31_000
    daemon.pulls.look_soon()
    await daemon.looks()
    assert len(desk.vendor.requests) > sent
    assert daemon.record.number == 1


# --- landing ---------------------------------------------------------------------------------------------


async def green(daemon: Daemon) -> Pull:
    """A pull request that nothing holds back."""
    pull = await opened(daemon)
    repository = daemon.desk.repository
    repository.check(pull, "test", CheckState.PASSED)
    repository.review(pull, WRITER, ReviewState.APPROVED)
    return pull


def lands(pull: Pull) -> bool:
    """Whether the forge merges it, or has done so."""
    return pull.armed or pull.state is PullState.MERGED


async def test_nothing_is_landed_by_default(desk: ForgeDesk, tmp_path: Path) -> None:
    daemon = Daemon(desk, tmp_path, open="ready")
    pull = await green(daemon)
    assert (await looks_later(daemon)).code == "settled"
    assert (pull.armed, pull.queued, pull.state) == (False, False, PullState.OPEN)


async def test_a_commit_that_did_not_pass_its_verification_is_not_landed(
    desk: ForgeDesk, tmp_path: Path
) -> None:
    daemon = Daemon(desk, tmp_path, open="ready")
    pull = await green(daemon)
    daemon.configure(open="ready", land="auto", verify=["make test"])
    assert (await looks_later(daemon)).code == "not_verified"
    assert not lands(pull)


async def test_what_is_settled_is_landed_at_the_commit_that_was_judged(
    desk: ForgeDesk, tmp_path: Path
) -> None:
    daemon = Daemon(desk, tmp_path, open="ready", land="auto")
    pull = await green(daemon)
    record = await looks_later(daemon)
    assert record.ledger is not None
    assert record.ledger.landings == (pull.sha,)
    assert lands(pull)
    record = await looks_later(daemon, 400_000)
    assert record.code in {"merged", "landing"}


async def test_a_label_approves_nothing_and_is_asked_for_besides_an_approval(
    desk: ForgeDesk, tmp_path: Path
) -> None:
    daemon = Daemon(desk, tmp_path, open="ready", land="auto", land_limits={"labels": ["ship"]})
    pull = await opened(daemon)
    pull.labels.append("Ship")
    desk.repository.check(pull, "test", CheckState.PASSED)
    assert (await looks_later(daemon)).code == "approval_missing"
    desk.repository.review(pull, WRITER, ReviewState.APPROVED)
    await looks_later(daemon)
    assert lands(pull)


async def test_a_pull_request_that_was_moved_to_another_base_is_not_landed(
    desk: ForgeDesk, tmp_path: Path
) -> None:
    daemon = Daemon(desk, tmp_path, open="ready", land="auto")
    pull = await green(daemon)
    desk.repository.branches["release"] = desk.repository.branches["main"]
    pull.base = "release"
    assert (await looks_later(daemon)).code == "other_base"
    assert not lands(pull)
    pull.base, pull.updated = "main", desk.repository.now()
    await looks_later(daemon)
    assert lands(pull)


async def test_the_workflow_file_of_the_daemon_is_not_landed_under_any_name(
    desk: ForgeDesk, tmp_path: Path
) -> None:
    daemon = Daemon(desk, tmp_path, open="ready", land="auto")
    pull = await green(daemon)
    pull.files = ["src/page.py", f"ops/{daemon.context.workflow.path.name}"]
    assert (await looks_later(daemon)).code == "protected_path"


async def test_a_commit_that_arrives_meanwhile_is_not_landed(desk: ForgeDesk, tmp_path: Path) -> None:
    daemon = Daemon(desk, tmp_path, open="ready", land="auto")
    pull = await green(daemon)
    daemon.desk.repository.push(BRANCH, pull)
    record = await looks_later(daemon)
    assert record.code == "foreign_head"
    assert (pull.armed, pull.state) == (False, PullState.OPEN)


async def test_a_new_thread_takes_the_landing_back(desk: ForgeDesk, tmp_path: Path) -> None:
    daemon = Daemon(desk, tmp_path, open="ready", land="auto")
    pull = await green(daemon)
    await looks_later(daemon)
    if pull.state is PullState.MERGED:
        return  # this forge merges at once what it may
    daemon.desk.repository.remark(pull, STRANGER, "wait")
    record = await looks_later(daemon)
    assert record.code == "threads_open"
    assert not pull.armed


@pytest.mark.parametrize("nth", range(1, 6))
async def test_a_daemon_that_dies_while_it_lands_lands_what_was_judged(
    desk: ForgeDesk, tmp_path: Path, nth: int
) -> None:
    daemon = Daemon(desk, tmp_path, open="ready", land="auto")
    pull = await green(daemon)
    daemon.journal.dies_at = daemon.journal.writes + nth
    with suppress(KilledError, BaseExceptionGroup):
        await looks_later(daemon)
    daemon.restart()
    for _ in range(3):
        daemon.tell(WakeAsked(reason="test"))
        await looks_later(daemon)
    assert lands(pull)
    ledger = daemon.record.ledger
    assert ledger is not None
    assert set(ledger.landings) == {pull.sha}
    assert len(ledger.landings) <= 2


@pytest.mark.parametrize("nth", range(1, 5))
async def test_a_daemon_that_died_while_a_second_look_waits_for_the_first_records_nothing_more(
    desk: ForgeDesk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nth: int
) -> None:
    daemon = Daemon(desk, tmp_path, open="ready", land="auto")
    await green(daemon)
    daemon.journal.dies_at = daemon.journal.writes + nth
    monkeypatch.setattr(anyio, "wait_all_tasks_blocked", anyio.lowlevel.checkpoint)
    with suppress(KilledError, BaseExceptionGroup):
        await looks_later(daemon)
    assert daemon.record.number == 1


async def test_a_push_after_a_landing_begins_anew(desk: ForgeDesk, tmp_path: Path) -> None:
    daemon = Daemon(desk, tmp_path, open="ready", land="auto")
    pull = await green(daemon)
    await looks_later(daemon)
    if pull.state is PullState.MERGED:
        return  # this forge merges at once what it may
    await works_again(daemon, "More.")
    assert not pull.armed
    repository = daemon.desk.repository
    repository.check(pull, "test", CheckState.PASSED)
    repository.review(pull, WRITER, ReviewState.APPROVED)
    record = await looks_later(daemon)
    assert record.ledger is not None
    assert record.ledger.landings[-1] == daemon.head
    assert lands(pull)


async def test_a_landing_is_taken_back_by_the_next_daemon_if_somebody_pushes(
    desk: ForgeDesk, tmp_path: Path
) -> None:
    desk.repository.holds = True
    daemon = Daemon(desk, tmp_path, open="ready", land="auto")
    pull = await green(daemon)
    await looks_later(daemon)
    daemon.restart()
    assert (await looks_later(daemon, 400_000)).code == "landing"
    assert pull.armed
    desk.repository.push(BRANCH, pull)
    assert (await looks_later(daemon)).code == "foreign_head"
    assert not pull.armed
    sent = len(desk.vendor.requests)
    await looks_later(daemon)
    again = [asked.method for asked in desk.vendor.requests[sent:]]
    assert "DELETE" not in again, "it is taken back once"


async def test_a_landing_that_fails_is_told(desk: ForgeDesk, tmp_path: Path) -> None:
    daemon = Daemon(desk, tmp_path, open="ready", land="auto")
    pull = await green(daemon)
    desk.vendor.fail_next(Given(status=403, body={"message": "no"}), when=_LANDING[desk.kind])
    with capture_logs():
        record = await looks_later(daemon)
    assert record.failure is not None
    assert (pull.armed, pull.state) == (False, PullState.OPEN)


# --- outages and bad input -------------------------------------------------------------------------------


@pytest.mark.parametrize("nth", range(0, 12, 4))
@pytest.mark.parametrize("fault", mostly_slow([Fault.LOST, Given(status=502, raw=b"down")]))
async def test_an_outage_at_any_request_of_a_landing_merges_what_was_judged_and_ends_once(
    desk: ForgeDesk, tmp_path: Path, fault: Fault | Given, nth: int
) -> None:
    daemon = Daemon(desk, tmp_path, open="ready", land="auto")
    pull = await green(daemon)
    desk.vendor.fail_next(fault, times=_TRIES, skip=nth)
    with capture_logs():
        for _ in range(4):
            await looks_later(daemon, 2_000_000)
            if pull.armed and pull.state is PullState.OPEN:
                desk.repository.end(pull, PullState.MERGED)
    assert (pull.state, daemon.record.code) == (PullState.MERGED, "merged")
    assert daemon.record.ledger is not None
    assert set(daemon.record.ledger.landings) == {pull.sha}
    assert daemon.changed.count("merged") == 1
    assert set(daemon.workspaces.deleted) == {(BRANCH, pull.sha)}


@pytest.mark.parametrize("nth", range(0, 12, 4))
@pytest.mark.parametrize("fault", mostly_slow([Fault.LOST, Given(status=502, raw=b"down")]))
async def test_an_outage_at_any_request_of_feedback_tells_it_and_answers_once(
    daemon: Daemon, fault: Fault | Given, nth: int
) -> None:
    pull = await opened(daemon)
    thread = daemon.desk.repository.remark(pull, WRITER, "Why?")
    daemon.desk.vendor.fail_next(fault, times=_TRIES, skip=nth)
    with capture_logs():
        for _ in range(4):
            await looks_later(daemon, 2_000_000)
        assert len({event.key for event in given(daemon)}) == 1
        daemon.tell(given(daemon)[0])
        daemon.advance(1_000)
        (told,) = daemon.pulls.threads("1")
        daemon.pulls.take_reply("1", ThreadReply(thread_id=told, text="Because."))
        daemon.works()
        daemon.desk.vendor.fail_next(fault, times=_TRIES, skip=nth)
        for _ in range(4):
            await looks_later(daemon, 2_000_000)
    assert [comment.login for comment in thread.comments] == [WRITER, ME]
    assert daemon.record.failure is None


async def test_a_rate_limit_is_told_and_kept_to(daemon: Daemon) -> None:
    await opened(daemon)
    limit, wait_ms = next(iter(daemon.desk.vendor.throttles().values()))
    daemon.desk.vendor.fail_next(limit)
    with capture_logs():
        await looks_later(daemon)
        failure = daemon.pulls.shown()["1"].failure
        assert failure is not None
        assert failure.retry_after_ms == wait_ms
        sent = len(daemon.desk.vendor.requests)
        await looks_later(daemon, 1_000)
    assert len(daemon.desk.vendor.requests) == sent


async def test_an_archived_repository_is_told_and_nothing_is_opened(daemon: Daemon) -> None:
    daemon.works()
    daemon.desk.repository.archived = True
    with capture_logs():
        await daemon.looks()
    failure = daemon.record.failure
    assert failure is not None
    assert failure.hint
    assert daemon.opened() == []
    daemon.desk.repository.archived = False
    await looks_later(daemon, 2_000_000)
    assert len(daemon.opened()) == 1


async def test_a_head_whose_repository_was_deleted_is_left_to_a_person(
    desk: ForgeDesk, tmp_path: Path
) -> None:
    daemon = Daemon(desk, tmp_path, open="ready", land="auto")
    pull = await green(daemon)
    pull.head_deleted = True
    assert (await looks_later(daemon)).code == "not_ours"
    assert not lands(pull)


async def test_a_repository_that_was_renamed_has_nothing_landed_under_its_old_name(tmp_path: Path) -> None:
    """GitHub answers to the old name; somebody else may own it tomorrow."""
    desk = forge_desk("github")
    daemon = Daemon(desk, tmp_path, open="ready", land="auto")
    pull = await green(daemon)
    desk.repository.name = "octo-team/site"
    assert (await looks_later(daemon)).code == "not_ours"
    assert not lands(pull)


# --- feedback --------------------------------------------------------------------------------------------


async def test_feedback_is_recorded_and_offered_until_the_scheduler_takes_it(daemon: Daemon) -> None:
    pull = await opened(daemon)
    daemon.desk.repository.check(pull, "test", CheckState.FAILED, log=b"E assert 1 == 2\n")
    record = await looks_later(daemon)
    (first,) = given(daemon)
    assert (first.issue_id, first.summary) == ("1", f"ci at {pull.sha[:8]}")
    assert "check: test" in first.text
    assert record.ledger is not None
    assert record.ledger.turns == {FeedbackKind.CI: 1}
    assert (await looks_later(daemon)).code == "working"
    assert given(daemon) == [first, first], "it was not taken yet"

    daemon.tell(first)
    await looks_later(daemon)
    await looks_later(daemon)
    assert given(daemon) == [first, first]
    assert daemon.record.ledger is not None
    assert daemon.record.ledger.offered is None
    assert daemon.state.entry("1") is not None


@pytest.mark.parametrize("nth", range(1, 3))
async def test_feedback_is_told_once_wherever_the_daemon_dies(daemon: Daemon, nth: int) -> None:
    pull = await opened(daemon)
    daemon.desk.repository.check(pull, "test", CheckState.FAILED)
    daemon.wall_ms += 200_000
    daemon.journal.dies_at = daemon.journal.writes + nth
    with suppress(KilledError, BaseExceptionGroup):
        await daemon.looks()
    daemon.restart()
    daemon.pulls.wake()
    for _ in range(3):
        await looks_later(daemon)
    assert len({event.key for event in given(daemon)}) == 1
    assert daemon.record.ledger is not None
    assert len(daemon.record.ledger.told) == 1


async def test_feedback_on_a_commit_that_is_no_longer_the_head_is_withdrawn(daemon: Daemon) -> None:
    pull = await opened(daemon)
    daemon.desk.repository.check(pull, "test", CheckState.FAILED)
    await looks_later(daemon)
    daemon.desk.repository.push(BRANCH, pull)
    record = await looks_later(daemon)
    assert record.code == "foreign_head"
    assert record.ledger is not None
    assert (record.ledger.offered, record.ledger.told) == (None, ())
    assert len(given(daemon)) == 1


async def test_feedback_that_no_run_took_is_not_given_once_newer_work_is_pushed(daemon: Daemon) -> None:
    pull = await opened(daemon)
    daemon.desk.repository.check(pull, "test", CheckState.FAILED)
    await looks_later(daemon)
    daemon.posted.clear()
    daemon.put("1", state="Todo")
    daemon.tell(WakeAsked(reason="test"))
    daemon.works()
    await looks_later(daemon)  # the forge does not show the push yet
    assert given(daemon) == []
    pull.sha = daemon.head
    record = await looks_later(daemon)
    assert record.ledger is not None
    assert (record.ledger.offered, record.ledger.told) == (None, ())


async def answered_in_mid_run(daemon: Daemon) -> tuple[Pull, Thread, ThreadReply]:
    """A thread that the agent was told of, and its answer while its run goes on."""
    pull = await opened(daemon)
    thread = daemon.desk.repository.remark(pull, WRITER, "Why?")
    await looks_later(daemon)
    await looks_later(daemon)
    daemon.tell(given(daemon)[0])
    daemon.advance(1_000)
    (told,) = daemon.pulls.threads("1")
    reply = ThreadReply(thread_id=told, text="Because.")
    daemon.pulls.take_reply("1", reply)
    return pull, thread, reply


async def test_an_answer_is_posted_once_the_run_has_ended(daemon: Daemon) -> None:
    _, thread, _ = await answered_in_mid_run(daemon)
    await looks_later(daemon)
    assert len(thread.comments) == 1, "the run may still change its mind"
    daemon.works()
    await looks_later(daemon)
    await looks_later(daemon)
    assert [comment.body.splitlines()[-1] for comment in thread.comments] == ["Why?", "Because."]
    assert daemon.record.ledger is not None
    assert daemon.record.ledger.replies == ()
    assert daemon.pulls.threads("2") == ()


async def test_an_answer_that_was_posted_without_an_answer_of_the_forge_is_not_posted_again(
    daemon: Daemon,
) -> None:
    pull, thread, reply = await answered_in_mid_run(daemon)
    daemon.works()
    await looks_later(daemon)
    assert len(thread.comments) == 2
    thread.comments.pop()
    daemon.pulls.take_reply("1", reply)
    daemon.desk.vendor.fail_next(Fault.LOST, when=_POSTING[daemon.desk.kind])
    before = pull.updated
    with capture_logs():
        await looks_later(daemon)
    pull.updated = before  # nothing about the pull request itself shows it
    await looks_later(daemon)
    assert [comment.login for comment in thread.comments] == [WRITER, ME]
    assert daemon.record.ledger is not None
    assert daemon.record.ledger.replies == ()


async def test_an_answer_that_is_refused_stops_no_other_and_comes_with_the_next_feedback(
    daemon: Daemon,
) -> None:
    pull = await opened(daemon)
    repository = daemon.desk.repository
    threads = [repository.remark(pull, WRITER, "Why?", line=line) for line in (3, 4)]
    await looks_later(daemon)
    await looks_later(daemon)
    daemon.tell(given(daemon)[0])
    daemon.advance(1_000)
    for told in daemon.pulls.threads("1"):
        daemon.pulls.take_reply("1", ThreadReply(thread_id=told, text="Because."))
    daemon.works()
    pull.sha = daemon.head
    repository.check(pull, "test", CheckState.FAILED)
    refused = Given(status=403, body={"message": "It is locked"})
    daemon.desk.vendor.fail_next(refused, when=_POSTING[daemon.desk.kind])
    with capture_logs():
        record = await looks_later(daemon)
        assert [len(thread.comments) for thread in threads] == [1, 2]
        assert record.failure is not None
    record = await looks_later(daemon)
    assert [len(thread.comments) for thread in threads] == [2, 2]
    assert (record.code, record.failure) == ("feedback", None)


@pytest.mark.parametrize("fails", [False, True])
async def test_a_conflict_names_the_latest_commit_of_the_base_if_it_could_be_fetched(
    daemon: Daemon, *, fails: bool
) -> None:
    pull = await opened(daemon)
    pull.conflicts, pull.draft = True, False
    daemon.workspaces.fails = fails
    with capture_logs() as logs:
        for _ in range(5):
            await looks_later(daemon)
    assert (f"git merge {'c' * 40}" in given(daemon)[0].text) is not fails
    assert ("base_not_fetched" in {log["event"] for log in logs}) is fails


async def test_reviews_can_be_left_to_people(desk: ForgeDesk, tmp_path: Path) -> None:
    daemon = Daemon(desk, tmp_path, feedback={"review": False})
    pull = await opened(daemon)
    daemon.desk.repository.say(pull, WRITER, "Why?")
    await looks_later(daemon)
    assert given(daemon) == []
    assert not daemon.pulls.tells_reviews
    assert Daemon(desk, tmp_path).pulls.tells_reviews
