import json
import math
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from symphony.frontmatter import MAX_EVENTS, FrontMatterError, FrontMatterMap, Profile, dump, load, quote_list

pytestmark = pytest.mark.usefixtures("parser")


def text(front: str) -> dict[str, Any]:
    return load(front.encode(), profile=Profile.TEXT).value


def core(front: str) -> dict[str, Any]:
    return load(front.encode(), profile=Profile.CORE).value


def attempt(front: bytes, profile: Profile) -> tuple[FrontMatterMap | None, FrontMatterError | None]:
    try:
        return load(front, profile=profile, first_line=5), None
    except FrontMatterError as error:
        return None, error


def failure(front: str | bytes, profile: Profile = Profile.TEXT) -> tuple[str, int, int]:
    data = front if isinstance(front, bytes) else front.encode()
    with pytest.raises(FrontMatterError) as caught:
        load(data, profile=profile)
    return caught.value.code, caught.value.line, caught.value.column


@pytest.mark.parametrize("front", ["", "\n\n", "# only a comment\n", "~\n", "null", "--- \n"])
def test_empty_front_matter_is_an_empty_map(front: str) -> None:
    assert text(front) == {}


def test_the_text_profile_keeps_the_text_of_the_file() -> None:
    assert text("a: 1.10\nb: yes\nc: 0x1F\nd: 2024-01-01\ne: 'null'\nf: !!int 5\n") == {
        "a": "1.10",
        "b": "yes",
        "c": "0x1F",
        "d": "2024-01-01",
        "e": "null",
        "f": "5",
    }


@pytest.mark.parametrize("profile", list(Profile))
def test_only_an_unquoted_null_is_none(profile: Profile) -> None:
    front = b"a:\nb: ~\nc: null\nd: ''\ne: \"~\"\nf: [NULL, 'null']\n"
    assert load(front, profile=profile).value == {
        "a": None,
        "b": None,
        "c": None,
        "d": "",
        "e": "~",
        "f": [None, "null"],
    }


@pytest.mark.parametrize(
    ("scalar", "value"),
    [
        ("true", True),
        ("FALSE", False),
        ("yes", "yes"),
        ("no", "no"),
        ("on", "on"),
        ("12", 12),
        ("-7", -7),
        ("+7", 7),
        ("010", 10),
        ("0o17", 15),
        ("0x1F", 31),
        ("-0x1F", "-0x1F"),
        ("1_000", "1_000"),
        ("1:30", "1:30"),
        ("1.10", 1.1),
        (".5", 0.5),
        ("2.", 2.0),
        ("1e3", 1000.0),
        ("-.inf", -math.inf),
        (".INF", math.inf),
        ("2024-01-01", "2024-01-01"),
        ("0o8", "0o8"),
        ("'12'", "12"),
        ('"true"', "true"),
        ("9" * 401, "9" * 401),
        ("!!str 5", 5),
        ("٣", "٣"),
    ],
)
def test_core_scalars_are_those_of_yaml_1_2(scalar: str, value: object) -> None:
    read = core(f"a: {scalar}")["a"]
    assert (type(read), read) == (type(value), value)


def test_core_reads_not_a_number() -> None:
    assert math.isnan(core("a: .nan")["a"])


def test_keys_stay_text_in_the_order_of_the_file() -> None:
    assert list(core("2: b\n1: a\ntrue: c\n~: d\n'': e\n")) == ["2", "1", "true", "~", ""]


def test_merge_keys_are_ordinary_keys() -> None:
    assert core("base: &b {x: 1}\nnext: {<<: *b, y: 2}\n")["next"] == {"<<": {"x": 1}, "y": 2}


def test_an_alias_is_a_copy_of_its_own() -> None:
    value = core("a: &x [1, {b: c}]\nb: *x\n")
    assert value["a"] == value["b"] == [1, {"b": "c"}]
    assert value["a"] is not value["b"]
    assert value["a"][1] is not value["b"][1]


def test_the_latest_anchor_of_a_name_counts() -> None:
    assert core("a: &x 1\nb: &x 2\nc: *x\n") == {"a": 1, "b": 2, "c": 2}


