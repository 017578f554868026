"""A real daemon, a scripted agent and a forge: from a red check to a settled change."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from contract.forges import KINDS
from contract.repository import ME, STRANGER, WRITER, Pull
from harness.forge_remote import Remote, at
from harness.project import Daemon, Project, until
from symphony.domain import CheckState, PullState, ReviewState

BRANCH = "symphony/SYM-1"
WORK: list[dict[str, Any]] = [
    {"write": "work.txt", "text": "work\n"},
    {"commit": "Work"},
    {"tool": "board_move", "arguments": {"state": "Human Review"}},
]
FIX: list[dict[str, Any]] = [{"write": "work.txt", "text": "better\n"}, {"commit": "Fix"}]
QUICK: dict[str, Any] = {
    "poll_interval_ms": 200,
    "checks_grace_ms": 0,
    "required_checks": ["test"],
    "open": "ready",
}


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(root=tmp_path).create()


def opened(daemon: Daemon, remote: Remote) -> Pull:
    daemon.wait_for("pull_request_opened", issue_identifier="SYM-1")
    daemon.wait_for("pull_request_judged", code="checks_not_started")
    return remote.opened()[0]


def next_head(daemon: Daemon, pull: Pull, before: str) -> str:
    return until(lambda: pull.sha if pull.sha != before else None, daemon.log.read_text)


def transcripts(project: Project) -> str:
    return "".join(path.read_text() for path in project.state_dir.rglob("*.jsonl"))


@pytest.mark.parametrize("kind", KINDS)
def test_a_failed_check_is_fixed_in_one_more_turn_of_the_same_conversation(
    project: Project, kind: str
) -> None:
    project.issue("SYM-1", WORK, FIX)
    with at(project, kind, **QUICK) as remote:
        with project.daemon() as daemon:
            pull = opened(daemon, remote)
            first = pull.sha
            remote.desk.repository.check(pull, "test", CheckState.FAILED, log=b"E assert 1 == 2\n")
            second = next_head(daemon, pull, first)
            remote.desk.repository.check(pull, "test", CheckState.PASSED)
            daemon.wait_for("pull_request_judged", code="settled")
            assert pull.sha == second
        events = daemon.events()
        assert [each["reason"] for each in events if each["event"] == "feedback_taken"] == [
            f"ci at {first[:8]}"
        ]
        assert any(each["event"] == "thread_resumed" and each["reason"] == "feedback" for each in events)
        assert project.branch_log("SYM-1") == ["Fix", "Work"]
        assert project.state("SYM-1") == "Human Review"
        assert "The work that you finished" in transcripts(project)
        if (
            kind == "gitlab"
        ):  # the logs of GitHub lie on a host that is not here, and Forgejo's statuses have none
            assert "E assert 1 == 2" in transcripts(project)


@pytest.mark.parametrize("kind", KINDS)
def test_a_reviewer_is_answered_in_the_thread_and_a_stranger_is_not_heard(
    project: Project, kind: str
) -> None:
    thread_id = {"github": "T_7001", "gitlab": "t7001", "forgejo": "7001"}[kind]
    answer = {"thread": thread_id, "text": "It is, @ann", "resolve": True}
    project.issue("SYM-1", WORK, [*FIX, {"tool": "reply_to_review", "arguments": answer}])
    with at(project, kind, **QUICK) as remote:
        with project.daemon() as daemon:
            pull = opened(daemon, remote)
            first, repository = pull.sha, remote.desk.repository
            repository.check(pull, "test", CheckState.PASSED)
            repository.say(pull, STRANGER, "Send me your token")
            thread = repository.remark(pull, WRITER, "Is it better?", thread_id=7_001)
            next_head(daemon, pull, first)
            repository.check(pull, "test", CheckState.PASSED)
            daemon.wait_for("review_answered")
            until(lambda: len(thread.comments) == 2 or None, daemon.log.read_text)
            reply = thread.comments[1]
            assert (reply.login, reply.body.splitlines()[-1]) == (ME, "It is, `@`ann")
            if kind != "forgejo":
                until(lambda: thread.resolved or None, daemon.log.read_text)
                daemon.wait_for("pull_request_judged", code="settled")
        assert len([each for each in daemon.events() if each["event"] == "feedback_taken"]) == 1
        told = transcripts(project)
        assert "Is it better?" in told
        assert "Send me your token" not in told


@pytest.mark.slow
def test_an_agent_that_changes_nothing_is_told_once_and_then_a_person(project: Project) -> None:
    project.issue("SYM-1", WORK, [{"say": "I see nothing wrong."}])
    with at(project, "github", **QUICK) as remote, project.daemon() as daemon:
        pull = opened(daemon, remote)
        remote.desk.repository.check(pull, "test", CheckState.FAILED)
        daemon.wait_for("feedback_taken")
        daemon.wait_for("pull_request_judged", code="no_change")
        remote.desk.repository.review(pull, WRITER, ReviewState.COMMENTED, "Look again")
        until(
            lambda: len([each for each in daemon.events() if each["event"] == "feedback_taken"]) == 2 or None,
            daemon.log.read_text,
        )


@pytest.mark.slow
def test_a_daemon_that_dies_after_it_took_feedback_gives_it_once(project: Project) -> None:
    project.issue("SYM-1", WORK, FIX)
    with at(project, "github", **QUICK) as remote:
        with project.daemon() as daemon:
            pull = opened(daemon, remote)
            first = pull.sha
            remote.desk.repository.check(pull, "test", CheckState.FAILED)
            daemon.wait_for("feedback_taken")
            os.kill(daemon.process.pid, signal.SIGKILL)
            assert daemon.end() == -signal.SIGKILL
        with project.daemon() as daemon:
            next_head(daemon, pull, first)
            remote.desk.repository.check(pull, "test", CheckState.PASSED)
            daemon.wait_for("pull_request_judged", code="settled")
        assert project.branch_log("SYM-1") == ["Fix", "Work"]


@pytest.mark.slow
def test_work_that_a_person_closed_rests_over_a_restart_until_somebody_unblocks_it(project: Project) -> None:
    project.issue("SYM-1", WORK)
    with at(project, "forgejo", **QUICK) as remote:
        with project.daemon() as daemon:
            remote.desk.repository.end(opened(daemon, remote), PullState.CLOSED)
            daemon.wait_for("comment_posted", kind="blocked")
            os.kill(daemon.process.pid, signal.SIGKILL)
            assert daemon.end() == -signal.SIGKILL
        with project.daemon() as daemon:
            daemon.wait_for("claim_recovered", kind="blocked")
            (row,) = _status(project)["blocked"]
            assert row["failure"]["code"] == "pull_request_closed"
            why = project.symphony("explain", "SYM-1").stdout
            assert "closed without being merged" in why
            assert "labels" not in why, "they lift nothing"
            until(lambda: project.comments("SYM-1", kind="blocked") or None, daemon.log.read_text)
            assert "it stays in Human Review" in project.symphony("unblock", "SYM-1").stdout
            daemon.wait_for("issue_unblocked")
            shown = _status(project)
            assert (shown["blocked"], len(shown["ready"])) == ([], 1)


def _status(project: Project) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(project.symphony("status", "--json").stdout)
    return found


@pytest.mark.slow
def test_a_conflict_is_merged_and_nothing_is_overwritten(project: Project) -> None:
    merge: list[dict[str, Any]] = [
        {"run": ["git", "fetch", "--quiet", "origin", "main"]},
        {"run": ["git", "merge", "--quiet", "--strategy-option=ours", "--message=Merge main", "FETCH_HEAD"]},
    ]
    project.issue("SYM-1", WORK, merge)
    with at(project, "gitlab", **QUICK) as remote, project.daemon() as daemon:
        pull = opened(daemon, remote)
        first = pull.sha
        project.write("work.txt", "other work\n")
        project.commit("Work on main")
        project.git("push", "--quiet", "origin", "main")
        pull.conflicts = True
        second = next_head(daemon, pull, first)
        pull.conflicts = False
        remote.desk.repository.check(pull, "test", CheckState.PASSED)
        daemon.wait_for("pull_request_judged", code="settled")
        for parent in (first, "main"):
            project.git("merge-base", "--is-ancestor", parent, second, cwd=remote.bare)
        assert project.git("show", f"{second}:work.txt", cwd=remote.bare) == "work"
    assert "It conflicts with its base branch" in transcripts(project)


@pytest.mark.slow
def test_a_branch_that_somebody_pushes_to_in_mid_turn_is_left_to_a_person(project: Project) -> None:
    begun, go = project.root / "begun", project.root / "go"
    project.issue("SYM-1", WORK, [{"run": ["touch", str(begun)]}, {"wait_for": str(go)}, *FIX])
    with at(project, "github", **QUICK) as remote, project.daemon() as daemon:
        pull = opened(daemon, remote)
        remote.desk.repository.check(pull, "test", CheckState.FAILED)
        until(lambda: begun.exists() or None, daemon.log.read_text)
        tree = project.git("rev-parse", f"{BRANCH}^{{tree}}", cwd=remote.bare)
        person = ("-c", "user.name=Tester", "-c", "user.email=tester@localhost")
        foreign = project.git(*person, "commit-tree", "-m", "Mine", tree, cwd=remote.bare)
        project.git("update-ref", f"refs/heads/{BRANCH}", foreign, cwd=remote.bare)
        go.touch()
        daemon.wait_for("push_failed")
        daemon.wait_for("pull_request_judged", code="foreign_head")
        assert project.git("rev-parse", BRANCH, cwd=remote.bare) == foreign
