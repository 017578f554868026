"""The raw tool of a tracker: the model names an API request, the daemon sends it with its credential.

The tool reaches what the credential reaches, unless `tracker.provider.scope` narrows it to the project or to
the session's own issue. Then `Reach` lists what is allowed, and everything else is refused before it is sent.
The guard checks the path as the server will see it, decoded and without dots, and every key of query and
body, because a key may name something outside the scope.

Comments that agents write by the tool are marked (`comments.AGENT_MARK`).
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any
from urllib.parse import parse_qsl, unquote

from msgspec import Struct

from symphony.domain import ToolResult, ToolSpec
from symphony.http import Flow, HttpResponse, Request
from symphony.http.fields import dig
from symphony.trackers.comments import AGENT_MARK
from symphony.trackers.tools import object_schema, unknown_argument

MAX_RESULT_CHARS = 60_000
MAX_PATH_CHARS = 2_000
_OK = range(200, 300)
_ANSWERS = frozenset({400, 402, 403, 404, 405, 406, 409, 410, 412, 415, 422})
"""Error statuses that the model gets as an answer."""

_BAD_PATH = re.compile(r"[\x00-\x20\x7f\\#]|://")
_COMMENT_STEPS = frozenset({"comment", "comments", "notes", "stories"})
_COMMENT_MUTATION = re.compile(r"\bcommentCreate\b")
_BODY_ARGUMENT = re.compile(r'\bbody\s*:\s*("""|"|\$(\w+))')


class RawToolScope(StrEnum):
    """The scope of the raw tool; with `OFF` the tool is not offered."""

    TOKEN = "token"  # noqa: S105 - a scope, not a secret
    PROJECT = "project"
    ISSUE = "issue"
    OFF = "off"


# --- requests --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class RestCall:
    """A request of the model with valid arguments; its path ends in `suffix`."""

    method: str
    path: str
    query: tuple[tuple[str, str], ...]
    body: Any
    suffix: str = ""

    @property
    def steps(self) -> tuple[str, ...]:
        """The decoded steps of the path, without the suffix."""
        steps = self.path.partition("?")[0].strip("/").split("/")
        return tuple(unquote(step).removesuffix(self.suffix) for step in steps)

    @property
    def writes_comment(self) -> bool:
        """Whether the request writes a comment, on any of the services."""
        if self.method == "POST" and self.steps[-1].lower() in _COMMENT_STEPS:
            return True
        return self.method == "PUT" and bool(dig(self.body, "issue", "notes"))


def rest_spec(name: str, service: str, methods: Sequence[str], *, note: str = "") -> ToolSpec:
    """The tool for a REST API."""
    return ToolSpec(
        name=name,
        description=(
            f"Call the {service} REST API with the daemon's credential. "
            f"`path` begins with a slash and is below the API's base address. {note}"
        ).strip(),
        input_schema=object_schema(
            {
                "method": {"type": "string", "enum": list(methods)},
                "path": {"type": "string", "minLength": 1, "maxLength": MAX_PATH_CHARS},
                "query": {"type": ["object", "null"], "additionalProperties": True},
                "body": {"type": ["object", "array", "null"]},
            },
            required=("method", "path"),
        ),
    )


def rest_call(
    arguments: object, methods: Sequence[str], *, prefix: str = "/", suffix: str = ""
) -> RestCall | str:
    """The request in the arguments, or what is wrong with them."""
    if problem := unknown_argument(arguments, ("method", "path", "query", "body")):
        return problem
    method, path, query = (dig(arguments, key) for key in ("method", "path", "query"))
    problem = None
    if not isinstance(method, str) or method.upper() not in methods:
        problem = f"`method` must be one of {', '.join(methods)}"
    elif not isinstance(path, str) or not path.startswith(prefix) or len(path) > MAX_PATH_CHARS:
        problem = f"`path` must begin with {prefix} and have at most {MAX_PATH_CHARS} characters"
    elif not unquote(path.partition("?")[0]).endswith(suffix):
        problem = f"`path` must end in {suffix}"
    elif query is not None and not isinstance(query, Mapping):
        problem = "`query` must be an object or null"
    elif not _is_sound(path):
        problem = "`path` must not contain `://`, `..`, blanks or control characters"
    if problem is not None:
        return problem
    pairs = tuple(
        (str(key), entry if isinstance(entry, str) else json.dumps(entry))
        for key, value in (query or {}).items()
        for entry in (value if isinstance(value, list) else [value])
        if entry is not None
    )
    return RestCall(method=method.upper(), path=path, query=pairs, body=dig(arguments, "body"), suffix=suffix)


