"""Skills that a file keeps for people: which files do, and where such a skill is offered all the same."""

from pathlib import Path

import pytest

from symphony.skills import AvailableSkills, DropReason, Severity, SkillOptions, load, render
from symphony.skills.parser import line_for_people
from unit.skills.conftest import Shelf

KEEPING = [
    "disable-model-invocation: true",
    "disable-model-invocation: True",
    'disable-model-invocation: "true"',
    "disable-model-invocation: 'yes'",
    "disable-model-invocation: yes",
    "disable-model-invocation: on  # only by hand",
    "disable-model-invocation: 1",
    "disable_model_invocation: true",
    "disableModelInvocation: true",
    "allow_implicit_invocation: false",
    "allow-implicit-invocation: 'No'",
    "allowImplicitInvocation: off",
    "policy:\n  allow_implicit_invocation: false",
    "metadata:\n  disable-model-invocation: 'true'",
]
OFFERING = [
    "disable-model-invocation: false",
    'disable-model-invocation: "no"',
    "disable-model-invocation: 0",
    "disable-model-invocation:",
    "disable-model-invocation: null",
    "allow_implicit_invocation: true",
    "policy:\n  allow_implicit_invocation: yes",
    "policy: strict",
    "user-invocable: false",
    "model-invocation: true",
    "metadata:\n  note: 'disable-model-invocation: true'",
]


@pytest.mark.parametrize("field", KEEPING)
def test_a_file_keeps_its_skill_for_people(shelf: Shelf, field: str) -> None:
    shelf.skill("deploy", field)
    shelf.skill("tidy")
    block = shelf.render()
    assert block.listed == ("tidy",)
    assert [(one.name, one.reason) for one in block.dropped] == [("deploy", DropReason.FOR_PEOPLE)]
    assert shelf.warnings() == []


@pytest.mark.parametrize("field", OFFERING)
def test_a_file_that_does_not_say_so_offers_it(shelf: Shelf, field: str) -> None:
    shelf.skill("deploy", field)
    assert shelf.render().listed == ("deploy",)


@pytest.mark.parametrize("value", ["maybe", "[true]", "{a: b}", "'  '", "trueish"])
def test_a_value_that_says_neither_keeps_it_and_is_told(shelf: Shelf, value: str) -> None:
    shelf.skill("deploy", f"disable-model-invocation: {value}")
    assert shelf.render().listed == ()
    assert shelf.problems(Severity.WARNING) == [("bad_optional_field", "deploy/SKILL.md")]


@pytest.mark.parametrize(
    ("fields", "repaired"),
    [
        (("description: Use when: you must", "disable-model-invocation: true"), True),
        (("other: [unclosed", "disable-model-invocation: true"), True),
        (("other: [unclosed", "policy:", "  allow_implicit_invocation: false  # no"), True),
        (("other: [unclosed", "disable-model-invocation: false"), False),
        (("other: [unclosed", "text: say disable-model-invocation: true"), False),
    ],
)
def test_a_repair_does_not_lose_it(shelf: Shelf, fields: tuple[str, ...], repaired: bool) -> None:  # noqa: FBT001 - a parameter
    shelf.write(
        "deploy",
        "\n".join(["---", "name: deploy", "description: d", *fields, "---", ""]).replace(
            "description: d\ndescription", "description"
        ),
    )
    (skill,) = shelf.load().skills
    assert (skill.for_people is not None) is repaired
    assert "repaired_yaml" in shelf.warnings()


POLICY = "interface:\n  display_name: Deploy\npolicy:\n  allow_implicit_invocation: {}\n"


