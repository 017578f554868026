"""`symphony skills new`, `import` and `export`: what they write, and what they never touch."""

import subprocess
from pathlib import Path

import pytest

from harness.project import Project
from harness.shell import word
from symphony.cli.commands import skills as skills_command
from unit.cli.commands.test_skills import as_json, project, skills

__all__ = ["project"]


GOOD = "---\nname: {}\ndescription: d\n---\nbody\n"


@pytest.fixture
def other(project: Project) -> Path:
    """Another repository, with skills where Claude looks for them."""
    there = project.root / "other"
    for name, text in (
        ("one/SKILL.md", GOOD.format("one")),
        ("one/scripts/x.sh", "#!/bin/sh\n"),
        ("two/SKILL.md", GOOD.format("two")),
        ("my_flat.md", "Says much.\n"),
        ("bad/SKILL.md", "---\nname: bad\n---\n"),
    ):
        path = there / ".claude/skills" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (there / ".claude/skills/one/scripts/x.sh").chmod(0o755)
    (there / "notes.md").write_text("A document.\n")
    commit(there)
    return there


def commit(there: Path) -> str:
    person = ("-c", "user.name=x", "-c", "user.email=x@x")
    if not (there / ".git").exists():
        git(there, "init", "--quiet", "--initial-branch=main")
    git(there, "add", "--all")
    git(there, *person, "commit", "--quiet", "-m", "x")
    return git(there, "rev-parse", "HEAD")


def git(there: Path, *arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], cwd=there, check=True, capture_output=True, text=True
    ).stdout.strip()


def names(moves: list[dict[str, str]]) -> list[str]:
    return [one["name"] for one in moves]


def files(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


# --- new ---


@pytest.mark.usefixtures("project")
def test_a_new_skill_says_what_is_left_to_fill_in() -> None:
    as_json("new", "release-notes")
    done = skills("check", "--strict")
    assert (done.exit_code, " warning unfilled " in done.stdout) == (1, True)
    assert skills("check").exit_code == 0
    assert "1 warning" in skills("list").stdout.splitlines()[1]


def test_a_new_skill_whose_texts_are_given_passes_the_strict_check(project: Project) -> None:
    made = as_json("new", "release-notes", "--description", "Writes them.", "--when", "A version is due.")
    assert made["path"] == str(project.repo / ".symphony/skills/release-notes/SKILL.md")
    done = skills("check", "--strict")
    assert (done.exit_code, done.stdout, done.stderr) == (0, "", "1 skill, 0 errors, 0 warnings\n")


@pytest.mark.parametrize("text", ["a: b # c", "x\n---\nname: evil\n---\n", '"', "\x1b[2J\u202e", "null"])
def test_hostile_texts_are_values_and_nothing_else(project: Project, text: str) -> None:
    assert skills("new", "a", "--description", text, "--when", text).exit_code == 0
    assert skills("check", "--strict").exit_code == 0
    (one,) = as_json("list")["skills"]
    assert (one["name"], one["description"], one["when_to_use"]) == ("a", text.strip(), text.strip())
    assert project.repo.joinpath(".symphony/skills/a/SKILL.md").read_text().count("\n---\n") == 1


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("Foo_Bar", "for instance foo-bar"),
        ("../../etc", "for instance etc"),
        ("a/b", "for instance a-b"),
        ("", "at most 64"),
        ("x" * 65, f"for instance {'x' * 64}"),
        ("日本", "at most 64"),
    ],
)
def test_a_bad_name_is_refused_with_a_better_one(project: Project, name: str, hint: str) -> None:
    done = skills("new", "--", name)
    assert done.exit_code == 2
    assert "cannot be the name of a skill" in done.stderr
    assert hint in done.stderr
    assert not (project.repo / ".symphony/skills").exists()


