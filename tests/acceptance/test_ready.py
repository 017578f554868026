"""Promise: finished work is shown in a list and on its issue, until a person has seen to it."""

import json
import shutil
from typing import Any

from harness.project import Project, until

REVIEW = {"tool": "board_move", "arguments": {"state": "Human Review"}}
COMMENT = {"tool": "board_comment", "arguments": {"body": "Done, please look."}}
WORK: list[dict[str, Any]] = [{"write": "a", "text": "a\nb\n"}, {"commit": "A"}]
SAID = {"say": "I have written a."}


def document(project: Project, *arguments: str) -> dict[str, Any]:
    done = project.symphony(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def ready(project: Project) -> dict[str, dict[str, Any]]:
    return {row["issue_identifier"]: row for row in document(project, "status")["ready"]}


def told(project: Project, words: str) -> bool:
    """Whether a comment of the first issue has these words."""
    return any(words in text for text in project.comments("SYM-1"))


def orders(project: Project, name: str) -> list[str]:
    """What each order about an issue is refused with."""
    told = [(verb, name) for verb in ("stop", "retry", "unblock")] + [("answer", name, "yes")]
    refused = []
    for words in told:
        done = project.symphony(*words)
        assert done.returncode == 1, done.stdout
        refused.append(done.stderr)
    return refused


def test_work_is_ready_until_a_person_closes_the_issue_and_outlasts_a_restart(project: Project) -> None:
    project.workflow()
    project.issue("SYM-1", [*WORK, SAID, REVIEW], title="Write a")
    project.issue("SYM-2", [*WORK, COMMENT, REVIEW])
    with project.daemon() as daemon:
        for name in ("SYM-1", "SYM-2"):
            daemon.wait_for("work_ready", issue_identifier=name)
        row = ready(project)["SYM-1"]
        assert [row[name] for name in ("title", "state", "turns")] == ["Write a", "Human Review", 1]
        work = {"commits": 1, "files_changed": 1, "insertions": 2, "deletions": 0}
        assert (row["delivered"]["branch"], row["delivered"]["work"]) == ("symphony/SYM-1", work)
        assert (row["summary"], row["delivered"]["push"]) == ("I have written a.", None)
        told = document(project, "explain", "SYM-1")
        assert (told["status"], told["explanation"]["code"]) == ("ready", "ready")
        assert [run["outcome"] for run in told["runs"]] == ["succeeded"]
        assert "git diff HEAD...symphony/SYM-1" in told["explanation"]["advice"]
        assert all("Human Review" in refused and "Todo" in refused for refused in orders(project, "SYM-1"))

        daemon.wait_for("comment_posted", issue_identifier="SYM-1")
    assert [text.count("symphony diff SYM-1") for text in project.comments("SYM-1")] == [1]
    assert "Done, please look." in "".join(project.comments("SYM-2"))
    assert len(project.comments("SYM-2")) == 1, "its agent has told already"
    assert document(project, "status")["source"] == "files"
    assert set(ready(project)) == {"SYM-1", "SYM-2"}, "the files say so without a daemon"

    with project.daemon() as daemon:
        daemon.wait_for("serving")
        until(lambda: set(ready(project)) == {"SYM-1", "SYM-2"} or None, daemon.log.read_text)
        assert project.symphony("issue", "move", "SYM-1", "Done").returncode == 0
        (project.repo / ".symphony/issues/SYM-2.md").unlink()
        shutil.rmtree(project.repo / ".symphony/issues/SYM-2")
        for name in ("SYM-1", "SYM-2"):
            daemon.wait_for("review_ended", issue_identifier=name)
        assert ready(project) == {}
        assert document(project, "explain", "SYM-1")["status"] == "ended"
        gone = document(project, "explain", "SYM-2")
        assert (gone["status"], [run["branch"] for run in gone["runs"]]) == ("ended", ["symphony/SYM-2"])
    assert len(project.comments("SYM-1")) == 1
    assert project.branch_log("SYM-2") == ["A"], "the branch of a deleted issue stays"


def test_the_end_of_a_run_says_where_the_work_is_and_who_is_asked_for(project: Project) -> None:
    project.workflow(workspace={"push": "origin"})
    project.issue("SYM-1", [*WORK, REVIEW])
    project.issue("SYM-2", [*WORK, {"ask_input": "Which colour?"}])
    done = project.symphony("run", "--once")
    assert done.returncode == 1
    lines = {line.partition(":")[0]: line for line in done.stderr.splitlines() if ": 1 commit on" in line}
    assert "symphony diff SYM-1" in lines["SYM-1"]
    assert "not pushed" in lines["SYM-1"]
    assert "waits for a person" in lines["SYM-2"]


def test_a_push_that_fails_is_shown_told_and_made_up_for_at_the_next_start(project: Project) -> None:
    project.workflow(workspace={"push": "origin"})
    project.issue("SYM-1", [*WORK, REVIEW])
    with project.daemon() as daemon:
        daemon.wait_for("push_failed", issue_identifier="SYM-1")
        daemon.wait_for("work_ready", issue_identifier="SYM-1")
        state = document(project, "status")
        (failed,) = state["failed_pushes"]
        assert (failed["branch"], failed["failure"]["code"]) == ("symphony/SYM-1", "push_failed")
        assert state["ready"][0]["delivered"]["push"] == "failed"
        assert "SYM-1 is not pushed" in project.symphony("status").stdout
        # It may be posted before the push has failed, and is edited then.
        until(lambda: told(project, "could not be pushed") or None, daemon.log.read_text)

    remote = project.root / "origin.git"
    project.git("clone", "--quiet", "--bare", str(project.repo), str(remote), cwd=project.root)
    project.git("update-ref", "-d", "refs/heads/symphony/SYM-1", cwd=remote)
    project.git("remote", "add", "origin", str(remote))
    with project.daemon() as daemon:
        daemon.wait_for("branch_pushed", issue_identifier="SYM-1")
        until(lambda: told(project, "is pushed to `origin`") or None, daemon.log.read_text)
        assert ready(project)["SYM-1"]["delivered"]["push"] == "pushed"
        assert document(project, "status")["failed_pushes"] == []
    assert project.git("rev-parse", "symphony/SYM-1", cwd=remote) == project.git(
        "rev-parse", "symphony/SYM-1"
    )
    assert len(project.comments("SYM-1")) == 1


def test_of_an_issue_that_never_ran_every_command_says_where_it_is(project: Project) -> None:
    project.workflow()
    project.issue("SYM-7", state="Backlog")
    with project.daemon() as daemon:
        daemon.wait_for("serving")
        told = [*orders(project, "SYM-7"), project.symphony("logs", "SYM-7").stderr]
        prompt = project.symphony("prompt", "SYM-7")
        assert prompt.returncode == 0
        for words in (*told, prompt.stderr):
            assert "SYM-7 is in Backlog, which is no active state" in words
            assert "Todo" in words
        assert "there is no issue" in project.symphony("stop", "SYM-99").stderr


def test_nobody_is_told_on_the_issue_where_that_is_not_wanted(project: Project) -> None:
    project.workflow(tracker={"comment_on_delivery": False})
    project.issue("SYM-1", [*WORK, REVIEW])
    daemon = project.once()
    assert daemon.returncode == 0, daemon.stderr
    assert project.comments("SYM-1") == []
