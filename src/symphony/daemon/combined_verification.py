"""Runs `verify.commands` on branches that merge together, and finds the branch that breaks them.

    all of them -> what failed, on the base -> what passes there, by halves -> the branch that breaks it

The branches are in the order of the board. Each try has its own checkout, which `verify.setup` prepares, and
the environment and isolation of an agent, because the commands run the agents' code.
"""

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import anyio

from symphony.agents.base import RunsCommands
from symphony.api import models
from symphony.api.interface import ConflictError
from symphony.api.rehearsal import with_verification
from symphony.daemon.context import RuntimeContext
from symphony.daemon.runs.verification import Verifier
from symphony.domain import CheckRun, Verification
from symphony.workspaces import Combination

OnTry = Callable[[int], None]
"""Called with the number of branches in the next checkout."""


def check_settings(context: RuntimeContext) -> None:
    """Raise `ConflictError` if branches cannot be verified together."""
    if not context.settings.verify.commands:
        raise ConflictError("no_commands", "verify.commands is not set, so there is nothing to run")
    if context.carrier is not None:
        message = "this machine runs no sessions, so it does not run agents' code"
        raise ConflictError("verified_on_hosts", message, hint="rehearse without --verify")


async def verify_together(
    context: RuntimeContext,
    found: models.Rehearsal,
    *,
    on_try: OnTry = lambda _: None,
    on_check: Callable[[CheckRun], None] = lambda _: None,
) -> models.Rehearsal:
    """The rehearsal with the results of `verify.commands` on the branches that merge.

    Raises:
        ConflictError: as `check_settings`.
        SymphonyError: a checkout cannot be made.
    """
    check_settings(context)
    heads = [one.head for one in found.branches if one.outcome == "merges" and one.head is not None]
    if not heads:
        return found
    names = (name for name, backend in context.agents.items() if isinstance(backend, RunsCommands))
    verifier = Verifier(
        context=context,
        agent=next(names, context.settings.agent.kind),
        run_id=uuid.uuid4().hex,
        on_check=on_check,
    )
    timeout_ms = context.settings.rehearse.timeout_ms
    search: _Search | None = None
    with anyio.move_on_after(timeout_ms / 1000) as limit:
        async with context.workspaces.combination(found.base_commit, heads) as combination:
            search = _Search(combination=combination, verifier=verifier, on_try=on_try)
            await search.run(len(heads))
    return with_verification(
        found,
        None if search is None else search.verification,
        breaks=None if search is None else search.breaks,
        timed_out_ms=timeout_ms if limit.cancelled_caught else None,
    )


@dataclass(kw_only=True)
class _Search:
    """Finds the branch that breaks the commands; keeps its partial result if it is cancelled.

    Attributes:
        verification: the verification of all branches together; `None` if it has not ended.
        breaks: the position of that branch, from 1; `None` if unknown.
    """

    combination: Combination
    verifier: Verifier
    on_try: OnTry
    verification: Verification | None = None
    breaks: int | None = None

    async def run(self, count: int) -> None:
        """Verify the first `count` branches together, and look for the one that breaks them."""
        whole = self.verification = await self._verify(count)
        if whole.passed or whole.problem is not None:  # or the commands change the files that they check
            return
        failed = [check.name for check in whole.checks if not check.passed]
        at_base = {check.name: check for check in (await self._verify(0, failed)).checks}
        checks = tuple(_compared(check, at_base.get(check.name)) for check in whole.checks)
        self.verification = replace(whole, checks=checks)
        failed = [name for name in failed if name in at_base and at_base[name].passed]
        if not failed:
            return
        low, high = 0, count
        while high - low > 1:
            middle = (low + high) // 2
            if all(check.passed for check in (await self._verify(middle, failed)).checks):
                low = middle
            else:
                high = middle
        self.breaks = high

    async def _verify(self, count: int, only: Sequence[str] | None = None) -> Verification:
        """The result of the first `count` branches together; with `only`, of these commands."""
        self.on_try(count)
        async with self.combination.checkout(count) as checkout:
            return await self.verifier.check(
                Verification(head=checkout.commit),
                checkout.path,
                self.combination.changed[count] if count else None,
                set_up=True,
                only=only,
                objects=checkout.objects,
            )


def _compared(check: CheckRun, at_base: CheckRun | None) -> CheckRun:
    """A check with `fails_on_base`; a command that was interrupted on the base tells nothing."""
    if check.passed or at_base is None or at_base.exit_code is None or at_base.exit_code < 0:
        return check
    return replace(check, fails_on_base=not at_base.passed)
