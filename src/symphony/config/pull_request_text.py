"""Title and text of pull requests: the Liquid templates `forge.title` and `forge.body`."""

import time
from collections.abc import Mapping
from typing import Final

from liquid.exceptions import LiquidError
from msgspec import structs

from symphony.config.template import BoundedEnvironment, check_markup, render_bounded
from symphony.domain import NO_WORK, Issue, template_view

DEFAULT_PULL_REQUEST: Final = """\
{{ summary }}

{{ commits }} commits, {{ files_changed }} files (+{{ insertions }} -{{ deletions }}). \
{{ turns }} turns, {{ total_tokens }} tokens{% if cost_usd %}, ${{ cost_usd }}{% endif %}.
"""
"""The template of the text unless `forge.body` is set."""

_ENVIRONMENT: Final = BoundedEnvironment()
_EXAMPLE: Final[Mapping[str, object]] = {
    "summary": "",
    "branch": "",
    "base": "",
    **structs.asdict(NO_WORK),
    "turns": 0,
    "total_tokens": 0,
    "cost_usd": None,
}

PULL_REQUEST_NAMES: Final = frozenset(_EXAMPLE)
"""The variables of these templates besides `issue`."""


def render_pull_request_text(source: str | None, issue: Issue, values: Mapping[str, object]) -> str:
    """The rendered template with values for `PULL_REQUEST_NAMES`; `None` is the default template of the text.

    Raises:
        ValueError: it cannot be rendered; the message says why, in one line.
    """
    source = source or DEFAULT_PULL_REQUEST
    try:
        check_markup(source)
        variables = {**_EXAMPLE, **values, "issue": template_view(issue)}
        return render_bounded(_ENVIRONMENT.from_string(source), variables, clock=time.monotonic)
    except LiquidError as error:
        raise ValueError(str(error.message)) from error
    except Exception as error:  # filters may raise anything
        raise ValueError(f"{type(error).__name__}: {error}".splitlines()[0]) from error


def pull_request_text_problem(source: str | None) -> str | None:
    """Why a template cannot be used, tried with an issue without any text; `None` if it can."""
    try:
        render_pull_request_text(
            source, Issue(id="", identifier="", title="", state="", dispatchable=True), {}
        )
    except ValueError as error:
        return str(error)
    return None
