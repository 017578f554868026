"""Import and export of skills: finds skills in a folder, reads their files, and installs them.

A source may be hostile: folders are listed and opened through descriptors, no link leads out of the source,
and everything is bounded. Every folder with a SKILL.md is a skill, up to five levels deep. A flat `<name>.md`
that could be one is reported with what to do. A skill is installed completely or not at all, and changed
files are never overwritten without `force`.
"""

import os
import re
import shutil
import stat
import tempfile
import unicodedata
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from errno import ELOOP, ENOENT, ENOTDIR
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

from msgspec import Struct

from symphony.frontmatter import quote
from symphony.problem import Problem, Severity
from symphony.skills import loader, model
from symphony.skills.loader import path_text
from symphony.skills.parser import Parsed, ParseOptions, SkillFile, is_clean_name, parse

# --- Writing front matter; every value is quoted ---

_MAX_NAME: Final = 64
_NO_NAME: Final = re.compile(r"[^a-z0-9]+")
_DESCRIPTION: Final = "What {name} does, in one line."
_WHEN_TO_USE: Final = "When {name} applies, in the words of a task."
_BODY: Final = """\
# {name}

1. What to do first, as a command that can be run as it stands.
2. How to tell that it worked.
"""


def draft(name: str, description: str | None, when_to_use: str | None) -> str:
    """The text of a new skill with placeholders, which `is_unfilled` recognises; `name` should be clean.

    Raises:
        ValueError: a text has lone surrogates and cannot be encoded as UTF-8.
    """
    description = _DESCRIPTION.format(name=name) if description is None else description
    when_to_use = _WHEN_TO_USE.format(name=name) if when_to_use is None else when_to_use
    return _front(name=name, description=description, when_to_use=when_to_use) + _BODY.format(name=name)


def is_unfilled(name: str, description: str, when_to_use: str) -> bool:
    """Whether a skill still has a placeholder of `draft`."""
    return description == _DESCRIPTION.format(name=name) or when_to_use == _WHEN_TO_USE.format(name=name)


def suggested_name(text: str) -> str:
    """A clean name made of the text; empty if no character remains."""
    return _NO_NAME.sub("-", text.lower()).strip("-")[:_MAX_NAME].strip("-")


def _front(**values: str) -> str:
    lines = [f"{key}: {quote(value)}" for key, value in values.items()]
    return "\n".join(["---", *lines, "---", ""])


# --- Reading the files of a skill ---

MAX_FILES: Final = 500
MAX_BYTES: Final = 32 * 1024 * 1024
_MAX_DEPTH: Final = 8
_CHUNK: Final = 65_536
_GIT: Final = ".git"
_LEFT_OUT: Final = frozenset({_GIT, ".DS_Store", "__pycache__"})


class BundleError(Exception):
    """The folder cannot be copied; the message is one sentence without file content."""


class BundledFile(Struct, frozen=True, kw_only=True):
    """One file: its bytes, and whether its owner may execute it."""

    data: bytes
    executable: bool = False


class Bundle(Struct, frozen=True, kw_only=True):
    """The files of one skill, by path below its folder, with `/`; one of them is SKILL.md."""

    files: Mapping[str, BundledFile]


@dataclass(slots=True)
class Room:
    """How many bytes all readers together may still read."""

    left: int


def read_bundle(
    anchor: Path,
    parts: tuple[str, ...],
    *,
    room: Room | None = None,
    only: Collection[str] | None = None,
    any_case: bool = False,
) -> Bundle:
    """Read a folder of at most 500 files and 32 MiB.

    Links are followed and their targets are copied, unless they lead out of the anchor or into a `.git`.
    `.git`, `.DS_Store` and `__pycache__` are left out.

    Args:
        anchor: no link may lead out of it.
        parts: the path of the folder below the anchor.
        room: shared by all bundles of a source, including refused ones.
        only: names in the folder to read; `None` for all.
        any_case: use `skill.md` if there is no SKILL.md.

    Raises:
        BundleError: the folder is too large or unreadable, has a link that leads out, or has an entry that is
            neither a file nor a folder.
    """
    reader = _Reader(anchor.absolute(), room)
    try:
        descriptor = loader.open_directory(reader.anchor, parts)
        try:
            reader.walk(descriptor, parts, "", only)
        finally:
            os.close(descriptor)
    except (OSError, loader.OutsideWorkspaceError) as error:
        raise BundleError(_reason(error, "the folder")) from None
    if (
        any_case
        and model.FILE_NAME not in reader.files
        and model.FILE_NAME.replace("SKILL", "skill") in reader.files
    ):
        reader.files[model.FILE_NAME] = reader.files.pop(model.FILE_NAME.replace("SKILL", "skill"))
    if model.FILE_NAME not in reader.files:
        raise BundleError(f"there is no {model.FILE_NAME}")
    return Bundle(files=reader.files)


