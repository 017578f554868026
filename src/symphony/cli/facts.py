"""The facts that the reading commands show: asked of the daemon where one runs, read from the files else.

Every document is that of the API with two fields more: `"source": "daemon" | "files"` and
`"daemon": {"pid", "started_at", "host", "port", "socket"} | null`. The state has `"notice"` as well, one line
that tells what is odd about there being no daemon, or null.
"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import anyio

from symphony.cli.client import Client, reach
from symphony.cli.control import Control, absence
from symphony.cli.failures import warn
from symphony.cli.journal_place import journal_of
from symphony.observability.moments import utc_text

if TYPE_CHECKING:
    from symphony.cli.offline import Offline

__all__ = ["Document", "Facts"]

Document = dict[str, Any]

_NOT_READ: Final = "it would start now, and the daemon has not read it yet"


class Facts:
    """What can be told of one workflow; each question looks anew for a daemon."""

    def __init__(self, workflow: Path, environment: Mapping[str, str]) -> None:
        self.workflow = workflow
        self._environment = environment
        self._warned = False

    def state(self) -> Document:
        """All of it, as `/api/v1/state`.

        Raises:
            SymphonyError: the daemon cannot be asked, or without one: the workflow is not usable.
        """
        client = self._client()
        if client is None:
            document = anyio.run(self._offline(None).state)
            return {"source": "files", "daemon": None, "notice": self._absence(), **document}
        with client:
            return {**client.state(), **_from(client.control), "notice": None}

    def issue(self, identifier: str) -> Document | None:
        """One issue, as `/api/v1/<identifier>`; null when nobody knows it.

        Of what the daemon does not have in hand, such as an ended issue, the tracker is asked.

        Raises:
            SymphonyError: as `state`, or the tracker cannot tell.
        """
        client = self._client()
        if client is None:
            self._warn_of_absence()
            return self._issue_of_files(identifier, None)
        with client:
            if (document := client.issue(identifier)) is not None:
                return {**document, **_from(client.control)}
            return self._issue_of_files(identifier, client)

    def prompt(self, identifier: str) -> Document | None:
        """What a dispatch would send, as `/api/v1/<identifier>/prompt`; null when nobody knows the issue.

        Raises:
            SymphonyError: as `issue`, or the dispatch would fail.
        """
        if (client := self._client()) is not None:
            with client:
                if (document := client.prompt(identifier)) is not None:
                    return {**document, "source": "daemon"}
        else:
            self._warn_of_absence()
        return anyio.run(partial(self._offline(client).prompt, identifier))

    def identifiers(self) -> tuple[str, ...]:
        """Every identifier that the tracker lists, to guess what was meant."""
        return anyio.run(self._offline(None).identifiers)

    def _issue_of_files(self, identifier: str, client: Client | None) -> Document | None:
        document = anyio.run(partial(self._offline(client).issue, identifier))
        if document is None:
            return None
        if client is not None and document["waiting"]["reason"]["code"] == "starting":
            document["waiting"]["reason"]["message"] = _NOT_READ
        return {"source": "files", "daemon": _daemon(client.control) if client else None, **document}

    def _absence(self) -> str | None:
        return absence(self.workflow, self._environment)

    def _warn_of_absence(self) -> None:
        if not self._warned and (notice := self._absence()):
            self._warned = True
            warn(notice)

    def _client(self) -> Client | None:
        return reach(self.workflow, self._environment)

    def _offline(self, client: Client | None) -> "Offline":
        """The files; what a daemon remembers is its own to tell, where there is one."""
        from symphony.cli.offline import open_offline  # everything a daemon needs: slow to import

        journal = journal_of(self.workflow, self._environment) if client is None else None
        return open_offline(self.workflow, self._environment, journal=journal)


def _from(control: Control) -> Document:
    return {"source": "daemon", "daemon": _daemon(control)}


def _daemon(control: Control) -> Document:
    return {
        "pid": control.pid,
        "started_at": None if control.started is None else utc_text(control.started),
        "host": control.host,
        "port": control.port,
        "socket": str(control.socket),
    }
