"""The state directory of a workflow file: where it is, its parts, and the operator's token in it."""

import hashlib
import json
import os
import re
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Final

from symphony.daemon.instance_lock import InstanceLock, LockHolder, StateDirectoryError, hold_lock
from symphony.domain import Blame, Category, Failure, SymphonyError, disk_full_hint, is_disk_full
from symphony.files import open_regular, write_atomic, write_new
from symphony.journal.transcripts import TRANSCRIPTS, transcript_path
from symphony.processes.base import Identity

SYSTEM_STATE_HOMES: Final = (Path("/var/lib/symphony"), Path("/var/lib/private/symphony"))
"""The directories in which a service manager makes the state directories of services."""
KNOWN_FOLDER: Final = "known"
JOURNAL_FILE: Final = "journal.db"
TOKEN_VARIABLE: Final = "SYMPHONY_OPERATOR_TOKEN"  # noqa: S105 - a name, not a secret
_UNSAFE_NAME: Final = re.compile(r"[^A-Za-z0-9._-]+")
_MAX_KNOWN: Final = 1_000
_TOKEN_FILE: Final = "operator.token"  # noqa: S105 - a name, not a secret
_MIN_TOKEN_CHARS: Final = 16
_MAX_TOKEN_BYTES: Final = 4_096


# --- where it is -----------------------------------------------------------------------------------------


def locate(workflow_path: Path, environment: Mapping[str, str]) -> Path:
    """The state directory of a workflow file; creates nothing.

    A service manager may name several directories, separated by colons; the first one counts.
    """
    managed = environment.get("STATE_DIRECTORY", "").split(":")[0]
    if configured := environment.get("SYMPHONY_STATE_DIR") or managed:
        return Path(configured).expanduser().absolute()
    real = os.path.realpath(workflow_path)
    name = _UNSAFE_NAME.sub("-", Path(real).parent.name).strip("-.") or "workflow"
    digest = hashlib.sha256(os.fsencode(real)).hexdigest()[:12]
    return state_home(environment) / f"{name}-{digest}"


def journal_path(workflow_path: Path, environment: Mapping[str, str]) -> Path:
    """The journal of the daemon that serves, or served, a workflow file; it need not exist."""
    return locate(workflow_path, environment) / JOURNAL_FILE


def library_key(state_dir: Path) -> str:
    """The name of a state directory's daemon in a library, because several daemons may share a library."""
    digest = hashlib.sha256(os.fsencode(os.path.abspath(state_dir))).hexdigest()[:12]  # noqa: PTH100 - it resolves dots
    return f"{state_dir.name}-{digest}"


def state_home(environment: Mapping[str, str]) -> Path:
    """The parent of this user's state directories, unless they are configured."""
    home = environment.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(home).expanduser().absolute() / "symphony"


def instance_of(state_dir: Path) -> str:
    """The mark that the daemons of a state directory put on their child processes.

    It depends on the path only, so that children are found even if the content of the directory is gone. It
    includes the root of the file system, because two containers may share a process table and both have this
    path.
    """
    root = Path("/").stat()
    text = f"{root.st_dev}:{root.st_ino}:".encode() + os.fsencode(os.path.realpath(state_dir))
    return hashlib.sha256(text).hexdigest()[:24]


_LATER_DIRECTORIES: Final = ("artifacts", "homes", "instructions", "runs", "remote-runs", "evaluations")


# --- the directory ---------------------------------------------------------------------------------------


