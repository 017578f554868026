"""What git says of merges, read without git."""

import pytest

from symphony.workspaces.rehearsal import (
    ConflictKind,
    LineSpan,
    conflict_lines,
    overlapping,
    parse_changed,
    parse_merges,
)

ONE, TWO, TREE = "1" * 40, "2" * 40, "a" * 40
LABELS = (ONE, TWO)


def stage(number: int, path: bytes, mode: int = 100644) -> bytes:
    return b"%d %s %d\t%s\0" % (mode, b"f" * 40, number, path)


def told(name: bytes, *paths: bytes) -> bytes:
    return b"%d\0%s%s\0a sentence\n\0" % (len(paths), b"".join(path + b"\0" for path in paths), name)


def conflict(stages: bytes, messages: bytes) -> bytes:
    return b"0\0%s\0%s\0%s\0" % (TREE.encode(), stages, messages)


CLEAN = b"1\0%s\0\0" % TREE.encode()


def test_results_are_read_in_order_whatever_their_paths_are() -> None:
    path = b"0\n1 CONFLICT\xff"
    messages = told(b"Auto-merging", path) + told(b"CONFLICT (contents)", path)
    output = CLEAN + conflict(b"".join(stage(n, path) for n in (1, 2, 3)), messages) + CLEAN
    first, second, third = parse_merges(output, [LABELS] * 3)
    assert (first.clean, second.clean, third.clean) == (True, False, True)
    assert (second.tree, list(second.files)) == (TREE, [path])
    assert second.files[path].kind is ConflictKind.CONTENT


def test_advice_behind_the_messages_ends_them() -> None:
    stages = stage(2, b"m", 160000) + stage(3, b"m", 160000)
    output = b"0\0%s\0%s\0%sRecursive merging is hard.\n\0" % (
        *(TREE.encode(), stages),
        told(b"CONFLICT (submodule)", b"m"),
    )
    found, after = parse_merges(output + CLEAN, [LABELS] * 2)
    assert found.files[b"m"].kind is ConflictKind.SUBMODULE
    assert after.clean


@pytest.mark.parametrize("output", [b"", CLEAN, CLEAN + b"0\0" + TREE.encode(), CLEAN + b"x\0"])
def test_an_incomplete_answer_is_an_error(output: bytes) -> None:
    with pytest.raises(ValueError, match=r"early|invalid"):
        parse_merges(output, [LABELS] * 2)


@pytest.mark.parametrize(
    ("name", "stages", "kind"),
    [
        (b"CONFLICT (contents)", (2, 3), ConflictKind.ADDED),
        (b"CONFLICT (binary)", (1, 2, 3), ConflictKind.BINARY),
        (b"CONFLICT (modify/delete)", (1, 3), ConflictKind.DELETED),
        (b"CONFLICT (rename/delete)", (1, 3), ConflictKind.RENAMED),
        (b"CONFLICT (rename involved in collision)", (1, 2, 3), ConflictKind.RENAMED),
        (b"CONFLICT (file/directory)", (2,), ConflictKind.DIRECTORY),
        (b"CONFLICT (directory rename suggested)", (3,), ConflictKind.DIRECTORY),
        (b"CONFLICT (file location)", (3,), ConflictKind.DIRECTORY),
        (b"CONFLICT (distinct modes)", (2, 3), ConflictKind.MODE),
        (b"CONFLICT (something new)", (2, 3), ConflictKind.OTHER),
    ],
    ids=lambda value: value.decode() if isinstance(value, bytes) else None,
)
def test_each_name_of_git_has_a_kind(name: bytes, stages: tuple[int, ...], kind: ConflictKind) -> None:
    output = conflict(b"".join(stage(number, b"f") for number in stages), told(name, b"f"))
    (found,) = parse_merges(output, [LABELS])
    assert found.files[b"f"].kind is kind


def test_changed_paths_belong_to_their_pair_also_where_a_pair_has_none() -> None:
    pairs = [(TREE, ONE), (TREE, TREE), (TREE, TWO)]
    headers = [f"{a} {b}\n".encode() for a, b in pairs]
    output = headers[0] + b"a\0b\nc\0" + headers[1] + headers[2] + b"d\0"
    assert parse_changed(output, pairs) == [frozenset({b"a", b"b\nc"}), frozenset(), frozenset({b"d"})]


def test_branches_overlap_by_a_path_and_by_a_path_below_one() -> None:
    changed = {
        "A": frozenset({b"src/a", b"x"}),
        "B": frozenset({b"src"}),
        "C": frozenset({b"x"}),
        "D": frozenset({b"srcs/a"}),
    }
    assert overlapping(changed) == [("A", "B"), ("A", "C")]


def test_many_branches_with_the_same_many_files_are_compared_in_time() -> None:
    paths = frozenset(b"d/f%d" % number for number in range(5_000))
    assert len(overlapping({f"N-{number}": paths for number in range(100)})) == 4_950


def merged(*parts: bytes) -> bytes:
    """A file in which each part between two others is in conflict: `ours|theirs`."""
    text = b""
    for place, part in enumerate(parts):
        if place % 2:
            ours, theirs = part.split(b"|")
            text += b"<<<<<<< %s\n%s=======\n%s>>>>>>> %s\n" % (ONE.encode(), ours, theirs, TWO.encode())
        else:
            text += part
    return text


def test_lines_count_in_each_version_also_behind_what_only_the_other_has() -> None:
    text = merged(b"new in ours\na\nb\n", b"x\n|y\nz\n", b"c\n", b"|p\n", b"d\n")
    ours, theirs = b"new in ours\na\nb\nx\nc\nd\n", b"a\nb\ny\nz\nc\np\nd\n"
    assert conflict_lines(text, ours, LABELS, theirs=False) == (
        LineSpan(first=4, last=4),
        LineSpan(first=6, last=6),
    )
    assert conflict_lines(text, theirs, LABELS, theirs=True) == (
        LineSpan(first=3, last=4),
        LineSpan(first=6, last=6),
    )


def test_markers_that_a_file_has_itself_are_lines_of_it() -> None:
    own = b"<<<<<<< HEAD\na\n=======\nb\n>>>>>>> x\n"
    assert conflict_lines(merged(own, b"x\n|y\n"), own + b"y\n", LABELS, theirs=True) == (
        LineSpan(first=6, last=6),
    )


@pytest.mark.parametrize("own", [b"", b"a\n"], ids=["empty", "one line"])
def test_an_empty_side_has_a_line_of_its_version(own: bytes) -> None:
    (found,) = conflict_lines(merged(own, b"x\n|"), own, LABELS, theirs=True)
    assert found.first == found.last == 1


def test_versions_that_differ_too_much_have_no_lines() -> None:
    other = b"".join(b"%d\n" % number for number in range(5_000))
    assert conflict_lines(merged(b"a\n", b"x\n|y\n"), other, LABELS, theirs=True) == ()
