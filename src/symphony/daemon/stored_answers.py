"""An answer that a person gives while no daemon runs: the journal keeps it for the next daemon."""

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import anyio

from symphony import scheduler
from symphony.api.models import Verb, utc_text
from symphony.config import BudgetSettings
from symphony.daemon.clock import monotonic_ms, wall_ms
from symphony.daemon.journal_writer import StoredAnswer, open_journal_writer
from symphony.daemon.state_dir import JOURNAL_FILE, StateDirectory, instance_of
from symphony.domain import Blame, Category, Failure, SymphonyError
from symphony.processes.base import Identity
from symphony.processes.local import LocalHost

_EFFECT: Final = "the next daemon gives the answer to the agent"
_NO_STATES: Final = scheduler.SchedulerSettings(
    active_states=frozenset(), terminal_states=frozenset(), budget=BudgetSettings().limits
)


def store_answer(
    state_dir: StateDirectory,
    workflow: Path,
    identifier: str,
    action: scheduler.OperatorAction,
    text: str | None,
) -> Verb | None:
    """Store an answer for the next daemon; `None` if the journal has no question of the issue. Blocking.

    The caller knows that no daemon serves the workflow.

    Raises:
        SymphonyError: a daemon is just starting, the question already has an answer, or it does not take this
            kind.
    """
    if not (state_dir.path / JOURNAL_FILE).is_file():
        return None
    identity = LocalHost(instance=instance_of(state_dir.path)).identify(os.getpid())
    with state_dir.lock(workflow, identity=identity):
        return anyio.run(_store, state_dir, identity, identifier, action, text)


async def _store(
    state_dir: StateDirectory,
    identity: Identity | None,
    identifier: str,
    action: scheduler.OperatorAction,
    text: str | None,
) -> Verb | None:
    writer = open_journal_writer(
        state_dir.path, owner=identity, mask=str, now_ms=monotonic_ms, wall_ms=wall_ms
    )
    async with writer as journal:
        now_ms = monotonic_ms()
        recovered = journal.recovery_event(_NO_STATES, ())
        state, _ = scheduler.step(scheduler.initial_state(_NO_STATES, epoch="stored"), recovered, now_ms)
        asking = [each for each in state.blocked.values() if scheduler.awaits_answer(each)]
        found = _named(asking, identifier)
        if found is None:
            return None
        asked = scheduler.OperatorAsked(action=action, issue_id=found.issue.id, text=text)
        if refused := scheduler.refusal(state, action, found.issue.id, text):
            raise _refused(refused.message, refused.hint)
        if any(known.issue_id == found.issue.id for known in journal.stored_answers()):
            raise _refused("the question has an answer already", "start a daemon: symphony run")
        journal.store_answer(StoredAnswer(question=found.run_id or "", asked=asked))
    return Verb(
        verb=action.value,
        issue_identifier=found.issue.identifier,
        changed=True,
        message=_EFFECT,
        requested_at=utc_text(datetime.now(UTC)),
    )


def _named(asking: list[scheduler.Blocked], identifier: str) -> scheduler.Blocked | None:
    """The issue with this identifier, by exact case, or uniquely ignoring case."""
    exact = [each for each in asking if each.issue.identifier == identifier]
    alike = [each for each in asking if each.issue.identifier.casefold() == identifier.casefold()]
    found = exact or alike
    return found[0] if len(found) == 1 else None


def _refused(message: str, hint: str | None) -> SymphonyError:
    failure = Failure(
        category=Category.COMMAND, blame=Blame.HOST, message=message, hint=hint, retryable=False
    )
    return SymphonyError(failure)
