"""Lists every daemon of this user, or for root of this host, with its status.

    running   it answers
    silent    its process exists and does not answer: it is starting, ending or frozen, or its socket is gone
              or served by another process
    dead      its process is gone, and it did not shut down normally

A daemon that shut down normally is not listed, although its state directory stays. The daemons are asked in
parallel, so that one that hangs does not delay the others.

Root reads state directories that belong to other users. So a directory counts only if it belongs to the
user in whose home it lies, symbolic links are not followed, and nothing is changed.
"""

import os
import pwd
import shlex
import stat
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from symphony.api.models import utc_text
from symphony.cli.client import Client
from symphony.cli.documents import DaemonCounts, DaemonRow, Daemons, SkippedDirectory
from symphony.cli.endpoint import DaemonRecord, check_listener, read_record, read_small_file
from symphony.daemon.state_dir import KNOWN_FOLDER, SYSTEM_STATE_HOMES, parse_known_state_dir, state_home
from symphony.domain import Selection, SymphonyError

_ANSWER_S: Final = 5.0
_PARALLEL: Final = 16
_MAX_BYTES: Final = 16 * 1024 * 1024  # of one answer: several are in memory at once, some of other users
_MAX_ENTRIES: Final = 1_000
_HOME_STATE: Final = ".local/state/symphony"


def list_daemons(environment: Mapping[str, str]) -> Daemons:
    """All daemons by name, and the directories that were skipped."""
    directories = find_state_directories(environment)
    with ThreadPoolExecutor(_PARALLEL) as pool:
        answers = list(pool.map(_describe, directories.found, directories.found.values()))
    rows = [answer for answer in answers if isinstance(answer, DaemonRow)]
    failed = [answer for answer in answers if isinstance(answer, SkippedDirectory)]
    skipped = [SkippedDirectory(path=str(path), reason=why) for path, why in directories.skipped.items()]
    return Daemons(
        daemons=tuple(sorted(rows, key=lambda row: (row.name, row.state_dir))),
        skipped=tuple(sorted([*skipped, *failed], key=lambda one: one.path)),
    )


def find_state_directories(
    environment: Mapping[str, str], *, max_entries: int = _MAX_ENTRIES
) -> "StateDirectories":
    """Every state directory that this user may have, and for root those of every user."""
    directories = StateDirectories(max_entries=max_entries)
    homes = [(os.geteuid(), state_home(environment))]
    if os.geteuid() == 0:
        homes += [(user.pw_uid, Path(user.pw_dir) / _HOME_STATE) for user in pwd.getpwall()]
    for owner, home in homes:
        if home.is_absolute():
            directories.add_children(home, owner)
            directories.add_registered(home / KNOWN_FOLDER, owner)
    for folder in SYSTEM_STATE_HOMES:
        if os.access(folder, os.R_OK | os.X_OK):
            directories.add_children(folder, None)
    if given := environment.get("SYMPHONY_STATE_DIR"):
        directories.add(Path(given).expanduser().absolute(), None)
    return directories


class StateDirectories:
    """Collects state directories.

    Attributes:
        found: the user id of the owner, by path.
        skipped: why a path was not looked at.
    """

    def __init__(self, *, max_entries: int = _MAX_ENTRIES) -> None:
        self.found: dict[Path, int] = {}
        self.skipped: dict[Path, str] = {}
        self._seen: set[str] = set()
        self._max_entries = max_entries

    def add(self, path: Path, owner: int | None) -> None:
        """Add a directory of the user `owner`; None stands for any user whose daemon can be asked."""
        try:
            status = path.lstat()
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            self.skipped[path] = error.strerror or str(error)
            return
        if not stat.S_ISDIR(status.st_mode):
            return
        if owner not in {None, status.st_uid}:
            self.skipped[path] = f"it belongs to {user_name(status.st_uid)}"
        elif os.geteuid() not in {0, status.st_uid}:
            self.skipped[path] = f"only {user_name(status.st_uid)} and root can ask there"
        elif (real := os.path.realpath(path)) not in self._seen:
            self._seen.add(real)
            self.found[path] = status.st_uid

    def add_children(self, folder: Path, owner: int | None) -> None:
        """Add every directory in a folder; as `add`."""
        for path in self._entries(folder):
            if path.name != KNOWN_FOLDER:
                self.add(path, owner)

    def add_registered(self, folder: Path, owner: int) -> None:
        """Add the directories outside of the usual places that daemons of `owner` registered in a folder."""
        for file in self._entries(folder):
            try:
                path = parse_known_state_dir(read_small_file(file, owner))
            except OSError as error:
                self.skipped[file] = error.strerror or str(error)
                continue
            if path is not None:
                self.add(path, owner)

    def _entries(self, folder: Path) -> Iterator[Path]:
        try:
            with os.scandir(folder) as entries:
                names = [entry.name for entry in islice(entries, self._max_entries + 1)]
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            self.skipped[folder] = error.strerror or str(error)
            return
        if len(names) > self._max_entries:
            self.skipped[folder] = (
                f"there are more than {self._max_entries} entries, and the rest is left out"
            )
        yield from (folder / name for name in sorted(names[: self._max_entries]))


def user_name(uid: int) -> str:
    """The name of a user, or the number if it has no name."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


def _describe(path: Path, owner: int) -> DaemonRow | SkippedDirectory | None:
    """The daemon of a state directory; None if there is none."""
    try:
        record = read_record(path, owner)
    except OSError as error:
        return SkippedDirectory(path=str(path), reason=error.strerror or str(error))
    if record is None:
        return None
    row = DaemonRow(
        name=path.name if record.workflow is None else Path(record.workflow).parent.name,
        status="silent" if record.alive else "dead",
        state_dir=str(path),
        user=user_name(owner),
        workflow=record.workflow,
        pid=record.pid,
    )
    return _with_status(row, record, owner)


def _with_status(row: DaemonRow, record: DaemonRecord, owner: int) -> DaemonRow:
    """The row with what the daemon says of itself, or what is wrong with it."""
    if not record.alive:
        command = shlex.join(("symphony", "run", *filter(None, [record.workflow])))
        return replace(
            row,
            message=f"The process (pid {record.pid}) is gone, and it did not end in order",
            hint=f"{command} ends what it left running, and goes on",
        )
    endpoint = record.endpoint
    if endpoint is None:
        return replace(
            row,
            message=f"A daemon (pid {record.pid}) is there, and offers no control socket",
            hint="it may be starting or ending; if it stays so, restart it",
        )
    row = replace(
        row,
        started_at=None if endpoint.started is None else utc_text(endpoint.started),
        socket=str(endpoint.socket),
        host=endpoint.host,
        port=endpoint.port,
    )
    try:
        check_listener(endpoint, owner)
        state = Client(endpoint, answer_s=_ANSWER_S, max_bytes=_MAX_BYTES).state(Selection(limit=0))
    except SymphonyError as error:
        return replace(row, message=error.failure.message, hint=error.failure.hint)
    return replace(
        row,
        status="running",
        health=state.health.status,
        counts=DaemonCounts.of(state.counts),
        version=state.version or None,
        commit=state.commit or None,
    )
