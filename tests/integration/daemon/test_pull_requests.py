"""A real daemon, a real git remote and a forge on the loopback interface: one pull request, always."""

import json
import shutil
import signal
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from contract.forges import KINDS
from contract.repository import WRITER
from harness.forge_remote import at
from harness.project import DEADLINE_S, Project, until
from harness.scraping import scrape
from symphony.domain import CheckState, PullState, ReviewState

BRANCH = "symphony/SYM-1"
WORK: list[dict[str, Any]] = [
    {"write": "work.txt", "text": "work\n"},
    {"commit": "Work"},
    {"say": "I did it, @ann."},
    {"tool": "board_move", "arguments": {"state": "Human Review"}},
]


@pytest.fixture
def project(tmp_path: Path) -> Project:
    made = Project(root=tmp_path).create()
    made.issue("SYM-1", WORK, title="Write work")
    return made


@pytest.mark.parametrize("kind", KINDS)
def test_delivered_work_gets_a_pull_request(project: Project, kind: str) -> None:
    with at(project, kind) as remote:
        with project.daemon() as daemon:
            daemon.wait_for("pull_request_opened", issue_identifier="SYM-1")
        (pull,) = remote.opened()
        assert (pull.branch, pull.base, pull.draft) == (BRANCH, "main", True)
        assert pull.sha == project.git("rev-parse", BRANCH)
        assert "I did it, `@`ann." in pull.body
        assert remote.desk.vendor.secret not in daemon.log.read_text()


def test_run_once_opens_it_before_it_ends(project: Project) -> None:
    with at(project, "github") as remote:
        done = project.once()
        assert done.returncode == 0, done.stderr
        assert len(remote.opened()) == 1


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize(
    ("kind", "when", "nth"),
    [
        *(("github", "", nth) for nth in range(1, 5)),
        ("gitlab", "POST", 1),
        ("forgejo", "POST", 1),
    ],
)
def test_a_daemon_that_is_killed_at_a_request_leaves_one(
    project: Project, kind: str, when: str, nth: int, moment: str
) -> None:
    with at(project, kind, labels=["agent"]) as remote:
        remote.kills = when, nth, moment
        with project.daemon() as daemon:
            remote.victim = daemon
            assert daemon.end() == -signal.SIGKILL
        with project.daemon() as daemon:
            until(
                lambda: (remote.opened() and remote.opened()[0].labels == ["agent"]) or None,
                daemon.log.read_text,
            )
        assert [pull.labels for pull in remote.opened()] == [["agent"]]


@pytest.mark.slow
def test_a_stranger_s_is_left_and_ours_is_found_again_without_a_journal(project: Project) -> None:
    with at(project, "github") as remote:
        theirs = remote.desk.repository.open(BRANCH)
        theirs.head_repo, theirs.login = "mallory/website", "mallory"
        with project.daemon() as daemon:
            daemon.wait_for("pull_request_opened", issue_identifier="SYM-1")
        assert [pull.head_repo for pull in remote.opened()] == ["mallory/website", None]
        shutil.rmtree(project.state_dir)
        assert project.symphony("issue", "move", "SYM-1", "Todo").returncode == 0
        with project.daemon() as daemon:
            daemon.wait_for("pull_request_adopted", issue_identifier="SYM-1", ours=True)
        assert len(remote.opened()) == 2


def test_a_webhook_of_the_forge_is_worth_a_look_although_the_next_is_an_hour_away(
    project: Project,
) -> None:
    project.environment["HOOK_SECRET"] = "correct-horse-battery"
    more: dict[str, Any] = {"poll_interval_ms": 3_600_000, "webhook_secret": "$HOOK_SECRET", "open": "ready"}
    with at(project, "gitlab", **more) as remote, project.daemon("--port", "0") as daemon:
        port = daemon.wait_for("http_serving")["port"]
        daemon.wait_for("pull_request_judged", code="checks_not_started")
        (pull,) = remote.opened()
        remote.desk.repository.check(pull, "test", CheckState.PENDING)

        def deliver(secret: str) -> int:
            address, headers = f"http://127.0.0.1:{port}/webhooks/forge", {"x-gitlab-token": secret}
            given: dict[str, Any] = {"json": {"object_kind": "pipeline"}, "headers": headers}
            return httpx.post(address, **given, trust_env=False, timeout=DEADLINE_S).status_code

        assert (deliver("wrong"), deliver("correct-horse-battery")) == (401, 202)
        daemon.wait_for("pull_request_judged", code="checks_pending")
        assert "correct-horse-battery" not in daemon.log.read_text()


def test_a_merge_by_a_person_is_an_outcome_and_moves_the_issue(project: Project) -> None:
    with at(project, "gitlab", merged_state="Done", poll_interval_ms=200, open="ready") as remote:
        with project.daemon() as daemon:
            daemon.wait_for("pull_request_opened", issue_identifier="SYM-1")
            (pull,) = remote.opened()
            remote.desk.repository.check(pull, "test", CheckState.PENDING)
            daemon.wait_for("pull_request_judged", code="checks_pending")
            (row,) = json.loads(project.symphony("status", "--json").stdout)["ready"]
            assert (row["pull_request"]["number"], row["pull_request"]["code"]) == (1, "checks_pending")
            assert row["pull_request_url"] == row["pull_request"]["url"]
            assert scrape(project).value("symphony_pull_requests", code="checks_pending") == 1
            shown = json.loads(project.symphony("pr", "SYM-1", "--json").stdout)
            assert (shown["number"], shown["code"]) == (1, "checks_pending")
            remote.desk.repository.end(pull, PullState.MERGED)
            daemon.wait_for("pull_request_ended", state="merged")
            until(lambda: project.written_state("SYM-1") == "Done" or None, daemon.log.read_text)
            daemon.wait_for("workspace_removed")
            daemon.wait_for("branch_deleted", commit=pull.sha)
        for place in (project.repo, remote.bare):
            assert project.git("branch", "--list", BRANCH, cwd=place) == ""
        with closing(sqlite3.connect(project.state_dir / "journal.db")) as journal:
            (record,) = (json.loads(text) for (text,) in journal.execute("SELECT record FROM runs"))
        assert record["merged"] is True
        explained = json.loads(project.symphony("explain", "SYM-1", "--json").stdout)
        assert explained["result"]["pull_request"]["state"] == "merged", "the files know it, too"
        assert explained["result"]["look"] == ["symphony diff SYM-1"], "its branch is deleted"
        with closing(sqlite3.connect(project.state_dir / "journal.db")) as journal:
            told = journal.execute("SELECT message FROM events WHERE event = 'pull_request_judged'")
            assert "(merged)" in [*told][-1][0]


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_settled_is_landed(project: Project, kind: str) -> None:
    settings: dict[str, Any] = {"poll_interval_ms": 200, "checks_grace_ms": 1}
    with at(project, kind, land="auto", open="ready", **settings) as remote, project.daemon() as daemon:
        daemon.wait_for("pull_request_opened", issue_identifier="SYM-1")
        (pull,) = remote.opened()
        remote.desk.repository.review(pull, WRITER, ReviewState.APPROVED)
        remote.desk.repository.check(pull, "test", CheckState.PASSED)
        assert daemon.wait_for("pull_request_landing")["commit"] == pull.sha
        remote.desk.repository.end(pull, PullState.MERGED)
        daemon.wait_for("pull_request_ended", state="merged")
