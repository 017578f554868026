"""Values that this package returns, its exception, and repository addresses with their logins."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from msgspec import Struct

from symphony.domain import (
    NO_WORK,
    Blame,
    Category,
    DeliveredBranch,
    Failure,
    FileChange,
    SymphonyError,
    WorkSize,
    disk_full_hint,
    is_disk_full,
)


class WorkspaceError(SymphonyError):
    """A workspace could not be created, checked or prepared."""

    @classmethod
    def of(
        cls,
        category: Category,
        message: str,
        *,
        hint: str | None = None,
        blame: Blame = Blame.WORKSPACE,
        retryable: bool = True,
    ) -> "WorkspaceError":
        """The error with its `Failure` built from the arguments."""
        return cls(Failure(category=category, blame=blame, message=message, hint=hint, retryable=retryable))


def prepare_error(path: Path, error: OSError) -> WorkspaceError:
    """The error for a workspace that the operating system refuses to create."""
    usual = f"see that this user may read and write {path} and the directory that it is in"
    return WorkspaceError.of(
        Category.WORKSPACE_PREPARE_FAILED,
        f"workspace {path} cannot be made: {error}",
        hint=disk_full_hint(path.parent) if is_disk_full(error) else usual,
    )


def vanished_failure(path: Path) -> Failure:
    """The failure of a run whose workspace was deleted while the run was active."""
    return Failure(
        category=Category.WORKSPACE_VANISHED,
        blame=Blame.WORKSPACE,
        message=f"the workspace {path} was deleted while the agent worked in it",
        hint="the next attempt makes it again from the delivered work; find out what deletes files there",
    )


class Workspace(Struct, frozen=True, kw_only=True):
    """The directory in which an issue is worked on.

    Attributes:
        key: name of the directory below the root.
        path: absolute, symlinks resolved.
        branch: the issue's branch; `None` if hooks populate the directory.
        base_commit: commit at which the branch began; `None` if unknown.
        created_now: whether the call that returned this value created the directory.
    """

    key: str
    path: Path
    branch: str | None
    base_commit: str | None
    created_now: bool


class WorkspaceRecord(Struct, frozen=True, kw_only=True):
    """Which issue a workspace directory belongs to."""

    issue_id: str
    identifier: str
    key: str
    path: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressMark:
    """State of a workspace. Two equal marks mean: no new commit and no changed file in between.

    `changed` are the uncommitted paths and those that differ from the commit at which the branch began;
    invisible characters in them are escaped. It is empty if there are more than `MAX_CHANGED`. With `clean`,
    all files are committed or ignored. With `gone`, nothing is at the path of the workspace.
    """

    head: str | None
    tree: str
    changed: tuple[str, ...] = field(default=(), compare=False)
    clean: bool = field(default=False, compare=False)
    gone: bool = False


MAX_CHANGED: Final = 200
"""How many changed paths of a workspace are compared with those of others at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Work that exists only in a workspace: one line about it, and the command that shows it."""

    reason: str
    look: str


class KeptWorkspace(Struct, frozen=True, kw_only=True):
    """A workspace that is kept, because of work that is on no branch or for another reason; as last seen."""

    issue_id: str
    identifier: str
    path: Path
    reason: str
    look: str | None


NUMSTAT: Final = ("--no-ext-diff", "--no-textconv", "--numstat", "-z")
"""Options of `git diff` for `parse_numstat`. No program that a repository names is run."""


PATCH: Final = ("--no-ext-diff", "--no-textconv", "--no-color", "--no-prefix", "--patch")
"""Options of `git diff` for a patch whose paths have no prefix. No program that a repository names is run."""


class Patch(Struct, frozen=True, kw_only=True):
    """The patch of a delivered branch since its start: the beginning of git's output."""

    branch: str
    content: bytes