def _is_sound(path: str) -> bool:
    decoded = path
    for _ in range(4):  # an intermediate server may decode it more than once
        if _BAD_PATH.search(decoded) or any(step in {".", ".."} for step in re.split(r"[/?]", decoded)):
            return False
        if "//" in decoded.partition("?")[0]:
            return False
        again = unquote(decoded.replace("%20", "+"))
        if again == decoded:
            return True
        decoded = again
    return False


def rest_flow(
    call: RestCall, endpoint: str, *, mask: Callable[[Any], Any] = lambda body: body
) -> Flow[ToolResult]:
    """Send the request. The model gets a refusal by the service as an answer, and sees the masked body."""
    answer = yield Request(
        endpoint=endpoint,
        method=call.method,
        path=call.path,
        query=call.query,
        body=call.body,
        accept=_ANSWERS,
    )
    masked = replace(answer, body=mask(answer.body))
    result = show(masked, success=answer.status in _OK, read_only=call.method == "GET")
    return replace(result, commented=result.success and call.writes_comment)


def show(answer: HttpResponse, *, success: bool, read_only: bool) -> ToolResult:
    """An answer for the model, cut if it is long."""
    text = json.dumps({"status": answer.status, "body": answer.body}, ensure_ascii=False)
    if len(text) > MAX_RESULT_CHARS:
        body = json.dumps(answer.body, ensure_ascii=False)[:MAX_RESULT_CHARS]
        cut = {"status": answer.status, "cut_at": MAX_RESULT_CHARS, "text": body}
        text = json.dumps(cut, ensure_ascii=False)
    return ToolResult(success=success, text=text, read_only=read_only)


# --- scopes ----------------------------------------------------------------------------------------------

NUMBERED = "{number}"
"""Matches a path step that is a number or a digest."""
ANY = "{any}"
"""Matches any path step."""
_NUMBER = re.compile(r"[0-9a-f]{1,64}")
_METHOD_OVERRIDES = frozenset({"_method", "opt_method"})
"""Query keys that some servers use instead of the HTTP method."""


class AllowedWrite(Struct, frozen=True):
    """A write that a narrowed scope allows.

    Attributes:
        methods: HTTP methods, separated by blanks.
        path: the decoded steps of the path, some of them `NUMBERED` or `ANY`.
        keys: the allowed keys of body and query, separated by blanks; `fields.summary` is a key within
            `fields`. Keys that could name another issue, project or place are not among them.
    """

    methods: str
    path: tuple[str, ...]
    keys: str = ""

    def matches(self, call: RestCall) -> bool:
        """Whether method and path of the request are those of this write."""
        return (
            call.method in self.methods.split()
            and len(call.steps) == len(self.path)
            and all(map(_matches, call.steps, self.path))
        )


class Reach(Struct, frozen=True, kw_only=True):
    """What a narrowed scope allows: reads at and below these paths, and these writes."""

    reads: tuple[tuple[str, ...], ...]
    writes: tuple[AllowedWrite, ...] = ()


def _matches(step: str, pattern: str) -> bool:
    if pattern == NUMBERED:
        return _NUMBER.fullmatch(step) is not None
    return pattern == ANY or step.lower() == pattern.lower()


def scope_problem(call: RestCall, reach: Reach, scope: RawToolScope) -> str | None:
    """Why the scope forbids the request, or `None`."""
    forbidden = f"`tracker.provider.scope: {scope}` does not allow {call.method} {call.path[:200]!r}"
    in_path = parse_qsl(call.path.partition("?")[2], keep_blank_values=True)
    query_keys = [key for key, _ in (*call.query, *in_path)]
    if call.method == "GET":
        allowed = any(
            len(path) <= len(call.steps) and all(map(_matches, call.steps, path)) for path in reach.reads
        )
        return None if allowed and _METHOD_OVERRIDES.isdisjoint(map(str.lower, query_keys)) else forbidden
    write = next((write for write in reach.writes if write.matches(call)), None)
    if write is None:
        return forbidden
    if call.body is not None and not isinstance(call.body, Mapping):
        return f"{forbidden} unless its body is an object"
    known = write.keys.split()
    unknown = [key for key in (*query_keys, *_body_keys(call.body or {}, known)) if key not in known]
    if unknown:
        allowed_keys = f"it takes {', '.join(known)}" if known else "it takes nothing"
        return f"{forbidden} with {unknown[0][:80]!r}: {allowed_keys}"
    return None


