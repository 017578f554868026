"""The raw tool of a tracker: the model names a request, the daemon makes it with its credential (AG17, TR12).

What the tool may reach is what the credential may reach, unless `scope` narrows it to the project or to the
session's own issue: then it is what the adapter's `Reach` lists, and nothing else. The guard looks at the
path as the server will: decoded, and without dots to climb with; and at each key of a body, which may name
something elsewhere.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any
from urllib.parse import parse_qsl, unquote

from symphony.domain import ToolResult, ToolSpec
from symphony.trackers.comments import AGENT_MARK
from symphony.trackers.http.exchange import Answer, Flow, Request

# The plain tools of a session on every tracker over HTTP: move its own issue, comment on its own issue.
#
# The issue is the session's and cannot be named by the model. `trackers.remote` runs the tools with the
# daemon's credential. The raw tool of an adapter, which reaches more, is in `trackers.raw_tools`.


NAMES = MOVE, COMMENT = "issue_move", "issue_comment"
MAX_STATE_CHARS = 200
MAX_COMMENT_CHARS = 30_000
"""Less than a comment of the daemon may have: there is room for the marker in front."""


def closed_schema(**properties: Mapping[str, Any]) -> Mapping[str, Any]:
    """The JSON Schema of an object with exactly these properties."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def argument_problem(arguments: object, **limits: int) -> str | None:
    """What is wrong with the arguments of a call, or `None`.

    Each argument in `limits` must be a text that is not empty and has at most so many characters. There are
    no others.
    """
    if not isinstance(arguments, Mapping):
        return "the arguments must be an object"
    unknown = sorted(str(key) for key in arguments if key not in limits)
    if unknown:
        return f"unknown argument {unknown[0][:80]!r}"
    for name, limit in limits.items():
        value = arguments.get(name)
        if not isinstance(value, str) or not value.strip():
            return f"{name!r} must be a text that is not empty"
        if len(value) > limit:
            return f"{name!r} holds at most {limit} characters, this one has {len(value)}"
    return None


SPECS = (
    ToolSpec(
        name=MOVE,
        description=(
            "Move the issue you are working on to another state. "
            "The answer to a state that does not exist names those that do."
        ),
        input_schema=closed_schema(state={"type": "string", "minLength": 1, "maxLength": MAX_STATE_CHARS}),
    ),
    ToolSpec(
        name=COMMENT,
        description="Add a comment in Markdown to the issue you are working on.",
        input_schema=closed_schema(body={"type": "string", "minLength": 1, "maxLength": MAX_COMMENT_CHARS}),
    ),
)

MAX_RESULT_CHARS = 60_000
MAX_PATH_CHARS = 2_000
_ANSWERS = frozenset({400, 402, 403, 404, 405, 406, 409, 410, 412, 415, 422})
_BAD_PATH = re.compile(r"[\x00-\x20\x7f\\#]|://")
_OK = range(200, 300)
_COMMENTS = frozenset({"comment", "comments", "notes", "stories"})
_COMMENT_MUTATION = re.compile(r"\bcommentCreate\b")
_BODY = re.compile(r'\bbody\s*:\s*("""|"|\$(\w+))')


NUMBERED = "{number}"
"""A part of a path that is the number of something, or a digest."""
ANY = "{any}"
"""A part of a path that may be anything."""
_NUMBER = re.compile(r"[0-9a-f]{1,64}")
_OVERRIDES = frozenset({"_method", "opt_method"})
"""What some servers take for the method in place of the one that was used."""


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

    @property
    def comments(self) -> bool:
        """Whether it writes a comment, in the ways of the trackers there are."""
        if self.method == "POST" and self.steps[-1].lower() in _COMMENTS:
            return True
        issue = self.body.get("issue") if isinstance(self.body, Mapping) else None
        return self.method == "PUT" and isinstance(issue, Mapping) and bool(issue.get("notes"))


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


