"""`symphony check` on files and what lies around them; the shape of its JSON."""

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from harness.project import Project
from published.schemas import conforms_to
from symphony.cli.main import main
from symphony.config import KEYS, WarningCode
from symphony.domain import MASK

ROOT = Path(__file__).parents[4]
SECRET = "correct-horse-battery"
BUDGET = "agent: {budget: {max_tokens_per_issue: 5000000}}\n"
PROMPT = "---\nDo {{ issue.identifier }}.\n"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    made = Project(root=tmp_path).create()
    monkeypatch.chdir(made.repo)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    return made


def check(*arguments: str, **environment: str) -> Result:
    return CliRunner().invoke(main, ["check", *arguments], env=environment)


def as_json(*arguments: str, **environment: str) -> dict[str, Any]:
    done = check("--json", *arguments, **environment)
    report = json.loads(done.stdout)
    conforms_to("check", report)
    assert done.exit_code == (0 if report["valid"] else 3)
    assert done.stderr == ""
    assert isinstance(report, dict)
    return report


def front(project: Project, text: str, body: str = PROMPT) -> Path:
    budget = "" if "agent:" in text else BUDGET
    return project.write("WORKFLOW.md", f"---\ntracker: {{kind: markdown}}\n{text}{budget}{body}")


def codes(report: dict[str, Any]) -> list[str]:
    return [problem["code"] for problem in report["problems"]]


GOOD = "codex: {command: bash}\nworkspace: {repo: .}\n"


def test_a_good_file_is_one_line(project: Project) -> None:
    path = front(project, GOOD)
    done = check()
    assert done.exit_code == 0
    assert done.stdout == f"{path}: usable\n"


@pytest.mark.parametrize(
    ("active", "doubted"),
    [
        ("[Tood]", True),
        ("[Todo, In Progess]", True),
        ("[Todo, In Progress]", False),
        ("[Todo, Elsewhere]", True),
    ],
)
def test_a_state_that_the_board_does_not_have_is_told_with_its_line(
    project: Project, active: str, *, doubted: bool
) -> None:
    for number, state in enumerate(("Todo", "In Progress", "Backlog", "Human Review", "Done")):
        project.write(f".symphony/issues/SYM-{number}.md", f"---\ntitle: t\nstate: {state}\n---\n")
    tracker = f"---\ntracker:\n  kind: markdown\n  active_states: {active}\n"
    project.write("WORKFLOW.md", f"{tracker}{GOOD}{BUDGET}{PROMPT}")
    problems = [one for one in as_json()["problems"] if "no issue is in" in one["message"]]
    assert [one["line"] for one in problems] == ([4] if doubted else [])


def test_the_effective_settings_are_told_with_every_key(project: Project) -> None:
    front(project, GOOD)
    report = as_json()
    assert report["problems"] == []
    settings = report["settings"]
    for name in KEYS:
        node = settings
        for part in name.split("."):
            assert part in node, name
            node = node[part]
    assert settings["tracker"]["active_states"] == ["Todo", "In Progress"]
    assert settings["workspace"]["repo"] == str(project.repo)


def test_the_effective_settings_are_plain_json_without_secrets(project: Project) -> None:
    agent = "agent: {rules: [{label: x, use: codex}]}\ncodex: {command: bash, env: [A_B]}\n"
    given = "{path: issues, token: hunter22, odd: [.nan, 1.5, {api_key: $KEY}]}"
    project.write("WORKFLOW.md", f"---\ntracker: {{kind: markdown, provider: {given}}}\n{agent}---\nx\n")
    settings = as_json()["settings"]
    assert settings["tracker"]["provider"] == {
        "path": "issues",
        "token": MASK,
        "odd": [None, 1.5, {"api_key": "$KEY"}],
    }
    assert settings["agent"]["rules"] == [{"use": "codex", "label": "x", "state": None, "fallback": None}]
    assert settings["codex"]["env"] == ["A_B"]
    assert isinstance(settings["workspace"]["root"], str)


