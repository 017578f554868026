"""The reading commands in this process: from the files, and of a daemon that is a socket of the test."""

import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
import structlog
from click.testing import CliRunner, Result

from harness.chronicle import sent
from harness.journalling import claim, with_claim, written
from harness.pictures import NOW, busy, status_of
from harness.project import Project
from published.schemas import conforms_to
from symphony.api.models import Refresh, State
from symphony.cli.documents import Status
from symphony.cli.endpoint import Endpoint, UnreachableError
from symphony.cli.main import main
from symphony.cli.offline import open_offline
from symphony.cli.queries import Queries
from symphony.domain import ALL_ISSUES, Selection
from symphony.journal.model import ClaimRecord
from symphony.scheduler import ClaimKind

ROOT = Path(__file__).parents[3]
LABEL = "labels: [agent]\n"


@pytest.fixture(autouse=True)
def _log_as_before() -> Iterator[None]:
    yield
    structlog.reset_defaults()


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """One slot; SYM-1 would start, SYM-2 queue, SYM-3 lacks a label, SYM-4 is over."""
    made = Project(root=tmp_path).create()
    made.workflow(tracker={"required_labels": ["agent"]}, agent={"max_concurrent_agents": 1})
    made.issue("SYM-1", title="First", extra=f"{LABEL}priority: 1\n")
    made.issue("SYM-2", title="Second", extra=LABEL)
    made.issue("SYM-3", title="Third")
    made.issue("SYM-4", title="Fourth", state="Done", extra=LABEL)
    for name, value in made.env().items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(made.repo)
    return made


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


def document(*arguments: str) -> dict[str, Any]:
    done = run(*arguments, "--json")
    assert done.exit_code == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


class FakeClient:
    """A daemon that answers what the test says."""

    def __init__(self, answers: dict[str, Any]) -> None:
        self.endpoint = Endpoint(socket=Path("/s"), pid=4711)
        self.answers = answers
        self.asked: list[Selection] = []

    def state(self, only: Selection) -> Any:
        self.asked.append(only)
        return self.answers["state"]

    def issue(self, identifier: str) -> Any:
        return self.answers.get(identifier)

    def prompt(self, identifier: str, phase: str | None) -> Any:
        assert phase is None
        return self.answers.get(identifier)

    def refresh(self) -> Any:
        return self.answers["refresh"]


Answering = Callable[[dict[str, Any]], FakeClient]


@pytest.fixture
def daemon(monkeypatch: pytest.MonkeyPatch) -> Answering:
    def answering(answers: dict[str, Any]) -> FakeClient:
        client = FakeClient(answers)
        for module in ("symphony.cli.queries", "symphony.cli.client"):
            monkeypatch.setattr(f"{module}.connect", lambda *_: client)
        return client

    return answering


# --- from the files ---


def test_without_a_daemon_the_status_is_that_of_the_files(project: Project) -> None:
    found = document("status")
    conforms_to("status", found)
    assert (found["source"], found["daemon"], found["health"]["status"]) == ("files", None, "stopped")
    assert {row["issue_identifier"]: row["reason"] for row in found["waiting"]} == {
        "SYM-1": {"code": "starting", "message": "it would start now, and no daemon is running"},
        "SYM-2": {
            "code": "no_slot",
            "message": "others would start before it, and then the only agent slot is in use",
        },
        "SYM-3": {"code": "label_missing", "message": "required label missing: 'agent'"},
    }
    assert found["polling"]["next_poll_in_ms"] is None
    assert not project.workspaces.exists()
    assert not project.state_dir.exists()


@pytest.mark.parametrize(
    ("name", "status", "code"),
    [
        ("SYM-1", "waiting", "starting"),
        ("SYM-3", "waiting", "label_missing"),
        ("SYM-4", "inactive", "terminal"),
    ],
)
def test_every_issue_is_explained_even_if_it_is_not_a_candidate(
    project: Project, name: str, status: str, code: str
) -> None:
    found = document("explain", name)
    conforms_to("explain", found)
    assert (found["status"], found["explanation"]["code"]) == (status, code)
    assert project.repo.exists()


