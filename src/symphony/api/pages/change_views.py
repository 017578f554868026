"""The view of the page of a change: the files of one part of it, and the review that is being written."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final
from urllib.parse import urlencode

from msgspec import Struct, structs

from symphony.api import models
from symphony.api.pages.lines import (
    CodeLine,
    FilePatch,
    Hunk,
    Segment,
    coloured,
    parse_patch,
    with_changed_words,
)
from symphony.domain import LineComment

FILES_SHOWN: Final = 50
"""How many files are on one page."""
LINES_OPEN: Final = 1_500
"""How many changed lines of all files are unfolded."""
FILE_LINES_OPEN: Final = 400
"""Files with more changed lines are folded; they have their own page."""
MAX_ROWS: Final = 6_000
"""How many lines one page has at most."""
CONTEXT: Final = 3
MORE_CONTEXT: Final = (20, 200, 100_000)
"""How many lines around a change are shown on demand."""
_MAX_LINE_CHARS: Final = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The parts of the change that the address selects.

    Attributes:
        since: an earlier head to compare with.
        until: an earlier head to show instead of the last one.
        part: which part of the files, from 1.
        file: the position of the only file to show.
        context: how many lines around its changes.
        at: the line to comment on in `file`: `n` or `o` and its number.
    """

    since: str | None = None
    until: str | None = None
    part: int = 1
    file: int | None = None
    context: int = CONTEXT
    at: str = ""


class LineRemark(Struct, frozen=True, kw_only=True):
    """A drafted comment with its number in the draft."""

    number: int
    shown: LineComment
    stale: bool


class Row(Struct, frozen=True, kw_only=True):
    """A row of a file.

    Attributes:
        line: the line of the file; `None` for a gap.
        gap: how many lines are hidden here; 0 if unknown.
        heading: the function or section of the lines below.
        more: the page that shows hidden lines.
        comment_on: the page with a form for a comment on the line.
        anchor: the id of the row.
        is_open: whether the form is here.
        remarks: drafted comments on the line.
    """

    line: CodeLine | None = None
    gap: int = 0
    heading: str = ""
    more: str | None = None
    comment_on: str | None = None
    anchor: str = ""
    is_open: bool = False
    remarks: tuple[LineRemark, ...] = ()


class FileView(Struct, frozen=True, kw_only=True):
    """A file of the page.

    Attributes:
        place: its position in the change, from 0.
        file: the document.
        rows: its lines; none if it is folded or has none.
        note: why there are no lines, or another remark.
        alone: the page with only this file.
        cut: whether more lines change than are shown.
    """

    place: int
    file: models.ReviewFile
    rows: tuple[Row, ...]
    note: str | None
    alone: str
    cut: bool


class ChangeView(Struct, frozen=True, kw_only=True):
    """The page of a change.

    Attributes:
        review: the document, reduced to what this page needs.
        files: the files of this part.
        count: how many files there are.
        first, last: the numbers of the first and last file of this part.
        earlier, later: pages with other parts.
        whole: the page with all of the change; `None` if this is it.
        news: the page with what is new since the person last looked; `None` if nothing is.
        remarks: the drafted comments.
        address: the address of the whole change.
        path: the path of this page, to return to it.
        may_decide: whether this browser may give orders.
        text: the drafted comment on the selected line.
    """

    review: models.Review
    files: tuple[FileView, ...]
    count: int
    first: int
    last: int
    earlier: str | None
    later: str | None
    whole: str | None
    news: str | None
    remarks: tuple[LineRemark, ...]
    address: str
    path: str
    may_decide: bool
    text: str


def wanted_files(review: models.Review, asked: Asked) -> tuple[int, ...]:
    """The positions of the files whose lines the page shows."""
    if asked.file is not None:
        return tuple(place for place in _part(review, asked) if _has_lines(review.files[place]))
    left, found = LINES_OPEN, list[int]()
    for place in _part(review, asked):
        file = review.files[place]
        size = (file.insertions or 0) + (file.deletions or 0)
        if _has_lines(file) and not file.viewed and size <= min(left, FILE_LINES_OPEN):
            found.append(place)
            left -= size
    return tuple(found)


def change_view(
    review: models.Review, asked: Asked, patches: Mapping[int, str], path: str, *, may_decide: bool
) -> ChangeView:
    """The page of a change at this path; `patches` are the patches of `wanted_files`."""
    remarks = tuple(
        LineRemark(number=number, shown=one, stale=one.head != review.head)
        for number, one in enumerate(review.comments)
    )
    places, left = _part(review, asked), MAX_ROWS
    files = list[FileView]()
    # Comments belong to the whole change: a line of an earlier head may no longer exist.
    may_comment = may_decide and asked.since is None
    for place in places:
        view = _file(review, asked, place, patches.get(place), path, remarks, left, may_comment=may_comment)
        left -= len(view.rows)
        files.append(view)
    draft = _find_remark(remarks, review, asked)
    return ChangeView(
        review=structs.replace(review, generated_at=""),
        files=tuple(files),
        count=len(review.files) + review.files_left_out,
        first=places.start + 1 if places else 0,
        last=places.stop,
        earlier=_to(path, asked, part=asked.part - 1) if asked.file is None and asked.part > 1 else None,
        later=_to(path, asked, part=asked.part + 1)
        if asked.file is None and places.stop < len(review.files)
        else None,
        whole=path if asked.file is not None or asked.since or asked.until else None,
        news=f"{path}?{urlencode({'since': review.looked_at})}"
        if review.looked_at and not asked.since and not asked.until
        else None,
        address=path,
        remarks=remarks,
        path=_to(path, replace(asked, at="")),
        may_decide=may_decide,
        text="" if draft is None else draft.shown.text,
    )