def test_everything_wrong_is_told_at_once_errors_first_in_the_order_of_the_file(project: Project) -> None:
    path = project.write(
        "WORKFLOW.md",
        "---\n"
        "tracker:\n"
        "  kind: markdown\n"
        "  provider: {path: 3, prefx: A}\n"
        "codex: {command: /nowhere/codex, read_timeout_ms: 7}\n"
        "agent: {max_turn: 1, max_turns: 0}\n"
        "workspace:\n"
        "  repo: .\n"
        "  base_branch: release\n"
        "worker: {ssh_hosts: [-a]}\n"
        "---\n"
        "{{ issue.titel }}\n",
    )
    done = check()
    assert done.exit_code == 3
    told = [line for line in done.stdout.splitlines() if not line.startswith("  hint: ")]
    assert [line.rsplit("[")[-1].rstrip("]") for line in told[:-1]] == [
        "invalid_tracker_config",
        "codex_not_found",
        "invalid_workflow_config",
        "workspace_repository",
        "invalid_workflow_config",
        "template_render_error",
        "unknown_key",
        "unknown_key",
    ]
    assert [int(line.removeprefix(f"{path}:").split(":")[0]) for line in told[:-1]] == [
        4,
        5,
        6,
        9,
        10,
        12,
        4,
        6,
    ]
    assert told[0] == (
        f"{path}:4: error: tracker.provider.path must be the path of a folder [invalid_tracker_config]"
    )
    assert told[-1] == f"{path}: not usable (6 errors, 2 warnings)"
    assert done.stdout.count("  hint: ") == 8
    assert as_json()["settings"] is None


@pytest.mark.parametrize(
    ("data", "code", "line"),
    [
        (b"---\na: [\n---\nx", "workflow_parse_error", 3),
        (b"---\na: 1\na: 2\n---\nx", "workflow_parse_error", 3),
        (b"---\n\xff\n---\nx", "workflow_parse_error", 2),
        (b"---\n- a\n---\nx", "workflow_front_matter_not_a_map", 2),
        (b"no front matter", "missing_tracker_kind", 1),
        (b"", "missing_tracker_kind", 1),
        (b"---\ntracker: {kind: trello}\n---\nx", "unsupported_tracker_kind", 2),
        (f"---\ntracker: {{kind: markdown}}\n{BUDGET}---\n{{% if %}}".encode(), "template_parse_error", 5),
    ],
)
def test_a_malformed_document_is_one_error_with_its_line(
    project: Project, data: bytes, code: str, line: int
) -> None:
    (project.repo / "WORKFLOW.md").write_bytes(data)
    report = as_json(PATH=f"{Path(sys.executable).parent}:/usr/bin:/bin")
    errors = [problem for problem in report["problems"] if problem["code"] != "codex_not_found"]
    assert [(problem["severity"], problem["code"], problem["line"]) for problem in errors] == [
        ("error", code, line)
    ]
    assert errors[0]["hint"]


@pytest.mark.conformance("L-1", "W-4")
def test_a_missing_file_is_named_absolutely(project: Project) -> None:
    done = check("else/W.md")
    assert done.exit_code == 3
    assert str(project.repo / "else" / "W.md") in done.stdout
    assert "`symphony init` makes one" in done.stdout
    assert "not usable (1 error)" in done.stdout


def test_warnings_leave_the_file_usable(project: Project) -> None:
    project.write(".symphony/config.yaml", "a: 1\n")
    project.skill("seen")
    project.commit("A skill")
    project.skill("unseen")
    project.write(".symphony/skills/broken/SKILL.md", "no front matter")
    front(
        project,
        "codex: {command: bash, thread_sandbox: danger-full-access, approval_policy: on-failure}\n"
        "agent: {max_concurrent_agents_by_state: {Todo: 0}}\n"
        "workspace: {repo: ., root: $NOT_SET}\n"
        f"server: {{token: {SECRET}, host: localhost}}\n",
    )
    report = as_json()
    assert report["valid"]
    assert set(codes(report)) == {
        "unknown_key",
        "unset_variable",
        "ignored_state_limit",
        "refused_approval_policy",
        "unguarded",
        "no_budget",
        "unused_file",
        "uncommitted_skills",
        "skill_problem",
    }
    assert all(
        problem["line"] and problem["hint"]
        for problem in report["problems"]
        if problem["code"]
        in {
            "unguarded",
            "unused_file",
            "uncommitted_skills",
            "refused_approval_policy",
        }
    )


