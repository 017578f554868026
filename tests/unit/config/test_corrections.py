"""A setting at another place, or by another name, gets one message at its line, and is no second problem."""

import copy
import re
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from symphony.agents.registry import SECTIONS
from symphony.config import (
    WarningCode,
    WorkflowError,
    WorkflowFile,
    WorkflowReport,
    corrected,
    find_corrections,
    read_parts,
)
from symphony.config.corrections import Correction
from symphony.daemon.admission import judge
from symphony.domain import Category
from symphony.trackers.registry import TRACKERS

PATH = Path("/repo/WORKFLOW.md")
STATES = "  active_states: [open]\n  terminal_states: [closed]\n"
GITHUB = f"tracker:\n  kind: github\n  provider: {{repo: octo/web, token: $GITHUB_TOKEN}}\n{STATES}"
BOARD = "tracker: {kind: markdown}\n"
SECRET = "correct-horse-battery-staple"
ENVIRONMENT = {"GITHUB_TOKEN": "t", "LINEAR_API_KEY": "t"}
Told = list[tuple[str, int, str]]


def judged(front: str, environment: Mapping[str, str] | None = None) -> WorkflowReport:
    file = WorkflowFile(path=PATH, data=f"---\n{front}---\nDo {{{{ issue.identifier }}}}.\n".encode())
    return judge(file, environment=ENVIRONMENT if environment is None else environment, acknowledged=None)


def line(where: str | None) -> int:
    return int(str(where).rpartition(":")[2])


def errors(report: WorkflowReport) -> Told:
    return [(one.category.value, line(one.where), str(one.hint)) for one in report.failures]


def warnings(report: WorkflowReport) -> Told:
    """Without the advice about budgets."""
    told = [one for one in report.warnings if one.code is not WarningCode.NO_BUDGET]
    return [(one.code.value, line(one.where), str(one.hint)) for one in told]


@pytest.mark.parametrize(
    ("front", "key_line", "target"),
    [
        (f"tracker:\n  kind: github\n  repo: octo/web\n{STATES}", 4, "tracker.provider.repo"),
        (f"tracker:\n  kind: github\n  project: octo/web\n{STATES}", 4, "tracker.provider.repo"),
        (f"tracker:\n  kind: github\n  config:\n    repo: octo/web\n{STATES}", 4, "tracker.provider"),
        (f"tracker:\n  kind: github\n  github:\n    repo: octo/web\n{STATES}", 4, "tracker.provider"),
        (f"github:\n  repo: octo/web\ntracker:\n  kind: github\n{STATES}", 2, "tracker.provider"),
        (
            f"tracker:\n  kind: github\n  provider:\n    repository: octo/web\n{STATES}",
            5,
            "tracker.provider.repo",
        ),
        (f"tracker:\n  kind: github\n  owner: octo\n  repo_name: web\n{STATES}", 4, "tracker.provider.repo"),
        (
            f"tracker:\n  kind: github\n  provider: {{org: octo, repo: web}}\n{STATES}",
            4,
            "tracker.provider.repo",
        ),
        (f"tracker:\n  type: github\n  provider: {{repo: octo/web}}\n{STATES}", 3, "tracker.kind"),
        (f"tracker:\n  kidn: github\n  provider: {{repo: octo/web}}\n{STATES}", 3, "kind"),
        ("tracker: markdown\n", 2, "tracker.kind"),
        ("Tracker: {kind: markdown}\n", 2, "tracker"),
        ("tracker: {KIND: markdown}\n", 2, "tracker.kind"),
        ("\uff54\uff52\uff41\uff43\uff4b\uff45\uff52: {kind: markdown}\n", 2, "tracker"),
        ("issue_tracker: {type: markdown}\n", 2, "tracker.kind"),
        (f"{BOARD}agents:\n  - {{name: fast, kind: codex}}\n", 3, "agents: {"),
        (f"{BOARD}agents:\n  stall_timeout_ms: 5\nagent: {{max_turns: 0}}\n", 5, "`symphony check"),
        ("tracker: {kind: file}\n", 2, "markdown"),
        ("tracker: {kind: local}\n", 2, "markdown"),
        (f"{BOARD}agent: {{kind: claude-code}}\n", 3, "claude"),
        (f"{BOARD}agent: {{kind: opencode}}\n", 3, "acp.profile: opencode"),
        (f"{BOARD}agents: {{a: {{kind: gemini-cli}}}}\nagent: {{kind: a}}\n", 3, "agents.a.profile: gemini"),
        (f"{BOARD}codex: {{turn_sandbox_policy: workspace-write}}\n", 3, "{type: workspaceWrite}"),
    ],
)
def test_what_a_file_needs_and_has_elsewhere_is_one_error_at_its_line(
    front: str, key_line: int, target: str
) -> None:
    (error,) = errors(judged(front))
    assert error[1] == key_line
    assert target in error[2]


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("agent: {stall_timeout_ms: 5}", "codex.stall_timeout_ms"),
        ("agent: {kind: claude, stall_timeout_ms: 5}", "claude.stall_timeout_ms"),
        ("agent: {kind: claude, command: claude --x}", "claude.command"),
        ("agent: {model: gpt}", "codex.model"),
        ("agent: {concurrency: 3}", "agent.max_concurrent_agents"),
        ("agent: {max_tokens_per_issue: 3}", "agent.budget.max_tokens_per_issue"),
        ("agents: {stall_timeout_ms: 5}", "codex.stall_timeout_ms"),
        ("server: {bind: 0.0.0.0}", "server.host"),
        ("server: {bindAddress: 0.0.0.0}", "server.host"),
        ("limits: {max_turns: 3}", "agent.max_turns"),
        ("max_turns: 3", "agent.max_turns"),
        ("claude-code: {model: x}", "claude"),
        ("poll_interval_seconds: 30", "polling.interval_ms, in milliseconds"),
        ("polling: {interval: 30s}", "polling.interval_ms, in milliseconds"),
        ("tracker_labels: x", "None"),
        ("hooks: {timeout: 60}", "hooks.timeout_ms, in milliseconds"),
        ("hooks: {afterCreate: make}", "hooks.after_create"),
        ("workspace: {default_branch: main}", "workspace.base_branch"),
        ("codex: {reasoning_effort: high}", "codex.effort"),
        ("retention: {maxRuns: 3}", "retention.max_runs"),
        ("agent: {library: {holdout: 0.1}}", "symphony library evaluate"),
        ("agent: {max_turns: 3, maxTurns: 4}", "leave it out: agent.max_turns is set already"),
    ],
)
def test_what_a_file_can_do_without_is_one_warning(text: str, target: str) -> None:
    report = judged(f"{BOARD}{text}\n")
    assert report.workflow is not None
    (warning,) = warnings(report)
    assert warning[:2] == ("unknown_key", 3)
    assert target in warning[2]


