"""What a worker on a host reports: its own record the daemon keeps itself, the rest is checked and masked."""

import json
from collections.abc import Mapping
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import structs

from harness.host_reporting import ISSUE, SECRET, door, sent
from kit.facts import changed
from symphony.api.models import DroppedSkill, InstructionModule, Instructions, ListedSkill, Skills
from symphony.daemon import frames
from symphony.daemon.frames import CarriedSkills, FrameError
from symphony.daemon.hosts.host_reports import MAX_FRAMES, MAX_LISTED, HostReports
from symphony.daemon.runs.artifacts import MAX_FILE_BYTES
from symphony.domain import (
    MASK,
    MAX_REMARK_CHARS,
    MAX_REMARK_PATH_CHARS,
    MAX_REVIEWER_REMARKS,
    Blame,
    Category,
    DeliveredBranch,
    Failure,
    Redaction,
    ReviewerRemark,
    ReviewerVerdict,
    Tokens,
    Verification,
    WorkSize,
)
from symphony.journal.transcripts import CommandEntry, MessageEntry, PlanEntry, TranscriptPlanStep
from symphony.library.model import Authorship, Evidence, Resolution, SkillText
from symphony.library.store import Library
from symphony.library.sync import CollectedSkills, Synced, sync_collected
from symphony.library.workspace import WrittenSkill, WrittenSkills
from symphony.processes.base import Identity
from symphony.scheduler import (
    WAITING_FOR_SLOT,
    ContinueRun,
    FinishReason,
    FinishRun,
    Outcome,
    OutcomeKind,
    RunReport,
    RunStage,
)
from symphony.skills import SkillSet
from symphony.workspaces import MAX_CHANGED

OUTPUT = f"a\x1b[31m\x07 {SECRET} " + "x" * 100_000
HEAD = "a" * 40
STREAMING = changed(RunReport(stage=RunStage.STREAMING_TURN), turn_count=1)
BAD_NUMBERS = (-1, 2**53 + 1, 2**63, 2**64 - 1)
COUNTS = ("event_count", "tool_calls", "turn_count", "unpriced_tokens", *Tokens.__struct_fields__)


def reported(report: RunReport, by: HostReports | None = None) -> RunReport:
    found: RunReport = sent(frames.Report(report=report), by).report
    return found


def ended(by: HostReports | None = None, **changes: Any) -> Outcome:
    outcome = Outcome(kind=OutcomeKind.FAILED)
    found: Outcome = sent(frames.RunOutcome(outcome=replace(outcome, **changes)), by).outcome
    return found


def failure(category: Category = Category.TURN_FAILED, **changes: Any) -> Failure:
    return Failure(category=category, blame=Blame.AGENT, message="m", **changes)


def limits(payload: Mapping[str, Any]) -> RunReport:
    return changed(STREAMING, rate_limits=payload)


# --- numbers ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", BAD_NUMBERS)
@pytest.mark.parametrize("name", COUNTS)
def test_a_count_that_cannot_be_ends_the_run(name: str, number: int) -> None:
    reported(changed(STREAMING, **{name: 1}))
    with pytest.raises(FrameError):
        reported(changed(STREAMING, **{name: number}))


def test_a_turn_uses_no_more_than_that_of_an_agent_here() -> None:
    by = door()
    assert reported(changed(STREAMING, total_tokens=900_000_000), by).facts.tokens.total_tokens == 900_000_000
    with pytest.raises(FrameError):
        reported(changed(STREAMING, total_tokens=1_100_000_000), by)
    by.on_directive(frames.Continue(command=ContinueRun(run_id="d1-1", issue=ISSUE, turn=2)))
    assert (
        reported(changed(STREAMING, total_tokens=1_100_000_000), by).facts.tokens.total_tokens
        == 1_100_000_000
    )


@pytest.mark.parametrize("cost", [float("nan"), float("inf")])
def test_a_cost_that_is_no_number_ends_the_run(cost: float) -> None:
    assert reported(changed(STREAMING, cost_usd=0.25)).facts.cost_usd == 0.25
    assert reported(changed(STREAMING, cost_usd=-1.0)).facts.cost_usd is None
    with pytest.raises(FrameError):
        reported(changed(STREAMING, cost_usd=cost))


