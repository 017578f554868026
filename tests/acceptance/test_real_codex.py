"""Promise: a real Codex session edits, commits and moves its issue, in a sandbox."""

import json
import os
import re
import shlex
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from harness.project import Project, scripted, until
from harness.real import require_codex
from harness.shell import word
from kit import model_server as models
from kit.codex_home import codex_home
from symphony.workspaces import Layout

pytestmark = pytest.mark.real_codex

BODY = "The body of a skill is read by the agent and never put into a prompt."
WHEN = "Whenever a file is changed in this repository."


@pytest.fixture
def codex() -> Path:
    return require_codex()


@pytest.fixture
def server() -> Iterator[models.ModelServer]:
    last = (models.tool("board_move", {"state": "Done"}), models.say("Committed and moved."))
    edit = models.edit_and_commit("hello.txt", "hello from codex\n", "Say hello", last=last)
    with models.ModelServer({"work": edit}) as running:
        yield running


def _developer_texts(request: Mapping[str, Any]) -> list[str]:
    texts = []
    for item in request["input"]:
        if item.get("role") == "developer":
            texts += [part["text"] for part in item["content"] if "text" in part]
    return texts


def test_a_real_session_does_the_whole_job(project: Project, codex: Path, server: models.ModelServer) -> None:
    project.workflow(command=f"{shlex.quote(str(codex))} app-server", codex={"read_timeout_ms": 30_000})
    project.write(
        ".symphony/skills/style/SKILL.md",
        f"---\nname: style\ndescription: Style.\nwhen_to_use: {WHEN}\n---\n{BODY}\n",
    )
    project.write(".symphony/skills/nameless/SKILL.md", "---\ndescription: Nameless.\n---\nbody\n")
    project.commit("Add a good and a malformed skill")
    project.issue("SYM-1", text="[[work]] Write hello.txt and commit it.")
    with codex_home(server.base_url) as home:
        project.environment.update(home.env)
        with project.daemon("--once") as daemon:
            assert daemon.end() == 0, daemon.log.read_text()

    assert project.state("SYM-1") == "Done"
    assert project.branch_log("SYM-1") == ["Say hello"]
    assert project.git("show", "symphony/SYM-1:hello.txt") == "hello from codex"
    (comment,) = project.comments("SYM-1", kind="skills")
    assert ".symphony/skills/nameless/SKILL.md" in comment

    first = next(item.body for item in server.requests if "input" in item.body)
    texts = _developer_texts(first)
    lines = [line for text in texts for line in text.splitlines()]
    assert lines.count("## Available skills") == 1, "our block, once, in a developer message"
    assert lines.count(f"- style — {WHEN}") == 1
    everything = json.dumps([item.body for item in server.requests])
    assert BODY not in everything
    ended = daemon.wait_for("run_ended", issue_identifier="SYM-1", outcome="succeeded")
    assert ended["turns"] == 1
    assert ended["commits"] == 1


def test_a_turn_that_breaks_a_test_is_told_so_as_data_and_the_next_one_fixes_it(
    project: Project, codex: Path
) -> None:
    project.workflow(
        command=f"{shlex.quote(str(codex))} app-server",
        codex={"read_timeout_ms": 30_000},
        verify={
            "commands": [
                {"name": "tests", "run": "if grep -sq wrong hello.txt; then echo 1 failed; exit 3; fi"}
            ]
        },
    )
    project.issue("SYM-1", text="[[work]] Write hello.txt and commit it.")
    move = models.tool("board_move", {"state": "Done"})
    first = models.edit_and_commit("hello.txt", "wrong\n", "Say hello", last=(move,))
    second = models.edit_and_commit("hello.txt", "right\n", "Say it right", last=(move,))
    with models.ModelServer({"work": first}, otherwise=second) as server, codex_home(server.base_url) as home:
        project.environment.update(home.env)
        with project.daemon("--once") as daemon:
            assert daemon.end() == 0, daemon.log.read_text()
        last = json.dumps(server.requests[-1].body["input"])
    before, after = (line["session_id"][:36] for line in daemon.events() if line["event"] == "turn_started")
    assert before == after, "it is the same conversation"
    assert "tests` failed with exit code 3" in last
    assert "```text\\n1 failed\\n```" in last, "its output is fenced data"
    assert [line["result"] for line in daemon.events() if line["event"] == "verified"] == ["failed", "passed"]
    assert project.state("SYM-1") == "Done"
    assert project.branch_log("SYM-1") == ["Say it right", "Say hello"]
    (comment,) = project.comments("SYM-1", kind="delivery")
    assert "Verified at" in comment


