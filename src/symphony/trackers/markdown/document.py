"""One issue file as data: parse it, make a new one, change one value of it. Pure.

A change touches the bytes of one value on one line. Everything else, from the byte-order mark to trailing
blanks, stays as it is, and the result is parsed again before it is handed out: whatever a person's YAML
looks like, either exactly the wanted value changed, or the change is refused.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from symphony.domain import (
    Blame,
    Category,
    Failure,
    UnsafeKeyError,
    disk_full_hint,
    is_disk_full,
    normalise_labels,
    workspace_key,
)
from symphony.frontmatter import FrontMatterError, Profile, Split, load, quote, quote_list, split
from symphony.trackers.base import ConfigProblem, TrackerError

# Names on the board: issue ids (file stems), their numbers, and comment files. Pure.
#
# An id is the stem of its file, letter for letter. Two stems that differ only by case would be one file on
# some machines and two on others, so both are refused. Names that begin with a dot are ours (temporary
# files) or the editor's, and `README.md` is for people: neither is an issue.


COMMENT_SUFFIX = ".md"
COMMENTS = "comments"
"""The folder of an issue's comments, below the one that is called like the issue."""
AGENT = "agent"
DAEMON = "symphony"
RESERVED_AUTHORS = frozenset({AGENT, DAEMON})
"""Who writes comments and is no person."""
_COMMENT = re.compile(r"\d{8}T\d{6}Z-(?P<author>.+)-(?P<mark>[0-9a-f]{8})")
_AUTHOR_LIMIT = 40
_MAX_DIGITS = 9


def is_issue_file(name: str) -> bool:
    """Whether a file of this name in the board's folder is an issue, by its name alone."""
    return name.endswith(".md") and not name.startswith(".") and name.lower() != "readme.md"


def is_persons_comment(name: str) -> bool:
    """Whether a file of this name among comments is one of a person, by its name alone."""
    found = comment_author(name.removesuffix(COMMENT_SUFFIX))
    ours = found is not None and found[0] in RESERVED_AUTHORS
    return name.endswith(COMMENT_SUFFIX) and not name.startswith(".") and not ours


def id_problem(stem: str) -> str | None:
    """Why this stem cannot be an id, or null (DM2, DM12)."""
    if stem != stem.strip() or not stem:
        return "the file name begins or ends with a space"
    if not all(char.isprintable() for char in stem):
        return "the file name holds control or undecodable characters"
    try:
        workspace_key(stem)
    except UnsafeKeyError as error:
        return str(error)
    return None


def case_twins(stems: Iterable[str]) -> dict[str, str]:
    """For every stem that differs from another only by case: that other stem."""
    groups: dict[str, list[str]] = {}
    for stem in sorted(stems):
        groups.setdefault(stem.casefold(), []).append(stem)
    twins = (group for group in groups.values() if len(group) > 1)
    return {stem: group[0] if stem != group[0] else group[1] for group in twins for stem in group}


def next_number(prefix: str, taken: Iterable[str]) -> int:
    """One more than the highest number that any of the names carries after `<prefix>-`, whatever its case."""
    pattern = re.compile(rf"{re.escape(prefix)}-(\d{{1,{_MAX_DIGITS}}})", re.IGNORECASE | re.ASCII)
    numbers = (pattern.fullmatch(name) for name in taken)
    return 1 + max((int(match[1]) for match in numbers if match), default=0)


def author_name(text: str) -> str:
    """An author as part of a file name: at most 40 letters, digits, `.`, `_`; `person` when none is left."""
    return re.sub(r"[^A-Za-z0-9._]+", "_", text).strip("._")[:_AUTHOR_LIMIT] or "person"


def comment_stem(moment: datetime, author: str, mark: str) -> str:
    """`<utc>-<author>-<8hex>`: sorting by name is sorting by time."""
    return f"{moment.astimezone(UTC):%Y%m%dT%H%M%SZ}-{author}-{mark}"


def comment_author(stem: str) -> tuple[str, str] | None:
    """Author and mark that a comment's file name carries; null for a name that is not of our making."""
    match = _COMMENT.fullmatch(stem)
    return None if match is None else (match["author"], match["mark"])


