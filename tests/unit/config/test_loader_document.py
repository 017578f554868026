import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from symphony.config import (
    AGENT_SECTIONS,
    WarningCode,
    Workflow,
    WorkflowError,
    WorkflowFile,
    config_failure,
    load_workflow,
    parse_workflow,
    read_workflow_file,
)
from symphony.domain import Category, Failure, Issue

if TYPE_CHECKING:
    from unit.config.conftest import Parse, Refuse

FILE = "/repo/WORKFLOW.md"
ISSUE = Issue(id="1", identifier="A-1", title="T", state="Todo", dispatchable=True, labels=("x",))
GOOD = "---\ntracker: {kind: markdown}\n---\nWork on {{ issue.identifier }}.\n"

LEGACY = """\
---
tracker:
  kind: linear
  endpoint: https://api.example.org/graphql
  api_key: $LINEAR_API_KEY
  project_slug: "web-0c79b1"
  active_states:
    - Todo
    - In Progress
  terminal_states: [Done, Closed]
polling:
  interval_ms: 5000
workspace:
  root: ~/code/workspaces
hooks:
  after_create: |
    git clone --depth 1 https://example.org/web .
agent:
  max_concurrent_agents: 10
  max_turns: 20
codex:
  command: codex --config shell_environment_policy.inherit=all app-server
  approval_policy: never
  thread_sandbox: workspace-write
  turn_sandbox_policy:
    type: workspaceWrite
server:
  port: 4000
---

You work on `{{ issue.identifier }}`.
{% if attempt %}
This is attempt {{ attempt }}.
{% endif %}
Labels: {{ issue.labels }}
{% if issue.description %}{{ issue.description }}{% else %}Nothing more is known.{% endif %}
"""

NOWHERE = "go to the repository, or name it with -C DIR or --workflow FILE; `symphony init` makes one"


def load(path: Path) -> Workflow:
    return load_workflow(path, environment={}, tracker_kinds=["markdown"], agent_kinds=AGENT_SECTIONS)


def test_a_file_becomes_settings_and_a_prompt(tmp_path: Path) -> None:
    path = tmp_path / "WORKFLOW.md"
    path.write_text(GOOD)

    workflow = load(path)

    assert workflow.path == path
    assert workflow.settings.tracker.kind == "markdown"
    assert workflow.template.render(ISSUE, None) == "Work on A-1."
    assert workflow.warnings == ()
    assert workflow.secret_names == frozenset()


def test_a_relative_path_is_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "WORKFLOW.md").write_text(GOOD.replace("markdown}", "markdown}\nworkspace: {root: ws}"))
    monkeypatch.chdir(tmp_path)

    workflow = load(Path("WORKFLOW.md"))

    assert workflow.path == tmp_path / "WORKFLOW.md"
    assert workflow.settings.workspace.root == tmp_path / "ws"


@pytest.mark.conformance("W-4")
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("nothing.md", "No such file or directory"),
        ("directory", "it is not a regular file"),
        ("pipe", "it is not a regular file"),
        ("file/WORKFLOW.md", "Not a directory"),
        ("x" * 300, "File name too long"),
        ("a\0b", "embedded null"),  # further words are the interpreter's
    ],
)
def test_a_file_that_cannot_be_read_is_missing(tmp_path: Path, name: str, reason: str) -> None:
    (tmp_path / "directory").mkdir()
    (tmp_path / "file").touch()
    os.mkfifo(tmp_path / "pipe")

    with pytest.raises(WorkflowError) as caught:
        load(tmp_path / name)

    failure = caught.value.failure
    assert failure.category is Category.MISSING_WORKFLOW_FILE
    assert failure.message.startswith(f"cannot read {tmp_path / name}: ")
    assert reason in failure.message
    assert failure.hint is not None
    inside = f"name the file in it: {tmp_path}/directory/WORKFLOW.md"
    assert failure.hint == (inside if name == "directory" else NOWHERE)