@pytest.mark.parametrize("value", [float("nan"), 2**63, b"bytes", msgspec.msgpack.Ext(3, b"x")])
def test_what_json_does_not_know_is_in_no_payload(value: object) -> None:
    with pytest.raises(FrameError):
        reported(limits({"a": [value]}))
    with pytest.raises(FrameError):
        sent(frames.ToolCallAsked(request=1, name="comment", arguments={"a": value}, session_id="s"))
    with pytest.raises(FrameError):
        sent(frames.Logged(level="info", event="e", fields={"a": value}))


def test_rate_limits_are_small_and_masked() -> None:
    assert reported(limits({"primary": {"used": 3, "by": SECRET}})).rate_limits == {
        "primary": {"used": 3, "by": MASK}
    }
    assert reported(limits({"blob": "x" * 20_000})).rate_limits is None


def test_the_waits_and_states_of_a_failure_are_bounded() -> None:
    found = ended(failure=failure(retry_after_ms=10**15, status=7)).failure
    assert found is not None
    assert (found.retry_after_ms, found.status) == (3_600_000, None)
    with pytest.raises(FrameError):
        ended(failure=failure(retry_after_ms=2**63))


# --- the daemon's own record -----------------------------------------------------------------------------


def test_branch_workspace_and_turns_are_those_of_the_daemon() -> None:
    lie = changed(STREAMING, branch="alice/feature", workspace_path="/etc", turn_count=7)
    found = reported(lie)
    assert (found.facts.branch, found.facts.workspace_path) == (
        "symphony/SYM-1",
        "/home/agent/work/workspaces/SYM-1",
    )
    assert found.facts.turn_count == 1
    assert not hasattr(found, "host")


def test_a_turn_counts_that_a_host_does_not_report() -> None:
    by = door()
    assert reported(changed(STREAMING, turn_count=0), by).facts.turn_count == 0
    sent(frames.TurnFinished(turn=1), by)
    assert by.latest.facts.turn_count == 1
    by.on_directive(frames.Continue(command=ContinueRun(run_id="d1-1", issue=ISSUE, turn=2)))
    sent(frames.TurnFinished(turn=2), by)
    assert by.latest.facts.turn_count == 2


def test_changed_paths_of_a_host_are_lines_masked_and_bounded() -> None:
    told = ("src/a.py", f"{SECRET}\nb", *(f"f{number}" for number in range(300)))
    found = sent(frames.TurnFinished(turn=1, changed=told)).changed
    assert found[0] == "src/a.py"
    assert SECRET not in found[1]
    assert "\n" not in found[1]
    assert len(found) == MAX_CHANGED


def test_a_delivery_tells_its_commit_and_nothing_else() -> None:
    lie = DeliveredBranch(
        work=WorkSize(commits=9, insertions=9), branch="alice/feature", head=HEAD, pushed=True
    )
    found = ended(delivered=lie, commented=True)
    assert found.delivered == DeliveredBranch(branch="symphony/SYM-1", head=HEAD)
    assert not found.commented
    assert ended(door(branch=None), delivered=lie).delivered is None
    with pytest.raises(FrameError):
        ended(delivered=structs.replace(lie, head="--upload-pack=x"))


@pytest.mark.parametrize("name", ["issue_id", "issue_identifier", "run_id", "host"])
def test_a_log_event_is_of_its_own_issue_and_marked(name: str) -> None:
    found = sent(
        frames.Logged(level="info", event="turn_started", fields={name: "SYM-2", "turn": 1, "text": OUTPUT})
    )
    assert found.fields["turn"] == 1
    assert len(found.fields["text"]) < len(OUTPUT)
    own = {"issue_id": "1", "issue_identifier": "SYM-1", "run_id": "d1-1", "host": "build-1"}
    assert own.items() <= found.fields.items()
    assert found.fields["reported_by"] == "worker"