# The words in which the board refuses: every `TrackerError` of this adapter is made here (TR3, TR7).


def printable(text: object) -> str:
    """`text` on one line: control, bidi and undecodable characters become escapes."""
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in str(text)
    )


def malformed(
    path: Path, line: int, message: str, *, issue_id: str | None = None, hint: str | None = None
) -> TrackerError:
    """A file that cannot be read as what it should be (TR4); `where` is `path:line`."""
    failure = Failure(
        category=Category.TRACKER_RESPONSE,
        blame=Blame.TRACKER,
        message=printable(message),
        retryable=True,
        hint=hint or "correct the file; it is read again at the next poll",
        where=f"{printable(path)}:{line}",
    )
    return TrackerError(failure, culprits=frozenset(() if issue_id is None else (issue_id,)))


def missing(what: str, *, hint: str | None = None) -> TrackerError:
    """Something asked for by name is not on the board."""
    return TrackerError(
        Failure(
            category=Category.TRACKER_STATUS,
            blame=Blame.TRACKER,
            message=printable(what),
            retryable=False,
            hint=hint or "`symphony issue list` shows what is there",
        )
    )


def refused(message: str, *, hint: str | None = None) -> TrackerError:
    """A request that the board will not carry out."""
    return TrackerError(
        Failure(
            category=Category.TRACKER_STATUS,
            blame=Blame.TRACKER,
            message=printable(message),
            retryable=False,
            hint=hint,
        )
    )


def busy(path: Path, attempts: int) -> TrackerError:
    """A file that changed under us each time we were about to replace it; nothing was written."""
    return TrackerError(
        Failure(
            category=Category.TRACKER_REQUEST,
            blame=Blame.TRACKER,
            message=f"the file was changed by somebody else {attempts} times in a row; nothing was written",
            hint="try again",
            where=f"{printable(path)}:1",
        )
    )


def unreachable(path: Path, error: OSError) -> TrackerError:
    """The file system did not do what was asked."""
    if isinstance(error, FileNotFoundError):
        hint = "`symphony init` makes a board; `tracker.provider.path` says where it is"
    elif is_disk_full(error):
        hint = disk_full_hint(printable(path))
    else:
        hint = "check the path and its permissions"
    return TrackerError(
        Failure(
            category=Category.TRACKER_REQUEST,
            blame=Blame.TRACKER,
            message=f"{printable(path)}: {error.strerror or type(error).__name__}",
            hint=hint,
        )
    )


def invalid_config(key: str, message: str, *, hint: str | None = None) -> ConfigProblem:
    """A setting of `tracker` that this adapter cannot work with; `key` is its dotted name."""
    return ConfigProblem(
        location=tuple(key.split(".")),
        failure=Failure(
            category=Category.INVALID_TRACKER_CONFIG,
            blame=Blame.CONFIG,
            message=printable(f"{key} {message}"),
            retryable=False,
            hint=hint or "docs/trackers/markdown.md describes the settings of the board",
        ),
    )


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


# How issues lie in the board's folder: which file is which issue, and what a file says.
#
# The board's own layout is one file per id. `backlog` has the layout of another program.


class Layout:
    """`SYM-12.md` is the issue `SYM-12`."""

    state_key = "state"
    """The key whose value is the state."""

    can_create = True
    """Whether new issues are made here, and not by the program whose board it is."""

    def files(self, names: Iterable[str]) -> dict[str, str]:
        """The file of each issue by id; asked at every poll."""
        return {name[:-3]: name for name in names if name.endswith(".md") and is_issue_file(name)}

    def twins(self, files: Mapping[str, str]) -> Mapping[str, str]:
        """For each id that cannot be told from another one: the file of that other."""
        return {issue_id: files[other] for issue_id, other in case_twins(files).items()}

    def finished(self, folder: Path) -> frozenset[str]:
        """Ids (case folded) that are over and lie elsewhere; they block nobody. Raises `OSError`."""
        del folder
        return frozenset()

    def parse(self, data: bytes, issue_id: str) -> Fields:
        """What a file says. Raises `MalformedError`."""
        del issue_id
        return parse_issue(data)


OWN = Layout()
"""The board's own."""