def remembered(name: str, kind: ClaimKind, **issue: Any) -> ClaimRecord:
    held = claim(kind=kind, attempt=2)
    return with_claim(held, issue=replace(held.claim.issue, id=name, identifier=name, **issue))


def test_claims_in_the_journal_are_judged_as_by_the_next_daemon(project: Project) -> None:
    """SYM-1 is blocked, SYM-2 was changed, SYM-4 is over; of the workspace of SYM-5 nothing is asked."""
    records = project.workspaces / ".symphony" / "records"
    records.mkdir(parents=True)
    entry = {"issue_id": "SYM-5", "identifier": "SYM-5", "key": "SYM-5", "ready": True}
    (records / "SYM-5.json").write_text(json.dumps(entry))
    journal = project.state_dir / "journal.db"
    project.state_dir.mkdir()
    same = {"title": "First", "labels": ("agent",), "priority": 1}
    written(
        journal,
        with_claim(remembered("SYM-1", ClaimKind.BLOCKED, **same), question="Red?"),
        remembered("SYM-2", ClaimKind.BLOCKED, title="As it was"),
        remembered("SYM-4", ClaimKind.RETRYING),
    )
    found = document("status")
    rows = [(row["issue_identifier"], row["question"], row["blocked_at"]) for row in found["blocked"]]
    assert rows == [("SYM-1", "Red?", "2023-11-14T22:13:20Z")], "since when it is blocked, not looked at"
    assert [row["issue_identifier"] for row in found["waiting"]] == ["SYM-2", "SYM-3"]
    assert found["retrying"] == []
    assert document("explain", "SYM-1")["explanation"]["code"] == "blocked"
    journal.write_bytes(b"no database")
    assert document("status")["blocked"] == []


def test_an_issue_with_a_workspace_is_found_by_its_record(project: Project) -> None:
    records = project.workspaces / ".symphony" / "records"
    records.mkdir(parents=True)
    entry = {
        "issue_id": "SYM-4",
        "identifier": "SYM-4",
        "key": "SYM-4",
        "ready": True,
        "repo": str(project.repo),
    }
    (records / "SYM-4.json").write_text(json.dumps(entry))
    assert document("explain", "SYM-4")["workspace"]["path"] == str(project.workspaces / "SYM-4")
    assert run("explain", "SYM-44").stderr.endswith("hint: did you mean SYM-4, SYM-3, SYM-2, SYM-1?\n")


def test_the_prompt_has_exactly_its_shape(project: Project) -> None:
    project.skill("release")
    project.skill("bad", description="")
    project.commit("Skills")
    found = document("prompt", "SYM-1")
    conforms_to("prompt", found)
    assert found["skills"]["listed"][0]["name"] == "release"
    assert found["envelope"].startswith("## Available skills")
    assert found["prompt"].startswith("SYM-1: First")


def test_a_prompt_without_a_daemon_has_the_skills_of_the_library(project: Project) -> None:
    project.skill("release")
    project.commit("Skills")
    skill = project.write("style.md", "---\nname: style\ndescription: How we write.\n---\nBe brief.\n")
    assert run("library", "add", str(skill)).exit_code == 0
    found = document("prompt", "SYM-1")
    assert {one["name"]: one["library_version"] for one in found["skills"]["listed"]} == {
        "release": None,
        "style": 1,
    }
    assert "How we write." in found["envelope"]


