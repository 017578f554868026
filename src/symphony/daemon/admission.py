"""Refuses well-formed settings that a daemon of this version cannot serve.

The start, every reload and `symphony check` use this check, so they never differ.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from symphony import config
from symphony.agents.base import SettingIssues
from symphony.agents.environment import ALL_CREDENTIALS
from symphony.agents.registry import SECTIONS, agent_kind, check_settings
from symphony.daemon.carriers import carrier_class, carrier_section
from symphony.daemon.notify.targets import TargetError, resolve_target
from symphony.daemon.state_dir import locate
from symphony.domain import Category, SymphonyError, normalise_state
from symphony.trackers.base import TrackerConfigError, creation_problem
from symphony.trackers.registry import (
    TRACKERS,
    create_tracker,
    tracker_kind,
    with_default_states,
)
from symphony.workspaces import HOOK_VARIABLES

ACKNOWLEDGEMENT = "--i-understand-that-this-will-be-running-without-the-usual-guardrails"
"""The option that allows sessions without a sandbox."""

USUAL_TOOLS = frozenset(
    {
        *("issue_move", "issue_comment", "board_show", "board_comment", "board_move", "memory_move"),
        *(
            "asana_api",
            "forgejo_api",
            "github_api",
            "gitlab_api",
            "jira_rest",
            "linear_graphql",
            "redmine_api",
        ),
    }
)
"""Tools of the built-in trackers; a prompt written for another tracker may still name them."""


_READ_VARIABLE = re.compile(r"\$\{?([A-Za-z_][A-Za-z0-9_]*)")


def open_store(
    path: Path, environment: Mapping[str, str], *, acknowledged: bool = False
) -> config.WorkflowStore:
    """The workflow file, validated now and at every reload.

    Args:
        path: the workflow file.
        environment: variables that `$NAME` may refer to.
        acknowledged: the user accepts sessions without a sandbox.

    Raises:
        WorkflowError: the file is unusable; the error has every problem.
    """

    def parse(file: config.WorkflowFile) -> config.Workflow:
        return admit(file, environment=environment, acknowledged=acknowledged)

    return config.WorkflowStore(path, parse)


def admit(
    file: config.WorkflowFile, *, environment: Mapping[str, str], acknowledged: bool
) -> config.Workflow:
    """Parse a workflow and refuse settings that cannot be served here.

    Args:
        file: the content of the file.
        environment: variables that `$NAME` may refer to.
        acknowledged: whether a person accepted sessions without a sandbox.

    Raises:
        WorkflowError: every problem found, the adapter's included, each with `path:line` and a hint.
    """
    judgement = judge(file, environment=environment, acknowledged=acknowledged)
    if judgement.workflow is None:
        raise config.WorkflowError(judgement.failures)
    return judgement.workflow


def judge(
    file: config.WorkflowFile, *, environment: Mapping[str, str], acknowledged: bool | None
) -> config.WorkflowReport:
    """As `admit`, but returns the problems instead of raising.

    `$SYMPHONY_STATE_DIR` stands for the state directory of this very file, whether the variable is set or
    not: so a committed `workspace.root` gives every checkout its own place.

    `acknowledged` is None when nothing will be started. Settings without a sandbox are a warning then, not an
    error.
    """
    environment = {**environment, config.STATE_DIR_VARIABLE: str(locate(file.path, environment))}
    judgement = config.validate_workflow(
        file,
        environment=environment,
        tracker_kinds=TRACKERS.names,
        agent_kinds=SECTIONS,
        provider_keys=provider_keys,
        validators=(
            partial(_judge_tracker, environment=environment),
            partial(_judge_forge, environment=environment),
            partial(_judge_tracing, environment=environment),
            _judge_isolation,
            _judge_carrier,
            partial(_judge_hooks, environment=environment),
            partial(_judge_agents, acknowledged=acknowledged),
            _judge_budget,
            _judge_passed_on,
            partial(_judge_notify, environment=environment),
            _judge_server,
            partial(_judge_schedules, environment=environment),
        ),
    )
    if judgement.workflow is None:
        return judgement
    try:
        unknown = tuple(_unknown_tools(judgement.workflow, judgement.agents, environment))
    except SymphonyError as error:
        failure = replace(error.failure, where=judgement.source_map.where(("tracker", "kind")))
        return replace(judgement, failures=(failure,), workflow=None)
    warnings = (*judgement.warnings, *unknown)
    return replace(judgement, warnings=warnings, workflow=replace(judgement.workflow, warnings=warnings))


def provider_keys(kind: str) -> tuple[str, ...]:
    """The keys of `tracker.provider`; none for a kind whose package cannot be loaded."""
    try:
        return tracker_kind(kind).provider_keys
    except SymphonyError:
        return ()


def _unknown_tools(
    workflow: config.Workflow, agents: Mapping[str, config.NamedAgent], environment: Mapping[str, str]
) -> Iterator[config.WorkflowWarning]:
    """Tools of trackers that the prompt names but sessions do not have.

    Raises:
        SymphonyError: the tracker cannot be made.
    """
    tracker = workflow.settings.tracker
    made = create_tracker(tracker, base_dir=workflow.path.parent, environment=environment)
    if any(agent_kind(agent.kind).capabilities.client_tools for agent in agents.values()):
        offered = [spec.name for spec in made.agent_tool_specs()]
        why = f"which the tracker {tracker.kind} does not offer here"
        hint = f"sessions are offered {', '.join(offered)}"
    else:
        offered, why = [], "and no agent here takes tools"
        hint = "say in the prompt what happens instead: tracker.on_block, a hook or a person moves the issue"
    for name in sorted({*USUAL_TOOLS, *tracker_kind(tracker.kind).tools} - set(offered)):
        found = re.search(rf"(?<![\w-]){name}(?![\w-])", workflow.template.source)
        if found is not None:
            yield config.WorkflowWarning(
                code=config.WarningCode.UNKNOWN_TOOL,
                message=f"the prompt names the tool `{name}`, {why}",
                where=workflow.template.where(found.start()),
                hint=hint,
            )


def _judge_tracker(review: config.ProblemCollector, *, environment: Mapping[str, str]) -> None:
    tracker = review.sections.get("tracker")
    if not isinstance(tracker, config.TrackerSettings) or tracker.kind not in TRACKERS.names:
        return
    try:
        kind = tracker_kind(tracker.kind)
    except SymphonyError as error:
        review.add(("tracker", "kind"), error.failure)
        return
    known = kind.provider_keys
    for key in sorted(tracker.provider.keys() - set(known)):
        hint = f"{tracker.kind} knows {', '.join(known)}"
        review.warn_unknown(("tracker", "provider", key), known, hint=hint)
    if tracker.webhook_secret is not None and kind.webhooks is None:
        unfit = f"is set, and {tracker.kind} sends no webhooks"
        review.fail(("tracker", "webhook_secret"), unfit, hint="leave it out: it is polled")
    else:
        _judge_webhooks(review, "tracker", tracker.webhook_secret, environment)
    try:
        filled = with_default_states(tracker, base_dir=review.source.path.parent, environment=environment)
    except TrackerConfigError as error:
        for problem in error.problems:
            review.add(problem.location, problem.failure)
    except SymphonyError as error:
        review.add(("tracker", "kind"), error.failure)
    else:
        _judge_moves(review, filled)


def _judge_schedules(review: config.ProblemCollector, *, environment: Mapping[str, str]) -> None:
    """Check that the tracker can create the issues of schedules, and that their texts can be rendered."""
    tracker = review.sections.get("tracker")
    if (
        review.settings is None
        or not review.settings.schedules
        or not isinstance(tracker, config.TrackerSettings)
    ):
        return
    with suppress(SymphonyError):  # the tracker's check reports it
        made = create_tracker(tracker, base_dir=review.source.path.parent, environment=environment)
        if (failure := creation_problem(made, tracker.kind)) is not None:
            review.add(("schedules",), failure)
    for index, schedule in enumerate(review.settings.schedules):
        if problem := config.scheduled_issue_problem(schedule, review.source.path.parent):
            key = "title" if problem.startswith("title") else "body" if schedule.file is None else "file"
            hint = "they know `now` and `previous`, which is nil for the first issue: {% if previous %}"
            review.fail(("schedules", index, key), f"cannot be used: {problem}", hint=hint)


def _judge_moves(review: config.ProblemCollector, tracker: config.TrackerSettings) -> None:
    """Check the target states of moves: inactive states would stop runs, terminal ones would end claims."""
    active = {normalise_state(state) for state in tracker.active_states or ()}
    terminal = {normalise_state(state) for state in tracker.terminal_states or ()}
    on_start, on_block = (normalise_state(state or "") for state in (tracker.on_start, tracker.on_block))
    if on_start and on_start not in active - terminal:
        problem = (
            f"is {config.quoted(str(tracker.on_start))}, which is no active state: every run would be stopped"
        )
        review.fail(("tracker", "on_start"), problem, hint="name one of tracker.active_states")
    if on_block and on_block in terminal:
        problem = f"is {config.quoted(str(tracker.on_block))}, which is terminal: the issue would be over"
        review.fail(("tracker", "on_block"), problem, hint="name a state in which a person looks at it")
    forge = review.sections.get("forge")
    if not isinstance(forge, config.ForgeSettings) or forge.kind is None:
        return
    if normalise_state(forge.on_feedback or "") in terminal:
        problem = f"is {config.quoted(str(forge.on_feedback))}, which is terminal: the agent would be stopped"
        review.fail(("forge", "on_feedback"), problem, hint="name an active state, or leave it out")
    if normalise_state(forge.merged_state or "") in active - terminal:
        problem = f"is {config.quoted(str(forge.merged_state))}, which is active: the agent would begin again"
        review.fail(("forge", "merged_state"), problem, hint="name one of tracker.terminal_states")


def _judge_webhooks(
    review: config.ProblemCollector, section: str, secret: str | None, environment: Mapping[str, str]
) -> None:
    if secret is None:
        return
    location = (section, "webhook_secret")
    if (found := config.resolve_secret(secret, environment=environment)) is None:
        name = config.reference_name(secret)
        hint = f"set {name} where the daemon starts" if name else "write $NAME there and set the variable"
        review.fail(location, "has no secret", category=Category.MISSING_TRACKER_SECRET, hint=hint)
        return
    try:
        config.signing_key(found.reveal())
    except ValueError as error:
        hint = "make a longer one, for example by openssl rand -hex 32, and give it to the service too"
        _warn(review, location, str(error), config.WarningCode.DOUBTFUL_SETTING, hint)


def _judge_forge(review: config.ProblemCollector, *, environment: Mapping[str, str]) -> None:
    forge = review.sections.get("forge")
    if not isinstance(forge, config.ForgeSettings) or forge.kind is None:
        return
    _judge_webhooks(review, "forge", forge.webhook_secret, environment)
    workspace = review.sections.get("workspace")
    told = forge.feedback.ci or forge.feedback.review or forge.feedback.conflict
    is_pushed = not isinstance(workspace, config.WorkspaceSettings) or workspace.push != "never"
    if forge.open == "never" and told and not is_pushed:
        problem = "is never: agents' work on feedback is not pushed, unless they push it themselves"
        hint = "set workspace.push: origin, or switch forge.feedback off"
        _warn(review, ("forge", "open"), problem, config.WarningCode.DOUBTFUL_SETTING, hint)


def _judge_tracing(review: config.ProblemCollector, *, environment: Mapping[str, str]) -> None:
    tracing = review.sections.get("tracing")
    if not isinstance(tracing, config.TracingSettings) or tracing.endpoint is None:
        return
    if find_spec("opentelemetry") is None:
        problem = "is set, and OpenTelemetry is not installed"
        hint = "install Symphony with its extra `otel`: pip install '/path/to/symphony[otel]'"
        review.fail(("tracing", "endpoint"), problem, hint=hint)
    for name, value in tracing.headers.items():
        if config.resolve_secret(value, environment=environment) is None:
            hint = f"set {config.reference_name(value)} where the daemon starts, or leave the header out"
            review.fail(("tracing", "headers", name), "has no value", hint=hint)


def _judge_isolation(review: config.ProblemCollector) -> None:
    """Refuse a closed network that nothing enforces."""
    workspace = review.sections.get("workspace")
    if isinstance(workspace, config.WorkspaceSettings) and (workspace.isolation, workspace.network) == (
        "none",
        "closed",
    ):
        hint = "add workspace.isolation: bwrap, or leave the key out"
        review.fail(("workspace", "network"), "is closed, and nothing closes it", hint=hint)


def _judge_carrier(review: config.ProblemCollector) -> None:
    """Check the section of a carrier from another package, which needs a key for each of its machines."""
    worker = review.sections.get("worker")
    if not isinstance(worker, config.WorkerSettings) or worker.carrier is None:
        return
    kind, at = worker.carrier, ("worker", worker.carrier)
    try:
        carrier = carrier_class(kind)
    except SymphonyError as error:
        review.add(("worker", "carrier"), error.failure)
        return
    known, given = carrier.settings_type.model_fields, (worker.model_extra or {}).get(kind)
    for key in sorted(given.keys() - known.keys()) if isinstance(given, dict) else ():
        review.warn_unknown((*at, key), known)
    try:
        settings = carrier_section(worker, kind, carrier)
    except ValidationError as error:
        review.fail_each(error, at)
        return
    if not carrier.is_cluster and not carrier.names_in(worker, settings):
        review.fail(at, "names no machine", hint="name one, or leave worker.carrier out")


USED_VARIABLE: Final = re.compile(r"(?<![\\$])\$(?:\{#?([A-Z][A-Z0-9_]*)|([A-Z][A-Z0-9_]*))")
"""A variable of the environment in a shell script."""


def _judge_hooks(review: config.ProblemCollector, *, environment: Mapping[str, str]) -> None:
    """Report variables of another program in scripts: they are unset here, which changes the script."""
    hooks = review.sections.get("hooks")
    if not isinstance(hooks, config.HooksSettings):
        return
    for key in ("after_create", "before_run", "after_run", "before_remove"):
        script = getattr(hooks, key) or ""
        used = {found[1] or found[2] for found in USED_VARIABLE.finditer(script)}
        for name in sorted(used - set(HOOK_VARIABLES) - environment.keys()):
            if re.search(rf"(?:^|[\s;&|(]){name}=|\bread\b.*\b{name}\b|\bfor\s+{name}\b", script):
                continue  # the script sets it
            ours = hook_variable(name)
            if ours is not None or name.startswith(config.HOOK_PREFIXES):
                hint = f"write ${ours}" if ours is not None else f"hooks get {', '.join(HOOK_VARIABLES)}"
                problem = f"uses ${name}, which no hook gets here"
                _warn(review, ("hooks", key), problem, config.WarningCode.FOREIGN_VARIABLE, hint)


def hook_variable(name: str) -> str | None:
    """This program's variable for a variable of another program, with any prefix."""
    words = name.split("_")
    ends = ("_".join(words[start:]) for start in range(len(words)))
    return next(
        (config.OTHER_HOOK_VARIABLES[end] for end in ends if end in config.OTHER_HOOK_VARIABLES), None
    )


