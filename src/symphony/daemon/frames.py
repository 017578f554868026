"""The frames between the daemon and a worker, and their codec, which does no I/O.

    daemon -> worker    Start, Continue, Finish, Stop, Hurry, RequestAnswered, Ping
    worker -> daemon    Hello, Spawned, Report, Request, Withdraw, ..., RunOutcome, Ping

A worker in this process exchanges the frame objects directly. On a byte stream, each direction begins with a
line that names the version of the format. Each frame follows as its length in four bytes, big-endian, and a
msgpack array of its number, counted from 0, and the frame.
"""

import re
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec

from symphony import domain
from symphony.api.models import Instructions, Skills
from symphony.journal.transcripts import TranscriptEntry
from symphony.library.model import Resolution
from symphony.library.sync import CollectedSkills, Synced
from symphony.processes.base import Identity
from symphony.scheduler import ContinueRun, FinishRun, Outcome, RunReport, StartRun
from symphony.skills import SkillSet

FORMAT: Final = 1
"""The version of the format. A peer with another version is refused."""
MAX_FRAME_BYTES: Final = 16 * 1024 * 1024
_PREAMBLE: Final = f"symphony-frames {FORMAT}\n".encode()
_VERSION: Final = re.compile(rb"symphony-frames (\d{1,9})\n")
_MAX_LINE_BYTES: Final = 200
_LENGTH_BYTES: Final = 4
Number = Annotated[int, msgspec.Meta(ge=0, le=domain.MAX_COUNT)]
"""The number of a request or of a turn."""


class Frame(msgspec.Struct, frozen=True, kw_only=True, tag_field="frame", omit_defaults=True):
    """One message. The name of its class tags it on the wire."""


class Ping(Frame, frozen=True, kw_only=True):
    """The sender, either side, is alive."""


# --- from the daemon -------------------------------------------------------------------------------------


class CarriedSkills(msgspec.Struct, frozen=True, kw_only=True):
    """The skills of the library that are assigned to a run, with version and file by name."""

    resolution: Resolution
    data: Mapping[str, tuple[int, bytes]]