@pytest.mark.slow
def test_what_happened_is_explained_after_the_daemon_ended(project: Project) -> None:
    project.skill("release")
    project.skill("bad", description="")
    project.commit("Skills")
    project.issue("SYM-1", [{"commit": "Work"}, {"tool": "board_move", "arguments": {"state": "Done"}}])
    project.workflow()
    for name in ("SYM-2", "SYM-3"):
        (project.repo / f".symphony/issues/{name}.md").unlink()
    ended = project.once()
    assert ended.returncode == 0, ended.stderr
    found = document("explain", "SYM-1")
    conforms_to("explain", found)
    assert [one["name"] for one in found["skills"]["listed"]] == ["release"]
    problems = {one["path"] for one in found["skills"]["problems"] if one["severity"] == "error"}
    assert problems == {".symphony/skills/bad/SKILL.md"}
    assert "run_ended" in {one["event"] for one in found["recent_events"]}
    assert "release" in run("explain", "SYM-1").stdout
    assert document("explain", "SYM-4")["skills"] is None, "no run of it is known"


def test_a_pipe_gets_the_bytes_of_the_prompt(project: Project) -> None:
    project.workflow(body="Grüße {{ issue.title }} \\ [b]\ttab\n\n\nend  \n\n")
    text = "Grüße First \\ [b]\ttab\n\n\nend"
    assert run("prompt", "SYM-1").stdout_bytes == f"----- prompt -----\n{text}\n".encode()
    assert run("prompt", "SYM-1", "--prompt-only").stdout_bytes == text.encode()
    assert run("prompt", "SYM-1", "--envelope-only").stdout_bytes == b""


def test_secrets_are_masked_in_what_is_printed(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "correct-horse-battery")
    project.issue("SYM-1", title="Use correct-horse-battery", extra=LABEL)
    for command in (("status",), ("explain", "SYM-1"), ("prompt", "SYM-1")):
        for form in ((), ("--json",)):
            done = run(*command, *form)
            assert done.exit_code == 0
            assert "correct-horse-battery" not in done.output


def test_the_prompt_is_exact_but_for_its_secrets_and_says_that_some_are_masked(project: Project) -> None:
    project.workflow(body="See https://host.example/a?page=2 \u202e {{ issue.title }}")
    exact = run("prompt", "SYM-1", "--prompt-only")
    assert exact.stdout_bytes == "See https://host.example/a?page=2 \u202e First".encode()
    assert exact.stderr == ""
    project.issue("SYM-1", title="Use ghp_0123456789abcdefghij", extra=LABEL)
    hidden = run("prompt", "SYM-1", "--prompt-only")
    assert hidden.stdout_bytes.endswith(b" Use ***")
    assert "what looks like a secret is masked here" in hidden.stderr


@pytest.mark.parametrize("command", [("status",), ("explain", "SYM-1"), ("prompt", "SYM-1")])
def test_settings_without_a_sandbox_do_not_prevent_reading(
    project: Project, command: tuple[str, ...]
) -> None:
    project.workflow(codex={"thread_sandbox": "danger-full-access"})
    done = run(*command)
    assert (done.exit_code, done.stderr) == (0, "")


def test_a_note_goes_to_stderr(project: Project) -> None:
    project.workflow(workspace={"repo": project.repo.as_uri()})
    done = run("prompt", "SYM-1", "--json")
    assert "never fetched" in done.stderr
    assert done.stderr.startswith("warning: ")
    assert json.loads(done.stdout)["envelope"] is None


def test_options_that_exclude_each_other_are_refused(project: Project) -> None:
    assert run("prompt", "SYM-1", "--json", "--prompt-only").exit_code == 2
    assert project.repo.exists()


def test_the_daemon_of_another_workflow_is_named_but_not_asked(project: Project) -> None:
    note = {"socket": "/s", "pid": os.getpid(), "workflow": "/other/WORKFLOW.md"}
    project.state_dir.mkdir()
    (project.state_dir / "control.json").write_text(json.dumps(note))
    found = document("status")
    conforms_to("status", found)
    assert (found["source"], found["daemon"]) == ("files", None)
    assert "/other/WORKFLOW.md" in found["notice"]
    assert "/other/WORKFLOW.md" in run("status").stdout
    for command in (("explain", "SYM-1"), ("prompt", "SYM-1")):
        done = run(*command)
        assert done.exit_code == 0
        assert done.stderr.startswith("warning: The daemon of another workflow, /other/WORKFLOW.md")
    assert run("explain", "sym-1").stderr.count("warning:") == 1
    assert run("refresh").stderr.startswith("warning: The daemon of another workflow")


