"""Results of the operator's commands on finished work, without any claim of an agent."""

import hashlib
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Annotated, Final
from urllib.parse import quote

from msgspec import Meta, Struct, structs

from symphony.domain.redaction import Redaction, fence, one_line, plain_text
from symphony.domain.text import plural

MAX_CHECK_OUTPUT_CHARS: Final = 8_000
"""How much of the end of a command's output is stored with a run and sent to the agent."""

MAX_EVIDENCE_CHARS: Final = 24_000
"""The limit for the output of all failed commands together in a prompt or a comment."""

MAX_NAMED_CHANGES: Final = 50
"""How many protected paths and hints a verification names."""

_MAX_FILE_CHARS: Final = 200

MAX_REVIEWER_REMARKS: Final = 50
"""How many remarks a reviewer can make on a change."""

MAX_REMARK_CHARS: Final = 2_000
"""The longest remark."""

MAX_REMARK_PATH_CHARS: Final = 300
"""How much of the file name of a remark is kept."""


class VerificationStatus(StrEnum):
    """The result of a verification of a head.

    Only `PASSED` is a pass. `BASE_FAILED` means that all failures also occur on the base commit, so the
    agent is not at fault.
    """

    PASSED = "passed"
    FAILED = "failed"
    BASE_FAILED = "base_failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRun:
    """One run of one command of `verify.commands`.

    Attributes:
        exit_code: negative for a signal; `None` if the command did not end by itself or never began.
        duration_ms: its wall-clock time.
        output_tail: the end of what it wrote to stdout and stderr, at most `MAX_CHECK_OUTPUT_CHARS`, masked.
        problem: why it has no exit code: a time-out, or that it could not be started.
        skipped: the change touches none of the paths of the command.
        fails_on_base: whether it fails on the base commit too; `None` if that was not tried, or if the
            command could not run there.
    """

    name: str
    exit_code: int | None = None
    duration_ms: int = 0
    output_tail: str = ""
    problem: str | None = None
    skipped: bool = False
    fails_on_base: bool | None = None

    @property
    def passed(self) -> bool:
        """Whether this check holds nothing back."""
        return self.skipped or (self.exit_code == 0 and self.problem is None)

    @property
    def result(self) -> str:
        """How it ended: `passed`, `failed`, `base_failed`, `skipped`, or `not_done` without an exit code."""
        if self.skipped:
            return "skipped"
        if self.passed:
            return "passed"
        if self.problem is not None:
            return "not_done"
        return "base_failed" if self.fails_on_base else "failed"

    @property
    def ended(self) -> str:
        """How it ended, as a part of a sentence."""
        if self.skipped:
            return "was skipped: the change touches none of its paths"
        if self.problem is not None:
            return self.problem
        if self.exit_code is not None and self.exit_code < 0:
            return f"was ended by signal {-self.exit_code}"
        return "passed" if self.passed else f"failed with exit code {self.exit_code}"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptFile:
    """A file that a check left, by its path in the checkout; `size` in bytes, `None` if it was too large."""

    name: str
    size: int | None = None

    @property
    def file(self) -> str:
        """Its name in the store: the percent-encoded path. A long name is cut and ends with a digest."""
        encoded = quote(self.name, safe="", errors="replace")
        encoded = f"%2E{encoded[1:]}" if encoded.startswith(".") else encoded
        if len(encoded) <= _MAX_FILE_CHARS:
            return encoded
        digest = hashlib.sha256(self.name.encode(errors="replace")).hexdigest()[:16]
        return f"{encoded[:_MAX_FILE_CHARS]}~{digest}"


class ReviewerRemark(Struct, frozen=True, kw_only=True):
    """A remark of the agent of `verify.reviewer` on a place in a change: untrusted text.

    Attributes:
        file: relative to the repository, as the reviewer names it; it need not exist.
        line: from 1; `None` for the whole file.
        text: plain text of at most `MAX_REMARK_CHARS`.
    """

    file: Annotated[str, Meta(description="As the reviewer names it; it need not exist.")]
    text: str
    line: Annotated[int | None, Meta(description="From 1; null for the whole file.")] = None

    @property
    def shown(self) -> str:
        """The remark with its place: `src/a.py:7: the sum is wrong`."""
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        return f"{place}: {self.text}" if place else self.text


