"""What a well-formed file is refused for, and what it is warned of."""

from pathlib import Path

import pytest
from typing_extensions import override

from symphony.agents.base import BackendContext
from symphony.agents.registry import AGENTS, agent_kind, create_backend
from symphony.config import WarningCode, WorkflowError, WorkflowFile, WorkflowReport, WorkflowWarning
from symphony.daemon.admission import ACKNOWLEDGEMENT, admit, judge
from symphony.daemon.context import known_secrets, redaction_for
from symphony.domain import Category
from symphony.processes.local import LocalHost
from symphony.trackers.markdown import BoardConfig, MarkdownTracker

PATH = Path("/repo/WORKFLOW.md")
SECRET = "correct-h0rse-battery"


BUDGET = "agent: {budget: {max_tokens_per_issue: 5000000}}\n"


def file(front: str, body: str = "Do it.\n") -> WorkflowFile:
    """The file with this front matter, and with a budget where nothing is said of agents."""
    budget = "" if "agent:" in front else BUDGET
    data = f"---\n{front}{budget}---\n{body}".encode()
    return WorkflowFile(path=PATH, data=data)


def judged(front: str, *, acknowledged: bool | None = False) -> WorkflowReport:
    return judge(file(front), environment={}, acknowledged=acknowledged)


@pytest.mark.conformance("C-2")
def test_what_the_adapter_refuses_stands_beside_what_the_file_gets_wrong_elsewhere() -> None:
    front = (
        "tracker:\n  kind: markdown\n  provider:\n    path: 3\n    prefix: '-'\n"
        "  active_states: [Todo]\nagent: {max_turns: 0}\n"
    )
    failures = judged(front).failures
    assert [(failure.where, failure.message.split()[0]) for failure in failures] == [
        (f"{PATH}:5", "tracker.provider.path"),
        (f"{PATH}:6", "tracker.provider.prefix"),
        (f"{PATH}:8", "agent.max_turns"),
    ]
    assert all(failure.hint for failure in failures)


def test_a_tracker_section_that_is_wrong_in_itself_is_not_shown_to_the_adapter() -> None:
    (failure,) = judged("tracker: {kind: markdown, provider: {path: 3}, required_labels: x}\n").failures
    assert failure.message == "tracker.required_labels must be a list, not text"


@pytest.mark.conformance("C-7")
@pytest.mark.parametrize(
    ("kind", "key", "hint"),
    [
        ("markdown", "pth", 'did you mean "path"?'),
        ("markdown", "zzz", "markdown knows path, prefix, states, layout"),
        ("memory", "issue", 'did you mean "issues"?'),
    ],
)
def test_a_provider_key_that_nobody_reads_is_told(kind: str, key: str, hint: str) -> None:
    (warning,) = judged(f"tracker:\n  kind: {kind}\n  provider:\n    {key}: x\n").warnings
    assert warning.code is WarningCode.UNKNOWN_KEY
    assert warning.message == f'unknown key "tracker.provider.{key}" is ignored'
    assert (warning.where, warning.hint) == (f"{PATH}:5", hint)


OPEN = "tracker: {kind: markdown}\ncodex:\n  thread_sandbox: danger-full-access\n"


@pytest.mark.conformance("L-4")
def test_an_open_sandbox_needs_an_acknowledgement() -> None:
    (failure,) = judged(OPEN, acknowledged=False).failures
    assert failure.category is Category.INVALID_WORKFLOW_CONFIG
    assert failure.message == "codex.thread_sandbox lets sessions run without a sandbox"
    assert failure.where == f"{PATH}:4"
    assert failure.hint is not None
    assert ACKNOWLEDGEMENT in failure.hint
    with pytest.raises(WorkflowError):
        admit(file(OPEN), environment={}, acknowledged=False)


@pytest.mark.conformance("L-4")
def test_with_the_acknowledgement_it_is_served_without_a_word() -> None:
    workflow = admit(file(OPEN), environment={}, acknowledged=True)
    assert workflow.settings.codex.thread_sandbox == "danger-full-access"
    assert workflow.warnings == ()


def test_where_nothing_is_started_an_open_sandbox_is_odd_and_not_wrong() -> None:
    judgement = judged(OPEN, acknowledged=None)
    assert judgement.failures == ()
    assert [warning.code for warning in judgement.warnings] == [WarningCode.UNGUARDED]


