"""Finds a repository's own test commands, which `symphony init` offers for `verify`."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from symphony.files import read_regular

_MAX_BYTES: Final = 1024 * 1024
_MAKEFILES: Final = ("GNUmakefile", "makefile", "Makefile")
_TEST_TARGET: Final = re.compile(rb"^test[ \t]*::?(?!=)", re.MULTILINE)
_NPM_EXAMPLE: Final = "no test specified"
"""The script that `npm init` writes has these words, and fails."""
_RUNNERS: Final = {"pnpm-lock.yaml": "pnpm", "yarn.lock": "yarn"}


class FoundCheck(Struct, frozen=True, kw_only=True):
    """A command that checks the work, and the file that says so.

    Attributes:
        sure: the repository names the command itself: a target `test`, or a script `test`.
    """

    run: str
    reason: str
    sure: bool


def found_checks(root: Path) -> tuple[FoundCheck, ...]:
    """The checks of a repository, sure ones first. Files that cannot be read are left out."""
    return tuple(sorted(_found(root), key=lambda check: not check.sure))


def _found(root: Path) -> Iterator[FoundCheck]:
    makefile = next((name for name in _MAKEFILES if (root / name).is_file()), None)
    if makefile is not None and _TEST_TARGET.search(_read(root / makefile)):
        yield FoundCheck(run="make test", reason=f"the target `test` of {makefile}", sure=True)
    if _has_test_script(_read(root / "package.json")):
        runner = next((name for file, name in _RUNNERS.items() if (root / file).is_file()), "npm")
        yield FoundCheck(run=f"{runner} test", reason="the script `test` of package.json", sure=True)
    if (reason := _pytest_reason(root)) is not None:
        yield FoundCheck(run="python3 -m pytest", reason=reason, sure=False)
    if (root / "Cargo.toml").is_file():
        yield FoundCheck(run="cargo test", reason="Cargo.toml", sure=False)
    if (root / "go.mod").is_file():
        yield FoundCheck(run="go test ./...", reason="go.mod", sure=False)


def _has_test_script(package: bytes) -> bool:
    try:
        content: Any = json.loads(package)
        script = content["scripts"]["test"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return False
    return isinstance(script, str) and bool(script.strip()) and _NPM_EXAMPLE not in script


def _pytest_reason(root: Path) -> str | None:
    if (root / "pytest.ini").is_file():
        return "pytest.ini"
    if b"[tool.pytest" in _read(root / "pyproject.toml"):
        return "the section of pytest in pyproject.toml"
    return "tests/test_*.py" if any((root / "tests").glob("test_*.py")) else None


def _read(path: Path) -> bytes:
    return read_regular(path, _MAX_BYTES) or b""
