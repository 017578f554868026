"""A file with front matter as data: parse it, write a new one, change one value. Pure.

A change replaces the bytes of one value on one line. Everything else stays unchanged, from the byte-order
mark to trailing blanks. The result is parsed again. So either exactly the wanted value has changed, or the
change is refused, whatever the YAML looks like.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from msgspec import Struct

from symphony.domain import normalise_labels
from symphony.frontmatter import FrontMatterError, Profile, Split, load, quote, quote_list, split

MAX_FRONT_BYTES = 65_536
_RFC3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")
_PRIORITY = re.compile(r"([1-4])(\.0+)?")
_VALUE = r"""(?P<value>"(?:[^"\\]|\\.)*"|'(?:[^']|'')*'|[^\s'"#\[{&*!|>%@`](?:[^#\r\n]|(?<!\s)#)*?|)"""
_TAIL = r"(?P<tail>[ \t]*|[ \t]+\#[^\r\n]*)(?P<end>\r\n|\n|\r|)"


class MalformedError(Exception):
    """The file is malformed; `line` counts from 1."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line
        self.message = message


# --- any file --------------------------------------------------------------------------------------------


class IssueFileParts(Struct, frozen=True, kw_only=True):
    """A file: the front matter as a map, the line of each top-level key, and the body."""

    values: Mapping[str, Any]
    lines: Mapping[str, int]
    body: str

    def required(self, key: str) -> str:
        """The text of a key. Raises `MalformedError` if there is none."""
        if key not in self.values:
            raise MalformedError(1, f"the front matter has no `{key}`")
        value = self.values[key]
        if not isinstance(value, str) or not value.strip():
            raise MalformedError(self.lines.get(key, 1), f"`{key}` must be a text that is not empty")
        return value

    def names(self, key: str) -> tuple[str, ...] | None:
        """The names in a list or in a comma-separated text; `None` for anything else."""
        value = self.values.get(key)
        if value is None:
            return ()
        names = value.split(",") if isinstance(value, str) else value
        if not isinstance(names, list):
            return None
        return tuple(name for name in names if isinstance(name, str))

    def blockers(self, key: str) -> tuple[tuple[str, ...], str | None]:
        """The ids in a list of blockers, and what is wrong with the list, if anything."""
        names, value = self.names(key), self.values.get(key)
        if names is None or (isinstance(value, list) and len(names) != len(value)):
            return (), f"`{key}` is not a list of issue ids"
        return tuple(dict.fromkeys(name.strip() for name in names if name.strip())), None


def parse_parts(data: bytes) -> IssueFileParts:
    """Split a file into its parts.

    Raises:
        MalformedError: not UTF-8, no closed front matter, bad YAML, or front matter that is not a map.
    """
    try:
        data.decode()
    except UnicodeDecodeError as error:
        raise MalformedError(1 + data.count(b"\n", 0, error.start), "not UTF-8") from error
    pieces = _split(data)
    try:
        document = load(
            pieces.front, profile=Profile.TEXT, first_line=pieces.front_line, max_bytes=MAX_FRONT_BYTES
        )
    except FrontMatterError as error:
        raise MalformedError(error.line, error.message) from error
    lines = {str(path[0]): at[0] for path, at in document.positions.items() if len(path) == 1}
    return IssueFileParts(values=document.value, lines=lines, body=data[pieces.body_offset :].decode())


def _split(data: bytes) -> Split:
    try:
        pieces = split(data, limit=MAX_FRONT_BYTES)
    except FrontMatterError as error:
        raise MalformedError(error.line, error.message) from error
    if pieces is None:
        raise MalformedError(1, "no front matter: the first line must be `---`")
    if not pieces.closed:
        raise MalformedError(1, "the front matter begins in line 1, and no line `---` closes it")
    return pieces


def render(values: Mapping[str, str], body: str) -> bytes:
    """A file with values in YAML and a body without its outer blank lines."""
    front = "".join(f"{key}: {value}\n" for key, value in values.items())
    return f"---\n{front}---\n".encode() + _render_body(body)


def _render_body(text: str) -> bytes:
    text = text.strip("\r\n")
    return f"\n{text}\n".encode() if text else b""


def replace_body(data: bytes, body: str) -> bytes:
    """The file with another body. Raises `MalformedError`."""
    return data[: _split(data).body_offset] + _render_body(body)


def replace_scalar(data: bytes, key: str, value: str) -> bytes:
    """The file with another value of one top-level key, and no other change.

    Raises:
        MalformedError: the file is malformed, has no such key, or the value is not on one line of its own
            (several lines, an anchor, a flow map).
        ValueError: `value` is not valid Unicode.
    """
    before = parse_parts(data)
    if key not in before.values:
        raise MalformedError(1, f"the front matter has no `{key}`")
    line = before.lines.get(key, 1)
    lines = re.findall(rb"[^\n]*\n|[^\n]+", data)  # lines as the YAML reader counts them
    name = re.escape(key)
    match = re.fullmatch(
        rf"(?P<head>\ufeff?(?:{name}|\"{name}\"|'{name}')[ \t]*:)(?P<gap>[ \t]*){_VALUE}{_TAIL}",
        lines[line - 1].decode(),
    )
    if match is None:
        raise MalformedError(line, f"`{key}` is not a plain value on one line and cannot be changed safely")
    edited = f"{match['head']}{match['gap'] or ' '}{quote(value)}{match['tail']}{match['end']}"
    lines[line - 1] = edited.encode()
    changed = b"".join(lines)
    after = parse_parts(changed)
    if after.values != {**before.values, key: value} or after.body != before.body:
        raise MalformedError(line, f"`{key}` cannot be changed safely; write it on a separate line")
    return changed


def description_of(body: str) -> str | None:
    """A body without its outer blank lines; `None` for a blank one."""
    text = body.replace("\r\n", "\n").strip("\r\n")
    return text if text.strip() else None


def instant(value: object) -> datetime | None:
    """A time in RFC 3339 with its offset; `None` for anything else."""
    text = value.strip().upper() if isinstance(value, str) else ""
    try:
        return datetime.fromisoformat(text) if _RFC3339.fullmatch(text) else None
    except ValueError:
        return None


def timestamp(moment: datetime, *, exact: bool = False) -> str:
    """A time in RFC 3339 in UTC, to the second; with `exact` to the microsecond."""
    fraction = f".{moment.microsecond:06}" if exact else ""
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%S}{fraction}Z"


# --- issues ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class IssueDraft:
    """A new issue; `priority` is 1 to 4 or `None`, `key` distinguishes issues that are created only once."""

    title: str
    state: str
    description: str | None = None
    labels: tuple[str, ...] = ()
    priority: int | None = None
    blocked_by: tuple[str, ...] = ()
    key: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fields(IssueDraft):
    """The content of an issue file. Optional values that cannot be used are `None` or empty.

    `blockers_problem` is set if the blockers cannot be understood: such an issue must not start.
    """

    assignee: str | None = None
    blockers_problem: str | None = None
    created: datetime | None = None
    updated: datetime | None = None


def parse_issue(data: bytes) -> Fields:
    """Read an issue file.

    Raises:
        MalformedError: not UTF-8, no front matter, bad YAML, a duplicate key, or no title or state.
    """
    parts = parse_parts(data)
    blocked_by, problem = parts.blockers("blocked_by")
    priority, assignee = parts.values.get("priority"), parts.values.get("assignee")
    rank = _PRIORITY.fullmatch(priority.strip()) if isinstance(priority, str) else None
    return Fields(
        title=parts.required("title"),
        state=parts.required("state").strip(),
        labels=normalise_labels(parts.names("labels") or ()),
        priority=int(rank[1]) if rank else None,
        assignee=assignee.strip() or None if isinstance(assignee, str) else None,
        blocked_by=blocked_by,
        blockers_problem=problem,
        created=instant(parts.values.get("created")),
        description=description_of(parts.body),
        key=key if isinstance(key := parts.values.get("key"), str) else None,
    )


def render_issue(draft: IssueDraft, created: datetime) -> bytes:
    """A new issue file, without keys that have no value.

    Raises:
        ValueError: a text is not valid Unicode.
    """
    values = {"title": quote(draft.title), "state": quote(draft.state)}
    if draft.labels:
        values["labels"] = quote_list(draft.labels)
    if draft.priority is not None:
        values["priority"] = str(draft.priority)
    if draft.blocked_by:
        values["blocked_by"] = quote_list(draft.blocked_by)
    values["created"] = timestamp(created)
    if draft.key is not None:
        values["key"] = quote(draft.key)
    return render(values, draft.description or "")
