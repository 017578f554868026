"""Instructions: modules of text that are composed for the phase of an issue's work.

    selector = Loader(DirectorySource(workspace, ".symphony/instructions")).load()
    text = selector.select_for_phase("TEST")

A source is used completely or not at all. If it has an error, the last good copy takes its place, then one
monolithic fallback file, then nothing. `Selector.origin` says which it was, `Selector.problems` says why.
Texts are joined as they are, never merged or rendered as templates.
"""

import errno
import hashlib
import os
import stat
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import Final, Protocol

from msgspec import Struct

from symphony.characters import without_ignorable
from symphony.problem import Problem, Severity
from symphony.skills import loader
from symphony.skills.manifest import (
    MANIFEST_FILE,
    InstructionCode,
    Manifest,
    ManifestEntry,
    has_phase,
    instruction_problem,
)
from symphony.skills.model import DEFAULT_PRIORITY, without_invisible

EMBEDDED: Final = Path(__file__).with_name("embedded")
"""The directory of the modules that come with this package."""
DEFAULT_MAX_CHARS: Final = 16_000
FALLBACK_NAME: Final = "fallback"
MAX_FILE_BYTES: Final = 65_536
MAX_TOTAL_BYTES: Final = 1024 * 1024
_FLAGS: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
_BETWEEN: Final = "\n\n"


# --- sources ---------------------------------------------------------------------------------------------


class SourceError(Exception):
    """A file of a source cannot be read."""

    def __init__(self, code: InstructionCode) -> None:
        super().__init__(code.value)
        self.code = code


class InstructionSource(Protocol):
    """Where a manifest and its modules come from."""

    def read(self, path: str) -> bytes:
        """A file by its path beside the manifest, at most 64 KiB.

        Raises:
            SourceError: it cannot be read.
        """
        ...

    def place(self, path: str) -> str:
        """The name of the file for people."""
        ...


class DirectorySource(Struct, frozen=True):
    """A directory below `anchor`; no link leads out of the anchor. `shown` is its name in problems."""

    anchor: Path
    directory: str = ""
    shown: str | None = None

    def read(self, path: str) -> bytes:
        """As `InstructionSource.read`; never blocks on a special file."""
        base = self.anchor.absolute()
        parts = (*PurePosixPath(self.directory).parts, *PurePosixPath(path).parts)
        if ".." in parts or "/" in parts:
            raise SourceError(InstructionCode.OUTSIDE_DIRECTORY)
        try:
            directory = loader.open_directory(base, parts[:-1])
            try:
                descriptor = loader.open_file(base, directory, parts)
            finally:
                os.close(directory)
            return _read(descriptor)
        except loader.OutsideWorkspaceError:
            raise SourceError(InstructionCode.OUTSIDE_DIRECTORY) from None
        except (OSError, ValueError) as error:
            raise _source_error(error) from None

    def place(self, path: str) -> str:
        """As `InstructionSource.place`."""
        return loader.path_text((PurePosixPath(self.shown or self.directory) / path).as_posix())


class FilesSource(Struct, frozen=True):
    """Files in memory, by their paths beside the manifest. `shown` is their place in problems."""

    files: Mapping[str, bytes]
    shown: str = ""

    def read(self, path: str) -> bytes:
        """As `InstructionSource.read`."""
        if path not in self.files:
            raise SourceError(InstructionCode.MISSING_FILE)
        if len(self.files[path]) > MAX_FILE_BYTES:
            raise SourceError(InstructionCode.TOO_LARGE)
        return self.files[path]

    def place(self, path: str) -> str:
        """As `InstructionSource.place`."""
        return f"{self.shown}{path}"


EMBEDDED_SOURCE: Final = DirectorySource(EMBEDDED, shown="embedded")
"""The modules that come with this package."""


def _read(descriptor: int) -> bytes:
    """The content of a regular file; closes the descriptor."""
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise SourceError(InstructionCode.NOT_REGULAR_FILE)
        data = bytearray()
        while chunk := os.read(descriptor, MAX_FILE_BYTES + 1 - len(data)):
            data += chunk
        if len(data) > MAX_FILE_BYTES:
            raise SourceError(InstructionCode.TOO_LARGE)
        return bytes(data)
    finally:
        os.close(descriptor)


def _source_error(error: Exception) -> SourceError:
    match error:
        case OSError(errno=errno.ENOENT | errno.ENOTDIR):
            return SourceError(InstructionCode.MISSING_FILE)
        case OSError(errno=errno.ENXIO | errno.EISDIR):
            return SourceError(InstructionCode.NOT_REGULAR_FILE)
    return SourceError(InstructionCode.UNREADABLE)


