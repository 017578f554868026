"""Finds the skills of a foreign folder that may be copied, flat and bare files included, and judges each.

Flat `<name>.md` files and files without front matter count here and nowhere else: a run never sees them.
"""

import os
import stat
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from symphony.skills import beneath
from symphony.skills.bundle import Bundle, BundledFile, BundleError, read_bundle, read_file
from symphony.skills.draft import with_front_matter
from symphony.skills.memory import Memory
from symphony.skills.model import FILE_NAME, Problem, Severity, SkillOptions, Validation
from symphony.skills.parse import Found, Parsed, Rules, is_clean_name, parse
from symphony.skills.sources import shown

__all__ = ["PLACES", "Incoming", "incoming", "judge_file"]

PLACES: Final = (
    ".symphony/skills",
    ".agents/skills",
    ".claude/skills",
    ".codex/skills",
    ".gemini/skills",
    ".github/skills",
    ".opencode/skills",
    "skills",
)
"""Where repositories keep skills, for this agent or another."""

_MAX_ENTRIES: Final = 2_000
_MAX_READ: Final = 65_536
MAX_BYTES: Final = 256 * 1024 * 1024
_FLAT: Final = ".md"


@dataclass(frozen=True, slots=True, kw_only=True)
class Incoming:
    """One skill that may be copied, or why it may not.

    Attributes:
        name: of the skill, or what it is called where it has none that can be used.
        directory: of the folder it should get.
        source: where it was found, relative to the anchor.
        flat: it is a file that gets a folder.
        bundle: its files; null with a `reason`.
        problems: what the loader would say about it there; an error comes first.
    """

    name: str
    directory: str
    source: str
    flat: bool = False
    bundle: Bundle | None = None
    reason: str | None = None
    problems: tuple[Problem, ...] = ()


def incoming(anchor: Path, below: tuple[str, ...], options: SkillOptions, *, flat: bool) -> list[Incoming]:
    """The skills of one folder, in the order of its names; none where there is no such folder.

    Args:
        anchor: no link may lead out of it.
        below: the steps from there to a folder of skills, to a folder that is one, or to a flat file.
        options: the rules that the skills will have to pass, and do so now.
        flat: whether `<name>.md` files count beside folders.
    """
    judge = _Judge(anchor, Rules.of(options))
    names = _names(anchor, below)
    if names is None:
        is_file = below and below[-1].endswith(_FLAT) and below[-1] != FILE_NAME
        return [judge.flat(below)] if is_file else []
    if FILE_NAME in names:
        return [judge.folder(below)]
    found = [judge.folder((*below, name)) for name in names if _may_be_skill(anchor, (*below, name))]
    taken = {one.directory for one in found}
    for name in names if flat else ():
        if name.endswith(_FLAT) and is_clean_name(_flat_name(name)) and _is_file(anchor, (*below, name)):
            one = judge.flat((*below, name))
            if one.directory in taken:
                one = replace(one, bundle=None, reason="another one of the source has this name")
            taken.add(one.directory)
            found.append(one)
    return found


def _flat_name(name: str) -> str:
    return name.removesuffix(_FLAT).replace("_", "-")


def _names(anchor: Path, parts: tuple[str, ...]) -> list[str] | None:
    """What a folder holds, but for hidden names; null where it is no folder that can be read."""
    try:
        descriptor: int = beneath.open_directory(anchor.absolute(), parts)
    except (OSError, beneath.OutsideWorkspaceError):
        return None
    try:
        return sorted(name for name in os.listdir(descriptor) if not name.startswith("."))[:_MAX_ENTRIES]
    finally:
        os.close(descriptor)


def _may_be_skill(anchor: Path, parts: tuple[str, ...]) -> bool:
    """A folder with a SKILL.md, or a link out: what that leads to is not looked at, but it is told."""
    try:
        os.close(beneath.open_directory(anchor.absolute(), parts))
    except beneath.OutsideWorkspaceError:
        return True
    except OSError:
        return False
    return FILE_NAME in (_names(anchor, parts) or ())


def _is_file(anchor: Path, parts: tuple[str, ...]) -> bool:
    with suppress(OSError):
        return stat.S_ISREG(anchor.joinpath(*parts).stat().st_mode)
    return False


def judge_file(data: bytes, directory: str, path: str, rules: Rules) -> Parsed:
    """What the loader would say of a SKILL.md with these bytes in a directory of this name."""
    whole = len(data) <= _MAX_READ
    head = data if whole else data[: data.rfind(b"\n", 0, _MAX_READ) + 1]
    found = Found(path=path, directory=directory, data=head, whole=whole)
    return parse(found, rules, Memory(max_entries=0).sheets)


class _Judge:
    """Reads what was found, adds front matter where a file has none, and asks the loader's own rules."""

    __slots__ = ("_anchor", "_room", "_rules")

    def __init__(self, anchor: Path, rules: Rules) -> None:
        self._anchor = anchor
        self._rules = rules
        self._room = MAX_BYTES

    def folder(self, parts: tuple[str, ...]) -> Incoming:
        """A folder with a SKILL.md; it keeps its name, unless front matter has to be added."""
        source = shown("/".join(parts)) or "."
        directory = parts[-1] if parts else self._anchor.absolute().name
        try:
            bundle = read_bundle(self._anchor, parts)
        except BundleError as error:
            return Incoming(name=shown(directory), directory=directory, source=source, reason=str(error))
        return self._judged(bundle, directory, source, f"{source}/{FILE_NAME}".removeprefix("./"))

    def flat(self, parts: tuple[str, ...]) -> Incoming:
        """A file that becomes the SKILL.md of a folder, named by its front matter or else as the file."""
        source, directory = shown("/".join(parts)), _flat_name(parts[-1])
        try:
            file = replace(read_file(self._anchor, parts), executable=False)
        except BundleError as error:
            return Incoming(
                name=shown(directory), directory=directory, source=source, flat=True, reason=str(error)
            )
        lenient = replace(self._rules, validation=Validation.LENIENT)
        skill = judge_file(file.data, directory, source, lenient).skill
        if skill is not None and is_clean_name(skill.name):
            directory = skill.name
        judged = self._judged(Bundle(files={FILE_NAME: file}), directory, source, source)
        return replace(judged, flat=True)

    def _judged(self, bundle: Bundle, directory: str, source: str, path: str) -> Incoming:
        main = bundle.files[FILE_NAME]
        plain = directory.replace("_", "-")
        data = with_front_matter(main.data, plain) if is_clean_name(plain) else None
        if data is not None:
            directory, main = plain, BundledFile(data=data, executable=main.executable)
            bundle = Bundle(files={**bundle.files, FILE_NAME: main})
        parsed = judge_file(main.data, shown(directory), path, self._rules)
        problems = tuple(one for one in parsed.problems if one.severity is not Severity.INFO)
        if parsed.skill is None:
            reason = f"{problems[0].message} ({problems[0].code.value})"
            return Incoming(
                name=shown(directory), directory=directory, source=source, reason=reason, problems=problems
            )
        name = parsed.skill.name
        self._room -= sum(len(file.data) for file in bundle.files.values())
        if self._room < 0:
            reason = f"the skills of the source are larger than {MAX_BYTES // 1024**2} MiB together"
            return Incoming(name=name, directory=directory, source=source, reason=reason)
        return Incoming(name=name, directory=directory, source=source, bundle=bundle, problems=problems)
