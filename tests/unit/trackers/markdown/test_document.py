from datetime import UTC, datetime

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from symphony.frontmatter import quote, quote_list
from symphony.trackers.markdown.document import (
    IssueDraft,
    MalformedError,
    instant,
    parse_issue,
    parse_parts,
    render_issue,
    replace_body,
    replace_scalar,
)

MOMENT = datetime(2026, 11, 27, 10, 15, tzinfo=UTC)
TEXT = st.text(min_size=1, max_size=60).filter(lambda text: text.strip() != "")
SAMPLE = b"""---
# kept
title: 'Fix: the "thing"'   # why
state: Todo  # first
custom: {a: [1, 2]}
labels: [Bug, " bug ", UI]
priority: 2
assignee: ann
blocked_by: [SYM-3]
created: 2026-11-27T10:15:00Z
---

Body with --- and {{ liquid }}
"""


def test_every_field_is_read() -> None:
    fields = parse_issue(SAMPLE)
    assert fields.title == 'Fix: the "thing"'
    assert fields.state == "Todo"
    assert fields.labels == ("bug", "ui")
    assert fields.priority == 2
    assert fields.assignee == "ann"
    assert fields.blocked_by == ("SYM-3",)
    assert fields.created == MOMENT
    assert fields.description == "Body with --- and {{ liquid }}"


@pytest.mark.conformance("T-4")
@pytest.mark.parametrize("value", ["0", "5", "-1", "high", "2.5", "[1]", '""', "~"])
def test_a_priority_that_does_not_rank_is_null(value: str) -> None:
    assert parse_issue(f"---\ntitle: a\nstate: b\npriority: {value}\n---\n".encode()).priority is None


@pytest.mark.conformance("T-4")
@pytest.mark.parametrize(
    ("value", "usable"),
    [
        ("2026-11-27T10:15:00Z", True),
        ("2026-11-27t10:15:00.123456789+01:00", True),
        ("2026-11-27", False),
        ("2026-11-27T10:15:00", False),
        ("2026-13-27T10:15:00Z", False),
        ("20261127T101500Z", False),
        ("tomorrow", False),
        (None, False),
    ],
)
def test_only_rfc_3339_times_count(value: str | None, usable: bool) -> None:  # noqa: FBT001 - a parameter of the table
    assert (instant(value) is not None) is usable


@pytest.mark.conformance("T-3")
def test_names_may_be_one_text_with_commas() -> None:
    fields = parse_issue(b"---\ntitle: a\nstate: b\nlabels: One, two\nblocked_by: SYM-1, SYM-2\n---\n")
    assert fields.labels == ("one", "two")
    assert fields.blocked_by == ("SYM-1", "SYM-2")


@pytest.mark.parametrize("value", ["{a: b}", "[[SYM-1]]", "[SYM-1, {x: y}]"])
def test_blockers_that_cannot_be_understood_are_not_taken_for_none(value: str) -> None:
    fields = parse_issue(f"---\ntitle: a\nstate: b\nblocked_by: {value}\n---\n".encode())
    assert fields.blockers_problem is not None


@pytest.mark.parametrize("value", ["", "~", "[]", '""'])
def test_no_blockers_may_be_said_in_many_ways(value: str) -> None:
    fields = parse_issue(f"---\ntitle: a\nstate: b\nblocked_by: {value}\n---\n".encode())
    assert (fields.blocked_by, fields.blockers_problem) == ((), None)


@pytest.mark.parametrize(
    ("data", "line", "words"),
    [
        (b"just text\n", 1, "no front matter"),
        (b"", 1, "no front matter"),
        (b"---\ntitle: a\nstate: b\n", 1, "no line `---` closes it"),
        (b"---\nstate: b\n---\n", 1, "no `title`"),
        (b"---\ntitle: a\n---\n", 1, "no `state`"),
        (b"---\ntitle: a\nstate:\n---\n", 3, "`state`"),
        (b'---\ntitle: " "\nstate: b\n---\n', 2, "`title`"),
        (b"---\ntitle: [a]\nstate: b\n---\n", 2, "`title`"),
        (b"---\ntitle: a\nstate: b\nstate: c\n---\n", 4, "twice"),
        (b"---\ntitle: a\nstate: [b\n---\n", 3, ""),
        (b"---\n- a\n---\n", 2, "map"),
        (b"---\ntitle: a\nstate: b\n---\nfine\nbad \xff\n", 6, "UTF-8"),
        (b"\xff", 1, "UTF-8"),
        (b"---\ntitle: a\nstate: &x b\nassignee: *x\n---\n", 4, "alias"),
        (b"---\ntitle: " + b"x" * 70_000 + b"\nstate: b\n---\n", 2, "larger"),
    ],
)
def test_a_malformed_file_is_refused_with_its_line(data: bytes, line: int, words: str) -> None:
    with pytest.raises(MalformedError) as caught:
        parse_issue(data)
    assert words in caught.value.message
    if words:
        assert caught.value.line == line


