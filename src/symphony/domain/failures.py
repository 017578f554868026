"""Failures as values: made at an edge, carried to the scheduler, shown to people in one line.

`Failure` is the value; `SymphonyError` is the exception that carries one. Each layer converts exceptions of
libraries with `raise ... from`.
"""

import errno
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import msgspec


class Blame(StrEnum):
    """What caused a failure; determines who is notified, and the exit code."""

    CONFIG = "config"
    TRACKER = "tracker"
    AGENT = "agent"
    WORKSPACE = "workspace"
    HOST = "host"


class Category(StrEnum):
    """Stable failure names; the specification defines those of the workflow file, trackers and agents."""

    MISSING_WORKFLOW_FILE = "missing_workflow_file"
    WORKFLOW_PARSE_ERROR = "workflow_parse_error"
    WORKFLOW_FRONT_MATTER_NOT_A_MAP = "workflow_front_matter_not_a_map"
    TEMPLATE_PARSE_ERROR = "template_parse_error"
    TEMPLATE_RENDER_ERROR = "template_render_error"
    ISSUE_TOO_LONG = "issue_too_long"
    INVALID_WORKFLOW_CONFIG = "invalid_workflow_config"
    MISSING_TRACKER_KIND = "missing_tracker_kind"
    UNSUPPORTED_TRACKER_KIND = "unsupported_tracker_kind"
    BROKEN_ADAPTER = "broken_adapter"

    INVALID_TRACKER_CONFIG = "invalid_tracker_config"
    MISSING_TRACKER_SECRET = "missing_tracker_secret"  # noqa: S105 - a category name, not a secret
    TRACKER_REQUEST = "tracker_request"
    TRACKER_STATUS = "tracker_status"
    TRACKER_RESPONSE = "tracker_response"
    TRACKER_PAGINATION = "tracker_pagination"
    TRACKER_RATE_LIMITED = "tracker_rate_limited"

    CODEX_NOT_FOUND = "codex_not_found"
    AGENT_NOT_FOUND = "agent_not_found"
    INVALID_WORKSPACE_CWD = "invalid_workspace_cwd"
    RESPONSE_TIMEOUT = "response_timeout"
    RESPONSE_ERROR = "response_error"
    TURN_TIMEOUT = "turn_timeout"
    TURN_FAILED = "turn_failed"
    TURN_CANCELLED = "turn_cancelled"
    TURN_INPUT_REQUIRED = "turn_input_required"
    APPROVAL_REQUIRED = "approval_required"
    PORT_EXIT = "port_exit"
    AGENT_AUTH = "agent_auth"
    AGENT_RATE_LIMITED = "agent_rate_limited"
    AGENT_USAGE_LIMIT = "agent_usage_limit"
    AGENT_UNAVAILABLE = "agent_unavailable"
    AGENT_CONTEXT_FULL = "agent_context_full"
    AGENT_PREFLIGHT = "agent_preflight"
    STALLED = "stalled"
    NO_PROGRESS = "no_progress"
    BUDGET_ISSUE = "budget_issue"
    BUDGET_DAY = "budget_day"
    STOPPED_BY_OPERATOR = "stopped_by_operator"
    PULL_REQUEST_CLOSED = "pull_request_closed"
    PULL_REQUEST_NEEDS_YOU = "pull_request_needs_you"
    VERIFY_FAILED = "verify_failed"
    VERIFY_NOT_DONE = "verify_not_done"
    NOT_REVIEWED = "not_reviewed"

    WORKSPACE_EQUALS_ROOT = "workspace_equals_root"
    WORKSPACE_SYMLINK_ESCAPE = "workspace_symlink_escape"
    WORKSPACE_OUTSIDE_ROOT = "workspace_outside_root"
    WORKSPACE_PATH_UNREADABLE = "workspace_path_unreadable"
    WORKSPACE_PATH_NOT_DIRECTORY = "workspace_path_not_directory"
    WORKSPACE_UNSAFE_KEY = "workspace_unsafe_key"
    WORKSPACE_HOOK_FAILED = "workspace_hook_failed"
    WORKSPACE_HOOK_TIMEOUT = "workspace_hook_timeout"
    WORKSPACE_PREPARE_FAILED = "workspace_prepare_failed"
    WORKSPACE_REPOSITORY = "workspace_repository"
    WORKSPACE_ROOT_TAKEN = "workspace_root_taken"
    WORKSPACE_VANISHED = "workspace_vanished"
    DELIVERY_FAILED = "delivery_failed"
    BRANCH_NOT_PLACED = "branch_not_placed"
    PUSH_FAILED = "push_failed"

    WORKER_LOST = "worker_lost"
    HOST_UNAVAILABLE = "host_unavailable"

    INSTANCE_LOCKED = "instance_locked"
    PREDECESSOR_ALIVE = "predecessor_alive"
    STATE_DIRECTORY = "state_directory"
    SECRET_FILE = "secret_file"  # noqa: S105 - a category name, not a secret
    JOURNAL = "journal"
    LIBRARY = "library"
    FORGE = "forge"
    NOTIFICATION = "notification"
    HTTP_SERVER = "http_server"
    CLOCK_NOT_SET = "clock_not_set"
    COMMAND = "command"
    INTERNAL = "internal"


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """What went wrong, where, and what to do next.

    Attributes:
        category: stable name, also the error code of logs and API.
        blame: what caused it.
        message: one line for people, without secrets.
        retryable: whether the same attempt may succeed later without an action by a person. Otherwise
            `run --once` gives up; a daemon retries in any case.
        hint: what to do next, in one line.
        where: `path:line` or `path:line:column`.
        retry_after_ms: how long the service asked to wait.
        status: the HTTP status of the service's answer, or an equivalent one.
    """

    category: Category
    blame: Blame
    message: str
    retryable: bool = True
    hint: str | None = None
    where: str | None = None
    retry_after_ms: int | None = None
    status: int | None = None

    @property
    def line(self) -> str:
        """One line for people: `where: category: message`."""
        text = f"{self.category.value}: {self.message}"
        return text if self.where is None else f"{self.where}: {text}"