def test_every_warning_is_documented() -> None:
    page = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8").split("## `symphony check`")[1]
    for code in WarningCode:
        assert f"| `{code.value}` |" in page


@pytest.mark.conformance("O-7")
@pytest.mark.parametrize("flag", ["--json", None])
def test_no_secret_is_shown(project: Project, flag: str | None) -> None:
    project.write(
        "WORKFLOW.md",
        f"---\ntracker: {{kind: markdown, provider: {{api_key: {SECRET}-1, login: $LOGIN, path: b}}}}\n"
        f"codex: {{command: 'T=ghp_0123456789abcdefghij {SECRET}-2 bash'}}\n"
        f"workspace: {{repo: 'https://ann:{SECRET}-3@git.example.test/x.git'}}\n{PROMPT}",
    )
    done = check(*([flag] if flag else []), LOGIN=f"{SECRET}-2")
    assert SECRET not in done.stdout + done.stderr
    assert "ghp_" not in done.stdout
    assert done.stdout.count("literal_secret") == 3


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_a_path_that_is_no_text_steers_no_terminal_and_breaks_nothing(
    project: Project, form: tuple[str, ...]
) -> None:
    path = Path(os.fsdecode(os.fsencode(project.repo) + b"/W\xff\xc2\x9b31m.md"))
    path.write_text(f"---\ntracker: {{kind: markdown}}\n{GOOD}{PROMPT}")
    done = check(*form, str(path))
    assert (done.exit_code, done.stderr) == (0, "")
    assert "\x9b" not in done.stdout


def test_skills_are_not_looked_at_where_they_are_switched_off(project: Project) -> None:
    project.write(".symphony/skills/broken/SKILL.md", "no front matter")
    front(project, f"{GOOD}agent: {{skills: {{enabled: false}}, budget: {{max_tokens_per_day: 9}}}}\n")
    assert as_json()["problems"] == []


