from pydantic_core import ErrorDetails

from symphony.config import describe_error, quoted


def test_an_error_without_words_of_ours_still_says_something() -> None:
    problem = ErrorDetails(type="date_parsing", loc=("x",), msg="", input="secret")
    assert describe_error(problem) == ("is not valid (date_parsing)", None)


def test_a_type_error_names_what_stands_there_and_never_the_value() -> None:
    def text(value: object) -> str:
        return describe_error(ErrorDetails(type="string_type", loc=("x",), msg="", input=value))[0]

    assert [text(value) for value in (True, 4711, 4711.5, [4711], {"k": 4711}, None, b"4711")] == [
        "must be text, not true or false",
        "must be text, not a number",
        "must be text, not a decimal number",
        "must be text, not a list",
        "must be text, not a map",
        "must be text, not nothing",
        "must be text, not bytes",
    ]


def test_quoted_text_is_one_short_line() -> None:
    assert quoted('a "b"\n') == '"a \\"b\\"\\n"'
    assert quoted("ä" * 60) == f'"{"ä" * 60}"'
    assert quoted("ä" * 61) == f'"{"ä" * 60}..."'
