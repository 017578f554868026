"""Turns an agent's changes of skills in its workspace into proposals or versions. Everything blocks."""

from collections.abc import Callable, Collection, Mapping
from hashlib import sha256
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Final

import msgspec
from msgspec import Struct, structs

from symphony.domain import SkillChanges
from symphony.library import model
from symphony.library.drafts import GivenSkill, read_content, read_drafts, skill_files
from symphony.library.gate import needs_no_person
from symphony.library.provenance import is_learned, marked
from symphony.library.store import Library
from symphony.library.workspace import LEGACY_DIRECTORY, WrittenSkills, contained, read_written
from symphony.skills import FILE_NAME

_MAX_COLLECTED_BYTES: Final = 8 * 1024 * 1024
_MAX_PROBLEMS: Final = 20


class Synced(SkillChanges, frozen=True, kw_only=True):
    """The result of a sync, compared with the library; `problems` say why other files are not skills."""

    problems: tuple[str, ...] = ()

    @property
    def changes(self) -> SkillChanges:
        """The changes without the problems."""
        return SkillChanges(**{name: getattr(self, name) for name in SkillChanges.__struct_fields__})


def sync_skills(
    library: Library,
    workspace: Path,
    record: Path,
    *,
    tracked: Collection[str],
    evidence: model.Evidence,
    change: model.Authorship | None = None,
    metadata: Mapping[str, str] | None = None,
    mask: Callable[[str], str] = str,
) -> Synced | None:
    """Turn the skills in a workspace into proposals or versions; a second call adds nothing.

    Files that git tracks and files that were there before belong to the repository and are not read. A skill
    that is missing in the workspace stays in the library.

    Args:
        library: the source of the skills, which gets the proposals.
        workspace: the resolved path.
        record: the record of the written skills (`write_skills`); without one there is nothing to sync.
        tracked: files of the directory that git tracks, relative to the workspace.
        evidence: the evidence of the proposals.
        change: the authorship of an agent; with it, versions are made at once. A text that is based on an
            older version or is more than prose (`needs_no_person`) becomes a proposal anyway.
        metadata: the mark of new skills in their front matter (`provenance`).
        mask: masks known secrets; the gate uses it to find them.

    Raises:
        LibraryError: the library cannot be used, or there are more changed skills than a person can judge.
        OSError: the directory cannot be read.
    """
    written = read_written(record)
    if written is None:
        return None
    given, ignored = {}, {workspace / path for path in written.others}
    for name, one in written.skills.items():
        file = f"{written.directory}/{name}/{FILE_NAME}"
        present = _present(library, name)
        try:
            data = library.version(name, one.version).text.file()
        except model.NotInLibraryError:  # the skill was removed meanwhile
            data = b""
        if present is not None and sha256(data).hexdigest() == one.sha256:
            given[name] = GivenSkill(skill_id=present.id, version=one.version, data=data)
        else:  # or another skill with that name was added
            ignored.add(workspace / file)
    mine = {f"{written.directory}/{name}/{FILE_NAME}" for name in given}
    ignored |= {workspace / path for path in tracked if path not in mine}
    directory = contained(workspace, written.directory) or workspace / ".git" / "no-skills"
    found = read_drafts(
        directory,
        given,
        more=contained(workspace, LEGACY_DIRECTORY),
        ignored=ignored,
        refused=_reserved_names(library, given) | library.retired(),
        bare=True,
    )
    originals = {name: model.SkillText.of_file(one.data, name) for name, one in given.items()}
    result = Synced(unchanged=found.unchanged, problems=found.problems)
    for draft in found.drafts:
        at_once = change is not None and needs_no_person(originals.get(draft.text.name), draft.text, mask)
        result = _keep(
            library,
            draft,
            result,
            evidence=evidence,
            change=change if at_once else None,
            metadata=metadata or {},
        )
    return result


# --- from another machine --------------------------------------------------------------------------------


class CollectedSkills(Struct, frozen=True, kw_only=True):
    """The part of a workspace that a sync reads, to send it to the machine with the library.

    Attributes:
        written: the record of the written skills.
        files: changed and new skill files, by their paths in the workspace.
        problems: as in `Synced`.
    """

    written: WrittenSkills
    files: Mapping[str, bytes]
    problems: tuple[str, ...] = ()

    @property
    def changes(self) -> SkillChanges:
        """The changes without the problems."""
        return SkillChanges(**{name: getattr(self, name) for name in SkillChanges.__struct_fields__})