def test_the_users_own_skills_and_further_directories_are_looked_at(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = project.root / "home"
    monkeypatch.setenv("HOME", str(home))
    theirs = home / ".symphony" / "skills" / "broken" / "SKILL.md"
    theirs.parent.mkdir(parents=True)
    theirs.write_text("no front matter")
    project.write(".agents/skills/further/SKILL.md", "no front matter")
    front(project, f"{GOOD}agent: {{skills: {{extra_paths: [.agents/skills]}}}}\n")
    problems = as_json()["problems"]
    assert {one["path"] for one in problems if one["code"] == "skill_problem"} == {
        str(theirs),
        str(project.repo / ".agents/skills/further/SKILL.md"),
    }
    (uncommitted,) = [one for one in problems if one["code"] == "uncommitted_skills"]
    assert ".agents/skills/further/SKILL.md" in uncommitted["message"]


def test_a_repository_on_the_network_is_not_asked(project: Project) -> None:
    repo = "repo: 'https://unreachable.example.test/x', push: origin"
    front(project, f"codex: {{command: bash}}\nworkspace: {{{repo}}}\n")
    assert as_json()["problems"] == []


def test_finished_work_that_nobody_would_find_is_told_with_its_place(project: Project) -> None:
    front(project, "codex: {command: bash}\nworkspace: {repo: 'https://host.test/x', root: ws}\n")
    (problem,) = as_json()["problems"]
    assert (problem["code"], problem["line"]) == ("hidden_delivery", 4)
    fetched = shlex.split(problem["hint"].partition("git fetch ")[2])[0]
    assert Path(fetched).is_relative_to(project.repo / "ws")
    assert fetched in problem["message"]


def test_a_push_without_a_remote_is_told_and_with_one_nothing_is_asked(project: Project) -> None:
    front(project, "codex: {command: bash}\nworkspace: {repo: ., push: origin}\n")
    (problem,) = as_json()["problems"]
    assert (problem["code"], problem["line"]) == ("no_remote", 4)
    assert "git remote add origin" in problem["hint"]
    project.git("remote", "add", "origin", "https://unreachable.example.test/x")
    assert as_json()["problems"] == []


def test_edits_that_sessions_will_not_see_are_told(project: Project) -> None:
    project.write("app/main.py", "old\n")
    project.write("b", "b\n")
    project.write(".symphony/issues/SYM-1.md", "---\ntitle: x\nstate: Todo\n---\n")
    front(project, GOOD)
    project.git("add", "--all", "--force")
    project.commit("All of it")
    project.write("WORKFLOW.md", project.repo.joinpath("WORKFLOW.md").read_text() + "More.\n")
    project.write(".symphony/issues/SYM-1.md", "---\ntitle: x\nstate: Done\n---\n")
    project.write("new.txt", "untracked")
    assert codes(as_json()) == [], "the daemon reads these from the folder, or git does not know them"
    project.write("app/main.py", "new\n")
    project.repo.joinpath("b").unlink()
    (problem,) = as_json()["problems"]
    assert (problem["severity"], problem["code"]) == ("warning", "uncommitted_changes")
    assert "app/main.py, b" in problem["message"]
    assert "SYM-1" not in problem["message"]


@pytest.mark.parametrize(
    ("workspace", "said"),
    [("{repo: ./no-such-folder}", "no-such-folder"), ("{repo: empty}", "no commit yet")],
)
def test_a_repository_that_cannot_be_cloned_is_an_error(project: Project, workspace: str, said: str) -> None:
    empty = project.repo / "empty"
    empty.mkdir()
    subprocess.run(["git", "init", "--quiet"], cwd=empty, check=True)
    front(project, f"codex: {{command: bash}}\nworkspace: {workspace}\n")
    (problem,) = as_json()["problems"]
    assert problem["code"] == "workspace_repository"
    assert said in problem["message"]
    assert problem["line"] == 4


def test_submodules_that_no_hook_populates_are_warned_of(project: Project) -> None:
    project.write(".gitmodules", '[submodule "lib"]\n\tpath = lib\n\turl = https://example.test/lib\n')
    front(project, GOOD)
    assert "submodules_not_populated" not in codes(as_json()), "it is not committed"
    project.commit("Use a library")
    (problem,) = [one for one in as_json()["problems"] if one["code"] == "submodules_not_populated"]
    assert "hooks.after_create: git submodule update --init --recursive" in problem["hint"]
    front(project, GOOD + "hooks: {after_create: git submodule update --init --recursive}\n")
    assert codes(as_json()) == []


def test_files_in_lfs_without_lfs_are_warned_of(project: Project, tmp_path: Path) -> None:
    front(project, GOOD)
    project.write("assets/.gitattributes", "*.bin filter=lfs diff=lfs merge=lfs -text\n")
    project.commit("Keep large files elsewhere")
    home = tmp_path / "a home"
    home.mkdir()
    alone = {"HOME": str(home), "GIT_CONFIG_NOSYSTEM": "1"}
    assert codes(as_json(**alone)) == ["lfs_not_set_up"]
    (home / ".gitconfig").write_text('[filter "lfs"]\n\tprocess = git-lfs filter-process\n')
    assert codes(as_json(**alone)) == []


@pytest.fixture
def of_another_user(project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every repository is another user's for git, as its own tests have it."""
    assert project.repo.is_dir(), "made before that"
    found = shutil.which("git")
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "git").write_text(f'#!/bin/sh\nGIT_TEST_ASSUME_DIFFERENT_OWNER=1 exec {found} "$@"\n')
    (programs / "git").chmod(0o755)
    asked = subprocess.run([programs / "git", "ls-remote", project.repo], capture_output=True, check=False)
    if asked.returncode == 0:
        pytest.skip("this git clones repositories of other users")
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")


@pytest.mark.usefixtures("of_another_user")
def test_a_repository_of_another_user_gets_the_reason_and_the_advice_of_git(project: Project) -> None:
    front(project, "codex: {command: bash}\nworkspace: {repo: .}\n")
    problem = next(one for one in as_json()["problems"] if one["code"] == "workspace_repository")
    assert "dubious ownership" in problem["message"]
    command = problem["hint"].split("`")[1]
    assert {str(project.repo), str(project.repo / ".git")} <= set(shlex.split(command))
    init = CliRunner().invoke(main, ["init", "-C", str(project.repo)])
    assert init.exit_code == 1
    assert "dubious ownership" in init.stderr
    assert shlex.split(init.stderr.partition("safe.directory ")[2].partition("`")[0]) == [str(project.repo)]


def test_what_lies_around_the_file_is_judged_while_keys_beside_it_are_wrong(project: Project) -> None:
    front(
        project,
        "codex: {command: no-such-program, turn_timeout_ms: soon}\n"
        "workspace: {repo: ./no-such-folder, base_branch: 7}\npolling: {interval_ms: x}\n",
    )
    assert sorted(codes(as_json())) == [
        "codex_not_found",
        "invalid_workflow_config",
        "invalid_workflow_config",
        "invalid_workflow_config",
        "workspace_repository",
    ]


@pytest.mark.parametrize("wrong", ["codex: {command: 7}", "codex: {command: ' '}", "codex: [x]"])
def test_a_wrong_command_is_not_taken_for_that_of_the_default(project: Project, wrong: str) -> None:
    front(project, f"{wrong}\nworkspace: 7\n")
    assert set(codes(as_json(PATH="/nowhere"))) == {"invalid_workflow_config"}


def test_every_setting_can_be_listed_without_a_file_or_the_documentation(project: Project) -> None:
    head, *lines = check("--keys").stdout.splitlines()
    assert head.split() == ["KEY", "TYPE", "DEFAULT", "RELOAD"]
    assert [line.split()[0] for line in lines] == list(KEYS)
    assert " ".join(lines[0].split()) == "tracker.kind text required live"
    assert not (project.repo / "WORKFLOW.md").exists()
    listed = json.loads(check("--keys", "--json").stdout)
    assert {entry["name"]: entry["default"] for entry in listed} == {
        name: key.default for name, key in KEYS.items()
    }


def test_text_of_the_file_cannot_drive_the_terminal(project: Project) -> None:
    front(project, f'{GOOD}"\\e[31m\\nerror: forged": 1\n')
    done = check()
    assert "\x1b" not in done.stdout
    assert not [line for line in done.stdout.splitlines() if line.startswith("error: forged")]


def test_nothing_is_made(project: Project) -> None:
    front(project, f"{GOOD[:-2]}, root: ./workspaces}}\n")
    before = sorted(project.repo.rglob("*"))
    assert check().exit_code == 0
    assert sorted(project.repo.rglob("*")) == before
    assert not project.workspaces.exists()


@pytest.mark.parametrize("arguments", [("a", "b"), ("a", "--workflow", "a"), ("--nope",)])
def test_a_wrong_command_line_is_a_usage_error(arguments: tuple[str, ...]) -> None:
    assert check(*arguments).exit_code == 2


def test_skills_that_no_session_sees_are_one_warning_with_the_setting(project: Project) -> None:
    for folder in (".claude/skills", ".cursor/skills"):
        project.write(f"{folder}/one/SKILL.md", "---\nname: one\ndescription: d\n---\n")
    front(
        project,
        f"{GOOD}agent:\n  budget: {{max_tokens_per_day: 9}}\n  skills:\n    max_skills_in_prompt: 9\n---\n",
        "x",
    )
    (found,) = [one for one in as_json()["problems"] if one["code"] == "skills_elsewhere"]
    assert (found["severity"], found["line"]) == ("warning", 7)
    assert ".claude/skills (1 skill), .cursor/skills (1 skill)" in found["message"]
    assert found["hint"].endswith("agent.skills.extra_paths: [.claude/skills, .cursor/skills]")


PEERS = Path(__file__).parents[1] / "peers"
OURS = {"no_budget", "codex_not_found", "agent_not_found", "unset_variable"}
"""What is told of this machine, and of every file without a budget."""

COMMONEST: dict[str, list[tuple[str, str, int, str | None]]] = {
    "flat_github": [
        ("error", "invalid_workflow_config", 4, "tracker.provider.repo"),
        ("error", "invalid_workflow_config", 5, "tracker.provider.token"),
    ],
    "file_board": [
        ("error", "unsupported_tracker_kind", 2, "markdown"),
        ("error", "invalid_workflow_config", 2, "tracker.provider.path"),
        ("warning", "unknown_key", 2, None),
        ("warning", "unknown_key", 3, None),
    ],
    "claude_code": [
        ("error", "unsupported_tracker_kind", 2, "markdown"),
        ("error", "invalid_workflow_config", 4, "claude"),
        ("warning", "unknown_key", 5, "claude.command"),
        ("warning", "unknown_key", 6, "agent.max_concurrent_agents"),
        ("warning", "unknown_key", 7, "claude.stall_timeout_ms"),
        ("warning", "unknown_key", 8, "claude"),
        ("warning", "unknown_key", 8, "agent.max_turns"),
    ],
    "github_project": [
        ("error", "unsupported_tracker_kind", 3, "{source: project, project: NUMBER}"),
        ("error", "invalid_workflow_config", 4, "tracker.provider.repo"),
        ("error", "invalid_workflow_config", 5, "tracker.provider.states.project"),
        ("error", "invalid_workflow_config", 6, "tracker.provider.states.field"),
        ("error", "missing_tracker_secret", 2, "GITHUB_TOKEN"),
    ],
    "go": [
        ("error", "template_parse_error", 5, "init --from"),
        ("error", "template_parse_error", 5, "{{ issue.identifier }}"),
        ("error", "template_parse_error", 5, "{% if issue.description %}"),
        ("error", "template_parse_error", 6, "{{ issue.description }}"),
        ("error", "template_parse_error", 6, "{% endif %}"),
        ("warning", "foreign_variable", 3, "$SYMPHONY_ISSUE_IDENTIFIER"),
    ],
}
"""The five commonest files of other programs, with everything that is told of each."""


@pytest.mark.parametrize("peer", COMMONEST)
def test_a_file_of_another_program_is_told_all_that_is_to_change_once(project: Project, peer: str) -> None:
    project.write("WORKFLOW.md", (PEERS / f"{peer}.md").read_text(encoding="utf-8"))
    told = [problem for problem in as_json()["problems"] if problem["code"] not in OURS]
    facts = [(one["severity"], one["code"], one["line"]) for one in told]
    assert sorted(facts) == sorted(expected[:3] for expected in COMMONEST[peer])
    hints = [str(one["hint"]) for one in told]
    for *_, hint in COMMONEST[peer]:
        assert hint is None or any(hint in given for given in hints)


def test_a_setting_that_stands_elsewhere_is_one_problem_in_json_and_in_text(project: Project) -> None:
    states = "  active_states: [open]\n  terminal_states: [closed]\n"
    text = f"---\ntracker:\n  kind: github\n  repo: octo/web\n{states}"
    path = project.write("WORKFLOW.md", f"{text}{BUDGET}codex: {{command: bash}}\n{PROMPT}")
    (problem,) = as_json(GITHUB_TOKEN="x")["problems"]
    assert (problem["code"], problem["line"], problem["severity"]) == ("invalid_workflow_config", 4, "error")
    assert problem["hint"] == "write it as tracker.provider.repo"
    assert check(GITHUB_TOKEN="x").stdout.splitlines() == [
        f"{path}:4: error: tracker.repo is not read [invalid_workflow_config]",
        "  hint: write it as tracker.provider.repo",
        f"{path}: not usable (1 error)",
    ]


@pytest.mark.parametrize(
    "front_matter",
    [
        f"tracker: {{kind: linear, apiKey: {SECRET}, project_slug: x}}",
        f"tracker: github\ngithub: {{token: {SECRET}, repo: a/b}}",
        f"tracker: {{kind: file}}\nagent: {{kind: x}}\napi_token: {SECRET}",
        f"tracker: {{kind: gitlab, private_token: {SECRET}, project: {SECRET}}}",
        "tracker: {kind: file, ghp_0123456789abcdefghij0123456789abcdef: x}",
    ],
)
def test_a_secret_of_another_program_is_never_shown(project: Project, front_matter: str) -> None:
    project.write("WORKFLOW.md", f"---\n{front_matter}\n{PROMPT}")
    for done in (check(), check("--json")):
        assert done.exit_code in {0, 3}
        assert SECRET not in done.stdout + done.stderr
        assert "ghp_0123" not in done.stdout + done.stderr


def test_a_file_of_five_megabytes_is_refused_in_one_line(project: Project) -> None:
    project.write("WORKFLOW.md", "---\ntracker: {kind: markdown}\n---\n" + "x" * 5_000_000)
    (problem,) = as_json()["problems"]
    assert problem["code"] == "workflow_parse_error"
