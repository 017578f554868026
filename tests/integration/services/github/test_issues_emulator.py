"""GitHub by an emulator of other people, behind a gate that refuses requests that are not valid."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from contract.desk import remote_kind
from contract.schemas import NO_SCHEMAS
from contract.served import served
from harness.emulated_github import OWNER, REPO, SECRET, EmulatedGithub, emulated_github
from harness.project import Project, until
from harness.real import require_emulate
from symphony.config import TrackerSettings
from symphony.http import RateLimiters
from symphony.trackers.comments import UpsertOutcome, upsert_comment
from symphony.trackers.remote import RemoteTracker

pytestmark = pytest.mark.slow

TODO, DOING, DONE = "status:todo", "status:in-progress", "status:done"
ACTIVE, TERMINAL = ("Todo", "In Progress"), ("Done",)
FULL_PAGE = 100


@pytest.fixture
def github(tmp_path: Path) -> Iterator[EmulatedGithub]:
    folder = tmp_path / "emulator"
    folder.mkdir()
    with emulated_github(require_emulate(), folder) as begun:
        yield begun


@pytest.fixture
def provider(github: EmulatedGithub) -> Iterator[dict[str, Any]]:
    with served(github) as settings:
        yield settings


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path).create()


def tracker_of(provider: dict[str, Any]) -> RemoteTracker:
    settings = TrackerSettings(
        kind="github", provider=provider, active_states=ACTIVE, terminal_states=TERMINAL
    )
    return remote_kind("github").connect(settings, {"GITHUB_TOKEN": SECRET}, rate_limiters=RateLimiters())


def ask_for_what_is_not_there(github: EmulatedGithub) -> None:
    with served(github) as provider:
        answer = httpx.get(
            f"{provider['api_url']}/repos/{OWNER}/{REPO}/issues?state=ajar",
            headers={"authorization": f"Bearer {SECRET}"},
            timeout=60,
        )
        assert answer.status_code == 502


def test_the_gate_refuses_what_the_description_does_not_know(github: EmulatedGithub) -> None:
    if not github.validates:
        pytest.skip(NO_SCHEMAS)
    with pytest.raises(AssertionError, match="state=ajar"):
        ask_for_what_is_not_there(github)
    assert github.received == 0, "the emulator was not asked"


@pytest.mark.asyncio
@pytest.mark.conformance("T-1", "T-3", "T-6")
async def test_all_pages_are_read(github: EmulatedGithub, provider: dict[str, Any]) -> None:
    numbers = [github.issue(f"Number {number}", TODO, "Bug") for number in range(FULL_PAGE + 1)]
    github.issue("Has no label")
    tracker = tracker_of(provider)
    found = await tracker.fetch_issues_by_states(ACTIVE)
    assert [issue.id for issue in found] == numbers
    assert {(issue.state, issue.labels) for issue in found} == {("Todo", ("status:todo", "bug"))}
    assert [issue.id for issue in await tracker.fetch_issues_by_ids([numbers[-1], "999"])] == [numbers[-1]]
    sighting = await tracker.account_info()
    assert (sighting.login, sighting.scope) == ("symphony-bot", f"{OWNER}/{REPO}")


@pytest.mark.asyncio
@pytest.mark.conformance("T-12")
async def test_a_comment_is_written_once_found_on_the_second_page_and_edited_in_place(
    github: EmulatedGithub, provider: dict[str, Any]
) -> None:
    issue_id = github.issue("Has a malformed skill", TODO)
    for number in range(FULL_PAGE):
        github.ask("POST", f"/issues/{issue_id}/comments", body=f"Remark {number}")

    async def upsert(fingerprint: str, body: str) -> UpsertOutcome:
        fresh = tracker_of(provider)  # as after a restart
        done = await upsert_comment(
            fresh, issue_id, kind="skills", scope="s", fingerprint=fingerprint, body=body
        )
        return done.outcome

    hostile = "```text\n@here #12 {{include(x)}}\n--> <!-- x --> \U0001f600\n```"
    assert await upsert("a", hostile) is UpsertOutcome.CREATED
    (made,) = github.comments(issue_id)
    assert await upsert("a", hostile) is UpsertOutcome.UNCHANGED
    assert await upsert("b", "Mended.") is UpsertOutcome.EDITED
    (edited,) = github.comments(issue_id)
    assert (edited["id"], edited["user"]["login"]) == (made["id"], "symphony-bot")
    assert hostile in made["body"]
    assert "Mended." in edited["body"]


@pytest.mark.asyncio
async def test_a_move_takes_the_other_status_labels_away_and_no_more(
    github: EmulatedGithub, provider: dict[str, Any]
) -> None:
    issue_id = github.issue("Wanders", TODO, "bug")
    tracker = tracker_of(provider)
    assert await tracker.move_issue(issue_id, "in progress") == "In Progress"
    assert github.labels(issue_id) == ["bug", DOING]
    assert await tracker.move_issue(issue_id, "closed") == "closed"
    assert await tracker.fetch_issues_by_states(ACTIVE) == ()
    assert await tracker.move_issue(issue_id, "open") == "open"
    assert github.labels(issue_id) == ["bug"]


@pytest.mark.conformance("T-8", "T-12")
def test_a_daemon_works_on_an_issue_of_the_second_page_reports_once_and_keeps_its_report(
    github: EmulatedGithub, provider: dict[str, Any], project: Project
) -> None:
    def script(*steps: dict[str, str], number: int) -> str:
        path = f"/repos/{OWNER}/{REPO}/issues/{number}"
        call = {"method": "PATCH", "path": path, "body": {"state": "closed", "labels": [DONE]}}
        turns = [[*steps, {"tool": "github_api", "arguments": call}]]
        return f"```scripted\n{json.dumps(turns)}\n```"

    def closed(issue_id: str) -> bool | None:
        return github.ask("GET", f"/issues/{issue_id}")["state"] == "closed" or None

    def reports() -> list[dict[str, Any]]:
        found = github.comments(issue_id)
        return [each for each in found if ".symphony/skills/broken/SKILL.md" in each["body"]]

    project.write(".symphony/skills/broken/SKILL.md", "---\ndescription: No name.\n---\n")
    tracker = {
        "kind": "github",
        "provider": provider,
        "active_states": ACTIVE,
        "terminal_states": TERMINAL,
    }
    project.workflow(tracker=tracker, polling={"interval_ms": 500})
    project.commit("Add a workflow and a malformed skill")
    project.environment["GITHUB_TOKEN"] = SECRET
    for number in range(FULL_PAGE):
        github.issue(f"Contradicts itself {number}", TODO, DOING)
    work = [{"write": "done.txt", "text": "done"}, {"commit": "Do it"}]
    issue_id = github.issue("Do it", TODO, body=script(*work, number=FULL_PAGE + 1))
    assert issue_id == str(FULL_PAGE + 1)
    with project.daemon() as daemon:
        until(lambda: closed(issue_id), daemon.log.read_text)
        until(lambda: reports() or None, daemon.log.read_text)
        daemon.wait_for("workspace_removed", issue_identifier=f"GH-{issue_id}")
        daemon.signal(signal.SIGTERM)
        assert daemon.end() == 0
    runs = {each["issue_id"] for each in daemon.events() if each["event"] == "run_started"}
    assert runs == {issue_id}, "an issue that contradicts itself is held back"
    assert project.git("show", f"symphony/GH-{issue_id}:done.txt") == "done"
    assert github.labels(issue_id) == [DONE]
    (report,) = reports()

    project.git("checkout", "--quiet", f"symphony/GH-{issue_id}")
    project.write(".symphony/skills/another/SKILL.md", "---\nname: another\n---\n")
    project.commit("Add another malformed skill")
    project.git("checkout", "--quiet", "main")
    body = script(number=FULL_PAGE + 1)
    github.ask("PATCH", f"/issues/{issue_id}", state="open", labels=[TODO], body=body)
    done = project.symphony("run", "--once")
    assert done.returncode == 0, done.stderr
    (edited,) = reports()
    assert edited["id"] == report["id"]
    assert ".symphony/skills/another/SKILL.md" in edited["body"]
    assert ".symphony/skills/another/SKILL.md" not in report["body"]
    assert closed(issue_id)
    assert SECRET not in done.stderr + daemon.log.read_text()
