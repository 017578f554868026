"""`symphony check`: every problem of a workflow file, as a linter shows it."""

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from math import isfinite
from pathlib import Path
from typing import Any

import anyio
import click
from msgspec import structs

from symphony import config, domain, skills, to_thread, workspaces
from symphony.agents.base import Program
from symphony.agents.preflight import missing_bubblewrap, missing_program
from symphony.agents.registry import AGENTS, SECTIONS, agent_kind, skill_places
from symphony.cli.documents import CheckedWorkflow
from symphony.cli.failures import CommandError, ExitCode, printable
from symphony.cli.formatting import aligned
from symphony.cli.options import json_option, print_json, use_colour, workflow_argument
from symphony.cli.repository import git, git_output, uncommitted_changes, uncommitted_skills_for
from symphony.daemon.admission import judge
from symphony.daemon.carriers import CARRIERS, carrier_class
from symphony.daemon.context import provider_redaction, redaction_for, skill_options
from symphony.problem import Problem, Severity
from symphony.processes.local import LocalHost
from symphony.skills import with_advice
from symphony.trackers.base import TrackerError
from symphony.trackers.markdown import Board, MarkdownTracker, doubtful_states
from symphony.trackers.registry import create_tracker, with_default_states

_EPILOG = """\b
Examples:
  symphony check                    validate the nearest WORKFLOW.md as `symphony run` would
  symphony check ../app/WORKFLOW.md
  symphony check --json | jq -r '.problems[].message'
  symphony check --keys             list every setting: type, default, when a change takes effect

Starts and changes nothing. Exit codes: 0 usable (there may be warnings), 2 usage, 3 errors.
"""
_COLOURS = {"error": "red", "warning": "yellow"}


@click.command(epilog=_EPILOG)
@workflow_argument
@json_option
@click.option("--keys", is_flag=True, help="List all possible settings; check no file.")
def check(workflow: Path, *, as_json: bool, keys: bool) -> int:
    """Validate a WORKFLOW.md and list every problem."""
    if keys:
        _print_keys(as_json=as_json)
        return ExitCode.OK
    report = check_workflow(workflow, dict(os.environ))
    if as_json:
        print_json(report)
    else:
        _print_report(report)
    return ExitCode.OK if report.valid else ExitCode.CONFIGURATION


def _print_report(report: CheckedWorkflow) -> None:
    colour = use_colour()
    for problem in report.problems:
        place = click.style(printable(problem.where), bold=True)
        severity = click.style(problem.severity, fg=_COLOURS[problem.severity], bold=True)
        click.echo(f"{place}: {severity}: {printable(problem.message)} [{problem.code}]", color=colour)
        if problem.hint:
            click.echo(click.style(f"  hint: {printable(problem.hint)}", dim=True), color=colour)
    severities = Counter(problem.severity for problem in report.problems)
    counts = [domain.plural(severities[name], name) for name in Severity if severities[name]]
    verdict = "usable" if report.valid else "not usable"
    details = f" ({', '.join(counts)})" if counts else ""
    click.echo(f"{printable(report.path)}: {verdict}{details}", color=colour)


def _print_keys(*, as_json: bool) -> None:
    keys = list(config.KEYS.values())
    for kind in SECTIONS.keys() - {key.name.partition(".")[0] for key in keys}:
        with suppress(domain.SymphonyError):  # an unusable adapter package is reported where it is used
            keys += config.keys_of(SECTIONS[kind], f"{kind}.")
    for kind in CARRIERS.names:
        with suppress(domain.SymphonyError):
            found = config.keys_of(carrier_class(kind).settings_type, f"worker.{kind}.")
            keys += [key for key in found if key.name not in config.KEYS]
    if as_json:
        print_json(keys)
        return
    rows = [("KEY", "TYPE", "DEFAULT", "RELOAD")]
    for key in keys:
        default = "required" if key.required else key.default or "not set"
        rows.append((key.name, key.shape.replace("`", ""), default, key.reload.value))
    for line in aligned(rows):
        click.echo(line)


