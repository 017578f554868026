"""`$NAME`, `~` and relative paths (CF1-CF5). The environment is always an argument."""

import difflib
import os
import pwd
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

__all__ = [
    "STATE_DIR_VARIABLE",
    "ResolveError",
    "UnsetVariableError",
    "default_workspace_root",
    "expand_path",
    "nearest_variable",
    "reference_name",
    "referenced_variables",
    "resolve_repository",
    "resolve_root",
    "root_variable",
    "unset_hint",
]

STATE_DIR_VARIABLE: Final = "SYMPHONY_STATE_DIR"
"""The state directory of the workflow file that is judged; `runtime.admission` sets it for every one of them.

It is the one variable that `workspace.root` may go on from, as in `$SYMPHONY_STATE_DIR/workspaces`.
"""

_REFERENCE: Final = re.compile(r"\$([A-Za-z_][A-Za-z0-9_]*)")
_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_SCP_LIKE: Final = re.compile(r"[^/:]+:")
_TEMPORARY: Final = "/tmp"  # noqa: S108 - POSIX names it; the workspace layout guards what is made below it


class ResolveError(ValueError):
    """A value cannot be resolved; the text completes a sentence that begins with the name of its key."""


class UnsetVariableError(ResolveError):
    """A value is needed, and the variable it refers to is unset or empty; `name` is the variable."""

    def __init__(self, name: str) -> None:
        super().__init__(f"refers to ${name}, which is not set")
        self.name = name


def reference_name(value: object) -> str | None:
    """The variable a value refers to: `NAME` if the whole value is `$NAME`, else null (CF3)."""
    match = _REFERENCE.fullmatch(value) if isinstance(value, str) else None
    return match[1] if match else None


def nearest_variable(name: str, environment: Mapping[str, str]) -> str | None:
    """The variable that is set and was probably meant, by its name alone; None where no name is close."""
    names = sorted(other for other, value in environment.items() if value and other != name)
    return next(iter(difflib.get_close_matches(name, names, n=1, cutoff=0.7)), None)


def unset_hint(name: str, environment: Mapping[str, str]) -> str:
    """What to do about a reference to a variable that is not set."""
    near = nearest_variable(name, environment)
    meant = "" if near is None else f"did you mean ${near}, which is set? Else "
    return f"{meant}set {name} where the daemon starts, or write the value"


def referenced_variables(node: object) -> frozenset[str]:
    """Every variable that is referred to anywhere below `node`; under `tracker` they name secrets (AG20)."""
    match node:
        case str():
            name = reference_name(node)
            return frozenset() if name is None else frozenset({name})
        case Mapping():
            return frozenset().union(*(referenced_variables(value) for value in node.values()))
        case list() | tuple():
            return frozenset().union(*(referenced_variables(value) for value in node))
        case _:
            return frozenset()


def default_workspace_root(environment: Mapping[str, str]) -> Path:
    """`symphony_workspaces` in the system's temporary directory."""
    temporary = Path(environment.get("TMPDIR") or _TEMPORARY).absolute()
    return temporary / "symphony_workspaces"


def root_variable(value: str) -> str | None:
    """The variable that a `workspace.root` refers to; None for one that is literal."""
    return STATE_DIR_VARIABLE if value.startswith(f"${STATE_DIR_VARIABLE}/") else reference_name(value)


def resolve_root(value: str, *, base: Path, environment: Mapping[str, str]) -> Path | None:
    """`workspace.root` made absolute; None where it refers to a variable that is unset or empty (CF5).

    Raises:
        ResolveError: the text is blank or not a path.
    """
    name = root_variable(value)
    if name is None:
        return expand_path(value, base=base, environment=environment)
    start = environment.get(name, "")
    return expand_path(start + value[len(name) + 1 :], base=base, environment=environment) if start else None


def resolve_repository(value: str, *, base: Path, environment: Mapping[str, str]) -> str:
    """`workspace.repo`: a URL or `host:path` untouched, a local path made absolute.

    Raises:
        UnsetVariableError: it refers to a variable that is unset or empty.
        ResolveError: the text is not a path.
    """
    name = reference_name(value)
    text = value if name is None else environment.get(name, "")
    if name is not None and not text:
        raise UnsetVariableError(name)
    if text.startswith("-"):
        raise ResolveError("must not begin with a dash")
    if _URL.match(text) or _SCP_LIKE.match(text):
        return text
    return str(expand_path(text, base=base, environment=environment))


def expand_path(text: str, *, base: Path, environment: Mapping[str, str]) -> Path:
    """An absolute path without `.` and `..`: `~` and `~user` expanded, a relative one taken from `base`.

    Only the text is looked at: symbolic links stay as they are.

    Raises:
        ResolveError: the text is blank, holds a NUL character, or names a user without a home.
    """
    if not text.strip():
        raise ResolveError("must not be blank")
    if "\0" in text:
        raise ResolveError("must not contain a NUL character")
    if text.startswith("~"):
        user, _, rest = text[1:].partition("/")
        return Path(os.path.normpath(base / _home(user, environment) / rest.lstrip("/")))
    return Path(os.path.normpath(base / text))


def _home(user: str, environment: Mapping[str, str]) -> Path:
    if not user and (home := environment.get("HOME")):
        return Path(home)
    try:
        entry = pwd.getpwnam(user) if user else pwd.getpwuid(os.getuid())
    except KeyError as error:
        raise ResolveError(f"begins with ~{user}, and that user has no home directory here") from error
    return Path(entry.pw_dir)