def test_an_absurdly_large_file_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "WORKFLOW.md"
    with path.open("wb") as file:
        file.truncate(1 << 40)

    with pytest.raises(WorkflowError, match="larger than 1048576 bytes") as caught:
        load(path)
    assert caught.value.failure.category is Category.WORKFLOW_PARSE_ERROR


def test_a_file_of_as_many_bytes_as_the_limit_is_read(tmp_path: Path) -> None:
    path = tmp_path / "WORKFLOW.md"
    path.write_bytes(b"x" * 1_048_576)
    assert len(read_workflow_file(path).data) == 1_048_576
    path.write_bytes(b"x" * 1_048_577)
    with pytest.raises(WorkflowError, match="larger than 1048576 bytes"):
        read_workflow_file(path)


@pytest.mark.conformance("W-5")
@pytest.mark.parametrize(
    "text",
    [
        "---\ntracker: {kind: markdown}\n---\nBody {{ issue.title }}",
        "---\r\ntracker: {kind: markdown}\r\n---\r\nBody {{ issue.title }}\r\n",
        "---\rtracker: {kind: markdown}\r---\rBody {{ issue.title }}\r",
        "\ufeff---\ntracker: {kind: markdown}\n---\n\n\n  Body {{ issue.title }}\n\n",
    ],
)
def test_any_newline_form_and_a_byte_order_mark_are_fine(parse: "Parse", text: str) -> None:
    assert parse(text).template.render(ISSUE, None) == "Body T"


@pytest.mark.conformance("W-5")
@pytest.mark.parametrize("text", ["---\ntracker: {kind: markdown}\n", "---\ntracker: {kind: markdown}"])
def test_front_matter_that_is_not_closed_is_all_there_is(parse: "Parse", text: str) -> None:
    assert "issue A-1 " in parse(text).template.render(ISSUE, None)


@pytest.mark.conformance("W-5")
def test_a_byte_order_mark_is_no_part_of_a_body_without_front_matter(refuse: "Refuse") -> None:
    kinds = [failure.category for failure in refuse("\ufeff{{ x }}")]
    assert kinds == [Category.MISSING_TRACKER_KIND, Category.TEMPLATE_RENDER_ERROR]


@pytest.mark.conformance("W-4")
@pytest.mark.parametrize("text", ["---\n- a\n---\n", "---\njust text\n---\n", "---\n5\n---\n"])
def test_front_matter_is_a_map(refuse: "Refuse", text: str) -> None:
    (failure,) = refuse(text)

    assert failure.category is Category.WORKFLOW_FRONT_MATTER_NOT_A_MAP
    assert failure.where == f"{FILE}:2"
    assert failure.hint == 'write "key: value" lines between the two "---" lines'


@pytest.mark.conformance("W-4")
@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("---\na: 1\nb: [\n---\n", 4),
        ("---\na: 1\nb: 'x\n---\n", 4),
        ("---\na: 1\na: 2\n---\n", 3),
        ("---\na: b: c\n---\n", 2),
        ("---\na: *nothing\n---\n", 2),
        ("---\n" + "a: [" * 30 + "\n---\n", 2),
    ],
)
def test_broken_yaml_is_told_with_its_line(refuse: "Refuse", text: str, line: int) -> None:
    (failure,) = refuse(text)

    assert failure.category is Category.WORKFLOW_PARSE_ERROR
    assert failure.where is not None
    assert abs(int(failure.where.rpartition(":")[2]) - line) <= 1
    assert not failure.retryable


def test_broken_yaml_does_not_hide_a_broken_prompt(refuse: "Refuse") -> None:
    first, second = refuse("---\na: 1\na: 2\n---\n\n{{ x }}")

    assert (first.category, first.where) == (Category.WORKFLOW_PARSE_ERROR, f"{FILE}:3")
    assert (second.category, second.where) == (Category.TEMPLATE_RENDER_ERROR, f"{FILE}:6")