@pytest.mark.parametrize(
    ("agent", "settings"),
    [
        ("kind: codex", ""),
        ("kind: claude", ""),
        ("kind: acp", "acp: {command: gemini --acp}\n"),
        ("kind: codex, budget: {max_turns_per_issue: 9}", ""),
        ("kind: command", "command: {profile: aider, model: m}\n"),
        ("kind: command, budget: {max_tokens_per_day: 9}", "command: {profile: aider, model: m}\n"),
    ],
)
def test_an_agent_that_costs_money_without_a_limit_is_odd(agent: str, settings: str) -> None:
    front = f"tracker: {{kind: markdown}}\nagent: {{{agent}}}\n{settings}"
    warnings = judged(front, acknowledged=True).warnings
    (found,) = [warning for warning in warnings if warning.code is WarningCode.NO_BUDGET]
    assert found.hint is not None
    assert found.where == f"{PATH}:3"


@pytest.mark.parametrize(
    ("agent", "settings"),
    [
        ("kind: codex, budget: {max_tokens_per_issue: 9}", ""),
        ("kind: claude, budget: {max_tokens_per_day: 9}", ""),
        ("kind: command", "command: {command: ./my-script}\n"),
        ("kind: command, budget: {max_turns_per_issue: 9}", "command: {profile: aider, model: m}\n"),
    ],
)
def test_a_limit_or_an_agent_of_ones_own_is_in_order(agent: str, settings: str) -> None:
    front = f"tracker: {{kind: markdown}}\nagent: {{{agent}}}\n{settings}"
    judgement = judged(front, acknowledged=True)
    assert judgement.failures == ()
    assert WarningCode.NO_BUDGET not in {warning.code for warning in judgement.warnings}


def test_a_policy_that_codex_refuses_is_odd_and_passed_on() -> None:
    judgement = judged("tracker: {kind: markdown}\ncodex:\n  approval_policy: on-failure\n")
    assert judgement.workflow is not None
    (warning,) = judgement.warnings
    assert (warning.code, warning.where) == (WarningCode.REFUSED_APPROVAL_POLICY, f"{PATH}:4")


def test_a_codex_section_that_is_wrong_in_itself_is_told_once() -> None:
    (failure,) = judged("tracker: {kind: markdown}\ncodex: 5\n").failures
    assert failure.message == "codex must be a map, not a number"


def test_a_file_that_cannot_be_read_as_text_is_one_failure() -> None:
    broken = WorkflowFile(path=PATH, data=b"---\n\xff\n---\n")
    judgement = judge(broken, environment={}, acknowledged=None)
    assert [failure.category for failure in judgement.failures] == [Category.WORKFLOW_PARSE_ERROR]
    assert judgement.workflow is None
    assert judgement.sections == {}


# --- what is masked ---


class Fallback(MarkdownTracker):
    """A tracker that would fall back to a variable of its own."""

    @override
    def secret_environment_names(self) -> frozenset[str]:
        return frozenset({"BOARD_LOGIN"})


@pytest.mark.conformance("O-7")
def test_the_log_masks_literals_references_and_what_the_tracker_may_fall_back_to() -> None:
    front = f"tracker: {{kind: markdown, provider: {{token: {SECRET}-1, login: $LOGIN}}}}\n"
    environment = {
        "LOGIN": f"{SECRET}-2",
        "BOARD_LOGIN": f"{SECRET}-3",
        "MY_TOKEN": f"{SECRET}-4",
        "X": "plain",
    }
    workflow = admit(file(front), environment=environment, acknowledged=False)
    tracker = Fallback(BoardConfig(path=Path("/board")))
    redaction = redaction_for(workflow, environment, tracker=tracker)
    assert redaction.text(f"{SECRET}-1 {SECRET}-2 {SECRET}-3 {SECRET}-4 plain") == "*** *** *** *** plain"
    own = redaction_for(workflow, environment)
    assert own.text(f"{SECRET}-1 {SECRET}-2 {SECRET}-4") == "*** *** ***"


# --- states to move to, and webhooks ---

BOARD = "tracker:\n  kind: markdown\n  active_states: [Todo, In Progress]\n  terminal_states: [Done]\n"
BUDGET = "agent: {budget: {max_tokens_per_day: 9}}\n"
LINEAR = "tracker:\n  kind: linear\n  provider: {api_key: k, project_slug: p}\n"


