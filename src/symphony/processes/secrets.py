"""Secrets from files: turns the variables of a process into those that the rest of the program sees.

`NAME_FILE=/path` stands for `NAME=<what is in the file>`, as in the images of container registries. Each file
of `$CREDENTIALS_DIRECTORY` (systemd) stands for the variable it is called like; what a directory of
credentials puts before that, in lower case and with an underscore, is left out (`secrets_LINEAR_API_KEY`).

Both count for names that are called like a secret only: `SSL_CERT_FILE` is none, and what others read by
themselves (`AWS_WEB_IDENTITY_TOKEN_FILE`) is theirs. The variable that names the file stays, so that it can
be told which secrets came from files: hooks get no more of those than where they are.

Nothing here is logged, and no message holds a value.
"""

import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from symphony.domain.failures import Blame, Category, Failure, SymphonyError

__all__ = [
    "EXPOSED_HINT",
    "SECRET_ENDINGS",
    "SecretFileError",
    "Secrets",
    "called_like_a_secret",
    "names_from_files",
    "read_secrets",
]

MAX_BYTES: Final = 64 * 1024
DIRECTORY_VARIABLE: Final = "CREDENTIALS_DIRECTORY"
EXPOSED_HINT: Final = "make it the daemon's own (chown) and closed to others: chmod 0400"

SECRET_ENDINGS: Final = ("_KEY", "_TOKEN", "_SECRET", "_PASSWORD", "_PAT")
_FILE: Final = "_FILE"
_OF_OTHERS: Final = ("AWS_", "AZURE_", "GOOGLE_", "SSL_", "TLS_")
_CREDENTIAL: Final = re.compile(r"(?:[a-z0-9][a-z0-9.@-]*_)?([A-Z][A-Z0-9_]*)")
# Container runtimes mount secrets here for the one user of the container, readable by all, and nobody can
# make them otherwise.
_MOUNTED: Final = Path("/run/secrets")


@dataclass(frozen=True, slots=True, kw_only=True)
class Secrets:
    """The variables with the secrets among them.

    Attributes:
        environment: what was given, with `NAME` and `NAME_FILE` for each secret that came from a file.
        sources: the files by the names of the variables.
        exposed: those files that other users can read or change; to be told, and no reason to stop.
    """

    environment: Mapping[str, str]
    sources: Mapping[str, Path]
    exposed: tuple[Path, ...]


class SecretFileError(SymphonyError):
    """Files of secrets cannot be used; `failures` has one for each, the first one is also `failure`."""

    def __init__(self, failures: Sequence[Failure]) -> None:
        super().__init__(failures[0])
        self.failures = tuple(failures)


def called_like_a_secret(name: str) -> bool:
    """Whether a variable of this name holds a secret, by its ending."""
    return name.endswith(SECRET_ENDINGS)


def names_from_files(environment: Mapping[str, str]) -> frozenset[str]:
    """The variables whose values `read_secrets` took from files."""
    return frozenset(name for name, _ in _named(environment) if name in environment)


def read_secrets(environment: Mapping[str, str]) -> Secrets:
    """Read the files that variables and the directory of credentials name.

    `NAME` beside a file that says something else is refused, as nobody can tell which one is meant; so what
    this returned may be given to it again. An empty variable is as one that is not set.

    Raises:
        SecretFileError: `secret_file`, for everything that is wrong.
    """
    problems: list[Failure] = []
    sources: dict[str, Path] = {}
    values: dict[str, str] = {}
    for name, path in _offered(environment, problems):
        text = _text(name, path, problems)
        given = values.get(name) or environment.get(name)
        if text is not None and given and given != text:
            other = f"the file {sources[name]}" if name in sources else "the variable itself"
            problems.append(_twice(name, path, other))
        elif text is not None:
            sources.setdefault(name, path)
            values[name] = text
    if problems:
        raise SecretFileError(problems)
    places = {f"{name}{_FILE}": str(path) for name, path in sources.items()}
    return Secrets(
        environment={**environment, **places, **values},
        sources=sources,
        exposed=tuple(path for path in sources.values() if _exposed(path)),
    )