@pytest.mark.parametrize(
    ("data", "kept", "told"),
    [
        (POLICY.format("false"), True, False),
        (POLICY.format("'False'"), True, False),
        ("---\n" + POLICY.format("no"), True, False),
        ("\ufeff" + POLICY.format("false"), True, False),
        (POLICY.format("false").replace("\n", "\r\n"), True, False),
        ("allow_implicit_invocation: false\n", True, False),
        (POLICY.format("false") + "tools: [unclosed\n", True, False),
        (POLICY.format("perhaps"), True, True),
        (POLICY.format("true"), False, False),
        (POLICY.format(""), False, False),
        ("interface:\n  display_name: Deploy\n", False, False),
        ("policy: [unclosed\n", False, False),
        ("", False, False),
        ("- a list\n", False, False),
        (b"\xff\xfe\x00policy", False, False),
    ],
)
def test_the_policy_of_codex_counts(shelf: Shelf, data: str | bytes, kept: bool, told: bool) -> None:  # noqa: FBT001 - parameters
    shelf.skill("deploy")
    shelf.write("deploy", data, file="agents/openai.yaml")
    (skill,) = shelf.load().skills
    assert (skill.for_people is not None) is kept
    if kept:
        assert skill.for_people == "allow_implicit_invocation in agents/openai.yaml"
    expected = [("bad_optional_field", "deploy/agents/openai.yaml")] if told else []
    assert shelf.problems(Severity.WARNING) == expected


def test_a_policy_that_cannot_be_read_keeps_the_skill(
    shelf: Shelf, tmp_path_factory: pytest.TempPathFactory
) -> None:
    outside = tmp_path_factory.mktemp("outside")
    (outside / "openai.yaml").write_text(POLICY.format("true"))
    shelf.skill("leads-out")
    (shelf.root / "leads-out" / "agents").symlink_to(outside)
    shelf.skill("is-no-file")
    (shelf.root / "is-no-file" / "agents" / "openai.yaml").mkdir(parents=True)
    shelf.skill("shared")
    (shelf.root / "shared" / "agents").symlink_to("../of-all")
    shelf.write("of-all", POLICY.format("false"), file="openai.yaml")
    shelf.skill("plain")
    (shelf.root / "plain" / "agents").write_text("a file of that name")
    assert shelf.render().listed == ("plain",)
    assert shelf.problems(Severity.WARNING) == [
        ("bad_optional_field", "is-no-file/agents/openai.yaml"),
        ("bad_optional_field", "leads-out/agents/openai.yaml"),
    ]


def test_it_is_in_no_search_and_cannot_be_activated_in_any_phase(shelf: Shelf) -> None:
    shelf.skill("deploy", "disable-model-invocation: true", "metadata: {symphony-phases: TEST}")
    for name in ("one", "two", "three"):
        shelf.skill(name, "description: deploy it")
    for options in (SkillOptions(search_above=2), SkillOptions(phase="BUILD"), SkillOptions(phase="TEST")):
        found = load(shelf.workspace, options)
        offer = AvailableSkills.of(found, render(found, options), workspace=shelf.workspace, options=options)
        assert offer is not None
        assert "deploy" not in offer.activations().names
        assert "| deploy" not in offer.find("deploy")
        assert "- deploy " not in offer.find("deploy", limit=20)


@pytest.mark.parametrize(
    "options", [{"for_people": True}, {"labelled": frozenset({"deploy"})}], ids=["setting", "label"]
)
def test_a_setting_and_a_person_who_calls_for_it_show_it(shelf: Shelf, options: dict[str, object]) -> None:
    shelf.skill("Deploy", "disable-model-invocation: true")
    assert shelf.render(**options).listed == ("Deploy",)


@pytest.mark.parametrize("options", [{"include": ("deploy",)}, {"labelled": frozenset({"tidy"})}])
def test_a_filter_and_another_name_do_not(shelf: Shelf, options: dict[str, object]) -> None:
    shelf.skill("deploy", "disable-model-invocation: true")
    assert shelf.render(**options).listed == ()


def test_disabled_is_said_before_kept_for_people(shelf: Shelf) -> None:
    shelf.skill("deploy", "disable-model-invocation: true")
    assert [one.reason for one in shelf.render(disabled_skills=("deploy",)).dropped] == [DropReason.DISABLED]


def test_a_lone_skill_as_path_counts_too(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path)
    shelf.skill("deploy")
    shelf.write("deploy", POLICY.format("false"), file="agents/openai.yaml")
    assert shelf.render(path=".symphony/skills/deploy").listed == ()


def test_in_a_text_that_is_no_yaml_the_first_line_that_keeps_it_counts() -> None:
    text = b"disable-model-invocation: false\nname: [\ndisable-model-invocation: true # for people\n"
    found = line_for_people(text)
    assert found is not None
    assert (found.key, found.clear) == ("disable-model-invocation", True)
    assert line_for_people(b"disable-model-invocation: false\nname: [\n") is None