@pytest.mark.parametrize("line", ["on_start: in progress", "on_block: Human Review", "on_block: Todo"])
def test_a_state_that_can_be_moved_to_is_taken(line: str) -> None:
    assert judged(f"{BOARD}  {line}\n").failures == ()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("on_start: Human Review", "no active state"),
        ("on_start: Done", "no active state"),
        ("on_block: done", "terminal"),
    ],
)
def test_a_move_that_would_end_what_it_is_for_is_refused_with_its_line(line: str, words: str) -> None:
    (failure,) = judged(f"{BOARD}  {line}\n").failures
    assert words in failure.message
    assert (failure.where, bool(failure.hint)) == (f"{PATH}:6", True)


@pytest.mark.parametrize(
    "line", ["on_feedback: in progress", "on_feedback: Rework", "merged_state: done", "merged_state: Staging"]
)
def test_a_state_for_feedback_or_after_a_merge_is_taken(line: str) -> None:
    assert judged(f"{BOARD}forge:\n  kind: github\n  {line}\n").failures == ()


@pytest.mark.parametrize(
    ("line", "words"),
    [("on_feedback: DONE", "terminal"), ("merged_state: in progress", "begin again")],
)
def test_feedback_never_ends_an_issue_and_a_merge_never_begins_it_again(line: str, words: str) -> None:
    (failure,) = judged(f"{BOARD}forge:\n  kind: github\n  {line}\n").failures
    assert words in failure.message
    assert (failure.where, bool(failure.hint)) == (f"{PATH}:8", True)
    assert judged(f"{BOARD}forge:\n  {line}\n").failures == (), "there is no forge"


@pytest.mark.parametrize("kind", ["markdown", "memory"])
def test_webhooks_of_a_tracker_that_sends_none_are_refused(kind: str) -> None:
    (failure,) = judged(f"tracker:\n  kind: {kind}\n  webhook_secret: $HOOK\n").failures
    assert failure.message == f"tracker.webhook_secret is set, and {kind} sends no webhooks"


@pytest.mark.parametrize("section", ["", "forge:\n  kind: github\n"], ids=["tracker", "forge"])
def test_a_webhook_secret_that_is_not_set_is_a_missing_secret(section: str) -> None:
    front = f"{LINEAR}{section}  webhook_secret: $HOOK\n"
    (failure,) = judged(front).failures
    assert failure.category is Category.MISSING_TRACKER_SECRET
    assert failure.hint == "set HOOK where the daemon starts"
    assert judge(file(front), environment={"HOOK": SECRET}, acknowledged=False).workflow


@pytest.mark.parametrize("section", ["", "forge:\n  kind: github\n"], ids=["tracker", "forge"])
@pytest.mark.parametrize(
    ("secret", "short"),
    [("whsec_", True), ("0123456789abcde", True), ("0123456789abcdef", False), ("whsec_" + "A" * 44, False)],
)
def test_a_secret_that_can_be_guessed_is_a_warning(section: str, secret: str, short: bool) -> None:  # noqa: FBT001 - a parameter
    front = f"{LINEAR}{section}  webhook_secret: $HOOK\n"
    found = judge(file(front), environment={"HOOK": secret}, acknowledged=False)
    assert found.workflow
    told = [one for one in found.warnings if one.code is WarningCode.DOUBTFUL_SETTING]
    assert bool(told) == short
    assert all(secret not in one.message for one in told)


@pytest.mark.parametrize("written", ["$HOOK", SECRET])
@pytest.mark.parametrize("setting", ["  webhook_secret: ", "forge:\n  token: ", "forge:\n  webhook_secret: "])
def test_a_secret_is_masked_and_its_variable_kept_from_children(setting: str, written: str) -> None:
    environment = {"HOOK": SECRET}
    front = f"{LINEAR}{setting}{written}\n"
    workflow = admit(file(front), environment=environment, acknowledged=False)
    assert SECRET not in redaction_for(workflow, environment).text(f"it is {SECRET}")
    assert SECRET not in repr(workflow.settings)
    assert ("HOOK" in workflow.secret_names) == (written == "$HOOK")
    literal = [one.where for one in workflow.warnings if one.code is WarningCode.LITERAL_SECRET]
    assert len(literal) == 1 + (written == SECRET)  # one is the key of the tracker


