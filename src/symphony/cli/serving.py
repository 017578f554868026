"""Composes and runs the daemon for the commands that need one (`run`, `demo`)."""

import os
import resource
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, redirect_stderr
from pathlib import Path

import anyio
import structlog

from symphony.cli.dashboard import Dashboard
from symphony.cli.failures import CommandError, ExitCode
from symphony.cli.repository import uncommitted_skills_for
from symphony.cli.summary import RunSummary
from symphony.config import (
    EXPOSED_HINT,
    read_secrets,
)
from symphony.daemon.admission import open_store
from symphony.daemon.clock import monotonic_ms
from symphony.daemon.context import redaction_for
from symphony.daemon.sd_notify import Notifier, without_service_manager
from symphony.daemon.service import Observer, Service
from symphony.daemon.shutdown import serve_until_signalled
from symphony.daemon.state_dir import StateDirectory, instance_of, locate, register_state_dir
from symphony.domain import Redaction
from symphony.observability.logs import RotatedLogFile, configure
from symphony.processes import supervisor_program
from symphony.processes.base import Host
from symphony.processes.local import LocalHost
from symphony.replay import DecisionRecorder
from symphony.scheduler import Command, Event, SettingsChanged, State, StepFunction, step

_log = structlog.get_logger(__name__)


def serve(
    workflow_path: Path,
    *,
    environment: Mapping[str, str],
    once: bool,
    log_format: str = "auto",
    log_level: str = "info",
    verbose: bool = False,
    log_path: Path | None = None,
    logs_root: Path | None = None,
    state_path: Path | None = None,
    acknowledged: bool = False,
    observers: tuple[Observer, ...] = (),
    port: int | None = None,
    record: Path | None = None,
    dashboard: bool = False,
    last: bool = False,
    beside: Callable[[], Awaitable[None]] | None = None,
    host: Host | None = None,
    now_ms: Callable[[], int] = monotonic_ms,
) -> RunSummary:
    """Serve a workflow until it ends.

    Args:
        workflow_path: the workflow file.
        environment: variables of the daemon.
        once: end as soon as nothing is running, retrying or eligible.
        log_format: `auto`, `console` or `json`.
        log_level: the lowest level that is logged.
        verbose: log every event to a terminal, not only those for people.
        log_path: replaces stderr as the destination of the log.
        logs_root: the log is also written to a rotated file below this directory.
        state_path: replaces the default state directory.
        acknowledged: the user accepts sessions without a sandbox.
        observers: called after each step of the scheduler.
        port: replaces `server.port`.
        dashboard: show the live view in the terminal of the process if the settings enable it; the log then
            goes to a file.
        record: a new file for a recording of all decisions.
        last: the process does nothing after this call; it may change settings of the whole process, and
            signals do not interrupt the shutdown.
        beside: runs beside the daemon, whose graceful shutdown begins when it returns.
        host: replaces this machine as the place of agents and commands.
        now_ms: the monotonic clock.

    Returns:
        What happened to each issue; empty for a daemon that only signals end.

    Raises:
        SymphonyError: start-up failed.
    """
    notifier = Notifier.from_environment(environment)
    secrets = read_secrets(without_service_manager(environment))
    environment = secrets.environment
    store, tally = open_store(workflow_path, environment, acknowledged=acknowledged), RunSummary()
    with ExitStack() as stack:
        state_dir = state_path or locate(workflow_path, environment)
        observability = store.current().settings.observability
        if dashboard and observability.dashboard_enabled:
            StateDirectory(state_dir).create()
            logs_root = logs_root or state_dir
            view = stack.enter_context(closing(Dashboard(workflow_path, observability)))
            stack.enter_context(redirect_stderr(view))
            observers = (*observers, view)
        stream = None if log_path is None else stack.enter_context(log_path.open("a", encoding="utf-8"))
        file = None if logs_root is None else stack.enter_context(closing(RotatedLogFile(logs_root)))
        decide: StepFunction = step
        if record is not None:
            recorder = recording_to(record, lambda: redaction_for(store.current(), environment))
            decide = stack.enter_context(recorder).step

        def configure_log() -> None:
            configure(
                stream=stream,
                file=file,
                as_json=None if log_format == "auto" else log_format == "json",
                for_people=not verbose,
                level=log_level,
                redaction=redaction_for(store.current(), environment),
            )

        def mask_new_secrets(before: State, fact: Event, after: State, commands: tuple[Command, ...]) -> None:
            del before, after, commands
            if isinstance(fact, SettingsChanged):
                configure_log()

        configure_log()
        for path in secrets.exposed:
            _log.warning("secret_file_exposed", path=str(path), hint=EXPOSED_HINT)
        if unseen := uncommitted_skills_for(store.current().settings):
            hint = "sessions see what is committed on that branch: git add the skills and commit them there"
            _log.warning("skills_not_committed", names=unseen.names, branch=unseen.branch, hint=hint)
        register_state_dir(state_dir, environment)  # for `symphony status --all`
        service = Service(
            store=store,
            state_dir=StateDirectory(state_dir),
            host=host or LocalHost(instance=instance_of(state_dir), adopt_orphans=last and prepare_process()),
            environment=environment,
            once=once,
            observers=(mask_new_secrets, *([tally] if once or beside else []), *observers),
            port=port,
            now_ms=now_ms,
            step=decide,
            notifier=notifier,
        )
        anyio.run(serve_until_signalled, service, last, beside)
    return tally


def prepare_process() -> bool:
    """Prepare this process for being a daemon; return whether it adopts orphaned descendants.

    Other processes of the same user cannot read its memory and environment any more. Core files are off; the
    limit is the soft one, which a descendant may raise.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    try:
        supervisor_program.deny_inspection()
        supervisor_program.become_subreaper()
    except OSError as error:
        _log.warning("process_not_closed", reason=error.strerror or str(error))
        return False
    return True


@contextmanager
def recording_to(path: Path, redaction: Callable[[], Redaction]) -> Iterator[DecisionRecorder]:
    """A recorder that writes to a new file, which only its owner can read.

    Raises:
        CommandError: the file exists, or cannot be created.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
    except FileExistsError as error:
        raise CommandError.of(
            f"{path} exists, and a recording does not replace a file",
            hint="give --record another name, or remove the file",
            code=ExitCode.USAGE,
        ) from error
    except OSError as error:
        raise CommandError.of(
            f"{path} cannot be written: {error.strerror}", hint="give --record another place"
        ) from error
    recorder = DecisionRecorder(path, descriptor, redaction=redaction)
    try:
        yield recorder
    finally:
        recorder.close()