_WORD_AND_COLON: Final = re.compile(r"\b([a-z_]+): ")


def without_codes(text: str) -> str:
    """A text for people without the categories of the failures in it, see `Failure.line`.

    A category that is an ordinary word counts as a category only at the start of the text.
    """

    def shown(found: re.Match[str]) -> str:
        is_code = found[1] in _CODES and ("_" in found[1] or found.start() == 0)
        return "" if is_code else found[0]

    return _WORD_AND_COLON.sub(shown, text)


_CODES: Final = frozenset(one.value for one in Category)


class SymphonyError(Exception):
    """An exception that carries a `Failure`."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.line)
        self.failure = failure


class ServiceError(SymphonyError):
    """A tracker or a forge did not do what was asked of it.

    Without a status it is unknown whether a write was done. `culprits` are the ids of the issues that caused
    it, where known.
    """

    def __init__(self, failure: Failure, *, culprits: frozenset[str] = frozenset()) -> None:
        super().__init__(failure)
        self.culprits = culprits


DECODE_ERRORS: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What decoding untrusted JSON can raise: wrong syntax or shape, invalid UTF-8, or too deep nesting."""

# --- full disks ------------------------------------------------------------------------------------------

_DISK_FULL_ERRNOS: Final = {errno.ENOSPC, errno.EDQUOT}
_DISK_FULL_TEXTS: Final = ("no space left on device", "disk quota exceeded")


def is_disk_full(error: BaseException | str) -> bool:
    """Whether an exception, or the error output of a program, means that the disk is full."""
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno in _DISK_FULL_ERRNOS
    return any(text in str(error).lower() for text in _DISK_FULL_TEXTS)


def disk_full_hint(place: object) -> str:
    """The hint for a full disk that holds the path `place`."""
    return f"make room on the filesystem of {place}; `symphony clean --dry-run` shows what old runs have left"
