"""A repository with pull requests, people and CI, which do what a test says."""

import hashlib
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count

from symphony.domain import CheckState, PullState, ReviewState

ME, WRITER, STRANGER, BOT = "symphony-bot", "ann", "mallory", "project_7_bot_0a1b"
READER = "rea"
"""Belongs to the organisation, and may only read."""
START = datetime(2024, 1, 1, 12, 0, tzinfo=UTC)
"""Long ago, so that no comment of a test is younger than a daemon may answer, whatever the clock says."""


@dataclass(slots=True)
class Check:
    id: int
    name: str
    state: CheckState
    sha: str
    required: bool = True
    step: str = "Run tests"
    log: bytes = b""


@dataclass(slots=True)
class Comment:
    id: int
    login: str
    body: str
    at: datetime


@dataclass(slots=True)
class Thread:
    id: int
    path: str
    line: int | None
    comments: list[Comment]
    resolved: bool = False


@dataclass(slots=True)
class Review:
    id: int
    login: str
    state: ReviewState
    body: str
    sha: str
    at: datetime


@dataclass(slots=True)
class Pull:
    number: int
    branch: str
    base: str
    title: str
    body: str
    sha: str
    draft: bool = False
    login: str = ME
    head_repo: str | None = None
    """Of a fork; the repository itself otherwise."""
    head_deleted: bool = False
    state: PullState = PullState.OPEN
    conflicts: bool | None = False
    checks: list[Check] = field(default_factory=list)
    reviews: list[Review] = field(default_factory=list)
    threads: list[Thread] = field(default_factory=list)
    comments: list[Comment] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    reviewers: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=lambda: ["src/page.py"])
    renamed: dict[str, str] = field(default_factory=dict)
    """Old paths by the new ones, which are in `files`."""
    merged_results: str = ""
    """The commit that pipelines run on instead of the head: GitLab's merge of it into the base."""
    armed: bool = False
    queued: bool = False
    updated: datetime = START
    pushes: list[tuple[str, datetime]] = field(default_factory=list)
    """Each head with its time."""


class Repository:
    """What the forge knows. Every method is something that a person, CI or the forge does."""

    def __init__(self, name: str = "octo-team/website") -> None:
        self.name = name
        self.archived = False
        self.may_write = True
        self.holds = False
        """A rule of its own holds back what is ready."""
        self.push_disarms = True
        self.scopes: str | None = None
        self.pulls: dict[int, Pull] = {}
        self.branches: dict[str, str] = {"main": _sha("main")}
        self.writers = {ME, WRITER}
        self.bots = {BOT}
        self.ids = count(1001)

    def now(self) -> datetime:
        """A second later than all before."""
        return START + timedelta(seconds=next(self.ids))

    def push(self, branch: str, pull: Pull | None = None) -> str:
        """A new commit, by whomever; CI has not yet registered anything."""
        sha = self.branches[branch] = _sha(f"{branch}{next(self.ids)}")
        if pull is not None:
            pull.sha, pull.queued, pull.updated = sha, False, self.now()
            pull.armed = pull.armed and not self.push_disarms
            pull.pushes.append((sha, pull.updated))
        return sha

    def open(
        self, branch: str, *, base: str = "main", title: str = "A change", body: str = "", draft: bool = False
    ) -> Pull:
        number = len(self.pulls) + 1
        sha = self.branches.get(branch) or self.push(branch)
        pull = Pull(number, branch, base, title, body, sha, draft=draft, updated=self.now())
        pull.pushes.append((sha, pull.updated))
        self.pulls[number] = pull
        return pull

    def check(
        self,
        pull: Pull,
        name: str,
        state: CheckState,
        *,
        log: bytes = b"",
        sha: str = "",
        required: bool = True,
    ) -> Check:
        """CI reports a check, of the head unless another commit is named."""
        check = Check(next(self.ids), name, state, sha or pull.sha, required=required, log=log)
        pull.checks = [each for each in pull.checks if (each.name, each.sha) != (name, check.sha)] + [check]
        return check

    def say(self, pull: Pull, login: str, body: str) -> Comment:
        comment = Comment(next(self.ids), login, body, self.now())
        pull.comments.append(comment)
        pull.updated = comment.at
        return comment

    def remark(
        self,
        pull: Pull,
        login: str,
        body: str,
        *,
        path: str = "src/page.py",
        line: int | None = 3,
        thread_id: int | None = None,
    ) -> Thread:
        comment = Comment(next(self.ids), login, body, self.now())
        thread = Thread(next(self.ids) if thread_id is None else thread_id, path, line, [comment])
        pull.threads.append(thread)
        pull.updated = comment.at
        return thread

    def review(self, pull: Pull, login: str, state: ReviewState, body: str = "") -> Review:
        review = Review(next(self.ids), login, state, body, pull.sha, self.now())
        pull.reviews.append(review)
        pull.updated = review.at
        return review

    def end(self, pull: Pull, state: PullState) -> None:
        """Somebody merges or closes it."""
        pull.state, pull.armed, pull.queued, pull.updated = state, False, False, self.now()

    def thread(self, thread_id: int) -> tuple[Pull, Thread] | None:
        found = (
            (pull, each) for pull in self.pulls.values() for each in pull.threads if each.id == thread_id
        )
        return next(found, None)

    def log(self, check_id: int) -> bytes | None:
        checks = (check for pull in self.pulls.values() for check in pull.checks)
        return next((check.log for check in checks if check.id == check_id), None)

    def required(self) -> list[str]:
        """The checks that the base branch requires: all that were ever required."""
        return sorted({c.name for pull in self.pulls.values() for c in pull.checks if c.required})

    def is_ready(self, pull: Pull) -> bool:
        """Whether the forge's own rules let it be merged now."""
        at_head = [check for check in pull.checks if check.sha == pull.sha and check.required]
        return (
            not self.holds
            and bool(at_head)
            and all(c.state is CheckState.PASSED for c in at_head)
            and not pull.conflicts
        )


def _sha(seed: str) -> str:
    return hashlib.sha1(seed.encode(), usedforsecurity=False).hexdigest()
