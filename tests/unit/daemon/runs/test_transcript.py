from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from symphony.agents.base import Envelope, Turn
from symphony.agents.events import (
    Activity,
    AgentEvent,
    ApprovalAnswered,
    ContextCompacted,
    FileEdit,
    InputRequired,
    ItemFinished,
    ItemStarted,
    LogNotice,
    PlanStep,
    PlanUpdated,
    RateLimits,
    Reasoning,
    Text,
    TurnEnd,
    TurnStatus,
    UsageUpdate,
)
from symphony.daemon.runs.transcript import (
    MAX_OUTPUT_CHARS,
    MAX_TEXT_CHARS,
    Answered,
    ReviewerBegins,
    RunTranscript,
    TranscriptFold,
)
from symphony.domain import Blame, Category, Failure, Redaction, Tokens
from symphony.journal.transcripts import (
    CommandEntry,
    EditedFile,
    EditEntry,
    MessageEntry,
    ToolEntry,
    TranscriptEntry,
    TranscriptWriter,
    TurnEntry,
    UsageEntry,
    latest,
    read_transcript,
)

SECRET = "hunter2-hunter2-hunter2"
NOON_MS = 1_772_366_400_000


def folded(*events: object) -> list[TranscriptEntry]:
    fold = TranscriptFold(Redaction([SECRET]))
    return [entry for event in events for entry in fold.entries(NOON_MS + 7, event)]


def facts(entries: Sequence[TranscriptEntry]) -> list[tuple[Any, ...]]:
    shared = {"seq", "at", "turn", "replaces", "left_out", "reviewer"}
    names = [[name for name in entry.__struct_fields__ if name not in shared] for entry in entries]
    return [
        (type(entry).__name__.removesuffix("Entry"), entry.replaces, *(getattr(entry, name) for name in own))
        for entry, own in zip(entries, names, strict=True)
    ]


def test_a_turn_has_what_was_sent_and_how_it_ended() -> None:
    failure = Failure(category=Category.TURN_FAILED, blame=Blame.AGENT, message="no luck")
    entries = folded(
        Answered(text="Blue."),
        Turn(number=1, prompt="Do it.", envelope=Envelope(skills="Skills.")),
        TurnEnd(status=TurnStatus.COMPLETED, cost_usd=0.5),
        Turn(number=2, prompt="Go on.", envelope=Envelope(skills="Skills.")),
        TurnEnd(status=TurnStatus.FAILED, failure=failure),
    )
    assert [(entry.seq, entry.turn) for entry in entries] == [(1, 0), (2, 1), (3, 1), (4, 2), (5, 2)]
    assert {entry.at for entry in entries} == {"2026-03-01T12:00:00.007Z"}
    assert facts(entries) == [
        ("Answer", None, "Blue.", None, None),
        ("Turn", None, "started", "Do it.", "Skills.", None, None),
        ("Turn", None, "completed", None, None, None, 0.5),
        ("Turn", None, "started", "Go on.", None, None, None),
        ("Turn", None, "failed", None, None, failure.line, None),
    ]


def test_what_follows_the_begin_of_a_review_is_marked_as_the_reviewers(tmp_path: Path) -> None:
    turn = Turn(number=1, prompt="Do it.", envelope=Envelope(skills="Skills."))
    change = FileEdit(path=str(tmp_path / "a.py"), change="update")
    entries = folded(
        turn,
        Turn(number=2, prompt="Go on."),
        Text(message="Done."),
        ReviewerBegins(reviewer="critic", checkout=tmp_path),
        Turn(number=1, prompt="Look."),
        ItemStarted(kind="edit", summary="x", changes=(change,)),
    )
    assert [entry.reviewer for entry in entries] == [None, None, None, "critic", "critic"]
    assert [entry.turn for entry in entries] == [1, 2, 2, 2, 2], "it has no turn of the run"
    edit = entries[-1]
    assert isinstance(edit, EditEntry)
    assert edit.files[0].path == "a.py"


@pytest.mark.parametrize("kind", ["fileChange", "edit"])
def test_edited_files_are_named_relative_to_the_workspace(tmp_path: Path, kind: str) -> None:
    workspace, other = tmp_path / "my work", tmp_path / "my work 2"
    workspace.mkdir()
    link = tmp_path / "link"
    link.symlink_to(workspace)
    paths = [f"{workspace}/src/a.py", f"{link}/b.py", "./c.py", "d/../e.py", f"{other}/f.py", "/etc/g", ""]
    changes = tuple(FileEdit(path=path, change="update") for path in paths)
    fold = TranscriptFold(Redaction(()))
    fold.work_in(link)
    (entry,) = fold.entries(NOON_MS, ItemStarted(kind=kind, summary="x", changes=changes))
    assert isinstance(entry, EditEntry)
    assert [file.path for file in entry.files] == [
        *("src/a.py", "b.py", "c.py", "e.py"),
        *(f"{other}/f.py", "/etc/g", ""),
    ]


def test_each_kind_of_event_has_its_entry() -> None:
    entries = folded(
        Text(message="Hello."),
        Reasoning(text="Hm."),
        PlanUpdated(steps=(PlanStep(text="look", status="pending"),), text="why"),
        ApprovalAnswered(kind="commandExecution", decision="decline", subject="rm -rf /"),
        Tokens(input_tokens=2, output_tokens=1, total_tokens=3),
        LogNotice(level="warning", message="careful"),
        ContextCompacted(),
        InputRequired(reason="the agent asks: which?", question="Which\ncolour?"),
        InputRequired(reason="approval required for x", approval=True),
    )
    kinds = [kind for kind, *_ in facts(entries)]
    assert kinds == [
        *("Message", "Reasoning", "Plan", "Approval", "Usage", "Note", "Note"),
        *("Question", "Turn", "Approval", "Turn"),
    ]
    assert facts(entries)[3] == ("Approval", None, "rm -rf /", "decline")
    assert facts(entries)[7] == ("Question", None, "Which\ncolour?")
    assert facts(entries)[9] == ("Approval", None, "approval required for x", "required")