def read_file(anchor: Path, parts: tuple[str, ...], *, room: Room | None = None) -> BundledFile:
    """Read one file of at most 32 MiB. Raises `BundleError`, as `read_bundle`."""
    reader = _Reader(anchor.absolute(), room)
    try:
        directory = loader.open_directory(reader.anchor, parts[:-1])
        try:
            reader.take(directory, parts, parts[-1])
        finally:
            os.close(directory)
    except (OSError, loader.OutsideWorkspaceError) as error:
        raise BundleError(_reason(error, parts[-1])) from None
    if parts[-1] not in reader.files:
        raise BundleError(f"{model.clean(parts[-1])} is not a file")
    return reader.files[parts[-1]]


class _Reader:
    """Collects files up to the limits."""

    __slots__ = ("_entries", "_left", "_room", "anchor", "files")

    def __init__(self, anchor: Path, room: Room | None) -> None:
        self.anchor = anchor
        self.files: dict[str, BundledFile] = {}
        self._entries = 0
        self._left = MAX_BYTES
        self._room = Room(MAX_BYTES) if room is None else room

    def walk(
        self, directory: int, parts: tuple[str, ...], above: str, only: Collection[str] | None = None
    ) -> None:
        with os.scandir(directory) as entries:
            names = sorted(entry.name for entry in islice(entries, MAX_FILES + len(_LEFT_OUT) + 1))
        for name in names:
            if name not in _LEFT_OUT and (only is None or name in only):
                self.take(directory, (*parts, name), f"{above}{name}")

    def take(self, directory: int, parts: tuple[str, ...], path: str) -> None:
        """Read a file, or everything below a folder."""
        self._entries += 1
        if self._entries > MAX_FILES or path.count("/") > _MAX_DEPTH:
            raise BundleError(f"it has more than {MAX_FILES} files, or folders more than {_MAX_DEPTH} deep")
        try:
            if self._leads_into_git(directory, parts):
                raise BundleError(f"{model.clean(path)} is a link into {_GIT}")
            descriptor = loader.open_file(self.anchor, directory, parts)
        except (OSError, loader.OutsideWorkspaceError) as error:
            raise BundleError(_reason(error, path)) from None
        try:
            mode = os.fstat(descriptor).st_mode
            if stat.S_ISDIR(mode):
                self.walk(descriptor, parts, f"{path}/")
            elif stat.S_ISREG(mode):
                data = self._read(descriptor, path)
                self.files[path] = BundledFile(data=data, executable=bool(mode & stat.S_IXUSR))
            else:
                raise BundleError(f"{model.clean(path)} is neither a file nor a folder")
        finally:
            os.close(descriptor)

    def _leads_into_git(self, directory: int, parts: tuple[str, ...]) -> bool:
        """Whether a path is a link into a `.git`, whose configuration may contain a password."""
        if not stat.S_ISLNK(os.stat(parts[-1], dir_fd=directory, follow_symlinks=False).st_mode):
            return False
        real = os.path.realpath(self.anchor.joinpath(*parts))
        return _GIT in Path(os.path.relpath(real, os.path.realpath(self.anchor))).parts

    def _read(self, descriptor: int, path: str) -> bytes:
        data = bytearray()
        self._refuse_giant(os.fstat(descriptor).st_size, path)
        while chunk := os.read(descriptor, _CHUNK):
            data += chunk
            self._refuse_giant(len(chunk), path)
            self._left -= len(chunk)
            self._room.left -= len(chunk)
        return bytes(data)

    def _refuse_giant(self, more: int, path: str) -> None:
        if more > self._left:
            raise BundleError(f"{model.clean(path)} makes it larger than {MAX_BYTES // 1024**2} MiB")
        if more > self._room.left:
            raise BundleError("the skills of the source together are larger than one import may be")


