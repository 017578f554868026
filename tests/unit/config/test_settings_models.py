"""What the models promise whatever the key: they are strict and frozen, and show no value in an error."""

import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import ValidationError

from symphony.config import (
    KEYS,
    AgentRuleSettings,
    AgentSettings,
    BudgetSettings,
    CodexSettings,
    PollingSettings,
    Settings,
    SkillsSettings,
    Variables,
    WorkflowError,
    WorkspaceSettings,
    sections,
)

if TYPE_CHECKING:
    from unit.config.conftest import Parse

SECRET = "hunter2-correct-horse"
MISPLACED = (SECRET, [SECRET], {"a": SECRET}, {"a": [SECRET]}, SECRET.encode(), Path(SECRET), [[SECRET]])
LEAST: dict[str, Any] = {"tracker": {"kind": "markdown"}, "workspace": {"root": Path("/w")}}


def _with(name: str, value: object) -> dict[str, Any]:
    """The least front matter there is, and one more key."""
    whole: dict[str, Any] = {key: dict(section) for key, section in LEAST.items()}
    *above, last = name.split(".")
    below = whole
    for section in above:
        below = below.setdefault(section, {})
    below[last] = value
    return whole


@pytest.mark.conformance("O-7")
def test_no_error_holds_a_secret_that_stands_in_the_place_of_another_value() -> None:
    places = [*KEYS, *sections(Settings), "agent.skills", "agent.budget", "agent.instructions"]
    told = {(name, text) for name in places for value in MISPLACED if (text := _refused(name, value))}
    assert {name for name, _ in told} == set(places)
    assert [name for name, text in told if SECRET in text] == []


def _refused(name: str, value: object) -> str:
    """Every text form of the error, or nothing where the value is one for this key."""
    try:
        Settings.model_validate(_with(name, value))
    except ValidationError as error:
        return f"{error} {error!r} {''.join(traceback.format_exception(error))}"
    return ""


@pytest.mark.conformance("O-7")
@pytest.mark.parametrize("form", [f"[{SECRET}]", f"{{{SECRET}: x}}", f"{{a: [{SECRET}]}}"])
def test_no_failure_of_a_file_tells_a_secret_that_stands_in_the_place_of_another_value(
    parse: "Parse", form: str
) -> None:
    for key in KEYS.values():
        if "map" in key.shape or key.shape.startswith("list of text") or "list of them" in key.shape:
            continue
        *above, last = key.name.split(".")
        lines = [f"{'  ' * depth}{section}:" for depth, section in enumerate(above)]
        text = "\n".join(["---", *lines, f"{'  ' * len(above)}{last}: {form}", "---", "x"])
        with pytest.raises(WorkflowError) as caught:
            parse(text)
        assert SECRET not in repr(caught.value.failures), key.name
        assert SECRET not in "".join(traceback.format_exception(caught.value)), key.name


def test_what_may_hold_a_secret_is_no_part_of_the_text_form() -> None:
    told = _with("tracker.webhook_secret", SECRET)
    told["tracker"]["provider"] = {"token": SECRET, "more": {"api_key": [SECRET]}}
    told["workspace"]["repo"] = f"https://ann:{SECRET}@h.test/x"
    assert SECRET not in repr(Settings.model_validate(told))


def test_all_mistakes_are_told_at_once_with_their_places() -> None:
    wrong = {
        "tracker": {"kind": 5, "active_states": ["a", 1]},
        "workspace": {"root": "/w", "push": "always"},
        "agent": {"rules": [{"use": 1}, "x"], "max_concurrent_agents_by_state": {"x": 0}, "skills": []},
        "codex": {"approval_policy": 7, "stall_timeout_ms": 2**53},
        "polling": [],
    }
    with pytest.raises(ValidationError) as caught:
        Settings.model_validate(wrong)
    assert [(problem["type"], problem["loc"]) for problem in caught.value.errors()] == [
        ("string_type", ("tracker", "kind")),
        ("string_type", ("tracker", "active_states", 1)),
        ("is_instance_of", ("workspace", "root")),
        ("literal_error", ("workspace", "push")),
        ("model_type", ("polling",)),
        ("string_type", ("agent", "rules", 0, "use")),
        ("dataclass_type", ("agent", "rules", 1)),
        ("greater_than", ("agent", "max_concurrent_agents_by_state", "x")),
        ("model_type", ("agent", "skills")),
        ("less_than_equal", ("codex", "stall_timeout_ms")),
        ("value_error", ("codex", "approval_policy")),
    ]


@pytest.mark.parametrize("number", ["4", 4.0, True, None, [4]])
def test_types_are_strict(number: object) -> None:
    with pytest.raises(ValidationError):
        PollingSettings.model_validate({"interval_ms": number})


def test_a_section_made_in_python_is_judged_as_one_of_a_file() -> None:
    with pytest.raises(ValidationError):
        PollingSettings(interval_ms=0)
    assert SkillsSettings(extra_paths=("a",)) == SkillsSettings.model_validate({"extra_paths": ["a"]})
    assert AgentSettings(rules=(AgentRuleSettings(use="codex", label=" Bug "),)).rules[0].label == "bug"


def test_unknown_keys_do_not_count() -> None:
    assert CodexSettings.model_validate({"modle": "x"}) == CodexSettings()


def test_no_section_can_be_changed() -> None:
    root = WorkspaceSettings(root=Path("/w"))
    with pytest.raises(ValidationError):
        root.root = Path("/x")
    with pytest.raises(ValidationError):
        Settings.model_validate(LEAST).polling = PollingSettings()


@pytest.mark.conformance("C-9")
def test_the_environment_of_the_process_is_no_source(monkeypatch: pytest.MonkeyPatch) -> None:
    before = Settings.model_validate(LEAST)
    for name in ("POLLING", "TRACKER", "AGENT_MAX_TURNS", "SYMPHONY_AGENT_SKILLS_ENABLED", "SYMPHONY_AGENT"):
        monkeypatch.setenv(name, "false")
    assert Settings.model_validate(LEAST) == before
    assert Variables.of({}).agent_skills_enabled is None
    assert Variables.of({"SYMPHONY_AGENT_SKILLS_ENABLED": "true"}).agent_skills_enabled is True
    assert Variables.of({"symphony_agent_skills_enabled": "true"}).agent_skills_enabled is None


def test_no_key_of_a_file_is_an_option_of_the_library(tmp_path: Path) -> None:
    (tmp_path / "polling").write_text('{"interval_ms": 7}')
    (tmp_path / "env").write_text('polling={"interval_ms": 7}')
    options = {"_secrets_dir": str(tmp_path), "_env_file": str(tmp_path / "env"), "given": {}, "source": {}}
    assert Settings.model_validate({**LEAST, **options}) == Settings.model_validate(LEAST)


def test_the_scheduler_gets_the_limits_of_the_budget() -> None:
    limits = BudgetSettings(max_tokens_per_issue=5).limits
    assert (limits.max_tokens_per_issue, limits.max_tokens_per_day) == (5, None)
    assert limits.max_turns_without_progress == BudgetSettings().max_turns_without_progress
