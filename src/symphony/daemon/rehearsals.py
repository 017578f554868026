"""Rehearses the merges of ready branches when a branch becomes ready or the base moves.

    the set of ready branches changes, or a look at the base finds it elsewhere -> one rehearsal -> documents
    `rehearse.verify` -> the commands on what merges -> the same document with their result

It runs beside the loop, one at a time, for a limited time. Its result is only in memory: after a restart the
first set of ready branches gives a new one. A result of the commands applies to one base and one set of
commits. If these change meanwhile, the result is not shown, and the commands run again on the new ones.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import anyio
import structlog
from msgspec import structs

from symphony import scheduler
from symphony.api import models
from symphony.api.history import utc_now
from symphony.api.interface import ConflictError, UnavailableError
from symphony.api.rehearsal import rehearsal_document
from symphony.daemon.combined_verification import verify_together
from symphony.daemon.context import RuntimeContext
from symphony.daemon.core import Core
from symphony.domain import SymphonyError
from symphony.observability import bugs

LOOK_S: Final = 60.0
"""How often the base is checked while a branch is ready."""
TIMEOUT_S: Final = 30.0
_FRESH_S: Final = 2.0
_log = structlog.get_logger(__name__)

_Ready = tuple[tuple[str, str, str], ...]
_Inputs = tuple[object, ...]


def ready_to_merge(state: scheduler.State) -> tuple[scheduler.IssueResult, ...]:
    """The results that are ready for review with a branch, in the order of the board."""
    ready = (
        each
        for each in scheduler.results_with_status(state, scheduler.ResultStatus.READY)
        if each.delivered is not None
    )
    return tuple(sorted(ready, key=lambda each: scheduler.dispatch_order(each.issue)))


async def rehearse_merges(
    context: RuntimeContext, state: scheduler.State, identifiers: Sequence[str] = ()
) -> models.Rehearsal:
    """Rehearse the merges of the branches of these issues, or of all that are ready, in the board's order.

    Raises:
        ConflictError: `not_delivered`: one of them has no branch; `nothing_ready`: no issue is ready;
            `no_repository`: hooks populate the workspaces.
        SymphonyError: the repository or git cannot do it.
    """
    if context.settings.workspace.repo is None:
        raise ConflictError("no_repository", "workspace.repo is not set, so no branch is delivered")
    chosen = ready_to_merge(state)
    if identifiers:
        delivered = {one.issue.identifier: one for one in state.results.values() if one.delivered is not None}
        for identifier in identifiers:
            if identifier not in delivered:
                message = f"{identifier} has no branch: a run delivers its commits when it ends"
                raise ConflictError("not_delivered", message, hint="symphony status lists ready work")
        wanted = (delivered[identifier] for identifier in dict.fromkeys(identifiers))
        chosen = tuple(sorted(wanted, key=lambda each: scheduler.dispatch_order(each.issue)))
    if not chosen:
        raise ConflictError("nothing_ready", "no issue is ready for review with a branch")
    branches = {one.issue.id: one.delivered.branch for one in chosen if one.delivered is not None}
    found = await context.workspaces.rehearse(branches)
    assert found is not None  # noqa: S101 - there is a repository
    return rehearsal_document(found, {one.issue.id: one.issue for one in chosen}, now=utc_now())


class Rehearsals:
    """Keeps the result for what is ready; an observer of the service.

    Args:
        core: state and context.
        on_result: called with `ok` or `failed` after each rehearsal.
        on_changed: called when the result changed.
        look_s: how often to check the base.
        timeout_s: the limit of one rehearsal.
        verify: adds the result of `verify.commands` to a rehearsal.
    """

    def __init__(
        self,
        core: Core,
        *,
        on_result: Callable[[str], None] = lambda _: None,
        on_changed: Callable[[], None] = lambda: None,
        look_s: float = LOOK_S,
        timeout_s: float = TIMEOUT_S,
        verify: Callable[[RuntimeContext, models.Rehearsal], Awaitable[models.Rehearsal]] = verify_together,
    ) -> None:
        self._core = core
        self._on_result = on_result
        self._on_changed = on_changed
        self._look_s = look_s
        self._timeout_s = timeout_s
        self._verify_together = verify
        self._one_at_a_time = anyio.Lock()
        self._woken = anyio.Event()
        self._rehearsed: _Ready = ()
        self._done_s = float("-inf")
        self._said: str | None = None
        self._verified: tuple[_Inputs, models.Rehearsal | None] | None = None
        self._may_verify = anyio.Event()
        self.latest: models.Rehearsal | None = None

    def __call__(
        self,
        before: scheduler.State,
        event: scheduler.Event,
        after: scheduler.State,
        commands: tuple[scheduler.Command, ...],
    ) -> None:
        """Wake up when the set of ready branches changes."""
        del event, commands
        if after.results is not before.results and _ready(after) != self._rehearsed:
            self._woken.set()

    def reconfigure(self, _context: RuntimeContext) -> None:
        """Check the base of new settings now, and run their commands."""
        self._woken.set()

    async def run(self) -> None:
        """Rehearse and verify when due, until cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._verify_when_due)
            await self._rehearse_when_due()

    async def _rehearse_when_due(self) -> None:
        while True:
            self._woken = anyio.Event()
            try:
                await self._rehearse_if_changed()
            except Exception as error:  # noqa: BLE001 - a bug costs one rehearsal, never the daemon
                bugs.contained("rehearsal_crashed", error)
            self._may_verify.set()  # the settings may be new
            with anyio.move_on_after(self._look_s if self._rehearsed else None):
                await self._woken.wait()

    async def rehearse(self, identifiers: Sequence[str] = ()) -> models.Rehearsal:
        """As `rehearse_merges`, for the present state; one at a time.

        Raises:
            ConflictError, SymphonyError: as `rehearse_merges`.
            UnavailableError: the daemon does not serve, or it took too long.
        """
        try:
            with anyio.fail_after(self._timeout_s):
                async with self._one_at_a_time:
                    state, context = self._core.state, self._core.context
                    if state is None or context is None:
                        raise UnavailableError("snapshot_unavailable", "the daemon is starting")
                    ready = _ready(state)
                    is_fresh = anyio.current_time() - self._done_s < _FRESH_S and ready == self._rehearsed
                    if not identifiers and self.latest is not None and is_fresh:
                        return self.latest
                    began_s = anyio.current_time()
                    found = await rehearse_merges(context, state, identifiers)
                    self._on_result("ok")
                    _log.info(
                        "merges_rehearsed",
                        branches=len(found.branches),
                        merging=found.merging,
                        conflicting=found.conflicting,
                        duration_ms=round((anyio.current_time() - began_s) * 1000),
                    )
                    if not identifiers:
                        self._keep(ready, found)
                    return found
        except TimeoutError:
            message = f"no result within {self._timeout_s:g} s: the branches are large or the disk is slow"
            raise UnavailableError("rehearsal_timeout", message) from None

    def _keep(self, ready: _Ready, found: models.Rehearsal | None) -> None:
        if found is not None and self._verified is not None:
            inputs, done = self._verified
            if done is not None and inputs == self._inputs(found):
                found = structs.replace(done, generated_at=found.generated_at, moved=found.moved)
        changed = found != self.latest
        self._rehearsed, self.latest, self._done_s, self._said = ready, found, anyio.current_time(), None
        self._may_verify.set()
        if changed:
            self._on_changed()

    async def _rehearse_if_changed(self) -> None:
        """Rehearse if the set of ready branches or the base has changed."""
        state, context = self._core.state, self._core.context
        if state is None or context is None or context.settings.workspace.repo is None:
            return
        ready = _ready(state)
        if not ready:
            self._keep((), None)
            return
        try:
            if ready == self._rehearsed and self.latest is not None:
                with anyio.fail_after(self._timeout_s):
                    base = await context.workspaces.look_at_base()
                if base == (self.latest.base, self.latest.base_commit):
                    return
            await self.rehearse()
        except (SymphonyError, ConflictError, UnavailableError, TimeoutError) as error:
            self._failed(ready, str(error) or "the repository did not answer in time")

    async def _verify_when_due(self) -> None:
        while True:
            self._may_verify = anyio.Event()
            try:
                await self._verify()
            except Exception as error:  # noqa: BLE001 - a bug costs one verification, never the daemon
                bugs.contained("rehearsal_crashed", error)
            await self._may_verify.wait()

    async def _verify(self) -> None:
        """Run the commands on the merged branches, if that is wanted and was not done yet."""
        found, context = self.latest, self._core.context
        if found is None or context is None or not context.settings.rehearse.verify:
            return
        inputs = self._inputs(found)
        if not found.merging or (self._verified is not None and self._verified[0] == inputs):
            return
        began_s = anyio.current_time()
        self._verified = (inputs, None)
        try:
            done = await self._verify_together(context, found)
        except (SymphonyError, ConflictError) as error:
            _log.warning("merges_not_verified", reason=str(error))
            return
        if done.verified is not None:
            _log.info(
                "merges_verified",
                result=done.verified.status,
                reason=done.verified.message,
                breaks=done.verified.breaks,
                duration_ms=round((anyio.current_time() - began_s) * 1000),
            )
        self._verified = (inputs, done)
        if self.latest is not None and self._inputs(self.latest) == inputs:
            self.latest = structs.replace(done, generated_at=self.latest.generated_at)
            self._on_changed()

    def _inputs(self, found: models.Rehearsal) -> _Inputs:
        """The inputs of the result of the commands."""
        context = self._core.context
        heads = tuple((one.issue_id, one.head) for one in found.branches)
        return (found.base_commit, found.tree, heads, None if context is None else context.settings.verify)

    def _failed(self, ready: _Ready, reason: str) -> None:
        """Drop the result, because it belongs to other branches or to another base."""
        said = self._said
        self._on_result("failed")
        self._keep(ready, None)
        self._said = reason
        if reason != said:
            _log.warning("rehearsal_failed", reason=reason)


def _ready(state: scheduler.State) -> _Ready:
    """The inputs of a result besides the base: issues, branches and their commits, in order."""
    return tuple(
        (one.issue.id, one.delivered.branch, one.delivered.head)
        for one in ready_to_merge(state)
        if one.delivered is not None
    )
