"""One issue file as data: parse it, make a new one, change one value of it. Pure.

A change touches the bytes of one value on one line. Everything else, from the byte-order mark to trailing
blanks, stays as it is, and the result is parsed again before it is handed out: whatever a person's YAML
looks like, either exactly the wanted value changed, or the change is refused.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from symphony.domain.issue import normalise_labels
from symphony.frontmatter import FrontMatterError, Profile, Split, load, split
from symphony.frontmatter.scalars import quote, quote_list

__all__ = [
    "Draft",
    "Fields",
    "MalformedError",
    "Parts",
    "blockers",
    "described",
    "instant",
    "names_in",
    "parse_issue",
    "parse_parts",
    "render",
    "render_issue",
    "replace_body",
    "replace_scalar",
    "required",
    "timestamp",
]

MAX_FRONT_BYTES = 65_536
_RFC3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")
_PRIORITY = re.compile(r"([1-4])(\.0+)?")
_VALUE = r"""(?P<value>"(?:[^"\\]|\\.)*"|'(?:[^']|'')*'|[^\s'"#\[{&*!|>%@`](?:[^#\r\n]|(?<!\s)#)*?|)"""
_TAIL = r"(?P<tail>[ \t]*|[ \t]+\#[^\r\n]*)(?P<end>\r\n|\n|\r|)"


