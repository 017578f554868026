"""The raw tool of a tracker: the model names a request, the daemon makes it with its credential (AG17, TR12).

What the tool may reach is what the credential may reach, unless `scope` narrows it to the project or to the
session's own issue. The guard looks at the path as the server will: decoded, and without dots to climb with.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any
from urllib.parse import unquote

from symphony.domain.tools import ToolResult, ToolSpec
from symphony.trackers.http.model import Answer, Flow, Request

__all__ = [
    "RestCall",
    "RestTool",
    "Scope",
    "beyond",
    "graphql_spec",
    "query_of",
    "rest_call",
    "rest_flow",
    "rest_spec",
    "shown",
    "within",
]

MAX_RESULT_CHARS = 60_000
MAX_PATH_CHARS = 2_000
_ANSWERS = frozenset({400, 402, 403, 404, 405, 406, 409, 410, 412, 415, 422})
_BAD_PATH = re.compile(r"[\x00-\x20\x7f\\#]|://")
_OK = range(200, 300)


class Scope(StrEnum):
    """What the raw tool may reach; `OFF` means that it is not offered."""

    TOKEN = "token"  # noqa: S105 - a reach, not a secret
    PROJECT = "project"
    ISSUE = "issue"
    OFF = "off"


@dataclass(frozen=True, slots=True, kw_only=True)
class RestCall:
    """A request as the model named it; its arguments are sound."""

    method: str
    path: str
    query: tuple[tuple[str, str], ...]
    body: Any

    @property
    def steps(self) -> tuple[str, ...]:
        """The decoded parts of the path."""
        return tuple(unquote(step) for step in self.path.partition("?")[0].strip("/").split("/"))


def rest_spec(name: str, service: str, methods: Sequence[str], *, note: str = "") -> ToolSpec:
    """The tool as it is advertised."""
    return ToolSpec(
        name=name,
        description=(
            f"Call the {service} REST API with the daemon's credential. "
            f"`path` begins with a slash and is below the API's base address. {note}"
        ).strip(),
        input_schema={
            "type": "object",
            "properties": {
                "method": {"type": "string", "enum": list(methods)},
                "path": {"type": "string", "minLength": 1, "maxLength": MAX_PATH_CHARS},
                "query": {"type": ["object", "null"], "additionalProperties": True},
                "body": {"type": ["object", "array", "null"]},
            },
            "required": ["method", "path"],
            "additionalProperties": False,
        },
    )


def graphql_spec(name: str, service: str) -> ToolSpec:
    """The GraphQL tool as it is advertised."""
    return ToolSpec(
        name=name,
        description=f"Run one GraphQL query or mutation against {service} with the daemon's credential.",
        input_schema={
            "type": "object",
            "properties": {
                "query": {"type": "string", "minLength": 1},
                "variables": {"type": ["object", "null"], "additionalProperties": True},
            },
            "required": ["query"],
            "additionalProperties": False,
        },
    )


def rest_call(arguments: object, methods: Sequence[str], *, below: str = "/") -> RestCall | str:
    """The call that the arguments name, or what is wrong with them."""
    if not isinstance(arguments, Mapping):
        return "the arguments must be an object"
    unknown = sorted(str(key) for key in arguments if key not in {"method", "path", "query", "body"})
    if unknown:
        return f"unknown argument {unknown[0][:80]!r}"
    method, path = arguments.get("method"), arguments.get("path")
    if not isinstance(method, str) or method.upper() not in methods:
        return f"`method` must be one of {', '.join(methods)}"
    if not isinstance(path, str) or not path.startswith(below) or len(path) > MAX_PATH_CHARS:
        return f"`path` must begin with {below} and have at most {MAX_PATH_CHARS} characters"
    query = arguments.get("query")
    if query is not None and not isinstance(query, Mapping):
        return "`query` must be an object or null"
    call = RestCall(method=method.upper(), path=path, query=_pairs(query or {}), body=arguments.get("body"))
    return call if _sound(call) else "`path` must not hold `://`, `..`, blanks or control characters"


def _sound(call: RestCall) -> bool:
    decoded = call.path
    for _ in range(4):  # what is encoded twice is decoded twice by some server in between
        if _BAD_PATH.search(decoded) or any(step in {".", ".."} for step in re.split(r"[/?]", decoded)):
            return False
        if "//" in decoded.partition("?")[0]:
            return False
        again = unquote(decoded.replace("%20", "+"))
        if again == decoded:
            return True
        decoded = again
    return False


def _pairs(query: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    return tuple(
        (str(key), _plain(entry))
        for key, value in query.items()
        for entry in (value if isinstance(value, list) else [value])
        if entry is not None
    )


def _plain(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def beyond(call: RestCall, *allowed: Sequence[str], scope: Scope) -> str | None:
    """Why the scope forbids the call, or null: its path must begin with one of these rows of parts."""
    steps = [step.lower() for step in call.steps]
    for row in allowed:
        if steps[: len(row)] == [part.lower() for part in row]:
            return None
    return f"`scope: {scope.value}` keeps this tool away from {call.path[:200]!r}"


def within(
    call: RestCall, scope: Scope, *, issue: Sequence[Sequence[str]], project: Sequence[Sequence[str]]
) -> str | None:
    """As `beyond`, by the rows of the session's issue and of the project; a token's scope forbids nothing."""
    match scope:
        case Scope.ISSUE:
            return beyond(call, *issue, scope=scope)
        case Scope.PROJECT:
            return beyond(call, *project, scope=scope)
        case _:
            return None


def rest_flow(
    call: RestCall, endpoint: str, *, show: Callable[[Any], Any] = lambda body: body
) -> Flow[ToolResult]:
    """Make the call; a refusal of the service is an answer to the model, as `show` lets it see the body."""
    answer = yield Request(
        endpoint=endpoint,
        method=call.method,
        path=call.path,
        query=call.query,
        body=call.body,
        accept=_ANSWERS,
    )
    return shown(replace(answer, body=show(answer.body)), success=answer.status in _OK)


@dataclass(frozen=True, slots=True, kw_only=True)
class RestTool:
    """The raw tool of one tracker; `note` is told to the model, `below` is where paths begin."""

    name: str
    service: str
    methods: Sequence[str]
    scope: Scope
    note: str
    below: str = "/"

    def specs(self) -> tuple[ToolSpec, ...]:
        """The tool as it is advertised, unless the scope is `off`."""
        if self.scope is Scope.OFF:
            return ()
        return (rest_spec(self.name, self.service, self.methods, note=self.note),)

    def call(self, arguments: object, guard: Callable[[RestCall], str | None]) -> Flow[ToolResult]:
        """Make the call that the arguments name, unless `guard` says why not; both are told to the model."""
        call = rest_call(arguments, self.methods, below=self.below)
        if isinstance(call, str):
            return ToolResult.error(call)
        problem = guard(call)
        if problem is not None:
            return ToolResult.error(problem)
        return (yield from rest_flow(call, self.name))


def shown(answer: Answer, *, success: bool) -> ToolResult:
    """An answer as the model reads it, cut where it is long."""
    text = json.dumps({"status": answer.status, "body": answer.body}, ensure_ascii=False)
    if len(text) > MAX_RESULT_CHARS:
        whole = json.dumps(answer.body, ensure_ascii=False)
        cut = {"status": answer.status, "cut_at": MAX_RESULT_CHARS, "text": whole[:MAX_RESULT_CHARS]}
        text = json.dumps(cut, ensure_ascii=False)
    return ToolResult(success=success, text=text)


def query_of(arguments: object) -> tuple[str, Mapping[str, Any]] | str:
    """Query and variables of a GraphQL call, which may be the bare query; or what is wrong with them."""
    if isinstance(arguments, str):
        arguments = {"query": arguments}
    if not isinstance(arguments, Mapping):
        return "the arguments must be an object"
    unknown = sorted(str(key) for key in arguments if key not in {"query", "variables"})
    if unknown:
        return f"unknown argument {unknown[0][:80]!r}"
    query, variables = arguments.get("query"), arguments.get("variables")
    if not isinstance(query, str) or not query.strip():
        return "`query` must be a text that is not empty"
    if variables is not None and not isinstance(variables, Mapping):
        return "`variables` must be an object or null"
    return query, variables or {}
