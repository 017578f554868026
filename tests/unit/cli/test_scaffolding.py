"""`symphony init` for every tracker and every agent: what it writes is what `symphony check` wants."""

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from harness.nightly import NIGHTLY
from symphony.cli.main import main
from symphony.cli.scaffolding import AGENTS, TRACKERS, parse_remote
from symphony.daemon.admission import USUAL_TOOLS
from symphony.trackers.registry import TRACKERS as KINDS
from symphony.trackers.registry import tracker_kind

AGENT_OPTIONS: Mapping[str, Sequence[str]] = {
    "codex": ("--agent", "codex"),
    "claude": ("--agent", "claude"),
    "acp, gemini": ("--acp", "gemini"),
    "acp, opencode": ("--agent", "acp", "--acp", "opencode"),
    "acp, codex-acp": ("--acp", "codex-acp"),
    "acp, generic": ("--agent", "acp", "--command", "my-agent --acp"),
    "command": ("--command", "my-agent --task {prompt_file}"),
}
PAIRS = [
    (tracker, agent)
    for tracker in TRACKERS
    for agent in AGENT_OPTIONS
    if NIGHTLY or tracker == "markdown" or agent in {"codex", "command"}
]
PROGRAMS = ("codex", "claude", "gemini", "opencode", "codex-acp", "my-agent", "bwrap")


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A git repository that is the current directory; every program there could be is on PATH."""
    monkeypatch.setenv("SYMPHONY_STATE_DIR", str(tmp_path / "state"))
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in PROGRAMS:
        (programs / name).write_text("#!/bin/sh\n")
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    for template in TRACKERS.values():
        for variable in template.variables:
            monkeypatch.delenv(variable.name, raising=False)
    path = tmp_path / "repo"
    path.mkdir()
    monkeypatch.chdir(path)
    git("init", "--quiet", "--initial-branch=main")
    git("config", "user.name", "Tester")
    git("config", "user.email", "tester@localhost")
    return path


def git(*arguments: str) -> None:
    subprocess.run(["git", *arguments], check=True, capture_output=True)


def init(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["init", *arguments])


def values(tracker: str) -> list[str]:
    """The options with values that the tracker has to be told."""
    needed = [value for value in TRACKERS[tracker].settings if value.default is None]
    return [part for value in needed for part in (f"--{value.option}", value.example)]


def checked(tracker: str, **more: str) -> dict[str, Any]:
    variables = {variable.name: variable.placeholder for variable in TRACKERS[tracker].variables}
    done = CliRunner().invoke(main, ["check", "--json"], env={**variables, **more})
    report = json.loads(done.stdout)
    assert isinstance(report, dict)
    return report


def settings(tracker: str) -> dict[str, Any]:
    report = checked(tracker)
    assert report["problems"] == []
    found = report["settings"]
    assert isinstance(found, dict)
    return found


def test_every_tracker_and_agent_for_people_is_known() -> None:
    assert set(TRACKERS) == set(KINDS.names) - {"memory"}
    assert {option.partition(",")[0] for option in AGENT_OPTIONS} == set(AGENTS)


@pytest.mark.parametrize(("tracker", "agent"), PAIRS)
def test_check_finds_nothing_wrong_or_odd_with_what_is_written(repo: Path, tracker: str, agent: str) -> None:
    done = init("--tracker", tracker, *values(tracker), *AGENT_OPTIONS[agent])
    assert done.exit_code == 0, done.stderr
    git("add", "--all")
    git("commit", "--quiet", "-m", "Add Symphony")
    found = settings(tracker)
    assert (found["tracker"]["kind"], found["agent"]["kind"]) == (tracker, agent.partition(",")[0])
    text = (repo / "WORKFLOW.md").read_text()
    prompt = text.partition("\n---\n")[2]
    assert "@" not in text, "every place is filled"
    named = {name for name in USUAL_TOOLS if f"`{name}`" in prompt}
    template = TRACKERS[tracker]
    if agent == "command":
        assert named == set()
        assert found["tracker"]["on_block"] == template.review, "the daemon moves it instead"
    else:
        assert named == {template.move_tool, template.comment_tool} <= set(tracker_kind(tracker).tools)
    assert f"`{template.review}`" in prompt
    assert template.review not in [*found["tracker"]["active_states"], *found["tracker"]["terminal_states"]]


@pytest.mark.parametrize("tracker", [name for name in TRACKERS if name != "markdown"])
def test_no_secret_is_written_and_the_last_lines_say_which_variable_to_set(repo: Path, tracker: str) -> None:
    template = TRACKERS[tracker]
    (first, *_) = template.variables
    done = CliRunner().invoke(
        main, ["init", "--tracker", tracker, *values(tracker)], env={first.name: "correct-horse"}
    )
    text = (repo / "WORKFLOW.md").read_text()
    assert "correct-horse" not in text + done.output
    assert f"export {first.name}=" not in done.stdout, "it is set already"
    (repo / "WORKFLOW.md").unlink()
    again = init("--tracker", tracker, *values(tracker)).stdout
    for variable in template.variables:
        assert f"${variable.name}\n" in text
        assert f"export {variable.name}=" in again
    assert "symphony tracker check" in again
    assert "{" not in again, "what was asked stands in the last lines"
    assert not (repo / ".symphony" / "issues").exists(), "the board is elsewhere"


def test_without_the_variable_check_says_which_is_missing(repo: Path) -> None:
    init("--tracker", "github", "--repo", "octo-team/website")
    git("add", "--all")
    git("commit", "--quiet", "-m", "Add Symphony")
    report = json.loads(CliRunner().invoke(main, ["check", "--json"]).stdout)
    (missing,) = [problem for problem in report["problems"] if problem["severity"] == "error"]
    assert missing["code"] == "missing_tracker_secret"
    assert "GITHUB_TOKEN" in missing["hint"]
    assert report["path"] == str(repo / "WORKFLOW.md")


def test_printing_writes_nothing_and_prints_the_file_alone(repo: Path) -> None:
    arguments = ("--tracker", "gitlab", "--repo", "platform/website")
    printed = init(*arguments, "--print")
    assert printed.exit_code == 0
    assert list(repo.iterdir()) == [repo / ".git"]
    init(*arguments)
    assert (repo / "WORKFLOW.md").read_text() == printed.stdout
    assert init("--tracker", "asana", "--project", "7", "--print").stdout.startswith("---\n"), (
        "also beside one"
    )


def test_options_beside_a_file_that_is_there_change_nothing_and_say_so(repo: Path) -> None:
    init()
    before = (repo / "WORKFLOW.md").read_bytes()
    done = init("--tracker", "github", "--repo", "octo-team/website")
    assert done.exit_code == 0
    assert "--print" in done.stdout
    assert (repo / "WORKFLOW.md").read_bytes() == before


def test_beside_a_file_for_another_tracker_no_board_is_begun(repo: Path) -> None:
    init("--tracker", "github", "--repo", "octo-team/website")
    (repo / ".symphony/skills/example/SKILL.md").unlink()
    again = init()
    assert "SKILL.md" not in again.stdout, "a person deleted the example"
    assert not (repo / ".symphony/issues").exists()
    (repo / "WORKFLOW.md").write_text("no front matter")
    assert "created  .symphony/issues/SYM-1.md" in init().stdout


# --- what is missing or does not fit ---


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        (("--tracker", "linear"), "--project"),
        (("--tracker", "github"), "--repo"),
        (("--tracker", "forgejo", "--repo", "a/b"), "--url"),
        (("--tracker", "jira", "--url", "https://x.atlassian.net"), "--project"),
        (("--agent", "acp"), "--acp"),
        (("--acp", "generic"), "--command"),
        (("--agent", "command"), "--command"),
        (("--acp", "gemni"), "--acp"),
        (("--command", ""), "--command"),
        (("--tracker", "github", "--repo", ""), "--repo"),
        (("--acp", "gemini", "--agent", "codex"), "--acp"),
        (("--command", "make", "--agent", "claude"), "--command"),
        (("--command", "do {odd}"), "--command"),
        (("--repo", "a/b"), "--repo"),
        (("--tracker", "github", "--repo", "a"), "--repo"),
        (("--tracker", "github", "--project", "a"), "--project"),
        (("--tracker", "github", "--repo", "a/b", "--url", "ftp://x"), "--url"),
        (("--tracker", "github", "--repo", "a/b\nroot: /"), "--repo"),
        (("--tracker", "jira", "--url", "https://x.atlassian.net", "--project", "7"), "--project"),
    ],
)
def test_a_script_is_told_the_option_in_one_line_and_nothing_is_written(
    repo: Path, arguments: Sequence[str], option: str
) -> None:
    done = init(*arguments)
    assert done.exit_code == 2
    error, hint = done.stderr.splitlines()
    assert error.startswith((f"error: {option} ", f"error: {option}:"))
    assert hint.startswith("hint: ")
    assert list(repo.iterdir()) == [repo / ".git"]


@pytest.mark.parametrize("text", ["a: b # c", "@ENDING@ {prompt_file}", 'say "{title}" é'])
def test_a_command_of_any_text_arrives_as_it_is(repo: Path, text: str) -> None:
    assert init("--command", text).exit_code == 0
    assert settings_of_command(repo) == text


def settings_of_command(repo: Path) -> str:
    git("add", "--all")
    git("commit", "--quiet", "-m", "Add Symphony")
    report = json.loads(CliRunner().invoke(main, ["check", "--json"]).stdout)
    assert report["path"] == str(repo / "WORKFLOW.md")
    assert [each["code"] for each in report["problems"]] in ([], ["agent_not_found"]), report["problems"]
    line = next(each for each in (repo / "WORKFLOW.md").read_text().splitlines() if "  command: " in each)
    return str(json.loads(line.partition("command: ")[2]))


# --- the remote `origin` ---


@pytest.mark.parametrize(
    ("url", "site", "path"),
    [
        ("git@github.com:octo-team/website.git", "https://github.com", "octo-team/website"),
        ("https://ann:t0ken@github.com/octo-team/website.git", "https://github.com", "octo-team/website"),
        ("ssh://git@git.example.org:2222/team/app.git/", "https://git.example.org", "team/app"),
        ("http://git.example.org:3000/team/app", "http://git.example.org:3000", "team/app"),
        ("git.example.org:group/sub/app", "https://git.example.org", "group/sub/app"),
    ],
)
def test_a_remote_is_read_without_its_credentials(url: str, site: str, path: str) -> None:
    found = parse_remote(url)
    assert found is not None
    assert (found.site, found.path) == (site, path)


@pytest.mark.parametrize(
    "url", ["", "/srv/git/app.git", "../app", "file:///srv/app.git", "https://[::1", "https://x:y/a/b", "x:y"]
)
def test_what_leads_to_no_forge_says_nothing(url: str) -> None:
    assert parse_remote(url) is None


@pytest.mark.parametrize(
    ("remote", "arguments", "written"),
    [
        ("git@github.com:octo-team/website.git", ("--tracker", "github"), "repo: octo-team/website"),
        ("git@gitlab.com:a/b/c.git", ("--tracker", "gitlab"), "project_path: a/b/c"),
        (
            "https://ann:t0ken@git.example.org/team/app",
            ("--tracker", "forgejo", "--url", "git.example.org"),
            "repo: team/app",
        ),
        (
            "git@ghe.example.org:team/app",
            ("--tracker", "github", "--url", "https://ghe.example.org/"),
            "api_url: https://ghe.example.org/api/v3",
        ),
    ],
)
def test_the_repository_of_origin_is_taken_and_said(
    repo: Path, remote: str, arguments: Sequence[str], written: str
) -> None:
    git("remote", "add", "origin", remote)
    done = init(*arguments)
    assert done.exit_code == 0, done.stderr
    text = (repo / "WORKFLOW.md").read_text()
    assert f"    {written}\n" in text
    assert "found " in done.stderr
    assert "t0ken" not in text + done.output


@pytest.mark.parametrize("remote", ["git@gitlab.com:a/b.git", "/srv/git/app.git"])
def test_the_repository_of_another_forge_is_not_taken(repo: Path, remote: str) -> None:
    git("remote", "add", "origin", remote)
    done = init("--tracker", "github")
    assert done.exit_code == 2
    assert done.stderr.startswith("error: --repo is missing")
    assert not (repo / "WORKFLOW.md").exists()
