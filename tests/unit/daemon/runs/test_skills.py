import hashlib
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import anyio
import pytest
from structlog.testing import capture_logs

from symphony import skills
from symphony.daemon.runs import skills as runtime_catalog
from symphony.daemon.runs.library_skills import ChosenSkills
from symphony.daemon.runs.skills import (
    AgentSkillScan,
    RunCatalog,
    enter_phase,
    exclude_agent_listed,
    load_catalog,
)
from symphony.skills import Scope, Severity, SkillOptions, SkillSet, resolve_anchor
from symphony.testing.scripted_agent.script import path_of

pytestmark = pytest.mark.asyncio

GOOD = "---\nname: {name}\ndescription: About {name}.\n---\nThe body.\n"


def add(workspace: Path, name: str, text: str | None = None, *, directory: str | None = None) -> Path:
    path = workspace / ".symphony" / "skills" / (directory or name) / "SKILL.md"
    path.parent.mkdir(parents=True)
    path.write_text(GOOD.format(name=name) if text is None else text)
    return path


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """Opened at the end of the test, so that no worker thread outlives it."""
    event = threading.Event()
    yield event
    event.set()


async def test_no_folder_and_switched_off_give_the_same_envelope(tmp_path: Path) -> None:
    with_skills, without = tmp_path / "a", tmp_path / "b"
    without.mkdir()
    add(with_skills, "greet")
    off = await load_catalog(with_skills, SkillOptions(enabled=False))
    absent = await load_catalog(without, SkillOptions())
    assert off == RunCatalog()
    assert (absent.block, absent.document, absent.problems) == (off.block, off.document, off.problems)
    assert absent.complete, "there was nothing, which is not the same as not knowing"
    assert not off.complete
    assert off.block is absent.block is None
    assert (await load_catalog(with_skills, SkillOptions())).block is not None, "the positive control"


async def test_switched_off_there_are_no_skills(tmp_path: Path) -> None:
    add(tmp_path, "a")
    assert await load_catalog(tmp_path, SkillOptions(enabled=False)) == RunCatalog()
    assert (await load_catalog(tmp_path, SkillOptions())).names == ("a",)


async def test_a_loader_that_breaks_costs_a_warning_and_not_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: Path, __: SkillOptions, **___: object) -> SkillSet:
        raise RuntimeError("a bug")

    monkeypatch.setattr(skills, "load", broken)
    with capture_logs() as logs:
        assert await load_catalog(tmp_path, SkillOptions()) == RunCatalog()
    assert [(line["event"], line["log_level"], line["reason"]) for line in logs] == [
        ("skills_failed", "warning", "RuntimeError")
    ]


async def test_a_loader_that_hangs_is_left_behind_at_the_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gate: threading.Event
) -> None:
    def stuck(workspace: Path, _: SkillOptions, **__: object) -> SkillSet:
        gate.wait(30)
        return SkillSet(root=workspace)

    monkeypatch.setattr(skills, "load", stuck)
    begun = time.monotonic()
    with capture_logs() as logs, anyio.fail_after(60):
        assert await load_catalog(tmp_path, SkillOptions(), deadline_s=0.05) == RunCatalog()
    assert time.monotonic() - begun >= 0.05
    assert [(line["event"], line["log_level"]) for line in logs] == [("skills_timed_out", "warning")]


async def test_what_could_be_read_until_the_deadline_is_listed_as_incomplete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b", "c"):
        add(tmp_path, name)
    clock = iter([0.0, 1.0, 1.9, 2.0])  # the call, then before each file
    with monkeypatch.context() as patch, capture_logs() as logs:
        patch.setattr("symphony.daemon.runs.skills.time", SimpleNamespace(monotonic=lambda: next(clock)))
        patch.setattr("symphony.skills.loader.time", SimpleNamespace(monotonic=lambda: next(clock)))
        catalog = await load_catalog(tmp_path, SkillOptions())
    assert catalog.names == ("a", "b")
    assert "This list is incomplete: reading all skills took too long" in str(catalog.block)
    assert not catalog.complete, "so that no comment says that all is well"
    assert ("skills_timed_out", "warning") in [(line["event"], line["log_level"]) for line in logs]


