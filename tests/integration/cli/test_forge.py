"""`symphony forge check` against each forge on the loopback interface."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import structlog
from click.testing import CliRunner, Result

from contract.served import served
from harness.project import Project
from kit.forge.desk import KINDS, Desk, make_desk
from symphony.cli.failures import report
from symphony.cli.main import main
from symphony.domain import SymphonyError


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
    def __init__(self, desk: Desk) -> None:
        self.vendor = desk.vendor

    def provider(self) -> dict[str, Any]:
        return {"url": self.vendor.base}


@contextmanager
def at(project: Project, kind: str, monkeypatch: pytest.MonkeyPatch, **forge: Any) -> Iterator[Desk]:
    desk = make_desk(kind)
    monkeypatch.setenv("FORGE_TOKEN", desk.vendor.secret)
    with served(_Served(desk)) as settings:
        given = {"kind": kind, "repo": "octo-team/website", "token": "$FORGE_TOKEN", **settings, **forge}
        project.workflow(forge=given)
        yield desk


def check(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["forge", "check", *arguments], standalone_mode=False)


@pytest.mark.parametrize("kind", KINDS)
def test_the_token_is_told_with_what_it_lacks(
    kind: str, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    with at(project, kind, monkeypatch) as desk:
        done = check("--json")
        assert done.return_value == 0, done.output
        found = json.loads(done.stdout)
        assert (found["ok"], found["kind"], found["login"]) == (True, kind, "symphony-bot")
        assert "symphony-bot" in check().stdout
        desk.repository.may_write = False
        done = check()
        assert done.return_value == 1
        assert "error:" in done.stdout
        assert desk.vendor.secret not in done.output


def failed(*arguments: str) -> tuple[int, SymphonyError]:
    done = check(*arguments)
    assert isinstance(done.exception, SymphonyError), done.output
    return report(done.exception), done.exception


def test_what_cannot_be_used_is_one_failure_with_a_hint(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.workflow()
    assert failed()[0] == 3
    with at(project, "github", monkeypatch, url="http://git.example.org/api/v3"):
        assert failed()[0] == 3
    with at(project, "github", monkeypatch) as desk:
        monkeypatch.delenv("FORGE_TOKEN")
        code, error = failed()
        assert code == 4
        assert "FORGE_TOKEN" in (error.failure.hint or "")
        monkeypatch.setenv("FORGE_TOKEN", desk.vendor.secret)
        desk.repository.archived = True
        assert failed()[0] == 1
