"""A real daemon, a real git remote and a forge on the loopback interface: one pull request, always."""

import json
import os
import shutil
import signal
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NoReturn

import pytest
from typing_extensions import override

from contract.served import served
from contract.vendor import Asked, Given, Vendor
from harness.project import Daemon, Project, until
from kit.forge.desk import KINDS, Desk, make_desk
from kit.forge.repository import Pull
from symphony.domain import CheckState, PullState
from symphony.trackers.http import ExchangeError

BRANCH = "symphony/SYM-1"
WORK: list[dict[str, Any]] = [
    {"write": "work.txt", "text": "work\n"},
    {"commit": "Work"},
    {"say": "I did it, @ann."},
    {"tool": "board_move", "arguments": {"state": "Human Review"}},
]


class Remote(Vendor):
    """A forge whose branches are those of a bare repository; it may kill the daemon at a request."""

    def __init__(self, desk: Desk, project: Project) -> None:
        super().__init__(desk.clock)
        self.desk, self.project, self.base = desk, project, desk.vendor.base
        self.bare = project.root / "origin.git"
        self.victim: Daemon | None = None
        self.kills: tuple[str, int, str] | None = None

    @property
    def vendor(self) -> Vendor:
        return self

    def provider(self) -> dict[str, Any]:
        return {"url": self.base}

    @override
    def handle(self, asked: Asked) -> Given:
        return self.desk.vendor.handle(asked)

    @override
    def throttles(self) -> Mapping[str, tuple[Given, int | None]]:
        return self.desk.vendor.throttles()

    @override
    def exchange(self, method: str, address: str, headers: Mapping[str, str], content: bytes | None) -> Given:
        self._look_at_branches()
        mortal = self._is_fatal(method, address)
        if mortal == "before":
            self._kill()
        given = self.desk.vendor.exchange(method, address, headers, content)
        if mortal == "after":
            self._kill()
        return given

    def _look_at_branches(self) -> None:
        refs = self.project.git("for-each-ref", "--format=%(refname:short) %(objectname)", cwd=self.bare)
        for line in refs.splitlines():
            name, sha = line.split()
            self.desk.repository.branches[name] = sha
            for pull in self.opened():
                if pull.branch == name:
                    pull.sha = sha

    def _is_fatal(self, method: str, address: str) -> str | None:
        """Whether the daemon dies before this request is handled, or after it."""
        if self.kills is None or self.kills[0] not in f"{method} {address}":
            return None
        when, left, moment = self.kills
        self.kills = None if left == 1 else (when, left - 1, moment)
        return moment if left == 1 else None

    def _kill(self) -> NoReturn:
        assert self.victim is not None
        os.kill(self.victim.process.pid, signal.SIGKILL)
        raise ExchangeError("nobody is there any more")

    def opened(self) -> list[Pull]:
        return list(self.desk.repository.pulls.values())


@contextmanager
def at(project: Project, kind: str, **forge: Any) -> Iterator[Remote]:
    desk = make_desk(kind)
    remote = Remote(desk, project)
    project.git("init", "--quiet", "--bare", "--initial-branch=main", str(remote.bare))
    project.git("remote", "add", "origin", str(remote.bare))
    project.git("push", "--quiet", "origin", "main")
    project.environment["FORGE_TOKEN"] = desk.vendor.secret
    with served(remote) as settings:
        given = {"kind": kind, "repo": "octo-team/website", "token": "$FORGE_TOKEN", **settings, **forge}
        project.workflow(forge=given)
        yield remote


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
        done = project.symphony("run", "--once")
        assert done.returncode == 0, done.stderr
        assert len(remote.opened()) == 1


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
            shown = json.loads(project.symphony("pr", "SYM-1", "--json").stdout)
            assert (shown["number"], shown["code"]) == (1, "checks_pending")
            remote.desk.repository.end(pull, PullState.MERGED)
            daemon.wait_for("pull_request_ended", state="merged")
            until(lambda: project.written_state("SYM-1") == "Done" or None, daemon.log.read_text)
            daemon.wait_for("workspace_removed")
        with closing(sqlite3.connect(project.state_dir / "journal.db")) as journal:
            (record,) = (json.loads(text) for (text,) in journal.execute("SELECT record FROM runs"))
        assert record["merged"] is True
        explained = json.loads(project.symphony("explain", "SYM-1", "--json").stdout)
        assert explained["result"]["pull_request"]["state"] == "merged", "the files know it, too"
