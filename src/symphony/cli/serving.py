"""Composes and runs the daemon for the commands that need one (`run`, `demo`)."""

from collections.abc import Mapping
from pathlib import Path

import anyio
import structlog

from symphony.agents.registry import KINDS as AGENT_KINDS
from symphony.cli.uncommitted import unseen_skills
from symphony.hosts.local import LocalHost
from symphony.observability.logs import configure
from symphony.observability.tally import Tally
from symphony.runtime.bound import redaction_for
from symphony.runtime.service import Observer, Service
from symphony.runtime.shutdown import serve_until_signalled
from symphony.runtime.state_dir import StateDirectory, locate
from symphony.trackers.registry import SUPPORTED_KINDS, with_default_states
from symphony.workflow.document import Workflow, WorkflowFile, parse_workflow
from symphony.workflow.store import WorkflowStore

__all__ = ["open_store", "serve"]

_log = structlog.get_logger(__name__)
_COMMIT_HINT = "sessions see what is committed on that branch: git add the skills and commit them there"


def serve(
    workflow_path: Path,
    *,
    environment: Mapping[str, str],
    once: bool,
    log_format: str = "auto",
    log_level: str = "info",
    log_path: Path | None = None,
    state_path: Path | None = None,
    observers: tuple[Observer, ...] = (),
) -> Tally:
    """Serve a workflow until it ends; with `once`, tell what happened to each issue.

    A daemon without an end keeps no tally: it would grow with every issue it ever saw.

    Raises:
        SymphonyError: start-up failed.
    """
    store = open_store(workflow_path, environment)
    stream = None if log_path is None else log_path.open("a", encoding="utf-8")
    try:
        configure(
            stream=stream,
            as_json=None if log_format == "auto" else log_format == "json",
            level=log_level,
            redaction=redaction_for(store.current(), environment),
        )
        if advice := unseen_skills(store.current().settings):
            _log.warning("skills_not_committed", names=advice.names, branch=advice.branch, hint=_COMMIT_HINT)
        tally = Tally()
        service = Service(
            store=store,
            state_dir=StateDirectory(state_path or locate(workflow_path, environment)),
            host=LocalHost(),
            environment=environment,
            once=once,
            observers=(tally, *observers) if once else observers,
        )
        anyio.run(serve_until_signalled, service)
    finally:
        if stream is not None:
            stream.close()
    return tally


def open_store(path: Path, environment: Mapping[str, str]) -> WorkflowStore:
    """The workflow file, judged as a whole: what the tracker refuses is refused here too.

    Raises:
        SymphonyError: the file is not usable.
    """

    def parse(file: WorkflowFile) -> Workflow:
        workflow = parse_workflow(
            file, environment=environment, tracker_kinds=SUPPORTED_KINDS, agent_kinds=AGENT_KINDS
        )
        with_default_states(workflow.settings.tracker, base_dir=workflow.path.parent)
        return workflow

    return WorkflowStore(path, parse)
