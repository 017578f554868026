"""Names derived from other names: workspace keys, branches, session ids (DM10-DM13); their order."""

import hashlib
import re

__all__ = ["BRANCH_PREFIX", "UnsafeKeyError", "branch_name", "by_number", "session_id", "workspace_key"]

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")
_MAX_KEY_BYTES = 255
_MAX_BRANCH_BYTES = _MAX_KEY_BYTES - len(".lock")
_NUMBER = re.compile(r"([0-9]{1,18})")
BRANCH_PREFIX = "symphony/"


class UnsafeKeyError(ValueError):
    """The identifier gives a key that must never become a directory name (DM12)."""


def workspace_key(identifier: str) -> str:
    """The directory name of an issue's workspace; depends on the identifier alone (DM10, DM11).

    Raises:
        UnsafeKeyError: the key would be empty, `.`, `..` or longer than 255 bytes.
    """
    safe = _UNSAFE.sub("_", identifier)
    if safe == identifier:
        key = safe
    else:
        digest = hashlib.sha256(identifier.encode("utf-8", "surrogatepass")).hexdigest()
        key = f"{safe}--{digest[:16]}"
    if key in {"", ".", ".."} or len(key) > _MAX_KEY_BYTES:
        raise UnsafeKeyError(f"identifier {identifier[:80]!r} cannot name a workspace directory")
    return key


def branch_name(key: str) -> str:
    """The issue's branch, `symphony/<key>`; a hash stands in where git refuses the key as a ref part.

    The refusals are those of git-check-ref-format(1) that the key alphabet leaves possible, and a name
    that is too long for the file `<name>.lock` through which git writes a branch.
    """
    refused = ".." in key or key.startswith((".", "-")) or key.endswith((".", ".lock"))
    if refused or len(key) > _MAX_BRANCH_BYTES:
        key = hashlib.sha256(key.encode()).hexdigest()[:16]
    return BRANCH_PREFIX + key


def session_id(thread_id: str, turn_id: str) -> str:
    """The id under which logs and the API know one turn of one thread (DM13)."""
    return f"{thread_id}-{turn_id}"


def by_number(identifier: str) -> tuple[tuple[str | int, ...], str]:
    """Sort key of every list of issues that people read: SYM-2 stands before SYM-10, whatever the case.

    The scheduler starts issues in an order of its own (`policy.sort_key`).
    """
    # Texts and numbers alternate, beginning with a text, so that like is compared with like.
    parts = _NUMBER.split(identifier.casefold())
    return tuple(int(part) if place % 2 else part for place, part in enumerate(parts)), identifier