async def test_only_one_thread_is_ever_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gate: threading.Event
) -> None:
    stuck: list[str] = []

    def load(workspace: Path, _: SkillOptions, **__: object) -> SkillSet:
        stuck.append(threading.current_thread().name)
        gate.wait(30)
        return SkillSet(root=workspace)

    monkeypatch.setattr(skills, "load", load)
    with anyio.fail_after(60):
        for _ in range(3):
            assert await load_catalog(tmp_path, SkillOptions(), deadline_s=0.0) == RunCatalog()
    assert len(stuck) == 1


async def test_dropped_skills_are_logged_by_name(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        add(tmp_path, name)
    with capture_logs() as logs:
        catalog = await load_catalog(tmp_path, SkillOptions(max_skills_in_prompt=1))
    assert catalog.names == ("a",)
    assert [dropped.name for dropped in catalog.dropped] == ["b", "c"]
    (line,) = [line for line in logs if line["event"] == "skills_dropped"]
    assert (line["names"], line["limit"], line["log_level"]) == (("b", "c"), 1, "info")
    assert line["reasons"] == {"count": ["b", "c"]}


async def test_what_the_operator_left_out_is_no_news(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        add(tmp_path, name)
    with capture_logs() as logs:
        catalog = await load_catalog(tmp_path, SkillOptions(include=("a", "b"), disabled_skills=("b",)))
    assert catalog.names == ("a",)
    (line,) = [line for line in logs if line["event"] == "skills_dropped"]
    assert (line["reasons"], line["log_level"]) == ({"disabled": ["b"], "not_included": ["c"]}, "debug")


async def test_texts_that_were_cut_are_logged_by_name(tmp_path: Path) -> None:
    add(tmp_path, "long", f"---\nname: long\ndescription: {'word ' * 200}\n---\n")
    add(tmp_path, "short")
    with capture_logs() as logs:
        catalog = await load_catalog(tmp_path, SkillOptions(max_prompt_chars=700))
    assert (catalog.names, catalog.shortened) == (("long", "short"), ("long",))
    (line,) = [line for line in logs if line["event"] == "skills_shortened"]
    assert (line["names"], line["limit"], line["log_level"]) == (("long",), 700, "info")


@pytest.mark.parametrize("slash", ["", "/"])
async def test_the_users_skills_have_digests_and_their_own_place(tmp_path: Path, slash: str) -> None:
    workspace, user = tmp_path / "workspace", tmp_path / "user"
    add(workspace, "greet")
    theirs = {name: user / name / "SKILL.md" for name in ("greet", "house", "bad")}
    for name, path in theirs.items():
        path.parent.mkdir(parents=True)
        path.write_text("no front matter\n" if name == "bad" else GOOD.format(name=name))
    options = SkillOptions(user_path=f"{user}{slash}")
    with capture_logs() as logs:
        catalog = await load_catalog(workspace, options)
    assert [one.path for one in catalog.listed] == [".symphony/skills/greet/SKILL.md", str(theirs["house"])]
    files = {".symphony/skills/greet/SKILL.md": workspace / ".symphony/skills/greet/SKILL.md"}
    files |= {str(path): path for path in theirs.values()}
    assert catalog.sha256 == {
        shown: hashlib.sha256(path.read_bytes()).hexdigest() for shown, path in files.items()
    }
    (hidden,) = [line for line in logs if line["event"] == "skill_shadowed"]
    assert (hidden["name"], hidden["path"], hidden["by"], hidden["log_level"]) == (
        "greet",
        str(theirs["greet"]),
        ".symphony/skills/greet/SKILL.md",
        "debug",
    )


@pytest.mark.parametrize(
    ("scope", "user_path", "path", "expected"),
    [
        (Scope.PROJECT, "/u", "a/SKILL.md", ("/w", "a/SKILL.md")),
        (Scope.EXTRA, "/u", ".agents/skills/a/SKILL.md", ("/w", ".agents/skills/a/SKILL.md")),
        (Scope.USER, "/u", "/u/a/SKILL.md", ("/u", "a/SKILL.md")),
        (Scope.USER, "/", "/a/SKILL.md", ("/", "a/SKILL.md")),
        (Scope.USER, "~/s", "~/s/a/SKILL.md", ("/home/ann/s", "a/SKILL.md")),
        (Scope.USER, "~", "~/a/SKILL.md", ("/home/ann", "a/SKILL.md")),
        (Scope.USER, None, "a", ("/w", "a")),
    ],
)
async def test_every_file_has_an_anchor(
    monkeypatch: pytest.MonkeyPatch, scope: Scope, user_path: str | None, path: str, expected: tuple[str, str]
) -> None:
    monkeypatch.setenv("HOME", "/home/ann")
    anchor, below = resolve_anchor(scope, path, Path("/w"), SkillOptions(user_path=user_path))
    assert (str(anchor), below) == expected


async def test_malformed_skills_are_logged_with_their_place_and_stop_nothing(tmp_path: Path) -> None:
    add(tmp_path, "good")
    add(tmp_path, "bad", "---\nname: [\n---\n")
    add(tmp_path, "bare", "no front matter\n")
    with capture_logs() as logs:
        catalog = await load_catalog(tmp_path, SkillOptions())
    assert catalog.names == ("good",)
    warned = {line["path"].split("/")[2]: line["path"] for line in logs if line["log_level"] == "warning"}
    assert set(warned) == {"bad", "bare"}
    assert warned["bad"].rpartition(":")[2].isdigit(), "with its line"
    errors = [problem for problem in catalog.problems if problem.severity is Severity.ERROR]
    assert {problem.path.split("/")[2] for problem in errors} == {"bad", "bare"}


async def test_what_is_merely_odd_is_not_worth_a_warning(tmp_path: Path) -> None:
    add(tmp_path, "greet", directory="other")
    with capture_logs() as logs:
        catalog = await load_catalog(tmp_path, SkillOptions())
    assert catalog.names == ("greet",)
    odd = [line for line in logs if line["event"] == "skill_problem"]
    assert odd
    assert {line["log_level"] for line in odd} == {"debug"}


@pytest.mark.parametrize("directory", ["greet", "other place", "grüße", "a(b)"])
async def test_the_scripted_agent_finds_the_file_of_a_listed_skill(tmp_path: Path, directory: str) -> None:
    path = add(tmp_path, "greet", directory=directory)
    add(tmp_path, "greet-more")
    block = (await load_catalog(tmp_path, SkillOptions())).block
    assert block is not None
    found = path_of(block, "greet")
    assert found is not None
    assert Path(found) == path
    assert path_of(block, "absent") is None


async def test_what_was_listed_or_malformed_is_told_with_its_digest(tmp_path: Path) -> None:
    good, bad = add(tmp_path, "good"), add(tmp_path, "bad", "no front matter\n")
    add(tmp_path, "late")
    told = (await load_catalog(tmp_path, SkillOptions(max_skills_in_prompt=1))).document
    sha256 = hashlib.sha256(good.read_bytes()).hexdigest()
    assert [(one.name, one.path, one.sha256) for one in told.listed] == [
        ("good", ".symphony/skills/good/SKILL.md", sha256)
    ]
    assert [(one.name, one.reason) for one in told.dropped] == [("late", "count")]
    (error,) = [one for one in told.problems if one.severity == "error"]
    assert error.code == "missing_front_matter"
    assert error.sha256 == hashlib.sha256(bad.read_bytes()).hexdigest()


async def test_digests_that_fail_cost_nothing_but_themselves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: Path, __: Iterable[object], ___: SkillOptions) -> dict[str, str]:
        raise RuntimeError("a bug")

    add(tmp_path, "greet")
    monkeypatch.setattr(skills, "skill_digests", broken)
    with capture_logs() as logs:
        catalog = await load_catalog(tmp_path, SkillOptions())
    assert catalog.names == ("greet",)
    assert catalog.document.listed[0].sha256 is None
    assert [line["reason"] for line in logs if line["event"] == "skills_failed"] == ["RuntimeError"]


async def test_digests_that_hang_are_left_behind_at_their_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gate: threading.Event
) -> None:
    begun = threading.Event()

    def stuck(_: Path, __: Iterable[object], ___: SkillOptions) -> dict[str, str]:
        begun.set()
        gate.wait(30)
        return {}

    add(tmp_path, "greet")
    monkeypatch.setattr(skills, "skill_digests", stuck)
    monkeypatch.setattr(runtime_catalog, "DIGEST_DEADLINE_S", 0.05)
    with anyio.fail_after(60):
        catalog = await load_catalog(tmp_path, SkillOptions())
    assert begun.is_set()
    assert (catalog.names, catalog.sha256) == (("greet",), {})