def test_a_missing_board_is_shown_by_status_and_is_an_error_for_one_issue(
    project: Project,
) -> None:
    for path in sorted((project.repo / ".symphony").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    found = document("status")
    assert found["health"]["poll_failure"]["code"]
    assert "The tracker did not answer the last poll" in run("status").stdout
    assert run("explain", "SYM-1").exit_code == 1


def test_a_malformed_issue_file_is_reported_with_its_path(project: Project) -> None:
    (project.repo / ".symphony/issues/SYM-9.md").write_text("---\ntitle: [\n---\n")
    done = run("explain", "SYM-9")
    assert done.exit_code == 1
    assert "SYM-9.md" in done.stderr


def test_a_status_shows_the_malformed_issue_files_too(project: Project) -> None:
    (project.repo / ".symphony/issues/SYM-9.md").write_text("---\ntitle: [\n---\n")
    found = document("status")
    conforms_to("status", found)
    (record,) = found["health"]["skipped_records"]
    assert "SYM-9.md:" in record["where"]
    shown = run("status").stdout
    assert f"{record['where']}: {record['message']} → correct the file" in " ".join(shown.split())
    assert "First" in shown


@pytest.mark.parametrize("command", [("status",), ("explain", "SYM-1"), ("prompt", "SYM-1")])
def test_an_invalid_workflow_without_a_daemon_is_a_configuration_error(
    project: Project, command: tuple[str, ...]
) -> None:
    (project.repo / "WORKFLOW.md").write_text("---\ntracker: [\n---\n")
    done = run(*command)
    assert (done.exit_code, done.stdout) == (3, "")
    assert "hint:" in done.stderr
    assert run(*command, "--workflow", "nowhere.md").exit_code == 3


def test_a_tracker_that_hangs_is_abandoned(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    async def hang(*_: object) -> None:
        await anyio.sleep_forever()

    monkeypatch.setattr("symphony.trackers.markdown.MarkdownTracker.fetch_issues_by_states", hang)
    offline = open_offline(
        project.repo / "WORKFLOW.md",
        os.environ,
        journal=project.state_dir / "journal.db",
        remembers=True,
        timeout_s=0.05,
    )
    failure = anyio.run(offline.state).health.poll_failure
    assert failure is not None
    assert failure.message == "the tracker did not answer within 0.05 s"


# --- of a daemon ---


def test_the_status_of_a_daemon_names_it(project: Project, daemon: Answering) -> None:
    daemon({"state": msgspec.convert(busy(), State)})
    found = document("status")
    assert (found["source"], found["daemon"]["pid"]) == ("daemon", 4711)
    assert run("status").stdout.startswith("Daemon healthy  pid 4711 · up ?")
    assert project.repo.exists()


def test_a_daemon_that_finds_no_issue_has_the_last_word(project: Project, daemon: Answering) -> None:
    daemon({})  # it has asked the tracker
    done = run("explain", "SYM-1")
    assert done.exit_code == 1
    assert "there is no issue" in done.stderr
    assert document("prompt", "SYM-4")["source"] == "files"
    assert project.repo.exists()


@pytest.mark.parametrize(
    ("coalesced", "words"),
    [(True, "this refresh joins it"), (False, "The tracker is polled now")],
)
def test_a_refresh_says_whether_it_shares_a_poll(
    project: Project, daemon: Answering, *, coalesced: bool, words: str
) -> None:
    answer = Refresh(queued=True, coalesced=coalesced, requested_at=NOW, operations=())
    daemon({"refresh": answer})
    assert words in run("refresh").stdout
    assert document("refresh") == sent(answer)
    assert project.repo.exists()


def test_a_refresh_without_a_workflow_file_names_the_missing_file(project: Project) -> None:
    (project.repo / "WORKFLOW.md").unlink()
    done = run("refresh")
    assert done.exit_code == 5
    assert done.stderr.startswith("error: no daemon is running for WORKFLOW.md, and there is no such file\n")
    assert "symphony init" in done.stderr


def test_a_refresh_without_a_daemon_is_exit_code_5(project: Project) -> None:
    done = run("refresh")
    assert done.exit_code == 5
    assert (
        done.stderr
        == "error: no daemon is running for WORKFLOW.md\nhint: start one: symphony run; it polls at once\n"
    )
    assert project.repo.exists()


# --- watching ---


@pytest.fixture
def three_looks(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Pauses end at once, and the third one by Ctrl-C."""
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", pause)
    return pauses


def test_watching_as_json_is_one_object_per_line_and_survives_a_restart(
    project: Project, three_looks: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = status_of(busy())
    looks: Iterator[Status | UnreachableError] = iter(
        [seen, UnreachableError("it is gone", hint="wait"), seen]
    )

    def state(_: Queries, _only: Selection) -> Status:
        found = next(looks)
        if isinstance(found, UnreachableError):
            raise found
        return found

    monkeypatch.setattr(Queries, "state", state)
    done = run("status", "--watch", "--json", "--interval", "0.5")
    assert done.exit_code == 0
    first, second, third = map(json.loads, done.stdout.splitlines())
    assert first == third == sent(seen)
    assert second == {
        "source": None,
        "daemon": None,
        "error": {"code": "command", "message": "it is gone", "hint": "wait"},
    }
    assert three_looks == [0.5, 0.5, 0.5]
    assert project.repo.exists()


def test_watching_in_a_pipe_prints_one_picture_below_the_other(
    project: Project, three_looks: list[float]
) -> None:
    done = run("status", "--watch")
    assert done.exit_code == 0
    assert done.stdout.count("No daemon is running for WORKFLOW.md.") == 3
    assert three_looks == [2.0, 2.0, 2.0]
    assert project.repo.exists()


# --- a large board ---


def asked_by(daemon: Answering, *arguments: str) -> Selection:
    """What the daemon was asked for."""
    client = daemon({"state": msgspec.convert(busy(), State)})
    assert run("status", *arguments).exit_code == 0
    (asked,) = client.asked
    return asked


def test_only_the_waiting_issues_that_are_shown_are_requested(project: Project, daemon: Answering) -> None:
    assert asked_by(daemon) == Selection(limit=20)
    assert asked_by(daemon, "--all-issues") == ALL_ISSUES
    assert asked_by(daemon, "--json") == ALL_ISSUES
    only = asked_by(daemon, "--json", "--state", "Todo", "--reason", "no_slot", "--reason", "paused")
    assert only == Selection(states=frozenset({"Todo"}), codes=frozenset({"no_slot", "paused"}))
    assert project.repo.exists()


@pytest.mark.parametrize(
    "arguments", [["--reason", "no_slots"], ["--all", "--all-issues"], ["--all", "--state", "x"]]
)
def test_options_that_contradict_each_other_are_a_usage_error(project: Project, arguments: list[str]) -> None:
    assert run("status", *arguments).exit_code == 2
    assert project.repo.exists()


def test_a_large_board_without_a_daemon_is_counted_and_shown_in_part(project: Project) -> None:
    for number in range(1, 41):
        project.issue(f"SYM-{number}", state="Todo" if number % 2 else "In Progress")
    shown = run("status").stdout
    assert shown.count("\nSYM-") == 20
    assert "and 20 more waiting" in shown
    assert "40 wait: " in shown
    whole = document("status")
    conforms_to("status", whole)
    assert (len(whole["waiting"]), whole["waiting_left_out"]) == (40, 0)
    assert sum(whole["waiting_by_reason"].values()) == 40
    some = document("status", "--state", "todo")
    assert {row["state"] for row in some["waiting"]} == {"Todo"}
    assert (len(some["waiting"]), some["counts"]["waiting"]) == (20, 40)
    assert run("status", "--all-issues").stdout.count("\nSYM-") == 40
    assert "No issue is in a state" in run("status", "--reason", "paused").stdout
