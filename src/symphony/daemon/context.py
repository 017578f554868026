"""What one workflow version is context to: settings, prompt, tracker, workspaces, agent (AG19, CF10).

A reload makes a new `Bound`; runs that started with an earlier one keep it to their end.
"""

import secrets
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import anyio
import structlog

import symphony
from symphony.agents.base import AgentBackend, BackendContext, Preflight
from symphony.agents.isolation import Isolation, sensitive_paths
from symphony.agents.registry import create_backend
from symphony.config import (
    NamedAgent,
    Settings,
    SkillsSettings,
    Workflow,
    agent_key_location,
    is_secret_variable,
    mask_secrets,
    secret_values,
    variables_from_files,
)
from symphony.daemon.state_dir import TOKEN_VARIABLE, locate
from symphony.domain import (
    Blame,
    Category,
    Failure,
    FaultHook,
    Redaction,
    SymphonyError,
    no_fault,
    normalise_state,
)
from symphony.processes.base import Host
from symphony.scheduler import AgentInfo, AssignmentRule, SchedulerSettings
from symphony.skills import ActivationMode, Format, Severity, SkillOptions, Validation
from symphony.trackers.base import Tracker
from symphony.trackers.registry import create_tracker, with_default_states
from symphony.workspaces import Layout, WorkspaceManager, split_login

# From a workflow to what encloses its agents: which places of the daemon's own they never see (DESIGN 9).


def build_isolation(workflow: Workflow, environment: Mapping[str, str]) -> Isolation | None:
    """The isolation of a workflow's agents; null where none is asked for.

    Of the workspace root only the objects that clones borrow and the pinned skills are left, read-only. The
    programs of this package are seen wherever they lie: agents start our tool server from them.
    An address of `origin` in a local repository may have a password in it.
    """
    workspace = workflow.settings.workspace
    if workspace.isolation == "none":
        return None
    layout = Layout(workspace.root)
    repo = workspace.repo or ""
    return Isolation(
        network=workspace.network == "open",
        readable=(
            *(layout.mirrors, layout.pins, Path(sys.prefix), Path(symphony.__file__).parent),
            *((Path(repo),) if repo.startswith("/") else ()),
        ),
        scratch=(Path(environment.get("TMPDIR") or tempfile.gettempdir()), *_caches(environment)),
        hidden=(workspace.root, *_of_daemons(workflow.path, environment), *_of_person(environment)),
        confidential=(Path(repo, ".git", "config"), Path(repo, "config")) if repo.startswith("/") else (),
    )


def _of_daemons(workflow: Path, environment: Mapping[str, str]) -> tuple[Path, ...]:
    """Journals, tokens and control sockets: ours, and where those of other workflows are."""
    state = locate(workflow, environment)
    others = locate(workflow, {key: value for key, value in environment.items() if key in _USUAL}).parent
    named = [environment.get(name) for name in ("XDG_RUNTIME_DIR", "CREDENTIALS_DIRECTORY")]
    return (state, others, *(Path(place) for place in named if place and place.startswith("/")))


_USUAL = frozenset({"XDG_STATE_HOME", "HOME"})


def _caches(environment: Mapping[str, str]) -> tuple[Path, ...]:
    home = environment.get("HOME")
    return () if not home else (Path(environment.get("XDG_CACHE_HOME") or Path(home, ".cache")),)


def _of_person(environment: Mapping[str, str]) -> tuple[Path, ...]:
    home = environment.get("HOME")
    return () if not home else sensitive_paths(Path(home))


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeContext:
    """One valid workflow with the adapters made from it; the tracker's default states are filled in."""

    workflow: Workflow
    active_states: tuple[str, ...]
    terminal_states: tuple[str, ...]
    tracker: Tracker
    workspaces: WorkspaceManager
    agents: Mapping[str, AgentBackend]
    named: Mapping[str, NamedAgent]
    secret_names: frozenset[str]
    redaction: Redaction
    fault: FaultHook = no_fault

    @property
    def settings(self) -> Settings:
        """The typed front matter."""
        return self.workflow.settings

    def agent(self, name: str) -> AgentBackend:
        """An agent by its name.

        Raises:
            SymphonyError: the workflow was changed and does not ask for it any more.
        """
        found = self.agents.get(name)
        if found is None:
            raise SymphonyError(
                Failure(
                    category=Category.INVALID_WORKFLOW_CONFIG,
                    blame=Blame.HOST,
                    message=f"WORKFLOW.md was changed and asks for no agent {name} any more",
                )
            )
        return found


