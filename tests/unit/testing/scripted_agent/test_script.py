import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from symphony.testing.scripted_agent.script import (
    AppendStep,
    ApprovalStep,
    CommitStep,
    ExitStep,
    FailStep,
    InputStep,
    RunStep,
    SayStep,
    ScriptError,
    SkillStep,
    SleepStep,
    Step,
    ToolStep,
    WaitStep,
    WriteStep,
    block,
    parse,
    path_of,
    value_in,
)


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        ({"say": "hi"}, SayStep(text="hi")),
        ({"skill": "tidy"}, SkillStep(name="tidy")),
        ({"skill": "tidy", "value_of": "prefix"}, SkillStep(name="tidy", value_of="prefix")),
        ({"write": "a", "text": "b"}, WriteStep(path="a", text="b")),
        ({"append": "a", "text": "b"}, AppendStep(path="a", text="b")),
        ({"run": "a | b"}, RunStep(argv=("bash", "-c", "a | b"))),
        ({"run": ["a", "b"], "may_fail": True}, RunStep(argv=("a", "b"), may_fail=True)),
        ({"commit": "m"}, CommitStep(message="m")),
        ({"tool": "t"}, ToolStep(name="t", arguments={})),
        (
            {"tool": "t", "arguments": {"a": 1}, "may_fail": True},
            ToolStep(name="t", arguments={"a": 1}, may_fail=True),
        ),
        ({"ask_approval": ["a"]}, ApprovalStep(argv=("a",))),
        ({"ask_input": "q"}, InputStep(question="q")),
        ({"sleep_ms": 5}, SleepStep(duration_ms=5)),
        ({"wait_for": "f"}, WaitStep(path="f")),
        ({"fail": "m"}, FailStep(message="m")),
        ({"exit": 0}, ExitStep(code=0)),
    ],
)
def test_each_kind_of_step_is_read(step: dict[str, object], expected: Step) -> None:
    read = parse(f"Title\n\n{block([step])}\nrest")
    assert read == ((expected,),)
    assert type(read[0][0]) is type(expected)


def test_a_prompt_without_a_block_has_no_script() -> None:
    assert parse("Say `scripted` or\n```json\n[]\n```\n") is None


def test_the_first_of_two_blocks_counts() -> None:
    assert parse(block([{"say": "one"}]) + "\n" + block([{"say": "two"}])) == ((SayStep(text="one"),),)


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_line_ends_do_not_matter(newline: str) -> None:
    prompt = newline.join(["before", "```scripted", '[[{"say": "x"}]]', "```", "after"])
    assert parse(prompt) == ((SayStep(text="x"),),)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("[", "scripted block: not JSON"),
        ("{}", "scripted block: not a list of turns"),
        ('[{"say": "x"}]', "scripted block: turn 1 is not a list of steps"),
        ("[[1]]", "scripted block: turn 1, step 1 is not an object"),
        ('[[], [{"say": "x"}, {}]]', "scripted block: turn 2, step 2 needs exactly one of say, skill, "),
        ('[[{"say": "x", "run": "y"}]]', "turn 1, step 1 needs exactly one of"),
        ('[[{"say": "x", "text": "y"}]]', "turn 1, step 1 has an unknown key 'text'"),
        ('[[{"say": 1}]]', "turn 1, step 1: 'say' is not text"),
        ('[[{"write": "a"}]]', "turn 1, step 1: 'text' is not text"),
        ('[[{"run": []}]]', "'run' is neither text nor a list of texts"),
        ('[[{"run": ["a", 1]}]]', "'run' is neither text nor a list of texts"),
        ('[[{"run": "a", "may_fail": 1}]]', "'may_fail' is neither true nor false"),
        ('[[{"tool": "a", "arguments": []}]]', "'arguments' is not an object"),
        ('[[{"sleep_ms": -1}]]', "'sleep_ms' is not a whole number from 0 up"),
        ('[[{"exit": true}]]', "'exit' is not a whole number from 0 up"),
    ],
)
def test_a_wrong_script_is_refused_with_its_place(content: str, said: str) -> None:
    with pytest.raises(ScriptError) as refused:
        parse(f"```scripted\n{content}\n```")
    assert said in str(refused.value)


@given(st.lists(st.lists(st.text(), max_size=3), max_size=3))
def test_whatever_is_said_survives_the_block(texts: list[list[str]]) -> None:
    prompt = block(*[[{"say": text} for text in turn] for turn in texts])
    assert parse(prompt) == tuple(tuple(SayStep(text=text) for text in turn) for turn in texts)


@given(st.text())
def test_no_text_in_a_block_breaks_the_reader(content: str) -> None:
    try:
        script = parse(f"```scripted\n{content}\n```")
    except ScriptError:
        return
    assert script is None or isinstance(script, tuple)


def test_a_block_is_readable_json() -> None:
    assert json.loads(block([{"say": "é"}]).split("\n", 1)[1].rsplit("```", 1)[0]) == [[{"say": "é"}]]


BLOCK = """Phase text mentions - tidy — here.

## Available skills
Supplied by the repository. Read `/w s/.symphony/skills/<directory>/SKILL.md` before you follow one.

- release (directory: rel (2)) — when a version (or two) is cut
- ship (directory `ship it`) — (directory: elsewhere)
- tidy — before each commit
- tidy-more
- mine (file: /home/u/my skills/mine/SKILL.md) — (file: /etc/SKILL.md)

# Something else
- later — not a skill
"""


@pytest.mark.parametrize("place", ["<directory>", "{directory}"])
@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("tidy", "/w s/.symphony/skills/tidy/SKILL.md"),
        ("tidy-more", "/w s/.symphony/skills/tidy-more/SKILL.md"),
        ("release", "/w s/.symphony/skills/rel (2)/SKILL.md"),
        ("ship", "/w s/.symphony/skills/ship it/SKILL.md"),
        ("mine", "/home/u/my skills/mine/SKILL.md"),
        ("later", None),
        ("tid", None),
    ],
)
def test_a_listed_skill_is_found_below_the_root_of_the_block(name: str, path: str | None, place: str) -> None:
    assert path_of(BLOCK.replace("<directory>", place), name) == path


@pytest.mark.parametrize(
    "instructions",
    ["", "## Available skills\n- tidy — no root is said\n", "### Available skills\n- tidy — x\n"],
)
def test_without_a_block_nothing_is_found(instructions: str) -> None:
    assert path_of(instructions, "tidy") is None


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ("---\nname: x\ncommit-prefix: no\n---\nText\n\n- `commit-prefix: docs`\n", None, "docs"),
        ("commit-prefix: docs\r\n", None, "docs"),
        ("Signed-off-by: A Person\n", None, "A Person"),
        ("**Scope**: api\n", "scope", "api"),
        ("Scope and more\n", "scope", None),
        ("nothing\n", None, None),
    ],
)
def test_a_value_is_read_from_the_body_and_not_from_the_front_matter(
    text: str, key: str | None, value: str | None
) -> None:
    assert value_in(text, key) == value
