"""Redmine as it is: a real server, on the loopback interface in CI (as C in docs/trackers/README.md)."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from contract.desk import remote_kind
from harness.live_redmine import CheckedTransport, LiveRedmine
from harness.project import Project, until
from harness.real import require_redmine
from symphony.config import TrackerSettings
from symphony.domain import Category
from symphony.http import RateLimiters
from symphony.trackers import redmine as adapter
from symphony.trackers.base import TrackerError
from symphony.trackers.comments import UpsertOutcome, upsert_comment
from symphony.trackers.remote import RemoteTracker

pytestmark = pytest.mark.slow


@pytest.fixture
def redmine() -> Iterator[LiveRedmine]:
    begun = LiveRedmine.begin(*require_redmine())
    yield begun
    begun.end()


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path).create()


def tracker_of(
    redmine: LiveRedmine, key: str, *, project: str | None = None, transport: CheckedTransport | None = None
) -> RemoteTracker:
    settings = TrackerSettings(
        kind="redmine",
        provider={"base_url": redmine.address, "api_key": key, "project": project or redmine.project},
        active_states=("New", "In Progress"),
        terminal_states=("Closed", "Rejected"),
    )
    return remote_kind("redmine").connect(
        settings, {}, transport=transport or CheckedTransport(), rate_limiters=RateLimiters()
    )


async def failure_of(tracker: RemoteTracker) -> tuple[Category, int | None]:
    with pytest.raises(TrackerError) as caught:
        await tracker.fetch_issues_by_states(["New"])
    return caught.value.failure.category, caught.value.failure.status


@pytest.mark.asyncio
@pytest.mark.conformance("T-1", "T-3", "T-4", "T-6", "T-8")
async def test_issues_are_read_with_their_ranks_and_blockers(redmine: LiveRedmine) -> None:
    tracker = tracker_of(redmine, redmine.account("Developer"))
    low, urgent = redmine.issue("Low", priority_id=1), redmine.issue("Urgent", priority_id=4, tracker_id=2)
    blocked = redmine.issue("Blocked", description="*bold*")
    redmine.ask("PUT", f"/issues/{blocked}.json", issue={"status_id": 2})
    redmine.block(blocked, by=low)
    elsewhere = LiveRedmine.begin(redmine.address, redmine.admin_key)
    foreign = elsewhere.issue("Not ours")
    found = {issue.id: issue for issue in await tracker.fetch_issues_by_states(["new", "In Progress"])}
    assert set(found) == {low, urgent, blocked}
    assert (found[low].priority, found[urgent].priority) == (5, 2)
    assert found[urgent].labels == ("feature",)
    assert (found[blocked].description, found[blocked].state) == ("*bold*", "In Progress")
    assert found[blocked].created_at is not None
    assert not found[blocked].dispatchable
    assert [(each.id, each.state) for each in found[blocked].blocked_by] == [(low, "New")]
    redmine.ask("PUT", f"/issues/{low}.json", issue={"status_id": 5})
    redmine.ask("DELETE", f"/issues/{urgent}.json")
    now = {
        issue.id: issue for issue in await tracker.fetch_issues_by_ids([low, urgent, blocked, foreign, "7x"])
    }
    assert set(now) == {low, blocked}
    assert now[blocked].dispatchable
    assert now[blocked].blocked_by[0].state == "Closed"
    elsewhere.end()


@pytest.mark.asyncio
async def test_many_issues_come_in_pages_and_what_did_not_change_is_not_sent_again(
    redmine: LiveRedmine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapter, "PAGE", 5)
    transport = CheckedTransport()
    tracker = tracker_of(redmine, redmine.account("Developer"), transport=transport)
    wanted = {redmine.issue(f"Issue {number}", description="words " * 50) for number in range(12)}
    assert {issue.id for issue in await tracker.fetch_issues_by_states(["New"])} == wanted
    transport.statuses.clear()
    assert {issue.id for issue in await tracker.fetch_issues_by_states(["New"])} == wanted
    assert set(transport.statuses) == {304}
    redmine.ask("PUT", f"/issues/{min(wanted, key=int)}.json", issue={"subject": "New words"})
    assert "New words" in {issue.title for issue in await tracker.fetch_issues_by_states(["New"])}


@pytest.mark.asyncio
@pytest.mark.conformance("T-9")
async def test_keys_and_names_that_are_wrong_are_failures_also_where_everybody_may_read(
    redmine: LiveRedmine,
) -> None:
    redmine.issue("For everybody")
    key = redmine.account("Developer")
    assert await failure_of(tracker_of(redmine, "0" * 40)) == (Category.TRACKER_STATUS, 401)
    assert await failure_of(tracker_of(redmine, key, project="no-such-project")) == (
        Category.TRACKER_STATUS,
        404,
    )
    with pytest.raises(TrackerError, match="no state 'Doing'") as caught:
        await tracker_of(redmine, key).fetch_issues_by_states(["New", "Doing"])
    assert "In Progress" in str(caught.value.failure.hint)
    seen = await tracker_of(redmine, key).account_info()
    assert (seen.scope, seen.states[:2]) == (redmine.project, ("New", "In Progress"))


@pytest.mark.asyncio
@pytest.mark.conformance("T-12")
async def test_a_comment_is_written_once_found_again_and_edited_in_place(redmine: LiveRedmine) -> None:
    key = redmine.account("Developer")
    issue_id = redmine.issue("Has a malformed skill")
    redmine.ask("PUT", f"/issues/{issue_id}.json", issue={"notes": "A person wrote this.", "priority_id": 4})

    async def upsert(fingerprint: str, body: str) -> UpsertOutcome:
        fresh = tracker_of(redmine, key)  # as after a restart
        done = await upsert_comment(
            fresh, issue_id, kind="skills", scope="s", fingerprint=fingerprint, body=body
        )
        return done.outcome

    hostile = "```text\n@here #12 {{include(x)}}\n--> <!-- x --> \U0001f600\n```"
    outcomes = [await upsert("a", hostile), await upsert("a", hostile), await upsert("b", "Mended.")]
    assert outcomes == [UpsertOutcome.CREATED, UpsertOutcome.UNCHANGED, UpsertOutcome.EDITED]
    theirs, ours = redmine.notes(issue_id)
    assert theirs == "A person wrote this."
    assert ours.splitlines()[-1] == "Mended."


@pytest.mark.asyncio
async def test_a_note_that_may_not_be_edited_is_a_matter_of_rights(redmine: LiveRedmine) -> None:
    tracker = tracker_of(redmine, redmine.account("Reporter"))
    issue_id = redmine.issue("Has a note")
    made = await tracker.put_comment(issue_id, "first", key="k", comment_id=None)
    with pytest.raises(TrackerError) as caught:
        await tracker.put_comment(issue_id, "second", key="k", comment_id=made)
    assert caught.value.failure.status == 403


@pytest.mark.asyncio
async def test_a_move_is_read_back_since_a_forbidden_one_is_taken_and_not_made(redmine: LiveRedmine) -> None:
    tracker = tracker_of(redmine, redmine.account("Developer"))
    issue_id = redmine.issue("Wanders")
    assert await tracker.move_issue(issue_id, "in progress") == "In Progress"
    with pytest.raises(TrackerError, match="still in 'In Progress'") as caught:
        await tracker.move_issue(issue_id, "Rejected")
    assert "Resolved" in str(caught.value.failure.hint)
    assert "Rejected" not in str(caught.value.failure.hint)
    assert redmine.show(issue_id)["status"]["name"] == "In Progress"


@pytest.mark.conformance("T-11", "T-12")
def test_a_daemon_works_on_an_issue_reports_once_and_keeps_its_report(
    redmine: LiveRedmine, project: Project
) -> None:
    key = redmine.account("Developer")
    bye = "Done, on a branch."
    closing = {"issue": {"status_id": 5, "notes": bye}}

    def work(issue_id: str, *steps: dict[str, str]) -> None:
        call = {"method": "PUT", "path": f"/issues/{issue_id}.json", "body": closing}
        script = json.dumps([[*steps, {"tool": "redmine_api", "arguments": call}]])
        wanted = {"description": f"```scripted\n{script}\n```", "status_id": 2}
        redmine.ask("PUT", f"/issues/{issue_id}.json", issue=wanted)

    def reports(issue_id: str) -> list[str]:
        return [note for note in redmine.notes(issue_id) if ".symphony/skills/broken/SKILL.md" in note]

    def closed_at(issue_id: str) -> int | None:
        """The number of the note with which the agent closed it."""
        notes = ((entry["id"], entry["notes"] or "") for entry in redmine.show(issue_id)["journals"])
        return next((number for number, note in notes if note.endswith(bye)), None)

    project.write(".symphony/skills/broken/SKILL.md", "---\ndescription: No name.\n---\n")
    project.workflow(
        tracker={
            "kind": "redmine",
            "provider": {
                "base_url": redmine.address,
                "api_key": "$REDMINE_API_KEY",
                "project": redmine.project,
            },
            "active_states": ["In Progress"],
            "terminal_states": ["Closed", "Rejected"],
        },
        polling={"interval_ms": 500},
    )
    project.commit("Add a workflow and a malformed skill")
    project.environment["REDMINE_API_KEY"] = key
    first, waits = redmine.issue("Do it"), redmine.issue("Wait for it")
    work(first, {"write": "done.txt", "text": "done"}, {"commit": "Do it"})
    work(waits)
    redmine.block(waits, by=first)
    with project.daemon() as daemon:
        until(lambda: closed_at(waits), daemon.log.read_text)
        until(lambda: (reports(first) and reports(waits)) or None, daemon.log.read_text)
        daemon.wait_for("workspace_removed", issue_identifier=f"RM-{first}")
    assert project.git("show", f"symphony/RM-{first}:done.txt") == "done"
    ends = [closed_at(first), closed_at(waits)]
    assert ends == sorted(ends, key=lambda number: number or 0), "what blocks is done first"
    (report,) = reports(first)
    assert len(reports(waits)) == 1

    project.git("checkout", "--quiet", f"symphony/RM-{first}")
    project.write(".symphony/skills/another/SKILL.md", "---\nname: another\n---\n")
    project.commit("Add another malformed skill")
    project.git("checkout", "--quiet", "main")
    work(first)
    done = project.symphony("run", "--once")
    assert done.returncode == 0, done.stderr
    (edited,) = reports(first)
    assert ".symphony/skills/another/SKILL.md" in edited
    assert ".symphony/skills/another/SKILL.md" not in report
    assert key not in done.stderr + daemon.log.read_text()
