"""Makes drafts of proposals: compares the agent's files with the skills that it got. Blocks.

The agent may have left anything there: links, pipes, other kinds of files, or too many files.
"""

import os
from collections.abc import Collection, Iterator, Mapping
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Final

from msgspec import Struct, structs

from symphony.files import open_regular
from symphony.library.model import MAX_CONTENT_BYTES, LibraryError, SkillDraft, SkillText
from symphony.skills import FILE_NAME, MAX_FIELD

_MAX_FILES: Final = 1_000
_MAX_DRAFTS: Final = 20
_MAX_FILE_BYTES: Final = MAX_CONTENT_BYTES + 64 * 1024


class GivenSkill(Struct, frozen=True, kw_only=True):
    """A skill that the agent found in its directory: its id and version in the library, and the file."""

    skill_id: int | None = None
    version: int
    data: bytes


class FoundDrafts(Struct, frozen=True, kw_only=True):
    """The files of an agent: drafts of proposals, names of skills, and why other files are not skills."""

    drafts: tuple[SkillDraft, ...] = ()
    created: tuple[str, ...] = ()
    updated: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


def read_drafts(
    skills: Path,
    given: Mapping[str, GivenSkill],
    *,
    more: Path | None = None,
    ignored: Collection[Path] = (),
    refused: Mapping[str, str] = MappingProxyType({}),
    bare: bool = False,
) -> FoundDrafts:
    """Compare the skill files in a directory with those that the agent got.

    A missing skill counts as unchanged, because no agent removes skills from the library. If two files have
    one name, the first one that differs from the given text counts, and the other is a problem.

    Args:
        skills: the directory; it is not read if it is a link.
        given: the given skills by name.
        more: a second directory, for agents that write elsewhere.
        ignored: files that do not belong to the library.
        refused: names that no agent may give to a skill, with the reason.
        bare: whether files without front matter count too.

    Raises:
        LibraryError: there are more changed skills than a person can judge.
    """
    originals = {name: SkillText.of_file(one.data, name) for name, one in given.items()}
    changed: dict[str, SkillText] = {}
    problems = []
    for root in (skills, more):
        for name, path in () if root is None else skill_files(root):
            if path in ignored:
                continue
            shown = "/".join(path.parts[len(skills.parts) if root is skills else -2 :])
            try:
                text = _text(read_content(path), name, originals.get(name), bare=bare)
                if text == originals.get(text.name):
                    continue
                _refuse(text.name, refused, changed)
            except LibraryError as error:
                problems.append(f"{shown}: {error.failure.message}")
            except OSError as error:
                problems.append(f"{shown}: {error.strerror}")
            else:
                changed[text.name] = text
            if len(changed) > _MAX_DRAFTS:
                raise LibraryError(f"the agent changed more than {_MAX_DRAFTS} skills")
    return FoundDrafts(
        drafts=tuple(
            SkillDraft(text=text, base_version=given[name].version, skill_id=given[name].skill_id)
            if name in given
            else SkillDraft(text=text, base_version=0)
            for name, text in changed.items()
        ),
        created=tuple(sorted(changed.keys() - given.keys())),
        updated=tuple(sorted(changed.keys() & given.keys())),
        unchanged=tuple(sorted(given.keys() - changed.keys())),
        problems=tuple(problems[:_MAX_DRAFTS]),
    )


def _refuse(name: str, refused: Mapping[str, str], changed: Collection[str]) -> None:
    if name in refused:
        raise LibraryError(refused[name])
    if name in changed:
        raise LibraryError(f"another file has the skill {name}")


def skill_files(skills: Path) -> Iterator[tuple[str, Path]]:
    """The names and paths of possible skill files: `<name>/SKILL.md` and `<name>.md`."""
    if skills.is_symlink() or not skills.is_dir():
        return
    with os.scandir(skills) as entries:
        found = list(islice(entries, _MAX_FILES))
    for entry in sorted(found, key=lambda one: one.name):
        path = Path(entry.path)
        if entry.is_dir(follow_symlinks=False):
            if os.path.lexists(path / FILE_NAME):
                yield entry.name.replace("_", "-"), path / FILE_NAME
        elif path.suffix == ".md":
            yield path.stem.replace("_", "-"), path


def _text(data: bytes, name: str, original: SkillText | None, *, bare: bool) -> SkillText:
    """Read a skill file.

    Without front matter it gets that of the original, or its first line as description.
    """
    if not bare or data.lstrip(b"\xef\xbb\xbf").startswith(b"---"):
        return SkillText.of_file(data, name)
    try:
        content = data.decode()
    except UnicodeDecodeError as error:
        raise LibraryError("it is not UTF-8") from error
    if original is not None:
        return structs.replace(original, content=content).checked()
    lines = (line.strip("# \t\r") for line in content.splitlines())
    description = next(filter(None, lines), "")[:MAX_FIELD]
    return SkillText(name=name, description=description, when_to_use="", content=content).checked()


def read_content(path: Path) -> bytes:
    """The bytes of a regular file; no link is followed.

    Raises:
        LibraryError: it is not a skill file.
        OSError: it cannot be read.
    """
    stream = open_regular(path)
    if stream is None:
        raise LibraryError("it is not a file")
    with stream:
        data = stream.read(_MAX_FILE_BYTES + 1)
    if len(data) > _MAX_FILE_BYTES:
        raise LibraryError(f"it has more than {_MAX_FILE_BYTES:,} bytes")
    return data
