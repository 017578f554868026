import pytest
from hypothesis import given
from hypothesis import strategies as st

from symphony.frontmatter import FrontMatterError, Split, split


def test_the_front_matter_stands_between_two_fences() -> None:
    assert split(b"---\na: 1\n---\nbody\n") == Split(
        front=b"a: 1\n", front_line=2, body_offset=13, body_line=4, bom=False, closed=True
    )


def test_blanks_and_crlf_are_fine_on_both_fences() -> None:
    found = split(b"--- \t\r\na: 1\r\n---  \r\nbody")
    assert found is not None
    assert (found.front, found.closed, found.body_line) == (b"a: 1\r\n", True, 4)


def test_a_byte_order_mark_is_skipped_and_flagged() -> None:
    data = b"\xef\xbb\xbf---\na: 1\n---\nbody"
    found = split(data)
    assert found is not None
    assert found.bom
    assert data[found.body_offset :] == b"body"


def test_the_file_may_end_right_after_the_closing_fence() -> None:
    found = split(b"---\na: 1\n---")
    assert found is not None
    assert found.closed
    assert (found.body_offset, found.body_line) == (12, 3)


def test_the_fences_may_touch() -> None:
    found = split(b"---\n---\nbody")
    assert found is not None
    assert (found.front, found.body_offset, found.body_line, found.closed) == (b"", 8, 3, True)


def test_only_the_first_later_fence_closes() -> None:
    found = split(b"---\na: 1\n---\nbody\n---\nmore")
    assert found is not None
    assert found.front == b"a: 1\n"


@pytest.mark.parametrize(
    "front", [b"a: |\n  ---\n", b"a: 1\n----\n", b"a: 1\n--- b\n", b" ---\n", b"a: --\n\r---\n", b"a\r---\n"]
)
def test_what_is_no_fence_does_not_close(front: bytes) -> None:
    found = split(b"---\n" + front + b"---\n")
    assert found is not None
    assert found.front == front


@pytest.mark.parametrize(
    "data",
    [b"", b"\n---\na: 1\n---\n", b"# Title\n", b"----\n", b" ---\n", b"--- a\n", b"--", b"```yaml\n---\n"],
)
def test_without_a_fence_on_the_first_line_there_is_no_front_matter(data: bytes) -> None:
    assert split(data) is None


@pytest.mark.parametrize("data", [b"---", b"---\n", b"---\na: 1\nb", b"---   "])
def test_without_a_closing_fence_everything_is_front_matter(data: bytes) -> None:
    found = split(data)
    assert found is not None
    assert not found.closed
    assert found.front == data.lstrip(b"-").lstrip(b" ").removeprefix(b"\n")
    assert found.body_offset == len(data)


def test_front_matter_beyond_the_limit_is_refused() -> None:
    assert split(b"---\n12345\n---\n", limit=6) is not None
    with pytest.raises(FrontMatterError) as caught:
        split(b"---\n12345\n---\n", limit=5)
    assert (caught.value.code, caught.value.line) == ("front_matter_too_large", 2)


def test_an_unclosed_front_matter_counts_against_the_limit() -> None:
    with pytest.raises(FrontMatterError):
        split(b"---\n" + b"x" * 11, limit=10)


_PIECES = st.lists(st.sampled_from([b"---", b"\n", b"\r\n", b" ", b"a: 1", b"\xef\xbb\xbf", b"\xff", b"\t"]))


@given(_PIECES.map(b"".join) | st.binary())
def test_for_any_bytes_the_pieces_make_up_the_file(data: bytes) -> None:
    found = split(data)
    if found is None:
        return
    assert found.front in data
    assert data[: found.body_offset].count(b"\n") == found.body_line - 1
    assert found.closed or found.body_offset == len(data)
    assert data.startswith(b"\xef\xbb\xbf") == found.bom
