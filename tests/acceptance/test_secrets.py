"""Promise: every secret can come from a file, is masked, and reaches no child that does not need it."""

from pathlib import Path

import pytest

from harness.project import Project
from harness.shell import word
from symphony.agents.environment import ALL_CREDENTIALS

DONE = {"tool": "board_move", "arguments": {"state": "Done"}}
KEY, TOKEN, PASSWORD = "correct-horse-battery", "staple-under-the-sea", "seven-pipers-piping"


def _held(place: Path, text: str) -> str:
    place.write_text(f"{text}\n", encoding="utf-8")
    place.chmod(0o400)
    return str(place)


def _seen(path: Path) -> dict[str, str]:
    return dict(line.split("=", 1) for line in path.read_text(encoding="utf-8").splitlines() if "=" in line)


def test_secrets_come_from_files_and_go_where_they_are_needed(project: Project, tmp_path: Path) -> None:
    credentials = tmp_path / "credentials"
    credentials.mkdir(mode=0o700)
    _held(credentials / "OPENAI_API_KEY", KEY)
    by_agent, by_hook = tmp_path / "by_agent", tmp_path / "by_hook"
    project.environment |= {
        "CREDENTIALS_DIRECTORY": str(credentials),
        "LINEAR_API_KEY_FILE": _held(tmp_path / "linear", TOKEN),
        "NPM_PASSWORD_FILE": _held(tmp_path / "npm", PASSWORD),
    }
    project.workflow(hooks={"before_run": f"env > {word(by_hook)}"})
    project.issue(
        "SYM-1",
        [
            {"run": ["sh", "-c", f"env > {word(by_agent)}"]},
            {"say": f"I was told {KEY}, {TOKEN} and {PASSWORD}."},
            {"write": "a", "text": "a"},
            {"commit": "A"},
            DONE,
        ],
    )
    done = project.symphony("run", "--once", "--log-format", "json")
    assert done.returncode == 0, done.stderr
    assert project.state("SYM-1") == "Done"

    agent, hook = _seen(by_agent), _seen(by_hook)
    assert agent["OPENAI_API_KEY"] == KEY, "the agent's own key is the agent's"
    assert not {TOKEN, PASSWORD} & set(agent.values())
    assert not {"LINEAR_API_KEY", "NPM_PASSWORD", "LINEAR_API_KEY_FILE"} & agent.keys()
    assert not {KEY, TOKEN, PASSWORD} & set(hook.values())
    assert hook["NPM_PASSWORD_FILE"] == str(tmp_path / "npm"), "a hook that needs it can read it"

    told = [done.stderr, project.symphony("logs", "SYM-1").stdout, project.symphony("doctor").stdout]
    kept = (path.read_bytes() for path in project.state_dir.rglob("*") if path.is_file())
    for secret in (KEY, TOKEN, PASSWORD):
        assert not [text for text in told if secret in text]
        assert not any(secret.encode() in text for text in kept)


@pytest.mark.conformance("A-14")
def test_a_credential_under_any_of_its_names_reaches_only_what_it_is_passed_on_to(
    project: Project, tmp_path: Path
) -> None:
    """Neither by the daemon nor by a login profile; what the settings name goes before the list in both."""
    by_agent, by_hook = tmp_path / "by agent", tmp_path / "by hook"
    known = sorted(ALL_CREDENTIALS)
    project.environment |= dict.fromkeys(known, "of the daemon")
    exports = "".join(f"export {name}='of the profile'\n" for name in known if name != "CI_JOB_TOKEN")
    home = tmp_path / "home"
    home.mkdir()
    (home / ".profile").write_text(exports, encoding="utf-8")
    project.environment["HOME"] = str(home)
    project.workflow(
        hooks={
            "before_run": f"env > {word(by_hook)}",
            "env": ["GH_TOKEN", "CI_JOB_TOKEN", "MISTRAL_API_KEY"],
        },
        codex={"env": ["GITLAB_TOKEN", "CI_JOB_TOKEN"]},
    )
    project.issue("SYM-1", [{"run": ["sh", "-c", f"env > {word(by_agent)}"]}, DONE])
    done = project.symphony("run", "--once")
    assert done.returncode == 0, done.stderr
    agent, hook = _seen(by_agent), _seen(by_hook)
    own = {"OPENAI_API_KEY", "CODEX_API_KEY"}
    assert agent.keys() & ALL_CREDENTIALS == own | {"GITLAB_TOKEN", "CI_JOB_TOKEN"}
    assert hook.keys() & ALL_CREDENTIALS == {"GH_TOKEN", "CI_JOB_TOKEN", "MISTRAL_API_KEY"}
    assert hook["GH_TOKEN"] == "of the profile"
    assert hook["CI_JOB_TOKEN"] == agent["CI_JOB_TOKEN"] == "of the daemon"


def test_a_file_that_cannot_be_used_stops_the_start_and_nothing_else(
    project: Project, tmp_path: Path
) -> None:
    project.workflow()
    project.environment["LINEAR_API_KEY_FILE"] = str(tmp_path / "gone")
    done = project.symphony("run")
    assert done.returncode == 3
    error, hint = done.stderr.splitlines()
    assert error.startswith(f"error: the file of LINEAR_API_KEY, {tmp_path / 'gone'}, cannot be read")
    assert hint.startswith("hint: ")
    assert project.symphony("issue", "list").returncode == 0, "a command that needs no secret reads none"
    assert project.symphony("health").returncode == 5
