"""Carriers run sessions on other machines, for example over ssh.

A carrier is found by the name of its entry point in the group `symphony.carriers` (docs/adapters.md). It runs
a shell command on a machine, with pipes. Everything else is common to all carriers (`daemon.hosts`): the
paths on a machine, the repository, the worker, its lease, and the fence before a new attempt.
"""

import re
import shlex
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final, Generic, NamedTuple, TypeVar

import msgspec
from msgspec import Struct
from pydantic import ValidationError

from symphony.adapters import AdapterRegistry
from symphony.config import CarrierSettings, WorkerSettings, did_you_mean_one_of
from symphony.domain import Blame, Category, Failure, SymphonyError, one_line
from symphony.processes.base import Completed, Host

COMMAND_TIMEOUT_MS: Final = 60_000
MAX_SAID_CHARS: Final = 300
"""How many characters of the output of a program or another machine are shown."""
FAILED: Final = 255
"""The exit code of a client that did not run its command or does not know how it ended; the same as ssh's."""
_INHERITED: Final = "PATH|HOME|USER|LOGNAME|LANG|LC_ALL|TMPDIR"


def host_failure(host: str, message: str, *, hint: str | None = None) -> Failure:
    """The failure for a host that cannot be used now."""
    return Failure(
        category=Category.HOST_UNAVAILABLE, blame=Blame.HOST, message=f"{host}: {message}", hint=hint
    )


def stderr_line(done: Completed) -> str:
    """What a command wrote to stderr, on one line."""
    return one_line(done.stderr.decode("utf-8", "replace"), MAX_SAID_CHARS)


@dataclass(kw_only=True, eq=False)
class RemoteHost:
    """A machine and how to reach it: `*client address command` runs a shell command there.

    The client is a program of this machine. It passes stdin, stdout and stderr on. It ends with the exit code
    of the command, or with `FAILED`. Git runs it too, with options before the address, so only the last two
    words count.

    Attributes:
        name: its name for people.
        client: the words before the address.
        address: the client's name for the machine.
        remote_root: the directory of this daemon there, absolute or relative to the home.
        remote_python: the Python with this release; relative to the home if it contains a slash, else found
            in the path.
        install_hint: how to install this release there.
        local: the host of the client: this machine.
        env: all variables of the client.
        node_id: identifies the machine until it restarts, if the carrier has such ids.
    """

    name: str
    client: tuple[str, ...]
    address: str
    remote_root: str
    remote_python: str
    install_hint: str
    local: Host
    env: Mapping[str, str]
    node_id: str | None = None

    async def connect(self) -> None:
        """Make sure that there is a connection; raises as `run` does."""

    def argv(self, command: str) -> tuple[str, ...]:
        """The command line of a client that runs a shell command there, with its own stdin and stdout."""
        return (*self.client, self.address, command)

    @property
    def git_ssh_command(self) -> str:
        """`GIT_SSH_COMMAND` for `git_address`."""
        return shlex.join(self.client)

    def git_address(self, path: str) -> str:
        """The address of a repository there, for git with `git_ssh_command`."""
        return f"[{self.address}]:{path}" if ":" in self.address else f"{self.address}:{path}"

    def lost(self, done: Completed) -> Failure:
        """Why a client ended with `FAILED`."""
        return host_failure(
            self.name, stderr_line(done) or "the way to it failed", hint="see `symphony hosts check`"
        )

    async def run(
        self, command: str, *, stdin: bytes = b"", timeout_ms: int = COMMAND_TIMEOUT_MS
    ) -> Completed:
        """Run a shell command there; the caller judges its exit code.

        Raises:
            SymphonyError: `host_unavailable`: the host cannot be reached, or did not answer in time.
        """
        await self.connect()
        argv = self.argv(command)
        try:
            done = await self.local.run(
                argv, env=self.env, timeout_ms=timeout_ms, stdin=stdin, supervised=False
            )
        except OSError as error:
            raise SymphonyError(host_failure(self.name, f"{argv[0]} cannot be started: {error}")) from error
        if done.timed_out:
            raise SymphonyError(host_failure(self.name, f"no answer within {timeout_ms / 1_000:g} s"))
        if done.exit_code == FAILED:
            raise SymphonyError(self.lost(done))
        return done