@pytest.mark.parametrize(
    ("more", "warned"),
    [
        ("", True),
        ("  feedback: {ci: false, review: false, conflict: false}\n", False),
        ("workspace: {repo: ., push: origin}\n", False),
    ],
)
def test_feedback_whose_work_nobody_pushes_is_doubtful(more: str, *, warned: bool) -> None:
    front = f"{LINEAR}forge:\n  kind: github\n  repo: o/r\n  token: $T\n  open: never\n{more}"
    found = {warning.code for warning in judged(front).warnings}
    assert (WarningCode.DOUBTFUL_SETTING in found) is warned


# --- a prompt that names tools which no session is offered ---

GITHUB = (
    "tracker:\n  kind: github\n  active_states: [open]\n  terminal_states: [closed]\n"
    "  provider: {repo: octo-team/website, scope: %s}\n"
)
BOARD_PROMPT = "\nDo {{ issue.identifier }}.\n\nMove it with the `board_move` tool.\nThen board_move again.\n"


def unknown_tools(front: str, body: str) -> list[WorkflowWarning]:
    judgement = judge(file(front, body), environment={"GITHUB_TOKEN": SECRET}, acknowledged=None)
    assert judgement.workflow is not None, judgement.failures
    assert judgement.workflow.warnings == judgement.warnings
    return [warning for warning in judgement.warnings if warning.code is WarningCode.UNKNOWN_TOOL]


def test_a_tool_of_another_tracker_is_told_once_with_its_line_and_what_there_is() -> None:
    (warning,) = unknown_tools(GITHUB % "token", BOARD_PROMPT)
    assert "`board_move`" in warning.message
    assert warning.where == f"{PATH}:12"
    assert warning.hint == "sessions are offered issue_move, issue_comment, issue_comments, github_api"


def test_a_tool_that_a_setting_takes_away_is_told() -> None:
    body = "Use `github_api`, then issue_move.\n"
    assert unknown_tools(GITHUB % "token", body) == []
    (warning,) = unknown_tools(GITHUB % "off", body)
    assert "`github_api`" in warning.message


def test_only_whole_names_count() -> None:
    assert unknown_tools(GITHUB % "token", "my_board_move, board_moves, board_move-ment, issue-moves\n") == []


def test_the_default_prompt_fits_every_tracker() -> None:
    assert unknown_tools(GITHUB % "off", "") == []
    assert unknown_tools("tracker: {kind: markdown}\n", "") == []


def test_an_agent_that_takes_no_tools_is_told_of_none() -> None:
    front = "tracker: {kind: markdown}\nagent: {kind: command}\ncommand: {command: make work}\n"
    (warning,) = unknown_tools(front, BOARD_PROMPT)
    assert "no agent here takes tools" in warning.message
    rules = "agent: {kind: command, rules: [{label: hard, use: codex}]}\ncommand: {command: make work}\n"
    assert unknown_tools(f"tracker: {{kind: markdown}}\n{rules}", BOARD_PROMPT) == [], "one of them does"


@pytest.mark.parametrize("kind", AGENTS.names)
def test_a_kind_says_of_tools_what_its_backend_says(kind: str, tmp_path: Path) -> None:
    front = f"tracker: {{kind: markdown}}\nagent: {{kind: {kind}}}\n"
    sections = "acp: {profile: gemini}\ncommand: {command: make work}\n"
    judgement = judge(file(front + sections), environment={}, acknowledged=None)
    (agent,) = judgement.agents.values()
    around = BackendContext(host=LocalHost(), environ={}, secret_names=frozenset(), homes=tmp_path)
    assert (
        create_backend(agent, around).capabilities.client_tools is agent_kind(kind).capabilities.client_tools
    )


def test_reading_for_everybody_is_named() -> None:
    budget = "agent: {budget: {max_tokens_per_day: 9}}\n"
    judgement = judged(
        f"tracker: {{kind: markdown}}\n{budget}server: {{public_reads: true}}\n", acknowledged=True
    )
    assert judgement.failures == ()
    assert [(one.code, one.where) for one in judgement.warnings] == [
        (WarningCode.DOUBTFUL_SETTING, f"{PATH}:4")
    ]