@pytest.mark.parametrize("name", ["self", "event", "exc_info", "stack_info", "level", "Upper", "trace_id"])
def test_a_field_of_a_log_event_that_has_a_meaning_here_is_left_out(name: str) -> None:
    found = sent(frames.Logged(level="info", event="run\x1b[2J ended", fields={name: "x"}))
    assert name not in found.fields
    assert found.event == "run ended"


def test_skills_were_given_in_the_versions_that_the_daemon_gave() -> None:
    def listed(name: str, version: int) -> ListedSkill:
        return ListedSkill(name=name, path=f"{name}/SKILL.md", library_version=version, sha256=None)

    by = door()
    skills = Skills(
        listed=(listed("given", 3), listed("deploy", 1), listed("given", 9)),
        dropped=(DroppedSkill(name="x", reason="count"),),
    )
    found: Skills = sent(frames.SkillsChanged(skills=skills), by).skills
    assert [one.library_version for one in found.listed] == [3, None, None]
    assert [one.name for one in found.dropped] == ["x"]
    by.on_directive(frames.RequestAnswered(request=1, synced=Synced(created=("new",))))
    again: Skills = sent(frames.SkillsChanged(skills=replaced(found, synced=None)), by).skills
    assert again.synced is None


def replaced(value: Any, **changes: Any) -> Any:
    return msgspec.structs.replace(value, **changes)


@pytest.mark.parametrize(
    ("name", "version", "stays"),
    [("given", 3, True), ("given", 2, True), ("given", 4, False), ("given", 0, False), ("deploy", 1, False)],
)
def test_a_change_is_based_on_a_skill_that_was_given(name: str, version: int, *, stays: bool) -> None:
    written = WrittenSkills(
        directory=".git/hooks",
        skills={name: WrittenSkill(version=version, sha256="a" * 64)},
        others=("b\x00.md",),
    )
    collected = CollectedSkills(written=written, files={f".agents/skills/{name}/SKILL.md": b"text\x00"})
    found: CollectedSkills = sent(frames.SkillsCollected(request=1, collected=collected)).collected
    assert (name in found.written.skills) is stays
    assert found.written.directory == ".agents/skills"
    assert found.files == collected.files, "what it is worth, the gate and people judge"


@pytest.mark.parametrize(("claimed", "version"), [("given", 2), ("deploy", 1)])
def test_with_apply_a_host_changes_what_its_run_was_given_and_nothing_else(
    claimed: str, version: int, tmp_path: Path
) -> None:
    library = Library(tmp_path / "library.db")
    text = SkillText(name=claimed, description="What it does.", when_to_use="", content="Do it.\n")
    library.add(text, Authorship(author="ann"))
    carried = CarriedSkills(resolution=Resolution(skills=(), reason="all"), data={"given": (1, b"")})
    file = replaced(text, content="Do it twice.\n").file()
    lie = CollectedSkills(
        written=WrittenSkills(
            directory=".agents/skills",
            skills={claimed: WrittenSkill(version=1, sha256=sha256(text.file()).hexdigest())},
        ),
        files={f".agents/skills/{claimed}/SKILL.md": file},
    )
    taken = sent(frames.SkillsCollected(request=1, collected=lie), door(carried=carried)).collected
    synced = sync_collected(
        library, taken, evidence=Evidence(run_id="d1-1"), change=Authorship(author="codex")
    )
    assert synced is not None
    assert library.skill(claimed).version == version
    assert synced.proposals == ()
    assert bool(synced.problems) == (version == 1), "it is the skill of another run"


def test_the_phase_is_that_of_the_daemon() -> None:
    composed = Instructions(
        phase="release",
        origin="source",
        sha256=None,
        modules=tuple(InstructionModule(name=f"m{number}", sha256="a" * 64) for number in range(5_000)),
        dropped=(),
        chars=1,
    )
    found: Instructions = sent(frames.InstructionsComposed(instructions=composed)).instructions
    assert found.phase == "build"
    assert len(found.modules) == 100