class LineComment(Struct, frozen=True, kw_only=True):
    """A person's comment on a line of a change."""

    file: Annotated[str, Meta(description="As it is shown.")]
    line: Annotated[int, Meta(ge=1)]
    old: Annotated[bool, Meta(description="A line of the file as it was before the change.")]
    quote: Annotated[str, Meta(description="The line; untrusted text.")]
    text: str
    head: Annotated[str, Meta(description="The commit that the line was shown of.")]

    @property
    def place(self) -> str:
        """`FILE:LINE`, for people."""
        return f"{self.file}:{self.line}{' (before the change)' if self.old else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewerVerdict:
    """The verdict of the agent of `verify.reviewer` on a change whose commands passed.

    Attributes:
        reviewer: the agent by its name in `agents`.
        approves: whether the reviewer asks for no change. It is no approval for landing.
        remarks: at most `MAX_REVIEWER_REMARKS`. An approval can have remarks too.
    """

    reviewer: str
    approves: bool
    remarks: tuple[ReviewerRemark, ...] = ()

    @property
    def line(self) -> str:
        """The verdict as a part of a sentence: `reviewer critic requests changes (2 remarks)`."""
        said = "approves" if self.approves else "requests changes"
        count = f" ({plural(len(self.remarks), 'remark')})" if self.remarks else ""
        return f"reviewer {self.reviewer} {said}{count}"

    def shown_remarks(self, limit: int = MAX_EVIDENCE_CHARS) -> str:
        """The remarks by file and line as fenced data, cut to `limit` characters; empty without any."""
        return fence(plain_text("\n".join(remark.shown for remark in self.remarks))[:limit])


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """The checks of one delivered head.

    Attributes:
        head: the commit that was checked, and no other.
        checks: in the order of `verify.commands`.
        problem: what is wrong apart from the commands, such as uncommitted work.
        protected_changes: files of `verify.protect` that the change touches.
        weakened: tests that the change deletes or newly skips, judged by the lines of its diff; only a hint.
        base: the commit on which failed commands were tried too; `None` if none were.
        artifacts: files of `verify.artifacts` that the checks left.
        run_id: the run that kept them.
        passed_after_failure: the same head failed before, so at least one check is unreliable.
        reviewer: the verdict of the agent of `verify.reviewer`, which is asked once the commands have passed;
            `None` if there is no reviewer, or if it was not asked.
    """

    head: str
    checks: tuple[CheckRun, ...] = ()
    problem: str | None = None
    protected_changes: tuple[str, ...] = ()
    weakened: tuple[str, ...] = ()
    base: str | None = None
    artifacts: tuple[KeptFile, ...] = ()
    run_id: str | None = None
    passed_after_failure: bool = False
    reviewer: ReviewerVerdict | None = None

    @property
    def status(self) -> VerificationStatus:
        """The overall result. Only a complete pass counts as a pass."""
        failed = [check for check in self.checks if not check.passed]
        if self.reviewer is not None and not self.reviewer.approves:
            return VerificationStatus.FAILED
        if self.problem is None and not failed:
            return VerificationStatus.PASSED
        if self.problem is None and all(check.fails_on_base for check in failed):
            return VerificationStatus.BASE_FAILED
        return VerificationStatus.FAILED

    @property
    def passed(self) -> bool:
        """Whether it is a complete pass."""
        return self.status is VerificationStatus.PASSED

    @property
    def line(self) -> str:
        """The result on one line, for people: `tests failed with exit code 2`."""
        failed = [check for check in self.checks if not check.passed]
        parts = [] if self.problem is None else [self.problem]
        parts += [
            f"{check.name} {check.ended}{' (on the base too)' if check.fails_on_base else ''}"
            for check in failed
        ]
        said = [] if self.reviewer is None else [self.reviewer.line]
        if parts or (self.reviewer is not None and not self.reviewer.approves):
            return "; ".join([*parts, *said])
        ran = [check.name for check in self.checks if not check.skipped]
        flaky = ", after it had failed on the same commit" if self.passed_after_failure else ""
        passed = [f"{', '.join(ran)} passed"] if ran else [] if said else ["nothing was to be checked"]
        return f"{'; '.join([*passed, *said])}{flaky}"

    def masked(self, redaction: Redaction) -> "Verification":
        """A copy with secrets masked, for logs, the issue and the agent."""
        return replace(
            self,
            problem=None if self.problem is None else redaction.text(self.problem),
            checks=tuple(
                replace(
                    check,
                    output_tail=redaction.text(check.output_tail),
                    problem=None if check.problem is None else redaction.text(check.problem),
                )
                for check in self.checks
            ),
            protected_changes=tuple(map(redaction.text, self.protected_changes)),
            weakened=tuple(map(redaction.text, self.weakened)),
            reviewer=None
            if self.reviewer is None
            else replace(
                self.reviewer,
                remarks=tuple(
                    structs.replace(
                        remark, file=redaction.text(remark.file), text=redaction.text(remark.text)
                    )
                    for remark in self.reviewer.remarks
                ),
            ),
        )

    def kept(self) -> "Verification":
        """A copy without the output of passed checks, to store with the result of an issue."""
        short = (replace(check, output_tail="") if check.passed else check for check in self.checks)
        return replace(self, checks=tuple(short))

    def evidence(self) -> str:
        """What failed and the end of its output, as Markdown; the output is fenced data."""
        failed = [check for check in self.checks if not check.passed and not check.fails_on_base]
        share = MAX_EVIDENCE_CHARS // max(len(failed), 1)
        parts = [f"The commit that was checked is {self.head[:12]}."]
        if self.problem is not None:
            parts.append(f"{self.problem}.")
        for check in failed:
            parts.append(f"`{check.name}` {check.ended}.")
            if tail := check.output_tail[-share:].strip("\n"):
                parts.append(fence(plain_text(tail)))
        if self.reviewer is not None and not self.reviewer.approves:
            parts.append(f"{one_line(self.reviewer.line)}:")
            parts.append(self.reviewer.shown_remarks())
        return "\n\n".join(parts)
