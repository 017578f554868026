"""What the reading commands show: asked of the daemon, or computed from the files if no daemon runs."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import anyio
from msgspec import structs

from symphony import domain
from symphony.api.models import Prompt, PromptComment, utc_text
from symphony.cli.client import Client, connect
from symphony.cli.documents import DaemonInfo, KnownIssue, RehearsalShown, Status
from symphony.cli.endpoint import absence_notice
from symphony.cli.failures import CommandError, warn
from symphony.daemon.state_dir import journal_path
from symphony.revision import other_version, version_text

if TYPE_CHECKING:
    from symphony.cli.offline import Offline

_SUGGESTIONS: Final = 5
_Answer = TypeVar("_Answer")


class Queries:
    """Answers about one workflow; each one looks for a running daemon first."""

    def __init__(self, workflow: Path, environment: Mapping[str, str]) -> None:
        self.workflow = workflow
        self._environment = environment
        self._warned = False

    def state(self, only: domain.Selection = domain.ALL_ISSUES) -> Status:
        """All issues, or the selected ones.

        Raises:
            SymphonyError: the daemon cannot be asked; without a daemon, the workflow is not usable.
        """
        client = self._connect()
        if client is None:
            state = anyio.run(self._offline(None).state, only)
            notice = absence_notice(self.workflow, self._environment)
            return Status(**structs.asdict(state), source="files", daemon=None, notice=notice)
        state = client.state(only)
        theirs = other_version(state.version, state.commit)
        notice = None if theirs is None else f"It is symphony {theirs}, and {version_text()} is installed."
        info = _daemon_info(client)
        return Status(**structs.asdict(state), source="daemon", daemon=info, notice=notice)

    def rehearse(self, identifiers: Sequence[str]) -> RehearsalShown:
        """Which branches of these issues merge together, or of all ready ones.

        Raises:
            SymphonyError: an issue has no branch, nothing is ready, or the repository or git cannot do it.
        """
        from symphony.api.interface import ConflictError  # noqa: PLC0415 - it loads the scheduler

        client = self._connect()
        if client is not None:
            return RehearsalShown(**structs.asdict(client.rehearse(identifiers)), source="daemon")
        self._warn_of_absence()
        try:
            found = anyio.run(self._offline(None).rehearse, identifiers)
        except ConflictError as error:
            hint = error.hint or "symphony status shows how the issues are"
            raise CommandError.of(error.message, hint=hint) from error
        return RehearsalShown(**structs.asdict(found), source="files")

    def verify_together(
        self,
        found: RehearsalShown,
        *,
        on_try: Callable[[int], None],
        on_check: Callable[[domain.CheckRun], None],
    ) -> RehearsalShown:
        """The rehearsal with what `verify.commands` say of the branches that merge, run by this process.

        Raises:
            SymphonyError: there are no commands, or the checkouts cannot be made.
        """
        from symphony.cli.offline import verify_rehearsal  # noqa: PLC0415 - everything a daemon needs: slow to import

        return verify_rehearsal(self.workflow, self._environment, found, on_try=on_try, on_check=on_check)

    def daemon_runs(self) -> bool:
        """Whether a daemon serves the workflow.

        Raises:
            UnreachableError: it cannot be asked.
        """
        return self._connect() is not None

    def issue(self, identifier: str) -> KnownIssue | None:
        """One issue; None if neither the daemon nor the tracker knows it.

        Raises:
            SymphonyError: as `state`, or the tracker cannot answer.
        """
        client = self._connect()
        if client is None:
            self._warn_of_absence()
            issue = anyio.run(self._offline(None).issue, identifier)
            return None if issue is None else KnownIssue(**structs.asdict(issue), source="files", daemon=None)
        issue = client.issue(identifier)
        if issue is None:
            return None
        return KnownIssue(**structs.asdict(issue), source="daemon", daemon=_daemon_info(client))

    def new_comments(self, identifier: str) -> tuple[PromptComment, ...]:
        """The comments of people for the next run of an issue; none if they are not known."""
        with suppress(domain.SymphonyError):
            if (prompt := self.prompt(identifier)) is not None:
                return prompt.new_comments
        return ()

    def prompt(self, identifier: str, phase: str | None = None) -> Prompt | None:
        """What a dispatch of an issue would send; None if neither the daemon nor the tracker knows it.

        Raises:
            SymphonyError: as `issue`, or the dispatch would fail.
        """
        client = self._connect()
        if client is None:
            self._warn_of_absence()
        elif (prompt := client.prompt(identifier, phase)) is not None:
            return prompt
        return anyio.run(partial(self._offline(client).prompt, identifier, phase))

    def inactive_error(self, identifier: str) -> CommandError | None:
        """The error for an issue that the tracker has in an inactive state; None for any other issue."""
        try:
            explanation = anyio.run(self._offline(None).inactive, identifier)
        except domain.SymphonyError:
            return None
        if explanation is None:
            return None
        message, hint = explanation
        return CommandError.of(domain.one_line(message), hint=domain.one_line(hint))

    def identifiers(self) -> tuple[str, ...]:
        """Every identifier that the tracker lists."""
        return anyio.run(self._offline(None).identifiers)

    def _warn_of_absence(self) -> None:
        if not self._warned and (notice := absence_notice(self.workflow, self._environment)):
            self._warned = True
            warn(notice)

    def _connect(self) -> Client | None:
        return connect(self.workflow, self._environment)

    def _offline(self, client: Client | None) -> "Offline":
        """Answers from the files; uses the journal's claims only if no daemon runs."""
        from symphony.cli.offline import open_offline  # noqa: PLC0415 - everything a daemon needs: slow to import

        journal = journal_path(self.workflow, self._environment)
        return open_offline(self.workflow, self._environment, journal=journal, remembers=client is None)