@pytest.mark.parametrize("name", ["BUILD_TOKEN", "PLAIN", "EMPTY", "ABSENT"])
def test_all_values_that_hosts_get_are_masked_whatever_their_names(name: str) -> None:
    environment = {"BUILD_TOKEN": SECRET, "PLAIN": SECRET, "EMPTY": "", "OTHER": "an-ordinary-value"}
    workflow = admit(file(f"{LINEAR}worker:\n  env: [{name}]\n"), environment=environment, acknowledged=False)
    redaction = redaction_for(workflow, {"OTHER": "an-ordinary-value", name: environment.get(name, "")})
    shown = redaction.text(f"{SECRET} an-ordinary-value")
    assert (SECRET in shown) == (name in {"EMPTY", "ABSENT"})
    assert "an-ordinary-value" in shown


@pytest.mark.parametrize(
    ("script", "line"),
    [
        ("gh pr list", None),
        ("curl -H $GH_TOKEN x", 6),
        ('curl -H "${GITLAB_TOKEN:-}" x', 6),
        ("curl -H $OPENAI_API_KEY x", 6),
        ("curl -H $CI_JOB_TOKEN x", None),  # passed on
        ("GH_TOKEN=$(cat token); curl -H $GH_TOKEN x", None),
        ("echo $GH_TOKENS $GITHUB_REPO", None),
    ],
)
def test_a_hook_that_reads_a_credential_which_it_does_not_get_is_told(script: str, line: int | None) -> None:
    text = f"{LINEAR}hooks:\n  before_run: '{script}'\n  env: [CI_JOB_TOKEN]\n{BUDGET}"
    found = [
        one for one in judged(text, acknowledged=True).warnings if one.code is not WarningCode.LITERAL_SECRET
    ]
    expected = [] if line is None else [(WarningCode.DOUBTFUL_SETTING, f"{PATH}:{line}")]
    assert [(one.code, one.where) for one in found] == expected


def test_a_credential_of_the_daemon_itself_is_passed_on_to_nobody_and_that_is_told() -> None:
    tracker = "tracker:\n  kind: linear\n  provider: {api_key: $GH_TOKEN, project_slug: p}\n"
    text = f"{tracker}hooks:\n  env: [GH_TOKEN, GITLAB_TOKEN]\ncodex:\n  env: [GH_TOKEN, MY_TOKEN]\n{BUDGET}"
    judgement = judge(file(text), environment={"GH_TOKEN": "k"}, acknowledged=True)
    assert [(one.code, one.where) for one in judgement.warnings] == [
        (WarningCode.DOUBTFUL_SETTING, f"{PATH}:6"),
        (WarningCode.DOUBTFUL_SETTING, f"{PATH}:8"),
    ]


def test_the_address_of_a_chat_is_masked() -> None:
    address = "https://hooks.example.org/services/a8k3x92bd71c"
    environment = {"SLACK_WEBHOOK_URL": address, "GITHUB_REPO": "an/ordinary-value"}
    workflow = admit(file(LINEAR), environment=environment, acknowledged=False)
    shown = redaction_for(workflow, environment).text(f"{address} an/ordinary-value")
    assert address not in shown
    assert "an/ordinary-value" in shown


def test_of_the_address_of_a_webhook_only_what_can_be_a_credential_is_masked() -> None:
    front = (
        "tracker: {kind: markdown}\nnotify:\n"
        "- {name: ops, kind: webhook, url: https://hooks.example.com/symphony}\n"
        "- {name: team, kind: slack, url: $HOOK}\n"
    )
    environment = {
        "HOOK": "https://hooks.slack.com/services/T024BE7LD/B0AB12CD3/XXabcd1234efgh56",
        "A_TOKEN": "dev",
    }
    workflow = admit(file(front), environment=environment, acknowledged=False)
    redaction = redaction_for(workflow, environment)
    text = "symphony says 'symphony' to https://hooks.example.com/symphony and hooks.slack.com"
    assert redaction.text(text) == text
    for part in ("XXabcd1234efgh56", "B0AB12CD3", environment["HOOK"]):
        assert part not in redaction.text(f"it is {part}")
    sources = {source.setting: bool(source.parts) for source in known_secrets(workflow, environment)}
    assert sources == {
        "notify.ops.url": False,
        "notify.team.url ($HOOK)": True,
        "$A_TOKEN": False,
        "$HOOK": True,
    }