def _reason(error: Exception, path: str) -> str:
    if isinstance(error, OSError):
        return f"{model.clean(path)} cannot be read: {error.strerror}"
    return f"{model.clean(path)} is a link that leads out of the source"


# --- Installing ---

_DIFFERS: Final = "the existing one differs; --force replaces it"


class InstallOutcome(StrEnum):
    """What was done with one skill."""

    CREATED = "created"
    UPDATED = "updated"
    UNCHANGED = "unchanged"
    SKIPPED = "skipped"


class Installed(NamedTuple):
    """Result of `install`; a skipped skill has a reason."""

    outcome: InstallOutcome
    reason: str | None = None


def install(bundle: Bundle, root: Path, directory: str, *, force: bool, dry_run: bool = False) -> Installed:
    """Write the files to `root/directory`; never raises.

    An equal folder is not touched. A different one is replaced as a whole, but only with `force`. Links are
    never followed. With `dry_run`, nothing is written.
    """
    target = root / directory
    try:
        present = _present(target)
        if present is None:
            outcome = InstallOutcome.CREATED
        elif not stat.S_ISDIR(present):
            return Installed(InstallOutcome.SKIPPED, "the target is not a folder")
        elif _equals(root, directory, bundle):
            return Installed(InstallOutcome.UNCHANGED)
        elif not force:
            return Installed(InstallOutcome.SKIPPED, _DIFFERS)
        else:
            outcome = InstallOutcome.UPDATED
        if not dry_run:
            _replace(target, bundle.files)
    except OSError as error:
        return Installed(InstallOutcome.SKIPPED, f"it cannot be written: {error.strerror}")
    return Installed(outcome)


def _present(target: Path) -> int | None:
    """The mode of an existing file or folder; links are not followed."""
    try:
        return target.lstat().st_mode
    except FileNotFoundError:
        return None


def _equals(root: Path, directory: str, bundle: Bundle) -> bool:
    try:
        return read_bundle(root, (directory,)) == bundle
    except BundleError:
        return False


