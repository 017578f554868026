"""Every daemon of this user, or for root of this host, with what each says of itself.

    running   it answers
    silent    its process is there, and does not answer: it is starting, ending or frozen, or its socket is
              gone, or another process has it
    dead      its process is gone, and it did not end in order

A daemon that ended in order is in no list, although its state directory stays. Several are asked at once, so
that one that hangs holds up nobody but itself.
"""

import os
import pwd
import stat
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from symphony.api.models import utc_text
from symphony.cli.client import Client, Traces, check_listener, content_of, traces
from symphony.cli.documents import CountsInShort, DaemonRow, Daemons, SkippedPlace
from symphony.daemon.state_dir import KNOWN_FOLDER, SYSTEM_STATE_HOMES, parse_known_state_dir, state_home
from symphony.domain import SymphonyError

# The state directories that may have a daemon: of this user, and for root of every user of the host.
#
# What is looked at was written by whoever owns it, and root looks at what others wrote. So a place counts
# only where the directory belongs to the user whose it is said to be, links lead nowhere, and nothing is
# changed.


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
            if path.name != KNOWN_FOLDER:
                self.take(path, owner)

    def take_known(self, folder: Path, owner: int) -> None:
        """The directories that daemons of `owner` left word of."""
        for path in self._listed(folder):
            try:
                named = parse_known_state_dir(content_of(path, owner))
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
        places.take_known(home / KNOWN_FOLDER, owner)
    for folder in SYSTEM_STATE_HOMES:
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


_ANSWER_S: Final = 5.0
_AT_ONCE: Final = 16
_MAX_BYTES: Final = 16 * 1024 * 1024  # of each: several are held at once, and not all are ours


def daemons(environment: Mapping[str, str]) -> Daemons:
    """All of them, by name."""
    places = find_places(environment)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        told = list(pool.map(_told, places.found.values()))
    skipped = dict(places.skipped)
    rows = []
    for place, row in zip(places.found.values(), told, strict=True):
        if isinstance(row, str):
            skipped[place.path] = row
        elif row is not None:
            rows.append(row)
    return Daemons(
        daemons=tuple(sorted(rows, key=lambda row: (row.name, row.state_dir))),
        skipped=tuple(
            SkippedPlace(path=str(path), reason=reason) for path, reason in sorted(skipped.items())
        ),
    )


def _told(place: Place) -> DaemonRow | str | None:
    """The row of a daemon; `None` where there is none, and a text where it cannot be known."""
    try:
        found = traces(place.path, place.owner)
    except OSError as error:
        return error.strerror or str(error)
    return None if found is None else _row(place, found)


def _row(place: Place, found: Traces) -> DaemonRow:
    row = DaemonRow(
        name=place.path.name if found.workflow is None else Path(found.workflow).parent.name,
        status="silent" if found.alive else "dead",
        state_dir=str(place.path),
        user=user_name(place.owner),
        workflow=found.workflow,
        pid=found.pid,
    )
    if not found.alive:
        message = f"The process (pid {found.pid}) is gone, and it did not end in order"
        return replace(row, message=message, hint=_start(found))
    control = found.control
    if control is None:
        message = f"A daemon (pid {found.pid}) is there, and offers no control socket"
        hint = "it may be starting or ending; if it stays so, restart it"
        return replace(row, message=message, hint=hint)
    row = replace(
        row,
        started_at=None if control.started is None else utc_text(control.started),
        socket=str(control.socket),
        host=control.host,
        port=control.port,
    )
    try:
        check_listener(control, place.owner)
        with Client(control, answer_s=_ANSWER_S, max_bytes=_MAX_BYTES) as client:
            state = client.state(waiting=0)
    except SymphonyError as error:
        return replace(row, message=error.failure.message, hint=error.failure.hint)
    counts = state.counts
    return replace(
        row,
        status="running",
        health=state.health.status,
        counts=CountsInShort(
            running=counts.running, retrying=counts.retrying, blocked=counts.blocked, waiting=counts.waiting
        ),
        version=state.version or None,
        commit=state.commit or None,
    )


def _start(found: Traces) -> str:
    which = "" if found.workflow is None else f" {found.workflow}"
    return f"symphony run{which} ends what it left running, and goes on"
