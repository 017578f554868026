"""`symphony init --from`: files of the reference and of other programs become ours."""

from pathlib import Path

import pytest
import yaml

from symphony.cli.migration import Migration, migrate
from symphony.config import WarningCode, WorkflowFile, WorkflowReport
from symphony.daemon.admission import judge

TARGET = Path("/repo/WORKFLOW.md")
SECRETS = (
    "lin_api_0123456789abcdefghijklmnop",
    "ghp_0123456789abcdefghij0123456789abcdef",
    "correct-horse-battery",
)
ENVIRONMENT = {"HOME": "/home/ann"}
PROMPT = "---\nDo {{ issue.identifier }}.\n"


def migrated(text: str, name: str = "PEER.md") -> Migration:
    file = WorkflowFile(path=TARGET.with_name(name), data=text.encode())
    return migrate(file, target=TARGET, environment=ENVIRONMENT)


def settings(text: str) -> dict[str, object]:
    found = yaml.safe_load(text.split("---\n")[1])
    assert isinstance(found, dict)
    return found


def judged(text: str) -> WorkflowReport:
    """The result with every variable that it refers to."""
    variables = dict.fromkeys(("GITHUB_TOKEN", "LINEAR_API_KEY", "GITLAB_PAT", "JIRA_API_TOKEN"), "x" * 20)
    variables |= {"JIRA_EMAIL": "ann@example.test", "TRACKER_PAT": "x", "KEY": "x"}
    return judge(
        WorkflowFile(path=TARGET, data=text.encode()),
        environment={**ENVIRONMENT, **variables},
        acknowledged=None,
    )


PEERS = Path(__file__).with_name("peers")
"""A file for each way in which other programs write what we write."""

REFERENCE = (PEERS / "reference.md").read_text(encoding="utf-8")
SHAPES = {path.stem: path.read_text(encoding="utf-8") for path in sorted(PEERS.glob("*.md"))}
del SHAPES["reference"]
NOT_COMPLETE = "own_section"  # GitHub has no default states, and the file names none


@pytest.mark.parametrize("shape", SHAPES)
def test_a_file_of_another_program_becomes_one_that_a_start_accepts(shape: str) -> None:
    done = migrated(SHAPES[shape])
    assert done.changes
    assert not done.decisions or shape == NOT_COMPLETE
    report = judged(done.text)
    assert [one.message for one in report.failures if shape != NOT_COMPLETE] == []
    told = {one.code for one in report.warnings}
    assert told <= {WarningCode.NO_BUDGET, WarningCode.UNSET_VARIABLE, WarningCode.UNGUARDED}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_result_converts_to_itself(shape: str) -> None:
    once = migrated(SHAPES[shape])
    again = migrated(once.text, "WORKFLOW.md")
    assert again.text == once.text
    assert not again.changes
    assert not again.left_out
    assert migrated(SHAPES[shape]) == once


def test_a_file_of_the_reference_is_copied_as_it_is() -> None:
    done = migrated(REFERENCE)
    assert done.text == REFERENCE
    assert (done.changes, done.left_out, done.decisions) == ((), (), ())


def test_settings_are_where_we_read_them() -> None:
    done = settings(migrated(SHAPES["owner_and_name"]).text)
    assert done["tracker"] == {
        "kind": "github",
        "active_states": ["open"],
        "terminal_states": ["closed"],
        "provider": {"repo": "octo/web", "token": "$GITHUB_TOKEN"},
    }
    values = settings(migrated(SHAPES["values"]).text)
    assert values["agent"] == {"max_turns": 10, "budget": {"max_tokens_per_issue": 5_000_000}}
    assert values["polling"] == {"interval_ms": 30_000}
    assert values["hooks"] == {"before_run": "make\nmake test\n", "timeout_ms": 60_000}
    board = settings(migrated(SHAPES["github_project"]).text)["tracker"]
    assert isinstance(board, dict)
    states = {"source": "project", "project": 5, "field": "Stage"}
    assert board["provider"] == {"repo": "octo/web", "states": states}
    claude = settings(migrated(SHAPES["claude_code"]).text)["claude"]
    wanted = {"command": "claude", "stall_timeout_ms": 300_000, "permission_mode": "acceptEdits"}
    assert claude == wanted
    agents = settings(migrated(SHAPES["agents_as_list"]).text)["agents"]
    assert agents == {"fast": {"kind": "claude", "model": "haiku"}}


def test_scripts_get_our_variables_and_prompts_our_language() -> None:
    text = migrated(SHAPES["go"]).text
    assert "git checkout -B $SYMPHONY_ISSUE_IDENTIFIER" in text
    assert "{% if issue.description %}" in text
    assert "{{issue.identifier}}" in migrated(SHAPES["handlebars"]).text