# --- modules and their composition -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Module(ManifestEntry):
    """One module of instructions, with its entry in the manifest.

    Attributes:
        text: without invisible characters and surrounding blank lines; untrusted.
        sha256: the digest of the file, in hex.
    """

    text: str = field(repr=False)
    sha256: str


class InstructionOrigin(StrEnum):
    """Where the modules of a selector come from."""

    SOURCE = "source"
    LAST_GOOD = "last_good"
    FALLBACK = "fallback"
    NOTHING = "nothing"


class Composition(Struct, frozen=True, kw_only=True):
    """The instructions of one phase.

    Attributes:
        phase: `None` if issues have no phases.
        text: the texts of the modules with blank lines between them; `None` if there is none.
        modules: those in the text, in its order.
        dropped: names of modules of the phase that did not fit, in their order.
    """

    phase: str | None
    text: str | None
    modules: tuple[Module, ...] = ()
    dropped: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Selector:
    """Loaded modules, from which the instructions of a phase are composed.

    Attributes:
        modules: sorted by (priority, name).
        max_chars: the largest length of a composed text. Modules that do not fit are dropped from the end.
        origin: where the modules were read from.
        problems: why the origin is not the source, and warnings.
        sha256: the digest of the manifest and its modules (`closure_digest`); `None` without a manifest.
        files: the bytes of the manifest and its modules; empty without a manifest.
        manifest: the newest manifest that was read, even if an error makes it unusable; `None` without one.
    """

    modules: tuple[Module, ...] = ()
    max_chars: int = DEFAULT_MAX_CHARS
    origin: InstructionOrigin = InstructionOrigin.SOURCE
    problems: tuple[Problem, ...] = ()
    sha256: str | None = None
    files: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    manifest: Manifest | None = None

    def compose(self, phase: str | None) -> Composition:
        """The instructions of a phase; of all modules if `phase` is `None`."""
        wanted = [module for module in self.modules if module.text and has_phase(module.phases, phase)]
        room, fitting = self.max_chars + len(_BETWEEN), 0
        for module in wanted:
            room -= len(module.text) + len(_BETWEEN)
            if room < 0:
                break
            fitting += 1
        kept = tuple(wanted[:fitting])
        return Composition(
            phase=phase,
            text=_BETWEEN.join(module.text for module in kept) if kept else None,
            modules=kept,
            dropped=tuple(module.name for module in wanted[fitting:]),
        )

    def select_for_phase(self, phase: str) -> str:
        """The text for a phase; empty if there is none."""
        return self.compose(phase).text or ""

    def select_all(self) -> str:
        """The text of all modules; empty if there is none."""
        return self.compose(None).text or ""

    def skill_names(self, phase: str) -> tuple[str, ...]:
        """The names of the modules in the text for a phase, in its order."""
        return tuple(module.name for module in self.compose(phase).modules)


def closure_digest(files: Mapping[str, bytes]) -> str:
    """The digest of a manifest and its modules, in hex.

    It is the SHA-256 of what `sha256sum` prints for the files, sorted by path: for each file the SHA-256 in
    hex, two blanks, the path beside the manifest, and a line feed.
    """
    lines = (f"{hashlib.sha256(files[path]).hexdigest()}  {path}\n" for path in sorted(files))
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def check_phases(
    selector: Selector, phases: Collection[str], manifest: str, *, shared: bool = False
) -> Iterator[Problem]:
    """Warnings for phases of modules that no issue has, and for phases of issues that no module names.

    Args:
        selector: the loaded modules, also those of a manifest with errors. A monolithic text has no phases.
        phases: the phases that an issue can have; without any there is nothing to compare.
        manifest: the path of the manifest in problems.
        shared: whether other repositories use the modules too, which may have more phases.
    """
    if not phases or selector.manifest is None:
        return
    entries = selector.manifest.entries
    known = {phase.casefold() for phase in phases}
    named = {phase.casefold() for entry in entries for phase in entry.phases}
    for entry in () if shared else entries:
        for phase in entry.phases:
            if phase.casefold() not in known:
                code, message = InstructionCode.UNKNOWN_PHASE, f"No issue can have the phase `{phase}`."
                yield instruction_problem(code, manifest, entry.line, message=message)
    if any(problem.severity is Severity.ERROR for problem in selector.manifest.problems):
        return  # an unreadable entry may name the missing phases
    for phase in phases:
        if phase.casefold() not in named:
            code, message = InstructionCode.UNUSED_PHASE, f"No module names the phase `{phase}`."
            yield instruction_problem(code, manifest, message=message)


# --- loading ---------------------------------------------------------------------------------------------