def _judge_agents(review: config.ProblemCollector, *, acknowledged: bool | None) -> None:
    """Check every agent that an issue may get, not only the first one."""
    workspace = review.sections.get("workspace")
    isolated = isinstance(workspace, config.WorkspaceSettings) and workspace.isolation != "none"
    for agent in review.agents.values():
        if agent.kind not in SECTIONS or agent.kind not in review.sections:
            continue
        try:
            found = check_settings(agent, isolated=isolated)
        except SymphonyError as error:
            named: config.Location = ("agents", agent.name, "kind")
            review.add(("agent", "kind") if agent.name == agent.kind else named, error.failure)
        else:
            _judge_agent(review, agent, found, acknowledged=acknowledged)
            _judge_reviewer(review, agent)


def _judge_reviewer(review: config.ProblemCollector, agent: config.NamedAgent) -> None:
    """Check that the reviewer can call a tool, because it gives its verdict through one."""
    verify = review.sections.get("verify")
    named = isinstance(verify, config.VerifySettings) and verify.reviewer == agent.name
    if named and not agent_kind(agent.kind).capabilities.client_tools:
        problem = f"names {agent.name}, and agents of kind {agent.kind} cannot call a tool"
        hint = "name an agent of kind codex, claude or acp: the verdict is given by a tool"
        review.fail(("verify", "reviewer"), problem, hint=hint)


