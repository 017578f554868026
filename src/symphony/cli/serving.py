"""Composes and runs the daemon for the commands that need one (`run`, `demo`)."""

import io
import os
import resource
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, redirect_stderr, suppress
from pathlib import Path
from threading import Thread
from typing import Final

import anyio
import structlog
from typing_extensions import override

from symphony.cli.failures import CommandError, ExitCode
from symphony.cli.repository import uncommitted_skills_for
from symphony.cli.summary import RunSummary
from symphony.config import EXPOSED_HINT, ObservabilitySettings, read_secrets
from symphony.daemon.admission import open_store
from symphony.daemon.clock import monotonic_ms
from symphony.daemon.context import redaction_for
from symphony.daemon.core import StepObserver
from symphony.daemon.sd_notify import Notifier, without_service_manager
from symphony.daemon.service import Service
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
    observers: tuple[StepObserver, ...] = (),
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
            hint = "sessions see only commits on that branch: git add and commit the skills there"
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


# --- the live view of `symphony run` ---------------------------------------------------------------------
# `symphony status --watch` in front of the output of the daemon. It is a separate process, so that a slow
# terminal, or one stopped with Ctrl-S, never delays the daemon.

_VARIABLES: Final = frozenset(
    {
        *("HOME", "PATH", "PYTHONPATH", "TERM", "COLORTERM", "NO_COLOR", "LANG", "LC_ALL", "LC_CTYPE", "TZ"),
        *("SYMPHONY_STATE_DIR", "STATE_DIRECTORY", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"),
    }
)
"""What the view inherits: where the daemon is and how the terminal draws, no secrets."""
_FOLLOWS: Final = "The view has ended; the log of the daemon follows. Ctrl-C ends the daemon."


class Dashboard(io.TextIOWrapper):
    """Replaces `sys.stderr` of a daemon with a live view: output during the view is dropped.

    As an observer of the scheduler it starts the view with the first step, when the daemon answers.
    """

    def __init__(self, workflow: Path, settings: ObservabilitySettings) -> None:
        super().__init__(sys.stderr.buffer, sys.stderr.encoding, sys.stderr.errors, line_buffering=True)
        self._command = [
            *(sys.executable, "-P", "-m", "symphony", "status", "--watch", "--workflow", str(workflow)),
            *("--interval", str(max(0.1, settings.refresh_ms / 1_000))),
            *("--render-interval", str(settings.render_interval_ms / 1_000), "--parent", str(os.getpid())),
        ]
        self._view: subprocess.Popen[bytes] | None = None

    def __call__(self, before: State, fact: Event, after: State, commands: tuple[Command, ...]) -> None:
        """Start the view, once."""
        del before, fact, after, commands
        if self._view is None:
            environment = {name: value for name, value in os.environ.items() if name in _VARIABLES}
            self._view = subprocess.Popen(self._command, env=environment)
            Thread(target=self._announce_end, args=(self._view,), daemon=True).start()

    @override
    def write(self, text: str, /) -> int:
        """Write, unless the view is shown."""
        if self._view is not None and self._view.poll() is None:
            return len(text)
        return super().write(text)

    @override
    def close(self) -> None:
        """End the view; the stream below stays open."""
        view, self._view = self._view, None
        if view is not None:
            view.terminate()
            view.wait()
        with suppress(ValueError):  # it is detached already
            self.detach()

    def _announce_end(self, view: subprocess.Popen[bytes]) -> None:
        """Say that only the view has ended, as after `q`."""
        if view.wait() == 0 and self._view is not None:
            super().write(f"{_FOLLOWS}\n")