def test_nothing_is_overwritten(project: Project) -> None:
    project.skill("a", body="edited")
    project.write(".symphony/skills/x/SKILL.md", GOOD.format("taken"))
    project.write(".symphony/skills/empty/notes.txt", "mine")
    (project.repo / ".symphony/skills/link").symlink_to("nowhere")
    before = files(project.repo)
    for name in ("a", "taken", "empty", "link"):
        done = skills("new", name)
        assert (done.exit_code, done.stderr.split(":")[1]) == (1, " there is a skill of this name")
    assert files(project.repo) == before


def test_what_would_not_pass_is_not_written(project: Project) -> None:
    project.workflow(agent={"skills": {"reserved_words": ["claude"]}})
    assert "reserved word" in skills("new", "claude-notes").stderr
    assert "longer than 1,024" in skills("new", "a", "--description", "x" * 1_025).stderr
    assert "not valid Unicode" in skills("new", "a", "--description", "\ud800").stderr
    assert "`description`" in skills("new", "a", "--description", " ", "--when", "").stderr
    assert not (project.repo / ".symphony/skills").exists()


def test_a_skill_of_the_user_goes_to_their_own_place(project: Project) -> None:
    assert as_json("new", "mine", "--user")["scope"] == "user"
    assert (project.root / "home/.symphony/skills/mine/SKILL.md").is_file()
    assert skills("list").stdout.splitlines()[1].split()[:2] == ["mine", "user"]
    project.workflow(agent={"skills": {"user_path": None}})
    assert "there is no place for skills of a user" in skills("new", "other", "--user").stderr


def test_a_place_outside_or_one_that_is_a_skill_is_refused(project: Project) -> None:
    (project.root / "outside").mkdir()
    (project.repo / "link").symlink_to(project.root / "outside")
    for path in ("link", "../outside"):
        assert "leads out of the workspace" in skills("new", "a", "--path", path).stderr
    project.write("one/SKILL.md", GOOD.format("one"))
    assert "is one skill itself" in skills("new", "a", "--path", "one").stderr
    project.write("file", "x")
    assert "file/a: it cannot be written: Not a directory" in skills("new", "a", "--path", "file").stderr
    assert not list((project.root / "outside").iterdir())


# --- import ---


@pytest.mark.parametrize("way", ["path", "address"])
def test_a_repository_comes_over_unchanged(project: Project, other: Path, way: str) -> None:
    source = str(other) if way == "path" else other.as_uri()
    done = as_json("import", source, code=1)
    assert (names(done["created"]), names(done["skipped"])) == (["one", "two"], ["bad"])
    assert "(missing_description)" in done["skipped"][0]["reason"]
    assert done["source"] == {
        "from": source,
        "commit": git(other, "rev-parse", "HEAD") if way == "address" else None,
    }
    root = project.repo / ".symphony/skills"
    assert files(root / "one") == files(other / ".claude/skills/one")
    assert (root / "one/scripts/x.sh").stat().st_mode & 0o100
    assert sorted(path.name for path in root.iterdir()) == ["one", "two"]
    assert skills("check", "--strict").exit_code == 0
    again = as_json("import", source, code=1)
    assert (names(again["unchanged"]), again["created"]) == (["one", "two"], [])


def test_what_was_edited_here_is_kept_unless_forced(project: Project, other: Path) -> None:
    skills("import", other)
    file = project.repo / ".symphony/skills/one/SKILL.md"
    file.write_text("edited")
    done = skills("import", other, "--name", "one")
    assert done.exit_code == 1
    assert done.stdout.splitlines()[2:] == [
        "skipped   one  .claude/skills/one: the existing one differs; --force replaces it"
    ]
    assert file.read_text() == "edited"
    assert names(as_json("import", other, "--name", "one", "--force", "--dry-run")["updated"]) == ["one"]
    assert file.read_text() == "edited"
    assert names(as_json("import", other, "--name", "one", "--force")["updated"]) == ["one"]
    assert file.read_text() == GOOD.format("one")


