"""An approval with a forge, by page and by command: it merges, queues or opens, or says why not.

Each forge has the same flow; GitHub's is tried both by page and by command.
"""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from typing import Any, TypeVar

import httpx
import pytest

from contract.repository import WRITER, Pull
from harness.forge_remote import Remote, at
from harness.project import DEADLINE_S, Daemon, Project, until
from symphony.domain import CheckState, PullState, ReviewState

T = TypeVar("T")
BRANCH = "symphony/SYM-1"
WORK: list[dict[str, Any]] = [
    {"write": "app.py", "text": "x = 1\n"},
    {"commit": "Begin the app"},
    {"tool": "board_move", "arguments": {"state": "Human Review"}},
]
RARELY: dict[str, Any] = {"poll_interval_ms": 3_600_000, "checks_grace_ms": 1, "open": "ready"}
"""The daemon looks once the pull request is open, and when a person asks for it."""


@dataclass(frozen=True)
class Desk:
    """A daemon whose only issue waits for a review, and its forge."""

    project: Project
    remote: Remote
    daemon: Daemon

    def pull(self) -> Pull:
        """The open pull request, which the daemon has looked at."""
        self.daemon.wait_for("pull_request_judged")
        (pull,) = self.remote.opened()
        return pull

    def check(self, state: CheckState) -> None:
        self.remote.desk.repository.check(self.pull(), "test", state)

    def until(self, probe: Callable[[], T | None]) -> T:
        return until(probe, self.daemon.log.read_text)


@contextmanager
def desk(project: Project, kind: str = "github", **forge: Any) -> Iterator[Desk]:
    project.issue("SYM-1", WORK)
    with at(project, kind, **forge) as remote, project.daemon() as daemon:
        daemon.wait_for("work_ready", issue_identifier="SYM-1")
        yield Desk(project, remote, daemon)


Approve = Callable[[Project], str | None]


def by_command(project: Project) -> str | None:
    """Look and approve; the reason of a refusal."""
    shown = project.symphony("review", "SYM-1")
    assert shown.returncode == 0, shown.stderr
    done = project.symphony("review", "SYM-1", "--approve")
    assert (done.returncode == 0) == (done.stderr == "")
    return done.stderr or None


def on_page(project: Project) -> str | None:
    """The same by the forms of the page."""
    path = json.loads((project.state_dir / "control.json").read_text())["socket"]
    transport = httpx.HTTPTransport(uds=path, verify=False)
    with httpx.Client(transport=transport, base_url="http://symphony", timeout=DEADLINE_S) as browser:
        page = browser.get("/issues/SYM-1/diff").text
        _, _, form = page.partition('id="review-form"')
        if not form:
            return unescape(page)
        fields = dict(
            re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', form.split("</form>")[0])
        )
        sent = browser.post("/actions/review", data={**fields, "message": "", "decision": "approve"})
        told = unescape(browser.get(sent.headers["location"]).text)
    return None if "told is-done" in told else told


SLOW = pytest.mark.slow
EVERYWHERE = pytest.mark.parametrize(
    ("kind", "approve"),
    [
        pytest.param("github", by_command, id="github-command"),
        pytest.param("github", on_page, marks=SLOW, id="github-page"),
        pytest.param("gitlab", on_page, marks=SLOW, id="gitlab"),
        pytest.param("forgejo", by_command, marks=SLOW, id="forgejo"),
    ],
)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(root=tmp_path).create()


@EVERYWHERE
def test_an_approval_opens_the_pull_request(project: Project, kind: str, approve: Approve) -> None:
    with desk(project, kind, open="never") as here:
        assert here.remote.opened() == []
        assert approve(project) is None
        (pull,) = here.until(lambda: here.remote.opened() or None)
        assert (pull.branch, pull.draft, pull.sha) == (BRANCH, False, project.git("rev-parse", BRANCH))


@EVERYWHERE
def test_an_approval_merges_what_the_rules_allow_and_moves_the_issue(
    project: Project, kind: str, approve: Approve
) -> None:
    with desk(project, kind, land="auto", merged_state="Done", **RARELY) as here:
        pull = here.pull()
        here.remote.desk.repository.review(pull, WRITER, ReviewState.APPROVED)
        here.check(CheckState.PASSED)
        assert approve(project) is None
        here.daemon.wait_for("pull_request_landing", commit=pull.sha)
        here.until(lambda: project.written_state("SYM-1") == "Done" or None)
        assert pull.state is PullState.MERGED


