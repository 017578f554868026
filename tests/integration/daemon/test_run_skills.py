"""What becomes of a run, and of the comment, when skills or the tracker misbehave: with a real daemon."""

import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import to_thread
from structlog.testing import capture_logs

from harness.project import Project
from harness.serving import serving
from symphony import skills as all_skills
from symphony.daemon.runs import skills
from symphony.scheduler import RunEnded
from symphony.skills import SkillOptions, SkillSet
from symphony.trackers.markdown import MarkdownTracker

pytestmark = pytest.mark.asyncio

DONE = {"tool": "board_move", "arguments": {"state": "Done"}}
REVIEW = {"tool": "board_move", "arguments": {"state": "Human Review"}}
WORK: list[dict[str, Any]] = [{"write": "a", "text": "a"}, {"commit": "A"}]
BAD = ".symphony/skills/bad/SKILL.md"


def _setup(project: Project, steps: Sequence[dict[str, Any]] = (*WORK, DONE), **agent: Any) -> None:
    project.workflow(agent={"skills": agent})
    project.skill("good")
    project.write(BAD, "no front matter\n")
    project.commit("Skills")
    project.issue("SYM-1", [*steps])


async def _run(project: Project) -> tuple[list[str], list[dict[str, Any]]]:
    """How the first run ended, and all that was logged."""
    with capture_logs() as logs:
        async with serving(project) as served:
            await served.watcher.until_seen(RunEnded)
            outcomes = served.watcher.outcomes
    return outcomes, [dict(line) for line in logs]


def _named(logs: Sequence[dict[str, Any]], event: str) -> list[dict[str, Any]]:
    return [line for line in logs if line["event"] == event]


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """Opened at the end of the test, so that no worker thread outlives it."""
    event = threading.Event()
    yield event
    event.set()