# --- what is checked -------------------------------------------------------------------------------------
#
# Everything that `symphony run` would validate at its start, without starting. The repository, the programs
# of the agents and the skills that sessions would see are checked too, without a network and without changes.

_MAX_NAMES = 3
_NO_SUCH_REMOTE = 2  # exit code of `git remote get-url`
_LOCATION = re.compile(r"(?P<path>.+?):(?P<line>\d+)(?::(?P<column>\d+))?", re.DOTALL)


def check_workflow(path: Path, environment: Mapping[str, str]) -> CheckedWorkflow:
    """Check a workflow file and what it needs; every problem is part of the result."""
    path = path.absolute()
    try:
        file = config.read_workflow_file(path)
    except config.WorkflowError as error:
        return _document(path, error.failures, (), None)
    failures: list[domain.Failure] = []
    warnings: list[config.WorkflowWarning] = []
    try:
        secrets = config.read_secrets(environment)
    except config.SecretFileError as error:
        failures += error.failures
    else:
        environment = secrets.environment
        warnings += (
            config.WorkflowWarning(
                code=config.WarningCode.EXPOSED_SECRET,
                message="other users can read or change this file of a secret",
                where=str(exposed),
                hint=config.EXPOSED_HINT,
            )
            for exposed in secrets.exposed
        )
    report = judge(file, environment=environment, acknowledged=None)
    failures += [*report.failures, *anyio.run(_missing_requirements, report, environment)]
    warnings += [*report.warnings, *_unused_file(path)]
    if report.workflow is None:
        tracker = report.sections.get("tracker")
        provider = tracker.provider if isinstance(tracker, config.TrackerSettings) else {}
        redaction = provider_redaction(provider, environment)
        settings = None
    else:
        redaction = redaction_for(report.workflow, environment)
        settings = _effective_settings(report.workflow, environment, redaction)
        warnings += _state_warnings(report.workflow, environment)
        warnings += _repository_warnings(report.workflow.settings, path, report.source_map, environment)
        where = report.source_map.where(("agent", "skills"))
        warnings += unseen_skills(report.workflow.settings, report.agents, where=where)
    # A message may quote the file, which may contain a secret anywhere.
    told = [redaction.failure(failure) for failure in failures]
    return _document(path, told, [_masked(warning) for warning in warnings], settings)


def _masked(warning: config.WorkflowWarning) -> config.WorkflowWarning:
    """A warning without the credentials that are written as keys."""
    return (
        replace(warning, message=domain.mask_credentials(warning.message))
        if domain.holds_credential(warning.message)
        else warning
    )


def _document(
    path: Path,
    failures: Iterable[domain.Failure],
    warnings: Iterable[config.WorkflowWarning],
    settings: dict[str, Any] | None,
) -> CheckedWorkflow:
    def problem(severity: Severity, code: str, found: domain.Failure | config.WorkflowWarning) -> Problem:
        location = None if found.where is None else _LOCATION.fullmatch(found.where)
        column = location and location["column"]
        return Problem(
            severity=severity,
            code=code,
            message=found.message,
            path=location["path"] if location else found.where or str(path),
            line=int(location["line"]) if location else None,
            column=int(column) if column else None,
            hint=found.hint or "",
        )

    def in_file_order(problem: Problem) -> tuple[bool, int]:
        return (problem.path != str(path), problem.line or 0)

    errors = [problem(Severity.ERROR, failure.category.value, failure) for failure in failures]
    others = [problem(Severity.WARNING, warning.code.value, warning) for warning in warnings]
    return CheckedWorkflow(
        path=str(path),
        valid=not errors,
        problems=(*sorted(errors, key=in_file_order), *sorted(others, key=in_file_order)),
        settings=None if errors else settings,
    )


# --- errors ----------------------------------------------------------------------------------------------


