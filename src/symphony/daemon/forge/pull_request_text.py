"""The daemon's title and text of pull requests, and the marker by which it recognises its own.

Texts of agents and issues are untrusted: mentions and hidden comments are removed (`without_mentions`).
"""

import hashlib
import re
from dataclasses import replace
from typing import Final

from msgspec import structs

from symphony.config import ForgeSettings, render_pull_request_text
from symphony.domain import Issue, one_line
from symphony.scheduler import IssueResult

_MAX_TITLE: Final = 200
_MAX_BODY: Final = 32_000
_MARKER: Final = re.compile(r"<!-- symphony:pull-request v1 key=([0-9a-f]{32}) -->")


def marker_of(scope: str, issue_id: str) -> str:
    """The marker of the pull request of an issue; `scope` distinguishes workflows."""
    key = hashlib.sha256(f"{scope}\0{issue_id}".encode(errors="replace")).hexdigest()[:32]
    return f"<!-- symphony:pull-request v1 key={key} -->"


def find_marker(body: str) -> str | None:
    """The first marker in the text of a pull request. People who can edit the text may have copied one."""
    found = _MARKER.search(body)
    return None if found is None else found.group()


def without_mentions(text: str) -> str:
    """The text with each `@` in a code span, so that it notifies nobody, and without HTML comments.

    A code span of one character is harmless even inside other code spans and code blocks.
    """
    return text.replace("@", "`@`").replace("<!--", "&lt;!--")


def pull_request_text(
    settings: ForgeSettings, result: IssueResult, *, base: str, marker: str
) -> tuple[str, str]:
    """Title and text of the pull request of a result, which must have a delivered branch.

    Raises:
        ValueError: a template cannot be rendered; the message says which, and why.
    """
    delivered, issue = result.delivered, result.issue
    assert delivered is not None  # noqa: S101 - the caller opens pull requests of branches only
    shown = replace(issue, title=without_mentions(issue.title))
    values = {
        "summary": without_mentions(result.summary or ""),
        "branch": delivered.branch,
        "base": base,
        **structs.asdict(delivered.work),
        "turns": result.turns,
        "total_tokens": result.usage.tokens.total_tokens,
        "cost_usd": None if result.usage.cost_usd is None else f"{result.usage.cost_usd:.2f}",
    }

    def rendered(key: str, source: str | None) -> str:
        try:
            return render_pull_request_text(source, shown, values).strip()
        except ValueError as error:
            raise ValueError(f"forge.{key}: {error}") from error

    title = one_line(rendered("title", settings.title), _MAX_TITLE) or issue.identifier
    body = rendered("body", settings.body)[:_MAX_BODY]
    return title, "\n\n".join([_link(issue), body, *_artifacts(result), f"{marker}\n"])


def _artifacts(result: IssueResult) -> list[str]:
    """The names of the files that the checks of the delivered commit left."""
    made, delivered = result.verification, result.delivered
    if made is None or delivered is None or made.head != delivered.head or not made.artifacts:
        return []
    names = (without_mentions(one_line(each.name).replace("`", "'")) for each in made.artifacts)
    return ["Files of its checks, stored where Symphony runs: " + ", ".join(f"`{name}`" for name in names)]


def _link(issue: Issue) -> str:
    name = without_mentions(re.sub(r"[\[\]\\<>]", "", one_line(issue.identifier)))
    url = issue.url or ""
    if not re.fullmatch(r"https?://[^\s<>]+", url):
        return f"Issue: {name}"
    return f"Issue: [{name}](<{url}>)"
