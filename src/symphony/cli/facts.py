"""The facts that the reading commands show: asked of the daemon where one runs, read from the files else."""

from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import anyio
from msgspec import structs

from symphony.api.models import Prompt, Reason, Waiting, utc_text
from symphony.cli.client import Client, Control, absence, reach
from symphony.cli.documents import Asked, KnownIssue, Status
from symphony.cli.failures import CommandError, warn
from symphony.cli.journal import journal_path
from symphony.domain import EVERY_ISSUE, Selection, SymphonyError, by_number, one_line

if TYPE_CHECKING:
    from symphony.cli.offline import Offline


# An issue as a person names it: the exact one, else the only one that differs by case, else an error.


Elsewhere = Callable[[str], CommandError | None]
"""Says what is to be told of an issue that is not among the known ones, or `None` where nobody knows it."""

_MOST = 5
_Answer = TypeVar("_Answer")


def answer_for(
    identifier: str,
    ask: Callable[[str], _Answer | None],
    known: Callable[[], Sequence[str]],
    elsewhere: Elsewhere = lambda _: None,
) -> _Answer:
    """What `ask` says of the issue; `known` is called only where it does not know the exact identifier.

    Raises:
        CommandError: nobody knows it, several differ from it by case, or what `elsewhere` says of it.
    """
    if (answer := ask(identifier)) is not None:
        return answer
    names = known()
    alike = {one for one in names if one.casefold() == identifier.casefold()}
    for other in alike if len(alike) == 1 else ():
        if (answer := ask(other)) is not None:
            return answer
    raise elsewhere(identifier) or unknown_issue(identifier, names)


def unknown_issue(identifier: str, known: Sequence[str]) -> CommandError:
    """`known` are identifiers of the tracker, in any order."""
    folded = {one.casefold(): one for one in known}
    near = [folded[one] for one in get_close_matches(identifier.casefold(), folded, n=_MOST, cutoff=0.6)]
    if identifier.casefold() in folded:
        hint = f"did you mean {one_line(folded[identifier.casefold()])}? Identifiers are compared exactly"
    elif near:
        hint = f"did you mean {', '.join(map(one_line, near))}?"
    elif known:
        shown = sorted(known, key=by_number)[:_MOST]
        more = f" and {len(known) - _MOST} more" if len(known) > _MOST else ""
        hint = f"the tracker lists {', '.join(map(one_line, shown))}{more}"
    else:
        hint = "the tracker lists no issue in an active state; `symphony status` shows what is known"
    return CommandError.of(f"there is no issue {one_line(identifier)!r}", hint=hint)


_NOT_READ: Final = Waiting(
    reason=Reason(code="starting", message="it would start now, and the daemon has not read it yet")
)


class Facts:
    """What can be told of one workflow; each question looks anew for a daemon."""

    def __init__(self, workflow: Path, environment: Mapping[str, str]) -> None:
        self.workflow = workflow
        self._environment = environment
        self._warned = False

    def state(self, only: Selection = EVERY_ISSUE) -> Status:
        """All of it, as `/api/v1/state`; rows of those issues only.

        Raises:
            SymphonyError: the daemon cannot be asked, or without one: the workflow is not usable.
        """
        client = self._client()
        if client is None:
            state = anyio.run(self._offline(None).state, only)
            return Status(**structs.asdict(state), source="files", daemon=None, notice=self._absence())
        with client:
            state = client.state(waiting=only.most, states=only.states, reasons=only.codes)
            return Status(**structs.asdict(state), source="daemon", daemon=_asked(client.control))

    def issue(self, identifier: str) -> KnownIssue | None:
        """One issue, as `/api/v1/<identifier>`; `None` when nobody knows it.

        Of what the daemon does not have in hand, such as an ended issue, the tracker is asked.

        Raises:
            SymphonyError: as `state`, or the tracker cannot tell.
        """
        client = self._client()
        if client is None:
            self._warn_of_absence()
            return self._issue_of_files(identifier, None)
        with client:
            issue, told = client.issue(identifier), None
            if issue is not None:
                asked = _asked(client.control)
                told = KnownIssue(**structs.asdict(issue), source="daemon", daemon=asked)
                if told.status != "ended" or told.result is not None:
                    return told
            try:
                found = self._issue_of_files(identifier, client)
            except SymphonyError:
                if told is None:
                    raise
                return told
            over = told is not None and found is not None and found.status == "ended"
            return told if found is None or over else found

    def prompt(self, identifier: str) -> Prompt | None:
        """What a dispatch would send, as `/api/v1/<identifier>/prompt`; `None` when nobody knows the issue.

        Raises:
            SymphonyError: as `issue`, or the dispatch would fail.
        """
        if (client := self._client()) is not None:
            with client:
                if (prompt := client.prompt(identifier)) is not None:
                    return prompt
        else:
            self._warn_of_absence()
        return anyio.run(partial(self._offline(client).prompt, identifier))

    def elsewhere(self, identifier: str) -> CommandError | None:
        """What to say of an issue that the tracker has and nobody works on; `None` where it has none.

        A tracker or a workflow that cannot be asked knows of none either.
        """
        try:
            told = anyio.run(self._offline(None).inactive, identifier)
        except SymphonyError:
            return None
        return None if told is None else CommandError.of(one_line(told[0]), hint=one_line(told[1]))

    def identifiers(self) -> tuple[str, ...]:
        """Every identifier that the tracker lists, to guess what was meant."""
        return anyio.run(self._offline(None).identifiers)

    def _issue_of_files(self, identifier: str, client: Client | None) -> KnownIssue | None:
        issue = anyio.run(partial(self._offline(client).issue, identifier))
        if issue is None:
            return None
        if client is None:
            return KnownIssue(**structs.asdict(issue), source="files", daemon=None)
        if issue.waiting is not None and issue.waiting.reason.code == "starting":
            issue = structs.replace(issue, waiting=_NOT_READ)
        return KnownIssue(**structs.asdict(issue), source="files", daemon=_asked(client.control))

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

        journal = journal_path(self.workflow, self._environment)
        return open_offline(self.workflow, self._environment, journal=journal, begins=client is None)


def _asked(control: Control) -> Asked:
    return Asked(
        pid=control.pid,
        started_at=None if control.started is None else utc_text(control.started),
        host=control.host,
        port=control.port,
        socket=str(control.socket),
    )