def test_front_matter_has_a_limit(refuse: "Refuse") -> None:
    (failure,) = refuse("---\n" + "# filler\n" * 20_000 + "---\n")
    assert failure.category is Category.WORKFLOW_PARSE_ERROR


@pytest.mark.conformance("W-4")
@pytest.mark.parametrize("data", [b"---\na: 1\n\xff\n---\n", b"---\na: 1\r\n\xe2\x82"])
def test_bytes_that_are_not_utf8_are_told_with_their_line(refuse: "Refuse", data: bytes) -> None:
    (failure,) = refuse(data)

    assert failure.category is Category.WORKFLOW_PARSE_ERROR
    assert failure.message == "the file is not UTF-8"
    assert failure.where == f"{FILE}:3"
    assert failure.hint == "save it as UTF-8"


def test_fences_inside_values_do_not_end_the_front_matter(parse: "Parse") -> None:
    workflow = parse(
        "---\ntracker: {kind: markdown}\nhooks:\n  before_run: |\n    ---\n    x\n---\nBody\n---\nmore"
    )

    assert workflow.settings.hooks.before_run == "---\nx\n"
    assert workflow.template.source == "Body\n---\nmore"


def test_a_file_of_the_elixir_reference_fails_by_its_tracker_alone(refuse: "Refuse") -> None:
    (failure,) = refuse(LEGACY, environment={"HOME": "/home/me"})

    assert failure.category is Category.UNSUPPORTED_TRACKER_KIND
    assert failure.where == f"{FILE}:3"


def test_a_file_of_the_elixir_reference_works_once_its_tracker_exists(parse: "Parse") -> None:
    workflow = parse(LEGACY, environment={"HOME": "/home/me"}, tracker_kinds=("linear",))

    assert workflow.settings.workspace.root == Path("/home/me/code/workspaces")
    assert workflow.settings.tracker.terminal_states == ("Done", "Closed")
    assert workflow.settings.codex.turn_sandbox_policy == {"type": "workspaceWrite"}
    assert workflow.secret_names == {"LINEAR_API_KEY"}
    assert "This is attempt 2." in workflow.template.render(ISSUE, 2)


def test_an_error_carries_all_failures_and_speaks_of_the_first() -> None:
    one, two = config_failure("one", where="a:1"), config_failure("two")
    error = WorkflowError([one, two])

    assert error.failure is one
    assert error.failures == (one, two)
    assert str(error) == "a:1: invalid_workflow_config: one"


_WORDS = [
    "---\n",
    "tracker:",
    " kind: ",
    "markdown",
    "{",
    "}",
    "[",
    "]",
    "\n",
    "  ",
    "- ",
    "$X",
    "null",
    "5",
    "~",
]
_WORDS += [
    "agent:",
    "max_turns: ",
    "workspace:",
    "root: ",
    "repo: ",
    "codex:",
    "{{ issue.title }}",
    "{%",
    '"\\0"',
    "&a",
    "*a",
]
_FILES = st.one_of(
    st.binary(),
    st.binary().map(lambda data: b"---\n" + data),
    st.lists(st.sampled_from(_WORDS)).map(lambda words: "".join(["---\n", *words]).encode()),
)


@pytest.mark.conformance("W-5")
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=_FILES)
def test_any_bytes_give_a_workflow_or_an_error(data: bytes) -> None:
    file = WorkflowFile(path=Path(FILE), data=data)
    failures: tuple[Failure, ...] = ()
    try:
        parse_workflow(file, environment={"X": "/x"}, tracker_kinds=["markdown"], agent_kinds=AGENT_SECTIONS)
    except WorkflowError as error:
        failures = error.failures
    assert all(failure.where is not None for failure in failures)
    assert all("\n" not in failure.line for failure in failures)


# --- what is said of typical slips ---


