"""Everything `symphony check` looks at: what a start would judge, without starting anything.

The file passes `runtime.admission` as it does at a start. What lies around it is looked at where that needs
no network and changes nothing: the repository, the agent's program, the skills that sessions would see.
"""

import re
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from math import isfinite
from pathlib import Path
from typing import Any

import anyio
from anyio import to_thread

from symphony import skills
from symphony.agents.base import Program
from symphony.agents.preflight import missing_bubblewrap, missing_program
from symphony.agents.registry import AGENTS, agent_kind
from symphony.cli.documents import CheckedWorkflow, WorkflowProblem
from symphony.cli.failures import CommandError
from symphony.cli.repository import git, unseen_changes, unseen_skills
from symphony.config import (
    EXPOSED_HINT,
    HooksSettings,
    NamedAgent,
    Secret,
    SecretFileError,
    Section,
    Settings,
    SourceMap,
    TrackerSettings,
    WarningCode,
    Workflow,
    WorkflowError,
    WorkflowReport,
    WorkflowWarning,
    WorkspaceSettings,
    agent_key_location,
    read_secrets,
    read_workflow_file,
)
from symphony.daemon.admission import judge
from symphony.daemon.context import provider_redaction, redaction_for, skill_options
from symphony.domain import Failure, Redaction, SymphonyError
from symphony.processes.local import LocalHost
from symphony.skills import with_advice
from symphony.trackers.registry import with_default_states
from symphony.workspaces import SUBMODULES_HINT, WorkspaceManager, locate_branch

_SHOWN = 3
_GIT_TIMEOUT_S = 10
_NO_SUCH_REMOTE = 2  # git's exit code
_PLACE = re.compile(r"(?P<path>.+?):(?P<line>\d+)(?::(?P<column>\d+))?", re.DOTALL)


def examine(path: Path, environment: Mapping[str, str]) -> CheckedWorkflow:
    """Look at a workflow file and at what it needs; never raises for what is wrong with them."""
    path = path.absolute()
    try:
        file = read_workflow_file(path)
    except WorkflowError as error:
        return _report(path, error.failures, (), None)
    environment, unreadable, exposed = _secrets(environment)
    judgement = judge(file, environment=environment, acknowledged=None)
    redaction = _redaction(judgement, environment)
    found = [*unreadable, *judgement.failures, *anyio.run(_surroundings, judgement, environment)]
    failures = [redaction.failure(failure) for failure in found]
    warnings: list[WorkflowWarning | WorkflowProblem] = [
        *judgement.warnings,
        *_unread_files(path),
        *exposed,
    ]
    if judgement.workflow is None:
        return _report(path, failures, warnings, None)
    settings = judgement.workflow.settings
    warnings += _skills(settings, judgement.source_map)
    warnings += _unseen_changes(settings, path, judgement.source_map)
    warnings += _delivery(settings.workspace, judgement.source_map)
    warnings += _unpopulated(settings, judgement.source_map)
    return _report(path, failures, warnings, _effective(judgement.workflow, environment, redaction))


def _secrets(
    environment: Mapping[str, str],
) -> tuple[Mapping[str, str], tuple[Failure, ...], tuple[WorkflowProblem, ...]]:
    """The variables with the secrets from files among them, and what is wrong or odd about those files."""
    try:
        secrets = read_secrets(environment)
    except SecretFileError as error:
        return environment, error.failures, ()
    odd = (
        WorkflowProblem(
            severity="warning",
            code=WarningCode.EXPOSED_SECRET.value,
            message="other users can read or change this file of a secret",
            path=str(path),
            line=None,
            column=None,
            hint=EXPOSED_HINT,
        )
        for path in secrets.exposed
    )
    return secrets.environment, (), tuple(odd)


def _redaction(judgement: WorkflowReport, environment: Mapping[str, str]) -> Redaction:
    """A message may quote the file, and a secret may stand anywhere in it."""
    if judgement.workflow is not None:
        return redaction_for(judgement.workflow, environment)
    tracker = judgement.sections.get("tracker")
    provider = tracker.provider if isinstance(tracker, TrackerSettings) else {}
    return provider_redaction(provider, environment)


def _report(
    path: Path,
    failures: Iterable[Failure],
    warnings: Iterable[WorkflowWarning | WorkflowProblem],
    settings: Mapping[str, Any] | None,
) -> CheckedWorkflow:
    errors = [_error(failure, path) for failure in failures]
    odd = [one if isinstance(one, WorkflowProblem) else _warning(one, path) for one in warnings]
    ordered = (*sorted(errors, key=_order(path)), *sorted(odd, key=_order(path)))
    return CheckedWorkflow(
        path=str(path),
        valid=not errors,
        problems=ordered,
        settings=None if errors or settings is None else dict(settings),
    )