def _part(review: models.Review, asked: Asked) -> range:
    if asked.file is not None:
        return range(asked.file, min(asked.file + 1, len(review.files)))
    first = min((asked.part - 1) * FILES_SHOWN, len(review.files))
    return range(first, min(first + FILES_SHOWN, len(review.files)))


def _has_lines(file: models.ReviewFile) -> bool:
    return file.insertions is not None and not file.is_link


def _to(path: str, asked: Asked, **changes: int | str | None) -> str:
    """The address of a part of the page, with the file as fragment."""
    asked = replace(asked, **changes)  # type: ignore[arg-type]  # the fields of `Asked`
    commits = (("since", asked.since), ("until", asked.until))
    pairs = [(name, commit) for name, commit in commits if commit]
    if asked.file is not None:
        pairs.append(("file", str(asked.file)))
        pairs += [("context", str(asked.context))] if asked.context != CONTEXT else []
    elif asked.part != 1:
        pairs.append(("part", str(asked.part)))
    pairs += [("at", asked.at)] if asked.at else []
    return f"{path}?{urlencode(pairs)}" if pairs else path


def _file(
    review: models.Review,
    asked: Asked,
    place: int,
    text: str | None,
    path: str,
    remarks: tuple[LineRemark, ...],
    room: int,
    *,
    may_comment: bool,
) -> FileView:
    file = review.files[place]
    alone = _to(path, replace(asked, at=""), file=place)
    patch = FilePatch(hunks=(), modes=None) if text is None else parse_patch(text)
    changed = sum(line.kind != "same" for hunk in patch.hunks for line in hunk.lines)
    is_partial = text is not None and changed < (file.insertions or 0) + (file.deletions or 0)
    patch = coloured(with_changed_words(patch), file.path)
    own = [one for one in remarks if one.shown.file in {file.path, file.old_path}]
    asks = replace(asked, at="", file=place)
    rows = islice(_rows(patch, asks, path, own, asked.at, may_comment=may_comment), room + 1)
    found = tuple(rows)
    return FileView(
        place=place,
        file=file,
        rows=found[:room],
        note=_note(file, patch, is_shown=text is not None),
        alone=alone,
        cut=len(found) > room or is_partial,
    )


def _note(file: models.ReviewFile, patch: FilePatch, *, is_shown: bool) -> str | None:
    if file.is_link:
        return "a link to a commit of another repository"
    if file.insertions is None:
        return "binary or larger than 1 MiB: its lines are not compared"
    if patch.modes is not None:
        return patch.modes
    if is_shown and not patch.hunks:
        return "no line of it changes" if file.status in {"renamed", "copied", "modified"} else "it is empty"
    return None


def _rows(
    patch: FilePatch, asks: Asked, path: str, remarks: list[LineRemark], at: str, *, may_comment: bool
) -> Iterator[Row]:
    wider = next((size for size in MORE_CONTEXT if size > asks.context), None)
    more = None if wider is None else _to(path, asks, context=wider)
    for hunk in patch.hunks:
        if hunk.before or hunk.heading:
            yield Row(gap=hunk.before, heading=hunk.heading, more=more if hunk.before else None)
        for line in hunk.lines:
            side, number = ("o", line.old) if line.new is None else ("n", line.new)
            name = f"{side}{number}"
            yield Row(
                line=replace(line, segments=tuple(_shortened(line.segments))),
                anchor=f"f{asks.file}{name}",
                comment_on=f"{_to(path, asks, at=name)}#at" if may_comment else None,
                is_open=may_comment and at == name,
                remarks=tuple(
                    one for one in remarks if one.shown.line == number and one.shown.old is (side == "o")
                ),
            )
    if patch.hunks and more is not None and not _ends_the_file(patch.hunks[-1], asks.context):
        yield Row(more=more)


def _ends_the_file(hunk: Hunk, context: int) -> bool:
    """Whether fewer lines than asked for follow the last change, as below it there are no more."""
    return any(line.kind != "same" for line in hunk.lines[-context:])


def _shortened(segments: Iterable[Segment]) -> Iterator[Segment]:
    left = _MAX_LINE_CHARS
    for classes, text in segments:
        if len(text) > left:
            yield classes, f"{text[:left]}…"
            return
        left -= len(text)
        yield classes, text


def _find_remark(remarks: tuple[LineRemark, ...], review: models.Review, asked: Asked) -> LineRemark | None:
    if asked.file is None or asked.file >= len(review.files):
        return None
    file = review.files[asked.file]
    return next(
        (
            one
            for one in remarks
            if one.shown.file in {file.path, file.old_path}
            and asked.at == f"{'o' if one.shown.old else 'n'}{one.shown.line}"
        ),
        None,
    )
