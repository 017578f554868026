"""The codec of frames: what goes in comes out, and nothing else is taken for a frame."""

from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.scheduling import make_failure, make_issue
from symphony.api.models import ListedSkill, Skills
from symphony.daemon.frames import (
    MAX_FRAME_BYTES,
    AnyFrame,
    ArtifactFound,
    Continue,
    ConversationOpened,
    Finish,
    FrameDecoder,
    FrameEncoder,
    FrameError,
    FrameProblem,
    Hello,
    Hurry,
    Ping,
    Report,
    RequestAnswered,
    RunOutcome,
    SkillsChanged,
    SkillsCollected,
    SkillsLoaded,
    Spawned,
    Start,
    Stop,
    ToolCallAsked,
    ToolFinished,
    TranscriptIncomplete,
    TurnFinished,
    Withdraw,
)
from symphony.domain import DeliveredBranch, Phase, RunFacts, ToolResult, WorkSize
from symphony.library.sync import CollectedSkills, Synced
from symphony.library.workspace import WrittenSkill, WrittenSkills
from symphony.processes.base import Identity
from symphony.scheduler import (
    ContinueRun,
    FinishReason,
    FinishRun,
    Outcome,
    OutcomeKind,
    Resume,
    ResumeReason,
    RunReport,
    RunStage,
    StartRun,
    Thread,
)
from symphony.skills import SkillSet

ISSUE = make_issue("7", labels=("tests",), description="ein Text mit \u202e und \x1b[31m")
FRAMES: tuple[AnyFrame, ...] = (
    Hello(version="1.2.3", commit="abc1234"),
    Start(
        command=StartRun(
            run_id="e-1",
            issue=ISSUE,
            attempt=2,
            resume=Resume(reason=ResumeReason.ANSWERED, thread=Thread(thread_id="t"), answer="yes"),
            phase=Phase(name="tests", reason="the label"),
        )
    ),
    Continue(command=ContinueRun(run_id="e-1", issue=ISSUE, turn=2)),
    Finish(command=FinishRun(run_id="e-1", reason=FinishReason.BUDGET, failure=make_failure())),
    Stop(),
    Hurry(),
    Ping(),
    RequestAnswered(request=1, result=ToolResult(success=True, text="{}")),
    RequestAnswered(request=2, failure=make_failure()),
    Spawned(process=Identity(boot_id="b", pid=1, started=1.25)),
    Report(
        report=RunReport(
            stage=RunStage.STREAMING_TURN,
            facts=RunFacts(cost_usd=0.1),
            rate_limits={"primary": {"used": [1, None, "x"]}},
        )
    ),
    SkillsChanged(skills=Skills(listed=(ListedSkill(name="a", path="a/SKILL.md", sha256=None),))),
    SkillsLoaded(request=3, found=SkillSet(root=Path("/w/SYM-7"))),
    SkillsCollected(
        request=6,
        collected=CollectedSkills(
            written=WrittenSkills(directory="d", skills={"a": WrittenSkill(version=1, sha256="f")}),
            files={"d/a/SKILL.md": b"\xff"},
        ),
    ),
    ArtifactFound(request=7, name="reports/a.xml", data=b"\xff"),
    RequestAnswered(request=6, synced=Synced(created=("a",), proposals=(1,))),
    ConversationOpened(request=4, thread_id="t"),
    ToolCallAsked(request=5, name="comment", arguments={"body": "x", "n": 1.5}, session_id="t-1"),
    ToolFinished(success=False),
    TranscriptIncomplete(reason="disk full"),
    TurnFinished(turn=1, trace=None),
    Withdraw(request=5),
    RunOutcome(
        outcome=Outcome(
            kind=OutcomeKind.SUCCEEDED,
            progress=True,
            delivered=DeliveredBranch(work=WorkSize(commits=1), branch="symphony/SYM-7", head="a" * 40),
        )
    ),
)


def encoded(*frames: AnyFrame) -> bytes:
    encoder = FrameEncoder()
    return b"".join(encoder.encode(frame) for frame in frames)


def decoded(*pieces: bytes) -> list[AnyFrame]:
    decoder, found = FrameDecoder(), list[AnyFrame]()
    for piece in pieces:
        decoder.feed(piece)
        while (frame := decoder.take()) is not None:
            found.append(frame)
    decoder.end()
    return found


