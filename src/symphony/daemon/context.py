"""The runtime context: one version of the workflow file, with the adapters made from it.

A reload makes a new context. Runs keep the context with which they started.
"""

import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import symphony
from symphony import config, domain
from symphony.agents.base import AgentBackend, BackendContext
from symphony.agents.environment import ALL_CREDENTIALS
from symphony.agents.isolation import Isolation
from symphony.agents.registry import create_backend
from symphony.agents.secret_places import named_secrets, secret_paths
from symphony.daemon.carriers import ChosenCarrier, choose_carrier
from symphony.daemon.clock import utc_day, wall_ms
from symphony.daemon.frames import CarriedSkills
from symphony.daemon.instruction_store import InstructionStore
from symphony.daemon.issue_numbers import used_numbers
from symphony.daemon.state_dir import TOKEN_VARIABLE, locate, other_state_dirs
from symphony.library.store import Library
from symphony.processes.base import Host
from symphony.scheduler import AgentInfo, SchedulerSettings
from symphony.skills import Severity, SkillOptions
from symphony.trackers.base import ToolProvider, Tracker
from symphony.trackers.markdown import MarkdownTracker
from symphony.trackers.registry import create_tracker, with_default_states
from symphony.workspaces import Layout, WorkspaceManager, split_login

_OWN_SECRETS: Final = frozenset({TOKEN_VARIABLE, "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"})
"""Variables that allow commands to this daemon or to the whole Ray cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeContext:
    """A valid workflow and its adapters.

    Attributes:
        workflow: settings, prompt template and agents.
        active_states: as configured, else the defaults of the tracker.
        terminal_states: likewise.
        tracker: the tracker of the issues.
        tools: the tools of the tracker; a run gets them from the daemon.
        workspaces: makes workspaces and delivers from them.
        agents: the backends by the names of the agents.
        secret_names: variables that no agent and no hook ever gets: the daemon's credentials in the file, and
            variables that allow commands to the daemon. Other credentials in `ALL_CREDENTIALS` are passed on
            if settings name them.
        redaction: masks secrets in everything that leaves the daemon.
        instructions: reads the instructions of runs; `None` if there are none.
        carrier: the carrier to the machines of runs; `None` for this machine.
        library: the library of skills; `None` if sessions do not use it.
        fault: called at the points of a run where crash tests kill the daemon.
    """

    workflow: config.Workflow
    active_states: tuple[str, ...]
    terminal_states: tuple[str, ...]
    tracker: Tracker
    tools: ToolProvider
    workspaces: WorkspaceManager
    agents: Mapping[str, AgentBackend]
    secret_names: frozenset[str]
    redaction: domain.Redaction
    instructions: InstructionStore | None = None
    carrier: ChosenCarrier | None = None
    library: Library | None = None
    carried_skills: CarriedSkills | None = None
    fault: domain.FaultHook = domain.no_fault

    @property
    def settings(self) -> config.Settings:
        """The typed front matter."""
        return self.workflow.settings

    def agent(self, name: str) -> AgentBackend:
        """The backend of an agent.

        Raises:
            SymphonyError: the workflow file changed and no longer has this agent.
        """
        found = self.agents.get(name)
        if found is None:
            raise domain.SymphonyError(
                domain.Failure(
                    category=domain.Category.INVALID_WORKFLOW_CONFIG,
                    blame=domain.Blame.HOST,
                    message=f"WORKFLOW.md was changed and no longer has the agent {name}",
                )
            )
        return found

    def cost(self, agent: str, model: str | None, tokens: domain.Tokens) -> domain.Cost:
        """The cost of tokens at these prices; without a reported model, the configured one counts."""
        if model is None and agent in self.workflow.agents:
            model = self.workflow.agents[agent].settings.model
        return domain.cost_of(tokens, domain.find_price(self.settings.pricing, model, utc_day(wall_ms())))


def build_context(
    workflow: config.Workflow,
    *,
    host: Host,
    environment: Mapping[str, str],
    fault: domain.FaultHook = domain.no_fault,
) -> RuntimeContext:
    """Make the adapters of a workflow.

    Raises:
        SymphonyError: an adapter refuses its settings; with `path:line` if that is known.
    """
    settings, base_dir = workflow.settings, workflow.path.parent
    states = with_default_states(settings.tracker, base_dir=base_dir, environment=environment)
    tracker = create_tracker(
        settings.tracker,
        base_dir=base_dir,
        environment=environment,
        deciding_labels=settings.deciding_labels,
    )
    if isinstance(tracker, MarkdownTracker):
        tracker.numbers = partial(used_numbers, tracker.config.path, workflow.path, environment)
    secret_names = (
        workflow.secret_names | (tracker.secret_environment_names() - domain.CREDENTIALS) | _OWN_SECRETS
    )
    if split_login(settings.workspace.repo or "")[1] is not None:
        secret_names |= {name for name, value in environment.items() if value == settings.workspace.repo}
    withheld = ALL_CREDENTIALS | config.variables_from_files(environment)
    redaction = redaction_for(workflow, environment, tracker=tracker)
    state_dir, instructions = locate(workflow.path, environment), settings.agent.instructions
    backend_context = BackendContext(
        host=host,
        environ=environment,
        secret_names=secret_names,
        homes=state_dir / "homes",
        isolation=build_isolation(workflow, environment),
    )
    return RuntimeContext(
        workflow=workflow,
        active_states=states.active_states or (),
        terminal_states=states.terminal_states or (),
        tracker=tracker,
        tools=tracker,
        workspaces=WorkspaceManager(
            host=host,
            settings=settings.workspace,
            hooks=settings.hooks,
            environment=environment,
            secret_names=secret_names | (withheld - frozenset(settings.hooks.env)),
            fault=fault,
            workflow=workflow.path,
            redaction=redaction,
        ),
        agents={name: create_backend(agent, backend_context) for name, agent in workflow.agents.items()},
        secret_names=secret_names,
        redaction=redaction,
        instructions=None
        if instructions.source is None
        else InstructionStore(instructions, base_dir=base_dir, copies=state_dir / "instructions"),
        carrier=choose_carrier(settings.worker),
        fault=fault,
    )


# --- secrets ---------------------------------------------------------------------------------------------


def known_secrets(
    workflow: config.Workflow, environment: Mapping[str, str], *, tracker: Tracker | None = None
) -> Iterator[config.SecretSource]:
    """The secrets of a workflow and its environment, each with its setting.

    These are the secrets in the file, the login of `workspace.repo`, and the values of variables that the
    tracker, the forge, `notify` or `tracing` refer to, that authenticate at a tracker, forge or chat, whose
    name is that of a key or token, or that `worker.env` names.
    """
    settings = workflow.settings
    tracker = tracker or create_tracker(
        settings.tracker, base_dir=workflow.path.parent, environment=environment
    )
    named = config.mask_secrets(
        {
            "tracker": {"webhook_secret": settings.tracker.webhook_secret},
            "forge": {"token": settings.forge.token, "webhook_secret": settings.forge.webhook_secret},
            "notify": {target.name: {"secret": target.secret} for target in settings.notify},
        }
    )
    yield from config.secret_sources(named, environment)
    yield from config.secret_sources(settings.tracker.provider, environment, ("tracker", "provider"))
    yield from config.secret_sources(
        settings.tracing.headers, environment, ("tracing", "headers"), named=True
    )
    for target in settings.notify:
        if target.url is not None:
            url = target.url if config.reference_name(target.url) else config.Secret(target.url)
            yield from config.secret_sources(url, environment, ("notify", target.name, "url"))
    if (login := split_login(settings.workspace.repo or "")[1]) is not None:
        yield from (config.SecretSource("workspace.repo", value, named=True) for value in login.secrets)
    credentials = tracker.secret_environment_names() | domain.CREDENTIALS | frozenset(settings.worker.env)
    yield from _variables(environment, credentials, workflow.secret_names)


def _variables(
    environment: Mapping[str, str], credentials: frozenset[str], others: frozenset[str] = frozenset()
) -> Iterator[config.SecretSource]:
    credentials |= {name for name in environment if config.is_secret_variable(name)}
    for name in sorted(credentials | others):
        if value := environment.get(name):
            yield config.SecretSource(f"${name}", value, named=name in credentials)


def redaction_for(
    workflow: config.Workflow, environment: Mapping[str, str], *, tracker: Tracker | None = None
) -> domain.Redaction:
    """Masks the secrets of a workflow."""
    return _redaction(known_secrets(workflow, environment, tracker=tracker))


def provider_redaction(provider: Mapping[str, Any], environment: Mapping[str, str]) -> domain.Redaction:
    """Masks the secrets of a provider section and of the environment, before there is a workflow."""
    return _redaction((*config.secret_sources(provider, environment), *_variables(environment, frozenset())))


def _redaction(sources: Iterable[config.SecretSource]) -> domain.Redaction:
    known = tuple(sources)
    return domain.Redaction(
        frozenset[str]().union(*(source.parts for source in known)),
        words=[source.value for source in known if source.named and not source.parts],
    )


# --- isolation -------------------------------------------------------------------------------------------


def build_isolation(workflow: config.Workflow, environment: Mapping[str, str]) -> Isolation | None:
    """The isolation of the workflow's agents; `None` without `workspace.isolation`.

    In the workspace root they see only borrowed git objects and pinned skills, read-only. They always see the
    files of this package, because agents start the tool server from them.
    """
    workspace = workflow.settings.workspace
    if workspace.isolation == "none":
        return None
    layout, home = Layout(workspace.root), environment.get("HOME")
    repo = Path(workspace.repo) if workspace.repo and workspace.repo.startswith("/") else None
    scratch = [Path(environment.get("TMPDIR") or tempfile.gettempdir())]
    if home:
        scratch.append(Path(environment.get("XDG_CACHE_HOME") or Path(home, ".cache")))
    usual = {key: environment[key] for key in ("XDG_STATE_HOME", "HOME") if key in environment}
    runtime = (environment.get(name, "") for name in ("XDG_RUNTIME_DIR", "CREDENTIALS_DIRECTORY"))
    return Isolation(
        network=workspace.network == "open",
        readable=(
            layout.mirrors,
            layout.pins,
            Path(sys.prefix),
            Path(symphony.__file__).parent,
            *(() if repo is None else (repo,)),
        ),
        scratch=tuple(scratch),
        hidden=(
            workspace.root,
            locate(workflow.path, environment),  # journal, token and control socket of this daemon
            locate(workflow.path, usual).parent,  # the state directories of other daemons
            *other_state_dirs(environment),
            *(Path(path) for path in runtime if path.startswith("/")),
            *secret_paths(environment),
            *named_secrets(environment),
        ),
        repositories=() if repo is None else (repo / ".git", repo),
        configurations=tuple(_git_configurations(environment)),
        home=Path(home) if home else None,
    )


def _git_configurations(environment: Mapping[str, str]) -> Iterator[Path]:
    """The git configurations of the machine and of its user."""
    yield Path("/etc/gitconfig")
    for name in ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"):
        if environment.get(name, "").startswith("/"):
            yield Path(environment[name])
    if home := environment.get("HOME"):
        yield Path(home, ".gitconfig")
        yield Path(environment.get("XDG_CONFIG_HOME") or Path(home, ".config"), "git", "config")


def tracker_key(context: RuntimeContext) -> str:
    """Identifies this workflow's tracker; contains no secret."""
    settings = context.settings.tracker
    provider = config.mask_secrets(settings.provider)  # a tracker with a replaced key is the same tracker
    text = f"{context.workflow.path} {settings.kind} {sorted(provider.items())!r}"
    return sha256(text.encode(errors="replace")).hexdigest()[:32]


