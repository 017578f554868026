"""The folders that agents keep in the operator's home, as data: what of them a session may change for good.

A session that `workspace.isolation` confines gets each of them as a folder in memory. What would be executed
or obeyed later, by the operator's own sessions or for other issues, is in it as a copy or read-only:
settings, hooks, plug-ins, commands, skills, instructions. The facts about an agent were observed with the
version that its profile names.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

_PROJECT: Final = "{project}"
_MAX_PROJECT_CHARS: Final = 200
_DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentFolder:
    """A folder of an agent, of which a session has a version of its own, gone at its end.

    Its files are copies, its directories are read-only.

    Attributes:
        path: the folder, which is made if it is missing; relative to the operator's home.
        is_file: `path` is a file, of which the session has a copy.
        variable: the variable that moves it, or None.
        below: where it lies below the directory that the variable names.
        unless: it is not used where this variable is set.
        kept: the login and the threads, relative to it: what a session writes there stays. A name that ends
            in `/` is a directory, which is made if it is missing. `{project}` is Claude Code's name for the
            workspace: the conversations of other directories are not there, nor are notes for them.
        fresh: names that begin empty: caches, logs, databases.
        variables: what leads a session to a kept place of its threads, in place of its usual one.
    """

    path: Path
    is_file: bool = False
    variable: str | None = None
    below: str = ""
    unless: str | None = None
    kept: tuple[str, ...] = ()
    fresh: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)

    def without_threads(self) -> "AgentFolder":
        """Return the folder as a session sees it whose threads end with it."""
        threads = tuple(name for name in self.kept if name.endswith("/"))
        kept = tuple(name for name in self.kept if name not in threads)
        return replace(self, kept=kept, fresh=(*self.fresh, *threads))


def located(folders: Iterable[AgentFolder], environ: Mapping[str, str], cwd: Path) -> Iterator[AgentFolder]:
    """Yield the folders that a process with these variables uses, with absolute paths."""
    home = environ.get("HOME")
    for folder in folders:
        moved = environ.get(folder.variable) if folder.variable else None
        if folder.unless and environ.get(folder.unless):
            continue
        if moved or home:
            path = Path(moved, folder.below) if moved else Path(str(home), folder.path)
            kept = tuple(name.replace(_PROJECT, claude_project(cwd)) for name in folder.kept)
            yield replace(folder, path=path, kept=kept)


def claude_project(cwd: Path) -> str:
    """Return the name of the directory in which Claude Code keeps the conversations of a workspace."""
    text = str(cwd)
    name = re.sub(r"[^a-zA-Z0-9]", "-", text)
    if len(name) <= _MAX_PROJECT_CHARS:
        return name
    number = 0
    for character in text:
        number = (number * 31 + ord(character)) & 0xFFFFFFFF
    number = abs(number - (1 << 32) if number >= 1 << 31 else number)
    digits = ""
    while number:
        number, digit = divmod(number, 36)
        digits = _DIGITS[digit] + digits
    return f"{name[:_MAX_PROJECT_CHARS]}-{digits or '0'}"


_DATABASE: Final = ("opencode.db", "opencode.db-wal", "opencode.db-shm")

CODEX_FOLDERS: Final = (
    AgentFolder(
        path=Path(".codex"),
        variable="CODEX_HOME",
        kept=("auth.json", "sessions/", "archived_sessions/"),
        fresh=("tmp", ".tmp", "log", "logs", "cache", "shell_snapshots", "history.jsonl"),
    ),
)
CLAUDE_FOLDERS: Final = (
    AgentFolder(
        path=Path(".claude"),
        variable="CLAUDE_CONFIG_DIR",
        kept=(".credentials.json", f"projects/{_PROJECT}/"),
        fresh=(
            *("backups", "cache", "debug", "downloads", "file-history", "history.jsonl", "ide", "logs"),
            *(
                "paste-cache",
                "plans",
                "session-env",
                "sessions",
                "shell-snapshots",
                "statsig",
                "stats-cache.json",
            ),
            *("tasks", "telemetry", "todos", "usage-data"),
        ),
    ),
    AgentFolder(path=Path(".claude.json"), is_file=True, unless="CLAUDE_CONFIG_DIR"),
)
GEMINI_FOLDERS: Final = (
    AgentFolder(
        path=Path(".gemini"),
        kept=("oauth_creds.json", "gemini-credentials.json", "mcp-oauth-tokens.json"),
        fresh=("tmp", "history"),
    ),
)
OPENCODE_FOLDERS: Final = (
    AgentFolder(
        path=Path(".local/share/opencode"),
        variable="XDG_DATA_HOME",
        below="opencode",
        kept=("auth.json", "mcp-auth.json", "isolated/"),
        fresh=("bin", "log", "repos", "snapshot", "storage", "tool-output", "worktree", *_DATABASE),
        # A database in memory beside one that is kept would break the latter.
        variables={"OPENCODE_DB": f"isolated/{_DATABASE[0]}"},
    ),
    AgentFolder(
        path=Path(".local/state/opencode"), variable="XDG_STATE_HOME", below="opencode", fresh=("locks",)
    ),
    AgentFolder(path=Path(".config/opencode"), variable="XDG_CONFIG_HOME", below="opencode"),
)
AIDER_FOLDERS: Final = (AgentFolder(path=Path(".aider"), fresh=("caches",)),)
