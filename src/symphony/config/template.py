"""The body of `WORKFLOW.md` as a prompt: checked once, rendered for every attempt (PR1-PR5, PR9)."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from liquid import BoundTemplate
from liquid.exceptions import LiquidError, OutputStreamLimitError, ResourceLimitError
from liquid.token import TOKEN_TAG, Token

from symphony.config.errors import WorkflowError, config_failure, did_you_mean
from symphony.config.prompts import DEFAULT_PROMPT
from symphony.config.template_analysis import findings
from symphony.config.template_limits import (
    FILE_TAGS,
    MAX_OUTPUT_BYTES,
    BoundedEnvironment,
    check_markup,
    render_bounded,
)
from symphony.domain.failures import Category, Failure
from symphony.domain.issue import Issue, template_view

__all__ = ["PromptTemplate", "issue_too_long"]

_ENVIRONMENT: Final = BoundedEnvironment()
_INTERNAL_TAGS: Final = frozenset({"content", "illegal", "output"})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Origin:
    """The trimmed text of a template, and where in which file it begins."""

    text: str
    path: Path
    first_line: int

    def where(self, index: int) -> str:
        """`path:line` of a character of the text."""
        return f"{self.path}:{self.first_line + _line_of(self.text, index)}"


class PromptTemplate:
    """A prompt that is known to parse, and to name nothing that cannot exist."""

    __slots__ = ("_clock", "_origin", "_template")

    def __init__(self, template: BoundTemplate, origin: _Origin, clock: Callable[[], float]) -> None:
        self._template = template
        self._origin = origin
        self._clock = clock

    @classmethod
    def parse(
        cls, source: str, *, path: Path, first_line: int = 1, clock: Callable[[], float] = time.monotonic
    ) -> "PromptTemplate":
        """Parse a body; outer blanks are dropped, and the default prompt stands in for an empty one.

        Args:
            source: the text behind the front matter.
            path: for messages.
            first_line: line number of the first line of `source` in that file, from 1.
            clock: monotonic seconds, for the time limit of rendering.

        Raises:
            WorkflowError: `template_parse_error` for one syntax error, or `template_render_error` for every
                unknown variable, issue field and filter; each with its `path:line`.
        """
        blank = len(source) - len(source.lstrip())
        text = source.strip() or DEFAULT_PROMPT
        origin = _Origin(text=text, path=path, first_line=first_line + _line_of(source, blank))
        template = _compile(origin)
        _refuse_unknown_names(template, origin)
        return cls(template, origin, clock)

    @property
    def source(self) -> str:
        """The template text that is rendered, trimmed (WF6)."""
        return self._origin.text

    def where(self, index: int) -> str:
        """`path:line` of a character of `source`."""
        return self._origin.where(index)

    def render(self, issue: Issue, attempt: int | None) -> str:
        """The prompt of a first turn; issue text is data and is never rendered a second time (FL4).

        Args:
            issue: as the tracker showed it last.
            attempt: null on the first run, a number from 1 on every later one (PR3).

        Raises:
            WorkflowError: `template_render_error`; only this attempt fails (PR7). `issue_too_long` where the
                text of the issue alone is the reason: no attempt can go better until it is shortened.
        """
        variables = {"issue": template_view(issue), "attempt": attempt}
        try:
            return render_bounded(self._template, variables, clock=self._clock)
        except Exception as error:
            text_bytes = len(f"{issue.title}{issue.description or ''}".encode(errors="replace"))
            if _is_too_long(error, text_bytes):
                measure = f"{text_bytes:,} bytes of title and description"
                raise WorkflowError([issue_too_long(measure)]) from error
            raise WorkflowError([_render_failure(error, self._origin)]) from error


def issue_too_long(measure: str) -> Failure:
    """Why no session can be told of an issue; `measure` says how long its text is, or for whom."""
    return config_failure(
        f"the text of the issue is too long: {measure}",
        category=Category.ISSUE_TOO_LONG,
        hint="shorten the description of the issue, for example by a file of the repository that it names",
    )


def _is_too_long(error: Exception, text_bytes: int) -> bool:
    """Whether the text of the issue is the reason of a limit, and not what the template makes of it."""
    if isinstance(error, OutputStreamLimitError):
        return text_bytes > MAX_OUTPUT_BYTES // 2
    return isinstance(error, ResourceLimitError) and text_bytes > MAX_OUTPUT_BYTES


def _compile(origin: _Origin) -> BoundTemplate:
    try:
        check_markup(origin.text)
        return _ENVIRONMENT.from_string(origin.text)
    except LiquidError as error:
        where = origin.where(_index(error.token, end=len(origin.text)))
        raise WorkflowError([_syntax_failure(error, where)]) from error


def _refuse_unknown_names(template: BoundTemplate, origin: _Origin) -> None:
    try:
        found = findings(template)
    except RecursionError as error:
        raise WorkflowError([_too_deep(origin.where(0))]) from error
    if found:
        category = Category.TEMPLATE_RENDER_ERROR
        raise WorkflowError(
            [
                config_failure(
                    item.message, category=category, where=origin.where(item.index), hint=item.hint
                )
                for item in found
            ]
        )


def _render_failure(error: Exception, origin: _Origin) -> Failure:
    token = error.token if isinstance(error, LiquidError) else None
    message, hint = (
        _reason(error),
        "the prompt template could not be filled in for this issue; edit it and save",
    )
    if isinstance(error, OutputStreamLimitError):
        message = f"the prompt would be longer than {MAX_OUTPUT_BYTES} bytes"
        hint = "shorten the issue's description; if it is short, the template writes too much"
    return config_failure(
        message,
        category=Category.TEMPLATE_RENDER_ERROR,
        where=origin.where(_index(token)),
        hint=hint,
        retryable=True,
    )


def _line_of(text: str, index: int) -> int:
    """How many lines end before `index`."""
    return text.count("\n", 0, index)


def _index(token: Token | None, *, end: int = 0) -> int:
    """Where in the source a token stands; the library marks the end of the source by a negative index."""
    if token is None:
        return 0
    return token.start_index if token.start_index >= 0 else end


def _reason(error: Exception) -> str:
    """One line of the error, without the source excerpt that the library appends to its text."""
    if isinstance(error, LiquidError):
        return str(error.message)
    return f"{type(error).__name__}: {error}".splitlines()[0]


def _syntax_failure(error: LiquidError, where: str) -> Failure:
    token = error.token
    if token is None:
        return _too_deep(where)
    message, hint = _reason(error), None
    if token.kind == TOKEN_TAG and token.value in FILE_TAGS:
        message = f'tag "{token.value}" is not available'
        hint = "a prompt is one file: put the text itself here"
    elif token.kind == TOKEN_TAG and token.value not in _ENVIRONMENT.tags:
        hint = did_you_mean(token.value, _ENVIRONMENT.tags.keys() - _INTERNAL_TAGS)
    elif token.start_index < 0:
        hint = "a block that was opened above is never closed"
    return config_failure(message, category=Category.TEMPLATE_PARSE_ERROR, where=where, hint=hint)


def _too_deep(where: str) -> Failure:
    return config_failure(
        "the template is nested too deeply to be understood",
        category=Category.TEMPLATE_PARSE_ERROR,
        where=where,
        hint="simplify the longest condition or the deepest brackets",
    )