class StateDirectory:
    """One directory per workflow file, private to its user."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.logs = path / "logs"
        self.transcripts = path / TRANSCRIPTS
        self.artifacts = path / "artifacts"

    def create(self) -> None:
        """Create the directory and its parts, mode 0700.

        Raises:
            StateDirectoryError: it cannot be created or written.
        """
        try:
            for part in (self.path, self.logs, self.transcripts):
                part.mkdir(mode=0o700, parents=True, exist_ok=True)
            for name in _LATER_DIRECTORIES:  # these are made when needed, which is too late for a complaint
                if os.path.lexists(self.path / name):
                    (self.path / name).mkdir(exist_ok=True)
            probe = self.path / ".writable"
            probe.write_bytes(b"")
            probe.unlink()
        except (FileExistsError, NotADirectoryError) as error:
            raise StateDirectoryError.unusable(
                f"{error.filename} is not a directory, and the daemon needs one there",
                hint="move it away, or set SYMPHONY_STATE_DIR to another directory",
            ) from error
        except OSError as error:
            hint = "set SYMPHONY_STATE_DIR to a directory that this user can write"
            raise StateDirectoryError.unusable(
                f"the state directory {self.path} cannot be used: {error.strerror}",
                hint=disk_full_hint(self.path) if is_disk_full(error) else hint,
            ) from error

    @contextmanager
    def lock(
        self, workflow: Path | None = None, *, identity: Identity | None = None
    ) -> Iterator[InstanceLock]:
        """Hold the instance lock; `workflow` and `identity` tell other programs about the holder.

        Raises:
            StateDirectoryError: as `hold_lock`.
        """
        holder = LockHolder(
            pid=os.getpid(),
            boot_id=None if identity is None else identity.boot_id,
            started=None if identity is None else identity.started,
            workflow=None if workflow is None else os.path.realpath(workflow),
        )
        with hold_lock(self.path / "lock", holder) as lock:
            yield lock

    def stderr_log(self, run_id: str) -> Path:
        """Where the agent of a run writes its stderr."""
        return self.logs / f"{run_id}.stderr.log"

    def transcript(self, run_id: str) -> Path:
        """Where the transcript of a run is."""
        return transcript_path(self.path, run_id)

    def remove_empty_log(self, run_id: str) -> None:
        """Remove the stderr log of an ended run if it is empty."""
        log = self.stderr_log(run_id)
        with suppress(OSError):
            if log.stat().st_size == 0:
                log.unlink()


# --- known state directories -----------------------------------------------------------------------------
#
# `symphony status --all` finds the state directories below `state_home` and `SYSTEM_STATE_HOMES` by listing
# them. For any other one the daemon leaves a small file in `known/` of the state home, `{"state_dir"}`, named
# by a digest of the path. The file outlasts the daemon, so that a killed one is found too.


def register_state_dir(state_dir: Path, environment: Mapping[str, str]) -> None:
    """Register a state directory, unless it is found anyway; failures are ignored."""
    home, real = state_home(environment), Path(os.path.realpath(state_dir))
    if real.parent in {Path(os.path.realpath(home)), *SYSTEM_STATE_HOMES}:
        return
    folder = home / KNOWN_FOLDER
    with suppress(OSError, ValueError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _remove_stale_files(folder)
        file = folder / f"{hashlib.sha256(os.fsencode(real)).hexdigest()[:24]}.json"
        if not file.exists():
            write_atomic(file, json.dumps({"state_dir": str(real)}).encode() + b"\n")


def other_state_dirs(environment: Mapping[str, str]) -> tuple[Path, ...]:
    """State directories outside of the state home: those of services, and registered ones; blocking."""
    found: list[Path] = []
    for home in SYSTEM_STATE_HOMES:  # in a container, homes and workspaces lie there as well
        with suppress(OSError):
            found += [one for one in islice(home.iterdir(), _MAX_KNOWN) if os.path.lexists(one / "lock")]
    for file in islice((state_home(environment) / KNOWN_FOLDER).glob("*.json"), _MAX_KNOWN):
        with suppress(OSError):
            path = parse_known_state_dir(file.read_bytes()) if file.is_file() else None
            found += [] if path is None else [path]
    return tuple(found)


def parse_known_state_dir(content: bytes) -> Path | None:
    """The state directory that a file in `known/` names; `None` for any other content."""
    try:
        path = json.loads(content)["state_dir"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    valid = isinstance(path, str) and path.startswith("/") and "\0" not in path
    return Path(path) if valid else None


def _remove_stale_files(folder: Path) -> None:
    """Remove the files whose state directories are gone."""
    for file in islice(folder.glob("*.json"), _MAX_KNOWN):
        with suppress(OSError):
            path = parse_known_state_dir(file.read_bytes()) if file.is_file() else None
            try:
                if path is not None:
                    path.stat()  # from Python 3.14 on, `exists` is also false if access is denied
            except (FileNotFoundError, NotADirectoryError):
                file.unlink(missing_ok=True)


# --- the operator's token --------------------------------------------------------------------------------


def operator_token(state_dir: StateDirectory, environment: Mapping[str, str]) -> str:
    """The token that a client on another machine must show; never logged.

    It is the one of the environment, else the one of `operator.token`, which is created if it is absent.

    Raises:
        SymphonyError: `http_server`: it is too short to protect anything, or other users can read it.
    """
    configured = environment.get(TOKEN_VARIABLE)
    if configured is not None:
        return _checked_token(configured, TOKEN_VARIABLE)
    path = state_dir.path / _TOKEN_FILE
    try:
        return _checked_token(read_private(path), str(path))
    except FileNotFoundError:
        return _create_token(path)
    except (OSError, UnicodeDecodeError) as error:
        raise _token_error(f"{path} cannot be read: {error}") from error


def read_private(path: Path) -> str:
    """The text of a small file that only this user can read.

    Raises:
        OSError: it cannot be read.
        UnicodeDecodeError: it is not ASCII.
        SymphonyError: `http_server`: other users can read it.
    """
    file = open_regular(path)
    if file is not None:
        with file:
            facts = os.fstat(file.fileno())
            if facts.st_uid == os.getuid() and not facts.st_mode & 0o077:
                return file.read(_MAX_TOKEN_BYTES).decode("ascii")
    raise _token_error(f"{path} can be read by others, or is not a file of this user")


def _create_token(path: Path) -> str:
    token = secrets.token_urlsafe(32)
    try:
        write_new(path, f"{token}\n".encode(), 0o600)
    except OSError as error:
        raise _token_error(f"{path} cannot be written: {error.strerror}") from error
    return token


def _checked_token(text: str, source: str) -> str:
    token = text.strip()
    if len(token) < _MIN_TOKEN_CHARS or not token.isascii() or not token.isprintable() or " " in token:
        raise _token_error(
            f"the operator token in {source} is not {_MIN_TOKEN_CHARS} or more plain_text characters"
        )
    return token


def _token_error(message: str) -> SymphonyError:
    return SymphonyError(
        Failure(
            category=Category.HTTP_SERVER,
            blame=Blame.CONFIG,
            message=message,
            retryable=False,
            hint=f"set {TOKEN_VARIABLE}, or remove the file and a new one is made (mode 0600)",
        )
    )