@pytest.mark.slow
@pytest.mark.conformance("T-12")
async def test_a_tracker_that_hangs_at_a_comment_does_not_delay_the_run(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = anyio.Event()

    async def hang(*_: object) -> None:
        asked.set()
        await anyio.sleep_forever()

    monkeypatch.setattr(MarkdownTracker, "list_comments", hang)
    await to_thread.run_sync(_setup, project)
    async with serving(project) as served:
        ended = await served.watcher.until_seen(RunEnded)
        assert asked.is_set(), "it is still waiting"
    assert ended.outcome.delivered is not None
    assert ended.outcome.delivered.work.commits == 1


async def _create_and_lose_the_answer(
    create: Callable[..., Any], tracker: MarkdownTracker, *arguments: Any, **named: Any
) -> str:
    await create(tracker, *arguments, **named)
    raise TimeoutError


@pytest.mark.conformance("T-12")
async def test_a_comment_whose_answer_was_lost_is_found_again_and_not_written_twice(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = MarkdownTracker.put_comment
    lost: list[object] = []

    async def put(tracker: MarkdownTracker, *arguments: Any, **named: Any) -> str:
        if lost:
            return await create(tracker, *arguments, **named)
        lost.append(arguments)
        return await _create_and_lose_the_answer(create, tracker, *arguments, **named)

    monkeypatch.setattr(MarkdownTracker, "put_comment", put)
    await to_thread.run_sync(lambda: _setup(project, [{"fail": "once"}]))
    with capture_logs() as logs:
        async with serving(project) as served:
            await served.watcher.until_seen(RunEnded, 2)
            await served.watcher.until(lambda: len(_named([dict(one) for one in logs], "comment_posted")) > 0)
    assert len(_named([dict(line) for line in logs], "job_failed")) == 1
    comments = await to_thread.run_sync(project.comments, "SYM-1")
    assert sum(BAD in comment for comment in comments) == 1, "the issue may have one about its block too"


@pytest.mark.parametrize("fault", ["raises", "hangs"])
async def test_a_loader_that_fails_costs_the_list_and_turns_no_comment_into_resolved(
    project: Project, monkeypatch: pytest.MonkeyPatch, gate: threading.Event, fault: str
) -> None:
    await to_thread.run_sync(lambda: _setup(project, [REVIEW]))
    assert (await _run(project))[0] == ["succeeded"]
    (before,) = await to_thread.run_sync(project.comments, "SYM-1")
    assert BAD in before

    def broken(workspace: Path, _: SkillOptions, **__: object) -> SkillSet:
        if fault == "raises":
            raise RuntimeError("a bug")
        gate.wait(30)
        return SkillSet(root=workspace)

    monkeypatch.setattr(all_skills, "load", broken)
    monkeypatch.setattr(skills, "LOAD_DEADLINE_S", 0.05)
    await to_thread.run_sync(lambda: project.issue("SYM-1", [*WORK, DONE]))
    outcomes, logs = await _run(project)
    assert outcomes == ["succeeded"]
    event = "skills_failed" if fault == "raises" else "skills_timed_out"
    assert [line["log_level"] for line in _named(logs, event)] == ["warning"]
    assert _named(logs, "skills_listed") == []
    assert await to_thread.run_sync(project.comments, "SYM-1") == [before]


async def test_without_any_skill_nothing_is_said_above_debug(project: Project) -> None:
    project.workflow()
    await to_thread.run_sync(project.commit, "No skills")
    await to_thread.run_sync(lambda: project.issue("SYM-1", [*WORK, DONE]))
    outcomes, logs = await _run(project)
    assert outcomes == ["succeeded"]
    telling = [line for line in logs if "skill" in line["event"] or "comment" in line["event"]]
    assert [line for line in telling if line["log_level"] != "debug"] == []
    assert await to_thread.run_sync(project.comments, "SYM-1") == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"comment_on": "warning"}, "bad odd"),
        ({"comment_on": "never"}, ""),
        ({"comment_on": "warning", "include": ["good", "gone"]}, "bad odd ."),
        ({"comment_on": "error"}, "bad"),
        ({"enabled": False}, ""),
        ({"validation": "strict"}, "bad odd"),
        ({"disabled_skills": ["bad"]}, ""),
        ({"extra_paths": [".agents/skills"]}, "bad further"),
        ({"name_fallback": True}, "bad"),
        ({"reserved_words": ["good"]}, "bad good"),
    ],
    ids=str,
)
async def test_what_a_comment_names_is_what_the_settings_say(
    project: Project, options: dict[str, Any], said: str
) -> None:
    def setup() -> None:
        odd = "---\nname: od_d\ndescription: A name with an underscore.\n---\n"
        project.write(".symphony/skills/odd/SKILL.md", odd)
        project.write(".agents/skills/further/SKILL.md", "no front matter\n")
        _setup(project, [REVIEW], **options)

    await to_thread.run_sync(setup)
    assert (await _run(project))[0] == ["succeeded"]
    found = await to_thread.run_sync(project.comments, "SYM-1")
    named = said.split()
    assert len(found) == bool(named)
    for name in ("bad", "odd", "good", "further"):
        assert any(f"/{name}/SKILL.md" in comment for comment in found) is (name in named)
    assert any("`.`" in comment for comment in found) is ("." in named)


@pytest.mark.conformance("L-4")
async def test_what_was_listed_and_what_was_seen_is_logged_with_its_digest_and_commit(
    project: Project,
) -> None:
    def setup() -> str:
        project.skill("other", body="word: hello")
        read = {"skill": "other", "value_of": "word"}
        _setup(project, [read, read, {"write": "out", "text": "{skill_value}"}, {"commit": "Use it"}, DONE])
        return project.git("rev-parse", "HEAD")

    commit = await to_thread.run_sync(setup)
    _, logs = await _run(project)
    (listed,) = _named(logs, "skills_listed")
    assert (listed["names"], listed["commit"]) == (("good", "other"), commit)
    assert {name: len(sha256) for name, sha256 in listed["sha256"].items()} == {"good": 64, "other": 64}
    assert [(line["name"], line["path"]) for line in _named(logs, "skill_seen")] == [
        ("other", ".symphony/skills/other/SKILL.md")
    ]