@pytest.mark.parametrize(
    "category", [Category.BUDGET_DAY, Category.STOPPED_BY_OPERATOR, Category.PULL_REQUEST_CLOSED]
)
def test_a_failure_of_the_daemon_is_not_reported_by_a_host(category: Category) -> None:
    found = ended(failure=failure(category)).failure
    assert found is not None
    assert found.category is Category.WORKER_LOST
    by, own = door(), failure(category)
    by.on_directive(frames.Finish(command=FinishRun(run_id="d1-1", reason=FinishReason.BUDGET, failure=own)))
    assert ended(by, failure=replace(own, message="forged")).failure == own


def test_a_question_is_one_whatever_its_category() -> None:
    found = ended(kind=OutcomeKind.INPUT_REQUIRED, failure=failure(Category.AGENT_AUTH), question=OUTPUT)
    assert found.failure is not None
    assert found.failure.category is Category.TURN_INPUT_REQUIRED
    assert SECRET not in (found.question or "")
    assert len(found.question or "") <= 8_000


# --- texts -----------------------------------------------------------------------------------------------


def texts_of(value: object) -> list[str]:
    """All texts in what the daemon takes over, by way of JSON."""
    plain = json.loads(msgspec.json.encode(value, enc_hook=str))

    def walk(node: Any) -> list[str]:
        if isinstance(node, dict):
            return [*node, *(text for each in node.values() for text in walk(each))]
        if isinstance(node, list):
            return [text for each in node for text in walk(each)]
        return [node] if isinstance(node, str) else []

    return walk(plain)


HEAD_OF_ENTRY: dict[str, Any] = {"seq": 1, "at": "2026-03-01T00:00:00.000Z", "turn": 1}
HOSTILE_TEXTS: dict[str, frames.WorkerFrame] = {
    "report": frames.Report(
        report=changed(
            STREAMING,
            workspace_path=OUTPUT,
            branch=OUTPUT,
            session_id=OUTPUT,
            thread_id=OUTPUT,
            last_event=OUTPUT,
            last_message=OUTPUT,
            last_words=OUTPUT,
            model=OUTPUT,
        )
    ),
    "end": frames.RunOutcome(
        outcome=Outcome(
            kind=OutcomeKind.FAILED,
            failure=replace(failure(), message=OUTPUT, hint=OUTPUT, where=OUTPUT),
            question=OUTPUT,
            summary=OUTPUT,
            delivered=DeliveredBranch(branch=OUTPUT, head=HEAD, push_failure=replace(failure(), hint=OUTPUT)),
        )
    ),
    "log": frames.Logged(level="info", event=OUTPUT, fields={"a": [{"b": OUTPUT}], "c": OUTPUT}),
    "transcript": frames.TranscriptIncomplete(reason=OUTPUT),
    "skills": frames.SkillsChanged(
        skills=Skills(
            commit=OUTPUT,
            listed=tuple(
                ListedSkill(name=OUTPUT[:9_000], path=OUTPUT[:900], sha256=None) for _ in range(1_000)
            ),
            dropped=(DroppedSkill(name=OUTPUT, reason=OUTPUT),),
        )
    ),
    "instructions": frames.InstructionsComposed(
        instructions=Instructions(
            phase=OUTPUT, origin=OUTPUT, sha256=OUTPUT, modules=(), dropped=(OUTPUT,), chars=1
        )
    ),
    "collected": frames.SkillsCollected(
        request=1,
        collected=CollectedSkills(
            written=WrittenSkills(directory=OUTPUT, skills={}), files={}, problems=(OUTPUT[:9_000],) * 1_000
        ),
    ),
}


@pytest.mark.parametrize("kind", HOSTILE_TEXTS)
def test_texts_are_masked_plain_and_bounded(kind: str) -> None:
    found = sent(HOSTILE_TEXTS[kind])
    texts = texts_of(found)
    assert not any(SECRET in text or "\x1b" in text or "\x07" in text for text in texts)
    assert sum(map(len, texts)) < 350_000
    assert len(getattr(getattr(found, "skills", None), "listed", ())) <= MAX_LISTED


