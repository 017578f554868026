"""How a service is, as systemd tells it."""

import re
import subprocess
from dataclasses import asdict, dataclass
from typing import Any, Final

from symphony.cli.failures import CommandError
from symphony.cli.service_facts import Places
from symphony.cli.service_steps import systemctl
from symphony.cli.service_unit import workflow_of
from symphony.domain.plain import one_line

__all__ = ["ServiceState", "look_at", "systemd_version"]

_ASKED_S: Final = 20.0
_MAX_CHARS: Final = 1_000
_ASKED: Final = (
    "ActiveState",
    "SubState",
    "Result",
    "StatusText",
    "MainPID",
    "NRestarts",
    "ExecMainStatus",
    "UnitFileState",
    "ActiveEnterTimestamp",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceState:
    """One instance.

    Attributes:
        installed: whether there is a file of ours for it.
        workflow: which it serves, as that file says.
        active, sub, result, enabled: systemd's own words.
        status_text: what the daemon said last, with its counts; null where it said nothing.
        main_pid: null where it does not run.
        restarts: since it was last started by hand or at boot.
        exit_status: of its last end.
        since: when it became active, in systemd's words; null where it never was.
    """

    name: str
    unit: str
    of_user: bool
    installed: bool
    workflow: str | None
    active: str
    sub: str
    result: str
    enabled: str
    status_text: str | None
    main_pid: int | None
    restarts: int
    exit_status: int
    since: str | None

    def as_json(self) -> dict[str, Any]:
        """As `--json` prints it."""
        return asdict(self)


def look_at(name: str, places: Places) -> ServiceState:
    """Ask systemd about an instance.

    Raises:
        CommandError: it does not answer.
    """
    unit = f"symphony@{name}.service"
    told = _properties(_asked((*systemctl(places), "show", unit, f"--property={','.join(_ASKED)}")))
    try:
        ours = places.drop_in(name).read_text(encoding="utf-8", errors="replace")
    except OSError:
        ours = ""
    return ServiceState(
        name=name,
        unit=unit,
        of_user=places.of_user,
        installed=workflow_of(ours) is not None,
        workflow=workflow_of(ours),
        active=told["ActiveState"] or "unknown",
        sub=told["SubState"] or "unknown",
        result=told["Result"],
        enabled=told["UnitFileState"] or "disabled",
        status_text=told["StatusText"] or None,
        main_pid=_number(told["MainPID"]) or None,
        restarts=_number(told["NRestarts"]),
        exit_status=_number(told["ExecMainStatus"]),
        since=told["ActiveEnterTimestamp"] or None,
    )


def systemd_version() -> int | None:
    """Which version of systemd is installed; null where none is, or where it does not say."""
    try:
        text = _asked(("systemctl", "--version"))
    except CommandError:
        return None
    found = re.match(r"systemd (\d+)", text)
    return None if found is None else int(found[1])


def _properties(text: str) -> dict[str, str]:
    told = dict.fromkeys(_ASKED, "")
    for line in text.splitlines():
        name, _, value = line.partition("=")
        if name in told:
            told[name] = one_line(value, _MAX_CHARS)
    return told


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() else 0


def _asked(argv: tuple[str, ...]) -> str:
    hint = "see whether it runs: systemctl is-system-running"
    try:
        done = subprocess.run(
            argv,
            capture_output=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            check=False,
            timeout=_ASKED_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CommandError.of(f"systemd does not answer: {error}", hint=hint) from error
    if done.returncode != 0:
        said = done.stderr.strip() or f"{argv[0]} ended with {done.returncode}"
        raise CommandError.of(f"systemd does not answer: {said}", hint=hint)
    return done.stdout
