"""What one workflow version is bound to: settings, prompt, tracker, workspaces, agent (AG19, CF10).

A reload makes a new `Bound`; runs that started with an earlier one keep it to their end.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from symphony.agents.base import AgentBackend, Surroundings
from symphony.agents.registry import create_backend
from symphony.config.agents import NamedAgent
from symphony.config.confidential import masked, secret_values
from symphony.config.document import Workflow
from symphony.config.settings import Settings, SkillsSettings
from symphony.daemon.enclosure import enclosure
from symphony.daemon.state_place import locate
from symphony.daemon.token import TOKEN_VARIABLE
from symphony.domain.failures import Blame, Category, Failure, SymphonyError
from symphony.domain.fault_points import Fault, no_fault
from symphony.domain.issue import normalise_state
from symphony.domain.redaction import Redaction
from symphony.processes.base import Host
from symphony.processes.secrets import called_like_a_secret, names_from_files
from symphony.scheduler.settings import AgentFacts, Rule, SchedulerSettings
from symphony.skills import ActivationMode, Format, Severity, SkillOptions, Validation
from symphony.trackers.base import Tracker
from symphony.trackers.registry import create_tracker, with_default_states
from symphony.workspaces.manager import WorkspaceManager
from symphony.workspaces.remote import apart

__all__ = [
    "Bound",
    "bind",
    "comment_severity",
    "options_of",
    "provider_redaction",
    "redaction_for",
    "scheduler_settings",
    "skill_options",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
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
    fault: Fault = no_fault

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


def bind(workflow: Workflow, *, host: Host, environment: Mapping[str, str], fault: Fault = no_fault) -> Bound:
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
    if apart(settings.workspace.repo or "")[1] is not None:
        secrets |= {name for name, value in environment.items() if value == settings.workspace.repo}
    redaction = redaction_for(workflow, environment, tracker=tracker)
    around = Surroundings(
        host=host,
        environ=environment,
        secret_names=secrets,
        homes=locate(workflow.path, environment) / "homes",
        isolation=enclosure(workflow, environment),
    )
    return Bound(
        workflow=workflow,
        active_states=states.active_states or (),
        terminal_states=states.terminal_states or (),
        tracker=tracker,
        workspaces=WorkspaceManager(
            host=host,
            settings=settings.workspace,
            hooks=settings.hooks,
            environment=environment,
            secret_names=secrets | names_from_files(environment),
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
    held = {**settings.provider, **masked({"webhook_secret": settings.webhook_secret})}
    login = apart(workflow.settings.workspace.repo or "")[1]
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
    names |= {name for name in environment if called_like_a_secret(name)}
    values = {environment[name] for name in names if environment.get(name)}
    return Redaction({*values, *more, *secret_values(provider, environment)})


def scheduler_settings(bound: Bound) -> SchedulerSettings:
    """The part of the settings that decisions depend on."""
    settings = bound.settings
    return SchedulerSettings(
        active_states=frozenset(normalise_state(state) for state in bound.active_states),
        terminal_states=frozenset(normalise_state(state) for state in bound.terminal_states),
        required_labels=settings.tracker.required_labels,
        poll_interval_ms=settings.polling.interval_ms,
        max_concurrent_agents=settings.agent.max_concurrent_agents,
        max_concurrent_by_state=settings.agent.max_concurrent_agents_by_state,
        max_turns=settings.agent.max_turns,
        max_retry_backoff_ms=settings.agent.max_retry_backoff_ms,
        stall_timeout_ms=bound.named[settings.agent.kind].settings.stall_timeout_ms,
        max_turns_without_progress=settings.agent.budget.max_turns_without_progress,
        max_attempts_without_progress=settings.agent.budget.max_attempts_without_progress,
        drain_timeout_ms=settings.agent.drain_timeout_ms,
        max_tokens_per_issue=settings.agent.budget.max_tokens_per_issue,
        max_tokens_per_day=settings.agent.budget.max_tokens_per_day,
        max_turns_per_issue=settings.agent.budget.max_turns_per_issue,
        on_start=settings.tracker.on_start,
        on_block=settings.tracker.on_block,
        comment_on_delivery=settings.tracker.comment_on_delivery,
        on_return=settings.tracker.on_start or next(iter(bound.active_states), None),
        agent=settings.agent.kind,
        fallback=settings.agent.fallback,
        rules=tuple(Rule(**rule.model_dump()) for rule in settings.agent.rules),
        agents={name: _facts(agent) for name, agent in bound.named.items()},
    )


def _facts(agent: NamedAgent) -> AgentFacts:
    return AgentFacts(
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
