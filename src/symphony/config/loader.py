"""Reads and validates `WORKFLOW.md`, and reloads it when it changes (specification section 6.2)."""

import os
import stat
import time
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import watchfiles
from msgspec import Struct

from symphony import to_thread
from symphony.config import errors
from symphony.config.corrections import Correction, ProviderKeys, corrected, find_corrections, without
from symphony.config.secrets import is_secret_key, referenced_variables
from symphony.config.settings import AgentKinds, NamedAgent, Section, Settings
from symphony.config.synonyms import LINEAR_ALIASES
from symphony.config.template import PromptTemplate
from symphony.config.validation import review_settings
from symphony.domain import Category, Failure, SymphonyError
from symphony.frontmatter import FrontMatterError, Profile, Split, YamlCode, load, split

# --- Parsing ---

_MAX_UNKNOWN: Final = 100
_MAX_FILE_BYTES: Final = 1024 * 1024
_BOM: Final = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowFile:
    """The content of a workflow file; `path` is absolute."""

    path: Path
    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workflow:
    """A valid workflow file.

    Attributes:
        path: absolute.
        settings: typed and resolved.
        template: the prompt of a first turn.
        agents: the agents that can be chosen for an issue, by name.
        warnings: in the order in which they were found.
        secret_names: variables that the sections with secrets refer to; no child process gets them.
        variables: all variables that the file refers to.
        source_map: positions of the keys.
    """

    path: Path
    settings: Settings
    template: PromptTemplate
    agents: Mapping[str, NamedAgent]
    warnings: tuple[errors.WorkflowWarning, ...]
    secret_names: frozenset[str]
    variables: frozenset[str]
    source_map: errors.SourceMap = field(compare=False, repr=False)


def load_workflow(
    path: Path,
    *,
    environment: Mapping[str, str],
    tracker_kinds: Collection[str],
    agent_kinds: AgentKinds,
) -> Workflow:
    """Read and parse a workflow file; arguments and errors as of the two functions it is made of.

    Raises:
        WorkflowError: as `read_workflow_file` and `parse_workflow`.
    """
    file = read_workflow_file(path)
    return parse_workflow(file, environment=environment, tracker_kinds=tracker_kinds, agent_kinds=agent_kinds)


def read_workflow_file(path: Path) -> WorkflowFile:
    """Read the file.

    Raises:
        WorkflowError: `missing_workflow_file` if it cannot be read, `workflow_parse_error` if it is larger
            than 1 MiB.
    """
    path = path.absolute()
    try:
        data = _read(path)
    except (OSError, ValueError) as error:  # ValueError: a NUL character in the path
        reason = getattr(error, "strerror", None) or str(error)
        raise errors.WorkflowError([_missing(path, reason)]) from error
    if len(data) > _MAX_FILE_BYTES:
        message = f"the file is larger than {_MAX_FILE_BYTES} bytes"
        raise errors.WorkflowError([_unparseable(message, f"{path}:1")])
    return WorkflowFile(path=path, data=data)


def _read(path: Path) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # do not wait on a pipe
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(0, "it is not a regular file")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read(_MAX_FILE_BYTES + 1)
    finally:
        os.close(descriptor)