def collect_skills(workspace: Path, record: Path, *, tracked: Collection[str]) -> CollectedSkills | None:
    """The input of `sync_collected`; `None` if there is nothing to sync. Arguments are as in `sync_skills`.

    Raises:
        LibraryError: there are more changed skills than a person can judge.
        OSError: the directory cannot be read.
    """
    written = read_written(record)
    if written is None:
        return None
    mine = {f"{written.directory}/{name}/{FILE_NAME}": one.sha256 for name, one in written.skills.items()}
    ignored = {*written.others, *(path for path in tracked if path not in mine)}
    files: dict[str, bytes] = {}
    problems: list[str] = []
    for root in (contained(workspace, name) for name in (written.directory, LEGACY_DIRECTORY)):
        for _, path in () if root is None else skill_files(root):
            shown = path.relative_to(workspace).as_posix()
            if shown in ignored:
                continue
            try:
                data = read_content(path)
            except model.LibraryError as error:
                problems.append(f"{shown}: {error.failure.message}")
            except OSError as error:
                problems.append(f"{shown}: {error.strerror}")
            else:
                if sha256(data).hexdigest() != mine.get(shown):
                    files[shown] = data
    if sum(map(len, files.values())) > _MAX_COLLECTED_BYTES:
        raise model.LibraryError(f"the agent changed skills of more than {_MAX_COLLECTED_BYTES:,} bytes")
    return CollectedSkills(written=written, files=files, problems=tuple(problems[:_MAX_PROBLEMS]))


def sync_collected(
    library: Library,
    collected: CollectedSkills,
    *,
    evidence: model.Evidence,
    change: model.Authorship | None = None,
    metadata: Mapping[str, str] | None = None,
    mask: Callable[[str], str] = str,
) -> Synced | None:
    """As `sync_skills` for the collected workspace.

    Raises:
        LibraryError: as in `sync_skills`, or a path leads out of the workspace.
        OSError: the files could not be written.
    """
    with TemporaryDirectory(prefix="symphony-skills-") as directory:
        record, workspace = Path(directory, "record.json"), Path(directory, "workspace").resolve()
        record.write_bytes(msgspec.json.encode(collected.written))
        for name in (*collected.files, collected.written.directory):
            if not _is_inside(name):
                raise model.LibraryError(f"{name!r} is no path inside of the workspace")
        for name, data in collected.files.items():
            path = workspace / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        synced = sync_skills(
            library,
            workspace,
            record,
            tracked=(),
            evidence=evidence,
            change=change,
            metadata=metadata,
            mask=mask,
        )
    if synced is None:
        return None
    return structs.replace(synced, problems=(*collected.problems, *synced.problems))


def _is_inside(name: str) -> bool:
    """Whether a name from another machine is a possible path of a file inside the workspace."""
    parts = PurePosixPath(name).parts
    is_encodable = name.encode(errors="ignore").decode() == name
    return bool(parts) and parts[0] != "/" and ".." not in parts and "\0" not in name and is_encodable


def _keep(
    library: Library,
    draft: model.SkillDraft,
    result: Synced,
    *,
    evidence: model.Evidence,
    change: model.Authorship | None,
    metadata: Mapping[str, str],
) -> Synced:
    """Turn one draft into a version or a proposal; return the result with it."""
    name = draft.text.name
    present = _present(library, name)
    text = marked(draft.text, None if present is None else present.text, metadata)
    if present is None:
        result = structs.replace(result, created=(*result.created, name))
    elif present.text == text:
        return structs.replace(result, unchanged=(*result.unchanged, name))
    else:
        result = structs.replace(result, updated=(*result.updated, name))
    based = draft.base_version or (0 if present is None else present.version)
    if change is not None and based == draft.base_version:
        try:
            if present is None:
                library.add(text, change, origin=model.Origin.LEARNED)
            else:  # this marks the text of a person
                learned = text if is_learned(text) else marked(text, None, metadata)
                library.edit(learned, change, base_version=based)
        except model.LibraryError as error:
            if error.failure.retryable:
                raise
        else:
            return result
    proposal = library.propose(text, evidence, base_version=based, skill_id=draft.skill_id)
    return result if proposal is None else structs.replace(result, proposals=(*result.proposals, proposal.id))


def _reserved_names(library: Library, given: Collection[str]) -> dict[str, str]:
    """Names of people's skills that the agent did not get, with the reason why it may not use them."""
    return {
        one.name: f"the library has another skill {one.name}"
        for one in library.skills()
        if one.origin is not model.Origin.LEARNED and one.name not in given
    }


def _present(library: Library, name: str) -> model.LibrarySkill | None:
    try:
        return library.skill(name)
    except model.NotInLibraryError:
        return None