def parse_numstat(output: bytes) -> tuple[FileChange, ...]:
    """The changed files by the output of `git diff --numstat -z`, in git's order.

    A file is `added TAB removed TAB path NUL`; a renamed one is `added TAB removed TAB NUL old NUL new NUL`.
    Parsing stops at a truncated record.
    """
    records = iter(output.decode("utf-8", "backslashreplace").split("\0"))
    files = []
    for record in records:
        added, separator, rest = record.partition("\t")
        removed, tab, path = rest.partition("\t")
        if not separator or not tab:
            break
        if not path:
            _, path = next(records, ""), next(records, "")
        insertions, deletions = (0 if count == "-" else int(count) for count in (added, removed))
        files.append(FileChange(path=path, insertions=insertions, deletions=deletions))
    return tuple(files)


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """Result of delivering the commits of a workspace.

    Attributes:
        head: the commit to deliver; `None` if unknown.
        work: the size of the work of `head` beyond the base, delivered or not; zero if unknown.
        files: the changed files; empty if unknown.
        delivered: the branch in the mirror; `None` without a commit of its own, or if hooks populate
            workspaces.
        failure: why the commits are only in the workspace; `None` if they were delivered or there are none.
        warnings: for people, one line each.
        left: work in the workspace that is on no branch; `None` if there is none, or if the delivery did not
            look for it.
    """

    head: str | None
    work: WorkSize = NO_WORK
    files: tuple[FileChange, ...] = ()
    delivered: DeliveredBranch | None = None
    failure: Failure | None = None
    warnings: tuple[str, ...] = ()
    left: Work | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """Whether a workspace or branch was removed.

    `kept_reason` says why an existing one was kept; `look` is the command that shows the work in it.
    `delivery` is the delivery before the removal of a workspace; `None` if there was no workspace to deliver.
    """

    removed: bool
    kept_reason: str | None = None
    look: str | None = None
    delivery: Delivery | None = field(default=None, compare=False)


# --- Logins in repository addresses ---
# Agents and other users can read configuration files, records and command lines, so none of them may contain
# a password. The address is used without its login everywhere. Git gets the login from a credential helper,
# for one command, scheme and host: a redirect to another host does not receive it.

_USER: Final = "SYMPHONY_REPO_USER"
_PASSWORD: Final = "SYMPHONY_REPO_PASSWORD"  # noqa: S105 - the name of a variable
_TOKEN_CHARS: Final = 20
_HELPER: Final = (
    f'!f() {{ test "$1" = get && printf \'username=%s\\npassword=%s\\n\' "${_USER}" "${_PASSWORD}"; }}; f'
)
# The login ends at the last @, because a password may contain one.
_ADDRESS = re.compile(
    r"(?i)(?P<scheme>[a-z][a-z0-9+.-]*)://(?P<login>[^/?#]*)@(?P<host>[^@/?#]*)(?P<rest>.*)", re.DOTALL
)
_HOST = re.compile(r"[A-Za-z0-9.:\[\]_-]+")


@dataclass(frozen=True, slots=True)
class Login:
    """Credentials for one git server; without a password, git asks its own credential helpers for it."""

    server: str
    user: str = field(repr=False)
    password: str | None = field(repr=False)

    @property
    def options(self) -> tuple[str, ...]:
        """Command line options for git; they contain no secret."""
        key = f"credential.{self.server}"
        if self.password is None:
            return (f"--config-env={key}.username={_USER}",)
        # The empty value removes all other helpers, so that none answers first or stores the password.
        return ("-c", f"{key}.helper=", "-c", f"{key}.helper={_HELPER}")

    @property
    def environment(self) -> dict[str, str]:
        """The variables that `options` refer to."""
        return {_USER: self.user, _PASSWORD: self.password or ""}

    @property
    def secrets(self) -> Iterator[str]:
        """Texts to mask. A long user name is a token, as in `https://TOKEN:x-oauth-basic@host`."""
        if self.password:
            yield self.password
        if len(self.user) >= _TOKEN_CHARS:
            yield self.user


def local_repository(repository: str) -> Path | None:
    """The path of a repository on this machine; `None` for an address."""
    path = Path(repository)
    return path if path.is_absolute() else None


def split_login(address: str) -> tuple[str, Login | None]:
    """The address without its login, and the login. An ssh address keeps its user and loses its password.

    A login that git's credential protocol cannot express (one with a line break) is dropped.
    """
    found = _ADDRESS.fullmatch(address)
    if found is None:
        return address, None
    scheme, host = found["scheme"], found["host"]
    user, colon, password = found["login"].partition(":")
    if scheme.lower() not in {"http", "https"}:
        return f"{scheme}://{user}@{host}{found['rest']}", None
    clean = f"{scheme}://{host}{found['rest']}"
    login = Login(f"{scheme.lower()}://{host}", unquote(user), unquote(password) if colon else None)
    expressible = f"{login.user}{login.password or ''}".isprintable() and _HOST.fullmatch(host)
    return clean, login if expressible else None