async def _missing_requirements(
    report: config.WorkflowReport, environment: Mapping[str, str]
) -> list[domain.Failure]:
    """Reasons outside of the file why a start would fail, each with the location of its key."""
    host, source, failures = LocalHost(), report.source_map, []
    for agent, program in _programs(report):
        if missing := await missing_program(program, host=host, environment=environment):
            location = config.agent_key_location(agent, "command", source)
            failures.append(replace(missing, where=source.where(location)))
    workspace = {**report.partial_sections, **report.sections}.get("workspace")
    if not isinstance(workspace, config.WorkspaceSettings):
        return failures
    if workspace.isolation != "none" and (
        missing := await to_thread.run_sync(missing_bubblewrap, environment)
    ):
        failures.append(replace(missing, where=source.where(("workspace", "isolation"))))
    manager = workspaces.WorkspaceManager(
        host, workspace, config.HooksSettings(), environment, frozenset(), workflow=source.path
    )
    try:
        await manager.inspect_root()
    except domain.SymphonyError as error:
        failures.append(replace(error.failure, where=source.where(("workspace", "root"))))
    if (workspace.repo or "").startswith("/"):  # not a URL
        try:
            await manager.check_repository()
        except domain.SymphonyError as error:
            key = "repo" if workspace.base_branch is None else "base_branch"
            failures.append(replace(error.failure, where=source.where(("workspace", key))))
    return failures


def _programs(report: config.WorkflowReport) -> Iterator[tuple[config.NamedAgent, Program]]:
    """The programs of the agents whose command is known."""
    for agent in report.agents.values():
        # A section that is partly invalid has the default for a wrong command. The user did not choose it.
        given = agent.own | report.given_keys.get(agent.kind, frozenset())
        if agent.kind in AGENTS.names and (agent.kind in report.sections or "command" in given):
            with suppress(domain.SymphonyError):  # an adapter that cannot be loaded is an error of the file
                program = agent_kind(agent.kind).program(agent.settings, agent.section)
                if program is not None:
                    yield agent, program


# --- warnings --------------------------------------------------------------------------------------------


def _unused_file(workflow: Path) -> Iterator[config.WorkflowWarning]:
    """A file that other programs of the name Symphony read."""
    file = workflow.parent / ".symphony" / "config.yaml"
    if file.is_file():
        yield config.WorkflowWarning(
            code=config.WarningCode.UNUSED_FILE,
            message=f"{file} is not read",
            where=f"{file}:1",
            hint="settings stand between the two --- lines of WORKFLOW.md",
        )


def _state_warnings(
    workflow: config.Workflow, environment: Mapping[str, str]
) -> Iterator[config.WorkflowWarning]:
    """States of the settings that the Markdown board probably does not have."""
    tracker, agent, forge = workflow.settings.tracker, workflow.settings.agent, workflow.settings.forge
    made = create_tracker(tracker, base_dir=workflow.path.parent, environment=environment)
    if not isinstance(made, MarkdownTracker):
        return
    try:
        issues = Board(made.config).all().issues
    except TrackerError:
        return  # a board that cannot be read is an error of its own
    lists = (tracker.active_states or (), tracker.terminal_states or (), tracker.provider.get("states") or ())
    rules = (*(rule.state for rule in agent.rules), *(rule.state for rule in agent.phases.rules))
    single = (tracker.on_start, tracker.on_block, forge.on_feedback, forge.merged_state, *rules)
    named = [state for states in (*lists, agent.max_concurrent_agents_by_state) for state in states]
    named += [state for state in single if state is not None]
    for doubt in doubtful_states(made.config, named, issues):
        at = next(
            (
                key
                for key in ("active_states", "terminal_states")
                if doubt.state in (getattr(tracker, key) or ())
            ),
            "provider",
        )
        near = "" if doubt.nearest is None else f"did you mean {doubt.nearest!r}? Else "
        yield config.WorkflowWarning(
            code=config.WarningCode.DOUBTFUL_SETTING,
            message=doubt.message,
            where=workflow.source_map.where(("tracker", at)),
            hint=f"{near}name the states of the issues in tracker.active_states or tracker.terminal_states",
        )