def _named(environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The names with the paths that their `NAME_FILE` holds."""
    for variable, path in environment.items():
        name = variable.removesuffix(_FILE)
        if name != variable and path and called_like_a_secret(name) and not name.startswith(_OF_OTHERS):
            yield name, path


def _offered(environment: Mapping[str, str], problems: list[Failure]) -> Iterator[tuple[str, Path]]:
    for name, path in _named(environment):
        yield name, Path(path)
    given = environment.get(DIRECTORY_VARIABLE)
    if not given:
        return
    try:
        entries = sorted(Path(given).iterdir())
    except OSError as error:
        problems.append(_unusable(DIRECTORY_VARIABLE, Path(given), f"cannot be read: {error.strerror}"))
        return
    for entry in entries:
        found = _CREDENTIAL.fullmatch(entry.name)
        if found is not None and called_like_a_secret(found[1]):
            yield found[1], entry


def _text(name: str, path: Path, problems: list[Failure]) -> str | None:
    """What the file says, without one line break at its end; null where a problem was added."""
    try:
        raw = _read(path)
    except OSError as error:
        problems.append(_unusable(name, path, f"cannot be read: {error.strerror or error}"))
        return None
    if raw is None:
        problems.append(_unusable(name, path, "is not a file"))
        return None
    if (wrong := _wrong(raw)) is not None:
        problems.append(_unusable(name, path, wrong))
        return None
    return _line(raw).decode("utf-8-sig")


def _read(path: Path) -> bytes | None:
    """The file, one byte more than is permitted at most; null where it is no file. Raises `OSError`."""
    descriptor = os.open(_place(path), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read(MAX_BYTES + 1)
    finally:
        os.close(descriptor)


def _place(path: Path) -> str:
    return os.path.expanduser(path)  # noqa: PTH111 - Path.expanduser raises for a user who does not exist


def _line(raw: bytes) -> bytes:
    return raw[:-2] if raw.endswith(b"\r\n") else raw.removesuffix(b"\n")


def _wrong(raw: bytes) -> str | None:
    """Why this can be no secret; null where it can."""
    if len(raw) > MAX_BYTES:
        return f"has more than {MAX_BYTES // 1024} KiB, so it is no secret"
    if not raw.strip():
        return "is empty"
    if b"\0" in raw:
        return "is no text: it holds a NUL character"
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError:
        return "is no text in UTF-8"
    return None


def _exposed(path: Path) -> bool:
    """Whether other users than its owner can read or change the file where it is."""
    real = Path(os.path.realpath(_place(path)))
    if real.is_relative_to(_MOUNTED):
        return False
    try:
        mode = real.stat().st_mode
        reached = all(parent.stat().st_mode & stat.S_IXOTH for parent in real.parents)
    except OSError:
        return False
    return bool(mode & (stat.S_IROTH | stat.S_IWOTH)) and reached


def _twice(name: str, path: Path, other: str) -> Failure:
    return _failure(
        f"{name} is given twice, and not the same: by the file {path} and by {other}",
        f"take one of them away: {name}, {name}{_FILE}, or the credential of that name",
    )


def _unusable(name: str, path: Path, problem: str) -> Failure:
    if name == DIRECTORY_VARIABLE:
        return _failure(
            f"the directory of credentials {path} {problem}",
            f"run this as the user of the service, or without {DIRECTORY_VARIABLE}",
        )
    return _failure(
        f"the file of {name}, {path}, {problem}",
        f"put the secret there as text, readable by this user (mode 0400), or take {name}{_FILE} away",
    )


def _failure(message: str, hint: str) -> Failure:
    return Failure(
        category=Category.SECRET_FILE, blame=Blame.CONFIG, message=message, hint=hint, retryable=False
    )