# --- settings of other packages --------------------------------------------------------------------------


def scheduler_settings(context: RuntimeContext) -> SchedulerSettings:
    """The part of the settings that decisions depend on."""
    settings, agents = context.settings, context.workflow.agents
    chosen = context.carrier
    cluster = chosen.kind if chosen is not None and chosen.carrier.is_cluster else None
    return SchedulerSettings(
        active_states=frozenset(domain.normalise_state(state) for state in context.active_states),
        terminal_states=frozenset(domain.normalise_state(state) for state in context.terminal_states),
        required_labels=settings.tracker.required_labels,
        poll_interval_ms=settings.polling.interval_ms,
        max_concurrent_agents=settings.agent.max_concurrent_agents,
        max_concurrent_by_state=settings.agent.max_concurrent_agents_by_state,
        max_turns=settings.agent.max_turns,
        max_retry_backoff_ms=settings.agent.max_retry_backoff_ms,
        stall_timeout_ms=agents[settings.agent.kind].settings.stall_timeout_ms,
        budget=settings.agent.budget.limits,
        drain_timeout_ms=settings.agent.drain_timeout_ms,
        on_start=settings.tracker.on_start,
        on_block=settings.tracker.on_block,
        on_feedback=settings.forge.on_feedback if settings.forge.kind else None,
        comment_on_delivery=settings.tracker.comment_on_delivery,
        on_return=settings.tracker.on_start or next(iter(context.active_states), None),
        agent=settings.agent.kind,
        fallback=settings.agent.fallback,
        rules=settings.agent.rules,
        phase=settings.agent.phases.default,
        phase_rules=settings.agent.phases.rules,
        hosts=() if chosen is None else chosen.hosts,
        max_agents_per_host=None if cluster else settings.worker.max_concurrent_agents_per_host,
        cluster=cluster,
        verify_rounds=settings.verify.rounds if settings.verify.is_set else None,
        agents={
            name: AgentInfo(
                kind=agent.kind,
                section=agent.section,
                stall_timeout_ms=agent.settings.stall_timeout_ms,
                model=agent.settings.model,
            )
            for name, agent in agents.items()
        },
    )


def skill_options(section: config.SkillsSettings, phase: str | None = None) -> SkillOptions:
    """The section `agent.skills` for the skills package, and the phase of the work."""
    others = {"source", "native", "comment_on", "for_people"}
    return SkillOptions(
        **section.model_dump(exclude=others), for_people=section.for_people == "show", phase=phase
    )


def comment_severity(settings: config.Settings) -> Severity | None:
    """The lowest severity of a skill problem that is worth a comment; `None` if no problem is."""
    section = settings.agent.skills
    return Severity(section.comment_on) if section.enabled and section.comment_on != "never" else None
