"""`symphony skills`: what the looking commands print, by which options, and the shapes of all of them."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from harness.project import Project
from published.schemas import conforms_to
from symphony.cli.main import main
from symphony.skills import SkillOptions, load, render

ROOT = Path(__file__).parents[4]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A repository, current, with a home of its own."""
    made = Project(root=tmp_path).create()
    monkeypatch.chdir(made.repo)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("SYMPHONY_AGENT_SKILLS_ENABLED", raising=False)
    return made


def skills(*arguments: str | Path, **environment: str) -> Result:
    return CliRunner().invoke(main, ["skills", *map(str, arguments)], env=environment)


def as_json(*arguments: str | Path, code: int = 0) -> dict[str, Any]:
    done = skills(*arguments, "--json")
    assert done.exit_code == code, done.output
    document: dict[str, Any] = json.loads(done.stdout)
    conforms_to(f"skills-{arguments[0]}", document)
    return document


# --- list ---


def test_without_any_skills_there_is_nothing_to_tell(project: Project) -> None:
    assert not list(project.repo.glob("WORKFLOW.md"))
    done = skills("list")
    assert (done.exit_code, done.stdout, done.stderr) == (0, "", "0 skills, 0 errors, 0 warnings\n")
    assert skills("prompt").stdout == ""
    assert as_json("prompt")["block"] is None
    assert skills("search", "x").stderr == "no skill has any of these words\n"


def test_case_82_the_table_says_scope_state_and_problems_and_ends_with_1_for_errors(project: Project) -> None:
    skills_options = {"disabled_skills": ["off"], "max_skills_in_prompt": 1}
    project.workflow(agent={"skills": skills_options}, workspace={"repo": None})
    for name in ("a", "b", "off"):
        project.skill(name, description=f'"About {name} \\e[2J."')
    project.write(".symphony/skills/odd/SKILL.md", "\ufeff---\nname: odd\ndescription: d\n---\n")
    project.write(".symphony/skills/bad/SKILL.md", "---\nname: bad\n---\n")
    mine = project.root / "home/.symphony/skills/mine/SKILL.md"
    mine.parent.mkdir(parents=True)
    mine.write_text("---\nname: mine\ndescription: Mine.\n---\n")
    done = skills("list")
    assert done.exit_code == 1
    assert "\x1b" not in done.stdout
    rows = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert rows[0] == "NAME SCOPE LISTED PROBLEMS WHEN TO USE"
    assert rows[1] == "a project yes About a ."
    assert rows[3] == "mine user over the cap Mine."
    assert rows[4] == "odd project over the cap 1 warning d"
    assert rows[5].startswith("off project disabled")
    assert rows[6].startswith(".symphony/skills/bad/SKILL.md:1:1: error missing_description")
    assert done.stderr == "5 skills, 1 error, 1 warning\n"
    document = as_json("list", code=1)
    assert {one["name"]: (one["enabled"], one["listed"]) for one in document["skills"]} == {
        "a": (True, True),
        "b": (True, False),
        "mine": (True, False),
        "odd": (True, False),
        "off": (False, False),
    }
    assert all(one["sha256"] for one in document["skills"])


def test_a_skill_for_people_is_shown_with_the_reason_and_the_setting(project: Project) -> None:
    project.workflow(workspace={"repo": None})
    project.skill("tidy")
    text = "---\nname: deploy\ndescription: Deploys.\n{}---\n"
    project.write(".symphony/skills/deploy/SKILL.md", text.format("disable-model-invocation: true\n"))
    project.write(".symphony/skills/land/SKILL.md", text.format("").replace("deploy", "land"))
    policy = "policy:\n  allow_implicit_invocation: false\n"
    project.write(".symphony/skills/land/agents/openai.yaml", policy)
    done = skills("list")
    assert done.exit_code == 0
    rows = {line.split()[0]: line for line in done.stdout.splitlines()}
    assert "for people" in rows["deploy"]
    assert "for people" in rows["land"]
    (hint,) = [line for line in done.stderr.splitlines() if line.startswith("hint: ")]
    assert "deploy (disable-model-invocation)" in hint
    assert "land (allow_implicit_invocation in agents/openai.yaml)" in hint
    assert "agent.skills.for_people: show" in hint
    found = {one["name"]: one for one in as_json("list")["skills"]}
    assert (found["deploy"]["enabled"], found["deploy"]["listed"]) == (False, False)
    assert found["deploy"]["for_people"] == "disable-model-invocation"
    assert found["tidy"]["for_people"] is None
    assert as_json("show", "deploy")["for_people"] == "disable-model-invocation"
    assert "for_people: disable-model-invocation" in skills("show", "deploy").stdout
    assert as_json("prompt")["dropped"] == [
        {"name": "deploy", "reason": "for_people"},
        {"name": "land", "reason": "for_people"},
    ]
    project.workflow(workspace={"repo": None}, agent={"skills": {"for_people": "show"}})
    assert [one["listed"] for one in as_json("list")["skills"]] == [True, True, True]