@pytest.mark.conformance("A-18")
def test_after_kill_9_the_same_thread_goes_on_and_every_token_counts_once(
    project: Project, codex: Path
) -> None:
    """One life ends by `kill -9` while the model thinks; the next one goes on where it was."""
    project.workflow(command=f"{shlex.quote(str(codex))} app-server", codex={"read_timeout_ms": 30_000})
    project.issue("SYM-1", text="[[work]] Write hello.txt and commit it.")
    begun = (models.shell("echo hello from before > hello.txt"), models.Hang())
    commit = models.shell("git add hello.txt && git commit --quiet -m 'Say hello'")
    finish = (commit, models.tool("board_move", {"state": "Done"}), models.say("Done."))
    with (
        models.ModelServer({"work": begun}, otherwise=finish) as server,
        codex_home(server.base_url) as home,
    ):
        project.environment.update(home.env)
        with project.daemon() as first:
            server.wait_for(2)
            until(lambda: project.tokens() == [110] or None, first.log.read_text)
            first.signal(signal.SIGKILL)
            first.end()
        with project.daemon("--once") as second:
            assert second.end() == 0, second.log.read_text()
        last = json.dumps(server.requests[-1].body["input"])
    before, after = first.wait_for("turn_started"), second.wait_for("turn_started")
    assert second.wait_for("thread_resumed")["thread_id"] == before["session_id"][:36]
    assert after["session_id"][:36] == before["session_id"][:36]
    assert "hello from before" in last, "the model knows what it did in its first life"
    assert last.count("Write hello.txt and commit it.") == 1, "the task is told once"
    assert "This session was interrupted" in last
    assert project.state("SYM-1") == "Done"
    assert project.branch_log("SYM-1") == ["Say hello"]
    assert project.git("show", "symphony/SYM-1:hello.txt") == "hello from before"
    assert project.tokens() == [110, 330], "one answer of the model before, three after"


def test_kill_9_at_the_very_first_prompt_loses_no_thread(project: Project, codex: Path) -> None:
    project.workflow(command=f"{shlex.quote(str(codex))} app-server", codex={"read_timeout_ms": 30_000})
    project.issue("SYM-1", text="[[work]] Write hello.txt and commit it.")
    work = (models.shell("echo hello > hello.txt; git add . && git commit --quiet -m 'Say hello'"),)
    finish = (*work, models.tool("board_move", {"state": "Done"}), models.say("Done."))
    with (
        models.ModelServer({"work": (models.Hang(),)}, otherwise=finish) as server,
        codex_home(server.base_url) as home,
    ):
        project.environment.update(home.env)
        with project.daemon() as first:
            server.wait_for(1)
            first.signal(signal.SIGKILL)
            first.end()
        # Killed before the record of the turn, the daemon tells the task again, with the same marker.
        server.learn("work", finish)
        with project.daemon("--once") as second:
            assert second.end() == 0, second.log.read_text()
    resumed = second.wait_for("thread_resumed")["thread_id"]
    assert second.wait_for("turn_started")["session_id"].startswith(resumed)
    assert not [line for line in second.events() if line["event"] == "resume_failed"]
    assert project.branch_log("SYM-1") == ["Say hello"]


def test_secrets_and_siblings_are_out_of_reach(project: Project, codex: Path) -> None:
    neighbour = project.workspaces / "neighbour"
    steps = (
        models.shell(
            f"env; echo x > {word(neighbour)}/x; "
            "echo x > /tmp/symphony-escape-$$ && rm /tmp/symphony-escape-$$"
        ),
        models.tool("board_move", {"state": "Done"}),
        models.say("Tried."),
    )
    project.environment["TRACKER_TOKEN"] = "do-not-show-this-value"
    project.workflow(
        command=f"{shlex.quote(str(codex))} app-server",
        codex={"read_timeout_ms": 30_000},
    )
    project.issue("SYM-1", text="[[try]]")
    with models.ModelServer({"try": steps}) as server, codex_home(server.base_url) as home:
        neighbour.mkdir(parents=True)
        project.environment.update(home.env)
        done = project.symphony("run", "--once")
        assert done.returncode == 0, done.stderr
        everything = json.dumps([item.body for item in server.requests])
    assert "SYMPHONY_RUN_ID" in everything, "the command ran and its output reached the model"
    assert "do-not-show-this-value" not in everything
    assert not (neighbour / "x").exists()


