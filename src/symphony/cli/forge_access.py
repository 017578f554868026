"""Asks the forge of a workflow: what its token may do, and how a pull request stands."""

from collections.abc import Mapping

from symphony import to_thread
from symphony.cli.documents import ForgeCheck, OpenThread, PullCheck, PullRequestShown, PullReview
from symphony.cli.failures import CommandError
from symphony.cli.tracker_access import find_issue
from symphony.daemon.context import RuntimeContext
from symphony.daemon.journal_writer import JOURNAL_FILE
from symphony.daemon.state_dir import locate
from symphony.domain import (
    PullState,
    UnsafeKeyError,
    branch_name,
    workspace_key,
)
from symphony.journal.model import PullRequestRecord, UnusableError
from symphony.journal.reader import open_reader
from symphony.services.forges import connect_forge


async def check_forge(context: RuntimeContext, environment: Mapping[str, str]) -> ForgeCheck:
    """Whose the token is, and what it lacks.

    Raises:
        SymphonyError: `forge` is not set or cannot be used, or the forge refuses.
    """
    settings = context.settings.forge
    access = await connect_forge(settings, environment).access()
    return ForgeCheck(
        ok=not access.missing,
        kind=str(settings.kind),
        repo=str(settings.repo),
        login=access.login,
        missing=access.missing,
        limits=access.limits,
    )


async def show_pull_request(
    context: RuntimeContext, identifier: str, environment: Mapping[str, str]
) -> PullRequestShown:
    """The pull request of an issue: the open one, or else the newest.

    Raises:
        SymphonyError: there is none, `forge` is not set or cannot be used, or the forge refuses.
    """
    forge = connect_forge(context.settings.forge, environment)
    if identifier.removeprefix("#").isdigit():
        identifier = (await find_issue(context, identifier)).identifier
    try:
        branch = branch_name(workspace_key(identifier))
    except UnsafeKeyError as error:
        raise CommandError.of(f"{error}", hint="give the identifier of an issue") from error
    found = sorted(await forge.find(branch), key=lambda pull: pull.state is not PullState.OPEN)
    seen = await forge.observe([found[0].number], fresh=True) if found else {}
    pull = next(iter(seen.values()), None)
    if pull is None:
        raise CommandError.of(
            f"there is no pull request of the branch {branch} in {context.settings.forge.repo}",
            hint="is it pushed, and is the identifier right? `symphony status` lists the issues",
        )
    watched = await to_thread.run_sync(_watched, context, environment, identifier, pull.number)
    return PullRequestShown(
        code=None if watched is None else watched.code,
        message=None if watched is None else context.redaction.text(watched.message),
        issue_identifier=identifier,
        number=pull.number,
        url=pull.url,
        title=pull.title,
        state=pull.state.value,
        draft=pull.draft,
        branch=pull.head_branch,
        base=pull.base_branch,
        head=pull.head_sha,
        conflicts=pull.conflicts,
        rules_met=pull.rules_met,
        armed=bool(pull.armed),
        queued=pull.queued,
        complete=pull.complete,
        labels=pull.labels,
        checks=tuple(
            PullCheck(
                name=check.name,
                state=check.state.value,
                required=check.required,
                at_head=check.sha == pull.head_sha,
                summary=check.summary,
                url=check.url,
            )
            for check in pull.checks
        ),
        reviews=tuple(
            PullReview(login=review.author.login, state=review.state.value, can_write=review.author.can_write)
            for review in pull.reviews
        ),
        open_threads=tuple(
            OpenThread(
                path=thread.path,
                line=thread.line,
                login=thread.comments[-1].author.login,
                body=thread.comments[-1].body,
            )
            for thread in pull.threads
            if thread.comments and not thread.resolved
        ),
    )


def _watched(
    context: RuntimeContext, environment: Mapping[str, str], identifier: str, number: int
) -> PullRequestRecord | None:
    """What the daemon recorded of a pull request; `None` without a record, or a journal."""
    try:
        with open_reader(locate(context.workflow.path, environment) / JOURNAL_FILE) as reader:
            records = reader.recovered_state().pull_requests
    except UnusableError:
        return None
    mine = (one for one in records if one.issue.identifier == identifier and one.number == number)
    return next(mine, None)