def _repository_warnings(
    settings: config.Settings, workflow: Path, source: config.SourceMap, environment: Mapping[str, str]
) -> Iterator[config.WorkflowWarning]:
    if missing := uncommitted_skills_for(settings):
        yield config.WorkflowWarning(
            code=config.WarningCode.UNCOMMITTED_SKILLS,
            message=f"skills that are not committed on {missing.branch}: {', '.join(missing.names)}",
            where=source.where(("agent", "skills")),
            hint="sessions see only commits: git add and commit the skills",
        )
    yield from _skill_problems(settings)
    yield from _instruction_problems(settings, source)
    if changed := uncommitted_changes(settings, workflow):
        more = f" and {len(changed) - _MAX_NAMES} more" if len(changed) > _MAX_NAMES else ""
        yield config.WorkflowWarning(
            code=config.WarningCode.UNCOMMITTED_CHANGES,
            message=f"changes that are not committed: {', '.join(changed[:_MAX_NAMES])}{more}",
            where=source.where(("workspace", "repo")),
            hint="sessions start from the last commit and do not see them: commit or stash them",
        )
    yield from _delivery_warnings(settings.workspace, source)
    yield from _clone_warnings(settings, source, environment)


def _skill_problems(settings: config.Settings) -> Iterator[config.WorkflowWarning]:
    """Malformed skills in the folder of a local repository."""
    options, repo = skill_options(settings.agent.skills), settings.workspace.repo
    if not options.enabled or repo is None or not Path(repo).is_dir():
        return
    for problem in with_advice(Path(repo), options, skills.load(Path(repo), options)).problems:
        if problem.severity is not skills.Severity.INFO:
            path = Path(*skills.resolve_anchor(problem.scope, problem.path, Path(repo), options))
            yield config.WorkflowWarning(
                code=config.WarningCode.SKILL_PROBLEM,
                message=f"{problem.message} ({problem.code})",
                where=structs.replace(problem, path=str(path)).where,
                hint=problem.hint,
            )


def unseen_skills(
    settings: config.Settings, agents: Mapping[str, config.NamedAgent], *, where: str | None
) -> Iterator[config.WorkflowWarning]:
    """Folders of a local repository with skills that no session sees, in one warning."""
    options, repo = skill_options(settings.agent.skills), settings.workspace.repo
    if not options.enabled or repo is None or not Path(repo).is_dir():
        return
    found = skills.load(Path(repo), options)
    if folders := skills.skills_elsewhere(Path(repo), options, found, skill_places(agents.values())):
        yield config.WorkflowWarning(
            code=config.WarningCode.SKILLS_ELSEWHERE,
            message=skills.unseen_in(folders),
            where=where,
            hint=skills.hint_for(options, folders),
        )


def _instruction_problems(
    settings: config.Settings, source: config.SourceMap
) -> Iterator[config.WorkflowWarning]:
    """Problems with instructions and their phases; those of an address are not looked at."""
    section, repo = settings.agent.instructions, settings.workspace.repo
    if section.source == "embedded":
        found, manifest = skills.EMBEDDED_SOURCE, source.where(("agent", "phases"))
    elif section.source == "local" and repo is not None and Path(repo).is_dir():
        found = skills.DirectorySource(Path(repo), section.path, shown=str(Path(repo, section.path)))
        manifest = found.place(skills.MANIFEST_FILE)
    else:
        return
    selector, shared = skills.Loader(found, sha256=section.sha256).load(), section.source == "embedded"
    unfit = skills.check_phases(selector, settings.agent.phases.names, manifest, shared=shared)
    for problem in (*selector.problems, *unfit):
        yield config.WorkflowWarning(
            code=config.WarningCode.INSTRUCTIONS_PROBLEM,
            message=f"{problem.message} ({problem.code})",
            where=problem.where,
            hint=problem.hint,
        )


