"""Puts a skill's folder into another place, whole or not at all, and never over what somebody changed."""

import os
import shutil
import stat
import tempfile
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Final, NamedTuple

from symphony.skills.bundle import Bundle, BundledFile, BundleError, read_bundle

__all__ = ["Outcome", "Placed", "place"]

_DIFFERS: Final = "what is there differs; --force replaces it"


class Outcome(StrEnum):
    """What became of one skill."""

    CREATED = "created"
    UPDATED = "updated"
    UNCHANGED = "unchanged"
    SKIPPED = "skipped"


class Placed(NamedTuple):
    """What became of one skill, and for a skipped one why."""

    outcome: Outcome
    reason: str | None = None


def place(bundle: Bundle, root: Path, directory: str, *, force: bool, dry_run: bool = False) -> Placed:
    """Write the files to `root/directory`; raises nothing.

    An equal folder stays untouched. One that differs is replaced with `force` only, and then by nothing but
    these files. Links are never written through. With `dry_run` nothing is written at all.
    """
    target = root / directory
    try:
        present = _present(target)
        if present is None:
            outcome = Outcome.CREATED
        elif not stat.S_ISDIR(present):
            return Placed(Outcome.SKIPPED, "what is there is not a folder")
        elif _equals(root, directory, bundle):
            return Placed(Outcome.UNCHANGED)
        elif not force:
            return Placed(Outcome.SKIPPED, _DIFFERS)
        else:
            outcome = Outcome.UPDATED
        if not dry_run:
            _replace(target, bundle.files)
    except OSError as error:
        return Placed(Outcome.SKIPPED, f"it cannot be written: {error.strerror}")
    return Placed(outcome)


def _present(target: Path) -> int | None:
    """The mode of what stands there, of a link its own."""
    try:
        return target.lstat().st_mode
    except FileNotFoundError:
        return None


def _equals(root: Path, directory: str, bundle: Bundle) -> bool:
    try:
        return read_bundle(root, (directory,)) == bundle
    except BundleError:
        return False


def _replace(target: Path, files: Mapping[str, BundledFile]) -> None:
    """Write beside the target, then rename: nobody ever sees half a skill.

    The name of the temporary folder begins with a dot, so that no loader takes it for a skill.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(dir=target.parent, prefix=".symphony-"))
    new, old = beside / "new", beside / "old"
    try:
        _write(new, files)
        try:
            target.rename(old)
        except FileNotFoundError:
            new.rename(target)
        else:
            try:
                new.rename(target)
            except OSError:
                old.rename(target)
                raise
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _write(new: Path, files: Mapping[str, BundledFile]) -> None:
    for path, file in files.items():
        to = new / path
        to.parent.mkdir(parents=True, exist_ok=True)
        mode = 0o777 if file.executable else 0o666  # less what the umask takes
        descriptor = os.open(to, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        with os.fdopen(descriptor, "wb") as out:
            out.write(file.data)
