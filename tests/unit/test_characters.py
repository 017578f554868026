"""Characters that no one sees."""

import sys
import unicodedata

import pytest

from symphony.characters import has_hidden, has_ignorable, visible, without_ignorable

# Default_Ignorable_Code_Point of https://www.unicode.org/Public/14.0.0/ucd/DerivedCoreProperties.txt
IGNORABLE = (
    "00AD 034F 061C 115F-1160 17B4-17B5 180B-180D 180E 180F 200B-200F 202A-202E 2060-2064 2065 2066-206F "
    "3164 FE00-FE0F FEFF FFA0 FFF0-FFF8 1BCA0-1BCA3 1D173-1D17A E0000 E0001 E0002-E001F E0020-E007F "
    "E0080-E00FF E0100-E01EF E01F0-E0FFF"
)
NEEDED = [
    "\u26a0\ufe0f",
    "1\ufe0f\u20e3",
    "\U0001f469\u200d\U0001f4bb",
    "\u2764\ufe0f\u200d\U0001f525",
    "\u0645\u06cc\u200c\u062e\u0648",
    "\u0915\u094d\u200d\u0937",
]


def ignorable() -> set[str]:
    found: set[str] = set()
    for part in IGNORABLE.split():
        first, _, last = part.partition("-")
        found |= {chr(point) for point in range(int(first, 16), int(last or first, 16) + 1)}
    return found


def test_the_table_is_that_of_unicode() -> None:
    every = map(chr, range(sys.maxunicode + 1))
    assert {one for one in every if has_ignorable(one)} == ignorable()


@pytest.mark.parametrize("around", ["Wait{}.", "a{}b", "{}", "\u26a0\ufe0f{}", "\u0645{} "])
def test_every_ignorable_character_is_hidden_shown_as_an_escape_and_removed(around: str) -> None:
    for one in ignorable():
        text = around.format(one)
        assert has_hidden(text), text.encode("unicode_escape")
        assert f"\\{one.encode('unicode_escape').decode()[1:]}" in visible(text)
        assert one not in without_ignorable(text).removeprefix("\u26a0\ufe0f")


def test_controls_and_what_is_no_character_are_hidden() -> None:
    for point in [*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029, 0xD800, 0xE000, 0xFFF9, 0xFFFF]:
        assert has_hidden(f"a{chr(point)}b") == (chr(point) != "\t")


@pytest.mark.parametrize("text", [*NEEDED, "10\u00a0s", "\u3000", "e\u0301", "\u65e5\u672c", "\ttab"])
def test_what_writing_needs_is_not(text: str) -> None:
    assert not has_hidden(text)
    assert without_ignorable(text) == text


@pytest.mark.parametrize("text", [*NEEDED, "e\u0301", "\u65e5\u672c", "\ttab\n"])
def test_nor_is_it_shown_as_an_escape(text: str) -> None:
    assert visible(text) == text


@pytest.mark.parametrize("text", NEEDED)
def test_a_second_one_and_one_elsewhere_are(text: str) -> None:
    shaping = next(one for one in text if has_ignorable(one))
    assert has_hidden(text.replace(shaping, shaping * 2))
    assert has_hidden(f"a{shaping}b")
    assert not has_ignorable(without_ignorable(text, needed=False))


def test_escapes_are_readable() -> None:
    assert visible("a\u202eb\x1b\ue000\ud800\n\t") == "a\\u202eb\\x1b\\ue000\\ud800\n\t"
    assert unicodedata.category("\ufe0f") == "Mn", "which counts as printable"
    assert visible("a\ufe0fb") == "a\\ufe0fb"