def _replace(target: Path, files: Mapping[str, BundledFile]) -> None:
    """Write to a temporary folder and rename it, so that no reader sees an incomplete skill.

    The name of the temporary folder starts with a dot, so that the loader ignores it.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(dir=target.parent, prefix=".symphony-"))
    new, old = beside / "new", beside / "old"
    try:
        _write(new, files)
        try:
            target.rename(old)
        except FileNotFoundError:
            new.rename(target)
        else:
            try:
                new.rename(target)
            except OSError:
                old.rename(target)
                raise
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _write(new: Path, files: Mapping[str, BundledFile]) -> None:
    for path, file in files.items():
        to = new / path
        to.parent.mkdir(parents=True, exist_ok=True)
        mode = 0o777 if file.executable else 0o666  # limited by the umask
        descriptor = os.open(to, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        with os.fdopen(descriptor, "wb") as out:
            out.write(file.data)


# --- Finding skills ---

PLACES: Final = (
    ".symphony/skills",
    ".agents/skills",
    ".claude/skills",
    ".codex/skills",
    ".gemini/skills",
    ".github/skills",
    ".opencode/skills",
    ".cursor/skills",
    ".agent/skills",
    ".kiro/skills",
    ".windsurf/skills",
    "skills",
)
"""Usual folders of skills in repositories. If two skills have one name, the earlier folder wins."""

MAX_IMPORT_BYTES: Final = 256 * 1024 * 1024
_MAX_LEVELS: Final = 5
_MAX_FOLDERS: Final = 10_000
_MAX_NAMES: Final = 50_000
_MAX_SKILLS: Final = 2_000
_MAX_READ: Final = 65_536
_FLAT: Final = ".md"
_SKILLS: Final = "skills"
_LOWER_CASE: Final = "skill.md"
_NOT_LOOKED_AT: Final = frozenset({".git", "node_modules", "__pycache__"})
_AGENTS: Final = frozenset(place.split("/", maxsplit=1)[0] for place in PLACES if place != _SKILLS)
_OF_AN_AGENT: Final = (_SKILLS, "skill")
_OWN_PARTS: Final = frozenset(
    {model.FILE_NAME, _LOWER_CASE, "scripts", "references", "assets", "LICENSE.txt"}
)
_BELOW_A_SKILL: Final = _AGENTS | {_SKILLS, "plugins"}
_IS_FLAT: Final = "a skill is a folder with a SKILL.md: make {name}/SKILL.md of this file"
_LEADS_OUT: Final = "the folder is a link that leads out of the source"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportCandidate:
    """One skill that can be imported, or the reason why it cannot.

    Attributes:
        name: the name of the skill, or of its file or folder if it has no valid name.
        directory: the name of the folder to install it in.
        source: where it was found, relative to the anchor.
        bundle: its files; `None` if there is a `reason`.
        problems: what the loader would report after the import, an error first.
    """

    name: str
    directory: str
    source: str
    bundle: Bundle | None = None
    reason: str | None = None
    problems: tuple[Problem, ...] = ()

    @property
    def folder(self) -> str:
        """The parent folder of `source`, relative to the anchor; `.` for the anchor itself."""
        return self.source.rpartition("/")[0] or "."


def find_importable(
    anchor: Path, starts: Iterable[tuple[str, ...]], options: model.SkillOptions
) -> list[ImportCandidate]:
    """Find the skills in some folders: usual folders first, then by depth.

    Args:
        anchor: no link may lead out of it.
        starts: paths (in parts) of folders below the anchor, which may be skills.
        options: the skills are validated with these.
    """
    walk = _Walk(anchor.absolute())
    for start in starts:
        walk.run(start)
    reader = _CandidateReader(anchor, ParseOptions.of(options))
    found = [reader.read(place) for place in walk.places()]
    return _without_conflicts([one for one in found if one is not None])


def places_of_skills(anchor: Path, start: tuple[str, ...]) -> list[tuple[tuple[str, ...], bool]]:
    """The paths of folders with a SKILL.md and of flat files, and whether each is flat; reads no file."""
    walk = _Walk(anchor.absolute())
    walk.run(start)
    return [(place.parts, place.flat) for place in walk.places() if place.reason is None]


def directory_key(directory: str) -> str:
    """Equal for names that are the same on file systems that ignore case or Unicode normalisation."""
    return unicodedata.normalize("NFKC", directory).casefold()


def parse_bytes(data: bytes, directory: str, path: str, rules: ParseOptions) -> Parsed:
    """Validate a SKILL.md with these bytes in a directory of this name, as the loader would."""
    whole = len(data) <= _MAX_READ
    head = data if whole else data[: data.rfind(b"\n", 0, _MAX_READ) + 1]
    found = SkillFile(path=path, directory=directory, data=head, whole=whole)
    return parse(found, rules)


def _without_conflicts(found: list[ImportCandidate]) -> list[ImportCandidate]:
    """Resolve name conflicts: the first usable candidate wins, and equal copies are dropped."""
    owners: dict[str, ImportCandidate] = {}
    settled = []
    for one in found:
        owner = one if one.bundle is None else owners.setdefault(directory_key(one.directory), one)
        if owner is one:
            settled.append(one)
        elif owner.bundle != one.bundle:
            settled.append(replace(one, bundle=None, reason=f"{owner.source} has this name"))
    return settled


def _flat_name(name: str) -> str:
    return name.removesuffix(_FLAT).replace("_", "-")


# --- Possible locations ---


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """A possible location of a skill.

    Attributes:
        whole: whether the whole folder belongs to the skill. Otherwise there are other skills below it, and
            only the names of `_OWN_PARTS` belong to it.
        reason: one line on why it is not read.
    """

    parts: tuple[str, ...]
    flat: bool = False
    whole: bool = True
    reason: str | None = None


class _Walk:
    """Searches folders breadth-first, links last, and no folder twice."""

    __slots__ = ("_anchor", "_folders", "_places", "_queue", "_seen", "_via_links")

    def __init__(self, anchor: Path) -> None:
        self._anchor = anchor
        self._folders = 0
        self._queue: deque[tuple[tuple[str, ...], int]] = deque()
        self._via_links: deque[tuple[tuple[str, ...], int]] = deque()
        self._seen: set[tuple[int, int]] = set()
        self._places: list[_Place] = []

    def run(self, start: tuple[str, ...]) -> None:
        """Search one folder and its subfolders."""
        first = len(self._places)
        self._queue.append((start, 0))
        while queue := self._queue or self._via_links:
            if self._folders == _MAX_FOLDERS:
                reason = f"only {_MAX_FOLDERS:,} folders were looked at: narrow it with --from"
                self._report(start, reason)
                return
            self._folders += 1
            self._visit(*queue.popleft())
        found = self._places[first:]
        if len(found) > 1 and found[0].parts == start and found[0].reason is None:
            self._places[first] = replace(found[0], whole=False)

    def places(self) -> list[_Place]:
        """All locations, in the order of precedence for their names."""
        return sorted(self._named(), key=self._rank)

    def _named(self) -> Iterator[_Place]:
        """The locations, up to the limit."""
        skills = 0
        for place in self._places:
            skills += place.reason is None
            if place.reason is not None or skills <= _MAX_SKILLS:
                yield place
            elif skills == _MAX_SKILLS + 1:
                reason = f"only {_MAX_SKILLS:,} skills can be imported: use --from"
                yield _Place(parts=place.parts[:-1], reason=reason)

    def _rank(self, place: _Place) -> tuple[int, int, bool, tuple[str, ...]]:
        path = "/".join(place.parts) + "/"
        usual = next((rank for rank, one in enumerate(PLACES) if path.startswith(f"{one}/")), len(PLACES))
        return usual, len(place.parts), place.flat, place.parts

    def _is_folder(self, parts: tuple[str, ...]) -> bool:
        try:
            os.close(loader.open_directory(self._anchor, parts))
        except (OSError, loader.OutsideWorkspaceError):
            return False
        return True

    def _report(self, parts: tuple[str, ...], reason: str) -> None:
        self._places.append(_Place(parts=parts, reason=reason))

    def _visit(self, parts: tuple[str, ...], depth: int) -> None:
        """Search one folder. Dangling links and files are ignored."""
        try:
            descriptor = loader.open_directory(self._anchor, parts)
            try:
                status = os.fstat(descriptor)
                if (status.st_dev, status.st_ino) not in self._seen:
                    self._seen.add((status.st_dev, status.st_ino))
                    self._list(descriptor, parts, depth)
            finally:
                os.close(descriptor)
        except loader.OutsideWorkspaceError:
            self._report(parts, _LEADS_OUT)
        except OSError as error:
            if error.errno not in {ENOENT, ENOTDIR, ELOOP}:
                self._report(parts, f"it cannot be read: {error.strerror}")

    def _list(self, descriptor: int, parts: tuple[str, ...], depth: int) -> None:
        with os.scandir(descriptor) as found:
            names = {entry.name: entry for entry in islice(found, _MAX_NAMES)}
            if next(found, None) is not None:
                self._report(parts, f"only {_MAX_NAMES:,} of its entries were looked at")
        main = names.get(model.FILE_NAME) or names.get(_LOWER_CASE)
        is_skill = main is not None and not main.is_dir(follow_symlinks=False)
        if depth > _MAX_LEVELS:
            if is_skill:
                self._report(
                    parts, f"it is more than {_MAX_LEVELS} levels deep: name one above it with --from"
                )
            return
        if is_skill:
            self._places.append(_Place(parts=parts))
        if not is_skill or depth == 0:  # folders below any other skill belong to that skill
            self._go_on(descriptor, parts, depth, names, is_skill=is_skill)

    def _go_on(
        self,
        descriptor: int,
        parts: tuple[str, ...],
        depth: int,
        names: dict[str, "os.DirEntry[str]"],
        *,
        is_skill: bool,
    ) -> None:
        for name, entry in sorted(names.items()):
            is_link = entry.is_symlink()
            if not (is_link or entry.is_dir()) or (is_link and name.endswith(_FLAT)):
                continue
            queue = self._via_links if is_link else self._queue
            if is_skill and name in _BELOW_A_SKILL:
                queue.append(((*parts, name), depth + 1))
            elif not is_skill:
                queue.extend(((*parts, *below), depth + len(below)) for below in self._leads_to(parts, name))
        if not is_skill and (depth == 0 or _SKILLS in parts):
            self._take_flat(descriptor, parts, names)

    def _leads_to(self, parts: tuple[str, ...], name: str) -> tuple[tuple[str, ...], ...]:
        """The paths to search for a subfolder. Of a hidden subfolder outside `skills`, only its `skills`."""
        own = parts[-1] if parts else self._anchor.name
        if name in _NOT_LOOKED_AT or (own in _AGENTS and name not in _OF_AN_AGENT):
            return ()
        if name.startswith(".") and name not in _AGENTS and own != _SKILLS:
            return tuple((name, folder) for folder in _OF_AN_AGENT)
        return ((name,),)

    def _take_flat(
        self, descriptor: int, parts: tuple[str, ...], names: dict[str, "os.DirEntry[str]"]
    ) -> None:
        for name, entry in names.items():
            if not (name.endswith(_FLAT) and is_clean_name(_flat_name(name))):
                continue
            is_link = entry.is_symlink()
            if self._leads_to_a_file(descriptor, (*parts, name)) if is_link else entry.is_file():
                self._places.append(_Place(parts=(*parts, name), flat=True))

    def _leads_to_a_file(self, descriptor: int, parts: tuple[str, ...]) -> bool:
        """Whether a link leads to a file; also true if it leads out, which is reported when it is read."""
        try:
            os.close(loader.open_file(self._anchor, descriptor, parts))
        except OSError:
            return False
        except loader.OutsideWorkspaceError:
            return True
        return not self._is_folder(parts)


# --- Candidates ---


class _CandidateReader:
    """Reads the skills at possible locations, and validates them."""

    __slots__ = ("_anchor", "_room", "_rules")

    def __init__(self, anchor: Path, rules: ParseOptions) -> None:
        self._anchor = anchor
        self._rules = rules
        self._room = Room(MAX_IMPORT_BYTES)

    def read(self, place: _Place) -> ImportCandidate | None:
        """The candidate, with a reason if it cannot be imported; `None` for a file that is no skill."""
        directory = place.parts[-1] if place.parts else self._anchor.absolute().name
        source = path_text("/".join(place.parts)) or "."
        candidate = ImportCandidate(name=path_text(directory), directory=directory, source=source)
        if place.reason is not None:
            return replace(candidate, reason=place.reason)
        try:
            if place.flat:
                return self._flat(place, candidate)
            if not directory.isprintable() or directory != directory.strip() or directory.startswith("."):
                reason = "the name of its folder begins with a dot, or cannot be shown in a line of text"
                return replace(candidate, reason=reason)
            return self._folder(place, candidate)
        except BundleError as error:
            return replace(candidate, reason=str(error))

    def _flat(self, place: _Place, candidate: ImportCandidate) -> ImportCandidate | None:
        """Report a flat file that has the front matter of a skill."""
        file = read_file(self._anchor, place.parts, room=self._room)
        name = _flat_name(candidate.directory)
        lenient = replace(self._rules, validation=model.Validation.LENIENT)
        if parse_bytes(file.data, name, candidate.source, lenient).skill is None:
            return None
        return replace(candidate, reason=_IS_FLAT.format(name=name))

    def _folder(self, place: _Place, candidate: ImportCandidate) -> ImportCandidate:
        """Read a folder with a SKILL.md."""
        only = None if place.whole else _OWN_PARTS
        bundle = read_bundle(self._anchor, place.parts, room=self._room, only=only, any_case=True)
        path = f"{candidate.source}/{model.FILE_NAME}".removeprefix("./")
        parsed = parse_bytes(
            bundle.files[model.FILE_NAME].data, path_text(candidate.directory), path, self._rules
        )
        problems = tuple(one for one in parsed.problems if one.severity is not Severity.INFO)
        candidate = replace(candidate, problems=problems)
        if parsed.skill is None:
            return replace(candidate, reason=f"{problems[0].message} ({problems[0].code})")
        return replace(candidate, name=parsed.skill.name, bundle=bundle)
