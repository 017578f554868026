"""Composes and runs the daemon for the commands that need one (`run`, `demo`)."""

import os
import resource
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import anyio
import structlog

from symphony.cli.failures import CommandError, ExitCode
from symphony.cli.repository import unseen_skills
from symphony.cli.summary import RunSummary
from symphony.config import (
    EXPOSED_HINT,
    Secrets,
    Settings,
    Workflow,
    WorkflowFile,
    WorkflowStore,
    read_secrets,
)
from symphony.daemon.admission import admit
from symphony.daemon.context import redaction_for
from symphony.daemon.sd_notify import Notifier, without_service_manager
from symphony.daemon.service import Observer, Service
from symphony.daemon.shutdown import serve_until_signalled
from symphony.daemon.state_dir import StateDirectory, instance_of, locate, register_state_dir
from symphony.domain import Redaction
from symphony.observability.logs import LogFile, configure
from symphony.processes import subreaper
from symphony.processes.local import LocalHost
from symphony.replay import DecisionRecorder
from symphony.scheduler import Command, Event, SettingsChanged, State, StepFunction, step


@contextmanager
def recording_to(path: Path, redaction: Callable[[], Redaction]) -> Iterator[DecisionRecorder]:
    """A recorder into a new file that only its owner can read.

    Raises:
        CommandError: the file is there already, or cannot be made.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
    except FileExistsError as error:
        raise CommandError.of(
            f"{path} is there already, and a recording replaces no file",
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


_log = structlog.get_logger(__name__)
_COMMIT_HINT = "sessions see what is committed on that branch: git add the skills and commit them there"


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
    last: bool = False,
) -> RunSummary:
    """Serve a workflow until it ends; with `once`, tell what happened to each issue.

    Lines go to stderr, or to `log_path` in its place: to a terminal one for each event that people care
    about, or with `verbose` every line of the log; with `logs_root` also to a file that rotates (LG4),
    with `record` what is decided to that new file (see `recorder`).
    With `last` the process has nothing to do behind it, and signals cannot interrupt its way out.
    `acknowledged` is a person's consent to sessions without a sandbox (CL5). Without `once` no tally is kept.

    Raises:
        SymphonyError: start-up failed.
    """
    notifier, secrets = Notifier.of(environment), read_secrets(without_service_manager(environment))
    environment = secrets.environment
    store, tally = open_store(workflow_path, environment, acknowledged=acknowledged), RunSummary()
    deciding = _deciding(record, store, environment)
    with _sink(log_path) as stream, _file(logs_root) as file, deciding as decide:
        log = _Log(
            store=store,
            environment=environment,
            stream=stream,
            file=file,
            form=log_format,
            level=log_level,
            verbose=verbose,
        )
        log.open()
        _tell_what_is_odd(store.current().settings, secrets)
        place = _remembered(state_path or locate(workflow_path, environment), environment)
        service = Service(
            store=store,
            state_dir=StateDirectory(place),
            host=LocalHost(instance=instance_of(place), adopt_orphans=last and _alone()),
            environment=environment,
            once=once,
            observers=(log, tally, *observers) if once else (log, *observers),
            port=port,
            step=decide,
            notifier=notifier,
        )
        anyio.run(serve_until_signalled, service, last)
    return tally


def _alone() -> bool:
    """Make this process a daemon's: it adopts orphans, and what it holds is closed to others of its user.

    Whether it does adopt. The limit on core files is the soft one: who needs them below us may raise it.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    try:
        subreaper.deny_inspection()
        subreaper.become_subreaper()
    except OSError as error:
        _log.warning("process_not_closed", reason=error.strerror or str(error))
        return False
    return True


def _tell_what_is_odd(settings: Settings, secrets: Secrets) -> None:
    for path in secrets.exposed:
        _log.warning("secret_file_exposed", path=str(path), hint=EXPOSED_HINT)
    if advice := unseen_skills(settings):
        _log.warning("skills_not_committed", names=advice.names, branch=advice.branch, hint=_COMMIT_HINT)


def _sink(path: Path | None) -> AbstractContextManager[TextIO | None]:
    return nullcontext() if path is None else path.open("a", encoding="utf-8")


def _file(root: Path | None) -> AbstractContextManager[LogFile | None]:
    return nullcontext() if root is None else closing(LogFile(root))


def _remembered(place: Path, environment: Mapping[str, str]) -> Path:
    """The state directory, of which `symphony status --all` will know."""
    register_state_dir(place, environment)
    return place


@contextmanager
def _deciding(
    path: Path | None, store: WorkflowStore, environment: Mapping[str, str]
) -> Iterator[StepFunction]:
    """The scheduler's step, with a recorder around it where there is a file for one."""
    if path is None:
        yield step
        return

    with recording_to(path, lambda: redaction_for(store.current(), environment)) as recorder:
        yield recorder.step


@dataclass(frozen=True, slots=True, kw_only=True)
class _Log:
    """The log of a daemon, which also masks what a changed workflow begins to refer to (LG5)."""

    store: WorkflowStore
    environment: Mapping[str, str]
    stream: TextIO | None
    file: LogFile | None
    form: str
    level: str
    verbose: bool

    def open(self) -> None:
        configure(
            stream=self.stream,
            file=self.file,
            as_json=None if self.form == "auto" else self.form == "json",
            for_people=not self.verbose,
            level=self.level,
            redaction=redaction_for(self.store.current(), self.environment),
        )

    def __call__(self, before: State, fact: Event, after: State, commands: tuple[Command, ...]) -> None:
        del before, after, commands
        if isinstance(fact, SettingsChanged):
            self.open()


def open_store(path: Path, environment: Mapping[str, str], *, acknowledged: bool = False) -> WorkflowStore:
    """The workflow file, judged as a whole at the start and at every reload.

    Args:
        path: the workflow file.
        environment: variables that `$NAME` may refer to.
        acknowledged: a person accepted that sessions may run without a sandbox (CL5).

    Raises:
        WorkflowError: the file is not usable, with everything that is wrong.
    """

    def parse(file: WorkflowFile) -> Workflow:
        return admit(file, environment=environment, acknowledged=acknowledged)

    return WorkflowStore(path, parse)
