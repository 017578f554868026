"""The state directories that may have a daemon: of this user, and for root of every user of the host.

What is looked at was written by whoever owns it, and root looks at what others wrote. So a place counts only
where the directory belongs to the user whose it is said to be, links lead nowhere, and nothing is changed.
"""

import os
import pwd
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Final

from symphony.cli.control import content_of
from symphony.daemon.known_places import FOLDER, place_in
from symphony.daemon.state_place import HOST_PLACES, state_home

__all__ = ["Place", "Places", "find_places", "user_name"]

_MOST: Final = 1_000
_BELOW_HOME: Final = ".local/state/symphony"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A state directory, and the user id of its owner."""

    path: Path
    owner: int


@dataclass(frozen=True, slots=True)
class Places:
    """What was found; `skipped` tells of what was not looked at, and why."""

    found: dict[Path, Place] = field(default_factory=dict)
    skipped: dict[Path, str] = field(default_factory=dict)

    def take(self, path: Path, owner: int | None) -> None:
        """A directory, if it is there; it has to belong to `owner`, or for null to somebody we can ask."""
        try:
            facts = path.lstat()
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            self.skipped[path] = error.strerror or str(error)
            return
        if not stat.S_ISDIR(facts.st_mode):
            return
        if facts.st_uid != (facts.st_uid if owner is None else owner):
            self.skipped[path] = f"it belongs to {user_name(facts.st_uid)}"
        elif os.geteuid() not in {0, facts.st_uid}:
            self.skipped[path] = f"only {user_name(facts.st_uid)} and root can ask there"
        else:
            self.found.setdefault(Path(os.path.realpath(path)), Place(path=path, owner=facts.st_uid))

    def take_all(self, folder: Path, owner: int | None) -> None:
        """Every directory in a folder, except the one of ours that is no state directory."""
        for path in self._listed(folder):
            if path.name != FOLDER:
                self.take(path, owner)

    def take_known(self, folder: Path, owner: int) -> None:
        """The directories that daemons of `owner` left word of."""
        for path in self._listed(folder):
            try:
                named = place_in(content_of(path, owner))
            except OSError as error:
                self.skipped[path] = error.strerror or str(error)
                continue
            if named is not None:
                self.take(named, owner)

    def _listed(self, folder: Path) -> Iterator[Path]:
        try:
            with os.scandir(folder) as entries:
                names = [entry.name for entry in islice(entries, _MOST + 1)]
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            self.skipped[folder] = error.strerror or str(error)
            return
        if len(names) > _MOST:
            self.skipped[folder] = f"there are more than {_MOST} entries, and the rest is left out"
        yield from (folder / name for name in sorted(names[:_MOST]))


def find_places(environment: Mapping[str, str]) -> Places:
    """Every state directory there may be for this user; nothing is asked or made."""
    places = Places()
    for owner, home in _homes(environment):
        places.take_all(home, owner)
        places.take_known(home / FOLDER, owner)
    for folder in HOST_PLACES:
        if os.access(folder, os.R_OK | os.X_OK):
            places.take_all(folder, None)
    if given := environment.get("SYMPHONY_STATE_DIR"):
        places.take(Path(given).expanduser().absolute(), None)
    return places


def _homes(environment: Mapping[str, str]) -> Iterator[tuple[int, Path]]:
    yield os.geteuid(), state_home(environment)
    if os.geteuid() == 0:
        for user in pwd.getpwall():
            home = Path(user.pw_dir) / _BELOW_HOME
            if home.is_absolute():
                yield user.pw_uid, home


def user_name(uid: int) -> str:
    """The name of a user, or the number where it has none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"