def test_a_transcript_is_masked_and_an_ordinary_one_stays_as_it_is() -> None:
    command = CommandEntry(command="make", status="completed", exit_code=-9, output=OUTPUT, **HEAD_OF_ENTRY)
    said = MessageEntry(text="first\nsecond", status="writing", **HEAD_OF_ENTRY)
    found = sent(frames.TranscriptEntries(entries=(command,))).entries[0]
    assert SECRET not in found.output
    assert len(found.output) <= 65_536
    assert found.exit_code == -9
    assert sent(frames.TranscriptEntries(entries=(said,))).entries == (said,)


@pytest.mark.parametrize(
    "changes",
    [
        {"seq": 2**53},
        {"at": "x" * 100},
        {"at": "2026-03-01"},
        {"at": "2026-99-01T00:00:00.000Z"},
        {"replaces": 1},
        {"left_out": 2**63},
        {"turn": 2**60},
    ],
    ids=str,
)
def test_an_entry_that_no_reader_could_use_ends_the_run(changes: Mapping[str, Any]) -> None:
    with pytest.raises(FrameError):
        sent(frames.TranscriptEntries(entries=(MessageEntry(text="a", **{**HEAD_OF_ENTRY, **changes}),)))


def test_an_entry_fits_on_a_line() -> None:
    steps = tuple(TranscriptPlanStep(text="x" * 60_000, status="pending") for _ in range(20))
    with pytest.raises(FrameError):
        sent(frames.TranscriptEntries(entries=(PlanEntry(steps=steps, text="", **HEAD_OF_ENTRY),)))


@pytest.mark.parametrize(
    ("thread_id", "usable"),
    [
        ("0199a213-81c0-7800-8aa1-bbab2a035a53", True),
        ("sess:1/a", True),
        ("-oProxyCommand=x", False),
        ("a\nb", False),
        ("", False),
        ("x" * 201, False),
        (SECRET, False),
    ],
)
def test_an_id_of_the_agent_is_no_option_and_no_secret(thread_id: str, *, usable: bool) -> None:
    assert (reported(changed(STREAMING, thread_id=thread_id)).facts.thread_id == thread_id) is usable
    opened = frames.ConversationOpened(request=1, thread_id=thread_id)
    if usable:
        assert sent(opened) == opened
    else:
        with pytest.raises(FrameError):
            sent(opened)


def test_a_host_does_not_say_that_a_run_waits_for_its_slot() -> None:
    assert reported(changed(STREAMING, last_event="turn_completed")).last_event == "turn_completed"
    assert reported(changed(STREAMING, last_event=WAITING_FOR_SLOT)).last_event is None


def test_a_secret_that_looks_like_a_word_or_a_commit_names_nothing() -> None:
    token = "c0ffee5e" * 5
    by = door(redaction=Redaction([token]))
    found = sent(frames.Logged(level="info", event=token, fields={token: 1, "turn": 1}), by)
    assert token not in texts_of(found)
    assert found.fields["turn"] == 1
    assert reported(changed(STREAMING, last_event=token), by).last_event is None
    with pytest.raises(FrameError):
        ended(by, delivered=DeliveredBranch(branch="symphony/SYM-1", head=token))


@pytest.mark.parametrize(
    "frame",
    [
        frames.TurnFinished(turn=2**53 + 1),
        frames.Withdraw(request=2**64 - 1),
        frames.ToolCallAsked(request=-1, name="comment", arguments={}, session_id="s"),
        frames.Spawned(process=Identity(boot_id="b", pid=2**63, started=1.0)),
    ],
    ids=lambda frame: type(frame).__name__,
)
def test_a_number_that_cannot_be_is_in_no_frame(frame: frames.WorkerFrame) -> None:
    with pytest.raises(FrameError):
        sent(frame)


