"""Secrets of a workflow file are held masked, told of by their place, and shown nowhere."""

import json
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from symphony.config import (
    AGENT_SECTIONS,
    Secret,
    WarningCode,
    Workflow,
    WorkflowError,
    WorkflowFile,
    is_secret_key,
    mask_secrets,
    parse_workflow,
    resolve_secret,
    secret_sources,
)
from symphony.domain import MASK, holds_credential

if TYPE_CHECKING:
    from unit.config.conftest import Parse, Refuse

SECRET = "correct-horse-battery"


@pytest.mark.parametrize(
    "name", ["token", "api_key", "API_KEY", "apiKey", "client_secret", "password", "github_pat", "access-key"]
)
def test_a_key_tells_that_its_value_is_a_secret(name: str) -> None:
    assert is_secret_key(name)


@pytest.mark.parametrize(
    "name", ["path", "project_key", "keys", "patience", "tokenizer", "email", "secretary"]
)
def test_other_keys_do_not(name: str) -> None:
    assert not is_secret_key(name)


def test_every_form_of_a_secret_is_a_mask() -> None:
    secret = Secret(SECRET)
    assert (str(secret), f"{secret}", repr(secret)) == (MASK, MASK, f"Secret({MASK!r})")
    assert str(Secret("")) == "", "that there is none may be seen"
    assert secret.reveal() == SECRET
    with pytest.raises(TypeError):
        json.dumps(secret)


def test_secrets_are_equal_by_their_text() -> None:
    assert {Secret(SECRET), Secret(SECRET)} == {Secret(SECRET)}
    assert Secret(SECRET) != Secret("other")
    assert Secret(SECRET) != SECRET


def test_literals_below_a_secret_key_are_masked_and_nothing_else() -> None:
    found = mask_secrets(
        {"api_key": SECRET, "token": "$NAME", "a": {"secrets": [SECRET, 7, None]}, "use_token": True}
    )
    assert found == {
        "api_key": Secret(SECRET),
        "token": "$NAME",
        "a": {"secrets": [Secret(SECRET), Secret("7"), None]},
        "use_token": True,
    }


@pytest.mark.conformance("C-3")
@pytest.mark.parametrize(
    ("value", "environment", "expected"),
    [
        ("$KEY", {"KEY": SECRET}, SECRET),
        ("$KEY", {"KEY": SECRET, "FALLBACK": "other"}, SECRET),
        ("$KEY", {"FALLBACK": SECRET}, SECRET),
        ("$KEY", {}, None),
        ("$KEY", {"KEY": "", "FALLBACK": SECRET}, None),
        ("$KEY", {"KEY": "  ", "FALLBACK": SECRET}, None),
        (None, {"FALLBACK": SECRET}, SECRET),
        (None, {}, None),
        (f" {SECRET} ", {"FALLBACK": "other"}, SECRET),
        (Secret(SECRET), {}, SECRET),
        (Secret("$KEY"), {"KEY": SECRET}, SECRET),
        ("", {"FALLBACK": "other"}, None),
        ("env:KEY", {"KEY": "other", "FALLBACK": "other"}, None),
        ("${KEY}", {"KEY": "other", "FALLBACK": "other"}, None),
        ("$(cat key)", {"FALLBACK": "other"}, None),
        ("LINEAR_API_KEY", {"LINEAR_API_KEY": "other"}, None),
        ("$KEY-1", {"KEY": "other"}, "$KEY-1"),
    ],
)
def test_a_secret_is_the_value_of_its_variable_or_the_fallback(
    value: object, environment: dict[str, str], expected: str | None
) -> None:
    found = resolve_secret(value, environment=environment, fallback="FALLBACK")
    assert (found and found.reveal()) == expected
    assert SECRET not in repr(found)


def test_without_a_documented_fallback_there_is_none() -> None:
    assert resolve_secret("$KEY", environment={"LINEAR_API_KEY": SECRET}) is None


def test_what_must_be_masked_is_known() -> None:
    node = {"a": Secret(SECRET), "b": ["$NAME", {"c": "$UNSET"}], "d": "plain"}
    found = secret_sources(node, {"NAME": "its value"}, ("x",))
    assert [(one.setting, one.value, one.named) for one in found] == [
        ("x.a", SECRET, True),
        ("x.b.0 ($NAME)", "its value", False),
    ]