@pytest.mark.parametrize(
    ("text", "never"),
    [
        ("inactive_states: [x]", "active_states"),
        ("exclude_labels: [x]", "required_labels"),
        ("excludeLabels: [x]", "required_labels"),
        ("query: x", "provider"),
    ],
)
def test_a_setting_without_a_counterpart_is_not_led_to_its_opposite(text: str, never: str) -> None:
    ((code, _, hint),) = warnings(judged(f"tracker:\n  kind: markdown\n  {text}\n"))
    assert code == "unknown_key"
    assert never not in hint


@pytest.mark.parametrize("text", ["policy: {a: 1}", "wiki: {root: x, path: y}", "qa: {command: x, env: {}}"])
def test_a_section_of_something_else_is_one_warning_without_a_setting(text: str) -> None:
    ((code, at, hint),) = warnings(judged(f"{BOARD}{text}\n"))
    assert (code, at) == ("unknown_key", 3)
    assert "write it as" not in hint
    assert "did you mean" not in hint


def test_all_of_a_file_is_told_in_one_pass_and_what_follows_is_not() -> None:
    front = (
        "tracker:\n  type: github_projects\n  owner: octo\n  repo_name: web\n  project_number: 5\n"
        "  token: ${GITHUB_TOKEN}\n  active_states: [Todo]\n  terminal_states: [Done]\n"
        "agent:\n  kind: claude-code\n  max_turns: 0\n"
    )
    report = judged(front)
    assert [(code, at) for code, at, _ in errors(report)] == [
        ("missing_tracker_kind", 3),
        ("invalid_workflow_config", 4),
        ("invalid_workflow_config", 6),
        ("invalid_workflow_config", 7),
        ("invalid_workflow_config", 11),
        ("invalid_workflow_config", 12),
    ]
    assert not warnings(report)


