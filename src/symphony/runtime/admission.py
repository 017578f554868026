"""What a daemon of this version refuses to serve although the file is well-formed, judged with the file.

Whatever reads a workflow in order to run it, at the start and at every reload, and `symphony check` pass
through here, so that they never differ.
"""

from collections.abc import Mapping
from functools import partial

from symphony.agents.registry import KINDS as AGENT_KINDS
from symphony.agents.registry import Remarks, remarks
from symphony.domain.failures import Category
from symphony.domain.issue import normalise_state
from symphony.trackers.base import TrackerConfigError
from symphony.trackers.registry import SUPPORTED_KINDS, provider_keys, with_default_states
from symphony.trackers.webhooks import SCHEMES
from symphony.workflow.agent_review import place_of
from symphony.workflow.agents import NamedAgent
from symphony.workflow.confidential import resolve_secret
from symphony.workflow.document import Judgement, Workflow, WorkflowFile, judge_workflow
from symphony.workflow.errors import WarningCode, WorkflowError, did_you_mean, quoted
from symphony.workflow.resolve import reference_name
from symphony.workflow.review import Location, Review, dotted
from symphony.workflow.settings import TrackerSettings, WorkerSettings, WorkspaceSettings

__all__ = ["ACKNOWLEDGEMENT", "admit", "judge"]

ACKNOWLEDGEMENT = "--i-understand-that-this-will-be-running-without-the-usual-guardrails"
"""The option by which a person takes responsibility for sessions without a sandbox (CL5)."""


def admit(file: WorkflowFile, *, environment: Mapping[str, str], acknowledged: bool) -> Workflow:
    """Parse a workflow and refuse what cannot be served here.

    Args:
        file: what was read.
        environment: variables that `$NAME` may refer to.
        acknowledged: whether a person accepted sessions without a sandbox.

    Raises:
        WorkflowError: every problem found, the adapter's included, each with `path:line` and a hint.
    """
    judgement = judge(file, environment=environment, acknowledged=acknowledged)
    if judgement.workflow is None:
        raise WorkflowError(judgement.failures)
    return judgement.workflow


def judge(file: WorkflowFile, *, environment: Mapping[str, str], acknowledged: bool | None) -> Judgement:
    """As `admit`, but told and not raised.

    `acknowledged` null means that nobody is about to start anything: settings without a sandbox are odd then,
    and not wrong.
    """
    return judge_workflow(
        file,
        environment=environment,
        tracker_kinds=SUPPORTED_KINDS,
        agent_kinds=AGENT_KINDS,
        judges=(
            partial(_judge_tracker, environment=environment),
            _judge_worker,
            _judge_isolation,
            partial(_judge_agents, acknowledged=acknowledged),
        ),
    )


def _judge_tracker(review: Review, *, environment: Mapping[str, str]) -> None:
    tracker = review.sections.get("tracker")
    if not isinstance(tracker, TrackerSettings) or tracker.kind not in SUPPORTED_KINDS:
        return
    known = provider_keys(tracker.kind)
    for key in sorted(tracker.provider.keys() - set(known)):
        location = ("tracker", "provider", key)
        review.warn(
            location,
            f"unknown key {quoted(dotted(location))} is ignored",
            code=WarningCode.UNKNOWN_KEY,
            hint=did_you_mean(key, known) or f"{tracker.kind} knows {', '.join(known)}",
        )
    _judge_webhooks(review, tracker, environment)
    try:
        filled = with_default_states(tracker, base_dir=review.source.path.parent, environment=environment)
    except TrackerConfigError as error:
        for problem in error.problems:
            review.add(problem.location, problem.failure)
    else:
        _judge_moves(review, filled)


