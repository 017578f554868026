"""Promise: the board is plain files; a session may move and comment on its own issue, through the daemon."""

import json

from harness.project import Project

DONE = {"tool": "board_move", "arguments": {"state": "Done"}}


def test_issues_are_made_listed_shown_moved_and_commented_from_the_command_line(project: Project) -> None:
    project.workflow()
    made = project.symphony("issue", "new", "Fix: the login", "--label", "bug", "--priority", "1")
    assert made.returncode == 0, made.stderr
    assert "SYM-1" in made.stdout
    assert project.symphony("issue", "new", "Second", "--skill", "forms", "-l", "ui").returncode == 0
    second = json.loads(project.symphony("issue", "show", "SYM-2", "--json").stdout)
    assert second["labels"] == ["ui", "skill:forms"]
    listed = json.loads(project.symphony("issue", "list", "--json").stdout)
    assert "Fix: the login" in json.dumps(listed)
    assert project.symphony("issue", "comment", "SYM-1", "Look at this first.").returncode == 0
    assert project.symphony("issue", "move", "SYM-1", "in progress").returncode == 0
    assert project.state("SYM-1") == "In Progress"
    shown = project.symphony("issue", "show", "SYM-1").stdout
    assert "Look at this first." in shown
    missing = project.symphony("issue", "show", "SYM-99")
    assert missing.returncode == 1
    assert "hint:" in missing.stderr


def test_a_session_comments_on_and_moves_its_own_issue_only(project: Project) -> None:
    project.workflow()
    project.issue(
        "SYM-1",
        [
            {"tool": "board_comment", "arguments": {"body": "Done as asked."}},
            {"tool": "board_move", "arguments": {"state": "Nowhere"}, "may_fail": True},
            {"tool": "board_delete", "arguments": {}, "may_fail": True},
            DONE,
        ],
    )
    project.issue("SYM-2", state="Backlog")
    done = project.once()
    assert done.returncode == 0, done.stderr
    assert project.state("SYM-1") == "Done"
    assert project.state("SYM-2") == "Backlog"
    (comment,) = project.comments("SYM-1")
    assert "Done as asked." in comment
    assert "agent" in comment


def test_only_the_line_that_must_change_changes(project: Project) -> None:
    project.workflow()
    path = project.issue("SYM-1", [DONE], extra="mine: 'kept'   # as it is\n")
    before = path.read_bytes()
    assert project.once().returncode == 0
    assert path.read_bytes() == before.replace(b"state: Todo", b"state: Done")


def test_a_saved_issue_is_seen_without_waiting_for_the_poll(project: Project) -> None:
    project.workflow(polling={"interval_ms": 3_600_000})
    with project.daemon() as daemon:
        daemon.wait_for("serving")
        project.issue("SYM-1", [DONE])
        daemon.wait_for("run_ended", issue_identifier="SYM-1")


def test_a_malformed_file_is_named_with_its_line_and_hides_nothing(project: Project) -> None:
    project.workflow()
    project.write(".symphony/issues/SYM-1.md", "---\ntitle: One\ntitle: Two\nstate: Todo\n---\n")
    project.issue("SYM-2", [DONE])
    daemon = project.once()
    assert daemon.returncode == 0, daemon.stderr
    assert any("SYM-1.md:3" in json.dumps(line) for line in daemon.events())
    assert project.state("SYM-2") == "Done"


def test_a_circle_of_blockers_is_reported_and_never_started(project: Project) -> None:
    project.workflow()
    project.issue("SYM-1", [DONE], extra="blocked_by: [SYM-2]\n")
    project.issue("SYM-2", [DONE], extra="blocked_by: [SYM-1]\n")
    daemon = project.once()
    assert daemon.returncode == 0, daemon.stderr
    assert not [line for line in daemon.events() if line["event"] == "run_started"]