def test_a_front_matter_that_nobody_closed_says_so(refuse: "Refuse") -> None:
    (failure,) = refuse(
        "---\ntracker: {kind: markdown}\nagent:\n  kind: codex\nYou work on: {{ issue.title }}\n"
    )
    assert failure.category is Category.WORKFLOW_PARSE_ERROR
    assert failure.where == f"{FILE}:5", "where the prompt begins"
    assert "line 1" in failure.message
    assert "---" in str(failure.hint)


def test_a_mistake_in_a_front_matter_that_is_closed_is_told_as_ever(refuse: "Refuse") -> None:
    (failure,) = refuse("---\ntracker: {kind: markdown\n---\nDo it.\n")
    assert "---" not in str(failure.hint)


def test_a_key_that_is_given_twice_names_both_lines(refuse: "Refuse") -> None:
    (failure,) = refuse(
        "---\ntracker: {kind: markdown}\nagent:\n  max_turns: 1\nagent:\n  max_turns: 2\n---\nDo it.\n"
    )
    assert failure.where == f"{FILE}:5"
    assert re.findall(r"line (\d+)", failure.message) == ["3", "5"]
    (inner,) = refuse("---\ntracker: {kind: markdown}\nagent:\n  max_turns: 1\n  max_turns: 2\n---\nDo it.\n")
    assert re.findall(r"line (\d+)", inner.message) == ["4", "5"]


@pytest.mark.parametrize(
    "key",
    [
        "workspace: {root: $GITHUB_TOKNE}",
        "codex: {model: $GITHUB_TOKNE}",
        "hooks: {after_create: $GITHUB_TOKNE}",
    ],
)
def test_a_variable_that_is_not_set_is_told_with_the_one_that_was_meant(parse: "Parse", key: str) -> None:
    set_ones = {"GITHUB_TOKEN": "secret-value", "HOME": "/home/x"}
    workflow = parse(f"---\ntracker: {{kind: markdown}}\n{key}\n---\nDo it.\n", environment=set_ones)
    (warning,) = [one for one in workflow.warnings if one.code is WarningCode.UNSET_VARIABLE]
    assert warning.where == f"{FILE}:3"
    assert "$GITHUB_TOKNE" in warning.message
    assert "$GITHUB_TOKEN" in str(warning.hint)
    assert "secret-value" not in repr(warning)


def test_a_variable_below_the_tracker_is_looked_for_too(parse: "Parse") -> None:
    text = (
        "---\ntracker:\n  kind: markdown\n  provider:\n    list: [a, $OTHER]\n    key: $TOKN\n---\nDo it.\n"
    )
    told = parse(text, environment={"TOKEN": "", "TOKEN_OF_SOMETHING": "x"}).warnings
    unset = [one for one in told if one.code is WarningCode.UNSET_VARIABLE]
    assert [(one.where, "did you mean" in str(one.hint)) for one in unset] == [
        (f"{FILE}:5", False),
        (f"{FILE}:6", False),
    ], "an empty variable is not meant"
    assert not [one for one in parse(text, environment={"OTHER": "1", "TOKN": "2"}).warnings if one in unset]


def test_what_goes_to_the_agent_as_it_is_refers_to_nothing(parse: "Parse") -> None:
    text = "---\ntracker: {kind: markdown}\ncodex: {turn_sandbox_policy: {type: $NOT_OURS}}\n---\nDo it.\n"
    codes = [one.code for one in parse(text).warnings]
    assert WarningCode.UNSET_VARIABLE not in codes


def test_a_repository_that_is_not_told_names_the_variable_that_was_meant(refuse: "Refuse") -> None:
    text = "---\ntracker: {kind: markdown}\nworkspace: {repo: $REPO_ULR}\n---\nDo it.\n"
    (failure,) = refuse(text, environment={"REPO_URL": "https://example.org/x"})
    assert "$REPO_URL" in str(failure.hint)