def test_an_alias_inside_an_anchored_value_is_expanded_with_it() -> None:
    assert core("a: &x 1\nb: &y [*x, *x]\nc: *y\n")["c"] == [1, 1]


def test_an_anchor_without_an_alias_is_harmless_text() -> None:
    assert text("a: &x 1\n") == {"a": "1"}


def test_an_alias_is_refused_in_text() -> None:
    assert failure("a: &x 1\nb: *x\n") == ("alias_not_allowed", 3, 4)


@pytest.mark.parametrize(
    ("front", "place"),
    [("a: *x\n", (2, 4)), ("a: &x [1, *x]\n", (2, 11)), ("a: &x {b: *x}\n", (2, 11))],
)
def test_an_alias_must_name_something_complete(front: str, place: tuple[int, int]) -> None:
    assert failure(front, Profile.CORE) == ("alias_not_allowed", *place)


def test_an_alias_of_a_map_cannot_be_a_key() -> None:
    assert failure("a: &x {b: c}\n*x : d\n", Profile.CORE) == ("invalid_yaml", 3, 1)


def test_expansion_is_bounded() -> None:
    front = "a0: &a0 [1,1,1,1,1,1,1,1,1,1]\n" + "".join(
        f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 10)
    )
    assert failure(front, Profile.CORE)[0] == "too_many_events"


def test_depth_is_counted_after_expansion() -> None:
    front = f"a: &x {'[' * 15}{']' * 15}\nb: {'[' * 10}*x{']' * 10}\n"
    assert failure(front, Profile.CORE)[0] == "too_deep"


def test_twenty_levels_are_fine_and_twenty_one_are_not() -> None:
    assert text(f"a: {'[' * 19}{']' * 19}")
    assert failure(f"a: {'[' * 20}{']' * 20}") == ("too_deep", 2, 23)


def test_five_thousand_events_are_fine_and_one_more_is_not() -> None:
    assert len(text("".join(f"k{n}: v\n" for n in range(2_499)))) == 2_499
    assert failure("".join(f"k{n}: v\n" for n in range(2_500))) == ("too_many_events", 2_501, 8)


@pytest.mark.parametrize("front", ["a: 1\n'a': 2\n", 'a: 1\n"a": 2\n', "a: 1\na:\n"])
def test_a_key_given_twice_is_an_error_where_it_is_repeated(front: str) -> None:
    assert failure(front, Profile.CORE) == ("duplicate_key", 3, 1)


def test_a_repeated_nested_key_may_be_allowed_and_is_listed() -> None:
    front = b"a: {x: 1, x: 2}\nb:\n- y: 1\n  y: 2\n"
    document = load(front, profile=Profile.TEXT, allow_nested_duplicates=True)
    assert document.value == {"a": {"x": "2"}, "b": [{"y": "2"}]}
    assert document.duplicates == (("a", (2, 11)), ("b", (5, 3)))
    with pytest.raises(FrontMatterError):
        load(b"a: 1\na: 2\n", profile=Profile.TEXT, allow_nested_duplicates=True)


def test_an_alias_of_a_scalar_may_be_a_key() -> None:
    assert core("a: &x 1\n*x : b\n") == {"a": 1, "1": "b"}


@pytest.mark.parametrize("front", ["? [a]\n: b\n", "{a: b}: c\n"])
def test_a_key_must_be_a_scalar(front: str) -> None:
    assert failure(front) == ("invalid_yaml", 2, front.index("[a]" if "?" in front else "{") + 1)


@pytest.mark.parametrize("front", ["- a\n", "just text\n", "'~'\n", "[a]\n", "''\n"])
def test_anything_else_is_not_a_mapping(front: str) -> None:
    assert failure(front) == ("not_a_mapping", 2, 1)


@pytest.mark.parametrize("front", ["a: 1\n...\nb: 2\n", "a: 1\n--- {b: 2}\n"])
def test_a_second_document_is_refused(front: str) -> None:
    assert failure(front)[0] == "invalid_yaml"