def test_a_file_that_takes_all_advice_is_accepted() -> None:
    better = (
        "tracker:\n  kind: github\n  provider:\n    repo: octo/web\n    token: $GITHUB_TOKEN\n"
        "    states: {source: project, project: 5}\n  active_states: [Todo]\n  terminal_states: [Done]\n"
        "agent:\n  kind: claude\n  max_turns: 1\n"
    )
    report = judged(better)
    assert report.workflow is not None
    assert not warnings(report)


def test_a_required_setting_that_stands_nowhere_is_still_told() -> None:
    ((code, at, _),) = errors(judged(f"tracker:\n  kind: github\n{STATES}"))
    assert (code, at) == ("invalid_tracker_config", 2)


def test_what_stands_in_two_places_is_brought_together_and_what_is_ours_wins() -> None:
    text = (
        "---\ntracker: {kind: markdown}\nagent: {kind: claude-code, command: one}\n"
        "claude: {model: ours}\nclaude-code: {model: theirs, effort: high, command: two}\n---\n"
    )
    front, _ = read_parts(WorkflowFile(path=PATH, data=text.encode()))
    found = find_corrections(
        front, tracker_kinds=TRACKERS.names, agent_kinds=SECTIONS, provider_keys=lambda _: ()
    )
    assert corrected(front, found).value["claude"] == {"model": "ours", "command": "one", "effort": "high"}


def test_the_flat_keys_of_linear_are_read_where_they_stand() -> None:
    report = judged("tracker:\n  kind: linear\n  api_key: $LINEAR_API_KEY\n  project_slug: web\n")
    assert report.workflow is not None
    assert not warnings(report)
    assert report.workflow.settings.tracker.provider["project_slug"] == "web"


def test_the_wrong_value_of_a_key_that_is_ignored_hides_nothing_and_is_not_told() -> None:
    front = "tracker:\n  kind: markdown\n  provider: {path: 3}\n  done_states: [[7]]\nagent: {command: 7}\n"
    report = judged(front)
    assert [(code, at) for code, at, _ in errors(report)] == [("invalid_tracker_config", 4)]
    assert [(code, at) for code, at, _ in warnings(report)] == [("unknown_key", 5), ("unknown_key", 6)]


# --- references ------------------------------------------------------------------------------------------

FORMS = [
    *(
        "${KEY}",
        "env:KEY",
        "ENV:KEY",
        "$env:KEY",
        "${env:KEY}",
        "%KEY%",
        "${{ secrets.KEY }}",
        "${{ env.KEY }}",
    ),
    *("{{ env.KEY }}", "{{ .Env.KEY }}", "env.KEY", "process.env.KEY", "os.environ/KEY", 'os.environ["KEY"]'),
    *("env(KEY)", "${KEY:-none}", "${KEY:?missing}"),
]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("is_set", [True, False])
def test_a_reference_of_another_program_is_told_with_ours_and_is_no_secret(
    form: str, *, is_set: bool
) -> None:
    front = f"tracker:\n  kind: linear\n  provider:\n    project_slug: web\n    api_key: '{form}'\n"
    report = judged(front, {"KEY": "x"} if is_set else {})
    ((code, at, hint),) = errors(report)
    assert (code, at) == ("invalid_workflow_config", 6)
    assert hint.startswith("write it as $KEY")
    assert ("set KEY where" in hint) is not is_set
    assert not warnings(report)


@pytest.mark.parametrize("value", ["LINEAR_API_KEY", "op://vault/linear/key", "$(cat key)", "file:/run/key"])
def test_a_bare_name_or_another_place_of_a_secret_is_no_secret(value: str) -> None:
    front = f"tracker:\n  kind: linear\n  provider: {{project_slug: web, api_key: '{value}'}}\n"
    ((code, at, hint),) = errors(judged(front))
    assert (code, at) == ("invalid_workflow_config", 4)
    assert "write it as $" in hint


@pytest.mark.parametrize("value", ["lin_api_0123456789abcdef", "$LINEAR_API_KEY", "abc$DEF", "{x}", "50%"])
def test_a_secret_and_our_own_reference_are_taken(value: str) -> None:
    front = f"tracker:\n  kind: linear\n  provider: {{project_slug: web, api_key: '{value}'}}\n"
    assert judged(front).workflow is not None


def test_scripts_and_what_an_agent_gets_unchanged_hold_no_references() -> None:
    front = (
        f"{BOARD}hooks: {{before_run: '${{HOME}}'}}\ncodex:\n  command: '${{CODEX}}'\n"
        "  turn_sandbox_policy: {type: workspaceWrite, x: '${X}'}\n"
    )
    assert not warnings(judged(front))


