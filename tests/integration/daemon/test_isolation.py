"""A daemon whose agents are enclosed: work is delivered, nothing else is reached, nothing is left behind."""

from __future__ import annotations

import json
import shutil
import signal
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from harness.project import Project, marked_processes, scripted, until
from harness.real import require_bubblewrap, require_codex, require_home
from harness.shell import word
from kit import model_server as models
from kit.codex_home import codex_home

if TYPE_CHECKING:
    from collections.abc import Iterator

DONE = {"tool": "board_move", "arguments": {"state": "Done"}}


@pytest.fixture(autouse=True)
def bubblewrap() -> str:
    return require_bubblewrap()


def look(*places: Path) -> dict[str, Any]:
    """A step that writes down what can be seen of each place, a line for each."""
    script = "; ".join(f"echo seen: $(ls -A {word(place)} 2>&1)" for place in places)
    return {"run": ["sh", "-c", f"{{ {script}; }} > seen.txt"]}


def test_a_commit_is_delivered_and_neither_state_nor_other_workspaces_are_seen(project: Project) -> None:
    project.workflow(
        workspace={"isolation": "bwrap"},
    )
    home = project.root / "home"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh" / "id").write_text("key", "utf-8")
    (project.workspaces / "OTHER-1").mkdir(parents=True)
    (project.workspaces / "OTHER-1" / "file").write_text("theirs", "utf-8")
    seen = look(project.state_dir, project.workspaces, home / ".ssh")
    project.issue("SYM-1", [seen, {"commit": "Say what is seen"}, DONE])
    with project.daemon("--once") as daemon:
        assert daemon.end() == 0, daemon.log.read_text()
    state, workspaces, keys = project.git("show", "symphony/SYM-1:seen.txt").splitlines()
    assert state.split() == ["seen:"]
    assert workspaces.split() == ["seen:", ".symphony", "SYM-1"]
    assert "id" not in keys.split()
    assert project.branch_log("SYM-1") == ["Say what is seen"]
    assert project.state("SYM-1") == "Done"


@pytest.fixture
def visible() -> Iterator[Project]:
    """A project outside of the temp directories, which are private inside."""
    root = Path(tempfile.mkdtemp(prefix=".symphony-test-", dir=require_home()))
    yield Project(root=root).create()
    shutil.rmtree(root)


def test_secrets_of_every_kind_are_hidden_and_what_work_needs_is_not(visible: Project) -> None:
    """What is left open of the operator's home is said in the log."""
    project = visible
    home, named = project.root / "home", project.root / "named"
    secret = "".join(chr(code) for code in range(ord("k"), ord("w")))
    for name in (
        ".psql_history",
        ".local/share/fish/fish_history",
        "snap/firefox/logins",
        ".var/app/x/logins",
    ):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(secret)
    (home / "src/other/.git/modules/lib").mkdir(parents=True)
    (home / "src/other/.git/config").write_text("[core]\n\tbare = false\n")
    url = f"https://{secret}@forge.example.invalid/lib.git"
    (home / "src/other/.git/modules/lib/config").write_text(f'[remote "origin"]\n\turl = {url}\n')
    (home / ".gitconfig").write_text("[alias]\n\tst = status\n")
    (home / ".codex").mkdir()
    project.git("config", "http.extraheader", f"X: {secret}")
    named.write_text(secret)
    named.chmod(0o600)
    project.environment.update(FORGE_TOKEN_FILE=str(named), OTHER_FILE=str(named))
    project.workflow(workspace={"isolation": "bwrap"})
    looking = (
        f"{{ grep -rlF {secret} {word(home)} {word(project.repo)}/.git/config {named}; git st --short;"
        " git fetch origin;"
        f" git config --file {word(home)}/src/other/.git/config core.bare; echo end; }} > seen.txt 2>&1"
    )
    project.issue("SYM-1", [{"run": ["sh", "-c", looking]}, {"commit": "Say what is seen"}, DONE])
    with project.daemon("--once") as daemon:
        assert daemon.end() == 0, daemon.log.read_text()
    seen = project.git("show", "symphony/SYM-1:seen.txt")
    assert seen.splitlines()[-2:] == ["false", "end"]
    assert secret not in seen
    assert not any(line.startswith(("/", "git:", "fatal")) for line in seen.splitlines()), seen
    notices = [line for line in daemon.log.read_text().splitlines() if '"agent_notice"' in line]
    assert any(f"{home}/.codex/sessions" in line for line in notices)