@pytest.mark.parametrize(
    ("front", "place"),
    [
        ("a: b: c\n", (2, 5)),
        ("a: 1\nb: [c\n", (3, 4)),
        ("a: 1\nb: 'c\n", (3, 4)),
        ("a:\n\t- b\n", (3, 1)),
        ("é: 1\nb: é\x07x\n", (3, 5)),
        ("a: 1\nb: @c\n", (3, 4)),
        ("%YAML 9.9\n", None),
    ],
)
def test_broken_yaml_says_where_and_never_what(front: str, place: tuple[int, int] | None) -> None:
    code, *found = failure(front)
    assert code == "invalid_yaml"
    assert place is None or tuple(found) == place


@pytest.mark.parametrize("escape", ['"\\ud83d\\ude00"', '"\\udfff"', '"\\U00110000"'])
def test_escapes_that_are_no_characters_are_errors(escape: str) -> None:
    assert failure(f"a: {escape}\n")[0] == "invalid_yaml"


def test_bytes_that_are_not_utf8_are_found_where_they_stand() -> None:
    assert failure("a: 1\né: ".encode() + b"\xff\n") == ("not_utf8", 3, 4)


def test_size_is_checked_before_anything_is_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yaml, "CBaseLoader", None)
    with pytest.raises(FrontMatterError, match="line 7, column 1: front_matter_too_large"):
        load(b"a: 12\n", profile=Profile.CORE, first_line=7, max_bytes=5)


def test_messages_hold_no_text_of_the_file() -> None:
    for front in ("a: sesame: b", "sesame: 1\nsesame: 2", "a: *sesame", "a: @sesame", "%sesame"):
        with pytest.raises(FrontMatterError) as caught:
            load(front.encode(), profile=Profile.TEXT)
        assert "sesame" not in str(caught.value)


@pytest.mark.parametrize("error", [RecursionError, yaml.MarkedYAMLError])
def test_an_error_of_the_parser_without_a_place_points_at_the_start(
    monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    def broken(_: str) -> Any:
        raise error

    for name in ("CBaseLoader", "BaseLoader"):
        monkeypatch.setattr(yaml, name, broken)
    assert failure("a: 1\n") == ("invalid_yaml", 2, 1)


def test_every_value_has_the_place_of_its_key() -> None:
    document = load(b"a: 1\nb:\n  c: {d: e}\n  f:\n  - g\n  -   h: i\n", profile=Profile.CORE, first_line=10)
    assert document.positions == {
        ("a",): (10, 1),
        ("b",): (11, 1),
        ("b", "c"): (12, 3),
        ("b", "c", "d"): (12, 7),
        ("b", "f"): (13, 3),
        ("b", "f", 0): (14, 5),
        ("b", "f", 1): (15, 7),
        ("b", "f", 1, "h"): (15, 7),
    }


def test_values_of_an_alias_keep_their_original_position() -> None:
    document = load(b"a: &x {k: 1}\nb: *x\nc: [*x]\n", profile=Profile.CORE)
    assert document.positions["b",] == (3, 1)
    assert document.positions["b", "k"] == (2, 8)
    assert document.positions["c", 0] == (4, 5)


def test_only_a_line_feed_counts_as_a_line() -> None:
    front = 'a: "x\u2028y\u0085z"\r\nb: 1\r\n'
    assert load(front.encode(), profile=Profile.TEXT).positions["b",] == (3, 1)


_PIECES = (
    *(
        "a",
        "b",
        "1",
        "~",
        ": ",
        ":",
        "\n",
        "  ",
        "- ",
        "[",
        "]",
        "{",
        "}",
        ", ",
        "&x ",
        "*x",
        "? ",
        "|\n",
        ">-\n",
    ),
    *("'", '"', "\\ud83d", "\\U00110000", "!", "!!map ", "%YAML 1.1\n", "---", "...", "\t", "#", "\x00", "@"),
    *("\r", "\u2028", "\ufeff", "<<"),
)
_YAML_ISH = st.lists(st.sampled_from(_PIECES), max_size=40).map("".join)


@given(
    front=st.binary() | st.text().map(str.encode) | _YAML_ISH.map(str.encode),
    profile=st.sampled_from(Profile),
)
def test_for_any_bytes_load_returns_or_raises_its_own_error(front: bytes, profile: Profile) -> None:
    for with_libyaml in (True, False):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(yaml, "__with_libyaml__", with_libyaml)
            document, error = attempt(front, profile)
        if error is not None:
            assert 5 <= error.line <= 5 + front.count(b"\n")
            assert error.column >= 1
        if document is not None:
            str(document.value).encode()
            assert len(document.positions) >= len(document.value)


_WORDS = st.text(st.characters(categories=["L", "N", "P", "S", "Zs"]), max_size=20)
_LEAVES = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | _WORDS
)
_VALUES = st.recursive(
    _LEAVES,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text("abcé", min_size=1, max_size=5), inner, max_size=4)
    ),
    max_leaves=15,
)