class Site(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a worker in another process.

    Attributes:
        workflow: the path of the workflow file, which need not exist there.
        text: its content, without the sections of the daemon and without the login of `workspace.repo`.
        lease_ms: the worker ends its agent after this time without a frame.
        env: further variables for agents and hooks; their values are secret.
        delivered: the delivered commit of the issue's branch; a workspace without it is outdated.
        skills: the skills of the library; `None` if the worker has the library itself, or there is none.
        instructions: the files of `agent.instructions.url`, by their paths beside the manifest.
        fallback: the file `agent.instructions.fallback`.
    """

    workflow: str
    text: bytes
    lease_ms: int
    env: Mapping[str, str] = {}
    delivered: str | None = None
    skills: CarriedSkills | None = None
    instructions: Mapping[str, bytes] | None = None
    fallback: bytes | None = None


class Start(Frame, frozen=True, kw_only=True):
    """Begin the run; `tools` are the tracker's tools, `site` is for a worker in another process."""

    command: StartRun
    tools: tuple[domain.ToolSpec, ...] = ()
    site: Site | None = None


class Continue(Frame, frozen=True, kw_only=True):
    """Run one more turn."""

    command: ContinueRun


class Finish(Frame, frozen=True, kw_only=True):
    """Stop the agent between turns, and deliver."""

    command: FinishRun


class Stop(Frame, frozen=True, kw_only=True):
    """Stop the run at any point; with `verify` the worker verifies its delivery."""

    verify: bool = False


class Hurry(Frame, frozen=True, kw_only=True):
    """Limit the time for the rest of the run."""


class RequestAnswered(Frame, frozen=True, kw_only=True):
    """The answer to a request: a failure if it failed.

    Otherwise the `result` of a tool call, people's `comments`, or the result of a sync (`synced`).
    """

    request: Number
    result: domain.ToolResult | None = None
    comments: domain.PeopleComments | None = None
    synced: Synced | None = None
    failure: domain.Failure | None = None


# --- from the worker -------------------------------------------------------------------------------------


class Hello(Frame, frozen=True, kw_only=True):
    """The first frame: the release of the worker, and its commit if known."""

    version: str
    commit: str | None = None


class Spawned(Frame, frozen=True, kw_only=True):
    """The agent's process exists, and nothing was sent to it yet."""

    process: Identity


class Report(Frame, frozen=True, kw_only=True):
    """The progress of the run, summed up from the events of the agent."""

    report: RunReport


class InstructionsComposed(Frame, frozen=True, kw_only=True):
    """The instructions of the phase that the session enters."""

    instructions: Instructions


class SkillsChanged(Frame, frozen=True, kw_only=True):
    """The skills of the session, at its start and each time it uses one."""

    skills: Skills


class ToolFinished(Frame, frozen=True, kw_only=True):
    """A call of a tool by the agent ended."""

    success: bool


class TranscriptIncomplete(Frame, frozen=True, kw_only=True):
    """Entries of the transcript are missing."""

    reason: str


class TranscriptEntries(Frame, frozen=True, kw_only=True):
    """Entries of the transcript, in their order, from a worker in another process."""

    entries: tuple[TranscriptEntry, ...]


class Logged(Frame, frozen=True, kw_only=True):
    """A log event of a worker in another process."""

    level: Literal["debug", "info", "warning", "error", "critical"]
    event: str
    fields: Mapping[str, Any]


class TurnFinished(Frame, frozen=True, kw_only=True):
    """A turn completed, and the worker waits for `Continue` or `Finish`; the rest is as in `TurnEnded`."""

    turn: Number
    trace: bool | None = None
    changed: tuple[str, ...] = ()


class ToolCallAsked(Frame, frozen=True, kw_only=True):
    """The agent calls a tool of the tracker, in the session with this id."""

    request: Number
    name: str
    arguments: Mapping[str, Any]
    session_id: str


class ConversationOpened(Frame, frozen=True, kw_only=True):
    """The agent's conversation exists; the answer confirms that a restart would know it."""

    request: Number
    thread_id: str


class CommentsAsked(Frame, frozen=True, kw_only=True):
    """Asks for people's comments on the issue, for the prompt."""

    request: Number


class SkillsLoaded(Frame, frozen=True, kw_only=True):
    """Loaded skills, whose problems may be worth a comment on the issue."""

    request: Number
    found: SkillSet


class SkillsCollected(Frame, frozen=True, kw_only=True):
    """The agent's changes of the library's skills, if only the daemon's machine has the library."""

    request: Number
    collected: CollectedSkills


class ArtifactFound(Frame, frozen=True, kw_only=True):
    """A file that a check left, to store with the run; the answer confirms that."""

    request: Number
    name: str
    data: bytes


class Withdraw(Frame, frozen=True, kw_only=True):
    """The worker no longer waits for the answer to a request."""

    request: Number


class RunOutcome(Frame, frozen=True, kw_only=True):
    """The last frame: the run is over, and its processes are gone."""

    outcome: Outcome


DaemonFrame = Ping | Start | Continue | Finish | Stop | Hurry | RequestAnswered
Request = ToolCallAsked | CommentsAsked | ConversationOpened | SkillsLoaded | SkillsCollected | ArtifactFound
"""Is answered by exactly one `RequestAnswered` with its number, unless it is withdrawn."""
WorkerFrame = (
    Hello
    | Ping
    | Spawned
    | Report
    | InstructionsComposed
    | SkillsChanged
    | ToolFinished
    | TranscriptIncomplete
    | TranscriptEntries
    | Logged
    | TurnFinished
    | Request
    | Withdraw
    | RunOutcome
)
AnyFrame = DaemonFrame | WorkerFrame


# --- the codec -------------------------------------------------------------------------------------------


class FrameProblem(StrEnum):
    """What is wrong with a byte stream."""

    NOT_FRAMES = "not_frames"
    OTHER_FORMAT = "other_format"
    OVERSIZED = "oversized"
    MALFORMED = "malformed"
    OUT_OF_ORDER = "out_of_order"
    CUT = "cut"


class FrameError(domain.SymphonyError):
    """A byte stream contains no frames, or not the ones that were sent. It can no longer be used."""

    def __init__(self, problem: FrameProblem, message: str, *, hint: str | None = None) -> None:
        super().__init__(
            domain.Failure(
                category=domain.Category.WORKER_LOST, blame=domain.Blame.HOST, message=message, hint=hint
            )
        )
        self.problem = problem


class FrameEncoder:
    """Turns the frames of one direction into bytes."""

    def __init__(self) -> None:
        self._encoder = msgspec.msgpack.Encoder(enc_hook=_encode_other)
        self._sent = 0

    def encode(self, frame: AnyFrame) -> bytes:
        """The bytes of the next frame.

        Raises:
            FrameError: `oversized`, or `malformed`: a value has no form in msgpack, such as a huge number.
                Nothing was counted as sent.
        """
        try:
            body = self._encoder.encode((self._sent, frame))
        except (ValueError, TypeError, OverflowError) as error:
            message = f"a frame {type(frame).__name__} cannot be encoded: {error}"
            raise FrameError(FrameProblem.MALFORMED, message) from error
        if len(body) > MAX_FRAME_BYTES:
            raise _oversized(len(body))
        preamble = b"" if self._sent else _PREAMBLE
        self._sent += 1
        return preamble + len(body).to_bytes(_LENGTH_BYTES, "big") + body


class FrameDecoder:
    """Turns the bytes of one direction into frames. After an error it cannot be used."""

    def __init__(self) -> None:
        self._decoder = msgspec.msgpack.Decoder(tuple[int, AnyFrame], dec_hook=_decode_other)
        self._buffer = bytearray()
        self._begun = False
        self._taken = 0

    def feed(self, data: bytes) -> None:
        """Add read bytes, in pieces of any size."""
        self._buffer += data

    def take(self) -> AnyFrame | None:
        """The next frame, or `None` until more is read.

        Raises:
            FrameError: any of the problems but `cut`.
        """
        if not self._begun and not self._take_preamble():
            return None
        if len(self._buffer) < _LENGTH_BYTES:
            return None
        size = int.from_bytes(self._buffer[:_LENGTH_BYTES], "big")
        if size > MAX_FRAME_BYTES:
            raise _oversized(size)
        end = _LENGTH_BYTES + size
        if len(self._buffer) < end:
            return None
        body = bytes(self._buffer[_LENGTH_BYTES:end])
        del self._buffer[:end]
        try:
            number, frame = self._decoder.decode(body)
        except domain.DECODE_ERRORS as error:
            message = f"frame {self._taken} is malformed: {domain.one_line(str(error), 300)}"
            raise FrameError(FrameProblem.MALFORMED, message) from error
        if number != self._taken:
            raise FrameError(FrameProblem.OUT_OF_ORDER, f"frame {number} came in place of {self._taken}")
        self._taken += 1
        return frame

    def end(self) -> None:
        """The stream has ended.

        Raises:
            FrameError: `cut`: it ended within a frame, or before the first one.
        """
        if self._buffer or not self._taken:
            raise FrameError(FrameProblem.CUT, f"the stream ended within frame {self._taken}")

    def _take_preamble(self) -> bool:
        line, newline, _ = bytes(self._buffer[:_MAX_LINE_BYTES]).partition(b"\n")
        line += newline
        if not newline and len(line) < _MAX_LINE_BYTES:
            return False
        if line == _PREAMBLE:
            del self._buffer[: len(line)]
            self._begun = True
            return True
        if version := _VERSION.fullmatch(line):
            raise FrameError(
                FrameProblem.OTHER_FORMAT,
                f"the peer speaks format {int(version[1])} of the frames, this one speaks {FORMAT}",
                hint="install the same release of symphony on both machines",
            )
        raise FrameError(
            FrameProblem.NOT_FRAMES,
            f"in place of a frame came the text {domain.one_line(line.decode('utf-8', 'replace'))!r}",
            hint="a login shell that is not interactive must print nothing; see the profile of the user",
        )


def refusal(frame: AnyFrame) -> FrameError:
    """The error for a frame that came from the wrong side."""
    return FrameError(FrameProblem.MALFORMED, f"a frame {type(frame).__name__} came from the wrong side")


def _oversized(size: int) -> FrameError:
    return FrameError(
        FrameProblem.OVERSIZED, f"a frame of {size} bytes is larger than the limit of {MAX_FRAME_BYTES}"
    )


def _encode_other(value: object) -> object:
    match value:
        case Path():
            return str(value)
        case Mapping():  # a read-only view
            return dict(value)
        case _:
            raise TypeError(f"a frame cannot carry a {type(value).__name__}")


def _decode_other(kind: type, value: Any) -> object:
    if kind is Path and isinstance(value, str):
        return Path(value)
    raise TypeError(f"a frame does not carry a {kind.__name__}")
