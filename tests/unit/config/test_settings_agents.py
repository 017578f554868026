"""Named agents and the choice among them: what they inherit, and what is refused at which line."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import pytest
from typing_extensions import override

from symphony.config import (
    AGENT_SECTIONS,
    AgentSection,
    ClaudeSettings,
    CodexSettings,
    WarningCode,
    agent_key_location,
    config_failure,
    keys_of,
    requested_agents,
)
from symphony.domain import Category, SymphonyError

if TYPE_CHECKING:
    from unit.config.conftest import Parse, Refuse

FILE = "/repo/WORKFLOW.md"
HEAD = "---\ntracker: {kind: markdown}\n"


def test_a_named_agent_has_the_section_of_its_kind_as_defaults(parse: "Parse") -> None:
    workflow = parse(
        f"{HEAD}codex: {{model: big, effort: high, turn_sandbox_policy: {{type: readOnly}}}}\n"
        "agents:\n  fast: {kind: codex, model: small, turn_sandbox_policy: {type: x, writableRoots: null}}\n"
        "agent: {kind: fast, fallback: codex}\n---\nx"
    )
    agents = workflow.agents

    fast, codex = agents["fast"].settings, agents["codex"].settings
    assert isinstance(fast, CodexSettings)
    assert (fast.model, fast.effort) == ("small", "high")
    assert fast.turn_sandbox_policy == {"type": "x", "writableRoots": None}
    assert codex.model == "big"
    assert (agents["fast"].section, agents["codex"].section) == ("agents.fast", "codex")
    assert list(agents) == ["fast", "codex"]


def test_every_agent_that_an_issue_may_be_given_to_is_in_use_once(parse: "Parse") -> None:
    workflow = parse(
        f"{HEAD}agents: {{a: {{kind: claude}}, b: {{kind: claude}}, unused: {{kind: acp}}}}\n"
        "agent:\n  fallback: a\n  rules:\n  - {label: x, use: b, fallback: codex}\n  - {state: y, use: a}\n"
        "---\nx",
        agent_kinds=AGENT_SECTIONS,
    )

    assert requested_agents(workflow.settings.agent, workflow.settings.verify) == ("codex", "a", "b")
    assert [type(agent.settings) for agent in workflow.agents.values()] == [
        CodexSettings,
        ClaudeSettings,
        ClaudeSettings,
    ]


def test_a_reviewer_is_an_agent_in_use_and_verification_is_on_by_it_alone(parse: "Parse") -> None:
    workflow = parse(f"{HEAD}agents: {{critic: {{kind: codex}}}}\nverify: {{reviewer: critic}}\n---\nx")
    assert list(workflow.agents) == ["codex", "critic"]
    assert workflow.settings.verify.is_set


def test_labels_and_states_of_rules_are_compared_without_case(parse: "Parse") -> None:
    settings = parse(
        f"{HEAD}agents: {{a: {{kind: codex}}}}\n"
        "agent: {rules: [{label: ' UI ', state: ' In Review', use: a}]}\n---\nx"
    ).settings
    assert (settings.agent.rules[0].label, settings.agent.rules[0].state) == ("ui", "in review")


@pytest.mark.parametrize(
    ("text", "line", "message", "hint"),
    [
        ("agents:\n  codex: {model: x}", 4, "agents.codex is a kind of agents", "choose another name"),
        (
            "verify:\n  reviewer: crtic\nagents: {critic: {kind: codex}}",
            4,
            'verify.reviewer "crtic" is no agent',
            "critic",
        ),
        ("verify: 5", 3, "verify must be a map", ""),
        ("agents:\n  Fast: {kind: codex}", 4, "agents.Fast is no name for an agent", "a-z"),
        ("agents:\n  a/b: {kind: codex}", 4, "agents.a/b is no name for an agent", "a-z"),
        ("agents:\n  a: codex", 4, "agents.a must be a map", "kind first"),
        ("agents:\n  a: {model: x}", 4, "agents.a.kind is required", "supported: codex"),
        ("agents:\n  a:\n    kind: 7", 5, "agents.a.kind must be text", "supported: codex"),
        ("agents:\n  a:\n    kind: codx", 5, 'agents.a.kind "codx" is not supported', 'mean "codex"'),
        ("agents:\n  a:\n    kind: claude", 5, 'agents.a.kind "claude" is not supported', "supported: codex"),
        ("agents:\n  a:\n    kind: codex\n    home: x", 6, "agents.a.home must be one of 'operator'", ""),
        ("agents:\n  a:\n    kind: codex\n    model: 7", 6, "agents.a.model must be text, not a number", ""),
        ("codex:\n  env: [1X]", 4, "codex.env[0] must be the name of an environment variable", ""),
        ("agent:\n  kind: fast", 4, 'agent.kind "fast" is not supported', "supported: codex"),
        ("agent:\n  fallback: codx", 4, 'agent.fallback "codx" is no agent of this file', 'mean "codex"'),
        ("agent:\n  fallback: codex", 4, 'agent.fallback "codex" is the agent itself', "another"),
        ("agent:\n  rules:\n  - {use: codex}", 5, "agent.rules[0] needs a label or a state", "agent.kind"),
        ("agent:\n  rules:\n  - {label: x}", 5, "agent.rules[0].use is required", ""),
        ("agent:\n  rules:\n  - {label: x, use: cdx}", 5, 'agent.rules[0].use "cdx" is no agent', '"codex"'),
        (
            "agent:\n  rules:\n  - {label: x, use: codex, fallback: codex}",
            5,
            'agent.rules[0].fallback "codex" is the agent itself',
            "another",
        ),
        ("agent:\n  rules:\n  - fast", 5, "agent.rules[0] must be a map, not text", "indented"),
        ("agent:\n  rules:\n  - {label: '', use: codex}", 5, "agent.rules[0].label must not be blank", ""),
    ],
)
def test_what_does_not_fit_is_told_at_its_line(
    refuse: "Refuse", text: str, line: int, message: str, hint: str
) -> None:
    (failure,) = refuse(f"{HEAD}{text}\n---\nx")

    assert failure.message.startswith(message)
    assert failure.where == f"{FILE}:{line}"
    assert hint in (failure.hint or "")


def test_unknown_keys_are_left_out_with_a_suggestion(parse: "Parse") -> None:
    workflow = parse(
        f"{HEAD}agents:\n  a:\n    kind: codex\n    modl: x\n    api_key: s3cr3t\n"
        "agent:\n  rules:\n  - label: x\n    use: a\n    lable: y\n---\nx"
    )

    assert [(one.where, one.message, one.hint) for one in workflow.warnings] == [
        (f"{FILE}:6", 'unknown key "agents.a.modl" is ignored', 'did you mean "model"?'),
        (f"{FILE}:7", 'unknown key "agents.a.api_key" is ignored', None),
        (f"{FILE}:12", 'unknown key "agent.rules[0].lable" is ignored', 'did you mean "label"?'),
    ]
    assert {one.code for one in workflow.warnings} == {WarningCode.UNKNOWN_KEY}
    assert workflow.settings.agents == {"a": {"kind": "codex"}}
    assert "s3cr3t" not in repr(workflow.settings)


@pytest.mark.parametrize(
    ("rules", "shadowed"),
    [
        ("[{label: x, use: a}, {label: X, use: codex}]", [1]),
        ("[{label: x, use: a}, {label: x, state: y, use: codex}]", [1]),
        ("[{label: x, state: y, use: a}, {label: x, use: codex}]", []),
        ("[{label: x, use: a}, {state: x, use: codex}]", []),
    ],
)
def test_a_rule_that_never_chooses_is_warned_of(parse: "Parse", rules: str, shadowed: list[int]) -> None:
    workflow = parse(f"{HEAD}agents: {{a: {{kind: codex}}}}\nagent:\n  rules: {rules}\n---\nx")

    found = [one for one in workflow.warnings if one.code is WarningCode.SHADOWED_RULE]
    assert [one.message.split("]")[0] for one in found] == [f"agent.rules[{index}" for index in shadowed]
    assert all(one.where == f"{FILE}:5" for one in found)


def test_rules_of_phases_are_checked_as_those_of_agents(parse: "Parse", refuse: "Refuse") -> None:
    rules = "[{label: ' X ', phase: T, labl: y}, {label: x, state: Todo, phase: R}, {state: ToDo, phase: T}]"
    workflow = parse(f"{HEAD}agent:\n  phases:\n    default: I\n    rules: {rules}\n---\nx")
    phases = workflow.settings.agent.phases
    assert [(rule.label, rule.state, rule.phase) for rule in phases.rules] == [
        ("x", None, "T"),
        ("x", "todo", "R"),
        (None, "todo", "T"),
    ]
    assert phases.names == ("I", "T", "R")
    assert {one.code: one.where for one in workflow.warnings} == {
        WarningCode.UNKNOWN_KEY: f"{FILE}:6",
        WarningCode.SHADOWED_RULE: f"{FILE}:6",
    }
    (failure,) = refuse(f"{HEAD}agent:\n  phases:\n    rules: [{{phase: T}}]\n---\nx")
    assert failure.where == f"{FILE}:5"


def test_a_key_of_an_agent_is_placed_where_it_stands(parse: "Parse") -> None:
    workflow = parse(
        f"{HEAD}codex:\n  command: codex x\nagents:\n  a:\n    kind: codex\n  b:\n    kind: codex\n"
        "    command: codex y\nagent: {kind: a, fallback: b, rules: [{state: s, use: codex}]}\n---\nx"
    )
    agents = workflow.agents

    def line(name: str, key: str) -> int:
        return workflow.source_map.line(agent_key_location(agents[name], key, workflow.source_map))

    assert line("a", "command") == 4  # inherited from the section of its kind
    assert line("b", "command") == 10
    assert line("a", "model") == 6  # nowhere: the agent itself
    assert line("codex", "command") == 4


def test_variables_that_an_agent_gets_besides_are_named(parse: "Parse") -> None:
    assert parse(f"{HEAD}codex:\n  env: [MODEL_REGION, _X]\n---\nx").settings.codex.env == (
        "MODEL_REGION",
        "_X",
    )


class OtherSettings(AgentSection):
    """The section of an agent from another package."""

    effort: int = 3


class Installed(Mapping[str, type[AgentSection]]):
    """Kinds of which two are from other packages; the package of `broken` cannot be loaded."""

    def __init__(self) -> None:
        self.looked_up: list[str] = []

    @override
    def __getitem__(self, kind: str) -> type[AgentSection]:
        self.looked_up.append(kind)
        if kind == "broken":
            raise SymphonyError(config_failure("cannot be loaded", category=Category.INTERNAL))
        return OtherSettings if kind == "other" else AGENT_SECTIONS[kind]

    @override
    def __contains__(self, kind: object) -> bool:
        return kind in tuple(self)

    @override
    def __iter__(self) -> Iterator[str]:
        return iter((*AGENT_SECTIONS, "other", "broken"))

    @override
    def __len__(self) -> int:
        return len(AGENT_SECTIONS) + 2


def test_an_agent_of_another_package_has_a_section_of_its_own(parse: "Parse") -> None:
    workflow = parse(
        f"{HEAD}other: {{effort: 5, efort: 6}}\n"
        "agents: {fast: {kind: other, model: small}}\nagent: {kind: other, fallback: fast}\n---\nx",
        agent_kinds=Installed(),
    )
    assert workflow.agents["other"].settings == OtherSettings(effort=5)
    assert workflow.agents["fast"].settings == OtherSettings(effort=5, model="small")
    assert [(one.where, one.hint) for one in workflow.warnings if one.code is WarningCode.UNKNOWN_KEY] == [
        (f"{FILE}:3", 'did you mean "effort"?')
    ]


@pytest.mark.parametrize(
    ("front", "line", "category"),
    [
        ("other:\n  effort: high\nagent: {kind: other}\n", 4, Category.INVALID_WORKFLOW_CONFIG),
        ("other: 5\nagent: {kind: other}\n", 3, Category.INVALID_WORKFLOW_CONFIG),
        (
            "agents:\n  a:\n    kind: other\n    effort: x\nagent: {kind: a}\n",
            6,
            Category.INVALID_WORKFLOW_CONFIG,
        ),
        ("agent:\n  kind: broken\n", 4, Category.INTERNAL),
        ("agents:\n  a:\n    kind: broken\nagent: {rules: [{use: a, label: x}]}\n", 5, Category.INTERNAL),
    ],
)
def test_what_is_wrong_with_an_agent_of_another_package_is_told_at_its_line(
    refuse: "Refuse", front: str, line: int, category: Category
) -> None:
    (failure,) = refuse(f"{HEAD}{front}---\nx", agent_kinds=Installed())
    assert (failure.where, failure.category) == (f"{FILE}:{line}", category)


def test_a_package_that_no_issue_needs_is_not_looked_at(parse: "Parse") -> None:
    kinds = Installed()
    parse(f"{HEAD}agents: {{a: {{kind: broken, any: thing}}}}\n---\nx", agent_kinds=kinds)
    assert "broken" not in kinds.looked_up


def test_keys_of_another_package_need_no_more_than_a_type() -> None:
    (effort, *inherited) = keys_of(OtherSettings, "other.")
    assert (effort.name, effort.shape, effort.default) == ("other.effort", "int", "3")
    assert [key.name for key in inherited] == [f"other.{name}" for name in AgentSection.model_fields]