# --- how much --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "frame",
    [
        frames.TranscriptIncomplete(reason="r"),
        frames.ConversationOpened(request=1, thread_id="t"),
        frames.ArtifactFound(request=1, name="a", data=b""),
        frames.SkillsCollected(
            request=1, collected=CollectedSkills(written=WrittenSkills(directory="d", skills={}), files={})
        ),
    ],
    ids=lambda frame: type(frame).__name__,
)
def test_what_leaves_something_behind_comes_a_few_times(frame: frames.WorkerFrame) -> None:
    by, most = door(), MAX_FRAMES[type(frame)]
    for _ in range(most):
        sent(frame, by)
    with pytest.raises(FrameError):
        sent(frame, by)


def test_a_file_of_a_check_is_bounded_and_has_no_secret() -> None:
    found = sent(frames.ArtifactFound(request=1, name=OUTPUT, data=OUTPUT.encode("utf-8", "surrogateescape")))
    assert isinstance(found, frames.ArtifactFound)
    assert SECRET not in found.name
    assert SECRET.encode() not in found.data
    for name, data in (("", b""), ("a", b"x" * (MAX_FILE_BYTES + 1))):
        with pytest.raises(FrameError):
            sent(frames.ArtifactFound(request=1, name=name, data=data))


def test_a_frame_has_a_bounded_number_of_values() -> None:
    with pytest.raises(FrameError):
        sent(frames.Logged(level="info", event="e", fields={"a": [[1] * 1_000] * 1_000}))


@pytest.mark.parametrize(
    "frame",
    [
        frames.Ping(),
        frames.Withdraw(request=1),
        frames.ToolFinished(success=True),
        frames.TurnFinished(turn=1, trace=True),
        frames.ToolCallAsked(
            request=1, name="comment", arguments={"text": "a\nb" * 10_000}, session_id="s-1"
        ),
        frames.Report(report=STREAMING),
        frames.SkillsChanged(
            skills=Skills(listed=(ListedSkill(name="a", path="a/SKILL.md", sha256=None, seen=True),))
        ),
    ],
    ids=lambda frame: type(frame).__name__,
)
def test_what_an_ordinary_worker_reports_stays_as_it_is(frame: frames.WorkerFrame) -> None:
    assert sent(frame) == frame


def test_skills_with_problems_pass(tmp_path: Path) -> None:
    frame = frames.SkillsLoaded(request=1, found=SkillSet(root=tmp_path))
    assert sent(frame) == frame


# --- the reviewer ----------------------------------------------------------------------------------------


def test_a_verdict_is_bounded_and_masked() -> None:
    remark = ReviewerRemark(file=f"{SECRET}/a\nb" * 1_000, line=7, text=OUTPUT)
    verdict = ReviewerVerdict(reviewer=f"critic {SECRET}", approves=False, remarks=(remark,) * 60)
    made = ended(verification=Verification(head=HEAD, reviewer=verdict)).verification
    assert made is not None
    assert made.reviewer is not None
    assert SECRET not in repr(made)
    assert len(made.reviewer.remarks) == MAX_REVIEWER_REMARKS
    assert all(len(each.text) <= MAX_REMARK_CHARS for each in made.reviewer.remarks)
    assert all(len(each.file) <= MAX_REMARK_PATH_CHARS for each in made.reviewer.remarks)
    assert not made.reviewer.approves
    bad = replace(verdict, remarks=(structs.replace(remark, line=0),))
    with pytest.raises(FrameError):
        ended(verification=Verification(head=HEAD, reviewer=bad))


def test_a_reviewer_uses_a_part_of_the_tokens_of_its_run() -> None:
    used = Tokens(total_tokens=10)
    report = reported(changed(STREAMING, total_tokens=10, reviewer_tokens=used))
    assert report.facts.reviewer_tokens == used
    for bad in (Tokens(total_tokens=11), Tokens(total_tokens=-1)):
        with pytest.raises(FrameError):
            reported(changed(STREAMING, total_tokens=10, reviewer_tokens=bad))


def test_a_host_can_say_that_there_was_no_verdict() -> None:
    told = ended(kind=OutcomeKind.SUCCEEDED, failure=failure(Category.NOT_REVIEWED)).failure
    assert told is not None
    assert told.category is Category.NOT_REVIEWED