def _delivery_warnings(
    workspace: config.WorkspaceSettings, source: config.SourceMap
) -> Iterator[config.WorkflowWarning]:
    """Settings with which finished work does not arrive where people look for it."""
    pushes = workspace.push == "origin"
    branch = workspaces.locate_branch(workspace, "symphony/ISSUE", pushed=pushes)
    if branch is None:
        return
    where = source.where(("workspace", "push" if pushes else "repo"))
    if pushes and branch.fetch is None and not _has_origin(Path(branch.repository)):
        yield config.WorkflowWarning(
            code=config.WarningCode.NO_REMOTE,
            message=f"workspace.push is origin, and {branch.repository} has no remote of that name",
            where=where,
            hint="add one with `git remote add origin URL`, or set workspace.push: never",
        )
    if branch.fetch is None:
        repository = Path(branch.repository)
        listed = git_output(
            repository, "for-each-ref", workspaces.TAKEN_FORMAT, f"refs/heads/{domain.BRANCH_PREFIX[:-1]}"
        )
        for taken in workspaces.taken_names(repository, listed or ""):
            yield config.WorkflowWarning(
                code=config.WarningCode.BRANCH_NAME_TAKEN, message=taken.message, where=where, hint=taken.hint
            )
    if workspace.push == "never" and branch.fetch is not None:
        yield config.WorkflowWarning(
            code=config.WarningCode.HIDDEN_DELIVERY,
            message=f"finished work will be on this machine only, in the repository {branch.repository}",
            where=where,
            hint=f"set workspace.push: origin, or fetch each branch from there: {branch.fetch}",
        )


def _has_origin(repository: Path) -> bool:
    try:
        return git(repository, "remote", "get-url", "--push", "origin").returncode != _NO_SUCH_REMOTE
    except (CommandError, OSError):
        return True  # a repository that cannot be used is an error of its own


def _clone_warnings(
    settings: config.Settings, source: config.SourceMap, environment: Mapping[str, str]
) -> Iterator[config.WorkflowWarning]:
    """Content of a local repository that a clone lacks: submodules, and what filters make of files."""
    repo, branch = settings.workspace.repo, settings.workspace.base_branch or "HEAD"
    if repo is None or not Path(repo).is_dir():
        return
    where = source.where(("workspace", "repo"))
    if settings.hooks.after_create is None and git_output(Path(repo), "ls-tree", branch, "--", ".gitmodules"):
        yield config.WorkflowWarning(
            code=config.WarningCode.SUBMODULES_NOT_POPULATED,
            message=f"{branch} has submodules, and workspaces come without them",
            where=where,
            hint=workspaces.SUBMODULES_HINT,
        )
    git_of_daemon = workspaces.Git(LocalHost(), environment, frozenset())
    find = partial(workspaces.missing_filters, source=Path(repo), hook=settings.hooks.after_create)
    for missing in anyio.run(find, git_of_daemon, Path(repo), branch):
        lfs = missing.name == "lfs"
        yield config.WorkflowWarning(
            code=config.WarningCode.LFS_NOT_SET_UP if lfs else config.WarningCode.FILTER_NOT_SET_UP,
            message=filter_message(branch, missing),
            where=where,
            hint=missing.hint,
        )


def filter_message(branch: str, missing: workspaces.MissingFilter) -> str:
    """What sessions would see without a filter of git, in one line."""
    if missing.name == "lfs":
        return f"{branch} has files in Git LFS, and sessions would see pointers in their place"
    return (
        f"{branch} has files of the filter {missing.name}, and sessions would see and commit them unfiltered"
    )


# --- effective settings ----------------------------------------------------------------------------------


def _effective_settings(
    workflow: config.Workflow, environment: Mapping[str, str], redaction: domain.Redaction
) -> dict[str, Any]:
    """Every setting with its value, with the tracker's default states, and with masked secrets."""
    tracker = with_default_states(
        workflow.settings.tracker, base_dir=workflow.path.parent, environment=environment
    )

    def plain(node: Any) -> Any:
        match node:
            case str() | Path() | config.Secret():
                return redaction.text(str(node))
            case config.Section():
                fields = type(node).model_fields
                return {fields[key].alias or key: plain(value) for key, value in node}
            case dict():
                return {key: plain(value) for key, value in node.items()}
            case list() | tuple():
                return [plain(value) for value in node]
            case float() if not isfinite(node):
                return None  # JSON cannot express it
            case _:
                return node

    settings = workflow.settings.model_copy(update={"tracker": tracker})
    return {key: plain(value) for key, value in settings}