def test_a_move_changes_only_the_bytes_of_the_value() -> None:
    changed = replace_scalar(SAMPLE, "state", "In Progress")
    assert changed == SAMPLE.replace(b"state: Todo  # first", b"state: In Progress  # first")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"state: Todo", b"state: Done"),
        (b"state:   Todo   ", b"state:   Done   "),
        (b"'state': 'To''do'", b"'state': Done"),
        (b'"state" : "To\\"do" # x', b'"state" : Done # x'),
        (b"state: a#b", b"state: Done"),
        (b"state: Todo\r", b"state: Done\r"),
        (b"state: T\xc3\xb6do", b"state: Done"),
    ],
)
def test_the_rest_of_the_line_stays(before: bytes, after: bytes) -> None:
    data = b"\xef\xbb\xbf---\r\ntitle: a\r\n" + before + b"\n# end\n---\r\nbody\r\n\r\n  tail"
    assert replace_scalar(data, "state", "Done") == data.replace(before, after)


@pytest.mark.parametrize(
    "front",
    [
        b"{title: a, state: Todo}",
        b"title: a\nstate: >-\n  Todo",
        b"title: a\nstate: To\n  do",
        b'title: a\nstate: "To\n  do"',
        b"title: a\nstate:\n  Todo",
        b"title: a\nstate: !!str Todo",
        b"title: a\n? state\n: Todo",
    ],
)
def test_a_value_that_is_not_on_one_plain_line_is_refused_not_mangled(front: bytes) -> None:
    data = b"---\n" + front + b"\n---\n"
    assert parse_issue(data).title == "a"
    with pytest.raises(MalformedError, match="safely"):
        replace_scalar(data, "state", "Done")


def test_a_key_that_is_not_there_cannot_be_changed() -> None:
    with pytest.raises(MalformedError, match="no `owner`"):
        replace_scalar(SAMPLE, "owner", "x")


def test_a_new_body_leaves_the_front_matter_alone() -> None:
    changed = replace_body(SAMPLE, "\nnew\n\n")
    assert changed == SAMPLE[: SAMPLE.index(b"\nBody")] + b"\nnew\n"
    assert parse_parts(replace_body(SAMPLE, "")).body == ""


@given(TEXT)
def test_any_text_reads_back_from_its_quoted_form(text: str) -> None:
    parts = parse_parts(f"---\na: {quote(text)}\nb: {quote_list([text, text])}\n---\n".encode())
    assert parts.values == {"a": text, "b": [text, text]}


@given(title=TEXT, state=TEXT, body=st.text(max_size=200), labels=st.lists(TEXT, max_size=3))
def test_any_new_issue_reads_back(title: str, state: str, body: str, labels: list[str]) -> None:
    data = render_issue(IssueDraft(title=title, state=state, description=body, labels=tuple(labels)), MOMENT)
    parts = parse_parts(data)
    assert (parts.values["title"], parts.values["state"]) == (title, state)
    assert parts.values.get("labels", []) == labels
    assert parts.body.strip("\r\n") == body.strip("\r\n")


@given(TEXT)
def test_any_state_can_be_written_into_a_file_and_no_other_line_changes(state: str) -> None:
    changed = replace_scalar(SAMPLE, "state", state)
    assert parse_parts(changed).values["state"] == state
    before, after = SAMPLE.split(b"\n"), changed.split(b"\n")
    assert [one for one, two in zip(before, after, strict=True) if one != two] in (
        [],
        [b"state: Todo  # first"],
    )


@pytest.mark.conformance("T-4")
@given(st.binary(max_size=200), st.text(min_size=1, max_size=5))
@example(b"\r\x80", "0")
def test_no_bytes_make_the_reader_or_the_writer_fail_otherwise(noise: bytes, state: str) -> None:
    for data in (noise, b"---\n" + noise + b"\n---\n", b"---\ntitle: a\nstate: b\n" + noise + b"\n---\n"):
        assert 0 <= _line_of_refusal(data, state) <= data.count(b"\n") + 1


def _line_of_refusal(data: bytes, state: str) -> int:
    try:
        parse_issue(replace_scalar(data, "state", state))
    except MalformedError as error:
        return error.line
    return 0


def test_a_lone_surrogate_is_not_written() -> None:
    with pytest.raises(ValueError, match="Unicode"):
        quote("\ud800")
