"""Remembers, for `symphony status --all`, state directories that lie where nobody would look for them.

Those below `state_home` are found by listing it. For any other a daemon leaves a small file in `known/`
there, `{"state_dir"}`, named by a digest of the path. It is written once and outlasts the daemon, so that a
killed one is found too; what it names may be gone, and then the next daemon removes it. A home that cannot
be written costs a place in the list and nothing else.
"""

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Final

from symphony.daemon.state_place import HOST_PLACES, state_home

__all__ = ["FOLDER", "place_in", "remember"]

FOLDER: Final = "known"
_MOST: Final = 1_000


def remember(state_dir: Path, environment: Mapping[str, str]) -> None:
    """Leave word of a state directory; nothing happens where it will be found anyway."""
    home, real = state_home(environment), Path(os.path.realpath(state_dir))
    if real.parent in {Path(os.path.realpath(home)), *HOST_PLACES}:
        return
    folder = home / FOLDER
    with suppress(OSError, ValueError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _forget_what_is_gone(folder)
        file = folder / f"{sha256(os.fsencode(real)).hexdigest()[:24]}.json"
        if not file.exists():
            draft = file.with_suffix(f".{os.getpid()}.tmp")
            draft.write_text(json.dumps({"state_dir": str(real)}) + "\n", encoding="utf-8")
            draft.replace(file)


def place_in(content: bytes) -> Path | None:
    """The state directory that a file of ours names; null for anything else."""
    try:
        told = json.loads(content)["state_dir"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    sensible = isinstance(told, str) and told.startswith("/") and "\0" not in told
    return Path(told) if sensible else None


def _forget_what_is_gone(folder: Path) -> None:
    for file in islice(folder.glob("*.json"), _MOST):
        with suppress(OSError):  # of one that cannot be looked at nothing is known, and the others count
            place = place_in(file.read_bytes()) if file.is_file() else None
            if place is not None and not place.exists():
                file.unlink(missing_ok=True)
