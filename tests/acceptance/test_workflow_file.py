"""Promise: a mistake in WORKFLOW.md is one line with `path:line` and a hint."""

import pytest

from harness.project import Project

CASES = {
    "a limit that is not positive": (
        "---\ntracker:\n  kind: markdown\nagent:\n  max_turns: 0\n---\nDo it.\n",
        "WORKFLOW.md:5",
        "agent.max_turns",
    ),
    "a tracker nobody knows": (
        "---\ntracker:\n  kind: linnear\n---\nDo it.\n",
        "WORKFLOW.md:3",
        "unsupported_tracker_kind",
    ),
    "no tracker": ("---\npolling: {}\n---\nDo it.\n", "WORKFLOW.md", "missing_tracker_kind"),
    "settings that are a list": ("---\n- a\n---\nDo it.\n", "WORKFLOW.md", "workflow_front_matter_not_a_map"),
    "settings that are not YAML": ("---\na: [\n---\nDo it.\n", "WORKFLOW.md:", "workflow_parse_error"),
    "a misspelt field of an issue": (
        "---\ntracker: {kind: markdown}\n---\n\n{{ issue.titel }}\n",
        "WORKFLOW.md:5",
        "issue.title",
    ),
    "a template that does not parse": (
        "---\ntracker: {kind: markdown}\n---\n{% if %}\n",
        "WORKFLOW.md:4",
        "template_parse_error",
    ),
    "a variable that is not set": (
        "---\ntracker: {kind: markdown}\nworkspace:\n  repo: $NO_SUCH_REPOSITORY\n---\nDo it.\n",
        "WORKFLOW.md:4",
        "NO_SUCH_REPOSITORY",
    ),
}


@pytest.mark.conformance("L-2")
@pytest.mark.parametrize("case", CASES)
def test_a_mistake_is_named_with_its_place_and_a_hint(project: Project, case: str) -> None:
    text, place, word = CASES[case]
    project.write("WORKFLOW.md", text)
    done = project.once()
    assert done.returncode == 3
    errors = [line for line in done.stderr.splitlines() if line.startswith("error:")]
    assert len(errors) == 1, done.stderr
    assert place in errors[0]
    assert word in done.stderr
    assert "hint:" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.conformance("L-1", "L-2")
def test_a_missing_file_is_named_absolutely(project: Project) -> None:
    done = project.symphony("run")
    assert done.returncode == 3
    assert str(project.repo / "WORKFLOW.md") in done.stderr
    assert "hint: " in done.stderr
    assert "symphony init" in done.stderr


def test_everything_wrong_is_told_at_once(project: Project) -> None:
    project.write(
        "WORKFLOW.md",
        "---\ntracker: {kind: markdown}\nagent: {max_turns: 0}\npolling: {interval_ms: x}\n---\n",
    )
    done = project.symphony("run")
    assert done.stderr.count("error:") == 2


@pytest.mark.conformance("W-2", "W-3")
def test_a_running_daemon_keeps_the_last_good_file_and_takes_the_mended_one(project: Project) -> None:
    good = project.workflow(body="Good {{ issue.identifier }}\n{{ issue.description }}").read_text()
    with project.daemon() as daemon:
        daemon.wait_for("serving")
        project.write("WORKFLOW.md", good.replace("Good {{ issue.identifier }}", "{{ nonsense }}"))
        rejected = daemon.wait_for("workflow_rejected")
        assert "nonsense" in rejected["reason"]
        assert "WORKFLOW.md:" in rejected["reason"]
        project.issue("SYM-1", [{"tool": "board_move", "arguments": {"state": "Done"}}])
        replaced = project.repo / "WORKFLOW.md.new"
        replaced.write_text(good + "\nMended.\n")
        assert not [line for line in daemon.events() if line["event"] == "run_started"]
        replaced.rename(project.repo / "WORKFLOW.md")
        daemon.wait_for("workflow_reloaded")
        daemon.wait_for("run_ended", issue_identifier="SYM-1", outcome="succeeded")
