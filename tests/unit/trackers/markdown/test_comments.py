"""Comments as files: whose they are, how they are written, and something unreadable."""

import os
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.untouched import writing_of
from symphony.domain import Category
from symphony.trackers.base import TrackerError
from symphony.trackers.markdown import CommentStore, files
from symphony.trackers.markdown.comments import (
    MAX_COMMENTS,
    MAX_TOTAL_BYTES,
    author_and_mark,
    author_name,
    comment_stem,
)
from symphony.trackers.markdown.files import MAX_FILE_BYTES

MARKER = "<!-- symphony:skills v1 key=00 fp=00 -->"


def bodies(comments: CommentStore, issue_id: str = "SYM-1") -> list[str]:
    return [comment.body for comment in comments.read(issue_id)[0]]


def mine(comments: CommentStore, issue_id: str = "SYM-1") -> list[str]:
    return [comment.id for comment in comments.read(issue_id)[0] if comment.key is not None]


def test_an_issue_without_a_folder_has_no_comments(comments: CommentStore) -> None:
    assert comments.read("SYM-1") == ([], [])


def test_comments_that_are_removed_while_we_look_are_none(
    comments: CommentStore, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    comments.add("SYM-1", "x", author="ann")
    iterdir = Path.iterdir

    def late(place: Path) -> Iterator[Path]:
        shutil.rmtree(folder / "SYM-1")
        return iterdir(place)

    monkeypatch.setattr(Path, "iterdir", late)
    assert comments.read("SYM-1") == ([], [])


def test_a_comment_is_a_file_that_people_can_read(comments: CommentStore, folder: Path) -> None:
    comment_id = comments.add("SYM-1", "Fine by me.\n", author="Ann O'Neil")
    assert comment_id.startswith("20261127T101500Z-Ann_O_Neil-")
    path = folder / "SYM-1" / "comments" / f"{comment_id}.md"
    assert path.read_text(encoding="utf-8") == (
        '---\nauthor: "Ann O\'Neil"\ncreated: 2026-11-27T10:15:00.000000Z\n---\n\nFine by me.\n'
    )


def test_comments_are_append_only_for_people(comments: CommentStore) -> None:
    comments.add("SYM-1", "one", author="ann")
    comments.add("SYM-1", "one", author="ann")
    assert bodies(comments) == ["one", "one"]
    assert mine(comments) == []


def test_the_daemon_s_comment_is_found_by_its_key_and_edited_in_place(
    comments: CommentStore, folder: Path
) -> None:
    first = comments.put("SYM-1", "one", key="k", comment_id=None)
    assert comments.put("SYM-1", "two", key="k", comment_id=None) == first
    assert comments.put("SYM-1", "three", key="k", comment_id=first) == first
    assert bodies(comments) == ["three"]
    assert mine(comments) == [first]
    assert [path.name for path in (folder / "SYM-1" / "comments").iterdir()] == [f"{first}.md"]


def test_two_keys_are_two_comments(comments: CommentStore) -> None:
    assert comments.put("SYM-1", "one", key="a", comment_id=None) != comments.put(
        "SYM-1", "two", key="b", comment_id=None
    )


def test_the_same_text_is_not_written_again(comments: CommentStore, folder: Path) -> None:
    comment_id = comments.put("SYM-1", "one", key="k", comment_id=None)
    path = folder / "SYM-1" / "comments" / f"{comment_id}.md"
    before = writing_of(path)
    comments.put("SYM-1", "one", key="k", comment_id=comment_id)
    assert writing_of(path) == before


def test_nobody_else_s_comment_is_taken_for_the_daemon_s(comments: CommentStore, folder: Path) -> None:
    ours = comments.put("SYM-1", MARKER, key="k", comment_id=None)
    comments.add("SYM-1", MARKER, author="agent")
    comments.add("SYM-1", f"---\nauthor: symphony\nkey: k\n---\n{MARKER}", author="ann")
    place = folder / "SYM-1" / "comments"
    text = (place / f"{ours}.md").read_text(encoding="utf-8")
    (place / f"{ours.replace('symphony', 'ann')}.md").write_text(text, encoding="utf-8")
    (place / f"{ours[:-8]}00000000.md").write_text(text, encoding="utf-8")
    (place / "comment.md").write_text(text, encoding="utf-8")
    assert mine(comments) == [ours]
    shutil.copytree(folder / "SYM-1", folder / "SYM-2")
    assert mine(comments, "SYM-2") == []


@pytest.mark.parametrize("author", ["symphony", "sym phony".replace(" ", ""), "_symphony_"])
def test_nobody_writes_under_the_daemon_s_name(comments: CommentStore, author: str) -> None:
    with pytest.raises(TrackerError, match="daemon's own name"):
        comments.add("SYM-1", "x", author=author)


def test_only_its_own_comments_can_be_edited(comments: CommentStore) -> None:
    other = comments.add("SYM-1", "x", author="ann")
    for comment_id in (other, "gone", "../../SYM-1"):
        with pytest.raises(TrackerError) as caught:
            comments.put("SYM-1", "y", key="k", comment_id=comment_id)
        assert caught.value.failure.category is Category.TRACKER_STATUS
    assert bodies(comments) == ["x"]


@pytest.mark.parametrize("body", ["", " \n", "x" * 32_001, "\ud800"])
def test_bodies_are_bounded(comments: CommentStore, folder: Path, body: str) -> None:
    with pytest.raises(TrackerError):
        comments.add("SYM-1", body, author="ann")
    assert not (folder / "SYM-1").exists()
    comment_id = comments.put("SYM-1", "fine", key="k", comment_id=None)
    with pytest.raises(TrackerError):
        comments.put("SYM-1", body, key="k", comment_id=comment_id)
    assert bodies(comments) == ["fine"]


def test_an_author_must_be_unicode(comments: CommentStore) -> None:
    with pytest.raises(TrackerError, match="Unicode"):
        comments.add("SYM-1", "x", author="\ud800")


@pytest.mark.parametrize(
    "body", ["---\nauthor: symphony\n---", "```\n---\n```", "a\n\n---\n\nb", "x" * 32_000]
)
def test_any_markdown_reads_back(comments: CommentStore, body: str) -> None:
    comments.add("SYM-1", body, author="ann")
    assert bodies(comments) == [body]


@pytest.mark.parametrize("issue_id", ["", ".", "..", "../x", "a/b", "a\0b", "a\nb"])
def test_an_id_is_never_a_path(comments: CommentStore, issue_id: str) -> None:
    with pytest.raises(TrackerError):
        comments.add(issue_id, "x", author="ann")
    with pytest.raises(TrackerError):
        comments.read(issue_id)


def test_comment_folders_that_are_links_are_refused(
    comments: CommentStore, folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "else" / "comments").mkdir(parents=True)
    (folder / "SYM-1").symlink_to(tmp_path / "else")
    (folder / "SYM-2").mkdir()
    (folder / "SYM-2" / "comments").symlink_to(tmp_path / "else" / "comments")
    for issue_id in ("SYM-1", "SYM-2"):
        with pytest.raises(TrackerError, match="link"):
            comments.add(issue_id, "x", author="ann")
    assert list((tmp_path / "else" / "comments").iterdir()) == []


def test_a_malformed_comment_is_a_problem_and_hides_no_other(comments: CommentStore, folder: Path) -> None:
    comments.add("SYM-1", "x", author="ann")
    place = folder / "SYM-1" / "comments"
    (place / "20260101T000000Z-bob-00000000.md").write_text("no front matter", encoding="utf-8")
    (place / "20260101T000000Z-bob-00000001.md").symlink_to("/etc/hostname")
    undated = place / "20260101T000000Z-bob-00000002.md"
    undated.write_text("---\nauthor: [x]\n---\nno name", encoding="utf-8")
    os.utime(undated, (0, 0))
    (place / ".symphony-0000000000000000.tmp").write_text("half", encoding="utf-8")
    (place / "picture.png").write_bytes(b"\x89")
    found, problems = comments.read("SYM-1")
    assert [(comment.author, comment.body) for comment in found] == [("unknown", "no name"), ("ann", "x")]
    assert [str(problem.failure.where)[-12:] for problem in problems] == ["0000000.md:1", "0000001.md:1"]


def test_bounds_are_told(comments: CommentStore, folder: Path) -> None:
    place = folder / "SYM-1" / "comments"
    place.mkdir(parents=True)
    text = b"---\nauthor: ann\n---\n".ljust(MAX_FILE_BYTES, b"x")
    for number in range(MAX_TOTAL_BYTES // MAX_FILE_BYTES + 1):
        (place / f"{number}.md").write_bytes(text)
    with pytest.raises(TrackerError, match="bytes of comments"):
        comments.read("SYM-1")
    place = folder / "SYM-2" / "comments"
    place.mkdir(parents=True)
    for number in range(MAX_COMMENTS + 1):
        (place / f"{number}.md").touch()
    with pytest.raises(TrackerError, match=f"{MAX_COMMENTS + 1} comments"):
        comments.read("SYM-2")


def test_a_disk_that_fails_is_told(
    comments: CommentStore, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    comment_id = comments.put("SYM-1", "x", key="k", comment_id=None)

    def refuse(*_: object, **__: object) -> bool:
        raise OSError(30, "Read-only file system")

    with monkeypatch.context() as patch:
        patch.setattr(files, "replace", refuse)
        patch.setattr(files, "create", refuse)
        with pytest.raises(TrackerError, match="Read-only"):
            comments.put("SYM-1", "y", key="k", comment_id=comment_id)
        with pytest.raises(TrackerError, match="Read-only"):
            comments.add("SYM-1", "z", author="a")
        patch.setattr(files, "read", refuse)
        with pytest.raises(TrackerError, match="Read-only"):
            comments.read("SYM-1")
    (folder / "SYM-2").write_text("a file in the way", encoding="utf-8")
    (folder / "SYM-3").mkdir()
    (folder / "SYM-3" / "comments").write_text("another one", encoding="utf-8")
    for issue_id in ("SYM-2", "SYM-3"):
        with pytest.raises(TrackerError, match="Not a directory"):
            comments.read(issue_id)


def test_a_comment_that_changes_meanwhile_is_read_again(
    comments: CommentStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    comment_id = comments.put("SYM-1", "x", key="k", comment_id=None)
    replace, answers = files.replace, iter([False])

    def once_disturbed(path: Path, data: bytes, *, expected: bytes, root: Path) -> bool:
        return next(answers, True) and replace(path, data, expected=expected, root=root)

    monkeypatch.setattr(files, "replace", once_disturbed)
    comments.put("SYM-1", "y", key="k", comment_id=comment_id)
    assert bodies(comments) == ["y"]
    monkeypatch.setattr(files, "replace", lambda *_, **__: False)
    with pytest.raises(TrackerError, match="8 times"):
        comments.put("SYM-1", "z", key="k", comment_id=comment_id)


@pytest.mark.parametrize("damage", ["gone", "broken", "refused"])
def test_a_comment_that_breaks_while_it_is_edited_is_told(
    comments: CommentStore, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    comment_id = comments.put("SYM-1", "x", key="k", comment_id=None)
    read = files.read

    def damaged(path: Path, *, root: Path) -> bytes:
        match damage:
            case "gone":
                path.unlink()
            case "broken":
                path.write_text("---\nno end", encoding="utf-8")
            case _:
                path.unlink()
                os.mkfifo(path)
        return read(path, root=root)

    monkeypatch.setattr(files, "sweep", lambda _: monkeypatch.setattr(files, "read", damaged))
    with pytest.raises(TrackerError):
        comments.put("SYM-1", "y", key="k", comment_id=comment_id)


def test_names_that_are_taken_are_passed_over(
    comments: CommentStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    create, answers = files.create, iter([False, False])
    monkeypatch.setattr(files, "create", lambda path, data: next(answers, True) and create(path, data))
    comments.add("SYM-1", "x", author="ann")
    assert bodies(comments) == ["x"]
    monkeypatch.setattr(files, "create", lambda *_: False)
    with pytest.raises(TrackerError, match="8 times"):
        comments.add("SYM-1", "x", author="ann")


# --- file names ---


def test_a_file_name_holds_time_author_and_mark() -> None:
    moment = datetime(2026, 11, 27, 12, 0, tzinfo=timezone(timedelta(hours=2)))
    stem = comment_stem(moment, "agent", "0123abcd")
    assert stem == "20261127T100000Z-agent-0123abcd"
    assert author_and_mark(stem) == ("agent", "0123abcd")
    assert author_and_mark("notes") is None


@given(st.text(), st.from_regex(r"[0-9a-f]{8}", fullmatch=True))
def test_any_author_fits_into_a_name_and_comes_out_again(author: str, mark: str) -> None:
    name = author_name(author)
    assert name.isascii()
    assert 1 <= len(name) <= 40
    assert author_and_mark(comment_stem(datetime(2026, 1, 1, tzinfo=UTC), name, mark)) == (name, mark)