def _order(path: Path) -> Callable[[WorkflowProblem], tuple[bool, int]]:
    """The order of the file first, then what stands elsewhere."""
    return lambda problem: (problem.path != str(path), problem.line or 0)


def _error(failure: Failure, path: Path) -> WorkflowProblem:
    return WorkflowProblem(
        severity="error",
        code=failure.category.value,
        message=failure.message,
        hint=failure.hint,
        **_place(failure.where, path),
    )


def _warning(warning: WorkflowWarning, path: Path) -> WorkflowProblem:
    return WorkflowProblem(
        severity="warning",
        code=warning.code.value,
        message=warning.message,
        hint=warning.hint,
        **_place(warning.where, path),
    )


def _place(where: str | None, path: Path) -> dict[str, Any]:
    found = None if where is None else _PLACE.fullmatch(where)
    if found is None:
        return {"path": where or str(path), "line": None, "column": None}
    column = found["column"]
    return {
        "path": found["path"],
        "line": int(found["line"]),
        "column": None if column is None else int(column),
    }


# --- what is wrong around the file ---


async def _surroundings(judgement: WorkflowReport, environment: Mapping[str, str]) -> list[Failure]:
    """What a start would fail for besides the file, each at the line of its key."""
    host, places, failures = LocalHost(), judgement.source_map, []
    known = {**judgement.partial_sections, **judgement.sections}
    workspace = known.get("workspace")
    for agent, program in _programs(judgement):
        missing = await missing_program(program, host=host, environment=environment)
        if missing is not None:
            failures.append(
                replace(missing, where=places.where(agent_key_location(agent, "command", places)))
            )
    if isinstance(workspace, WorkspaceSettings) and workspace.isolation != "none":
        missing = await to_thread.run_sync(missing_bubblewrap, environment)
        if missing is not None:
            failures.append(replace(missing, where=places.where(("workspace", "isolation"))))
    if isinstance(workspace, WorkspaceSettings):
        manager = WorkspaceManager(
            host, workspace, HooksSettings(), environment, frozenset(), workflow=judgement.source_map.path
        )
        try:
            await manager.inspect_root()
        except SymphonyError as error:
            failures.append(replace(error.failure, where=places.where(("workspace", "root"))))
        if (workspace.repo or "").startswith("/"):  # not a URL
            try:
                await manager.check_repository()
            except SymphonyError as error:
                key = "repo" if workspace.base_branch is None else "base_branch"
                failures.append(replace(error.failure, where=places.where(("workspace", key))))
    return failures


def _programs(judgement: WorkflowReport) -> Iterator[tuple[NamedAgent, Program]]:
    """What the agents start, as far as the file tells it; a package that is broken is told with the file."""
    for agent in judgement.agents.values():
        # What is left of a section has its default for a wrong command, which says nothing of the one meant.
        told = agent.own | judgement.given_keys.get(agent.kind, frozenset())
        if agent.kind in AGENTS.names and (agent.kind in judgement.sections or "command" in told):
            with suppress(SymphonyError):
                program = agent_kind(agent.kind).program(agent.settings, agent.section)
                if program is not None:
                    yield agent, program


# --- what is odd around the file ---


def _unread_files(workflow: Path) -> Iterator[WorkflowWarning]:
    """A file that other programs of this name read, and this one does not."""
    file = workflow.parent / ".symphony" / "config.yaml"
    if file.is_file():
        yield WorkflowWarning(
            code=WarningCode.UNUSED_FILE,
            message=f"{file} is not read",
            where=f"{file}:1",
            hint="settings stand between the two --- lines of WORKFLOW.md",
        )


def _skills(settings: Settings, places: SourceMap) -> Iterator[WorkflowWarning | WorkflowProblem]:
    """Skills that no session will see, and skills that are malformed."""
    if advice := unseen_skills(settings):
        yield WorkflowWarning(
            code=WarningCode.UNCOMMITTED_SKILLS,
            message=f"skills that are not committed on {advice.branch}: {', '.join(advice.names)}",
            where=places.where(("agent", "skills")),
            hint="sessions see what is committed there: git add the skills and commit them",
        )
    yield from _skill_problems(settings)


