"""Problems of a `WORKFLOW.md`: one error with every failure, and warnings."""

import difflib
import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from symphony.config.secrets import referenced_variables
from symphony.config.settings import NamedAgent, Section, Settings
from symphony.domain import Blame, Category, Failure, SymphonyError

_MAX_QUOTED: Final = 60


_SECRET_SECTIONS: Final = ("tracker", "forge", "notify", "tracing")


class WarningCode(StrEnum):
    """Stable names of all warnings, as in `symphony check --json`."""

    UNKNOWN_KEY = "unknown_key"
    IGNORED_STATE_LIMIT = "ignored_state_limit"
    IGNORED_PRICE = "ignored_price"
    IGNORED_NOTIFICATION = "ignored_notification"
    OUTDATED_FORM = "outdated_form"
    UNSET_VARIABLE = "unset_variable"
    FOREIGN_REFERENCE = "foreign_reference"
    FOREIGN_VARIABLE = "foreign_variable"
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
    FILTER_NOT_SET_UP = "filter_not_set_up"
    SKILL_PROBLEM = "skill_problem"
    SKILLS_ELSEWHERE = "skills_elsewhere"
    INSTRUCTIONS_PROBLEM = "instructions_problem"
    UNCOMMITTED_CHANGES = "uncommitted_changes"
    NO_REMOTE = "no_remote"
    HIDDEN_DELIVERY = "hidden_delivery"
    BRANCH_NAME_TAKEN = "branch_name_taken"
    UNKNOWN_TOOL = "unknown_tool"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowWarning:
    """A problem that does not stop the file from working; `where` is `path:line`, if known."""

    code: WarningCode
    message: str
    where: str | None = None
    hint: str | None = None


class WorkflowError(SymphonyError):
    """The workflow file cannot be used.

    `failures` has every problem, in the order of the file; the first one is also `failure`.
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
    """A failure that needs a change of the workflow file or of the environment; it always has a hint."""
    return Failure(
        category=category,
        blame=Blame.CONFIG,
        message=message,
        retryable=retryable,
        hint=hint or _USUAL_HINTS.get(category, _USUAL_HINT),
        where=where,
    )


_SAME_WORD: Final = 0.75
_NEGATIONS: Final = ("anti", "de", "dis", "ex", "in", "no", "non", "not", "un")


def did_you_mean(name: str, known: Iterable[str], *, prefix: str = "") -> str | None:
    """A hint with the known name of which `name` is a misspelling, or `None`."""
    given = name.strip().lower()
    near = difflib.get_close_matches(given, sorted(known), n=3, cutoff=0.6)
    match = next((other for other in near if _is_slip(given, other.lower())), None)
    return None if match is None else f'did you mean "{prefix}{match}"?'


def _is_slip(name: str, other: str) -> bool:
    """Whether both names match word by word.

    A merely similar name may mean another setting or the opposite.
    """
    words, others = _words(name), _words(other)
    if "".join(words) == "".join(others):
        return True
    differing = [pair for pair in zip(words, others, strict=False) if pair[0] != pair[1]]
    if len(words) != len(others):
        return False
    if len(differing) == 1 < len(words) and _is_without_a_letter(*differing[0]):
        return True
    return all(_is_same_word(*pair) for pair in differing)


def _is_without_a_letter(word: str, other: str) -> bool:
    return any(word == other[:index] + other[index + 1 :] for index in range(len(other)))


def _words(name: str) -> list[str]:
    return re.split(r"[-_.\s]+", name)


def _is_same_word(word: str, other: str) -> bool:
    long, short = sorted((word, other), key=len, reverse=True)
    if any(long == f"{negation}{short}" for negation in _NEGATIONS):
        return False
    if sorted(word) == sorted(other):
        return True
    return difflib.SequenceMatcher(None, word, other).ratio() >= _SAME_WORD


def one_of(known: Iterable[str]) -> str:
    """A hint with all known names."""
    return f"supported: {', '.join(sorted(known))}"


def did_you_mean_one_of(name: str, known: Iterable[str]) -> str:
    """A hint with the most similar known name, if any, and all known names."""
    known = tuple(known)
    return " ".join(filter(None, (did_you_mean(name, known), one_of(known))))


def quoted(text: str) -> str:
    """Text of the file for a one-line message: in double quotes, escaped, and cut if it is long."""
    shown = text if len(text) <= _MAX_QUOTED else f"{text[:_MAX_QUOTED]}..."
    return json.dumps(shown, ensure_ascii=False)


# --- Collecting failures and warnings, each with the line of its key ---

Location = tuple[str | int, ...]
"""The keys and list indices that lead to a value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceMap:
    """Positions (line, column) of the keys of a file; `first_line` is the first of its front matter."""

    path: Path
    positions: Mapping[Location, tuple[int, int]]
    first_line: int

    def line(self, location: Location) -> int:
        """Line of a key, or of the nearest enclosing key that is in the file."""
        while location:
            if location in self.positions:
                return self.positions[location][0]
            location = location[:-1]
        return self.first_line

    def where(self, location: Location) -> str:
        """`path:line` of a key, as `line` finds it."""
        return f"{self.path}:{self.line(location)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontMatter:
    """The root map of a file, which may contain secrets.

    Attributes:
        present: whether the file has one.
        corrected: settings that the file has elsewhere or under other names; references in them are reported
            there.
    """

    source_map: SourceMap
    value: Mapping[str, Any] = field(repr=False)
    present: bool = True
    corrected: frozenset[Location] = frozenset()

    @property
    def path(self) -> Path:
        """The file."""
        return self.source_map.path

    @property
    def secret_names(self) -> frozenset[str]:
        """The variables that the sections with secrets refer to."""
        return referenced_variables([self.value.get(key) for key in _SECRET_SECTIONS])