class TestWhatTheAgentListsItself:
    """A team's directory of the agent, with two of ours linked into it: one faultless, one that is odd."""

    async def loaded(self, workspace: Path) -> RunCatalog:
        add(workspace, "even")
        add(workspace, "odd", "---\nname: odd\ndescription: **Bold**\n---\n")
        add(workspace, "ours")
        theirs = workspace / "theirs"
        (theirs / "team").mkdir(parents=True)
        (theirs / "team" / "SKILL.md").write_text(GOOD.format(name="team"))
        for name in ("even", "odd"):
            (theirs / name).symlink_to(workspace / ".symphony/skills" / name)
        return await load_catalog(
            workspace, SkillOptions(), scan=AgentSkillScan(workspace=workspace, roots=(theirs,))
        )

    @pytest.mark.parametrize(
        ("listed", "ours"),
        [
            (None, ("odd", "ours")),
            ((), ("even", "odd", "ours")),
            (("even", "odd"), ("ours",)),
            (("odd", "team"), ("even", "ours")),
        ],
        ids=["it cannot say", "nothing", "both", "the odd one"],
    )
    async def test_each_skill_is_listed_once_and_none_nowhere(
        self, tmp_path: Path, listed: tuple[str, ...] | None, ours: tuple[str, ...]
    ) -> None:
        async def ask() -> frozenset[Path] | None:
            told = None if listed is None else (tmp_path / "theirs" / one / "SKILL.md" for one in listed)
            return None if told is None else frozenset(told)

        with capture_logs() as logs:
            catalog = await exclude_agent_listed(await self.loaded(tmp_path), SkillOptions(), ask)
        assert catalog.names == ours
        assert {one.sha256 is None for one in catalog.document.listed} == {False}
        assert catalog.agent_lists_skills
        dropped = [line["names"] for line in logs if line["event"] == "skills_dropped"]
        assert dropped == ([tuple(sorted({"even", "odd"} - {*ours}))] if len(ours) < 3 else [])

    async def test_it_is_not_asked_where_it_finds_nothing_of_ours(self, tmp_path: Path) -> None:
        async def ask() -> frozenset[Path] | None:
            raise AssertionError

        add(tmp_path, "ours")
        scan = AgentSkillScan(workspace=tmp_path, roots=(tmp_path / "theirs",))
        catalog = await load_catalog(tmp_path, SkillOptions(), scan=scan)
        assert await exclude_agent_listed(catalog, SkillOptions(), ask) is catalog


async def test_the_versions_of_the_library_outlive_another_rendering(tmp_path: Path) -> None:
    add(tmp_path, "release")
    catalog = await load_catalog(tmp_path, SkillOptions())
    chosen = ChosenSkills(shadowed=("docs",), data={"release": (3, b"")})
    catalog = replace(catalog, library=chosen)
    document = (await enter_phase(catalog, "TEST")).document
    assert [(one.name, one.reason) for one in document.dropped] == [("docs", "shadowed")]
    assert [(one.name, one.library_version) for one in document.listed] == [("release", 3)]