def test_delivered_work_is_verified_inside(project: Project) -> None:
    outside = project.root / "outside"
    commands = ["! grep bad a.txt", f"touch {word(outside)} || true"]
    project.workflow(workspace={"isolation": "bwrap"}, verify={"commands": commands})
    project.issue("SYM-1", [{"write": "a.txt", "text": "good\n"}, {"commit": "Work"}, DONE])
    with project.daemon("--once") as daemon:
        assert daemon.end() == 0, daemon.log.read_text()
    assert daemon.wait_for("verified")["result"] == "passed", daemon.log.read_text()
    assert not outside.exists()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_daemon_that_ends_leaves_nothing_behind(project: Project, number: signal.Signals) -> None:
    project.workflow(workspace={"isolation": "bwrap"}, agent={"drain_timeout_ms": 100})
    project.issue("SYM-1", [{"run": ["sh", "-c", "sleep 600 & setsid sleep 600 & wait"]}])
    with project.daemon() as daemon:
        run_id = daemon.wait_for("turn_started", issue_identifier="SYM-1")["run_id"]
        until(lambda: len(marked_processes([run_id])) > 4 or None, daemon.log.read_text)
        daemon.signal(number)
        daemon.end()
        until(lambda: not marked_processes([run_id]) or None, lambda: str(marked_processes([run_id])))


def test_a_network_that_cannot_be_closed_is_refused(project: Project) -> None:
    project.workflow(workspace={"network": "closed"})
    done = project.symphony("check")
    assert done.returncode == 3
    assert "workspace.network" in done.stdout + done.stderr
    assert "workspace.isolation: bwrap" in done.stdout + done.stderr


def test_a_machine_without_bubblewrap_is_told_by_check(project: Project) -> None:
    project.workflow(workspace={"isolation": "bwrap"})
    assert project.symphony("check").returncode == 0
    project.environment["PATH"] = "/nonexistent"
    done = project.symphony("check")
    assert done.returncode != 0
    assert "apt install bubblewrap" in done.stdout + done.stderr


@pytest.mark.real_codex
def test_a_real_codex_with_a_home_of_its_own_works_enclosed(project: Project) -> None:
    """All guards at once: the enclosure, the agent's own sandbox in it, a home that is the daemon's."""
    codex = require_codex()
    probe = models.shell(f"ls -A {word(project.workspaces)}; cat {word(project.repo)}/README.md; ls -A ~")
    last = (probe, models.tool("board_move", {"state": "Done"}), models.say("Done."))
    edit = models.edit_and_commit("hello.txt", "hello\n", "Say hello", last=last)
    with models.ModelServer({"work": edit}) as server, codex_home(server.base_url) as home:
        state = home.path.parent / "state"
        own = state / "homes" / "codex"
        own.mkdir(parents=True)
        shutil.copy(home.path / "config.toml", own)
        project.environment.update(home.env, SYMPHONY_STATE_DIR=str(state))
        project.workflow(
            command=f"{codex} app-server",
            workspace={"isolation": "bwrap"},
            codex={"read_timeout_ms": 30_000, "home": "private"},
        )
        project.issue("SYM-1", text="[[work]] Write hello.txt and commit it.")
        with project.daemon("--once") as daemon:
            assert daemon.end() == 0, daemon.log.read_text()
        assert project.state("SYM-1") == "Done"
        assert list((own / "sessions").rglob("rollout-*.jsonl"))
    assert project.branch_log("SYM-1") == ["Say hello"]
    seen = json.dumps([request.body["input"][-1] for request in server.requests])
    assert "# Project" in seen, "the repository can be read"
    assert "config.toml" in seen, "its home is its own"


def test_a_reviewer_reads_its_checkout_and_can_write_neither_there_nor_to_the_workspace(
    project: Project,
) -> None:
    workspace = project.workspaces / "SYM-1"
    tried = (
        "test -e a.txt || exit 1; git diff --stat HEAD~1 >/dev/null || exit 1; "
        f"touch b.txt && echo b.txt:1: written; ls {word(workspace)}/a.txt && echo a.txt:1: seen; true"
    )
    critic = {"kind": "codex", "command": scripted("--review", f"{{ {tried}; }} 2>/dev/null")}
    project.workflow(
        workspace={"isolation": "bwrap"},
        agents={"critic": critic},
        verify={"reviewer": "critic", "rounds": 0},
    )
    project.issue("SYM-1", [{"write": "a.txt", "text": "a\n"}, {"commit": "Work"}, DONE])
    with project.daemon("--once") as daemon:
        assert daemon.end() == 0, daemon.log.read_text()
    assert daemon.wait_for("reviewer_ended")["approves"], daemon.log.read_text()
