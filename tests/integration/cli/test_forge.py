"""`symphony forge check` against each forge on the loopback interface."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
import structlog
from click.testing import CliRunner, Result

from contract.forges import KINDS, ForgeDesk, forge_desk
from contract.repository import STRANGER, WRITER
from contract.served import served
from contract.vendor import Given
from harness.project import Project
from symphony.cli.commands.doctor import check_forge
from symphony.cli.failures import report
from symphony.cli.main import main
from symphony.cli.offline import open_context
from symphony.daemon.diagnostics import CheckStatus
from symphony.domain import CheckState, PullState, ReviewState, SymphonyError


@pytest.fixture(autouse=True)
def _log_as_before() -> Iterator[None]:
    yield
    structlog.reset_defaults()


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    made = Project(root=tmp_path).create()
    (made.root / "home").mkdir()
    for name, value in made.env().items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(made.repo)
    return made


class _Served:
    def __init__(self, desk: ForgeDesk) -> None:
        self.vendor = desk.vendor

    def provider(self) -> dict[str, Any]:
        return {"url": self.vendor.base}


@contextmanager
def at(project: Project, kind: str, monkeypatch: pytest.MonkeyPatch, **forge: Any) -> Iterator[ForgeDesk]:
    desk = forge_desk(kind)
    monkeypatch.setenv("FORGE_TOKEN", desk.vendor.secret)
    with served(_Served(desk)) as settings:
        given = {"kind": kind, "repo": "octo-team/website", "token": "$FORGE_TOKEN", **settings, **forge}
        project.workflow(forge=given)
        yield desk


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments), standalone_mode=False)


def check(*arguments: str) -> Result:
    return run("forge", "check", *arguments)


@pytest.mark.parametrize("kind", KINDS)
def test_the_token_is_told_with_what_it_lacks(
    kind: str, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    with at(project, kind, monkeypatch) as desk:
        done = check("--json")
        assert done.return_value == 0, done.output
        found = json.loads(done.stdout)
        assert (found["ok"], found["kind"], found["login"]) == (True, kind, "symphony-bot")
        assert bool(found["limits"]) == (kind == "forgejo"), (
            "which has no logs of checks and resolves no thread"
        )
        told = check().stdout
        assert "symphony-bot" in told
        assert all(limit in told for limit in found["limits"])
        desk.repository.may_write = False
        done = check()
        assert done.return_value == 1
        assert "error:" in done.stdout
        assert desk.vendor.secret not in done.output


def doctors_finding(project: Project) -> tuple[CheckStatus, str]:
    context = open_context(project.repo / "WORKFLOW.md", os.environ)
    (finding,) = anyio.run(partial(check_forge, context, environment=os.environ))
    return finding.status, f"{finding.message} {finding.hint}"


def failed(*arguments: str) -> tuple[int, SymphonyError]:
    done = run(*arguments)
    assert isinstance(done.exception, SymphonyError), done.output
    return report(done.exception), done.exception


def test_what_cannot_be_used_is_one_failure_with_a_hint(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.workflow()
    assert failed("forge", "check")[0] == 3
    with at(project, "github", monkeypatch, url="http://git.example.org/api/v3"):
        assert failed("forge", "check")[0] == 3
    with at(project, "github", monkeypatch) as desk:
        monkeypatch.delenv("FORGE_TOKEN")
        code, error = failed("forge", "check")
        assert code == 4
        assert "FORGE_TOKEN" in (error.failure.hint or "")
        monkeypatch.setenv("FORGE_TOKEN", desk.vendor.secret)
        desk.repository.archived = True
        assert failed("forge", "check")[0] == 1


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (Given(status=401, body={"message": "Bad credentials"}), 4),
        (Given(status=403, body={"message": "Resource not accessible by personal access token"}), 1),
        (Given(status=403, body={"message": "API rate limit exceeded"}, headers={"retry-after": "60"}), 1),
    ],
    ids=["token refused", "token without scope", "rate limit"],
)
def test_a_forge_that_refuses_is_told_by_every_command_and_the_doctor(
    answer: Given, code: int, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    with at(project, "github", monkeypatch) as desk:
        desk.repository.open("symphony/SYM-3")
        for command in (("forge", "check"), ("pr", "SYM-3")):
            for more in ((), ("--json",)):
                desk.vendor.fail_next(answer)
                given, error = failed(*command, *more)
                assert (given, bool(error.failure.hint)) == (code, True)
                assert desk.vendor.secret not in error.failure.line
        desk.vendor.fail_next(answer)
        status, text = doctors_finding(project)
        assert status is CheckStatus.WARNING
        assert "GitHub" in text


@pytest.mark.parametrize("what", ["archived", "renamed"])
def test_a_repository_that_is_not_there_any_more_is_told_by_the_check_and_the_doctor(
    what: str, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    with at(project, "gitlab", monkeypatch) as desk:
        if what == "archived":
            desk.repository.archived = True
        else:
            desk.repository.name = "octo-team/site"
        for more in ((), ("--json",)):
            code, error = failed("forge", "check", *more)
            assert (code, what in f"{error.failure.message} {error.failure.hint}") == (1, True)
        status, text = doctors_finding(project)
        assert (status, what in text) == (CheckStatus.WARNING, True)


@pytest.mark.parametrize("kind", KINDS)
def test_the_pull_request_of_an_issue_is_shown_with_what_holds_it_back(
    kind: str, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    with at(project, kind, monkeypatch) as desk:
        code, error = failed("pr", "SYM-3")
        assert code == 1
        assert "symphony/SYM-3" in error.failure.message
        repository = desk.repository
        repository.end(repository.open("symphony/SYM-3"), PullState.CLOSED)
        stranger = repository.open("symphony/SYM-3", title="A stranger's")
        stranger.head_repo = "mallory/website"
        pull = repository.open("symphony/SYM-3", title="Fix \x1b[2Jit")
        repository.check(pull, "test", CheckState.FAILED)
        repository.review(pull, WRITER, ReviewState.CHANGES_REQUESTED, "not yet")
        repository.remark(pull, WRITER, "solved").resolved = True
        repository.remark(pull, STRANGER, "\x1b[31mand empty?\x1b[0m\nline 2", path="a.py", line=7)

        done = run("pr", "SYM-3", "--json")
        assert done.exception is None, done.output
        found = json.loads(done.stdout)
        assert (found["number"], found["state"], found["head"]) == (pull.number, "open", pull.sha)
        (ran,) = found["checks"]
        assert (ran["name"], ran["state"], ran["at_head"]) == ("test", "failed", True)
        assert [(each["login"], each["state"]) for each in found["reviews"]] == [
            (WRITER, "changes_requested")
        ]
        assert [(each["path"], each["line"], each["login"]) for each in found["open_threads"]] == [
            ("a.py", 7, STRANGER)
        ]
        text = run("pr", "SYM-3").stdout
        assert "a.py:7 mallory: and empty? line 2" in text
        assert "\x1b" not in text
        names = [line[:10] for line in text.splitlines()[1:]]
        assert names == ["merge     ", "failed    ", "review    ", "thread    "], "they stand in a column"
        repository.end(pull, PullState.MERGED)
        assert "\nmerge" not in run("pr", "SYM-3").stdout, "nothing holds it back any more"


def test_the_doctor_warns_of_a_forge_that_cannot_be_used(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.workflow()
    assert doctors_finding(project)[0] is CheckStatus.OK
    with at(project, "gitlab", monkeypatch) as desk:
        assert doctors_finding(project)[0] is CheckStatus.OK
        for address, same in (
            ("https://u:secret@gitlab.example.test/octo-team/website.git", True),
            ("git@gitlab.example.test:Octo-Team/website", True),
            ("https://gitlab.example.test/octo-team/other", False),
        ):
            project.git("config", "remote.origin.url", address)
            status, text = doctors_finding(project)
            assert (status is CheckStatus.OK) is same
            assert "secret" not in text
        project.git("config", "remote.origin.url", "/srv/website.git")
        desk.repository.scopes = "read_api"
        status, text = doctors_finding(project)
        assert status is CheckStatus.WARNING
        assert "scope api" in text
        monkeypatch.setenv("FORGE_TOKEN", "")
        assert doctors_finding(project)[0] is CheckStatus.WARNING