def forge_failure(project: Project) -> dict[str, Any] | None:
    """The failure of the last step at the forge."""
    (ready,) = json.loads(project.symphony("status", "--json").stdout)["ready"]
    found: dict[str, Any] | None = ready["pull_request"]["failure"]
    return found


@pytest.mark.slow
@EVERYWHERE
def test_an_approval_queues_where_the_forge_has_a_queue(
    project: Project, kind: str, approve: Approve
) -> None:
    with desk(project, kind, land="queue", **RARELY) as here:
        pull = here.pull()
        here.remote.desk.repository.review(pull, WRITER, ReviewState.APPROVED)
        here.check(CheckState.PASSED)
        assert approve(project) is None
        if kind == "forgejo":  # it has none
            failed = here.until(lambda: forge_failure(project))
            assert ("no merge queue" in failed["message"], "forge.land" in failed["hint"]) == (True, True)
            return
        assert here.daemon.wait_for("pull_request_landing")["way"] == "queue"
        assert (pull.queued, pull.state) == (True, PullState.OPEN)


@SLOW
def test_an_approval_while_checks_run_is_carried_out_once_they_passed(project: Project) -> None:
    with desk(project, land="auto", **{**RARELY, "poll_interval_ms": 200}) as here:
        pull = here.pull()
        here.check(CheckState.PENDING)
        here.daemon.wait_for("pull_request_judged", code="checks_pending")
        assert by_command(project) is None
        here.remote.desk.repository.review(pull, WRITER, ReviewState.APPROVED)
        here.check(CheckState.PASSED)
        here.until(lambda: pull.state is PullState.MERGED or None)


def fail_checks(here: Desk) -> None:
    here.check(CheckState.FAILED)


def leave_unapproved(here: Desk) -> None:
    here.check(CheckState.PASSED)


def close_it(here: Desk) -> None:
    """A person closes it, and the daemon has not looked since then."""
    here.remote.desk.repository.end(here.pull(), PullState.CLOSED)


def push_to_it(here: Desk) -> None:
    """A person pushes to the branch at the forge."""
    here.pull()
    clone = here.project.root / "clone"
    here.project.git("clone", "--quiet", "--branch", BRANCH, str(here.remote.bare), str(clone))
    author = ("-c", "user.name=Ann", "-c", "user.email=ann@localhost")
    here.project.git(*author, "commit", "--quiet", "--allow-empty", "-m", "More", cwd=clone)
    here.project.git("push", "--quiet", "origin", BRANCH, cwd=clone)


@EVERYWHERE
@pytest.mark.parametrize(
    ("happens", "settings", "says"),
    [
        pytest.param(
            fail_checks, {"land": "auto", "feedback": {"ci": False}}, "checks failed: test", id="checks"
        ),
        pytest.param(close_it, {"land": "auto"}, "was closed without being merged", id="closed", marks=SLOW),
        pytest.param(push_to_it, {"land": "auto"}, "the daemon did not push", id="head", marks=SLOW),
        pytest.param(leave_unapproved, {"land": "auto"}, "no person has approved", id="approval", marks=SLOW),
        pytest.param(leave_unapproved, {}, "forge.land is never", id="never", marks=SLOW),
    ],
)
def test_an_approval_that_the_forge_would_not_carry_out_is_refused_with_the_reason(
    project: Project,
    kind: str,
    approve: Approve,
    happens: Callable[[Desk], None],
    settings: dict[str, Any],
    says: str,
) -> None:
    """The daemon looks once more before it decides."""
    with desk(project, kind, **RARELY, **settings) as here:
        happens(here)
        refusal = approve(project)
        assert refusal is not None
        assert says in refusal
        (pull,) = here.remote.opened()
        assert (pull.armed, pull.queued, pull.state is PullState.MERGED) == (False, False, False)
        assert project.written_state("SYM-1") == "Human Review"