def test_work_is_written_when_it_starts_and_replaced_when_it_ends() -> None:
    change = FileEdit(path="a.py", change="update", added=3, removed=1)
    entries = folded(
        ItemStarted(kind="commandExecution", summary="make", item_id="1", input="make \\\n  test"),
        ItemStarted(kind="fileChange", summary="a.py", item_id="2", changes=(change,)),
        ItemStarted(kind="mcpToolCall", summary="symphony.move", item_id="3", input='{"to":"Done"}'),
        ItemFinished(kind="fileChange", summary="a.py", status="completed", item_id="2"),
        ItemFinished(
            kind="commandExecution", summary="make", status="failed", exit_code=2, item_id="1", output="E\n"
        ),
        TurnEnd(status=TurnStatus.INTERRUPTED),
    )
    edited = (EditedFile(path="a.py", change="update", added=3, removed=1),)
    assert facts(entries) == [
        ("Command", None, "make \\\n  test", "started", None, ""),
        ("Edit", None, edited, "started"),
        ("Tool", None, "symphony.move", "started", '{"to":"Done"}', ""),
        ("Edit", 2, edited, "completed"),
        ("Command", 1, "make \\\n  test", "failed", 2, "E\n"),
        ("Tool", 3, "symphony.move", "unfinished", '{"to":"Done"}', ""),
        ("Turn", None, "interrupted", None, None, None, None),
    ]
    assert [type(entry) for entry in latest(entries)] == [CommandEntry, EditEntry, ToolEntry, TurnEntry]


def test_long_texts_are_cut_and_say_by_how_much() -> None:
    text, output = folded(
        Text(message="x" * (MAX_TEXT_CHARS + 9)),
        ItemFinished(kind="execute", summary="make", status="completed", output="y" * 10_000 + "end"),
    )
    assert isinstance(text, MessageEntry)
    assert (len(text.text), text.left_out) == (MAX_TEXT_CHARS, 9)
    assert isinstance(output, CommandEntry)
    assert output.output.endswith("yend")
    assert (len(output.output), output.left_out) == (MAX_OUTPUT_CHARS, 10_003 - MAX_OUTPUT_CHARS)


def test_no_secret_passes_wherever_it_stands() -> None:
    at_the_cut = "x" * (MAX_TEXT_CHARS - 10) + SECRET
    entries = folded(
        Turn(prompt=f"use {SECRET}", envelope=Envelope(skills=SECRET)),
        Answered(text=SECRET),
        Text(message=at_the_cut),
        Text(message=f"\x1b[31mit is {SECRET}"),
        Reasoning(text=SECRET),
        PlanUpdated(steps=(PlanStep(text=SECRET, status=SECRET),), text=SECRET),
        ItemStarted(kind="execute", summary="", input=f"curl -H {SECRET}", item_id="1"),
        ItemFinished(kind="execute", summary="", status=SECRET, item_id="1", output=SECRET + "z" * 4_090),
        ItemStarted(kind="fileChange", summary="", changes=(FileEdit(path=SECRET, change=SECRET),)),
        ItemFinished(kind="mcpToolCall", summary=SECRET, status="x", output=SECRET),
        ApprovalAnswered(kind="x", decision="accept", subject=SECRET),
        InputRequired(reason="r", question=SECRET),
        LogNotice(level="info", message=SECRET),
    )
    for entry in entries:
        assert "hunter2" not in repr(entry)
        assert "\x1b" not in repr(entry)


@pytest.mark.asyncio
async def test_what_comes_is_in_the_file_after_a_flush_and_a_message_in_the_making_too(
    tmp_path: Path,
) -> None:
    path, writing, problems = tmp_path / "transcripts" / "r.jsonl", [""], list[str]()
    transcript = RunTranscript(
        TranscriptWriter(path),
        Redaction(),
        tokens=lambda: Tokens(input_tokens=5, output_tokens=5, total_tokens=10),
        pending_message=lambda: writing[0],
        on_problem=problems.append,
        clock=lambda: NOON_MS,
    )
    quiet: list[AgentEvent] = [Activity(count=9), RateLimits(payload={})]
    for event in [*quiet, UsageUpdate(absolute=True, tokens=Tokens(99, 1, 100))]:
        transcript.on_event(event)
    await transcript.flush()
    (used,) = read_transcript(path).entries
    assert isinstance(used, UsageEntry)
    assert used.total_tokens == 10
    for text in ("Hel", "Hel", "Hello"):
        writing[0] = text
        await transcript.write_now()
    writing[0] = ""
    transcript.on_event(Text(message="Hello."))
    await transcript.close()
    messages = read_transcript(path).entries[1:]
    assert facts(messages) == [
        ("Message", None, "Hel", "writing"),
        ("Message", 2, "Hello", "writing"),
        ("Message", 2, "Hello.", "complete"),
    ]
    assert problems == []


@pytest.mark.asyncio
async def test_a_file_that_cannot_be_written_is_a_problem_once_and_not_an_error(tmp_path: Path) -> None:
    problems: list[str] = []
    transcript = RunTranscript(
        TranscriptWriter(tmp_path / "absent" / "transcripts" / "r.jsonl"),
        Redaction(),
        tokens=Tokens,
        on_problem=problems.append,
    )
    for _ in range(3):
        transcript.on_event(Text(message="lost"))
        await transcript.flush()
    await transcript.close()
    assert len(problems) == 1