def test_a_dry_run_says_the_same_and_writes_nothing(project: Project, other: Path) -> None:
    done = skills("import", other, "--dry-run")
    assert done.stderr.startswith("2 created, 0 updated, 0 unchanged, 1 skipped (nothing was written)\n")
    assert not (project.repo / ".symphony/skills").exists()


def test_a_branch_a_tag_and_a_commit_can_be_named(other: Path) -> None:
    first = git(other, "rev-parse", "HEAD")
    git(other, "tag", "v1")
    (other / ".claude/skills/one/SKILL.md").write_text(GOOD.format("one") + "later\n")
    commit(other)
    git(other, "config", "uploadpack.allowAnySHA1InWant", "true")
    for ref, commit_id in (("v1", first), (first, first), ("main", git(other, "rev-parse", "HEAD"))):
        done = as_json("import", other.as_uri(), "--ref", ref, "--name", "one", "--dry-run")
        assert done["source"]["commit"] == commit_id
    for ref in ("--upload-pack=x", "a..b", "a b"):
        refused = skills("import", other.as_uri(), "--ref", ref)
        assert (refused.exit_code, "is no reference" in refused.stderr) == (2, True)
    assert "--ref needs" in skills("import", other, "--ref", "v1").stderr


def test_nothing_of_a_repository_is_run(
    project: Project, other: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A filter that the user has (as LFS sets one up) and that the repository asks for does not run."""
    traces = project.root / "traces"
    (other / ".gitattributes").write_text("* filter=evil\n")
    commit(other)
    home = project.root / "home"
    home.mkdir()
    git(home, "config", "--file", ".gitconfig", "filter.evil.smudge", f"touch {word(traces)}; cat")
    template = project.root / "template/hooks/post-checkout"
    template.parent.mkdir(parents=True)
    template.write_text(f"#!/bin/sh\ntouch {word(traces)}\n")
    template.chmod(0o755)
    git(project.root, "clone", "--quiet", str(other), "trap")
    assert traces.exists(), "the trap works"
    traces.unlink()
    monkeypatch.setenv("GIT_TEMPLATE_DIR", str(project.root / "template"))
    assert names(as_json("import", other.as_uri(), "--name", "one")["created"]) == ["one"]
    assert not traces.exists()


def test_links_in_a_repository_lead_nowhere_but_into_it(other: Path) -> None:
    (other / ".claude/skills/one/config").symlink_to("../../../.git/config")
    (other / ".claude/skills/two/passwd").symlink_to("/etc/passwd")
    commit(other)
    done = as_json("import", other.as_uri(), code=1)
    reasons = {one["name"]: one["reason"] for one in done["skipped"]}
    assert reasons["one"] == "config is a link into .git"
    assert reasons["two"] == "passwd is a link that leads out of the source"


@pytest.mark.usefixtures("project")
def test_an_address_that_leads_nowhere_is_told_without_its_password() -> None:
    done = skills("import", "file://user:hunter2@localhost/nowhere")
    assert done.exit_code == 1
    assert "cannot be fetched" in done.stderr
    assert "hunter2" not in done.output


def test_a_giant_is_refused_before_it_is_written(other: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(skills_command, "_MAX_FILES", 2)
    assert "it has more than 2 files" in skills("import", other.as_uri()).stderr


def test_the_name_of_a_skill_that_is_a_repository_is_that_of_the_repository(project: Project) -> None:
    there = project.root / "release-notes.git"
    there.mkdir()
    (there / "SKILL.md").write_text(GOOD.format("release-notes"))
    (there / "readme.md").write_text("no skill")
    commit(there)
    assert names(as_json("import", f"{there.as_uri()}/")["created"]) == ["release-notes"]


@pytest.mark.parametrize("source", ["folder", "skill", "its file", "below"])
def test_a_folder_and_one_skill_can_be_named(other: Path, source: str) -> None:
    place = other / ".claude/skills"
    arguments, expected = {
        "folder": ((place, "--name", "one", "--name", "two"), ["one", "two"]),
        "skill": ((place / "one",), ["one"]),
        "its file": ((place / "one/SKILL.md",), ["one"]),
        "below": ((other, "--from", ".claude/skills/one"), ["one"]),
    }[source]
    assert names(as_json("import", *arguments)["created"]) == expected


def test_a_link_out_at_the_top_of_a_repository_hides_no_skills(other: Path) -> None:
    (other / "build").symlink_to("/etc")
    assert names(as_json("import", other, "--name", "one")["created"]) == ["one"]


def test_two_places_of_one_repository_are_settled(other: Path) -> None:
    (other / ".agents").mkdir()
    (other / ".agents/skills").symlink_to("../.claude/skills")
    assert names(as_json("import", other, "--name", "one")["created"]) == ["one"]
    (other / ".agents/skills").unlink()
    (other / ".agents/skills/one").mkdir(parents=True)
    (other / ".agents/skills/one/SKILL.md").write_text(GOOD.format("one") + "other\n")
    done = as_json("import", other, "--name", "one", "--dry-run", code=1)
    assert done["skipped"][-1]["reason"] == ".agents/skills/one has this name"


def test_a_name_that_another_folder_has_here_is_not_given_twice(project: Project, other: Path) -> None:
    project.write(".symphony/skills/elsewhere/SKILL.md", GOOD.format("one"))
    done = as_json("import", other, "--name", "one", code=1)
    assert done["skipped"][0]["reason"] == "its name is already taken by elsewhere"


def test_warnings_of_what_comes_over_are_told(other: Path) -> None:
    (other / ".claude/skills/one/SKILL.md").write_text(GOOD.format("One"))
    done = skills("import", other, "--name", "One")
    assert done.exit_code == 0
    assert "  warning: `name` differs from the directory's name. Make them equal.\n" in done.stdout


def test_what_is_skipped_is_told_with_what_to_do(other: Path) -> None:
    (other / ".claude/skills/my_flat.md").write_text(GOOD.format("my-flat"))
    (other / ".claude/skills/bad/SKILL.md").write_text("# Bare\n\nDoes much.\n")
    done = skills("import", other)
    assert done.exit_code == 1
    assert "make my-flat/SKILL.md of this file" in done.stdout
    assert "  hint: Start the file with a `---` line" in done.stdout
    assert "2 created, 0 updated, 0 unchanged, 2 skipped" in done.stderr


def test_what_is_no_source_is_an_error_with_a_hint(other: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for arguments, code, message in (
        (("nowhere",), 1, "there is no nowhere"),
        ((tmp_path / "empty",), 1, "there are no skills in"),
        ((other, "--name", "none"), 1, "has no skill 'none'"),
        ((other, "--from", ".claude", "--from", "empty"), 1, "there are no skills in empty of"),
        ((other / ".claude/skills/my_flat.md",), 1, "make my_flat/SKILL.md of it"),
        ((other, "--from", "../x"), 2, "--from: a relative path below the source"),
        (("ext::sh -c touch% x",), 1, "there is no ext::sh"),
        (("-x",), 2, "No such option"),
    ):
        done = skills("import", *arguments)
        assert (done.exit_code, message in done.stderr) == (code, True), done.stderr


def test_names_of_a_foreign_folder_steer_no_terminal(other: Path) -> None:
    (other / ".claude/skills/x\x1b[2J").mkdir()
    (other / ".claude/skills/x\x1b[2J/SKILL.md").write_text('---\nname: "y"\ndescription: d\n---\n')
    assert "\x1b" not in skills("import", other).output


def test_all_of_a_collection_comes_over_told_by_folder(project: Project) -> None:
    """Eighteen skills, one of them a template at the top, are eighteen: none hides the others."""
    there = project.root / "collection"
    for place in ("template", *(f"skills/skill-{number}" for number in range(17))):
        path = there / place / "SKILL.md"
        path.parent.mkdir(parents=True)
        path.write_text(GOOD.format(path.parent.name))
    commit(there)
    dry = skills("import", there, "--dry-run")
    rows = [line.split() for line in dry.stdout.splitlines()]
    assert rows[:3] == [["FOLDER", "SKILLS", "NOT", "USABLE"], ["skills", "17"], [".", "1"]]
    done = as_json("import", there)
    assert done["folders"] == [
        {"folder": "skills", "found": 17, "skipped": 0},
        {"folder": ".", "found": 1, "skipped": 0},
    ]
    assert len(done["created"]) == 18
    assert len(list((project.repo / ".symphony/skills").glob("*/SKILL.md"))) == 18


def test_folders_and_names_narrow_what_is_taken(project: Project) -> None:
    there = project.root / "collection"
    for place in (
        "writing/haiku",
        "writing/essay",
        "plugins/review/skills/lint",
        "plugins/build/skills/make",
    ):
        path = there / place / "SKILL.md"
        path.parent.mkdir(parents=True)
        path.write_text(GOOD.format(path.parent.name))
    folders = ("--from", "writing", "--from", "plugins/review")
    assert names(as_json("import", there, *folders, "--dry-run")["created"]) == ["essay", "haiku", "lint"]
    chosen = ("--name", "haiku", "--name", "lint")
    assert names(as_json("import", there, *folders, *chosen)["created"]) == ["haiku", "lint"]
    assert "has no skill 'make'" in skills("import", there, *folders, "--name", "make").stderr


def test_a_folder_that_is_another_one_but_for_its_letters_is_not_put_beside_it(project: Project) -> None:
    project.skill("pdf")
    there = project.root / "collection/PDF/SKILL.md"
    there.parent.mkdir(parents=True)
    there.write_text(GOOD.format("other"))
    done = as_json("import", there.parent.parent, code=1)
    assert done["skipped"][0]["reason"] == "pdf is there, and on some file systems the same folder"
    assert not (project.repo / ".symphony/skills/PDF").exists()


# --- export ---


def test_skills_go_out_as_plain_copies(project: Project) -> None:
    project.workflow(agent={"skills": {"disabled_skills": ["off"], "max_skills_in_prompt": 1}})
    for name in ("a", "b", "off"):
        project.skill(name)
    project.write(".symphony/skills/a/scripts/x.sh", "x")
    project.write(".symphony/skills/Odd/SKILL.md", GOOD.format("odd"))
    target = project.root / "out"
    assert names(as_json("export", target)["created"]) == ["a", "b", "odd"]
    assert files(target / "a") == files(project.repo / ".symphony/skills/a")
    assert sorted(path.name for path in target.iterdir()) == ["a", "b", "odd"]
    assert names(as_json("export", target)["unchanged"]) == ["a", "b", "odd"]
    (target / "a/SKILL.md").write_text("edited")
    done = skills("export", target)
    assert (done.exit_code, "--force replaces it" in done.stdout) == (1, True)
    assert (target / "a/SKILL.md").read_text() == "edited"
    assert skills("export", target, "--force").stdout.startswith("updated   a  ")


@pytest.mark.parametrize("agent", ["agents", "claude"])
def test_copies_go_where_an_agent_looks(project: Project, agent: str) -> None:
    skills("new", "mine", "--user")
    project.skill("a")
    assert skills("export", project.repo, "--to", agent).exit_code == 0
    assert sorted(path.name for path in (project.repo / f".{agent}/skills").iterdir()) == ["a", "mine"]


def test_a_skill_that_cannot_be_copied_is_told_and_the_others_go(project: Project) -> None:
    project.skill("a")
    project.skill("b")
    (project.repo / ".symphony/skills/a/link").symlink_to("/etc/passwd")
    done = as_json("export", project.root / "out", code=1)
    assert (names(done["created"]), names(done["skipped"])) == (["b"], ["a"])
    assert done["skipped"][0]["reason"] == "link is a link that leads out of the source"