@pytest.mark.parametrize("key", ["apiKey", "token", "api_token", "githubToken"])
def test_a_secret_that_stands_elsewhere_is_never_told(key: str) -> None:
    report = judged(f"tracker:\n  kind: github\n  repo: octo/web\n  {key}: {SECRET}\n{STATES}", {})
    assert SECRET not in repr((report.failures, report.warnings))
    assert {code for code, _, _ in errors(report)} == {"invalid_workflow_config"}


def test_the_variable_of_a_key_that_stands_elsewhere_stays_a_secret() -> None:
    front = GITHUB.replace("$GITHUB_TOKEN", "$GITHUB_TOKEN, api_key: $MY_TOKEN")
    workflow = judged(front).workflow
    assert workflow is not None
    assert workflow.secret_names == {"GITHUB_TOKEN", "MY_TOKEN"}


# --- values ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("agent: {max_turns: 10.0}", "decimal point"),
        ("agent: {max_turns: 10.5}", "digits only"),
        ("agent: {budget: {max_tokens_per_issue: 5_000_000}}", "separators"),
        ("agent: {budget: {max_tokens_per_issue: '5,000,000'}}", "separators"),
        ("retention: {max_runs: '5'}", "without quotes"),
        ("retention: {max_runs: 5d}", "unit"),
        ("polling: {interval_ms: 30s}", "30000"),
        ("hooks: {before_run: [make, make test]}", "several commands"),
        ("agent: {skills: {include: 'a, b'}}", "brackets"),
        ("agent: {skills: {enabled: 'yes'}}", "true or false"),
    ],
)
def test_a_value_that_is_nearly_right_has_words_of_its_own(text: str, words: str) -> None:
    ((code, at, hint),) = errors(judged(f"{BOARD}{text}\n"))
    assert (code, at) == ("invalid_workflow_config", 3)
    assert words in hint


# --- scripts and sandboxes -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "hints"),
    [
        ("echo ${SORTIE_ISSUE_IDENTIFIER}", ["write $SYMPHONY_ISSUE_IDENTIFIER"]),
        ("cd $DETENT_WORKSPACE_PATH", ["write $SYMPHONY_WORKSPACE"]),
        ("echo ${ISSUE_ID:-x}", ["write $SYMPHONY_ISSUE_ID"]),
        ("cd $SYMPHONY_WORKFLOW_DIR", ["hooks get SYMPHONY_ISSUE_ID"]),
        ("echo $SORTIE_PROJECT", ["hooks get SYMPHONY_ISSUE_ID"]),
        ("echo $SYMPHONY_ISSUE_ID $SYMPHONY_WORKSPACE $HOME $PATH $1 $$ $?", []),
        ("ISSUE_ID=7; echo $ISSUE_ID", []),
        ("for ATTEMPT in 1 2; do echo $ATTEMPT; done", []),
        ("echo \\$SORTIE_ISSUE_ID", []),
        ("echo $GIVEN_ISSUE_ID", []),
    ],
)
def test_a_script_with_another_programs_variables_is_told_ours(script: str, hints: list[str]) -> None:
    environment = {"GIVEN_ISSUE_ID": "7"}
    report = judged(f"{BOARD}hooks:\n  before_run: |\n    {script}\n", environment)
    found = [hint for code, at, hint in warnings(report) if (code, at) == ("foreign_variable", 4)]
    assert len(found) == len(hints)
    assert all(hint.startswith(start) for hint, start in zip(found, hints, strict=True))


@pytest.mark.parametrize(
    ("text", "is_refused"),
    [
        ("thread_sandbox: workspaceWrite", True),
        ("thread_sandbox: full", True),
        ("thread_sandbox: read-only", False),
        ("thread_sandbox: workspace-write", False),
        ("turn_sandbox_policy: {type: workspace-write}", True),
        ("turn_sandbox_policy: {mode: workspaceWrite}", True),
        ("turn_sandbox_policy: {type: readOnly}", False),
    ],
)
def test_sandboxes_that_codex_refuses_are_told(text: str, *, is_refused: bool) -> None:
    report = judged(f"{BOARD}codex:\n  {text}\n")
    assert report.workflow is not None
    assert [code for code, _, _ in warnings(report)] == (["doubtful_setting"] if is_refused else [])


