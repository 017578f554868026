"""What an agent wrote becomes a version only as plain prose, and nothing returns that people turned down."""

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Final

import pytest
from msgspec import structs

from attack.conftest import Rounds
from symphony.library.gate import needs_no_person
from symphony.library.model import Authorship, Evidence, LibraryError, SkillText
from symphony.library.store import Library

ME: Final = Authorship(author="ada")
AGENT: Final = Authorship(author="codex", run_id="r-1")
EVIDENCE: Final = Evidence(run_id="r-1")
WORDS: Final = tuple("wait for the tests then read a long note twice and say what it means".split())  # noqa: SIM905
# Default_Ignorable_Code_Point of Unicode, each range by its ends.
IGNORABLE: Final = (
    (0xAD, 0xAD), (0x34F, 0x34F), (0x61C, 0x61C), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F),
    (0x200B, 0x200F), (0x202A, 0x202E), (0x2060, 0x206F), (0x3164, 0x3164), (0xFE00, 0xFE0F),
    (0xFEFF, 0xFEFF), (0xFFA0, 0xFFA0), (0xFFF0, 0xFFF8), (0x1BCA0, 0x1BCA3), (0x1D173, 0x1D17A),
    (0xE0000, 0xE0FFF),
)  # fmt: skip
FIELDS: Final = ("description", "when_to_use", "content")


def sentence(random: Random) -> str:
    words = random.choices(WORDS, k=random.randint(3, 9))
    return f"{' '.join(words).capitalize()}{random.choice('.!?')}"


def prose(random: Random) -> str:
    return random.choice([" ", "\n", "\n\n", "\n- "]).join(
        sentence(random) for _ in range(random.randint(1, 5))
    )


def skill(random: Random, name: str = "notes") -> SkillText:
    return SkillText(name=name, description=sentence(random), when_to_use="", content=f"{prose(random)}\n")


def hidden(random: Random) -> str:
    return chr(random.randint(*random.choice(IGNORABLE)))


def between(random: Random, text: str, added: str) -> str:
    """The text with something at a random place, also within a word."""
    at = random.randrange(len(text) + 1)
    return text[:at] + added + text[at:]


def in_capitals(random: Random, text: str) -> str:
    return "".join(random.choice([one, one.upper()]) for one in text)


def fenced(random: Random) -> str:
    fence = random.choice("`~") * random.randint(3, 9)
    end = random.choice(["", f"\n{fence}"])
    begin = random.choice(["", "- ", "  ", "> "]) + fence + random.choice(["", "sh"])
    return f"\n{begin}\n{sentence(random)}{end}\n"


def indented(random: Random) -> str:
    return f"\n\n{random.choice(['    ', chr(9), '-     ', '1. ' + chr(9)])}{sentence(random)}\n"


def host(random: Random) -> str:
    name = in_capitals(
        random, random.choice(["evil.example", "a.b-c.top", "xn--e1a.de", "пример.рф", "README.md"])
    )
    name = name.replace(".", random.choice([".", "\uff0e", "\uff61", "\u3002", "[.]", "(.)", "\u2024"]))
    return (
        random.choice(["", "//", "https://", "hxxps://", "ann@", "(", "**"])
        + name
        + random.choice(["", ":80", "/x"])
    )


INJECTIONS: Final[dict[str, Callable[[Random], str]]] = {
    "command": lambda random: in_capitals(
        random, random.choice(["sudo", "npx x", "curl x", "go run x", "pip3 install x", "(bash)", "*sh*"])
    ),
    "option or path": lambda random: random.choice(["--force", "-rf", "/etc/passwd", "~/x", "$HOME", "a=b"]),
    "span": lambda random: "`" * (count := random.randint(1, 4)) + random.choice(WORDS) + "`" * count,
    "fence": fenced,
    "indented": indented,
    "host": host,
    "address": lambda random: random.choice(["10.1.2.3:80", "[::1]:80", "build:8080", "//evil", "a@b"]),
    "link": lambda random: random.choice(["[x](y)", "![x](y)", "<x:y>", "[x]: y", "[x](日)", "[x][]"]),
    "html": lambda random: random.choice(["<b>", "<!--", "</x>", "<img src=x>", "&lt;", "<x\nwait>"]),
    "escape": lambda random: random.choice(["\\x41", "\\", "\x1b[1m", "\x00", "a\rb", "\u2028"]),
}  # fmt: skip


def test_no_injection_becomes_a_version_without_a_person_and_prose_does(rounds: Rounds) -> None:
    for random in rounds(60):
        new = skill(random)
        before = random.choice([None, structs.replace(new, content=prose(random))])
        assert needs_no_person(before, new, str)
        kind = random.choice([*INJECTIONS, "hidden", "key"])
        field = random.choice(FIELDS)
        text: str = getattr(new, field)
        if kind == "key":
            harmed = structs.replace(
                new, extra={random.choice(["hooks", "license", "x", "Allowed-Tools"]): "x"}
            )
        elif kind == "hidden":
            harmed = structs.replace(new, **{field: between(random, text, hidden(random))})
        else:
            words = text.split(" ")
            words.insert(random.randrange(len(words) + 1), INJECTIONS[kind](random))
            harmed = structs.replace(new, **{field: " ".join(words)})
        assert not needs_no_person(before, harmed, str), (kind, harmed)


def disguised(random: Random, text: str) -> str:
    """The same text for a reader: other blanks, capitals, look-alikes and hidden characters."""
    for _ in range(random.randint(1, 4)):
        match random.randrange(4):
            case 0:
                text = text.replace(" ", random.choice(["  ", "\n", "\t", "\u00a0", "\u3000"]))
            case 1:
                text = in_capitals(random, text)
            case 2:
                text = between(random, text, hidden(random))
            case _:
                start = random.choice([0xFF41, 0x1D41A, 0x24D0])  # fullwidth, bold, in circles
                for letter in random.sample("aeinst", 3):
                    text = text.replace(letter, chr(start + ord(letter) - ord("a")))
    return text


@pytest.mark.parametrize("how", ["removed", "rejected"])
def test_no_disguise_brings_back_what_people_turned_down(how: str, rounds: Rounds, tmp_path: Path) -> None:
    for number, random in enumerate(rounds(6)):
        library = Library(tmp_path / f"{number}.db")
        old = skill(random)
        if how == "removed":
            library.add(old, ME)
            library.remove(old.name, ME)
        else:
            proposal = library.propose(old, EVIDENCE, base_version=0)
            assert proposal is not None
            library.reject(proposal.id, ME.author)
        extra = random.choice([{}, {"license": "MIT"}, {"metadata": {"symphony-origin": "learned"}}])
        back = structs.replace(
            old,
            name=random.choice([old.name, "other", "notes-2"]),
            content=disguised(random, old.content),
            extra=extra,
        )
        assert library.propose(back, EVIDENCE, base_version=0) is None, back
        with pytest.raises(LibraryError, match="a person re"):
            library.add(back, AGENT)
        assert library.skills() == ()
        other = structs.replace(back, name="fresh", content=f"{old.content}{sentence(random)}\n")
        assert library.propose(other, EVIDENCE, base_version=0) is not None
        assert library.add(other, AGENT).text == other