def _judge_agent(
    review: config.ProblemCollector,
    agent: config.NamedAgent,
    found: SettingIssues,
    *,
    acknowledged: bool | None,
) -> None:
    def place(key: str) -> config.Location:
        return config.agent_key_location(agent, key, review.source_map)

    for remark in found.errors:
        review.fail(place(remark.key), remark.problem, hint=remark.hint)
    for issue in found.warnings:
        policy = issue.key == "approval_policy"
        code = config.WarningCode.REFUSED_APPROVAL_POLICY if policy else config.WarningCode.DOUBTFUL_SETTING
        _warn(review, place(issue.key), issue.problem, code, issue.hint)
    if found.no_sandbox is None or acknowledged:
        return
    location, problem = place(found.no_sandbox.key), found.no_sandbox.problem
    hint = f"{found.no_sandbox.hint}, or start with {ACKNOWLEDGEMENT}"
    if acknowledged is None:
        _warn(review, location, problem, config.WarningCode.UNGUARDED, hint)
    else:
        review.fail(location, problem, category=Category.INVALID_WORKFLOW_CONFIG, hint=hint)


def _judge_budget(review: config.ProblemCollector) -> None:
    """Check that an agent that costs money has an effective limit; a one-shot command reports no tokens."""
    if review.settings is None or review.failures:
        return
    budget = review.settings.agent.budget
    for each in review.agents.values():
        if isinstance(each.settings, config.CommandSettings):
            costs = each.settings.profile != "generic"
            limited = budget.max_turns_per_issue is not None
            unit, hint = "turns", "set agent.budget.max_turns_per_issue, for example to 10"
        else:
            costs = True
            limited = budget.max_tokens_per_issue is not None or budget.max_tokens_per_day is not None
            unit, hint = "tokens", "set agent.budget.max_tokens_per_issue, for example to 5000000"
        if costs and not limited:
            message = f"agent.budget sets no limit of {unit}, and sessions of {each.name} cost money"
            review.warn(("agent", "budget"), message, code=config.WarningCode.NO_BUDGET, hint=hint)


