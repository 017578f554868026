"""How a service is, as systemd tells it."""

import subprocess
from typing import Final

from symphony.cli.documents import ServiceState
from symphony.cli.failures import CommandError
from symphony.cli.service_unit import Places, served_by
from symphony.domain.plain import one_line

__all__ = ["look_at"]

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


def look_at(name: str, places: Places) -> ServiceState:
    """Ask systemd about an instance.

    Raises:
        CommandError: it does not answer.
    """
    unit = f"symphony@{name}.service"
    told = _properties(_asked((*places.systemctl, "show", unit, f"--property={','.join(_ASKED)}")))
    workflow = served_by(name, places)
    return ServiceState(
        name=name,
        unit=unit,
        of_user=places.of_user,
        installed=workflow is not None,
        workflow=workflow,
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