def problem_of(*pieces: bytes) -> FrameProblem:
    with pytest.raises(FrameError) as caught:
        decoded(*pieces)
    return caught.value.problem


def test_every_frame_arrives_as_it_was_sent() -> None:
    assert decoded(encoded(*FRAMES)) == list(FRAMES)


WIRE = encoded(*FRAMES)


@given(st.lists(st.integers(0, len(WIRE)), max_size=8))
def test_it_does_not_matter_how_the_bytes_are_cut_into_pieces(cuts: list[int]) -> None:
    places = [0, *sorted(cuts), len(WIRE)]
    pieces = [WIRE[start:end] for start, end in pairwise(places)]
    assert decoded(*pieces) == list(FRAMES)


@given(st.integers(0, len(WIRE) - 1))
def test_a_stream_that_ends_early_loses_no_whole_frame_and_invents_none(end: int) -> None:
    decoder, found = FrameDecoder(), list[AnyFrame]()
    decoder.feed(WIRE[:end])
    while (frame := decoder.take()) is not None:
        found.append(frame)
    assert found == list(FRAMES[: len(found)])
    if end < len(encoded(*FRAMES[: len(found) + 1])) and end != len(encoded(*FRAMES[: len(found)])):
        with pytest.raises(FrameError) as caught:
            decoder.end()
        assert caught.value.problem is FrameProblem.CUT


@given(st.binary(max_size=400))
def test_arbitrary_bytes_give_a_typed_error_at_worst(data: bytes) -> None:
    for piece in (data, encoded(Ping()) + data):
        with suppress(FrameError):
            assert decoded(piece) in ([], [Ping()])


def test_a_frame_that_is_lost_or_repeated_is_noticed() -> None:
    encoder = FrameEncoder()
    first, second, third = (encoder.encode(Ping()) for _ in range(3))
    assert problem_of(first, third) is FrameProblem.OUT_OF_ORDER
    assert problem_of(first, second, second) is FrameProblem.OUT_OF_ORDER


def test_a_huge_frame_is_refused_by_its_length_alone() -> None:
    assert problem_of(encoded(Ping()) + (100 * 1024 * 1024).to_bytes(4, "big")) is FrameProblem.OVERSIZED
    encoder = FrameEncoder()
    with pytest.raises(FrameError) as caught:
        encoder.encode(TranscriptIncomplete(reason="x" * MAX_FRAME_BYTES))
    assert caught.value.problem is FrameProblem.OVERSIZED
    assert decoded(encoder.encode(Ping())) == [Ping()]  # the refused one has no number


def test_another_format_is_named_with_a_hint() -> None:
    data = encoded(Ping()).replace(b"symphony-frames 1\n", b"symphony-frames 2\n")
    with pytest.raises(FrameError, match="format 2") as caught:
        decoded(data)
    assert caught.value.problem is FrameProblem.OTHER_FORMAT
    assert caught.value.failure.hint is not None


@pytest.mark.parametrize(
    "text", [b"Welcome to build-1!\n", b"bash: symphony: command not found\n", b"x" * 300]
)
def test_text_in_place_of_frames_is_shown_without_its_control_characters(text: bytes) -> None:
    with pytest.raises(FrameError) as caught:
        decoded(b"\x1b[31m" + text)
    assert caught.value.problem is FrameProblem.NOT_FRAMES
    assert "\x1b" not in caught.value.failure.message


def test_a_frame_of_another_shape_is_malformed() -> None:
    size = (3).to_bytes(4, "big")
    assert problem_of(encoded(Ping()) + size + b"\x92\x01\x80") is FrameProblem.MALFORMED


def test_a_value_without_a_form_is_refused_and_a_read_only_view_is_not() -> None:
    call = ToolCallAsked(request=1, name="x", arguments=MappingProxyType({"a": 1}), session_id="s")
    assert decoded(encoded(call)) == [ToolCallAsked(request=1, name="x", arguments={"a": 1}, session_id="s")]
    with pytest.raises(FrameError) as caught:
        encoded(ToolCallAsked(request=1, name="x", arguments={"a": 10**30}, session_id="s"))
    assert caught.value.problem is FrameProblem.MALFORMED