def _unpopulated(settings: Settings, places: SourceMap) -> Iterator[WorkflowWarning]:
    """What a clone does not bring along of a local repository; says nothing where git does not answer."""
    repo, branch = settings.workspace.repo, settings.workspace.base_branch or "HEAD"
    if repo is None or not Path(repo).is_dir():
        return
    where = places.where(("workspace", "repo"))
    if settings.hooks.after_create is None and _says(repo, "ls-tree", branch, "--", ".gitmodules"):
        yield WorkflowWarning(
            code=WarningCode.SUBMODULES_NOT_POPULATED,
            message=f"{branch} has submodules, and workspaces come without them",
            where=where,
            hint=SUBMODULES_HINT,
        )
    in_lfs = _says(repo, "grep", "--fixed-strings", "filter=lfs", branch, "--", "*.gitattributes")
    if in_lfs and not _says("/", "config", "--get", "filter.lfs.process"):
        yield WorkflowWarning(
            code=WarningCode.LFS_NOT_SET_UP,
            message=f"{branch} has files in Git LFS, and sessions would see pointers in their place",
            where=where,
            hint="install git-lfs, and run `git lfs install` as the user of the daemon",
        )


def _says(directory: str, *arguments: str) -> bool:
    try:
        done = git(Path(directory), *arguments, timeout_s=_GIT_TIMEOUT_S)
    except (SymphonyError, OSError, subprocess.SubprocessError):
        return False
    return done.returncode == 0 and bool(done.stdout)


def _skill_problems(settings: Settings) -> Iterator[WorkflowProblem]:
    """Malformed skills of the repository's own folder; sessions look again, in their own clone."""
    options, repo = skill_options(settings), settings.workspace.repo
    if not options.enabled or repo is None or not Path(repo).is_dir():
        return
    for problem in with_advice(Path(repo), options, skills.load(Path(repo), options)).problems:
        if problem.severity is not skills.Severity.INFO:
            yield WorkflowProblem(
                severity="warning",
                code=WarningCode.SKILL_PROBLEM.value,
                message=f"{problem.message} ({problem.code.value})",
                path=str(Path(*skills.resolve_anchor(problem.scope, problem.path, Path(repo), options))),
                line=problem.line,
                column=problem.column,
                hint=problem.hint,
            )


def _unseen_changes(settings: Settings, workflow: Path, places: SourceMap) -> Iterator[WorkflowWarning]:
    """Edits that sessions will not see."""
    if changed := unseen_changes(settings, workflow):
        more = f" and {len(changed) - _SHOWN} more" if len(changed) > _SHOWN else ""
        yield WorkflowWarning(
            code=WarningCode.UNCOMMITTED_CHANGES,
            message=f"changes that are not committed: {', '.join(changed[:_SHOWN])}{more}",
            where=places.where(("workspace", "repo")),
            hint="sessions start from the last commit and do not see them: commit or stash them",
        )


def _delivery(workspace: WorkspaceSettings, places: SourceMap) -> Iterator[WorkflowWarning]:
    """Settings with which finished work would not get where people look; no network is used."""
    found = locate_branch(workspace, "symphony/ISSUE", pushed=workspace.push == "origin")
    where = places.where(("workspace", "push" if workspace.push == "origin" else "repo"))
    if found is None:
        return
    if workspace.push == "origin" and found.fetch is None and not _has_origin(Path(found.repository)):
        yield WorkflowWarning(
            code=WarningCode.NO_REMOTE,
            message=f"workspace.push is origin, and {found.repository} has no remote of that name",
            where=where,
            hint="add one with `git remote add origin URL`, or set workspace.push: never",
        )
    if workspace.push == "never" and found.fetch is not None:
        yield WorkflowWarning(
            code=WarningCode.HIDDEN_DELIVERY,
            message=f"finished work will be on this machine only, in the repository {found.repository}",
            where=where,
            hint=f"set workspace.push: origin, or fetch each branch from there: {found.fetch}",
        )


def _has_origin(repository: Path) -> bool:
    """Where git does not answer, another finding says so."""
    try:
        return git(repository, "remote", "get-url", "--push", "origin").returncode != _NO_SUCH_REMOTE
    except (CommandError, OSError):
        return True


# --- the settings as they would hold ---


def _effective(workflow: Workflow, environment: Mapping[str, str], redaction: Redaction) -> Mapping[str, Any]:
    """Every setting with its value, the tracker's own states filled in, and secrets masked."""
    tracker = with_default_states(
        workflow.settings.tracker, base_dir=workflow.path.parent, environment=environment
    )
    settings = workflow.settings.model_copy(update={"tracker": tracker})

    def shown(node: Any) -> Any:
        match node:
            case str() | Path() | Secret():
                return redaction.text(str(node))
            case Section():
                return {key: shown(value) for key, value in node}
            case dict():
                return {key: shown(value) for key, value in node.items()}
            case list() | tuple():
                return [shown(value) for value in node]
            case float() if not isfinite(node):
                return None  # JSON has no word for it
            case _:
                return node

    return {key: shown(value) for key, value in settings}
