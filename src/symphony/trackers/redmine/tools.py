"""The raw tool of Redmine and its guard.

The path of an issue does not say which project it is in, so `scope: project` asks. Redmine shows a key to
whom it belongs to, and all keys to administrators: no answer leaves here with one.
"""

from collections.abc import Callable, Mapping
from typing import Any

from symphony.domain.issue import Issue
from symphony.domain.redaction import MASK
from symphony.domain.tools import ToolResult, ToolSpec
from symphony.trackers.http import Flow
from symphony.trackers.raw_tools import RestCall, Scope, beyond, rest_call, rest_flow, rest_spec
from symphony.trackers.reading import mapping
from symphony.trackers.redmine.config import RedmineConfig

__all__ = ["TOOL", "call_flow", "spec"]

TOOL = "redmine_api"
_METHODS = ("GET", "POST", "PUT", "DELETE")
_SUFFIX = ".json"
_LISTS = ("issue_statuses", "trackers", "enumerations")
"""What holds for the whole Redmine and has to be known to write an issue; reading it is always allowed."""

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
        return ToolResult.error(problem)
    return (yield from rest_flow(call, TOOL, show=_masked))


def _beyond(call: RestCall, config: RedmineConfig, issue: Issue, is_ours: IsOurs) -> Flow[str | None]:
    """Why the scope forbids the call, or null."""
    scope = config.scope
    steps = [step.removesuffix(_SUFFIX) for step in call.steps]
    if scope is Scope.TOKEN or (call.method == "GET" and steps[0] in _LISTS):
        return None
    if call.method != "GET" and (call.query or "?" in call.path):
        return f"`scope: {scope.value}` takes what is written from `body` only"
    if "project_id" in mapping(mapping(call.body).get("issue")):
        return f"`scope: {scope.value}` keeps issues in their project: leave `project_id` out"
    bare = RestCall(method=call.method, path="/" + "/".join(steps), query=(), body=None)
    if scope is Scope.ISSUE:
        return beyond(bare, ("issues", issue.id), scope=scope)
    if steps[0] == "issues" and len(steps) > 1:
        ours = yield from is_ours(steps[1])
        return None if ours else f"`scope: project` keeps this tool away from issue {steps[1][:40]!r}"
    return beyond(bare, ("projects", config.project), scope=scope)


def _masked(body: Any) -> Any:
    match body:
        case dict():
            return {key: MASK if key == "api_key" else _masked(value) for key, value in body.items()}
        case list():
            return [_masked(entry) for entry in body]
        case _:
            return body
