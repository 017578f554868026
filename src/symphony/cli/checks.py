"""The list of checks of `symphony doctor`, and those on the workflow and what its settings lead to."""

import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import anyio

from symphony.cli.checking import examine
from symphony.cli.checks_host import (
    check_children,
    check_clock,
    check_disk,
    check_git,
    check_identity,
    check_open_files,
    check_secrets,
    check_user_namespaces,
    check_version,
    check_yaml,
)
from symphony.cli.checks_state import (
    check_journal,
    check_lock,
    check_processes,
    check_state_directory,
    check_workspaces,
)
from symphony.cli.checkup import Check, Checkup, Finding, Status, examine_all, failed, fine, in_thread, odd
from symphony.cli.documents import TrackerProblem
from symphony.cli.failures import ExitCode
from symphony.cli.journal_place import journal_of
from symphony.cli.nearest import nearest
from symphony.cli.serving import open_store
from symphony.cli.tracker_look import look_at
from symphony.config.errors import WarningCode
from symphony.daemon.agents import ask_agent
from symphony.daemon.bound import Bound, bind
from symphony.daemon.state_place import locate
from symphony.domain.failures import Category, SymphonyError
from symphony.domain.redaction import Redaction
from symphony.processes.local import LocalHost
from symphony.processes.secrets import SecretFileError, read_secrets

__all__ = ["check_up"]

_TOLD_ELSEWHERE = frozenset(
    {
        Category.AGENT_NOT_FOUND.value,
        Category.CODEX_NOT_FOUND.value,
        Category.SECRET_FILE.value,
        Category.WORKSPACE_REPOSITORY.value,
        WarningCode.EXPOSED_SECRET.value,
        WarningCode.NO_REMOTE.value,
    }
)
_SHOWN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """What the checks are about; `bound` is null where the workflow cannot be used."""

    workflow: Path
    environment: Mapping[str, str]
    host: LocalHost
    state_dir: Path
    bound: Bound | None


def check_up(
    workflow: Path, environment: Mapping[str, str], tell: Callable[[Sequence[str]], None]
) -> Checkup:
    """Look at everything; never raises for what is wrong."""
    workflow = workflow.absolute()
    host = LocalHost()
    with suppress(SecretFileError):  # told by a check
        environment = read_secrets(environment).environment
    place = _Place(
        workflow=workflow,
        environment=environment,
        host=host,
        state_dir=locate(workflow, environment),
        bound=_bound(workflow, environment, host),
    )
    redaction = Redaction() if place.bound is None else place.bound.redaction
    findings = anyio.run(partial(examine_all, _checks(place), redaction=redaction, tell=tell))
    return Checkup(workflow=str(workflow), findings=findings)


def _bound(workflow: Path, environment: Mapping[str, str], host: LocalHost) -> Bound | None:
    """The adapters of the workflow; what is wrong with it is found again, and told, by a check."""
    try:
        store = open_store(workflow, environment, acknowledged=True)
        return bind(store.current(), host=host, environment=environment)
    except SymphonyError:
        return None


def _checks(place: _Place) -> dict[str, Check]:
    """Every check by its name, in the order in which they are shown."""
    state_dir, environment, bound = place.state_dir, place.environment, place.bound
    checks: dict[str, Check] = {
        "version": check_version,
        "yaml": check_yaml,
        "workflow": partial(_check_workflow, place),
        "secrets": partial(check_secrets, environment),
        "git": partial(check_git, place.host, environment),
        "git_identity": partial(check_identity, place.host, environment, bound),
        "repository": partial(_check_repository, bound),
        "push": partial(_check_push, bound),
        "agent": partial(_check_agent, bound),
        "tracker": partial(_check_tracker, bound),
        "state_directory": partial(check_state_directory, state_dir),
        "lock": partial(check_lock, place.workflow, environment),
        "journal": partial(check_journal, journal_of(place.workflow, environment)),
        "disk": partial(check_disk, _disks(place)),
        "clock": partial(check_clock, place.host, environment),
        "user_namespaces": partial(check_user_namespaces, place.host, environment),
        "open_files": partial(check_open_files, bound),
        "children": check_children,
        "processes": partial(check_processes, place.workflow, environment, state_dir),
        "workspaces": partial(check_workspaces, bound),
    }
    return checks


def _disks(place: _Place) -> dict[str, Path]:
    disks = {"state directory": place.state_dir}
    if place.bound is not None:
        disks["workspace.root"] = place.bound.settings.workspace.root
    return disks