_TEXTS = st.text() | _YAML_ISH


@given(st.lists(_TEXTS, min_size=1, max_size=3))
@example(["\r0: A"])
def test_texts_are_those_of_safe_load(texts: list[str]) -> None:
    """Where both read a value as text, it is the same text: quoted, plain, or over several lines."""
    front = "".join(f"k{index}: {text}\n" for index, text in enumerate(texts))
    try:
        ours = load(front.encode(), profile=Profile.TEXT).value
        theirs = yaml.safe_load(front)
    except (FrontMatterError, yaml.YAMLError, ValueError, LookupError, ArithmeticError):
        return
    for key, value in theirs.items() if isinstance(theirs, dict) else ():
        if isinstance(key, str) and isinstance(value, str):  # our keys are always text
            assert ours[key] == value


@given(st.dictionaries(st.text("abc", min_size=1, max_size=4), _VALUES, max_size=4))
def test_core_reads_back_any_json(value: dict[str, Any]) -> None:
    assert core(json.dumps(value, ensure_ascii=False)) == value


@pytest.mark.parametrize("item", ["x", "[]", "{}"])
def test_a_list_of_too_many_items_is_refused(item: str) -> None:
    assert failure("a:\n" + f"- {item}\n" * MAX_EVENTS)[0] == "too_many_events"


def test_a_list_of_any_words_reads_back() -> None:
    words = ["plain", "two words", "no", "1", "# not a comment", "", "a: b", "é\n"]
    assert core(f"a: {quote_list(words)}") == {"a": words}


@given(
    st.dictionaries(
        st.text("abc", min_size=1, max_size=4), _VALUES | st.text("0129eExob.+-_", max_size=6), max_size=4
    )
)
def test_what_is_dumped_reads_back(values: dict[str, Any]) -> None:
    assert core(dump(values)) == values


@pytest.mark.parametrize(
    ("front", "line"),
    [
        ('a: 1\nb: "open\nc: d\ne: f\n', 3),
        ("a: 1\nb: 'open\nc: d\n", 3),
        ("a: 1\nb: [x, y\nc: d\n", 3),
        ("a: 1\nb: {x: y\nc: d\ne: f\n", 3),
        ("a: 1\nb: [x,\n  y]\nc: d: e\n", 5),
        ("a: 1\n\tb: c\n", 3),
    ],
)
def test_the_line_of_an_error_is_where_what_is_open_begins(front: str, line: int) -> None:
    with pytest.raises(FrontMatterError) as raised:
        load(front.encode(), profile=Profile.CORE)
    assert raised.value.line == line


@pytest.mark.parametrize("depth", [20, 25, 100, 500, 1_000, 1_100, 5_000])
@pytest.mark.parametrize(("begin", "end"), [("[", "]"), ("[", ""), ("{k: ", "}"), ("\n" + "- ", "")])
def test_one_rule_for_every_depth(begin: str, end: str, depth: int) -> None:
    first, rest = (begin, begin) if not begin.startswith("\n") else (begin, begin[1:])
    front = f"a: {first}{rest * (depth - 1)}1{end * depth}\n"
    for profile in Profile:
        with pytest.raises(FrontMatterError) as raised:
            load(front.encode(), profile=profile)
        assert raised.value.code.value == "too_deep"
