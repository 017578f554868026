"""How a broken `WORKFLOW.md` is told: one error that carries every problem found, and warnings beside it."""

import difflib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from symphony.domain.failures import Blame, Category, Failure, SymphonyError

__all__ = [
    "WarningCode",
    "WorkflowError",
    "WorkflowWarning",
    "config_failure",
    "did_you_mean",
    "did_you_mean_one_of",
    "one_of",
    "quoted",
]

_MAX_QUOTED: Final = 60


class WarningCode(StrEnum):
    """Every warning by its stable name, as `symphony check --json` tells it."""

    UNKNOWN_KEY = "unknown_key"
    IGNORED_STATE_LIMIT = "ignored_state_limit"
    UNSET_VARIABLE = "unset_variable"
    LITERAL_DOLLAR = "literal_dollar"
    EXPOSED_SECRET = "exposed_secret"  # noqa: S105 - the name of a warning, not a secret
    LITERAL_SECRET = "literal_secret"  # noqa: S105 - the name of a warning, not a secret
    REFUSED_APPROVAL_POLICY = "refused_approval_policy"
    DOUBTFUL_SETTING = "doubtful_setting"
    UNGUARDED = "unguarded"
    NO_BUDGET = "no_budget"
    SHADOWED_RULE = "shadowed_rule"
    UNUSED_FILE = "unused_file"
    UNCOMMITTED_SKILLS = "uncommitted_skills"
    SUBMODULES_NOT_POPULATED = "submodules_not_populated"
    LFS_NOT_SET_UP = "lfs_not_set_up"
    SKILL_PROBLEM = "skill_problem"
    UNCOMMITTED_CHANGES = "uncommitted_changes"
    NO_REMOTE = "no_remote"
    HIDDEN_DELIVERY = "hidden_delivery"
    UNKNOWN_TOOL = "unknown_tool"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowWarning:
    """Something odd that does not stop the file from working; `where` is `path:line` where there is one."""

    code: WarningCode
    message: str
    where: str | None = None
    hint: str | None = None


class WorkflowError(SymphonyError):
    """The workflow file cannot be used as it is.

    `failures` lists every problem found, in the order of the file; the first one is also `failure`.
    """

    def __init__(self, failures: Sequence[Failure]) -> None:
        super().__init__(failures[0])
        self.failures = tuple(failures)


_USUAL_HINTS: Mapping[Category, str] = {
    Category.WORKFLOW_PARSE_ERROR: "quote a value that contains a colon, and indent with blanks",
    Category.TEMPLATE_PARSE_ERROR: "a prompt is Liquid: {{ issue.title }}, {% if attempt %}..{% endif %}",
    Category.TEMPLATE_RENDER_ERROR: "a prompt knows `issue` with its fields, and `attempt`",
}
_USUAL_HINT = "`symphony check --keys` lists every setting with its default"


def config_failure(
    message: str,
    *,
    category: Category = Category.INVALID_WORKFLOW_CONFIG,
    where: str | None = None,
    hint: str | None = None,
    retryable: bool = False,
) -> Failure:
    """A failure that only an edit of the workflow file or of the environment cures; it always has a hint."""
    return Failure(
        category=category,
        blame=Blame.CONFIG,
        message=message,
        retryable=retryable,
        hint=hint or _USUAL_HINTS.get(category, _USUAL_HINT),
        where=where,
    )


def did_you_mean(name: str, known: Iterable[str], *, prefix: str = "") -> str | None:
    """A hint that names the closest known spelling, or null where nothing is close."""
    match = difflib.get_close_matches(name.strip().lower(), sorted(known), n=1, cutoff=0.6)
    return f'did you mean "{prefix}{match[0]}"?' if match else None


def one_of(known: Iterable[str]) -> str:
    """A hint that names all that there are."""
    return f"supported: {', '.join(sorted(known))}"


def did_you_mean_one_of(name: str, known: Iterable[str]) -> str:
    """A hint that names the closest known spelling, where one is close, and all that there are."""
    known = tuple(known)
    return " ".join(filter(None, (did_you_mean(name, known), one_of(known))))


def quoted(text: str) -> str:
    """Text of the file for a one-line message: in double quotes, escaped, and not too long."""
    shown = text if len(text) <= _MAX_QUOTED else f"{text[:_MAX_QUOTED]}..."
    return json.dumps(shown, ensure_ascii=False)