async def _check_workflow(place: _Place) -> list[Finding]:
    """The verdict of `symphony check`, without what other checks tell more about."""
    report = await in_thread(examine, place.workflow, place.environment)
    problems = [problem for problem in report.problems if problem.code not in _TOLD_ELSEWHERE]
    errors = [problem for problem in problems if problem.severity == "error"]
    if place.bound is None:
        found = await in_thread(_why_unbound, place)
        return [found] if found is not None else [fine("workflow", f"{place.workflow} became usable")]
    if errors:
        first, more = errors[0], len(errors) - 1
        others = f" (and {more} more)" if more else ""
        where = first.path if first.line is None else f"{first.path}:{first.line}"
        text = f"{where}: {first.message}{others}"
        return [odd("workflow", text, hint=first.hint or "`symphony check` tells all of it")]
    if problems:
        count = len(problems)
        text = f"{report.path} is usable, with {count} warning{'' if count == 1 else 's'}"
        return [odd("workflow", text, hint="`symphony check` tells what they are")]
    return [fine("workflow", f"{report.path} is usable")]


def _why_unbound(place: _Place) -> Finding | None:
    try:
        store = open_store(place.workflow, place.environment, acknowledged=True)
        bind(store.current(), host=place.host, environment=place.environment)
    except SymphonyError as error:
        more = len(getattr(error, "failures", (error.failure,))) - 1
        found = failed("workflow", error.failure, hint="`symphony check` tells all of it")
        if not more:
            return found
        return Finding(
            check=found.check,
            status=found.status,
            message=f"{found.message} (and {more} more)",
            hint=found.hint,
            code=found.code,
        )
    return None


def _unknown(check: str) -> list[Finding]:
    text = "not looked at, because WORKFLOW.md cannot be used"
    return [odd(check, text, hint="mend WORKFLOW.md first, then run this again")]


async def _check_repository(bound: Bound | None) -> list[Finding]:
    """What workspaces are made of, asked as a start would."""
    if bound is None:
        return _unknown("repository")
    repo = bound.settings.workspace.repo
    if repo is None:
        return [fine("repository", "workspace.repo is not set: hooks fill the workspaces")]
    await bound.workspaces.check_repository()
    branch = bound.settings.workspace.base_branch
    return [fine("repository", f"{repo} can be cloned" + (f", from {branch}" if branch else ""))]


async def _check_push(bound: Bound | None) -> list[Finding]:
    """Whether `origin` would take a branch, asked by a dry run with the credentials there are."""
    if bound is None:
        return _unknown("push")
    workspace = bound.settings.workspace
    if workspace.push != "origin" or workspace.repo is None:
        return [fine("push", "not asked for: workspace.push or workspace.repo is not set")]
    failure = await bound.workspaces.check_push()
    if failure is None:
        return [fine("push", "origin takes branches, as far as a dry run tells")]
    return [odd("push", failure.message, hint=failure.hint or "see what `git push` says")]


async def _check_agent(bound: Bound | None) -> list[Finding]:
    """The check before the first dispatch of every agent: program, version, login, one sandboxed command."""
    if bound is None:
        return _unknown("agent")
    root = bound.settings.workspace.root
    place = await in_thread(partial(_scratch, root))
    try:
        return [finding for name in bound.agents for finding in await _ask(bound, name, place)]
    finally:
        with anyio.CancelScope(shield=True):
            await in_thread(partial(shutil.rmtree, place, ignore_errors=True))


async def _ask(bound: Bound, name: str, place: Path) -> list[Finding]:
    found = await ask_agent(bound, name, place, mark="doctor")
    which = "" if len(bound.agents) == 1 else f"{name}: "
    told = fine("agent", f"{which}{found.agent} {found.version} passes the check before the first dispatch")
    hint = "the agent works; see what it says"
    return [told, *(odd("agent", f"{which}{notice}", hint=hint) for notice in found.notices)]


def _scratch(root: Path) -> Path:
    """A directory as near to the workspaces as can be made: what a sandbox permits depends on the place."""
    try:
        return Path(tempfile.mkdtemp(prefix=".symphony-doctor-", dir=nearest(root)))
    except OSError:
        return Path(tempfile.mkdtemp(prefix="symphony-doctor-"))


async def _check_tracker(bound: Bound | None) -> list[Finding]:
    """What `symphony tracker check` finds, with one poll as the daemon would ask it."""
    if bound is None:
        return _unknown("tracker")
    look = await look_at(bound)
    states = ", ".join(look.active) or "no state at all"
    plural = "" if look.issues == 1 else "s"
    found = [fine("tracker", f"{look.kind} answers: {look.issues} issue{plural} in {states}")]
    found += [_finding(problem) for problem in look.problems[:_SHOWN]]
    if len(look.problems) > _SHOWN:
        text = f"{len(look.problems) - _SHOWN} more records or states are wrong"
        found.append(odd("tracker", text, hint="`symphony tracker check` shows them"))
    return found


def _finding(problem: TrackerProblem) -> Finding:
    error = problem.severity == "error"
    return Finding(
        check="tracker",
        status=Status.ERROR if error else Status.WARNING,
        message=problem.message,
        hint=problem.hint,
        code=ExitCode.FAILURE if error else ExitCode.OK,
    )
