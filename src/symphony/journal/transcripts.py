"""The transcript of a run: what its agent received, said and did.

The file `<state dir>/transcripts/<run id>.jsonl` has one JSON object per line. Entries are numbered from 1
(`seq`). A missing number is an entry that was lost, for example to a full disk or a damaged file. Readers
report which numbers are missing.

Work that takes time has an entry when it starts and another one when it ends. The later entry is complete in
itself, and `replaces` is the `seq` of the first one. `latest` leaves out replaced entries. Texts are
untrusted. They are masked and limited before they are written, and `left_out` counts the omitted characters.
"""

import os
import stat
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta, Struct

from symphony.domain import DECODE_ERRORS

TRANSCRIPTS: Final = "transcripts"
"""The folder in the state directory."""
MAX_FILE_BYTES: Final = 64 * 1024 * 1024
"""The largest transcript. Later entries of the run are left out, and the last entry says so."""
MAX_PAGE: Final = 1_000
"""How many entries are read at once at most."""
MAX_LINE_BYTES: Final = 1024 * 1024
"""The longest line of a transcript."""
_MAX_PAGE_BYTES: Final = 4 * 1024 * 1024
_SCAN_BYTES: Final = 256 * 1024

Count = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]


def _is(description: str) -> Meta:
    return Meta(description=description)


# --- entries ---------------------------------------------------------------------------------------------


class Entry(Struct, frozen=True, kw_only=True, tag_field="kind"):
    """The fields of all entries."""

    seq: Annotated[Positive, _is("The number of the entry in its run.")]
    at: Annotated[str, Meta(extra_json_schema={"format": "date-time"}), _is("To the millisecond.")]
    turn: Annotated[Count, _is("The turn of the run, from 1; 0 before the first one.")]
    replaces: Annotated[
        Positive | None, _is("The entry that this one replaces; null if it replaces none.")
    ] = None
    left_out: Annotated[Count, _is("Number of characters of its texts that are left out.")] = 0
    reviewer: Annotated[
        str | None, _is("The name of the agent of verify.reviewer; null for the agent of the run.")
    ] = None


class MessageEntry(Entry, frozen=True, kw_only=True, tag="message"):
    """A message of the agent to people."""

    text: str
    status: Annotated[
        Literal["writing", "complete", "interrupted"],
        _is("writing: the agent has not finished it; interrupted: it will not."),
    ] = "complete"


class ReasoningEntry(Entry, frozen=True, kw_only=True, tag="reasoning"):
    """The reasoning of the agent, or its summary."""

    text: str


class TranscriptPlanStep(Struct, frozen=True, kw_only=True):
    """A step of a plan."""

    text: str
    status: Annotated[str, _is("The agent's word, such as pending, in_progress or completed.")]


class PlanEntry(Entry, frozen=True, kw_only=True, tag="plan"):
    """The agent's plan, whole."""

    steps: tuple[TranscriptPlanStep, ...]
    text: Annotated[str, _is("An explanation, or the plan itself.")]


WorkStatus = Annotated[
    str, _is("started, unfinished, or the agent's word for how it ended: completed, failed, declined.")
]


class CommandEntry(Entry, frozen=True, kw_only=True, tag="command"):
    """A command of the agent."""

    command: str
    status: WorkStatus
    exit_code: int | None
    output: Annotated[str, _is("Its last 4,096 characters.")]


class CheckEntry(Entry, frozen=True, kw_only=True, tag="check"):
    """A command of `verify` on the delivery of the run."""

    name: str
    passed: bool
    result: Annotated[str, _is("How it ended: failed with exit code 2.")]
    exit_code: int | None
    duration_ms: Count
    output: Annotated[str, _is("The end of it.")]


class EditedFile(Struct, frozen=True, kw_only=True):
    """A changed file."""

    path: str
    change: Annotated[str, _is("The agent's word: add, update, delete or write.")]
    added: Annotated[Count, _is("Lines.")]
    removed: Annotated[Count, _is("Lines.")]