@pytest.mark.parametrize(
    ("front", "line"),
    [
        (f"tracker:\n  kind: markdown\n  provider:\n    token: {SECRET}\n", 5),
        (f"tracker:\n  kind: markdown\n  provider:\n    nested:\n      - password: {SECRET}\n", 6),
        ("tracker: {kind: markdown}\nhooks:\n  before_run: |\n    export T=ghp_0123456789abcdefghij\n", 4),
        ("tracker: {kind: markdown}\nworkspace:\n  repo: https://ann:pass-word@git.example.test/x\n", 4),
        ("tracker: {kind: markdown}\ncodex:\n  command: KEY=sk-0123456789abcd codex app-server\n", 4),
    ],
)
def test_a_secret_in_the_file_is_told_by_its_place_alone(parse: "Parse", front: str, line: int) -> None:
    warnings = parse(f"---\n{front}---\nx").warnings
    (warning,) = [one for one in warnings if one.code is WarningCode.LITERAL_SECRET]
    assert warning.where == f"/repo/WORKFLOW.md:{line}"
    assert warning.hint is not None
    for secret in (SECRET, "ghp_", "pass-word", "sk-0"):
        assert secret not in f"{warning}"


@pytest.mark.parametrize(
    "front",
    [
        "tracker: {kind: markdown, provider: {token: $TOKEN, project_key: PAY}}\n",
        "tracker: {kind: markdown}\nhooks: {before_run: 'curl -H \"Authorization: Bearer $TOKEN\" https://x'}\n",
        "tracker: {kind: markdown}\nhooks: {before_run: 'git clone https://x:$TOKEN@git.example.test/y'}\n",
        "tracker: {kind: markdown}\nworkspace: {repo: 'ssh://git@git.example.test/x'}\n",
    ],
)
def test_references_are_not_secrets(parse: "Parse", front: str) -> None:
    codes = {warning.code for warning in parse(f"---\n{front}---\nx").warnings}
    assert WarningCode.LITERAL_SECRET not in codes


def test_shapes_of_credentials_are_known() -> None:
    assert holds_credential("x glpat-0123456789abcd y")
    assert holds_credential("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjMifQ.abc")
    assert not holds_credential("a token, a secret: nothing")


FORMS = ("{token: %s}", "{api_key: [%s]}", "{more: {client_secret: {value: %s}}}")


@pytest.mark.conformance("O-7")
@given(
    secret=st.text(alphabet="abcdefghijklmnopqrstuvwxyz0123456789-_", min_size=12, max_size=40).map(
        "q7z".__add__
    ),
    form=st.sampled_from(FORMS),
)
def test_no_text_form_of_a_workflow_holds_its_secret(secret: str, form: str) -> None:
    workflow = _parsed(form % json.dumps(secret))
    dumped = json.dumps(workflow.settings.model_dump(), default=str)
    forms = (repr(workflow), str(workflow.settings), f"{workflow.settings!r}", dumped, str(workflow.warnings))
    assert not [form for form in forms if secret in form]
    found = secret_sources(workflow.settings.tracker.provider, {})
    assert {one.value for one in found} == {secret}


def _parsed(provider: str) -> Workflow:
    data = f"---\ntracker:\n  kind: markdown\n  provider: {provider}\n---\nx".encode()
    file = WorkflowFile(path=Path("/w.md"), data=data)
    assert "q7z" not in repr(file)
    return parse_workflow(file, environment={}, tracker_kinds=("markdown",), agent_kinds=AGENT_SECTIONS)


@pytest.mark.conformance("O-7")
def test_a_failure_and_its_stack_hold_no_secret(refuse: "Refuse", parse: "Parse") -> None:
    front = (
        f"tracker:\n  kind: markdown\n  provider: {{token: {SECRET}}}\n  active_states: {{token: {SECRET}}}\n"
    )
    text = f"---\n{front}---\nx"
    assert SECRET not in repr(refuse(text))
    with pytest.raises(WorkflowError) as caught:
        parse(text)
    stack = "".join(traceback.format_exception(caught.value))
    assert SECRET not in stack.replace(text, "")