@dataclass(slots=True, kw_only=True)
class ProblemCollector:
    """Failures and warnings of one front matter, and the parts that are usable in spite of them.

    Attributes:
        sections: the valid sections, so that an error in one does not hide the adapter's errors in another.
        partial_sections: the invalid sections with defaults in place of their invalid keys.
        given_keys: per invalid section, the valid keys of the file.
        agents: the valid agents that can be chosen for an issue.
        settings: set only if there are no failures.
        failed: the keys with failures.
        unknown: the keys that nothing reads.
    """

    source: FrontMatter
    sections: dict[str, Section] = field(default_factory=dict)
    partial_sections: dict[str, Section] = field(default_factory=dict)
    given_keys: dict[str, frozenset[str]] = field(default_factory=dict)
    agents: dict[str, NamedAgent] = field(default_factory=dict)
    settings: Settings | None = None
    warnings: list[WorkflowWarning] = field(default_factory=list)
    failed: set[Location] = field(default_factory=set)
    unknown: list[Location] = field(default_factory=list)
    _failures: list[tuple[int, Failure]] = field(default_factory=list)

    @property
    def source_map(self) -> SourceMap:
        """The positions of the keys."""
        return self.source.source_map

    @property
    def failures(self) -> list[Failure]:
        """The failures, in the order of the file."""
        return [failure for _, failure in sorted(self._failures, key=lambda entry: entry[0])]

    def fail(
        self,
        location: Location,
        problem: str,
        *,
        category: Category = Category.INVALID_WORKFLOW_CONFIG,
        hint: str | None = None,
    ) -> None:
        """Record that the key at `location` has a `problem`, a phrase that follows the key's name."""
        failure = config_failure(
            f"{dotted(location)} {problem}",
            category=category,
            where=self.source_map.where(location),
            hint=hint,
        )
        self.failed.add(location)
        self._failures.append((self.source_map.line(location), failure))

    def add(self, location: Location, failure: Failure) -> None:
        """Record an existing failure at the line of its key."""
        self.failed.add(location)
        is_missing = failure.category is Category.MISSING_TRACKER_SECRET or failure.message.endswith(
            "required"
        )
        if is_missing and location in self.source.corrected:
            return
        placed = replace(failure, where=self.source_map.where(location))
        self._failures.append((self.source_map.line(location), placed))

    def fail_each(self, error: ValidationError, at: Location = (), *, but: Location | None = None) -> None:
        """Record all errors of pydantic below `at`, except for the one at `but`."""
        for problem in error.errors(include_url=False):
            if problem["loc"] != but:
                text, hint = describe_error(problem)
                self.fail((*at, *problem["loc"]), text, hint=hint)

    def fail_variable(self, name: str, problem: str) -> None:
        """Record that an environment variable, which has no line in the file, has a `problem`."""
        self._failures.append((self.source_map.first_line, config_failure(f"{name} {problem}")))

    def warn_unknown(self, location: Location, known: Collection[str], *, hint: str | None = None) -> None:
        """Record that a key is unknown; `hint` is used if no known key is similar."""
        self.unknown.append(location)
        what = "key" if location[1:] else "section"
        self.warn(
            location,
            f"unknown {what} {quoted(dotted(location))} is ignored",
            code=WarningCode.UNKNOWN_KEY,
            hint=did_you_mean(str(location[-1]), known) or hint,
        )

    def warn(self, location: Location, message: str, *, code: WarningCode, hint: str | None = None) -> None:
        """Record a warning at `location`."""
        if code is WarningCode.UNSET_VARIABLE and location in self.source.corrected:
            return
        where = self.source_map.where(location)
        self.warnings.append(WorkflowWarning(code=code, message=message, where=where, hint=hint))