def test_what_is_not_committed_is_said_to_be_seen_by_no_session(project: Project) -> None:
    project.workflow()
    project.skill("old")
    project.commit("Old")
    assert skills("list").stderr == "1 skill, 0 errors, 0 warnings\n"
    project.skill("new")
    done = skills("list")
    rows = {line.split()[0]: line for line in done.stdout.splitlines()}
    assert "not committed" in rows["new"]
    assert "not committed" not in rows["old"]
    (warning,) = [line for line in done.stderr.splitlines() if line.startswith("warning: ")]
    assert ".symphony/skills/new/SKILL.md" in warning
    assert as_json("list")["uncommitted"] == [".symphony/skills/new/SKILL.md"]
    assert "see only commits" in skills("prompt").stderr
    project.workflow(agent={"skills": {"enabled": False}})
    assert "see only commits" not in skills("list").stderr
    project.workflow(workspace={"base_branch": "no-such-branch"})
    assert "see only commits" not in skills("list").stderr, "git knows no such branch; others say so"
    project.workflow(workspace={"repo": None})
    assert "see only commits" not in skills("list").stderr, "hooks populate the workspaces"


def test_a_name_with_a_line_break_is_committed_like_any_other(project: Project) -> None:
    project.workflow()
    for name in ("a\rb", "c\r\nd", "e\nf"):
        project.write(f".symphony/skills/{name}/SKILL.md", "---\nname: x\ndescription: d\n---\n")
    project.commit("Odd names")
    assert as_json("list", code=1)["uncommitted"] == []


def test_the_variable_holds_without_a_workflow_and_beside_a_broken_one(project: Project) -> None:
    project.skill("a")
    for workflow in (None, "---\nagent: {skills: 7}\n---\n", "---\n[\n---\n"):
        if workflow is not None:
            project.write("WORKFLOW.md", workflow)
        assert skills("prompt").stdout.startswith("## Available")
        assert skills("prompt", SYMPHONY_AGENT_SKILLS_ENABLED="false").stdout == ""
        assert "enabled is false" in skills("list", SYMPHONY_AGENT_SKILLS_ENABLED="false").stderr
        done = skills("list", SYMPHONY_AGENT_SKILLS_ENABLED="maybe")
        assert (done.exit_code, "must be true or false" in done.stderr) == (3, True)


def test_where_skills_are_off_they_are_shown_and_not_listed(project: Project) -> None:
    project.workflow(agent={"skills": {"enabled": False}})
    project.skill("a")
    done = skills("list")
    assert " off " in done.stdout
    assert "warning: agent.skills.enabled is false" in done.stderr
    assert [(one["enabled"], one["listed"]) for one in as_json("list")["skills"]] == [(False, False)]
    assert skills("prompt").stdout == ""
    assert skills("prompt", SYMPHONY_AGENT_SKILLS_ENABLED="true").stdout.startswith("## Available")


def test_where_a_run_reads_the_base_branch_it_is_said_that_this_is_the_folder(project: Project) -> None:
    project.workflow(agent={"skills": {"source": "base_branch"}})
    project.skill("a")
    for command in ("list", "prompt"):
        assert "warning: agent.skills.source is base_branch" in skills(command).stderr


# --- which repository, which options ---