class EditEntry(Entry, frozen=True, kw_only=True, tag="edit"):
    """A change of files by a tool of the agent."""

    files: tuple[EditedFile, ...]
    status: WorkStatus


class ToolEntry(Entry, frozen=True, kw_only=True, tag="tool"):
    """A call of any other tool."""

    name: str
    status: WorkStatus
    arguments: str
    result: str


class ApprovalEntry(Entry, frozen=True, kw_only=True, tag="approval"):
    """The agent asked for permission."""

    subject: Annotated[str, _is("What it wants to do.")]
    decision: Annotated[str, _is("accept, decline, or required: a person must decide.")]


class QuestionEntry(Entry, frozen=True, kw_only=True, tag="question"):
    """The agent asks a person."""

    text: str


class AnswerEntry(Entry, frozen=True, kw_only=True, tag="answer"):
    """A person's answer that this run passes to the agent, its author, and its decision if it makes one."""

    text: str
    by: str | None = None
    decided: str | None = None


class UsageEntry(Entry, frozen=True, kw_only=True, tag="usage"):
    """Tokens that the run has used so far."""

    input_tokens: Count
    output_tokens: Count
    total_tokens: Count


class TurnEntry(Entry, frozen=True, kw_only=True, tag="turn"):
    """A turn starts or ends."""

    status: Annotated[str, _is("started, or how it ended: completed, failed, interrupted or input_required.")]
    prompt: Annotated[str | None, _is("What was sent, at the start.")] = None
    envelope: Annotated[str | None, _is("The system-level text, where it is new.")] = None
    reason: Annotated[str | None, _is("Why it did not complete.")] = None
    cost_usd: Annotated[float | None, _is("By the agent's own count, at the end.")] = None


class NoteEntry(Entry, frozen=True, kw_only=True, tag="note"):
    """Any other entry."""

    level: Annotated[str, _is("info, warning or error.")]
    text: str


TranscriptEntry = (
    MessageEntry
    | ReasoningEntry
    | PlanEntry
    | CommandEntry
    | CheckEntry
    | EditEntry
    | ToolEntry
    | ApprovalEntry
    | QuestionEntry
    | AnswerEntry
    | UsageEntry
    | TurnEntry
    | NoteEntry
)


def latest(entries: Iterable[TranscriptEntry]) -> tuple[TranscriptEntry, ...]:
    """The entries without replaced ones. A replacement takes the place of the entry that it replaces."""
    found: dict[int, TranscriptEntry] = {}
    for entry in entries:
        found[entry.replaces or entry.seq] = entry
    return tuple(found.values())


def transcript_path(state_dir: Path, run_id: str) -> Path:
    """Where the transcript of a run is."""
    return state_dir / TRANSCRIPTS / f"{run_id}.jsonl"


# --- writing ---------------------------------------------------------------------------------------------

_encoder: Final = msgspec.json.Encoder()
_FULL: Final = "the transcript has reached its limit of {} MiB; what follows in this run is left out"


