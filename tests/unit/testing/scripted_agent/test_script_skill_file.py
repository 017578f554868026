import pytest

from symphony.testing.scripted_agent.script import path_of, value_in

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
