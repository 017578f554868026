"""The values that this layer hands out, and the one exception it raises."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from symphony.domain import (
    Blame,
    Category,
    Failure,
    SymphonyError,
    disk_full_hint,
    is_disk_full,
)

# What changed between two commits, file by file, as `git diff --numstat` tells it.


NUMSTAT: Final = ("--no-ext-diff", "--no-textconv", "--numstat", "-z")
"""Options of `git diff` for `parse_numstat`; nothing that a repository names is run for them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileChange:
    """One file; `path` is its new name. A binary file has 0 lines."""

    path: str
    insertions: int
    deletions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """The changed files, in git's order."""

    files: tuple[FileChange, ...] = ()

    @property
    def insertions(self) -> int:
        """Lines added in all files."""
        return sum(file.insertions for file in self.files)

    @property
    def deletions(self) -> int:
        """Lines removed in all files."""
        return sum(file.deletions for file in self.files)


def parse_numstat(output: bytes) -> Changes:
    """What `git diff --numstat -z` printed.

    A file is `added TAB removed TAB path NUL`; a renamed one is `added TAB removed TAB NUL old NUL new NUL`.
    What follows a record that is cut off is not counted.
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
        files.append(FileChange(path=path, insertions=_lines(added), deletions=_lines(removed)))
    return Changes(files=tuple(files))


def _lines(count: str) -> int:
    """The number that git printed, which is `-` for a binary file."""
    return 0 if count == "-" else int(count)


class WorkspaceError(SymphonyError):
    """A workspace could not be made, checked or prepared."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Workspace:
    """The directory in which an issue is worked on (DM14).

    Attributes:
        key: its name below the root.
        path: absolute, symlinks resolved.
        branch: the issue's branch; null where hooks populate the directory.
        base_commit: the commit on which the branch was begun; null where it is not known.
        created_now: whether this very call made it.
    """

    key: str
    path: Path
    branch: str | None
    base_commit: str | None
    created_now: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkspaceRecord:
    """Whose workspace a directory is; remembered beside it, so that old ones can be cleaned up (WS13)."""

    issue_id: str
    identifier: str
    key: str
    path: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressMark:
    """Equal marks mean: neither a new commit nor a changed tree in between (RT5)."""

    head: str | None
    tree: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """What became of the commits in a workspace.

    Attributes:
        branch: where the work was delivered to; null where hooks populate the directory.
        head: the commit that stands for the work; null where it cannot be told.
        commits: how many commits `head` is ahead of the base; 0 where it cannot be told.
        changes: what changed between the base and `head`; `None` where it cannot be told.
        delivered: whether the mirror has `head`, so that nothing committed can be lost with the directory.
        pushed: whether `origin` has it, as far as we know.
        failure: why the work could not be delivered and is in the workspace only; null where it was, or where
            there is none.
        push_failure: why `origin` does not have it although it was to be pushed.
        warnings: one line for people each.
    """

    branch: str | None
    head: str | None
    commits: int = 0
    changes: Changes | None = None
    delivered: bool = False
    pushed: bool = False
    failure: Failure | None = None
    push_failure: Failure | None = None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """Whether a workspace was removed; `kept_reason` says why an existing one was not."""

    removed: bool
    kept_reason: str | None = None


def cannot_be_made(path: Path, error: OSError) -> WorkspaceError:
    """The error of a workspace that the system refuses."""
    usual = f"see that this user may read and write {path} and the directory that it is in"
    return WorkspaceError.of(
        Category.WORKSPACE_PREPARE_FAILED,
        f"workspace {path} cannot be made: {error}",
        hint=disk_full_hint(path.parent) if is_disk_full(error) else usual,
    )


def invalid_cwd(path: Path, reason: str) -> WorkspaceError:
    """The error of a launch outside of a workspace (WS4); `reason` ends the sentence."""
    return WorkspaceError.of(
        Category.INVALID_WORKSPACE_CWD,
        f"no agent may be started in {path}: {reason}",
        blame=Blame.AGENT,
        retryable=False,
    )


def vanished_failure(path: Path) -> Failure:
    """Why a run failed during which somebody took its workspace away."""
    return Failure(
        category=Category.WORKSPACE_VANISHED,
        blame=Blame.WORKSPACE,
        message=f"the workspace {path} was deleted while the agent worked in it",
        hint="the next attempt makes it anew, from what was delivered before; see what cleans up there",
    )


# The address of a repository, and the login that stood in it, kept apart.
#
# An address with a password would stand in configurations, records and command lines, which agents and
# other users of the machine can read. So everything works with the address alone, and git is told the login
# by a credential helper, for one command, one scheme and one host: what is redirected elsewhere takes no
# login along. The login is in the environment of that git and of what git starts, as long as they run.


_USER: Final = "SYMPHONY_REPO_USER"
_PASSWORD: Final = "SYMPHONY_REPO_PASSWORD"  # noqa: S105 - the name of a variable
_TOKEN_CHARS: Final = 20
_HELPER: Final = (
    f'!f() {{ test "$1" = get && printf \'username=%s\\npassword=%s\\n\' "${_USER}" "${_PASSWORD}"; }}; f'
)
# Up to the last @, as a password may hold one. With ssh the user belongs to the address, and a password is of
# no use.
_ADDRESS = re.compile(
    r"(?i)(?P<scheme>[a-z][a-z0-9+.-]*)://(?P<login>[^/?#]*)@(?P<host>[^@/?#]*)(?P<rest>.*)", re.DOTALL
)
_HOST = re.compile(r"[A-Za-z0-9.:\[\]_-]+")


@dataclass(frozen=True, slots=True)
class Login:
    """Who git is to one server; without a password git's own helpers are asked for it."""

    server: str
    user: str = field(repr=False)
    password: str | None = field(repr=False)

    @property
    def options(self) -> tuple[str, ...]:
        """What git is told on its command line, where nothing secret stands."""
        key = f"credential.{self.server}"
        if self.password is None:
            return (f"--config-env={key}.username={_USER}",)
        # The empty one lets no other helper answer first, or keep what ours says.
        return ("-c", f"{key}.helper=", "-c", f"{key}.helper={_HELPER}")

    @property
    def environment(self) -> dict[str, str]:
        """The variables that the options refer to."""
        return {_USER: self.user, _PASSWORD: self.password or ""}

    @property
    def secrets(self) -> Iterator[str]:
        """What must be shown nowhere; a long name is a token, as in `https://TOKEN:x-oauth-basic@host`."""
        if self.password:
            yield self.password
        if len(self.user) >= _TOKEN_CHARS:
            yield self.user


def split_login(address: str) -> tuple[str, Login | None]:
    """The address without a login, and the login; an address of ssh keeps its user.

    A login that git's protocol for credentials cannot express (with a line break) is left out.
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
    told = f"{login.user}{login.password or ''}"
    return clean, login if told.isprintable() and _HOST.fullmatch(host) else None