def _judge_passed_on(review: config.ProblemCollector) -> None:
    """Warn about credentials that an agent or a hook asks for but does not get."""
    own = review.source.secret_names
    asked: list[tuple[config.Location, config.AgentSection | config.HooksSettings]] = [
        (config.agent_key_location(each, "env", review.source_map), each.settings)
        for each in review.agents.values()
    ]
    hooks = review.sections.get("hooks")
    if isinstance(hooks, config.HooksSettings):
        asked.append((("hooks", "env"), hooks))
        _judge_hook_variables(review, hooks)
    for location, section in asked:
        for name in sorted(own.intersection(section.env)):
            problem = f"names {name}, which this file refers to as the daemon's own: it is not passed on"
            hint = "give it a separate credential, under another name"
            _warn(review, location, problem, config.WarningCode.DOUBTFUL_SETTING, hint)


def _judge_hook_variables(review: config.ProblemCollector, hooks: config.HooksSettings) -> None:
    withheld = ALL_CREDENTIALS - frozenset(hooks.env)
    for hook, script in hooks.model_dump(exclude_none=True, exclude={"env", "timeout_ms"}).items():
        for name in sorted(withheld.intersection(_READ_VARIABLE.findall(script))):
            if not re.search(rf"\b{name}=", script):
                problem = f"reads {name}, which hooks do not get"
                hint = f"pass it on: hooks.env: [{name}]"
                _warn(review, ("hooks", hook), problem, config.WarningCode.DOUBTFUL_SETTING, hint)


