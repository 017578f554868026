"""What surrounds the agent in every attempt, however it ends: the hooks, the prompt and the workspace."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from anyio import to_thread

from harness.binding import NoOwnSkills
from harness.project import Project, scripted
from harness.serving import move, serving
from harness.shell import word
from symphony.agents.base import Preflight, SessionRequest, Turn
from symphony.agents.events import AgentEvent, SessionStarted, TurnEnd, TurnStatus
from symphony.domain import Category
from symphony.scheduler import CleanWorkspace, RunEnded, RunStage, SettingsChanged, StartRun

pytestmark = pytest.mark.asyncio

DONE = {"tool": "board_move", "arguments": {"state": "Done"}}
LONG_MS = 600_000
SLEEP = "sleep 617"


class Listener(NoOwnSkills):
    """An agent in this process that completes every turn and remembers what it was told."""

    pid = 1
    thread_id = "t"

    def __init__(self) -> None:
        self.prompts: list[str] = []
        self.opened = 0

    async def preflight(self, _: object, *, run_id: str) -> Preflight:
        assert run_id
        return Preflight(agent="listener", version="1")

    @asynccontextmanager
    async def open(self, _: SessionRequest) -> AsyncIterator["Listener"]:
        self.opened += 1
        yield self

    async def run_turn(self, turn: Turn) -> AsyncIterator[AgentEvent]:
        assert turn.title
        self.prompts.append(turn.prompt)
        await anyio.lowlevel.checkpoint()
        turn_id = str(len(self.prompts))
        yield SessionStarted(session_id=f"t-{turn_id}", thread_id="t", turn_id=turn_id)
        yield TurnEnd(status=TurnStatus.COMPLETED, failure=None)

    async def stop(self) -> tuple[AgentEvent, ...]:
        return ()


@pytest.fixture
def listener(monkeypatch: pytest.MonkeyPatch) -> Listener:
    made = Listener()
    monkeypatch.setattr("symphony.daemon.context.create_backend", lambda *_, **__: made)
    return made


# --- the prompt ---


@pytest.mark.conformance("P-3")
async def test_the_task_is_told_once_and_later_turns_only_say_to_go_on(
    project: Project, listener: Listener
) -> None:
    project.workflow(
        body="Task of {{ issue.identifier }}: {{ issue.description }}",
        agent={
            "max_turns": 3,
            "max_retry_backoff_ms": LONG_MS,
            "budget": {"max_turns_without_progress": None},
        },
    )
    project.issue("SYM-1", text="Paint the fence green.")
    async with serving(project) as served:
        await served.watcher.until_seen(RunEnded)
    first, *later = listener.prompts
    assert "Task of SYM-1" in first
    assert "Paint the fence green." in first
    assert len(later) == 2
    for number, prompt in enumerate(later, 2):
        assert f"turn {number} of 3" in prompt
        assert "Paint" not in prompt
        assert "Task of" not in prompt


@pytest.mark.slow
@pytest.mark.conformance("P-3")
async def test_an_empty_body_gives_the_agent_a_prompt_all_the_same(
    project: Project, listener: Listener
) -> None:
    project.workflow(body="\n", agent={"max_turns": 1, "max_retry_backoff_ms": LONG_MS})
    project.issue("SYM-1", title="Mend the fence", text="It is broken in {{ three }} places.")
    async with serving(project) as served:
        await served.watcher.until_seen(RunEnded)
    (prompt,) = listener.prompts
    assert "SYM-1" in prompt
    assert "Mend the fence" in prompt
    assert "It is broken in {{ three }} places." in prompt


@pytest.mark.conformance("P-4", "A-20")
async def test_a_prompt_that_cannot_be_rendered_starts_no_agent_and_is_retried(
    project: Project, listener: Listener
) -> None:
    after = project.root / "after"
    project.workflow(
        body="{{ issue.native_ref.nothing }}",
        hooks={"after_run": f"echo $SYMPHONY_ATTEMPT >> {word(after)}"},
        agent={"budget": {"max_attempts_without_progress": 2}},
    )
    project.issue("SYM-1")
    async with serving(project) as served:
        await served.watcher.until_seen(RunEnded, 2)
        await served.watcher.until(lambda: bool(served.watcher.states[-1].blocked))
    failures = [ended.outcome.failure for ended in served.watcher.all(RunEnded)]
    assert [failure.category for failure in failures if failure] == [Category.TEMPLATE_RENDER_ERROR] * 2
    assert [start.attempt for start in served.watcher.all(StartRun)] == [None, 1]
    assert listener.opened == 0
    assert after.read_text().split() == ["0", "1"]


# --- hooks ---

ENDINGS: dict[str, tuple[dict[str, Any], list[dict[str, Any]], str]] = {
    "success": ({}, [DONE], "succeeded"),
    "failure": ({}, [{"fail": "no"}], "failed"),
    "dead agent": ({}, [{"exit": 3}], "failed"),
    "silence": (
        {"codex": {"command": scripted("--silent-after", "turn/start"), "turn_timeout_ms": 300}},
        [DONE],
        "timed_out",
    ),
    "failed before_run": ({"hooks": {"before_run": "exit 4"}}, [DONE], "failed"),
    "slow before_run": ({"hooks": {"before_run": SLEEP, "timeout_ms": 4_000}}, [DONE], "failed"),
}


@pytest.mark.conformance("K-7")
@pytest.mark.parametrize("ending", ENDINGS)
async def test_after_run_follows_every_attempt_that_had_a_workspace(project: Project, ending: str) -> None:
    sections, steps, outcome = ENDINGS[ending]
    after = project.root / "after"
    hooks = {
        "after_run": f"echo $SYMPHONY_ISSUE_IDENTIFIER >> {word(after)}; exit 1",
        **sections.get("hooks", {}),
    }
    project.workflow(**{"agent": {"max_retry_backoff_ms": LONG_MS}, **sections, "hooks": hooks})
    project.issue("SYM-1", steps)
    async with serving(project) as served:
        await served.watcher.until_seen(RunEnded)
    assert served.watcher.outcomes == [outcome]
    assert after.read_text() == "SYM-1\n"


@pytest.mark.slow
@pytest.mark.conformance("K-7", "S-5")
async def test_after_run_follows_an_attempt_that_was_stopped(project: Project) -> None:
    after = project.root / "after"
    project.workflow(hooks={"after_run": f"echo $SYMPHONY_ISSUE_IDENTIFIER >> {word(after)}"})
    issue = project.issue("SYM-1", [{"wait_for": "never"}])
    async with serving(project) as served:
        watcher = served.watcher
        await watcher.until(
            lambda: any(run.report.stage is RunStage.STREAMING_TURN for run in watcher.running)
        )
        await move(issue, "Human Review")
        await watcher.until_seen(RunEnded)
    assert watcher.outcomes == ["canceled"]
    assert after.read_text() == "SYM-1\n"
    assert (project.workspaces / "SYM-1" / ".git").exists(), "it merely left, so what it did stays"


@pytest.mark.slow
@pytest.mark.conformance("K-5", "K-7")
async def test_without_a_workspace_there_is_no_after_run_and_the_retry_creates_again(
    project: Project, listener: Listener
) -> None:
    made, after = project.root / "made", project.root / "after"
    create = f"echo x >> {word(made)}; [ $(wc -l < {word(made)}) -gt 1 ]"
    project.workflow(
        hooks={"after_create": create, "after_run": f"echo x >> {word(after)}"}, agent={"max_turns": 1}
    )
    project.issue("SYM-1")
    async with serving(project) as served:
        first = await served.watcher.until_seen(RunEnded)
        assert not after.exists()
        await served.watcher.until_seen(RunEnded, 2)
    assert first.outcome.failure is not None
    assert first.outcome.failure.category is Category.WORKSPACE_HOOK_FAILED
    assert made.read_text() == "x\nx\n"
    assert served.watcher.outcomes[1] == "no_progress"
    assert listener.opened >= 1


@pytest.mark.conformance("K-6")
@pytest.mark.parametrize(
    ("script", "category"),
    [("exit 4", Category.WORKSPACE_HOOK_FAILED), (SLEEP, Category.WORKSPACE_HOOK_TIMEOUT)],
)
async def test_a_bad_before_run_ends_each_attempt_before_the_agent(
    project: Project, listener: Listener, script: str, category: Category
) -> None:
    before = project.root / "before"
    project.workflow(
        hooks={"before_run": f"echo $SYMPHONY_ATTEMPT >> {word(before)}; {script}", "timeout_ms": 4_000},
        agent={"budget": {"max_attempts_without_progress": 2}},
    )
    project.issue("SYM-1")
    async with serving(project) as served:
        await served.watcher.until(lambda: bool(served.watcher.states and served.watcher.states[-1].blocked))
    failures = [ended.outcome.failure for ended in served.watcher.all(RunEnded)]
    assert [failure.category for failure in failures if failure] == [category] * 2
    assert before.read_text().split() == ["0", "1"]
    assert listener.opened == 0


# --- a root that changes ---


@pytest.mark.slow
@pytest.mark.conformance("K-10")
async def test_after_a_change_of_the_root_the_recorded_workspace_is_removed_and_no_other(
    project: Project,
) -> None:
    go, other = project.root / "go", project.root / "other"
    precious = other / "SYM-1" / "precious"
    await to_thread.run_sync(_write, precious)
    project.workflow()
    project.issue("SYM-1", [{"wait_for": str(go)}, {"write": "a", "text": "a"}, {"commit": "A"}, DONE])
    async with serving(project) as served:
        watcher = served.watcher
        await watcher.until(
            lambda: any(run.report.stage is RunStage.STREAMING_TURN for run in watcher.running)
        )
        await to_thread.run_sync(lambda: project.workflow(workspace={"root": str(other)}))
        await watcher.until_seen(SettingsChanged)
        await to_thread.run_sync(go.touch)
        await watcher.until_seen(CleanWorkspace)
    assert not (project.workspaces / "SYM-1").exists()
    assert precious.read_text() == "precious\n"
    assert project.branch_log("SYM-1") == ["A"]


def _write(path: Path) -> None:
    path.parent.mkdir(parents=True)
    path.write_text("precious\n")


# --- what it leaves ---


async def test_the_end_of_a_run_says_which_branch_it_delivered_and_how_much_it_changes(
    project: Project,
) -> None:
    project.workflow(command=scripted(), workspace={"push": "origin"})
    steps: list[dict[str, Any]] = [
        {"write": "new.txt", "text": "a\nb\n"},
        {"commit": "One"},
        {"write": "README.md", "text": "# Other\n"},
        {"run": "printf 'a\\0b' > image.bin && git mv new.txt moved.txt"},
        {"commit": "Two"},
        DONE,
    ]
    project.issue("SYM-1", steps)
    async with serving(project) as served:
        await served.watcher.until_seen(RunEnded)
    (ended,) = served.watcher.all(RunEnded)
    delivered = ended.outcome.delivered
    assert delivered is not None
    assert delivered.branch == "symphony/SYM-1"
    assert delivered.head == project.git("rev-parse", "symphony/SYM-1")
    assert delivered.work.commits == 2
    assert (delivered.work.files_changed, delivered.work.lines) == (3, "+3 -1")
    assert (delivered.pushed, delivered.to_push, delivered.push_failure) == (False, True, None)


async def test_a_run_without_a_commit_delivers_nothing(project: Project) -> None:
    project.workflow(command=scripted(), workspace={"push": "origin"})
    project.issue("SYM-1", [DONE])
    async with serving(project) as served:
        await served.watcher.until_seen(RunEnded)
    (ended,) = served.watcher.all(RunEnded)
    assert ended.outcome.delivered is None
