import errno
import os
import shutil
from pathlib import Path

import pytest

from harness.small_files import files_of_at_most
from symphony.journal.transcripts import (
    MAX_PAGE,
    CommandEntry,
    MessageEntry,
    NoteEntry,
    PlanEntry,
    TranscriptEntry,
    TranscriptPlanStep,
    TranscriptWriter,
    latest,
    read_transcript,
    transcript_path,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return transcript_path(tmp_path, "run-1")


def said(seq: int, text: str = "Hello.", *, replaces: int | None = None) -> MessageEntry:
    return MessageEntry(seq=seq, at="2026-03-01T12:00:00.000Z", turn=1, text=text, replaces=replaces)


def ran(seq: int, status: str, replaces: int | None = None) -> CommandEntry:
    at = "2026-03-01T12:00:00.000Z"
    return CommandEntry(
        seq=seq, at=at, turn=1, command="ls", status=status, exit_code=None, output="", replaces=replaces
    )


def written(path: Path, *entries: TranscriptEntry) -> None:
    writer = TranscriptWriter(path)
    writer.write(entries)
    writer.close()
    assert writer.problem is None


def test_what_is_written_is_read_back_by_parts(path: Path) -> None:
    everything = tuple(said(seq, f"text {seq} \u2028 \n ünï") for seq in range(1, 11))
    written(path, *everything)
    assert path.stat().st_mode & 0o777 == 0o600
    assert len(path.read_bytes().splitlines()) == 10
    whole = read_transcript(path)
    assert (whole.entries, whole.next_after, whole.more, whole.missing) == (everything, 10, False, ())
    part = read_transcript(path, after=3, limit=4)
    assert (part.entries, part.next_after, part.more, part.missing) == (everything[3:7], 7, True, ())
    last = read_transcript(path, after=None, limit=2)
    assert (last.entries, last.next_after, last.more, last.missing) == (everything[8:], 10, False, ())
    assert read_transcript(path, after=10).next_after == 10
    assert read_transcript(path, after=99).entries == ()


def test_a_transcript_is_read_backwards(path: Path) -> None:
    everything = tuple(said(seq) for seq in range(1, 11))
    written(path, *everything)
    last = read_transcript(path, after=None, limit=4)
    assert (last.entries, last.earlier) == (everything[6:], True)
    part = read_transcript(path, after=None, before=7, limit=4)
    assert (part.entries, part.more, part.earlier, part.next_after) == (everything[2:6], True, True, 6)
    first = read_transcript(path, after=None, before=3, limit=4)
    assert (first.entries, first.more, first.earlier) == (everything[:2], True, False)
    assert read_transcript(path, after=None, before=1).entries == ()
    assert read_transcript(path, after=None, before=99, limit=2).entries == everything[8:]


def test_only_entries_with_a_text_are_read(path: Path) -> None:
    step = TranscriptPlanStep(text="Find the Needle", status="pending")
    plan = PlanEntry(seq=2, at="2026-03-01T12:00:00.000Z", turn=1, steps=(step,), text="")
    written(path, said(1, "a NEEDLE"), plan, *(said(seq) for seq in range(3, 500)), said(500, "needles"))
    found = read_transcript(path, after=None, text="needle")
    assert [entry.seq for entry in found.entries] == [1, 2, 500]
    assert (found.more, found.earlier, found.missing) == (False, False, ())
    newest = read_transcript(path, after=None, limit=2, text="needle")
    assert ([entry.seq for entry in newest.entries], newest.earlier) == ([2, 500], True)
    before = read_transcript(path, after=None, before=2, limit=2, text="needle")
    assert ([entry.seq for entry in before.entries], before.earlier) == ([1], False)
    after = read_transcript(path, after=1, limit=1, text="needle")
    assert ([entry.seq for entry in after.entries], after.more) == ([2], True)
    for nothing in ("message", "2026-03-01", "plan"):
        assert read_transcript(path, after=None, text=nothing).entries == (), "names and times are no text"


def test_any_part_of_a_large_file_is_found_and_no_part_is_too_large(path: Path) -> None:
    written(path, *(said(seq, "x" * 20_000) for seq in range(1, 1_001)))
    for after in (0, 1, 499, 998):
        part = read_transcript(path, after=after, limit=2)
        assert [entry.seq for entry in part.entries] == [after + 1, after + 2]
        assert part.missing == ()
    page = read_transcript(path, limit=MAX_PAGE)
    assert page.more
    assert sum(len(entry.text) for entry in page.entries if isinstance(entry, MessageEntry)) < 4 * 1024 * 1024
    last = read_transcript(path, after=None)
    assert last.entries[-1].seq == 1_000
    assert last.missing == ()
    assert len(last.entries) < 250


def test_damage_costs_only_what_is_damaged_and_is_stated(path: Path) -> None:
    written(path, *(said(seq) for seq in range(1, 7)))
    lines = path.read_bytes().splitlines(keepends=True)
    lines[1] = lines[1][:20] + b"\n"
    lines[2] = b"\x00\xff" * 40 + b"\n"
    lines[4] = lines[0]  # a number again
    path.write_bytes(b"".join(lines)[:-5])
    page = read_transcript(path)
    assert [entry.seq for entry in page.entries] == [1, 4]
    gap, damage = page.missing
    assert "2 to 3" in gap
    assert damage.endswith(": 4")
    assert damage not in read_transcript(path, live=True).missing  # the last line is being written
    path.write_bytes(b"x" * 3_000_000 + b"\n" + lines[0])
    assert [entry.seq for entry in read_transcript(path).entries] == [1]


@pytest.mark.parametrize("kind", ["absent", "link", "fifo", "directory", "hard link", "folder is a link"])
def test_what_is_not_a_file_of_the_daemon_is_not_read(path: Path, kind: str) -> None:
    other = path.parents[1] / "other"
    other.mkdir()
    foreign = transcript_path(other, "run-1")
    written(foreign, said(1, "foreign"))
    if kind != "folder is a link":
        path.parent.mkdir()
    match kind:
        case "link":
            path.symlink_to(foreign)
        case "fifo":
            os.mkfifo(path)
        case "directory":
            path.mkdir()
        case "hard link":
            os.link(foreign, path)
        case "folder is a link":
            path.parent.symlink_to(foreign.parent)
        case _:
            pass
    page = read_transcript(path)
    assert page.entries == ()
    assert len(page.missing) == 1


def test_a_planted_file_is_not_written_to_and_the_reason_is_known(path: Path) -> None:
    path.parent.mkdir()
    target = path.parent / "target"
    target.write_text("")
    path.symlink_to(target)
    writer = TranscriptWriter(path)
    writer.write([said(1)])
    assert writer.problem is not None
    assert target.read_text() == ""
    path.unlink()
    writer.write([said(2)])
    writer.close()
    page = read_transcript(path)
    assert [entry.seq for entry in page.entries] == [2]
    assert page.missing == ("entry 1 is missing",)


def test_a_write_that_fails_in_the_middle_loses_entries_and_damages_none(path: Path) -> None:
    writer = TranscriptWriter(path)
    writer.write([said(1)])
    with files_of_at_most(path.stat().st_size + 10):
        writer.write([said(2), said(3)])
    assert writer.problem == os.strerror(errno.EFBIG)
    writer.write([said(4)])
    writer.close()
    page = read_transcript(path)
    assert [entry.seq for entry in page.entries] == [1, 4]
    assert page.missing == ("entries 2 to 3 are missing",)


def test_a_transcript_has_a_largest_size_and_says_so_once(path: Path) -> None:
    writer = TranscriptWriter(path, max_bytes=2_000)
    for seq in range(1, 30):
        writer.write([said(seq, "x" * 100)])
    writer.close()
    assert writer.problem is not None
    page = read_transcript(path)
    assert path.stat().st_size < 2_500
    assert isinstance(page.entries[-1], NoteEntry)
    assert page.entries[-1].text == writer.problem
    assert page.missing == ()


def test_of_work_the_latest_entry_stands_where_the_first_one_stood() -> None:
    started, words, ended = ran(1, "started"), said(2), ran(3, "completed", replaces=1)
    assert latest([started, words, ended]) == (ended, words)
    assert latest([words, ended]) == (words, ended)


def test_without_its_folder_the_writer_makes_it_again(path: Path) -> None:
    path.parent.mkdir()
    shutil.rmtree(path.parent)
    written(path, said(1))
    assert len(read_transcript(path).entries) == 1
