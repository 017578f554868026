"""What `symphony doctor` finds out, and how its checks are run: all at once, each within a bound.

A check is asked for findings and changes nothing. One that raises or takes too long is an error of its own.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any, Final, TypeVar

import anyio
from anyio import to_thread

from symphony.cli.documents import Doctor, DoctorCheck
from symphony.cli.failures import CommandError, ExitCode, exit_code
from symphony.domain.failures import Failure, SymphonyError
from symphony.domain.redaction import Redaction

__all__ = ["Check", "Checkup", "Finding", "Status", "examine_all", "failed", "fine", "in_thread", "odd"]

LIMIT_S: Final = 20.0
_T = TypeVar("_T")


class Status(StrEnum):
    """How bad a finding is: a daemon cannot work with an error, and works with a warning."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One line about one thing; `hint` says how to mend it, and is null where nothing has to be."""

    check: str
    status: Status
    message: str
    hint: str | None = None
    code: ExitCode = ExitCode.OK


def fine(check: str, message: str) -> Finding:
    """Nothing to do."""
    return Finding(check=check, status=Status.OK, message=message)


def odd(check: str, message: str, *, hint: str) -> Finding:
    """It works, and somebody should look."""
    return Finding(check=check, status=Status.WARNING, message=message, hint=hint)


def failed(check: str, failure: Failure, *, hint: str, code: ExitCode | None = None) -> Finding:
    """A daemon would not work; `hint` is for failures that have none."""
    return Finding(
        check=check,
        status=Status.ERROR,
        message=failure.message if failure.where is None else f"{failure.where}: {failure.message}",
        hint=failure.hint or hint,
        code=code or exit_code(failure),
    )


Check = Callable[[], Awaitable[Sequence[Finding]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkup:
    """Everything that was found, in the order of the checks."""

    workflow: str
    findings: tuple[Finding, ...]

    @property
    def code(self) -> ExitCode:
        """The exit code: the highest of those that the errors give."""
        return max((finding.code for finding in self.findings), default=ExitCode.OK)

    def document(self) -> Doctor:
        """What is printed with `--json`."""
        return Doctor(
            workflow=self.workflow,
            ok=self.code is ExitCode.OK,
            exit_code=int(self.code),
            checks=tuple(
                DoctorCheck(name=one.check, status=one.status.value, message=one.message, hint=one.hint)
                for one in self.findings
            ),
        )


async def in_thread(ask: Callable[..., _T], *arguments: Any) -> _T:
    """The answer of a blocking question; one that hangs, as disks do, is left alone when its time is over."""
    return await to_thread.run_sync(ask, *arguments, abandon_on_cancel=True)


async def examine_all(
    checks: Mapping[str, Check],
    *,
    redaction: Redaction,
    tell: Callable[[Sequence[str]], None],
    limit_s: float = LIMIT_S,
) -> tuple[Finding, ...]:
    """Run the checks together; `tell` hears the names of those that are not done yet.

    What a check found is masked by `redaction`: messages may quote settings, addresses and what agents say.
    """
    found: dict[str, Sequence[Finding]] = {}

    async def ask(name: str, check: Check) -> None:
        found[name] = await _asked(name, check, limit_s)
        tell([other for other in checks if other not in found])

    tell(list(checks))
    async with anyio.create_task_group() as group:
        for name, check in checks.items():
            group.start_soon(partial(ask, name, check))
    return tuple(_shown(finding, redaction) for name in checks for finding in found[name])


async def _asked(name: str, check: Check, limit_s: float) -> Sequence[Finding]:
    try:
        with anyio.fail_after(limit_s):
            return await check()
    except TimeoutError:
        failure = CommandError.of(
            f"no answer within {limit_s:g} s", hint="something hangs: a disk, the network or a program"
        ).failure
    except SymphonyError as error:
        code = error.code if isinstance(error, CommandError) else None
        return [failed(name, error.failure, hint="the message says what is in the way", code=code)]
    except Exception as error:  # noqa: BLE001 - one check that cannot be made is a finding, and no end of all
        failure = CommandError.of(
            f"the check itself failed: {type(error).__name__}: {error}", hint="the other checks hold"
        ).failure
    return [failed(name, failure, hint="")]


def _shown(finding: Finding, redaction: Redaction) -> Finding:
    return Finding(
        check=finding.check,
        status=finding.status,
        message=redaction.text(finding.message),
        hint=None if finding.hint is None else redaction.text(finding.hint),
        code=finding.code,
    )