@dataclass(frozen=True, slots=True)
class Write:
    """A write that a narrowed scope lets through.

    Attributes:
        methods: those of HTTP, with blanks between them.
        path: its decoded parts, of which some may be `NUMBERED` or `ANY`.
        keys: what may stand in its body or query, with blanks between them; `fields.summary` is a key within
            `fields`. What would name another issue, another project or another place is none of them.
    """

    methods: str
    path: tuple[str, ...]
    keys: str = ""

    def fits(self, call: RestCall) -> bool:
        """Whether the call is this write, whatever it says."""
        steps = call.steps
        return (
            call.method in self.methods.split()
            and len(steps) == len(self.path)
            and all(map(_is_part, steps, self.path))
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """What a narrowed scope lets through: reads of and below these rows of parts, and these writes."""

    reads: tuple[tuple[str, ...], ...]
    writes: tuple[Write, ...] = ()


def _is_part(step: str, part: str) -> bool:
    if part == NUMBERED:
        return _NUMBER.fullmatch(step) is not None
    return part == ANY or step.lower() == part.lower()


def beyond(call: RestCall, reach: Reach, *, scope: Scope) -> str | None:
    """Why the scope forbids the call, or null."""
    keeps = (
        f"`tracker.provider.scope: {scope.value}` keeps this tool away from {call.method} {call.path[:200]!r}"
    )
    named = [key for key, _ in call.query] + [key for key, _ in _queried(call.path)]
    if call.method == "GET":
        read = any(len(row) <= len(call.steps) and all(map(_is_part, call.steps, row)) for row in reach.reads)
        return None if read and _OVERRIDES.isdisjoint(key.lower() for key in named) else keeps
    write = next((each for each in reach.writes if each.fits(call)), None)
    if write is None:
        return keeps
    if call.body is not None and not isinstance(call.body, Mapping):
        return f"{keeps} unless its body is an object"
    keys = write.keys.split()
    strange = [key for key in (*named, *_keys(call.body or {}, keys)) if key not in keys]
    if strange:
        taken = f"it takes {', '.join(keys)}" if keys else "it takes nothing"
        return f"{keeps} with {strange[0][:80]!r}: {taken}"
    return None


def _queried(path: str) -> list[tuple[str, str]]:
    return parse_qsl(path.partition("?")[2], keep_blank_values=True)


def _keys(body: Mapping[str, Any], known: Sequence[str]) -> list[str]:
    """The keys of a body; of a map that is not known as a whole, those within it."""
    return [
        name
        for key, value in body.items()
        for name in (
            (f"{key}.{inner}" for inner in value)
            if key not in known and isinstance(value, Mapping) and value
            else (str(key),)
        )
    ]


def within(call: RestCall, scope: Scope, *, issue: Reach, project: Reach) -> str | None:
    """As `beyond`, by the reach of the session's issue or of the project; a token's scope forbids nothing."""
    match scope:
        case Scope.ISSUE:
            return beyond(call, issue, scope=scope)
        case Scope.PROJECT:
            return beyond(call, project, scope=scope)
        case _:
            return None


def out_of_scope(problem: str) -> ToolResult:
    """What the model is told of a call that the scope forbids."""
    return ToolResult.error(problem, category="out_of_scope", setting="tracker.provider.scope")


def marked(call: RestCall, *place: str) -> RestCall | str:
    """The call with the text at this place of its body marked as an agent's; or why that cannot be."""
    name = place[-1]
    if "?" in call.path or any(name in key for key, _ in call.query):
        return f"give the text of a comment as `{name}` in `body`"
    return replace(call, body=_marked_at(call.body, place))


def _marked_at(value: Any, place: Sequence[str]) -> Any:
    if not place:
        return mark(value) if isinstance(value, str) else value
    if not isinstance(value, Mapping) or place[0] not in value:
        return value
    return {**value, place[0]: _marked_at(value[place[0]], place[1:])}


def mark(text: str) -> str:
    """The text of a comment, marked as an agent's."""
    return text if text.startswith(AGENT_MARK) else f"{AGENT_MARK}\n{text}"


def marked_query(
    query: str, variables: Mapping[str, Any], mutations: re.Pattern[str]
) -> tuple[str, Mapping[str, Any]] | str:
    """A GraphQL call with the texts of comments marked as an agent's; or why that cannot be.

    `mutations` finds those that write comments. Their text is a `body`: in the query itself, in a variable,
    or within one.
    """
    writes = len(mutations.findall(query))
    if not writes:
        return query, variables
    named = {found[2] for found in _BODY.finditer(query) if found[2]}
    told = {
        key: mark(value) if key in named and isinstance(value, str) else _marked_bodies(value)
        for key, value in variables.items()
    }
    query, in_query = _BODY.subn(_marked_literal, query)
    if "bodyData" in query or "bodyData" in json.dumps(told) or in_query + _bodies(told) < writes:
        return "give the text of each comment as its `body`"
    return query, told


def _marked_literal(found: re.Match[str]) -> str:
    if found[2]:
        return found[0]
    end = "\n" if found[1] == '"""' else "\\n"
    return f"{found[0]}{AGENT_MARK}{end}"


def _marked_bodies(value: Any) -> Any:
    match value:
        case Mapping():
            return {
                key: mark(one) if key == "body" and isinstance(one, str) else _marked_bodies(one)
                for key, one in value.items()
            }
        case list():
            return [_marked_bodies(one) for one in value]
        case _:
            return value


def _bodies(value: Any) -> int:
    """How many bodies there are within variables."""
    match value:
        case Mapping():
            return sum(key == "body" or _bodies(one) for key, one in value.items())
        case list():
            return sum(map(_bodies, value))
        case _:
            return 0


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
    told = replace(answer, body=show(answer.body))
    result = shown(told, success=answer.status in _OK, read_only=call.method == "GET")
    return replace(result, commented=result.success and call.comments)


@dataclass(frozen=True, slots=True, kw_only=True)
class RestTool:
    """The raw tool of one tracker; `note` is told to the model, `below` is where paths begin.

    `mark` marks what the call writes as an agent's (`comments.AGENT_MARK`), or says why it cannot.
    """

    name: str
    service: str
    methods: Sequence[str]
    scope: Scope
    note: str
    below: str = "/"
    mark: Callable[[RestCall], RestCall | str] = lambda call: call

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
            return out_of_scope(problem)
        marked = self.mark(call)
        if isinstance(marked, str):
            return ToolResult.error(marked)
        return (yield from rest_flow(marked, self.name))


def shown(answer: Answer, *, success: bool, read_only: bool = False) -> ToolResult:
    """An answer as the model reads it, cut where it is long."""
    text = json.dumps({"status": answer.status, "body": answer.body}, ensure_ascii=False)
    if len(text) > MAX_RESULT_CHARS:
        whole = json.dumps(answer.body, ensure_ascii=False)
        cut = {"status": answer.status, "cut_at": MAX_RESULT_CHARS, "text": whole[:MAX_RESULT_CHARS]}
        text = json.dumps(cut, ensure_ascii=False)
    return ToolResult(success=success, text=text, read_only=read_only)


def writes_comment(query: str) -> bool:
    """Whether a GraphQL text asks for a new comment."""
    return _COMMENT_MUTATION.search(query) is not None


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