class MalformedError(Exception):
    """The bytes are not what they should be; `line` counts from 1."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line
        self.message = message


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """A file taken apart: the front matter as a map, the line of each top-level key, and the body."""

    values: Mapping[str, Any]
    lines: Mapping[str, int]
    body: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Fields:
    """What an issue file says; unusable optional values are null or empty (TR4).

    `blockers_problem` is set when `blocked_by` is there but cannot be understood: such an issue must not
    start as if nothing stood in its way.
    """

    title: str
    state: str
    labels: tuple[str, ...] = ()
    priority: int | None = None
    assignee: str | None = None
    blocked_by: tuple[str, ...] = ()
    blockers_problem: str | None = None
    created: datetime | None = None
    updated: datetime | None = None
    description: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """An issue to be written; `priority` is 1 to 4 or null."""

    title: str
    state: str
    description: str = ""
    labels: tuple[str, ...] = ()
    priority: int | None = None
    blocked_by: tuple[str, ...] = ()


def parse_issue(data: bytes) -> Fields:
    """Read an issue file.

    Raises:
        MalformedError: not UTF-8, no front matter, bad YAML, a duplicate key, or no title or state.
    """
    parts = parse_parts(data)
    blocked_by, problem = blockers(parts.values.get("blocked_by"), "blocked_by")
    return Fields(
        title=required(parts, "title"),
        state=required(parts, "state").strip(),
        labels=normalise_labels(names_in(parts.values.get("labels")) or ()),
        priority=_priority(parts.values.get("priority")),
        assignee=_text(parts.values.get("assignee")),
        blocked_by=blocked_by,
        blockers_problem=problem,
        created=instant(parts.values.get("created")),
        description=described(parts.body),
    )


def parse_parts(data: bytes) -> Parts:
    """Take a file apart.

    Raises:
        MalformedError: not UTF-8, no closed front matter, bad YAML, or front matter that is not a map.
    """
    _decode(data)
    pieces = _pieces(data)
    try:
        document = load(
            pieces.front, profile=Profile.TEXT, first_line=pieces.front_line, max_bytes=MAX_FRONT_BYTES
        )
    except FrontMatterError as error:
        raise MalformedError(error.line, error.message) from error
    lines = {path[0]: at[0] for path, at in document.positions.items() if len(path) == 1}
    return Parts(
        values=document.value,
        lines={str(key): line for key, line in lines.items()},
        body=data[pieces.body_offset :].decode(),
    )


def render_issue(draft: Draft, created: datetime) -> bytes:
    """A new issue file; keys without a value are left out.

    Raises:
        ValueError: a text is not valid Unicode.
    """
    lines = {"title": quote(draft.title), "state": quote(draft.state)}
    if draft.labels:
        lines["labels"] = quote_list(draft.labels)
    if draft.priority is not None:
        lines["priority"] = str(draft.priority)
    if draft.blocked_by:
        lines["blocked_by"] = quote_list(draft.blocked_by)
    lines["created"] = timestamp(created)
    return render(lines, draft.description)


def render(lines: Mapping[str, str], body: str) -> bytes:
    """A file of ready-made YAML values and a body, which reads back without its outer blank lines."""
    front = "".join(f"{key}: {value}\n" for key, value in lines.items())
    return f"---\n{front}---\n".encode() + _body(body)


def replace_scalar(data: bytes, key: str, value: str) -> bytes:
    """The file with the value of one top-level key changed, and not one other byte.

    Raises:
        MalformedError: the file is malformed, has no such key, or its value is written in a way (several
            lines, an anchor, a flow map) in which it cannot be changed without touching more than its own
            line.
        ValueError: `value` is not valid Unicode.
    """
    before = parse_parts(data)
    if key not in before.values:
        raise MalformedError(1, f"the front matter has no `{key}`")
    line = before.lines.get(key, 1)
    lines = re.findall(rb"[^\n]*\n|[^\n]+", data)  # a line ends as the reader counts: at LF
    edited = _edit_line(lines[line - 1].decode(), key, value)
    if edited is None:
        raise MalformedError(line, f"`{key}` is not a plain value on one line and cannot be changed safely")
    lines[line - 1] = edited.encode()
    changed = b"".join(lines)
    after = parse_parts(changed)
    if after.values != {**before.values, key: value} or after.body != before.body:
        raise MalformedError(line, f"`{key}` cannot be changed safely; write it on one line of its own")
    return changed


def replace_body(data: bytes, body: str) -> bytes:
    """The file with its front matter as it is, byte for byte, and another body.

    Raises:
        MalformedError: the file is malformed.
    """
    return data[: _pieces(data).body_offset] + _body(body)


def instant(value: object) -> datetime | None:
    """An RFC 3339 time with its offset, or null for anything else (DM8)."""
    if not isinstance(value, str) or not _RFC3339.fullmatch(value.strip().upper()):
        return None
    try:
        return datetime.fromisoformat(value.strip().upper())
    except ValueError:
        return None


def _body(text: str) -> bytes:
    text = text.strip("\r\n")
    return f"\n{text}\n".encode() if text else b""


def timestamp(moment: datetime, *, exact: bool = False) -> str:
    """The moment as RFC 3339 in UTC, to the second; with `exact` to the microsecond."""
    fraction = f".{moment.microsecond:06}" if exact else ""
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%S}{fraction}Z"


def _decode(data: bytes) -> None:
    try:
        data.decode()
    except UnicodeDecodeError as error:
        raise MalformedError(1 + data.count(b"\n", 0, error.start), "not UTF-8") from error


def _pieces(data: bytes) -> Split:
    try:
        pieces = split(data, limit=MAX_FRONT_BYTES)
    except FrontMatterError as error:
        raise MalformedError(error.line, error.message) from error
    if pieces is None:
        raise MalformedError(1, "no front matter: the first line must be `---`")
    if not pieces.closed:
        raise MalformedError(1, "the front matter begins in line 1, and no line `---` closes it")
    return pieces


def _edit_line(line: str, key: str, value: str) -> str | None:
    """The line `key: old  # comment` with another value, or null where the line is not of that form."""
    name = re.escape(key)
    match = re.fullmatch(
        rf"(?P<head>\ufeff?(?:{name}|\"{name}\"|'{name}')[ \t]*:)(?P<gap>[ \t]*){_VALUE}{_TAIL}", line
    )
    if match is None:
        return None
    return f"{match['head']}{match['gap'] or ' '}{quote(value)}{match['tail']}{match['end']}"


def required(parts: Parts, key: str) -> str:
    """The text of a key. Raises `MalformedError` where there is none."""
    value = parts.values.get(key)
    if key not in parts.values:
        raise MalformedError(1, f"the front matter has no `{key}`")
    if not isinstance(value, str) or not value.strip():
        raise MalformedError(parts.lines.get(key, 1), f"`{key}` must be a text that is not empty")
    return value


def _text(value: object) -> str | None:
    return value.strip() or None if isinstance(value, str) else None


def _priority(value: object) -> int | None:
    match = _PRIORITY.fullmatch(value.strip()) if isinstance(value, str) else None
    return int(match[1]) if match else None


def names_in(value: object) -> tuple[str, ...] | None:
    """A list of names, or one text with commas between them; null for anything else."""
    if value is None:
        return ()
    items = value.split(",") if isinstance(value, str) else value
    if not isinstance(items, list | tuple):
        return None
    return tuple(item for item in items if isinstance(item, str))


def blockers(value: object, key: str) -> tuple[tuple[str, ...], str | None]:
    """The ids of a list of blockers, and what is wrong with it, if anything."""
    names = names_in(value)
    given = len(value) if isinstance(value, list | tuple) else 0
    if names is None or (given and len(names) != given):
        return (), f"`{key}` is not a list of issue ids"
    return tuple(dict.fromkeys(name.strip() for name in names if name.strip())), None


def described(body: str) -> str | None:
    """A description without its outer blank lines, or null where it is blank."""
    text = body.replace("\r\n", "\n").strip("\r\n")
    return text if text.strip() else None