Validator = Callable[[ProblemCollector], None]
"""A check of another layer, which adds its failures and warnings to the collector."""


def dotted(location: Location) -> str:
    """A location as people write it: `tracker.active_states[1]`."""
    text = ""
    for part in location:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


# --- Messages for pydantic's errors ---

_EXPECTED: Final = {
    "bool_type": ("true or false", "write true or false, without quotes"),
    "dataclass_type": ("a map", "write its keys indented below it"),
    "dict_type": ("a map", "write its keys indented below it"),
    "float_type": ("a number", "write digits only, such as 1.25, without quotes"),
    "int_type": ("a whole number", "write digits only, without quotes"),
    "is_instance_of": ("a path", "put the value in quotes"),
    "model_type": ("a map", "write its keys indented below it"),
    "string_type": ("text", "put the value in quotes"),
    "tuple_type": ("a list", "write it as [first, second]"),
}
"""Per kind of type error: what the value must be, and how to write it."""

_BOUNDS: Final = {
    "greater_than": ("must be greater than {}", "gt"),
    "greater_than_equal": ("must be {} or more", "ge"),
    "less_than_equal": ("must be {} or less", "le"),
}
"""Per kind of bound: the phrase, and the name of the number in pydantic's context."""

_KINDS: Final[tuple[tuple[type, str], ...]] = (
    (bool, "true or false"),
    (int, "a number"),
    (float, "a decimal number"),
    (str, "text"),
    (list, "a list"),
    (dict, "a map"),
    (type(None), "nothing"),
)
"""Names of YAML values for people; bool is first because it is a subclass of int."""


_UNDERSCORED: Final = re.compile(r"[-+]?\d+(?:[_,' ]\d+)+")
_DURATION: Final = re.compile(r"\d+(?:\.\d+)?\s*(?:ms|s|secs?|seconds?|m|mins?|minutes?|h|hours?|d|days?)")


_WORDS: Final = (
    ({"int_type", "float_type"}, _UNDERSCORED, "write digits only: numbers have no separators"),
    (
        {"int_type"},
        _DURATION,
        "write digits only, in the unit that the name ends with: 30 s are 30000 in _ms",
    ),
    ({"tuple_type"}, re.compile(r".*,.*", re.DOTALL), "write it as a list, in brackets: [first, second]"),
)
"""Hints for texts that other programs or other versions of YAML accept as the wanted value."""


def _hint_for(kind: str, found: object) -> str | None:
    """A hint for a value that is nearly right; it does not contain the value."""
    if kind == "int_type" and isinstance(found, float) and found.is_integer():
        return "write a whole number, without a decimal point"
    if kind == "string_type" and isinstance(found, list):
        return "write it as one text; for several commands write | after the key and one in each line below"
    if not isinstance(found, str):
        return None
    text = found.strip().lower()
    return next((hint for kinds, form, hint in _WORDS if kind in kinds and form.fullmatch(text)), None)


def describe_error(problem: ErrorDetails) -> tuple[str, str | None]:
    """The phrase after the name of the key, and a hint; neither contains the value."""
    kind, context = problem["type"], problem.get("ctx", {})
    if kind in _EXPECTED:
        expected, hint = _EXPECTED[kind]
        found = problem["input"]
        called = next((name for known, name in _KINDS if isinstance(found, known)), type(found).__name__)
        return f"must be {expected}, not {called}", _hint_for(kind, found) or hint
    if kind in _BOUNDS:
        words, name = _BOUNDS[kind]
        return words.format(context[name]), None
    match kind:
        case "missing":
            return "is required", None
        case "literal_error" | "enum":
            return f"must be one of {context['expected']}", None
        case "value_error":
            return str(context["error"]), None
        case _:
            return f"is not valid ({kind})", None
