"""Everything `symphony check` looks at: what a start would judge, without starting anything.

The file passes `runtime.admission` as it does at a start. What lies around it is looked at where that needs
no network and changes nothing: the repository, the agent's program, the skills that sessions would see.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from math import isfinite
from pathlib import Path
from typing import Any, Literal

import anyio
from anyio import to_thread

from symphony import skills
from symphony.agents.enclosed import missing_enclosure
from symphony.agents.program import missing_program
from symphony.agents.registry import KINDS, program
from symphony.cli.uncommitted import unseen_skills
from symphony.domain.failures import Failure, SymphonyError
from symphony.domain.redaction import Redaction
from symphony.hosts.local import LocalHost
from symphony.hosts.secrets import EXPOSED_HINT, SecretFileError, read_secrets
from symphony.runtime.admission import judge
from symphony.runtime.bound import provider_redaction, redaction_for, skill_options
from symphony.trackers.registry import with_default_states
from symphony.workflow.agent_review import place_of
from symphony.workflow.confidential import Secret
from symphony.workflow.document import Judgement, Workflow, read_workflow_file
from symphony.workflow.engine import names_of
from symphony.workflow.errors import WarningCode, WorkflowError, WorkflowWarning
from symphony.workflow.review import Places
from symphony.workflow.settings import (
    HooksSettings,
    Section,
    Settings,
    TrackerSettings,
    WorkspaceSettings,
)
from symphony.workspace.manager import WorkspaceManager

__all__ = ["Problem", "Report", "examine"]

_PLACE = re.compile(r"(?P<path>.+?):(?P<line>\d+)(?::(?P<column>\d+))?", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One finding; `line` and `column` count from 1 and are null where it stands in no line of a file."""

    severity: Literal["error", "warning"]
    code: str
    message: str
    path: str
    line: int | None
    column: int | None
    hint: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The outcome: errors first, then warnings; `settings` are the effective ones, null with an error."""

    path: str
    problems: tuple[Problem, ...]
    settings: Mapping[str, Any] | None

    @property
    def valid(self) -> bool:
        """Whether a start would take the file."""
        return not any(problem.severity == "error" for problem in self.problems)

    def as_json(self) -> dict[str, Any]:
        """The shape of `symphony check --json` (docs/schemas/check.schema.json)."""
        return {
            "path": self.path,
            "valid": self.valid,
            "problems": [asdict(problem) for problem in self.problems],
            "settings": self.settings,
        }


def examine(path: Path, environment: Mapping[str, str]) -> Report:
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
    warnings: list[WorkflowWarning | Problem] = [
        *judgement.warnings,
        *_unread_files(path),
        *exposed,
    ]
    if judgement.workflow is None:
        return _report(path, failures, warnings, None)
    warnings += _skills(judgement.workflow.settings, judgement.places)
    return _report(path, failures, warnings, _effective(judgement.workflow, environment, redaction))


def _secrets(
    environment: Mapping[str, str],
) -> tuple[Mapping[str, str], tuple[Failure, ...], tuple[Problem, ...]]:
    """The variables with the secrets from files among them, and what is wrong or odd about those files."""
    try:
        secrets = read_secrets(environment)
    except SecretFileError as error:
        return environment, error.failures, ()
    odd = (
        Problem(
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


def _redaction(judgement: Judgement, environment: Mapping[str, str]) -> Redaction:
    """A message may quote the file, and a secret may stand anywhere in it."""
    if judgement.workflow is not None:
        return redaction_for(judgement.workflow, environment)
    tracker = judgement.sections.get("tracker")
    provider = tracker.provider if isinstance(tracker, TrackerSettings) else {}
    return provider_redaction(provider, environment)


def _report(
    path: Path,
    failures: Iterable[Failure],
    warnings: Iterable[WorkflowWarning | Problem],
    settings: Mapping[str, Any] | None,
) -> Report:
    errors = [_error(failure, path) for failure in failures]
    odd = [one if isinstance(one, Problem) else _warning(one, path) for one in warnings]
    ordered = (*sorted(errors, key=_order(path)), *sorted(odd, key=_order(path)))
    return Report(path=str(path), problems=ordered, settings=None if errors else settings)


def _order(path: Path) -> Callable[[Problem], tuple[bool, int]]:
    """The order of the file first, then what stands elsewhere."""
    return lambda problem: (problem.path != str(path), problem.line or 0)


def _error(failure: Failure, path: Path) -> Problem:
    return Problem(
        severity="error",
        code=failure.category.value,
        message=failure.message,
        hint=failure.hint,
        **_place(failure.where, path),
    )


def _warning(warning: WorkflowWarning, path: Path) -> Problem:
    return Problem(
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


async def _surroundings(judgement: Judgement, environment: Mapping[str, str]) -> list[Failure]:
    """What a start would fail for besides the file, each at the line of its key."""
    host, places, failures = LocalHost(), judgement.places, []
    known = {**judgement.remains, **judgement.sections}
    workspace = known.get("workspace")
    for agent in judgement.agents.values():
        # What is left of a section has its default for a wrong command, which says nothing of the one meant.
        told = agent.own | judgement.told.get(agent.kind, frozenset())
        sure = agent.kind in judgement.sections or "command" in told
        started = program(agent) if sure and agent.kind in KINDS else None
        if started is None:
            continue
        command, wanted = started.command, started.wanted
        missing = await missing_program(command, host=host, environment=environment, wanted=wanted)
        if missing is not None:
            where = places.where(place_of(agent, "command", places))
            failures.append(replace(missing, where=where))
    if isinstance(workspace, WorkspaceSettings) and workspace.isolation != "none":
        missing = await to_thread.run_sync(missing_enclosure, environment)
        if missing is not None:
            failures.append(replace(missing, where=places.where(("workspace", "isolation"))))
    if isinstance(workspace, WorkspaceSettings) and (workspace.repo or "").startswith("/"):  # not a URL
        manager = WorkspaceManager(host, workspace, HooksSettings(), environment, frozenset())
        try:
            await manager.check_repository()
        except SymphonyError as error:
            key = "repo" if workspace.base_branch is None else "base_branch"
            failures.append(replace(error.failure, where=places.where(("workspace", key))))
    return failures


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


def _skills(settings: Settings, places: Places) -> Iterator[WorkflowWarning | Problem]:
    """Skills that no session will see, and skills that are malformed."""
    if advice := unseen_skills(settings):
        yield WorkflowWarning(
            code=WarningCode.UNCOMMITTED_SKILLS,
            message=f"skills that are not committed on {advice.branch}: {', '.join(advice.names)}",
            where=places.where(("agent", "skills")),
            hint="sessions see what is committed there: git add the skills and commit them",
        )
    yield from _skill_problems(settings)


def _skill_problems(settings: Settings) -> Iterator[Problem]:
    """Malformed skills of the repository's own folder; sessions look again, in their own clone."""
    options, repo = skill_options(settings), settings.workspace.repo
    if not options.enabled or repo is None or not Path(repo).is_dir():
        return
    for problem in skills.load(Path(repo), options).problems:
        if problem.severity is not skills.Severity.INFO:
            yield Problem(
                severity="warning",
                code=WarningCode.SKILL_PROBLEM.value,
                message=f"{problem.message} ({problem.code.value})",
                path=str(Path(*skills.anchored(problem.scope, problem.path, Path(repo), options))),
                line=problem.line,
                column=problem.column,
                hint=problem.hint,
            )


# --- the settings as they would hold ---


def _effective(workflow: Workflow, environment: Mapping[str, str], redaction: Redaction) -> Mapping[str, Any]:
    """Every setting with its value, the tracker's own states filled in, and secrets masked."""
    tracker = with_default_states(
        workflow.settings.tracker, base_dir=workflow.path.parent, environment=environment
    )
    settings = replace(workflow.settings, tracker=tracker)

    def shown(node: Any) -> Any:
        match node:
            case str() | Path() | Secret():
                return redaction.text(str(node))
            case Section():
                return {key: shown(getattr(node, key)) for key in names_of(type(node))}
            case dict():
                return {key: shown(value) for key, value in node.items()}
            case list() | tuple():
                return [shown(value) for value in node]
            case float() if not isfinite(node):
                return None  # JSON has no word for it
            case _:
                return node

    return {key: shown(getattr(settings, key)) for key in names_of(Settings)}