def _body_keys(body: Mapping[str, Any], known: Sequence[str]) -> list[str]:
    """The keys of a body; for a map that is not known as a whole, the keys inside it."""
    return [
        name
        for key, value in body.items()
        for name in (
            (f"{key}.{inner}" for inner in value)
            if key not in known and isinstance(value, Mapping) and value
            else (str(key),)
        )
    ]


# --- marking comments ------------------------------------------------------------------------------------


def mark(text: str) -> str:
    """The text of a comment, marked as an agent's."""
    return text if text.startswith(AGENT_MARK) else f"{AGENT_MARK}\n{text}"


def mark_body(call: RestCall, *keys: str) -> RestCall | str:
    """The request with the text below these keys of its body marked, or why that is not possible."""
    name = keys[-1]
    if "?" in call.path or any(name in key for key, _ in call.query):
        return f"give the text of a comment as `{name}` in `body`"
    return replace(call, body=_mark_at(call.body, keys))


def _mark_at(value: Any, keys: Sequence[str]) -> Any:
    if not keys:
        return mark(value) if isinstance(value, str) else value
    if not isinstance(value, Mapping) or keys[0] not in value:
        return value
    return {**value, keys[0]: _mark_at(value[keys[0]], keys[1:])}


# --- GraphQL ---------------------------------------------------------------------------------------------


def graphql_spec(name: str, service: str) -> ToolSpec:
    """The tool for a GraphQL API."""
    return ToolSpec(
        name=name,
        description=f"Run one GraphQL query or mutation against {service} with the daemon's credential.",
        input_schema=object_schema(
            {
                "query": {"type": "string", "minLength": 1},
                "variables": {"type": ["object", "null"], "additionalProperties": True},
            },
            required=("query",),
        ),
    )


def graphql_call(
    arguments: object, comment_mutations: re.Pattern[str]
) -> tuple[str, Mapping[str, Any]] | str:
    """Query and variables of a call with its comments marked, or what is wrong. A call may be the bare query.

    `comment_mutations` matches the mutations that write comments. Their text is an argument `body`: in the
    query, in a variable, or within a variable.
    """
    if isinstance(arguments, str):
        arguments = {"query": arguments}
    if problem := unknown_argument(arguments, ("query", "variables")):
        return problem
    query, variables = dig(arguments, "query"), dig(arguments, "variables")
    if not isinstance(query, str) or not query.strip():
        return "`query` must be a text that is not empty"
    if variables is not None and not isinstance(variables, Mapping):
        return "`variables` must be an object or null"
    writes = len(comment_mutations.findall(query))
    return _mark_query(query, variables or {}, writes) if writes else (query, variables or {})


def _mark_query(query: str, variables: Mapping[str, Any], writes: int) -> tuple[str, Mapping[str, Any]] | str:
    body_variables = {match[2] for match in _BODY_ARGUMENT.finditer(query) if match[2]}
    marked = {
        key: mark(value) if key in body_variables and isinstance(value, str) else _mark_bodies(value)
        for key, value in variables.items()
    }
    query, in_query = _BODY_ARGUMENT.subn(_mark_literal, query)
    if "bodyData" in query or "bodyData" in json.dumps(marked) or in_query + _count_bodies(marked) < writes:
        return "give the text of each comment as its `body`"
    return query, marked


def _mark_literal(match: re.Match[str]) -> str:
    if match[2]:
        return match[0]
    return f"{match[0]}{AGENT_MARK}" + ("\n" if match[1] == '"""' else "\\n")


def _mark_bodies(value: Any) -> Any:
    match value:
        case Mapping():
            return {
                key: mark(inner) if key == "body" and isinstance(inner, str) else _mark_bodies(inner)
                for key, inner in value.items()
            }
        case list():
            return [_mark_bodies(inner) for inner in value]
        case _:
            return value


def _count_bodies(value: Any) -> int:
    match value:
        case Mapping():
            return sum(key == "body" or _count_bodies(inner) for key, inner in value.items())
        case list():
            return sum(map(_count_bodies, value))
        case _:
            return 0


def writes_comment(query: str) -> bool:
    """Whether a GraphQL query creates a comment."""
    return _COMMENT_MUTATION.search(query) is not None