def build_context(
    workflow: Workflow, *, host: Host, environment: Mapping[str, str], fault: FaultHook = no_fault
) -> RuntimeContext:
    """Make the adapters of a workflow; `fault` is told of the points that a run passes.

    Raises:
        SymphonyError: an adapter refuses its settings, with `path:line` where it is known.
    """
    settings = workflow.settings
    named = workflow.agents
    base_dir = workflow.path.parent
    states = with_default_states(settings.tracker, base_dir=base_dir, environment=environment)
    tracker = create_tracker(settings.tracker, base_dir=base_dir, environment=environment)
    secrets = workflow.secret_names | tracker.secret_environment_names() | {TOKEN_VARIABLE}
    if split_login(settings.workspace.repo or "")[1] is not None:
        secrets |= {name for name, value in environment.items() if value == settings.workspace.repo}
    redaction = redaction_for(workflow, environment, tracker=tracker)
    around = BackendContext(
        host=host,
        environ=environment,
        secret_names=secrets,
        homes=locate(workflow.path, environment) / "homes",
        isolation=build_isolation(workflow, environment),
    )
    return RuntimeContext(
        workflow=workflow,
        active_states=states.active_states or (),
        terminal_states=states.terminal_states or (),
        tracker=tracker,
        workspaces=WorkspaceManager(
            host=host,
            settings=settings.workspace,
            hooks=settings.hooks,
            environment=environment,
            secret_names=secrets | variables_from_files(environment),
            fault=fault,
            workflow=workflow.path,
            redaction=redaction,
        ),
        agents={name: create_backend(agent, around) for name, agent in named.items()},
        named=named,
        secret_names=secrets,
        redaction=redaction,
        fault=fault,
    )


def redaction_for(
    workflow: Workflow, environment: Mapping[str, str], *, tracker: Tracker | None = None
) -> Redaction:
    """Masks what must never be shown (LG5).

    That is: secrets that stand in the file, the password of `workspace.repo`, the values of variables that
    the tracker refers to or may fall back to, and of every variable called a key or token.
    """
    settings = workflow.settings.tracker
    adapter = tracker or create_tracker(settings, base_dir=workflow.path.parent, environment=environment)
    names = workflow.secret_names | adapter.secret_environment_names()
    held = {**settings.provider, **mask_secrets({"webhook_secret": settings.webhook_secret})}
    login = split_login(workflow.settings.workspace.repo or "")[1]
    return provider_redaction(held, environment, names=names, more=() if login is None else login.secrets)


def provider_redaction(
    provider: Mapping[str, Any],
    environment: Mapping[str, str],
    *,
    names: frozenset[str] = frozenset(),
    more: Iterable[str] = (),
) -> Redaction:
    """As `redaction_for`, of what is known before there is a workflow.

    `names` are further variables, `more` is what else is secret.
    """
    names |= {name for name in environment if is_secret_variable(name)}
    values = {environment[name] for name in names if environment.get(name)}
    return Redaction({*values, *more, *secret_values(provider, environment)})


def scheduler_settings(context: RuntimeContext) -> SchedulerSettings:
    """The part of the settings that decisions depend on."""
    settings = context.settings
    return SchedulerSettings(
        active_states=frozenset(normalise_state(state) for state in context.active_states),
        terminal_states=frozenset(normalise_state(state) for state in context.terminal_states),
        required_labels=settings.tracker.required_labels,
        poll_interval_ms=settings.polling.interval_ms,
        max_concurrent_agents=settings.agent.max_concurrent_agents,
        max_concurrent_by_state=settings.agent.max_concurrent_agents_by_state,
        max_turns=settings.agent.max_turns,
        max_retry_backoff_ms=settings.agent.max_retry_backoff_ms,
        stall_timeout_ms=context.named[settings.agent.kind].settings.stall_timeout_ms,
        max_turns_without_progress=settings.agent.budget.max_turns_without_progress,
        max_attempts_without_progress=settings.agent.budget.max_attempts_without_progress,
        drain_timeout_ms=settings.agent.drain_timeout_ms,
        max_tokens_per_issue=settings.agent.budget.max_tokens_per_issue,
        max_tokens_per_day=settings.agent.budget.max_tokens_per_day,
        max_turns_per_issue=settings.agent.budget.max_turns_per_issue,
        on_start=settings.tracker.on_start,
        on_block=settings.tracker.on_block,
        comment_on_delivery=settings.tracker.comment_on_delivery,
        on_return=settings.tracker.on_start or next(iter(context.active_states), None),
        agent=settings.agent.kind,
        fallback=settings.agent.fallback,
        rules=tuple(AssignmentRule(**rule.model_dump()) for rule in settings.agent.rules),
        agents={name: _facts(agent) for name, agent in context.named.items()},
    )


