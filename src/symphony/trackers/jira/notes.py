"""Comments of Jira: rich text has no hidden parts, so the marker of ours is kept in a property beside it."""

from dataclasses import replace
from typing import Any

from symphony.trackers.comments import AGENT_MARK
from symphony.trackers.jira.adf import document_of, markdown_of
from symphony.trackers.raw_tools import RestCall
from symphony.trackers.reading import items, mapping, text

__all__ = ["PROPERTY", "body_of", "marked", "marker_in", "marker_of", "written"]

PROPERTY = "symphony.note"
"""The key of the property."""

_MARKER = "<!-- symphony:"
_END = " -->"


def written(body: str) -> dict[str, Any]:
    """What to write so that a comment says `body`; a text without a marker takes an old one away."""
    first, _, rest = body.partition("\n")
    marker = first if first.startswith(_MARKER) and first.endswith(_END) else ""
    return {
        "body": document_of(rest if marker else body),
        "properties": [{"key": PROPERTY, "value": {"marker": marker}}],
    }


def marked(call: RestCall) -> RestCall | str:
    """Mark what the raw tool writes as a comment of an agent, or say how a comment is to be written."""
    body = mapping(call.body)
    if call.method == "GET" or not body:
        return call
    if "comment" in mapping(body.get("update")):
        return "write a comment by a call of its own: POST /rest/api/3/issue/{id}/comment"
    if "comment" not in call.steps:
        return call
    others = [one for one in items(body.get("properties")) if mapping(one).get("key") != PROPERTY]
    mark = {"key": PROPERTY, "value": {"marker": AGENT_MARK}}
    return replace(call, body={**body, "properties": [*others, mark]})


def marker_of(record: Any) -> str | None:
    """The marker of a listed comment: empty where it has none, null where Jira tells no properties."""
    properties = mapping(record).get("properties")
    if not isinstance(properties, list):
        return None
    values = (mapping(each).get("value") for each in properties if mapping(each).get("key") == PROPERTY)
    return next((marker_in(value) for value in values), "")


def marker_in(value: Any) -> str:
    """The marker in the value of the property, or an empty text."""
    return text(mapping(value).get("marker")) or ""


def body_of(record: Any, marker: str) -> str:
    """The body with its marker as it was given to `written`."""
    body = markdown_of(mapping(record).get("body")) or ""
    return f"{marker}\n{body}" if marker else body