class PlaceRequest(Struct, frozen=True, kw_only=True):
    """The host that a run needs.

    Attributes:
        host: the host that the scheduler chose.
        last_host: the host that has the workspace.
        labels: the labels that the agent requires, if the carrier knows labels.
    """

    issue_id: str
    host: str
    last_host: str | None = None
    labels: Mapping[str, str] = msgspec.field(default_factory=dict)


class RemoteRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run that began on a host and whose end is unknown; `carrier` is the kind of its carrier."""

    run_id: str
    issue_id: str
    host: str
    lease_ms: int
    node_id: str | None = None
    carrier: str | None = None


class HostFacts(Struct, frozen=True, kw_only=True):
    """A carrier's facts about a machine, known without a connection; for a cluster, its release and slots."""

    slots: int | None = None
    labels: Mapping[str, str] | None = None
    release: str | None = None
    problem: str | None = None
    hint: str | None = None


class Survey(NamedTuple):
    """The present machines; `cluster` are the facts of a cluster as a whole."""

    hosts: Mapping[str, HostFacts]
    cluster: HostFacts | None = None


S = TypeVar("S", bound=CarrierSettings)


class CarrierContext(Struct, frozen=True, kw_only=True):
    """The arguments of a carrier.

    Attributes:
        local: the host of its clients: this machine.
        environment: variables of the daemon.
        state_dir: identifies this daemon.
        log: a file for the log output of the carrier's programs.
    """

    local: Host
    environment: Mapping[str, str]
    state_dir: Path
    log: Path


class Carrier(Generic[S]):
    """The machines of one configuration; it is closed after its last use.

    All of its methods raise `SymphonyError`, `host_unavailable`, with a hint.

    Args:
        settings: the section of the carrier.
        names: the machines that the settings name; no others are used.
        context: further arguments.
    """

    settings_type: ClassVar[type[Any]]
    """The model of its section, a subclass of `CarrierSettings`; every key has a default."""
    is_cluster: ClassVar[bool] = False
    """Whether it chooses the machine of a run itself and counts the slots; otherwise the scheduler does."""
    inherits: ClassVar[str] = ""
    """A pattern of variables that its clients get in addition to those that all programs need."""

    def __init__(self, settings: S, names: tuple[str, ...], context: CarrierContext) -> None:
        self.settings = settings
        self.names = names
        self.context = context
        wanted = re.compile(f"{_INHERITED}|{self.inherits}" if self.inherits else _INHERITED)
        self.env = {name: value for name, value in context.environment.items() if wanted.fullmatch(name)}

    @classmethod
    def names_in(cls, worker: WorkerSettings, settings: S) -> tuple[str, ...]:
        """The machines that the settings name. Each has `worker.max_concurrent_agents_per_host` slots."""
        del worker, settings
        return ()

    def host(self, name: str) -> RemoteHost:
        """The machine with this name; a cluster implements `visit` and `place` instead."""
        raise SymphonyError(host_failure(name, "its carrier has no way to a machine by its name"))

    @asynccontextmanager
    async def visit(self, name: str) -> AsyncIterator[RemoteHost]:
        """The machine with this name, outside of a run.

        Raises `SymphonyError`: the settings do not name it.
        """
        if name not in self.names:
            failure = host_failure(one_line(name, MAX_SAID_CHARS), "the settings of `worker` do not name it")
            raise SymphonyError(failure)
        yield self.host(name)

    def place(
        self, request: PlaceRequest, on_wait: Callable[[str], None]
    ) -> AbstractAsyncContextManager[RemoteHost]:
        """A machine for one run, once a slot is free. `on_wait` gets the reason of a wait, for people."""
        del on_wait  # the scheduler counts the slots
        return self.visit(request.host)

    async def survey(self) -> Survey:
        """The present machines."""
        return Survey({name: HostFacts() for name in self.names})

    async def is_gone(self, run: RemoteRun) -> bool:
        """Whether a run whose lease is over may count as ended."""
        del run
        return True

    @classmethod
    def unprepared(cls, settings: S) -> tuple[str, str] | None:
        """Why `symphony hosts prepare` cannot install this release there, and a hint; `None` if it can."""
        del settings
        return None

    async def aclose(self) -> None:
        """End its connections."""