def test_a_codex_on_the_path_of_the_terminal_is_found_and_a_missing_login_is_said(
    project: Project, codex: Path
) -> None:
    """A login profile often sets PATH anew; what the operator's terminal finds must be found all the same."""
    found = project.root / "bin"
    found.mkdir()
    (found / "codex").symlink_to(codex)
    project.environment["PATH"] = f"{found}:{os.environ['PATH']}"
    project.environment["CODEX_HOME"] = str(project.root / "codex-home")
    (project.root / "codex-home").mkdir()
    project.workflow(command="codex app-server", codex={"read_timeout_ms": 30_000})
    done = project.symphony("run", "--once")
    assert done.returncode == 4
    assert "Codex is not logged in" in done.stderr
    assert "hint: run `codex login`" in done.stderr


def test_skills_of_the_base_branch_can_be_read_in_the_sandbox_and_not_be_changed(
    project: Project, codex: Path
) -> None:
    project.workflow(
        command=f"{shlex.quote(str(codex))} app-server",
        codex={"read_timeout_ms": 30_000},
        agent={"skills": {"source": "base_branch"}},
    )
    project.skill("style", body=BODY)
    project.commit("Add a skill")
    commit = project.git("rev-parse", "HEAD")
    pinned = Layout(project.workspaces).pinned(commit, (".symphony/skills",))
    file = pinned / ".symphony/skills/style/SKILL.md"
    attempts = f"chmod -R u+w {word(pinned)}; echo forged >> {word(file)}; touch {word(pinned)}/new"
    steps = (
        models.shell(f"cat {word(file)}"),
        models.shell(f"{attempts}; rm -rf {word(pinned)}"),
        models.tool("board_move", {"state": "Done"}),
        models.say("Tried."),
    )
    project.issue("SYM-1", text="[[try]]")
    with models.ModelServer({"try": steps}) as server, codex_home(server.base_url) as home:
        project.environment.update(home.env)
        with project.daemon("--once") as daemon:
            assert daemon.end() == 0, daemon.log.read_text()
        everything = json.dumps([item.body for item in server.requests])
    assert BODY in everything, "the session has read the file"
    assert str(file.parent.parent) in everything, "and was told where it is"
    assert file.read_text(encoding="utf-8").strip().endswith(BODY), "and could not change it"
    assert sorted(pinned.iterdir()) == [pinned / ".symphony"]
    seen = [line["name"] for line in daemon.events() if line["event"] == "skill_seen"]
    assert seen == ["style"]
    assert daemon.wait_for("skills_listed")["commit"] == commit


def test_a_real_codex_reviews_the_work_of_another_agent(project: Project, codex: Path) -> None:
    """It refuses the first change and approves the second one, in read-only sessions of their own."""
    remark = {"file": "a.txt", "line": 1, "text": "it is bad"}
    refuse = models.tool("submit_review", {"verdict": "request_changes", "comments": [remark]})
    approve = models.tool("submit_review", {"verdict": "approve", "comments": []})
    write = models.shell("echo mine > a.txt || echo the checkout is read-only")
    project.workflow(
        command=scripted("--threads", str(project.root / "threads")),
        agents={"critic": {"kind": "codex", "command": f"{shlex.quote(str(codex))} app-server"}},
        verify={"reviewer": "critic"},
    )
    move = {"tool": "board_move", "arguments": {"state": "Done"}}
    turns: list[list[dict[str, Any]]] = [
        [{"write": "a.txt", "text": f"[[{text}]]\n"}, {"commit": "Work"}, move] for text in ("bad", "good")
    ]
    issue = project.issue("SYM-1", *turns)  # the marker of a scenario stands in the change alone
    text = issue.read_text(encoding="utf-8")
    issue.write_text(re.sub(r"\[\[(?=bad|good)", r"\\u005b[", text), encoding="utf-8")
    scenarios = {
        "bad": (write, refuse, models.say("It is bad.")),
        "good": (approve, models.say("It is good.")),
    }
    with models.ModelServer(scenarios) as server, codex_home(server.base_url) as home:
        project.environment.update(home.env)
        with project.daemon("--once") as daemon:
            assert daemon.end() == 0, daemon.log.read_text()
        requests = [item.body for item in server.requests if "input" in item.body]
    verdicts = [line["approves"] for line in daemon.events() if line["event"] == "reviewer_ended"]
    assert verdicts == [False, True]
    assert "the checkout is read-only" in json.dumps(requests)
    offered = {tool.get("name") for tool in requests[0]["tools"]}
    assert "submit_review" in offered
    assert "board_move" not in offered
    assert project.state("SYM-1") == "Done"
    assert project.git("show", "symphony/SYM-1:a.txt") == "[[good]]"
