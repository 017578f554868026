import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from harness.asking import FakeOperator
from harness.binding import SECRET, FakeTracker, FakeWorkspaces, Mailbox, StoryCore, make_context
from harness.chronicle import Chronicle, conforms, populated, sent
from harness.scheduling import make_failure, make_issue
from kit.virtual_time import in_virtual_time
from symphony import to_thread
from symphony.api import documents, models
from symphony.api.interface import UnavailableError
from symphony.api.models import utc_text
from symphony.daemon import operator as module
from symphony.daemon.context import RuntimeContext
from symphony.daemon.operator import Limits, Parts, ServiceOperator
from symphony.domain import AgentChoice, SymphonyError
from symphony.scheduler import Cycle, DrainAsked, State, WakeAsked
from symphony.workspaces import Patch

pytestmark = pytest.mark.asyncio


class Desk:
    """An operator over a story, and what it put into the mailbox."""

    def __init__(self, tmp_path: Path, story: Chronicle | None = None, **options: Any) -> None:
        self.story = story or populated()
        self.mailbox = Mailbox()
        self.context: RuntimeContext | None = make_context(tmp_path, FakeTracker())
        self.started = True
        self.diagnoses = 0
        self.operator = ServiceOperator(
            StoryCore(
                tmp_path,
                state=lambda: self.story.state if self.started else None,
                context=lambda: self.context,
                post=self.mailbox.post,
                now_ms=lambda: self.story.now,
                wall_ms=lambda: round(self.story.wall().timestamp() * 1000),
            ),
            history=self.story.history,
            parts=Parts(),
            metrics=FakeOperator().metrics,
            diagnose=self.diagnose,
            **options,
        )

    async def diagnose(self, context: RuntimeContext) -> tuple[models.DoctorCheck, ...]:
        assert context is self.context
        self.diagnoses += 1
        await anyio.lowlevel.checkpoint()
        return (models.DoctorCheck(name="disk", status="error", message=f"full: {SECRET}", hint="free some"),)


# --- snapshots ---


