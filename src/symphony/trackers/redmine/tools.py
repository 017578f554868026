"""The raw tool of Redmine and its guard.

The path of an issue does not say which project it is in, so `scope: project` asks. Redmine shows a key to
whom it belongs to, and all keys to administrators: no answer leaves here with one.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import quote

from symphony.domain.issue import Issue
from symphony.domain.redaction import MASK
from symphony.domain.tools import ToolResult, ToolSpec
from symphony.trackers.http import Flow
from symphony.trackers.raw_tools import (
    Reach,
    RestCall,
    Scope,
    Write,
    beyond,
    marked,
    out_of_scope,
    rest_call,
    rest_flow,
    rest_spec,
)
from symphony.trackers.reading import mapping
from symphony.trackers.redmine.config import RedmineConfig

__all__ = ["TOOL", "call_flow", "spec"]

TOOL = "redmine_api"
_METHODS = ("GET", "POST", "PUT", "DELETE")
_SUFFIX = ".json"
_LISTS = ("issue_statuses", "trackers", "enumerations")
"""What holds for the whole Redmine and has to be known to write an issue; reading it is always allowed."""

_FIELDS = (
    "subject", "description", "status_id", "tracker_id", "priority_id", "assigned_to_id", "category_id",
    "fixed_version_id", "done_ratio", "estimated_hours", "start_date", "due_date", "is_private", "notes",
    "private_notes", "custom_fields", "lock_version",
)  # fmt: skip
_EDITED = " ".join(f"issue.{field}" for field in _FIELDS)

IsOurs = Callable[[str], Flow[bool]]
"""Whether an issue is in scope; asks the service."""


def spec(config: RedmineConfig) -> ToolSpec:
    """The tool as it is advertised."""
    note = f"Paths end in {_SUFFIX}. The project is {config.project}."
    return rest_spec(TOOL, "Redmine", _METHODS, note=note)


def call_flow(
    arguments: Mapping[str, Any], config: RedmineConfig, issue: Issue, is_ours: IsOurs
) -> Flow[ToolResult]:
    """One raw request; a refusal of Redmine is an answer to the model."""
    call = rest_call(arguments, _METHODS)
    if isinstance(call, str):
        return ToolResult.error(call)
    if not call.steps[-1].endswith(_SUFFIX):
        return ToolResult.error(f"`path` must end in {_SUFFIX}")
    problem = yield from _beyond(call, config, issue, is_ours)
    if problem is not None:
        return out_of_scope(problem)
    said = _marked(call)
    if isinstance(said, str):
        return ToolResult.error(said)
    return (yield from rest_flow(said, TOOL, show=_masked))


def _beyond(call: RestCall, config: RedmineConfig, issue: Issue, is_ours: IsOurs) -> Flow[str | None]:
    """Why the scope forbids the call, or null.

    Not within reach: relations, parents, watchers, uploads, time entries, and what moves to another project.
    """
    scope = config.scope
    steps = [step.removesuffix(_SUFFIX) for step in call.steps]
    if scope is Scope.TOKEN:
        return None
    query = f"?{call.path.partition('?')[2]}" if "?" in call.path else ""
    bare = replace(call, path=f"/{'/'.join(quote(step, safe='') for step in steps)}{query}")
    own, project = ("issues", issue.id), ("projects", config.project)
    issues = [own]
    reads: list[tuple[str, ...]] = [(name,) for name in _LISTS]
    if scope is Scope.PROJECT:
        reads.append(project)
        if steps[0].lower() == "issues" and len(steps) > 1 and (yield from is_ours(steps[1])):
            issues.append(("issues", steps[1]))
    reach = Reach(reads=(*reads, *issues), writes=tuple(Write("PUT", each, _EDITED) for each in issues))
    return beyond(bare, reach, scope=scope)


def _marked(call: RestCall) -> RestCall | str:
    """Mark what the call writes as a note of an agent."""
    if call.method == "GET":
        return call
    if "notes" in call.path.partition("?")[2] or any("notes" in key for key, _ in call.query):
        return "give a note in `body`"
    found: RestCall | str = call
    for place in (("issue", "notes"), ("journal", "notes"), ("notes",)):
        within = mapping(call.body) if len(place) == 1 else mapping(mapping(call.body).get(place[0]))
        if place[-1] in within and not isinstance(found, str):
            found = marked(found, *place)
    return found


def _masked(body: Any) -> Any:
    match body:
        case dict():
            return {key: MASK if key == "api_key" else _masked(value) for key, value in body.items()}
        case list():
            return [_masked(entry) for entry in body]
        case _:
            return body