def _judge_moves(review: Review, tracker: TrackerSettings) -> None:
    """A move must not end what it is for: runs stop where it is not active, claims where it is terminal."""
    active = {normalise_state(state) for state in tracker.active_states or ()}
    terminal = {normalise_state(state) for state in tracker.terminal_states or ()}
    on_start, on_block = (normalise_state(state or "") for state in (tracker.on_start, tracker.on_block))
    if on_start and on_start not in active - terminal:
        problem = f"is {quoted(str(tracker.on_start))}, which is no active state: every run would be stopped"
        review.fail(("tracker", "on_start"), problem, hint="name one of tracker.active_states")
    if on_block and on_block in terminal:
        problem = f"is {quoted(str(tracker.on_block))}, which is terminal: the issue would be over"
        review.fail(("tracker", "on_block"), problem, hint="name a state in which a person looks at it")


def _judge_webhooks(review: Review, tracker: TrackerSettings, environment: Mapping[str, str]) -> None:
    secret = tracker.webhook_secret
    if secret is None:
        return
    location = ("tracker", "webhook_secret")
    if tracker.kind not in SCHEMES:
        review.fail(
            location, f"is set, and {tracker.kind} sends no webhooks", hint="leave it out: it is polled"
        )
    elif resolve_secret(secret, environment=environment) is None:
        name = reference_name(secret)
        hint = f"set {name} where the daemon starts" if name else "write $NAME there and set the variable"
        review.fail(location, "has no secret", category=Category.MISSING_TRACKER_SECRET, hint=hint)


def _judge_worker(review: Review) -> None:
    """Running on this machine what was meant for another one is no way out (SW3)."""
    worker = review.sections.get("worker")
    if isinstance(worker, WorkerSettings) and worker.ssh_hosts:
        review.fail(
            ("worker", "ssh_hosts"),
            "names machines, and this version runs sessions on its own machine only",
            hint="remove the hosts to run everything here",
        )


def _judge_isolation(review: Review) -> None:
    """A network that nothing closes would be taken for a closed one."""
    workspace = review.sections.get("workspace")
    if isinstance(workspace, WorkspaceSettings) and (workspace.isolation, workspace.network) == (
        "none",
        "closed",
    ):
        hint = "add workspace.isolation: bwrap, or leave the key out"
        review.fail(("workspace", "network"), "is closed, and nothing closes it", hint=hint)


def _judge_agents(review: Review, *, acknowledged: bool | None) -> None:
    """Every agent that an issue may be given to, so that none is met first at night."""
    workspace = review.sections.get("workspace")
    isolated = isinstance(workspace, WorkspaceSettings) and workspace.isolation != "none"
    for agent in review.agents.values():
        if agent.kind in AGENT_KINDS and agent.kind in review.sections:
            _judge_agent(review, agent, remarks(agent, isolated=isolated), acknowledged=acknowledged)


def _judge_agent(review: Review, agent: NamedAgent, found: Remarks, *, acknowledged: bool | None) -> None:
    def place(key: str) -> Location:
        return place_of(agent, key, review.places)

    for remark in found.wrong:
        review.fail(place(remark.key), remark.problem, hint=remark.hint)
    if found.doubtful is not None:
        policy = found.doubtful.key == "approval_policy"
        code = WarningCode.REFUSED_APPROVAL_POLICY if policy else WarningCode.DOUBTFUL_SETTING
        _warn(review, place(found.doubtful.key), found.doubtful.problem, code, found.doubtful.hint)
    if found.unguarded is None or acknowledged:
        return
    location, problem = place(found.unguarded.key), found.unguarded.problem
    hint = f"{found.unguarded.hint}, or start with {ACKNOWLEDGEMENT}"
    if acknowledged is None:
        _warn(review, location, problem, WarningCode.UNGUARDED, hint)
    else:
        review.fail(location, problem, category=Category.INVALID_WORKFLOW_CONFIG, hint=hint)


def _warn(review: Review, location: Location, problem: str, code: WarningCode, hint: str) -> None:
    review.warn(location, f"{dotted(location)} {problem}", code=code, hint=hint)