@pytest.mark.conformance("H-2", "O-8")
async def test_the_documents_are_those_of_the_state_it_holds(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    document = await desk.operator.state()
    conforms(document, "State")
    plain = desk.story.document()
    assert sent(document)["counts"] == plain["counts"]
    assert sent(document)["running"] == plain["running"]
    issue = await desk.operator.issue("SYM-3")
    assert issue is not None
    conforms(issue, "Issue")
    assert await desk.operator.issue("SYM-99") is None


@pytest.mark.conformance("O-7")
async def test_no_secret_gets_out_by_any_document(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    story = Chronicle(make_issue("1", title=f"see {SECRET}", url=f"https://x.example/?key={SECRET}")).begin()
    story.streams(last_message=f"found {SECRET}", rate_limits={"limitId": SECRET, "auth_token": "plain"})
    desk = Desk(tmp_path, story)
    monkeypatch.setattr(module, "preview_prompt", _leaking)
    state = await desk.operator.state()
    documents = [state, await desk.operator.issue("SYM-1"), await desk.operator.prompt("SYM-1")]
    assert SECRET not in repr(documents)
    assert "plain" not in repr(documents)
    assert state.codex_totals.total_tokens == 0, "a count is no secret"


async def test_the_skills_and_the_settings_in_force_without_secrets(tmp_path: Path) -> None:
    for name, front in {
        "good": f"description: use it when {SECRET}",
        "bad": "metadata: {a: b}",
    }.items():
        file = tmp_path / ".symphony" / "skills" / name / "SKILL.md"
        file.parent.mkdir(parents=True)
        file.write_text(f"---\nname: {name}\n{front}\n---\nDo it.\n")
    desk = Desk(tmp_path)
    skills, system = await desk.operator.skills(), await desk.operator.system()
    assert [(skill.name, skill.scope) for skill in skills.skills] == [("good", "project")]
    (problem,) = (each for each in skills.problems if each.severity == "error")
    assert problem.path == ".symphony/skills/bad/SKILL.md"
    assert problem.line is not None
    assert problem.hint
    settings = {setting.key: setting for setting in system.settings}
    assert (settings["tracker.kind"].value, settings["tracker.kind"].given) == ("markdown", True)
    assert (settings["polling.interval_ms"].value, settings["polling.interval_ms"].given) == ("30000", False)
    assert SECRET not in repr((skills, system))


async def test_the_machine_is_checked_at_most_once_a_minute_for_all_who_look(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    seen: list[models.System] = []

    async def look() -> None:
        seen.append(await desk.operator.system())

    async with anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(look)
    first = seen[0].diagnosis
    assert first is not None
    assert first.checks[0].status == "error"
    assert SECRET not in repr(seen)
    desk.story.now += 59_999
    await look()
    assert desk.diagnoses == 1
    assert [one.diagnosis for one in seen] == [first] * 4
    desk.story.now += 1
    await look()
    assert desk.diagnoses == 2
    assert seen[-1].diagnosis != first


async def _leaking(
    _: RuntimeContext,
    issue: object,
    attempt: int | None,
    resume: object,
    *,
    agent: AgentChoice,
    **more: object,
) -> models.Prompt:
    del issue, resume, more
    return models.Prompt(
        issue_identifier="SYM-1",
        attempt=attempt,
        envelope=SECRET,
        prompt=f"use {SECRET}",
        skills=models.Skills(),
        agent=agent,
        source="daemon",
        note=None,
    )


async def test_what_was_masked_once_is_masked_anew_when_there_are_other_secrets(tmp_path: Path) -> None:
    story = Chronicle(make_issue("1", title=f"see {SECRET}", dispatchable=False)).begin()
    desk = Desk(tmp_path, story)
    assert desk.context is not None
    open_bound = replace(desk.context, redaction=type(desk.context.redaction)())
    closed_bound, desk.context = desk.context, open_bound
    assert SECRET in repr(await desk.operator.state())
    desk.context = closed_bound
    assert SECRET not in repr(await desk.operator.state())


@pytest.mark.conformance("O-8")
async def test_before_there_is_a_state_nothing_can_be_told(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.started = False
    for ask in (desk.operator.state(), desk.operator.issue("SYM-1"), desk.operator.prompt("SYM-1")):
        with pytest.raises(UnavailableError) as refused:
            await ask
        assert refused.value.code == "snapshot_unavailable"
    with pytest.raises(UnavailableError) as refused:
        desk.operator.refresh()
    assert refused.value.code == "orchestrator_unavailable"


@pytest.mark.conformance("O-8", "H-3")
async def test_a_snapshot_that_takes_too_long_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, ended = threading.Event(), threading.Event()

    def stuck(*_: object, **__: object) -> None:
        gate.wait()
        ended.set()

    monkeypatch.setattr(documents, "state_document", stuck)
    desk = Desk(tmp_path, limits=Limits(snapshot_s=0.01))
    try:
        with pytest.raises(UnavailableError) as refused:
            await desk.operator.state()
    finally:
        gate.set()
        await to_thread.run_sync(ended.wait, 60)
    assert refused.value.code == "snapshot_timeout"


async def test_a_snapshot_is_made_beside_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[threading.Thread] = []
    build = documents.state_document

    def spy(state: State, *rest: Any, **named: Any) -> models.State:
        seen.append(threading.current_thread())
        return build(state, *rest, **named)

    monkeypatch.setattr(documents, "state_document", spy)
    desk = Desk(tmp_path)
    async with anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(desk.operator.state)
    assert len(seen) == 3
    assert threading.main_thread() not in seen


# --- prompts ---


@pytest.mark.parametrize(
    ("identifier", "attempt"), [("SYM-1", None), ("SYM-2", 1), ("SYM-3", None), ("a/b ü", None)]
)
async def test_a_prompt_is_previewed_for_the_attempt_that_comes_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, identifier: str, attempt: int | None
) -> None:
    monkeypatch.setattr(module, "preview_prompt", _leaking)
    document = await Desk(tmp_path).operator.prompt(identifier)
    assert document is not None
    conforms(document, "Prompt")
    assert (document.attempt, document.source) == (attempt, "daemon")


async def test_a_prompt_of_an_unknown_issue(tmp_path: Path) -> None:
    assert await Desk(tmp_path).operator.prompt("SYM-99") is None


async def test_why_a_prompt_cannot_be_made_is_told_without_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def failing(*_: object, **__: object) -> models.Prompt:
        raise SymphonyError(make_failure(f"no {SECRET}"))

    monkeypatch.setattr(module, "preview_prompt", failing)
    with pytest.raises(SymphonyError) as failed:
        await Desk(tmp_path).operator.prompt("SYM-1")
    assert SECRET not in failed.value.failure.line


@in_virtual_time
async def test_few_prompts_are_made_together_and_a_slow_one_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = 0

    async def slow(*_: object, **__: object) -> models.Prompt:
        nonlocal begun
        begun += 1
        await anyio.sleep_forever()
        raise AssertionError("not reached")

    async def ask() -> None:
        with pytest.raises(UnavailableError) as refused:
            await desk.operator.prompt("SYM-1")
        assert refused.value.code == "snapshot_timeout"

    monkeypatch.setattr(module, "preview_prompt", slow)
    desk = Desk(tmp_path, limits=Limits(preview_s=60))
    async with anyio.create_task_group() as group:
        for _ in range(10):
            group.start_soon(ask)
        await anyio.wait_all_tasks_blocked()
        assert begun == 2


async def test_what_a_workspace_has_changed_is_read_once_for_all_who_look(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    workspaces = FakeWorkspaces(found_patch=Patch(branch="b", content=f"3\t1\t{SECRET}.py\0".encode()))
    desk.context = make_context(tmp_path, FakeTracker(), workspaces)

    async def look() -> None:
        files = await desk.operator.working_files("SYM-1")
        assert files is not None
        assert [(file.insertions, file.deletions) for file in files] == [(3, 1)]
        assert SECRET not in files[0].path

    async with anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(look)
    desk.story.now += 2_999
    await look()
    assert workspaces.compared == 1
    desk.story.now += 1
    await look()
    assert workspaces.compared == 2


@in_virtual_time
async def test_the_diff_of_a_workspace_is_bounded_and_without_secrets(tmp_path: Path) -> None:
    workspaces, desk = FakeWorkspaces(), Desk(tmp_path, limits=Limits(snapshot_s=60))
    desk.context = make_context(tmp_path, FakeTracker(), workspaces)
    assert await desk.operator.working_diff("SYM-1") is None
    half = len(SECRET) // 2
    for content, length, cut in (
        (b"+new\n", 4, False),
        (b"x" * (200 * 1_024 - half) + SECRET.encode() + b"y" * 100, 200 * 1_024, True),
        (b"\xff" * 2_000_000, 200 * 1_024, True),
    ):
        workspaces.found_patch = Patch(branch="b", content=content)
        diff = await desk.operator.working_diff("SYM-1")
        assert diff is not None
        assert (len(diff.text), diff.cut, SECRET[:half] in diff.text) == (length, cut, False)
    workspaces.found_patch = SymphonyError(make_failure(f"no {SECRET}"))
    with pytest.raises(UnavailableError) as failed:
        await desk.operator.working_diff("SYM-1")
    assert SECRET not in failed.value.message
    workspaces.before_comparison = anyio.sleep_forever
    with pytest.raises(UnavailableError):
        await desk.operator.working_diff("SYM-1")


@in_virtual_time
async def test_a_workspace_that_takes_too_long_is_left_alone(tmp_path: Path) -> None:
    desk = Desk(tmp_path, limits=Limits(working_s=60))
    workspaces = FakeWorkspaces(before_comparison=anyio.sleep_forever)
    desk.context = make_context(tmp_path, FakeTracker(), workspaces)
    for _ in range(3):
        assert await desk.operator.working_files("SYM-1") is None
    assert workspaces.compared == 1
    workspaces.before_comparison = FakeWorkspaces().before_comparison
    workspaces.found_patch = SymphonyError(make_failure("it is being removed"))
    desk.story.now += 60_000
    assert await desk.operator.working_files("SYM-1") is None
    assert workspaces.compared == 2


# --- refreshing ---


def taken(desk: Desk) -> None:
    """The loop takes everything from the mailbox."""
    for fact in desk.mailbox.facts:
        before = desk.story.state
        commands = desk.story.tell(fact)
        desk.operator(before, fact, desk.story.state, commands)
    desk.mailbox.facts.clear()


@pytest.mark.conformance("H-3")
async def test_a_refresh_puts_one_wake_into_the_mailbox_however_many_ask(tmp_path: Path) -> None:
    desk = Desk(tmp_path, Chronicle().begin())
    answers = [desk.operator.refresh() for _ in range(100)]
    assert [answer.coalesced for answer in answers] == [False] + [True] * 99
    assert desk.mailbox.facts == [WakeAsked(reason="operator", by_operator=True)]
    assert answers[0].requested_at == utc_text(desk.story.wall())


@pytest.mark.conformance("H-3")
async def test_a_refresh_during_a_cycle_shares_it(tmp_path: Path) -> None:
    desk = Desk(tmp_path, Chronicle().begin())
    desk.story.slow = True
    assert desk.operator.refresh().coalesced is False
    taken(desk)
    assert desk.story.state.cycle is Cycle.POLLING
    assert desk.operator.refresh().coalesced is True
    taken(desk)
    desk.story.slow = False
    desk.story.answer()
    desk.story.advance(1_000)
    assert desk.operator.refresh().coalesced is False


async def test_a_daemon_that_is_ending_polls_no_more(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.story.tell(DrainAsked())
    with pytest.raises(UnavailableError) as refused:
        desk.operator.refresh()
    assert refused.value.code == "orchestrator_unavailable"
    assert desk.mailbox.facts == []
    assert (await desk.operator.state()).health.status == "draining"