def _facts(agent: NamedAgent) -> AgentInfo:
    return AgentInfo(
        kind=agent.kind,
        section=agent.section,
        stall_timeout_ms=agent.settings.stall_timeout_ms,
        model=agent.settings.model,
    )


def skill_options(settings: Settings) -> SkillOptions:
    """The skills section in the words of the skills package."""
    return options_of(settings.agent.skills)


def options_of(skills: SkillsSettings) -> SkillOptions:
    """As `skill_options`, where there is no more than that section."""
    return SkillOptions(
        enabled=skills.enabled,
        path=skills.path,
        user_path=skills.user_path,
        extra_paths=skills.extra_paths,
        max_skills_in_prompt=skills.max_skills_in_prompt,
        max_prompt_chars=skills.max_prompt_chars,
        format=Format(skills.format),
        validation=Validation(skills.validation),
        name_fallback=skills.name_fallback,
        reserved_words=skills.reserved_words,
        include=skills.include,
        disabled_skills=skills.disabled_skills,
        activation=ActivationMode(skills.activation),
        search_above=skills.search_above,
    )


def comment_severity(settings: Settings) -> Severity | None:
    """The mildest problem of a skill that is worth a comment; null where none is, or none is loaded."""
    section = settings.agent.skills
    return Severity(section.comment_on) if section.enabled and section.comment_on != "never" else None


# The check before the first dispatch, of every agent that an issue may be given to (AG10, SC1).
#
# One that is not there is told by its name and at its line, before an issue meets it at night. A reload
# asks again only those that it changed.


_log = structlog.get_logger(__name__)


def changed_agents(before: RuntimeContext, after: RuntimeContext) -> tuple[str, ...]:
    """The names of those that are new or other than they were; all of them if their isolation changed."""
    was, now = before.settings.workspace, after.settings.workspace
    enclosed = (was.isolation, was.network) != (now.isolation, now.network)
    return tuple(name for name, agent in after.named.items() if enclosed or before.named.get(name) != agent)


async def preflight_agents(context: RuntimeContext, names: Iterable[str]) -> None:
    """Ask them all at once and log what they say, each by its name.

    Raises:
        SymphonyError: one cannot be used; the first of them in the order of the workflow.
    """
    asked = tuple(names)
    found: dict[str, Preflight | Failure] = {}

    async def ask(name: str) -> None:
        try:
            found[name] = await preflight_agent(context, name, context.settings.workspace.root)
        except SymphonyError as error:
            found[name] = error.failure

    async with anyio.create_task_group() as group:
        for name in asked:
            group.start_soon(ask, name)
    for name in asked:
        answer = found[name]
        if isinstance(answer, Failure):
            raise SymphonyError(answer)
        _log.info("agent_ready", agent=name, program=answer.agent, version=answer.version)
        for notice in answer.notices:
            _log.warning("agent_notice", agent=name, reason=notice)


async def preflight_agent(
    context: RuntimeContext, name: str, place: Path, *, mark: str = "preflight"
) -> Preflight:
    """Ask one agent in a place of workspaces; `mark` ends the id by which its processes are known.

    Raises:
        SymphonyError: it cannot be used; says which agent it is where there is more than one, and where in
            the workflow file it is told of.
    """
    run_id = f"{secrets.token_hex(4)}-{mark}"
    try:
        return await context.agent(name).preflight(place, run_id=run_id)
    except SymphonyError as error:
        raise SymphonyError(_placed(context, name, error.failure)) from error


def _placed(context: RuntimeContext, name: str, failure: Failure) -> Failure:
    agent, places = context.named[name], context.workflow.source_map
    location = agent_key_location(agent, "command", places)
    told = any(location[: depth + 1] in places.positions for depth in range(len(location)))
    message = failure.message
    if len(context.named) > 1 or agent.name != agent.kind:
        message = f"agent {name}: {message}"
    where = failure.where or (places.where(location) if told else None)
    return replace(failure, message=message, where=where)