def test_the_repository_is_that_of_the_current_directory(
    project: Project, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    project.skill("a")
    (project.repo / "deep/er").mkdir(parents=True)
    monkeypatch.chdir(project.repo / "deep/er")
    assert [one["name"] for one in as_json("list")["skills"]] == ["a"]
    project.write(".symphony/skills/bad/SKILL.md", "x")
    assert skills("check").stdout.startswith("../../.symphony/skills/bad/SKILL.md:1:1: error")
    (tmp_path / "plain").mkdir()
    monkeypatch.chdir(tmp_path / "plain")
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    assert as_json("list")["skills"] == []
    assert [one["name"] for one in as_json("list", "-C", project.repo, code=1)["skills"]] == ["a"]


def test_another_path_and_another_workflow_may_be_named(project: Project) -> None:
    project.write("mine/x/SKILL.md", "---\nname: x\ndescription: d\n---\n")
    assert [one["name"] for one in as_json("list", "--path", "mine")["skills"]] == ["x"]
    file = project.workflow(agent={"skills": {"path": "mine", "format": "xml"}})
    file = file.rename(project.repo / "OTHER.md")
    assert as_json("list")["skills"] == []
    assert "<available_skills>" in skills("prompt", "--workflow", file).stdout


@pytest.mark.parametrize(
    "text",
    [
        "---\nagent: {skills: {path: /etc}}\n---\n",
        "---\n{broken\n---\n",
        b"\xff\xfe",
    ],
)
def test_a_workflow_that_is_not_valid_is_a_warning(project: Project, text: str | bytes) -> None:
    project.skill("a")
    file = project.repo / "WORKFLOW.md"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    done = skills("list")
    assert done.exit_code == 0
    assert done.stderr.startswith(f"warning: {file}:")
    assert "the defaults of agent are used" in done.stderr
    assert "a     project" in done.stdout


def test_a_mistake_elsewhere_in_the_workflow_is_no_matter_here(project: Project) -> None:
    project.write("mine/x/SKILL.md", "---\nname: x\ndescription: d\n---\n")
    project.workflow(
        agent={"skills": {"path": "mine"}}, tracker={"kind": "none-such"}, workspace={"repo": None}
    )
    done = skills("list")
    assert (done.exit_code, "warning" in done.stderr.replace("0 warnings", "")) == (0, False)
    assert "x     project" in done.stdout


def test_a_workflow_that_cannot_be_read_is_a_warning_or_if_it_was_named_an_error(project: Project) -> None:
    (project.repo / "WORKFLOW.md").mkdir()
    assert "the defaults of agent are used" in skills("list").stderr
    done = skills("list", "--workflow", project.repo / "none.md")
    assert (done.exit_code, done.stderr.split(" /")[0]) == (3, "error: cannot read")


# --- check ---


def test_check_is_a_linter(project: Project) -> None:
    project.skill("a")
    assert skills("check", "--strict").exit_code == 0
    assert "info missing_when_to_use" in skills("check", "--info").stdout
    project.write(".symphony/skills/odd/SKILL.md", "---\nname: Odd\ndescription: d\n---\n")
    assert skills("check").exit_code == 0
    strict = skills("check", "--strict")
    assert (strict.exit_code, strict.stderr) == (1, "1 skill, 1 error, 0 warnings\n")
    assert ".symphony/skills/odd/SKILL.md:2:1: error name_charset" in strict.stdout
    github = skills("check", "--github").stdout
    assert github.startswith("::warning file=.symphony/skills/odd/SKILL.md,line=2,col=1,title=name_charset::")
    assert skills("check", "--github", "--json").exit_code == 2
    assert as_json("check", "--strict", code=1)["problems"]


def test_list_tells_what_is_shadowed(project: Project) -> None:
    project.workflow(agent={"skills": {"extra_paths": ["more"]}})
    project.skill("good")
    project.write("more/good/SKILL.md", "---\nname: good\ndescription: d\n---\n")
    (shadowed,) = as_json("list")["shadowed"]
    assert (shadowed["path"], shadowed["scope"]) == ("more/good/SKILL.md", "extra")
    assert shadowed["by"] == ".symphony/skills/good/SKILL.md"


# --- prompt ---


@pytest.mark.parametrize("form", ["compact", "full", "xml"])
def test_the_block_is_byte_for_byte_that_of_the_catalog(project: Project, form: str) -> None:
    project.workflow(agent={"skills": {"format": form, "max_prompt_chars": 600, "user_path": None}})
    for name in ("eins", "zwei"):
        project.skill(name, description="Grüße, 日本語. " * 40)
    options = SkillOptions(format=form, max_prompt_chars=600)  # type: ignore[arg-type]  # a StrEnum's value
    expected = render(load(project.repo, options), options)
    done = skills("prompt")
    assert expected.text is not None
    assert (done.exit_code, done.stdout_bytes) == (0, f"{expected.text}\n".encode())
    assert skills("prompt", "--format", form).stdout_bytes == done.stdout_bytes
    document = as_json("prompt")
    assert document["block"] == expected.text
    assert document["shortened"] == [*expected.shortened]


# --- show ---


def test_show_tells_everything_of_one_skill(project: Project) -> None:
    project.skill("a", body="Do \x1b[2J it.")
    project.write(".symphony/skills/a/scripts/x.sh", "x")
    done = skills("show", "a")
    assert done.exit_code == 0
    assert "path: .symphony/skills/a/SKILL.md\n" in done.stdout
    assert "files: scripts/x.sh\n" in done.stdout
    assert done.stdout.endswith("\nDo \\x1b[2J it.\n")
    assert as_json("show", "a")["body"] == "# a\n\nDo \x1b[2J it."


def test_show_of_what_is_not_there_says_what_may_be_meant(project: Project) -> None:
    project.skill("release-notes")
    project.write(".symphony/skills/bad/SKILL.md", "x")
    for name, message, hint in (
        ("release-note", "there is no skill 'release-note'", "did you mean release-notes?"),
        ("zzz", "there is no skill 'zzz'", "`symphony skills list` names them"),
        ("bad", ".symphony/skills/bad/SKILL.md:1: There is no front matter.", "Start the file"),
    ):
        done = skills("show", name)
        assert done.exit_code == 1
        assert done.stderr.startswith(f"error: {message}")
        assert f"hint: {hint}" in done.stderr


# --- search ---


def test_search_puts_the_best_first(project: Project) -> None:
    project.skill("migrations", description="Writes database migrations.")
    project.skill("backups", description="Before a database is changed.")
    project.skill("style", description="How code looks.")
    done = skills("search", "database", "migrations")
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["NAME", "migrations", "backups"]
    document = as_json("search", "database", "migrations", "-n", "1")
    assert document["query"] == "database migrations"
    assert [one["name"] for one in document["hits"]] == ["migrations"]


# --- help ---


def test_every_command_explains_itself_with_examples() -> None:
    assert "Examples:" in skills().output
    for name in ("list", "check", "show", "prompt", "search", "new", "import", "export"):
        done = skills(name, "--help")
        assert done.exit_code == 0
        for part in ("Examples:", f"symphony skills {name}", "--json", "-C", "--path", "--workflow"):
            assert part in done.stdout, (name, part)


def test_a_long_description_is_cut_to_a_line_in_lists_and_whole_elsewhere(project: Project) -> None:
    text = "Write down what has changed. " * 20 + "THE END"
    project.skill("long", description=text)
    for command in (("list",), ("search", "changed")):
        done = skills(*command)
        assert "Write down what" in done.stdout
        assert "THE END" not in done.stdout
        assert len(done.stdout.splitlines()) == 2, "the head and one line"
        assert "THE END" in skills(*command, "--json").stdout
    assert "THE END" in skills("show", "long").stdout


# --- phases ---


def test_the_skills_of_a_phase_are_listed_and_printed(project: Project) -> None:
    for name, phases in (("testing", "TEST"), ("planning", "PLAN")):
        front = f"name: {name}\ndescription: d\nmetadata: {{symphony-phases: {phases}}}"
        project.write(f".symphony/skills/{name}/SKILL.md", f"---\n{front}\n---\nx\n")
    project.commit("Skills")
    document = as_json("prompt", "--phase", "test")
    assert document["listed"] == ["testing"]
    assert document["dropped"] == [{"name": "planning", "reason": "phase"}]
    listed = {one["name"]: one["listed"] for one in as_json("list", "--phase", "TEST")["skills"]}
    assert listed == {"testing": True, "planning": False}
    assert "other phase" in skills("list", "--phase", "TEST").stdout


def test_without_a_phase_that_of_the_settings_counts(project: Project) -> None:
    for name, phases in (("testing", "TEST"), ("planning", "PLAN"), ("always", "")):
        front = f"name: {name}\ndescription: d\nmetadata: {{symphony-phases: '{phases}'}}"
        project.write(f".symphony/skills/{name}/SKILL.md", f"---\n{front}\n---\nx\n")
    project.commit("Skills")
    assert as_json("prompt")["listed"] == ["always", "planning", "testing"]
    project.workflow(agent={"phases": {"default": "PLAN"}})
    assert as_json("prompt")["listed"] == ["always", "planning"]
    listed = {one["name"]: one["listed"] for one in as_json("list")["skills"]}
    assert listed == {"always": True, "planning": True, "testing": False}
    assert as_json("show", "testing")["listed"] is False
    assert as_json("prompt", "--phase", "TEST")["listed"] == ["always", "testing"]


# --- skills elsewhere ---


def other_agents(project: Project, *folders: str) -> None:
    for folder in folders:
        project.write(f"{folder}/one/SKILL.md", "---\nname: one\ndescription: d\n---\n")


@pytest.mark.parametrize("command", ["list", "check"])
def test_a_folder_that_sessions_do_not_see_is_named_in_one_line_with_the_setting(
    project: Project, command: str
) -> None:
    other_agents(project, ".claude/skills", ".agents/skills", ".kiro/skills")
    project.workflow(workspace={"repo": None}, agent={"skills": {"extra_paths": [".kiro/skills"]}})
    done = skills(command)
    assert done.exit_code == 0, done.output
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("warning: ")]
    assert ".claude/skills (1 skill)" in line
    assert ".agents/skills" not in line, "Codex lists it"
    assert line.endswith("agent.skills.extra_paths: [.kiro/skills, .claude/skills]")
    if command == "list":
        assert as_json("list")["elsewhere"] == [{"path": ".claude/skills", "skills": 1}]
    shown = {"skills": {"extra_paths": [".kiro/skills", ".claude/skills"]}}
    project.workflow(workspace={"repo": None}, agent=shown)
    assert "warning: " not in skills(command).stderr
    project.workflow(workspace={"repo": None}, agent={"skills": {"enabled": False}})
    assert "do not see" not in skills(command).stderr


