"""The operator's token: what a client off this machine must show (AP10). Never logged, never shown."""

import os
import secrets
import stat
from collections.abc import Mapping
from pathlib import Path

from symphony.daemon.state_dir import StateDirectory
from symphony.domain.failures import Blame, Category, Failure, SymphonyError

__all__ = ["TOKEN_VARIABLE", "operator_token"]

TOKEN_VARIABLE = "SYMPHONY_OPERATOR_TOKEN"  # noqa: S105 - a name, not a secret
_FILE_NAME = "operator.token"
_MIN_CHARS = 16
_MAX_BYTES = 4_096


def operator_token(state_dir: StateDirectory, environment: Mapping[str, str]) -> str:
    """The token of the environment, else of the state directory's `operator.token`, made there if absent.

    Raises:
        SymphonyError: `http_server`: it is too short to protect anything, or others can read it.
    """
    given = environment.get(TOKEN_VARIABLE)
    if given is not None:
        return _checked(given, TOKEN_VARIABLE)
    path = state_dir.path / _FILE_NAME
    try:
        return _checked(_read(path), str(path))
    except FileNotFoundError:
        return _make(path)
    except (OSError, UnicodeDecodeError) as error:
        raise _refused(f"{path} cannot be read: {error}") from error


def _read(path: Path) -> str:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode) or facts.st_uid != os.getuid() or facts.st_mode & 0o077:
            raise _refused(f"{path} can be read by others, or is not a file of this user")
        return os.read(descriptor, _MAX_BYTES).decode("ascii")
    finally:
        os.close(descriptor)


def _make(path: Path) -> str:
    token = secrets.token_urlsafe(32)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.write(descriptor, f"{token}\n".encode())
        finally:
            os.close(descriptor)
    except OSError as error:
        raise _refused(f"{path} cannot be written: {error.strerror}") from error
    return token


def _checked(text: str, where: str) -> str:
    token = text.strip()
    if len(token) < _MIN_CHARS or not token.isascii() or not token.isprintable() or " " in token:
        raise _refused(f"the operator token in {where} is not {_MIN_CHARS} or more plain characters")
    return token


def _refused(message: str) -> SymphonyError:
    return SymphonyError(
        Failure(
            category=Category.HTTP_SERVER,
            blame=Blame.CONFIG,
            message=message,
            retryable=False,
            hint=f"set {TOKEN_VARIABLE}, or remove the file and a new one is made (mode 0600)",
        )
    )