class Loader:
    """Loads instructions from a source, or from what takes its place.

    Args:
        source: where they should come from, or the problem if there is no usable source.
        last_good: the files of the last load without an error; `None` if there was none.
        fallback: a file with one text for all phases, used if both fail.
        sha256: the digest that the files must have (`closure_digest`).
        max_chars: as `Selector.max_chars`.
    """

    def __init__(
        self,
        source: InstructionSource | Problem,
        *,
        last_good: InstructionSource | None = None,
        fallback: Path | None = None,
        sha256: str | None = None,
        max_chars: int = DEFAULT_MAX_CHARS,
    ) -> None:
        self._source = source
        self._last_good = last_good
        self._fallback = fallback
        self._sha256 = sha256
        self._max_chars = max_chars
        self._manifest: Manifest | None = None

    def load(self) -> Selector:
        """The selector; never raises. Blocks on the file system if a source does."""
        problems: list[Problem] = []
        for origin, source in (
            (InstructionOrigin.SOURCE, self._source),
            (InstructionOrigin.LAST_GOOD, self._last_good),
        ):
            if isinstance(source, Problem):
                problems.append(source)
            elif source is not None:
                modules, files = self._modules(source, problems)
                if files:
                    return self._selector(origin, modules, problems, files)
        if self._fallback is not None:
            try:
                module = _fallback_module(self._fallback)
                return self._selector(InstructionOrigin.FALLBACK, (module,), problems)
            except SourceError as error:
                place = loader.path_text(str(self._fallback))
                problems.append(instruction_problem(error.code, place))
        return self._selector(InstructionOrigin.NOTHING, (), problems)

    def _selector(
        self,
        origin: InstructionOrigin,
        modules: tuple[Module, ...],
        problems: list[Problem],
        files: Mapping[str, bytes] | None = None,
    ) -> Selector:
        return Selector(
            modules=modules,
            max_chars=self._max_chars,
            origin=origin,
            problems=tuple(problems),
            sha256=closure_digest(files) if files else None,
            files=files or {},
            manifest=self._manifest,
        )

    def _modules(
        self, source: InstructionSource, problems: list[Problem]
    ) -> tuple[tuple[Module, ...], Mapping[str, bytes]]:
        """The modules and files of a source without an error, else none; adds to `problems`."""
        place = source.place(MANIFEST_FILE)
        try:
            data = source.read(MANIFEST_FILE)
        except SourceError as error:
            missing = error.code is InstructionCode.MISSING_FILE
            code = InstructionCode.MISSING_MANIFEST if missing else error.code
            problems.append(instruction_problem(code, place))
            return (), {}
        manifest = Manifest.parse(data, place)
        self._manifest = self._manifest or manifest
        found, files, modules = list(manifest.problems), {MANIFEST_FILE: data}, list[Module]()
        for entry in manifest.entries:
            try:
                if entry.file not in files:
                    files[entry.file] = source.read(entry.file)
                text = decode(files[entry.file])
                if sum(map(len, files.values())) > MAX_TOTAL_BYTES:
                    raise SourceError(InstructionCode.TOO_LARGE)  # noqa: TRY301 - reported as the others
            except SourceError as error:
                found.append(instruction_problem(error.code, source.place(entry.file)))
                if error.code is InstructionCode.TOO_LARGE:
                    break
                continue
            modules.append(
                Module(
                    name=entry.name,
                    file=entry.file,
                    priority=entry.priority,
                    phases=entry.phases,
                    text=text,
                    sha256=hashlib.sha256(files[entry.file]).hexdigest(),
                    line=entry.line,
                )
            )
        problems += found
        if any(problem.severity is Severity.ERROR for problem in found):
            return (), {}
        if self._sha256 is not None and closure_digest(files) != self._sha256:
            problems.append(instruction_problem(InstructionCode.DIGEST_MISMATCH, place))
            return (), {}
        return tuple(modules), files


def decode(data: bytes) -> str:
    """The text of a module. Raises `SourceError`: it is not UTF-8."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise SourceError(InstructionCode.NOT_UTF8) from None
    return without_ignorable(without_invisible(text.replace("\r\n", "\n"))).strip("\n")


def _fallback_module(path: Path) -> Module:
    """The file of the operator as one module; links are followed. Raises `SourceError`."""
    try:
        data = _read(os.open(path, _FLAGS))
    except (OSError, ValueError) as error:
        raise _source_error(error) from None
    return Module(
        name=FALLBACK_NAME,
        file=path.name,
        priority=DEFAULT_PRIORITY,
        phases=(),
        text=decode(data),
        sha256=hashlib.sha256(data).hexdigest(),
    )