def test_an_agent_that_lists_no_skills_sees_none_of_them(project: Project) -> None:
    other_agents(project, ".agents/skills")
    assert "do not see the skills in .agents/skills" in skills("list").stderr, "there is no agent yet"
    project.workflow(workspace={"repo": None})
    assert "do not see" not in skills("list").stderr
    project.workflow(workspace={"repo": None}, agent={"kind": "claude"})
    assert "do not see the skills in .agents/skills" in skills("list").stderr


@pytest.mark.parametrize(
    "folder", [".cursor", ".agent", ".kiro", ".windsurf", ".factory", ".junie", ".opencode"]
)
def test_an_import_looks_into_the_folders_of_every_agent(
    project: Project, tmp_path: Path, folder: str
) -> None:
    other = tmp_path / "other"
    for name in ("a", "b"):
        path = other / folder / "skills" / name / "SKILL.md"
        path.parent.mkdir(parents=True)
        path.write_text(f"---\nname: {name}\ndescription: d\n---\n")
    (other / folder / "rules").mkdir()
    (other / folder / "rules/SKILL.md").write_text("---\nname: rules\ndescription: d\n---\n")
    done = skills("import", other, "--json")
    assert done.exit_code == 0, done.output
    assert [one["name"] for one in json.loads(done.stdout)["created"]] == ["a", "b"]
    assert (project.repo / ".symphony/skills/a/SKILL.md").is_file()