def _missing(path: Path, reason: str) -> Failure:
    return errors.config_failure(
        f"cannot read {path}: {reason}",
        category=Category.MISSING_WORKFLOW_FILE,
        hint=f"name the file in it: {path / 'WORKFLOW.md'}"
        if os.path.isdir(path)  # noqa: PTH112 - up to Python 3.13 `is_dir` raises where it cannot look
        else "go to the repository, or name it with -C DIR or --workflow FILE; `symphony init` makes one",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowReport:
    """Result of validating a workflow file.

    Attributes:
        failures, warnings: in the order of the file; problems of the prompt come last.
        workflow: set if, and only if, there are no failures.
        sections, partial_sections, given_keys, agents, unknown: as in `ProblemCollector`.
    """

    source_map: errors.SourceMap
    failures: tuple[Failure, ...]
    warnings: tuple[errors.WorkflowWarning, ...]
    sections: Mapping[str, Section]
    workflow: Workflow | None
    partial_sections: Mapping[str, Section] = field(default_factory=dict)
    given_keys: Mapping[str, frozenset[str]] = field(default_factory=dict)
    agents: Mapping[str, NamedAgent] = field(default_factory=dict)
    unknown: tuple[errors.Location, ...] = ()


def parse_workflow(
    file: WorkflowFile,
    *,
    environment: Mapping[str, str],
    tracker_kinds: Collection[str],
    agent_kinds: AgentKinds,
) -> Workflow:
    """Parse the content of a file; pure. The arguments are those of `validate_workflow`.

    Raises:
        WorkflowError: every problem, each with its category (specification section 5.5) and `path:line`.
    """
    report = validate_workflow(
        file, environment=environment, tracker_kinds=tracker_kinds, agent_kinds=agent_kinds
    )
    if report.workflow is None:
        raise errors.WorkflowError(report.failures)
    return report.workflow


def validate_workflow(
    file: WorkflowFile,
    *,
    environment: Mapping[str, str],
    tracker_kinds: Collection[str],
    agent_kinds: AgentKinds,
    provider_keys: ProviderKeys = lambda _: (),
    validators: Sequence[errors.Validator] = (),
) -> WorkflowReport:
    """Validate the content of a file; pure, never raises.

    Args:
        file: the content.
        environment: variables that `$NAME` may refer to.
        tracker_kinds: the existing tracker adapters.
        agent_kinds: the existing agent backends, with the models of their sections.
        provider_keys: the keys of `tracker.provider` per kind, to find misplaced settings.
        validators: checks of other layers, for valid sections.
    """
    source_map = errors.SourceMap(path=file.path, positions={}, first_line=1)
    try:
        data = _plain_text(file)
        fences = _split(data, file.path)
    except errors.WorkflowError as error:
        return WorkflowReport(
            source_map=source_map, failures=error.failures, warnings=(), sections={}, workflow=None
        )

    def judge(front: errors.FrontMatter) -> errors.ProblemCollector:
        review = review_settings(
            front, environment=environment, tracker_kinds=tracker_kinds, agent_kinds=agent_kinds
        )
        for validate in validators:
            validate(review)
        return review

    def collect(front: errors.FrontMatter) -> errors.ProblemCollector:
        found = find_corrections(
            front, tracker_kinds=tracker_kinds, agent_kinds=agent_kinds, provider_keys=provider_keys
        )
        review = judge(without(front, found))
        has_tracker = ("tracker", "kind") not in review.failed
        needed = [one for one in found if _is_needed(one, review.failed)]
        if found and review.failures:
            review = judge(corrected(front, found))
            # A wrong value of a key on which nothing depends must not hide other problems.
            spoilt = [one for one in found if one not in needed and _spoils(one, review.failed)]
            if spoilt:
                sound = [one for one in found if one not in spoilt]
                review = judge(without(corrected(front, sound), spoilt))
        if not has_tracker:  # so its other requirements are unknown
            needed += [one for one in found if any(target[0] == "tracker" for target in one.targets)]
        # Misplaced settings refer to secrets too.
        review.source = replace(review.source, value=front.value)
        for one in found:
            _tell(review, _with_unset(one, environment), needed=one in needed)
        return review

    failures: list[Failure] = []
    review = _reviewed(fences, file.path, failures, collect)
    template = _prompt(data, fences, file.path, failures)
    workflow = None
    if not failures and review is not None and review.settings is not None and template is not None:
        workflow = Workflow(
            path=file.path,
            settings=review.settings,
            template=template,
            agents=review.agents,
            warnings=_condensed(review.warnings),
            secret_names=review.source.secret_names,
            variables=referenced_variables(review.source.value),
            source_map=review.source_map,
        )
    return WorkflowReport(
        source_map=source_map if review is None else review.source_map,
        failures=tuple(failures),
        warnings=() if review is None else _condensed(review.warnings),
        sections={} if review is None else review.sections,
        workflow=workflow,
        partial_sections={} if review is None else review.partial_sections,
        given_keys={} if review is None else review.given_keys,
        agents={} if review is None else review.agents,
        unknown=() if review is None else tuple(review.unknown),
    )


def _condensed(warnings: Sequence[errors.WorkflowWarning]) -> tuple[errors.WorkflowWarning, ...]:
    """The warnings in the order of the file. Too many unknown keys are not listed one by one."""

    def line(warning: errors.WorkflowWarning) -> int:
        return int((warning.where or ":0").rpartition(":")[2])

    ordered = sorted(warnings, key=line)
    unknown = [one for one in ordered if one.code is errors.WarningCode.UNKNOWN_KEY]
    more = unknown[_MAX_UNKNOWN:]
    if not more:
        return tuple(ordered)
    rest = replace(more[0], message=f"{len(more)} more unknown keys are ignored", hint=None)
    told = [rest if one is more[0] else one for one in ordered]
    return tuple(one for one in told if not any(one is other for other in more))


def read_parts(file: WorkflowFile) -> tuple[errors.FrontMatter, str]:
    """The front matter of a file, and its prompt, without judging them.

    Raises:
        WorkflowError: it is not text, or its front matter is not a map.
    """
    data = _plain_text(file)
    fences = _split(data, file.path)
    first_line = 1 if fences is None else fences.front_line
    try:
        document = load(b"" if fences is None else fences.front, profile=Profile.CORE, first_line=first_line)
    except FrontMatterError as error:
        closed = fences is None or fences.closed
        raise errors.WorkflowError([_front_matter_failure(error, file.path, closed=closed)]) from error
    source_map = errors.SourceMap(path=file.path, positions=document.positions, first_line=first_line)
    body = data.removeprefix(_BOM) if fences is None else data[fences.body_offset :]
    present = fences is not None
    return errors.FrontMatter(source_map=source_map, value=document.value, present=present), body.decode()


def _is_needed(one: Correction, failed: Collection[errors.Location]) -> bool:
    """Whether the file is invalid without the correction."""
    is_alias = one.at[0] == "tracker" and one.at[-1] in LINEAR_ALIASES
    place = ("tracker", "provider", one.at[-1]) if is_alias else one.at
    is_secret = one.at[0] in {"tracker", "forge", "tracing"} and any(map(is_secret_key, map(str, one.at)))
    is_wrong = one.problem is not None and (place in failed or is_secret)
    return is_wrong or any(target in failed for target in one.targets)


def _spoils(one: Correction, failed: Collection[errors.Location]) -> bool:
    """Whether a moved value is invalid."""
    return any(place[: len(target)] == target for target in one.targets for place in failed)


def _with_unset(one: Correction, environment: Mapping[str, str]) -> Correction:
    """The correction with the variables to set."""
    unset = sorted(referenced_variables([value for _, value in one.moves]) - environment.keys())
    return (
        replace(one, hint=f"{one.hint}, and set {', '.join(unset)} where the daemon starts") if unset else one
    )


def _tell(review: errors.ProblemCollector, one: Correction, *, needed: bool) -> None:
    """Report one correction: a failure if the file needs it, else a warning."""
    name = errors.dotted(one.at)
    if needed:
        category = Category.INVALID_WORKFLOW_CONFIG
        if ("tracker", "kind") in {one.at, *one.targets}:
            is_missing = one.problem is None
            category = Category.MISSING_TRACKER_KIND if is_missing else Category.UNSUPPORTED_TRACKER_KIND
        review.fail(one.at, one.problem or "is not read", category=category, hint=one.hint)
    elif one.problem is not None:
        review.warn(one.at, f"{name} {one.problem}", code=errors.WarningCode.FOREIGN_REFERENCE, hint=one.hint)
    else:
        review.warn_unknown(one.at, (), hint=one.hint)


def _plain_text(file: WorkflowFile) -> bytes:
    """The content with all newlines as LF. Raises `WorkflowError` if it is not UTF-8."""
    data = file.data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    try:
        data.decode()
    except UnicodeDecodeError as error:
        line = 1 + data.count(b"\n", 0, error.start)
        failure = _unparseable("the file is not UTF-8", f"{file.path}:{line}", hint="save it as UTF-8")
        raise errors.WorkflowError([failure]) from error
    return data


def _split(data: bytes, path: Path) -> Split | None:
    try:
        return split(data)
    except FrontMatterError as error:
        raise errors.WorkflowError([_front_matter_failure(error, path)]) from error


def _reviewed(
    fences: Split | None,
    path: Path,
    failures: list[Failure],
    collect: Callable[[errors.FrontMatter], errors.ProblemCollector],
) -> errors.ProblemCollector | None:
    front = b"" if fences is None else fences.front
    first_line = 1 if fences is None else fences.front_line
    try:
        document = load(front, profile=Profile.CORE, first_line=first_line)
    except FrontMatterError as error:
        failures.append(_front_matter_failure(error, path, closed=fences is None or fences.closed))
        return None
    review = collect(
        errors.FrontMatter(
            source_map=errors.SourceMap(path=path, positions=document.positions, first_line=first_line),
            value=document.value,
            present=fences is not None,
        )
    )
    failures.extend(review.failures)
    return review


def _prompt(data: bytes, fences: Split | None, path: Path, failures: list[Failure]) -> PromptTemplate | None:
    """The body as a template. Without front matter, it is the whole file (specification section 5.2)."""
    body = data.removeprefix(_BOM) if fences is None else data[fences.body_offset :]
    first_line = 1 if fences is None else fences.body_line
    try:
        return PromptTemplate.parse(body.decode(), path=path, first_line=first_line)
    except errors.WorkflowError as error:
        failures.extend(error.failures)
        return None


def _front_matter_failure(error: FrontMatterError, path: Path, *, closed: bool = True) -> Failure:
    where = f"{path}:{error.line}"
    if not closed:
        return _unparseable(
            f"the front matter begins in line 1 and does not end: {error.message}",
            where,
            hint='close it with a line that is "---" and nothing else, above the prompt',
        )
    if error.code is YamlCode.DUPLICATE_KEY:
        return _unparseable(error.message, where, hint="keep one of the two")
    if error.code is YamlCode.NOT_A_MAPPING:
        return errors.config_failure(
            error.message,
            category=Category.WORKFLOW_FRONT_MATTER_NOT_A_MAP,
            where=where,
            hint='write "key: value" lines between the two "---" lines',
        )
    return _unparseable(error.message, where)


def _unparseable(message: str, where: str, *, hint: str | None = None) -> Failure:
    return errors.config_failure(message, category=Category.WORKFLOW_PARSE_ERROR, where=where, hint=hint)


# --- Reload ---

_DEBOUNCE_MS: Final = 50
_STEP_MS: Final = 10
_WATCH_ROUND_MS: Final = 500
_SETTLED_NS: Final = 1_000_000_000


class Reloaded(Struct, frozen=True, kw_only=True):
    """The file has changed, and its settings and prompt were replaced together."""

    workflow: Workflow


class Rejected(Struct, frozen=True, kw_only=True):
    """The file has changed and is invalid; the last valid workflow stays in use."""

    failures: tuple[Failure, ...]


class WorkflowStore:
    """Keeps the last valid workflow and detects changes of its file.

    Each change is reported once, whether it is valid or not. The store belongs to one task. Its methods read
    at most one small file and never wait.
    """

    def __init__(
        self,
        path: Path,
        parse: Callable[[WorkflowFile], Workflow],
        *,
        wall_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        """Read the file for the first time.

        Args:
            path: the workflow file.
            parse: parses a content, or raises a `SymphonyError`. The daemon includes the validation of its
                adapters, so that a workflow is replaced only after all checks have passed.
            wall_ns: wall clock in nanoseconds, comparable to file times.

        Raises:
            WorkflowError: the file cannot be read.
            SymphonyError: from `parse`.
        """
        self._path = path.absolute()
        self._parse = parse
        self._wall_ns = wall_ns
        self._failures: tuple[Failure, ...] = ()
        self._probe = self._file_facts()
        file = read_workflow_file(self._path)
        self._seen: bytes | str = file.data
        self._current = parse(file)

    def current(self) -> Workflow:
        """The last valid workflow."""
        return self._current

    @property
    def failures(self) -> tuple[Failure, ...]:
        """The failures of the present content of the file; empty if it is valid."""
        return self._failures

    def reload_if_changed(self) -> Reloaded | Rejected | None:
        """Reload the file if it has changed; else return `None`. Usually this is one `stat` call."""
        probe = self._file_facts()
        if probe is not None and probe == self._probe:
            return None
        self._probe = probe
        try:
            file = read_workflow_file(self._path)
        except errors.WorkflowError as error:
            return self._reject(error.failure.message, error.failures)
        if file.data == self._seen:
            return None
        self._seen = file.data
        return self._load(file)

    def _load(self, file: WorkflowFile) -> Reloaded | Rejected:
        try:
            workflow = self._parse(file)
        except errors.WorkflowError as error:
            self._failures = error.failures
        except SymphonyError as error:
            self._failures = (error.failure,)
        else:
            self._failures = ()
            self._current = workflow
            return Reloaded(workflow=workflow)
        return Rejected(failures=self._failures)

    def _reject(self, cause: str, failures: tuple[Failure, ...]) -> Rejected | None:
        """Report an unreadable file once for each cause."""
        if self._seen == cause:
            return None
        self._seen = cause
        self._failures = failures
        return Rejected(failures=failures)

    def _file_facts(self) -> tuple[int, ...] | None:
        """Facts that change with the file; `None` if it is missing or was modified within the last second.

        File times advance in steps, so a second write within one step may not change them.
        """
        try:
            status = self._path.stat()
        except OSError:
            return None
        newest = max(status.st_mtime_ns, status.st_ctime_ns)
        if self._wall_ns() - newest < _SETTLED_NS:
            return None
        return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns

    async def changes(self) -> AsyncGenerator[None, None]:
        """Yield at first and soon after the file may have changed: a hint to call `reload_if_changed`.

        Watches the directory, because editors replace the file. Ends silently if watching is impossible, and
        within half a second after its task is cancelled. Raises `RuntimeError` if no thread can be made.
        """

        def is_workflow(_: object, path: str) -> bool:
            return Path(path).name == self._path.name

        to_thread.require()
        begun = False
        try:
            async for batch in watchfiles.awatch(
                self._path.parent,
                watch_filter=is_workflow,
                debounce=_DEBOUNCE_MS,
                step=_STEP_MS,
                rust_timeout=_WATCH_ROUND_MS,
                yield_on_timeout=True,
                recursive=False,
            ):
                if batch or not begun:  # finds changes that were made before the watch began
                    yield None
                begun = True
        except OSError:
            return
