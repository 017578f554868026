"""Which skills of the library a run gets."""

from dataclasses import replace
from pathlib import Path

import anyio
from structlog.testing import capture_logs

from harness.binding import FakeTracker, make_context
from harness.scheduling import make_issue
from symphony.daemon.context import RuntimeContext
from symphony.daemon.runs.library_skills import MAX_SKILLS, ChosenSkills, choose_skills, resolve_skills
from symphony.library.model import Authorship, Origin, SkillText, TargetKind
from symphony.library.store import Library

ADA = Authorship(author="ada")


def context_of(tmp_path: Path, library: Library, **settings: object) -> RuntimeContext:
    context = make_context(tmp_path, FakeTracker())
    changed = context.settings.agent.library.model_copy(update=settings)
    agent = context.settings.agent.model_copy(update={"library": changed})
    workflow = replace(context.workflow, settings=context.settings.model_copy(update={"agent": agent}))
    return replace(context, library=library, workflow=workflow)


def chosen(
    context: RuntimeContext, *labels: str, issue: str = "1", repository: frozenset[str] = frozenset()
) -> ChosenSkills | None:
    async def choose() -> ChosenSkills | None:
        subject = make_issue(issue, labels=labels)
        found = await resolve_skills(context, subject, "codex")
        return None if found is None else await choose_skills(context, subject, found, repository)

    return anyio.run(choose)


def library_of(tmp_path: Path, *names: str, origin: Origin = Origin.WRITTEN) -> Library:
    library = Library(tmp_path / "library.db")
    for name in names:
        text = SkillText(name=name, description="What it does.", when_to_use="", content="Do it.\n")
        library.add(text, ADA, origin=origin)
    return library


def test_without_a_library_no_file_is_made(tmp_path: Path) -> None:
    library = library_of(tmp_path)
    assert chosen(context_of(tmp_path, library)) is None
    assert not library.path.exists()


def test_an_assignment_decides_and_unknown_names_are_a_warning(tmp_path: Path) -> None:
    library = library_of(tmp_path, "style", "tests")
    context = context_of(tmp_path, library)
    library.assign(TargetKind.AGENT, "codex", ())
    assert chosen(context) == ChosenSkills(reason="assigned to the agent codex")
    with capture_logs() as lines:
        found = chosen(context, "skill:style", "skill:missing")
    assert found is not None
    assert {name: version for name, (version, _) in found.data.items()} == {"style": 1}
    assert [(line["event"], line["names"]) for line in lines] == [("library_skills_unknown", ("missing",))]


def test_a_setting_of_the_agent_decides_where_nothing_is_assigned(tmp_path: Path) -> None:
    library = library_of(tmp_path, "style", "tests")
    context = context_of(tmp_path, library)
    agent = context.workflow.agents["codex"]
    for names, expected in (((), set()), (("tests",), {"tests"}), (None, {"style", "tests"})):
        settings = agent.settings.model_copy(update={"library": names})
        agents = {"codex": replace(agent, settings=settings)}
        found = chosen(replace(context, workflow=replace(context.workflow, agents=agents)))
        assert found is not None
        assert set(found.data) == expected


def test_a_skill_of_the_repository_shadows_one_of_the_library(tmp_path: Path) -> None:
    context = context_of(tmp_path, library_of(tmp_path, "style", "tests"))
    found = chosen(context, repository=frozenset({"style"}))
    assert found is not None
    assert (found.shadowed, set(found.data)) == (("style",), {"tests"})


def test_more_than_the_limit_are_left_out_with_a_warning(tmp_path: Path) -> None:
    context = context_of(tmp_path, library_of(tmp_path, *(f"s{number}" for number in range(MAX_SKILLS + 1))))
    with capture_logs() as lines:
        found = chosen(context)
    assert found is not None
    assert len(found.data) == MAX_SKILLS
    assert [(line["event"], line["count"]) for line in lines] == [("library_skills_left_out", 1)]


def test_a_broken_library_costs_a_log_line(tmp_path: Path) -> None:
    library = library_of(tmp_path, "style")
    library.path.write_bytes(b"damaged" * 1_000)
    with capture_logs() as lines:
        assert chosen(context_of(tmp_path, library)) is None
    assert [line["event"] for line in lines] == ["library_unavailable"]


def test_a_skill_for_people_is_not_written_unless_a_setting_or_a_label_says_so(tmp_path: Path) -> None:
    library = library_of(tmp_path, "style")
    kept = SkillText(
        name="deploy",
        description="Deploys.",
        when_to_use="",
        content="x\n",
        extra={"disable-model-invocation": True},
    )
    library.add(kept, ADA)
    context = context_of(tmp_path, library)
    found = chosen(context)
    assert found is not None
    assert (set(found.data), found.for_people) == ({"style"}, ("deploy",))
    called = chosen(context, "skill:deploy", "skill:style")
    assert called is not None
    assert (set(called.data), called.for_people) == ({"style", "deploy"}, ())
    agent = context.settings.agent
    skills = agent.skills.model_copy(update={"for_people": "show"})
    settings = context.settings.model_copy(update={"agent": agent.model_copy(update={"skills": skills})})
    shown = chosen(replace(context, workflow=replace(context.workflow, settings=settings)))
    assert shown is not None
    assert set(shown.data) == {"style", "deploy"}