def test_what_has_no_counterpart_is_left_out_with_its_line_and_said_in_the_file() -> None:
    done = migrated(
        "---\ntracker:\n  kind: markdown\n  exclude_labels: [x]\nwiki: {root: x}\n"
        f"agent:\n  teapot: 1\n{PROMPT}"
    )
    assert [one.partition(": ")[0] for one in done.left_out] == ["line 4", "line 5", "line 7"]
    assert done.text.count("# left out:") == 3
    assert "teapot: 1" not in done.text
    assert settings(done.text) == {"tracker": {"kind": "markdown"}}


@pytest.mark.parametrize(
    ("text", "key"),
    [
        (f"---\ntracker: {{kind: trello}}\n{PROMPT}", "tracker.kind"),
        (f"---\nagent: {{max_turns: 3}}\n{PROMPT}", "tracker.kind"),
        ("Do {{ issue.identifier }}.\n", "tracker.kind"),
        (
            f"---\ntracker:\n  kind: github\n  active_states: [open]\n  terminal_states: [closed]\n{PROMPT}",
            "repo",
        ),
        ("---\ntracker: {kind: markdown}\n---\n{{ teapot }}\n", "teapot"),
        (f"---\ntracker: {{kind: file}}\nagent: {{max_turns: many}}\n{PROMPT}", "agent.max_turns"),
    ],
)
def test_what_a_person_has_to_decide_is_said_in_the_file(text: str, key: str) -> None:
    done = migrated(text)
    assert len(done.decisions) == 1
    assert key in done.decisions[0]
    assert len(judged(done.text).failures) == 1
    if done.text != text:
        assert "# to decide:" in done.text


@pytest.mark.parametrize(
    "text",
    [
        f"---\ntracker: {{kind: linear, project_slug: x, api_key: {SECRETS[0]}}}\n{PROMPT}",
        f"---\ntracker: {{kind: linear, project_slug: x, apiKey: {SECRETS[2]}}}\n{PROMPT}",
        f"---\ntracker: github\ngithub: {{repo: a/b, token: {SECRETS[1]}}}\n{PROMPT}",
        f"---\ntracker: {{kind: local}}\nnotify: [{{name: a, kind: slack, url: 'https://u:{SECRETS[2]}@h.test/x'}}]\n{PROMPT}",
        f"---\ntracker: {{kind: local}}\nwiki: {{token: {SECRETS[1]}, x: [{SECRETS[0]}]}}\n{PROMPT}",
        f"---\ntracker: {{kind: local}}\nhooks: {{before_run: 'git clone https://x:{SECRETS[1]}@github.com/a/b'}}\n{PROMPT}",
        f"---\ntracker: {{kind: local}}\nworkspace: {{repo_url: 'https://x:{SECRETS[2]}@github.com/a/b'}}\n{PROMPT}",
        f"---\ntracker: {{kind: local}}\n---\nUse {SECRETS[1]} for {{{{ identifier }}}}.\n",
        f"---\ntracker: {{kind: {SECRETS[1]}}}\n{PROMPT}",
        f"---\ntracker: {{kind: local, {SECRETS[1]}: x}}\n{PROMPT}",
        f"---\napi_token: {SECRETS[2]}\ntracker: {{kind: gitlab, project: a/b}}\n{PROMPT}",
        f"---\ntracker: {{kind: linear, api_key: {SECRETS[2]}, project_slug: '{SECRETS[2]}'}}\n{PROMPT}",
    ],
)
def test_a_secret_is_neither_written_nor_told(text: str) -> None:
    done = migrated(text)
    for secret in SECRETS:
        assert secret not in repr(done)


def test_a_literal_secret_becomes_the_variable_that_the_tracker_reads() -> None:
    done = migrated(f"---\ntracker: {{kind: linear, project_slug: x, api_key: {SECRETS[0]}}}\n{PROMPT}")
    assert done.variables == ("LINEAR_API_KEY",)
    assert judged(done.text).workflow is not None


def test_a_file_of_settings_alone_is_read_too() -> None:
    done = migrated("tracker:\n  kind: file\nagent: {kind: codex-cli}\n", "config.yaml")
    assert settings(done.text) == {"tracker": {"kind": "markdown"}, "agent": {"kind": "codex"}}
    assert judged(done.text).workflow is not None


@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("bom", ["", "\ufeff"])
def test_line_ends_and_a_byte_order_mark_change_nothing(bom: str, ending: str) -> None:
    text = bom + SHAPES["flat_github"].replace("\n", ending)
    assert settings(migrated(text).text) == settings(migrated(SHAPES["flat_github"]).text)