# --- bad input -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "".join(f"unknown_{index}: 1\n" for index in range(1_000)),
        "agent:\n" + "".join(f"  max_turn_{index}: 1\n" for index in range(1_000)),
        "".join(f"s{index}: {{max_turns: 1}}\n" for index in range(900)),
        "tracker2:\n" + "".join(f"  k{index}: '${{A}}'\n" for index in range(1_000)),
    ],
)
def test_a_thousand_unknown_keys_are_told_in_a_hundred_lines_and_soon(text: str) -> None:
    start = time.thread_time()
    report = judged(f"{BOARD}{text}")
    assert time.thread_time() - start < 20
    assert report.workflow is not None
    unknown = [one for one in report.warnings if one.code is WarningCode.UNKNOWN_KEY]
    assert len(unknown) <= 101
    assert len(unknown) == 1 or re.search("[89]00 more", unknown[-1].message)


def test_keys_in_other_scripts_are_told_and_break_nothing() -> None:
    report = judged(f"{BOARD}трекер: {{kind: github}}\n语言: 中文\n'🙂': 1\nאב: [1]\n")
    assert [(code, at) for code, at, _ in warnings(report)] == [("unknown_key", at) for at in (3, 4, 5, 6)]


@pytest.mark.parametrize("value", ["", "null", "[]", "[[1]]", "7", "{a: {b: {c: 1}}}", "'\\0'", "true"])
@pytest.mark.parametrize(
    "key", ["tracker", "agent", "agents", "codex", "github", "hooks", "polling", "claude-code", "owner"]
)
def test_values_of_any_type_break_nothing(key: str, value: str) -> None:
    kind = "" if key == "tracker" else "tracker: {kind: github, owner: [1], repo_name: {a: 1}, type: [x]}\n"
    report = judged(f"{kind}{key}: {value}\n")
    assert all(one.category in Category for one in report.failures)


def test_the_front_matter_that_was_read_is_left_as_it_is() -> None:
    text = "---\ntracker: {type: file, board_root: x}\nclaude-code: {model: x}\n---\n"
    front, _ = read_parts(WorkflowFile(path=PATH, data=text.encode()))
    before = copy.deepcopy(dict(front.value))
    keys = {"markdown": ("path",)}
    found = find_corrections(
        front,
        tracker_kinds=TRACKERS.names,
        agent_kinds=SECTIONS,
        provider_keys=lambda kind: keys.get(kind, ()),
    )
    better = corrected(front, found)
    assert front.value == before
    assert better.value == {
        "tracker": {"kind": "markdown", "provider": {"path": "x"}},
        "claude": {"model": "x"},
    }
    assert better.source_map.line(("tracker", "provider", "path")) == 2


MISPLACED = """\
tracker:
  kind: github
  provider:
    repo: octo/web
    active_states: [open]
  terminal_states: [closed]
"""


@pytest.mark.parametrize(
    ("front", "target"),
    [
        (f"{BOARD}agent: codex\n", "agent.kind"),
        (f"{BOARD}agent: {{kind: gemini}}\nacp: {{profile: gemini}}\n", "acp"),
        (f"{BOARD}polling: {{interval: 30000}}\n", "polling.interval_ms"),
        (MISPLACED, "tracker.active_states"),
        (f"{BOARD}agent: {{drain_timeout: 5000}}\n", "agent.drain_timeout_ms"),
    ],
)
def test_what_is_called_otherwise_is_told_where_it_belongs(front: str, target: str) -> None:
    report = judged(front)
    assert any(target in hint for *_, hint in (*errors(report), *warnings(report)))


def test_a_duration_that_is_no_number_is_not_moved() -> None:
    assert not any(
        "interval_ms: " in hint for *_, hint in warnings(judged(f"{BOARD}polling: {{interval_s: [1]}}\n"))
    )


def test_a_correction_that_does_not_fit_changes_nothing_else() -> None:
    front, _ = read_parts(WorkflowFile(path=PATH, data=b"---\ntracker: x\nagents: [{kind: a}]\n---\n"))
    one = Correction(
        at=("gone", "deeper"),
        hint="",
        moves=((("tracker", "provider", "repo"), "o/r"), (("agents", 0), {"kind": "b"})),
    )
    assert corrected(front, [one]).value == {"tracker": "x", "agents": [{"kind": "b"}]}


def test_a_front_matter_that_is_no_yaml_is_refused_with_its_line() -> None:
    with pytest.raises(WorkflowError) as caught:
        read_parts(WorkflowFile(path=PATH, data=b"---\na: [\n---\nx\n"))
    assert str(caught.value.failures[0].where).startswith(f"{PATH}:")