class TranscriptWriter:
    """Writes the file of one run; blocking, one call at a time, never raises `OSError`.

    The file is created with the first entries. Entries that cannot be written are lost; later ones are tried.

    Attributes:
        problem: why entries are missing, or None.
    """

    def __init__(self, path: Path, *, max_bytes: int = MAX_FILE_BYTES) -> None:
        self.problem: str | None = None
        self._path = path
        self._max_bytes = max_bytes
        self._descriptor: int | None = None
        self._size = 0
        self._is_full = False

    def write(self, entries: Sequence[TranscriptEntry]) -> None:
        """Append entries; afterwards they survive the end of the process."""
        if self._is_full or not entries:
            return
        data = b"".join(_line(entry) for entry in entries)
        if self._size + len(data) > self._max_bytes:
            self._is_full, first = True, entries[0]
            self.problem = _FULL.format(self._max_bytes // 1024 // 1024)
            data = _line(
                NoteEntry(seq=first.seq, at=first.at, turn=first.turn, level="warning", text=self.problem)
            )
        try:
            self._append(data)
        except OSError as error:
            self.problem = error.strerror or str(error)

    def close(self) -> None:
        """Close the file."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _append(self, data: bytes) -> None:
        if self._descriptor is None:
            self._path.parent.mkdir(mode=0o700, exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            self._descriptor = os.open(self._path, flags, 0o600)
        done = 0
        try:
            while done < len(data):
                done += os.pwrite(self._descriptor, data[done:], self._size + done)
        except OSError:
            with suppress(OSError):  # an incomplete line would look like damage
                os.ftruncate(self._descriptor, self._size)
            raise
        self._size += done


def _line(entry: TranscriptEntry) -> bytes:
    return _encoder.encode(entry) + b"\n"


# --- reading ---------------------------------------------------------------------------------------------


class TranscriptPage(Struct, frozen=True, kw_only=True):
    """A part of a transcript.

    Attributes:
        entries: the entries in order.
        next_after: the `seq` after which the next page begins.
        more: whether there are further entries already.
        earlier: whether there may be entries before these.
        missing: what is missing, one sentence each.
    """

    entries: tuple[TranscriptEntry, ...] = ()
    next_after: int = 0
    more: bool = False
    earlier: bool = False
    missing: tuple[str, ...] = ()


class _Numbered(Struct):
    seq: int


_entry_decoder: Final[msgspec.json.Decoder[TranscriptEntry]] = msgspec.json.Decoder(TranscriptEntry)
_seq_decoder: Final = msgspec.json.Decoder(_Numbered)


class _UnusableError(Exception):
    """Why a file is not read."""


def read_transcript(
    path: Path,
    *,
    after: int | None = 0,
    before: int | None = None,
    limit: int = MAX_PAGE,
    live: bool = False,
    text: str = "",
) -> TranscriptPage:
    """Read at most `limit` entries, and at most 4 MiB; blocking.

    Reads only a plain file with the same owner as its folder, and follows no link. Damaged lines are skipped.

    Args:
        path: see `transcript_path`.
        after: the first entries after this `seq`; None for the last ones.
        before: only entries before this `seq`.
        limit: how many.
        live: whether the run is live, so that an unfinished last line is no damage.
        text: only entries that contain this text, ignoring case.
    """
    try:
        descriptor = _open_own(path)
    except FileNotFoundError:
        missing = () if live else ("this run has no transcript: none was written, or `retention` removed it",)
        return TranscriptPage(next_after=after or 0, missing=missing)
    except (OSError, _UnusableError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        return TranscriptPage(next_after=after or 0, missing=(f"{path} is not read: {reason}",))
    with os.fdopen(descriptor, "rb") as file:
        limit = min(limit, MAX_PAGE)
        return _Page(file, after=after, before=before, limit=limit, live=live, text=text).read()


def _open_own(path: Path) -> int:
    """Open a file without following links, and without waiting for a writer of a FIFO."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    folder = os.open(path.parent, flags | os.O_DIRECTORY)
    try:
        owner = os.fstat(folder).st_uid
        if not stat.S_ISREG(os.lstat(path.name, dir_fd=folder).st_mode):
            raise _UnusableError("it is a link, or no plain file")
        descriptor = os.open(path.name, flags, dir_fd=folder)
    finally:
        os.close(folder)
    facts = os.fstat(descriptor)
    if not stat.S_ISREG(facts.st_mode) or facts.st_uid != owner or facts.st_nlink != 1:
        os.close(descriptor)
        raise _UnusableError("it is no plain file of the daemon's user")
    if facts.st_size > 2 * MAX_FILE_BYTES:
        os.close(descriptor)
        raise _UnusableError(f"it has {facts.st_size:,} bytes, which no transcript has")
    return descriptor


class _Page:
    """Reads one page of an open file."""

    def __init__(
        self, file: Any, *, after: int | None, before: int | None, limit: int, live: bool, text: str
    ) -> None:
        self._file = file
        self._size = os.fstat(file.fileno()).st_size
        self._after = after
        self._before = before
        self._limit = limit
        self._live = live
        self._text = text.casefold()
        self._damaged = 0

    def read(self) -> TranscriptPage:
        last_ones = self._after is None
        after = self._start() if self._after is None else self._after
        entries: deque[tuple[TranscriptEntry, int]] = deque()
        page_bytes, expected, more, earlier = 0, after + 1, False, after > 0
        gaps: list[str] = []
        for entry, size in self._entries(after):
            if self._before is not None and entry.seq >= self._before:
                more = True
                break
            is_found = not self._text or _has_text(entry, self._text)
            page_bytes += size if is_found else 0
            is_full = len(entries) == self._limit or (entries and page_bytes > _MAX_PAGE_BYTES)
            if is_found and is_full and not last_ones:
                more = True
                break
            if entry.seq > expected:
                gaps.append(_gap(expected, entry.seq - 1))
            expected = entry.seq + 1
            if is_found:
                entries.append((entry, size))
            while last_ones and (
                len(entries) > self._limit or (page_bytes > _MAX_PAGE_BYTES and len(entries) > 1)
            ):
                page_bytes, earlier = page_bytes - entries.popleft()[1], True
        next_after = entries[-1][0].seq if more and entries else after if more else expected - 1
        damaged = [f"lines that are damaged or cut: {self._damaged}"] if self._damaged else []
        return TranscriptPage(
            entries=tuple(entry for entry, _ in entries),
            next_after=next_after,
            more=more,
            earlier=earlier,
            missing=(*gaps, *damaged),
        )

    def _start(self) -> int:
        """The `seq` after which to look for the last entries; with a text, the whole file is searched."""
        last = self._last_seq() if self._before is None else min(self._last_seq(), self._before - 1)
        return 0 if self._text else max(0, last - self._limit)

    def _entries(self, after: int) -> Iterator[tuple[TranscriptEntry, int]]:
        """The entries after a `seq`, with the sizes of their lines."""
        self._file.seek(self._offset_before(after))
        last = after
        for line in self._lines():
            try:
                entry = _entry_decoder.decode(line)
            except DECODE_ERRORS:
                self._damaged += (_seq_in(line) or last + 1) > after
                continue
            if entry.seq > last:
                last = entry.seq
                yield entry, len(line)
            elif entry.seq > after:
                self._damaged += 1

    def _lines(self) -> Iterator[bytes]:
        """Whole lines.

        A line above the limit counts as damaged, and so does an unfinished last line of an ended run.
        """
        while line := self._file.readline(MAX_LINE_BYTES):
            if line.endswith(b"\n"):
                yield line
            elif len(line) == MAX_LINE_BYTES:
                while line and not line.endswith(b"\n"):
                    line = self._file.readline(MAX_LINE_BYTES)
                self._damaged += 1
            elif not self._live:
                self._damaged += 1

    def _offset_before(self, after: int) -> int:
        """An offset shortly before the first entry after a `seq`; the numbers rise from line to line."""
        low, high = 0, self._size
        while after and high - low > _SCAN_BYTES:
            middle = (low + high) // 2
            self._file.seek(middle)
            self._file.readline(MAX_LINE_BYTES)
            start = self._file.tell()
            seq = _seq_in(self._file.readline(MAX_LINE_BYTES)) if start < high else None
            if seq is not None and seq <= after:
                low = start
            else:
                high = middle
        return low

    def _last_seq(self) -> int:
        """The `seq` of the last entry; 0 if there is none at the end of the file."""
        self._file.seek(max(0, self._size - 2 * MAX_LINE_BYTES))
        numbers = (_seq_in(line) for line in reversed(self._file.read().splitlines()))
        return next((seq for seq in numbers if seq is not None), 0)


def _has_text(entry: TranscriptEntry, text: str) -> bool:
    """Whether a text of the entry contains this case-folded text."""
    return any(text in each.casefold() for each in _texts(msgspec.to_builtins(entry)))


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, each in value.items():
            if name not in {"kind", "at"}:
                yield from _texts(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _texts(each)


def _seq_in(line: bytes) -> int | None:
    try:
        return _seq_decoder.decode(line).seq
    except DECODE_ERRORS:
        return None


def _gap(first: int, last: int) -> str:
    return f"entry {first} is missing" if first == last else f"entries {first} to {last} are missing"