# --- kinds -----------------------------------------------------------------------------------------------


def checked_class(found: object) -> type[Carrier[Any]]:
    """The carrier class of an entry point. Raises `TypeError` or `ValueError`: it is not a carrier."""
    if not (isinstance(found, type) and issubclass(found, Carrier)):
        raise TypeError(f"{found!r:.80} is no subclass of symphony.daemon.carriers.Carrier")
    if not issubclass(getattr(found, "settings_type", object), CarrierSettings):
        raise TypeError(f"{found.__name__}.settings_type is no subclass of CarrierSettings")
    if not found.is_cluster and found.host is Carrier.host:
        raise TypeError(f"{found.__name__} is no cluster, and has no method `host`")
    found.settings_type()  # raises unless every key has a default
    return found


CARRIERS: Final = AdapterRegistry("symphony.carriers", label="carrier", check=checked_class)


class ChosenCarrier(NamedTuple):
    """A carrier with its settings; two are equal if they reach the hosts in the same way."""

    kind: str
    carrier: type[Carrier[Any]]
    settings: CarrierSettings
    names: tuple[str, ...]

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts for the scheduler: the machines, or the cluster as one host."""
        return (self.kind,) if self.carrier.is_cluster else self.names

    def make(self, context: CarrierContext) -> Carrier[Any]:
        """Make the carrier; it connects to nothing yet."""
        return self.carrier(self.settings, self.names, context)


def carrier_class(kind: str) -> type[Carrier[Any]]:
    """The carrier of a kind.

    Raises:
        SymphonyError: `invalid_workflow_config`: no package offers it; or `broken_adapter`.
    """
    try:
        return CARRIERS.load(kind)
    except KeyError as error:
        hint = did_you_mean_one_of(kind, CARRIERS.names)
        raise SymphonyError(_unusable(f"worker.carrier {kind[:80]!r} is not supported", hint)) from error


def choose_carrier(worker: WorkerSettings) -> ChosenCarrier | None:
    """The carrier of the settings; `None` if runs are carried out on this machine.

    Raises:
        SymphonyError: as `carrier_class`, or its section is invalid; `symphony check` says where.
    """
    kind = worker.carrier_kind
    if kind is None:
        return None
    carrier = carrier_class(kind)
    try:
        settings = carrier_section(worker, kind, carrier)
    except ValidationError as error:
        reason = one_line(str(error), MAX_SAID_CHARS)
        raise SymphonyError(
            _unusable(f"worker.{kind} is invalid: {reason}", "see `symphony check`")
        ) from error
    return ChosenCarrier(kind, carrier, settings, carrier.names_in(worker, settings))


def carrier_section(worker: WorkerSettings, kind: str, carrier: type[Carrier[Any]]) -> CarrierSettings:
    """The section of a carrier. Raises `pydantic.ValidationError`."""
    if kind in WorkerSettings.model_fields:
        own: CarrierSettings = getattr(worker, kind)
        return own
    found: CarrierSettings = carrier.settings_type.model_validate((worker.model_extra or {}).get(kind, {}))
    return found


def _unusable(message: str, hint: str) -> Failure:
    return Failure(
        category=Category.INVALID_WORKFLOW_CONFIG,
        blame=Blame.CONFIG,
        message=message,
        retryable=False,
        hint=hint,
    )