def _judge_notify(review: config.ProblemCollector, *, environment: Mapping[str, str]) -> None:
    """Warn about unusable targets of `notify`. They are off and hold no work back."""
    if review.settings is None:
        return
    given = review.source.value.get("notify")
    for target in review.settings.notify:
        try:
            resolve_target(target, environment)
        except TargetError as error:
            places = [
                index
                for index, one in enumerate(given if isinstance(given, list) else ())
                if isinstance(one, dict) and one.get("name") == target.name
            ]
            location: config.Location = ("notify", *places[:1], error.key)
            problem = f"{error.problem}; the target is off"
            _warn(review, location, problem, config.WarningCode.IGNORED_NOTIFICATION, error.hint)


def _judge_server(review: config.ProblemCollector) -> None:
    if review.settings is None or not review.settings.server.public_reads:
        return
    problem = (
        "lets every program on this machine, also agents, read the work of agents over the loopback interface"
    )
    hint = "leave it out: `symphony open` signs a browser in, and programs send the operator token"
    _warn(review, ("server", "public_reads"), problem, config.WarningCode.DOUBTFUL_SETTING, hint)


def _warn(
    review: config.ProblemCollector,
    location: config.Location,
    problem: str,
    code: config.WarningCode,
    hint: str,
) -> None:
    review.warn(location, f"{config.dotted(location)} {problem}", code=code, hint=hint)