def resolve_issue(
    identifier: str,
    ask: Callable[[str], _Answer | None],
    known: Callable[[], Sequence[str]],
    error_for: Callable[[str], CommandError | None] = lambda _: None,
) -> _Answer:
    """The answer about the issue that a person names.

    The name matches exactly, uniquely ignoring case, or by a number such as `7` or `#7` for GH-7.

    Args:
        identifier: what the person typed.
        ask: gives the answer for an identifier; None if it does not know it.
        known: gives all known identifiers; called only if `ask` does not know the exact one.
        error_for: gives a better error than "there is no issue", if there is one.

    Raises:
        CommandError: the issue is unknown, or several could be meant.
    """
    if (answer := ask(identifier)) is not None:
        return answer
    names = known()
    alike = domain.issues_named(identifier, names)
    if len(alike) == 1 and (answer := ask(alike[0])) is not None:
        return answer
    raise error_for(identifier) or unknown_issue(identifier, names)


def unknown_issue(identifier: str, known: Sequence[str]) -> CommandError:
    """The error for an unknown issue, with similar identifiers among those that the tracker lists."""
    folded = {name.casefold(): name for name in known}
    name = identifier.casefold()
    if len(meant := domain.issues_named(identifier, known)) > 1:
        choice = ", ".join(map(domain.one_line, sorted(meant, key=domain.natural_order)))
        hint = f"it may be {choice}: give one of them"
    elif name in folded:
        hint = f"did you mean {domain.one_line(folded[name])}? Identifiers are compared exactly"
    elif near := get_close_matches(name, folded, n=_SUGGESTIONS, cutoff=0.6):
        hint = f"did you mean {', '.join(domain.one_line(folded[one]) for one in near)}?"
    elif known:
        shown = sorted(known, key=domain.natural_order)[:_SUGGESTIONS]
        more = f" and {len(known) - _SUGGESTIONS} more" if len(known) > _SUGGESTIONS else ""
        hint = f"the tracker lists {', '.join(map(domain.one_line, shown))}{more}"
    else:
        hint = "the tracker lists no issue in an active state; `symphony status` shows the known ones"
    return CommandError.of(f"there is no issue {domain.one_line(identifier)!r}", hint=hint)


def _daemon_info(client: Client) -> DaemonInfo:
    endpoint = client.endpoint
    return DaemonInfo(
        pid=endpoint.pid,
        started_at=None if endpoint.started is None else utc_text(endpoint.started),
        host=endpoint.host,
        port=endpoint.port,
        socket=str(endpoint.socket),
    )
