"""The values of the library: skills with their versions, assignments and proposals."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final

import msgspec
from msgspec import Struct, structs

from symphony import frontmatter
from symphony import skills as agent_skills
from symphony.domain import Blame, Category, Failure, SkillChanges, SymphonyError
from symphony.library.evaluation import Evaluation

MAX_CONTENT_BYTES: Final = 256 * 1024
"""The largest body of a skill in the library."""
MAX_REASON_CHARS: Final = 500
LEARNING_RUN: Final = "learn-"
"""The prefix of the ids of learning runs; no other run has it."""
_OWN_KEYS: Final = ("name", "description", "when_to_use")


class LibraryError(SymphonyError):
    """The library refuses something, or its file cannot be used; nothing was changed."""

    def __init__(self, message: str, *, hint: str | None = None, retryable: bool = False) -> None:
        super().__init__(
            Failure(
                category=Category.LIBRARY, blame=Blame.HOST, message=message, hint=hint, retryable=retryable
            )
        )


class NotInLibraryError(LibraryError):
    """There is no such skill, version or proposal."""


class StaleVersionError(LibraryError):
    """An edit is based on a version that is not the present one.

    Attributes:
        base: the version on which the edit is based.
        present: the present skill.
    """

    def __init__(self, base: int, present: "LibrarySkill") -> None:
        super().__init__(
            f"{present.name} is at version {present.version}, and the edit was based on version {base}",
            hint=f"look at what changed between versions {base} and {present.version}, then edit the newest",
        )
        self.base = base
        self.present = present


class Origin(StrEnum):
    """Who wrote the present text of a skill.

    `LEARNED` skills rank behind the others and never shadow them.
    """

    WRITTEN = "written"
    IMPORTED = "imported"
    LEARNED = "learned"


class SkillText(Struct, frozen=True, kw_only=True):
    """The text of a skill.

    Attributes:
        name: lower case letters, digits and single hyphens, at most 64 characters.
        description: 1 to 1,024 characters.
        when_to_use: at most 1,024 characters; may be empty.
        content: the Markdown after the front matter, at most `MAX_CONTENT_BYTES`.
        extra: the other keys of the front matter, such as `license` and `metadata`.
    """

    name: str
    description: str
    when_to_use: str
    content: str
    extra: dict[str, Any] = msgspec.field(default_factory=dict)

    @classmethod
    def of_file(cls, data: bytes, directory: str) -> "SkillText":
        """Read a SKILL.md in a directory of this name.

        Raises:
            LibraryError: the library cannot store the file as a skill; with the line.
        """
        parsed = agent_skills.parse_bytes(
            data, directory, agent_skills.FILE_NAME, agent_skills.ParseOptions(name_fallback=True)
        )
        if parsed.skill is None:
            error = next(one for one in parsed.problems if one.severity is agent_skills.Severity.ERROR)
            place = agent_skills.FILE_NAME if error.line is None else f"{agent_skills.FILE_NAME}:{error.line}"
            raise LibraryError(f"{place}: {error.code}: {error.message}", hint=error.hint)
        try:
            found = frontmatter.split(data)
            assert found is not None, "a skill has front matter"  # noqa: S101 - the parser has found it
            front = frontmatter.load(found.front, profile=frontmatter.Profile.TEXT).value
            content = data[found.body_offset :].decode()
        except frontmatter.FrontMatterError as error:
            place = f"{agent_skills.FILE_NAME}:{error.line}"
            raise LibraryError(f"{place}: {error.code.value}: {error.message}", hint="correct it") from error
        except UnicodeDecodeError as error:
            raise LibraryError(f"{agent_skills.FILE_NAME}: not_utf8: the content is not UTF-8") from error
        return cls(
            name=parsed.skill.name,
            description=str(front.get("description") or "").strip(),
            when_to_use=str(front.get("when_to_use") or "").strip(),
            content=content,
            extra={key: value for key, value in front.items() if key not in _OWN_KEYS},
        ).checked()

    def checked(self) -> "SkillText":
        """This text, if the library can store it.

        Raises:
            LibraryError: the name or the description is missing or out of bounds, or the content too large.
        """
        if not agent_skills.is_clean_name(self.name):
            raise LibraryError(
                f"{self.name[:80]!r} is not a name for a skill",
                hint="use 1 to 64 of a-z, 0-9 and single hyphens",
            )
        for key, text in (("description", self.description), ("when_to_use", self.when_to_use)):
            if len(text) > agent_skills.MAX_FIELD:
                raise LibraryError(
                    f"{key} has {len(text):,} characters", hint=f"use at most {agent_skills.MAX_FIELD:,}"
                )
        if not self.description:
            raise LibraryError("the skill has no description", hint="say in one line what it does")
        if (size := len(self.content.encode())) > MAX_CONTENT_BYTES:
            raise LibraryError(
                f"the content has {size:,} bytes", hint=f"at most {MAX_CONTENT_BYTES:,} fit in the library"
            )
        return self

    def with_policy(self, policy: bytes) -> "SkillText":
        """The text with the policy of an agents/openai.yaml, because the library does not store that file."""
        if agent_skills.policy_for_people(policy) is None:
            return self
        return structs.replace(self, extra={**self.extra, "allow_implicit_invocation": "false"})

    def file(self, *, metadata: Mapping[str, str] | None = None) -> bytes:
        """The SKILL.md of this skill; `metadata` is added to the metadata of its front matter."""
        extra = dict(self.extra)
        if metadata:
            own = extra.get("metadata")
            extra["metadata"] = {**(own if isinstance(own, Mapping) else {}), **metadata}
        front: dict[str, Any] = {"name": self.name, "description": self.description}
        if self.when_to_use:
            front["when_to_use"] = self.when_to_use
        return f"---\n{frontmatter.dump(front | extra)}---\n{self.content}".encode()


class Authorship(Struct, frozen=True, kw_only=True):
    """Who changes a skill and why.

    Attributes:
        run_id: the run of the agent that wrote the text; `None` for a person, or if it is unknown.
        learned: whether an agent wrote the text in an unknown run.
    """

    author: str
    reason: str = ""
    run_id: str | None = None
    learned: bool = False

    @property
    def by_agent(self) -> bool:
        """Whether an agent wrote the text."""
        return self.learned or self.run_id is not None


class SkillHead(Struct, frozen=True, kw_only=True):
    """A skill in its present version, without its content. Times are milliseconds since 1970, UTC.

    Attributes:
        id: stays the same for the life of the skill.
        version: counts from 1, and rises with each change of description, `when_to_use` or content.
    """

    id: int
    name: str
    description: str
    when_to_use: str
    version: int
    origin: Origin
    created_at_ms: int
    updated_at_ms: int


class LibrarySkill(SkillHead, frozen=True, kw_only=True):
    """A skill in its present version, with its whole text."""

    content: str
    extra: dict[str, Any]

    @property
    def text(self) -> SkillText:
        """What it says."""
        return SkillText(
            name=self.name,
            description=self.description,
            when_to_use=self.when_to_use,
            content=self.content,
            extra=self.extra,
        )


class SkillVersion(Struct, frozen=True, kw_only=True):
    """One version of a skill."""

    version: int
    text: SkillText
    change: Authorship
    at_ms: int


class TargetKind(StrEnum):
    """What skills are assigned to."""

    ISSUE = "issue"
    AGENT = "agent"


class Assignment(Struct, frozen=True, kw_only=True):
    """The skills of an issue (by identifier) or of an agent (by name); no names mean no skills."""

    kind: TargetKind
    target: str
    names: tuple[str, ...]
    at_ms: int


class Resolution(Struct, frozen=True, kw_only=True):
    """The skills that a run gets.

    Attributes:
        skills: in order of their names, learned ones last.
        reason: why these skills, for people.
        unknown: assigned names that the library does not have.
    """

    skills: tuple[SkillHead, ...]
    reason: str
    unknown: tuple[str, ...] = ()


class ProposalState(StrEnum):
    """The state of a proposal."""

    OPEN = "open"
    ACCEPTED = "accepted"
    REJECTED = "rejected"


class Evidence(Struct, frozen=True, kw_only=True):
    """Where a proposal comes from; `transcript_seq` is a place in the transcript of the run."""

    run_id: str | None = None
    issue_id: str | None = None
    issue_identifier: str | None = None
    transcript_seq: int | None = None


class Proposal(Struct, frozen=True, kw_only=True):
    """A change of a skill that waits for a person.

    Attributes:
        skill_id: the skill that it changes; `None` for a new one.
        base_version: the version on which the change is based; 0 for a new skill.
        before: the text of that version; `None` for a new skill.
        decided_by: who accepted or rejected it.
        reason: why it was rejected.
        evaluation: its evaluation by past issues; `None` if it was not evaluated.
    """

    id: int
    text: SkillText
    skill_id: int | None
    base_version: int
    before: SkillText | None
    state: ProposalState
    evidence: Evidence
    created_at_ms: int
    decided_at_ms: int | None = None
    decided_by: str | None = None
    reason: str | None = None
    evaluation: Evaluation | None = None


class Reverted(Struct, frozen=True, kw_only=True):
    """A skill that a purge reverted.

    Attributes:
        before: the former newest version.
        version: the new version, or the one that a real purge would make.
        text_of: the earlier version whose text it has.
    """

    name: str
    before: int
    version: int
    text_of: int


class Purged(Struct, frozen=True, kw_only=True):
    """What a purge of learned texts did, or would do.

    Attributes:
        removed: names of removed skills.
        reverted: skills that are back at an earlier text.
        rejected: ids of rejected proposals.
    """

    removed: tuple[str, ...] = ()
    reverted: tuple[Reverted, ...] = ()
    rejected: tuple[int, ...] = ()


class LearningState(StrEnum):
    """The state of learning from a feedback; for `OFF` and `DROPPED` the reason is stored."""

    OFF = "off"
    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    DROPPED = "dropped"


class Learned(SkillChanges, frozen=True, kw_only=True):
    """How a learning run changed skills, and what it used.

    Attributes:
        run_id: the id of the learning run.
        total_tokens: the tokens of all learning runs from the feedback, including failed ones.
        cost_usd: their cost; `None` if unknown.
        resumed: whether it continued the thread of the work.
        at_ms: when the tokens were counted, in milliseconds since 1970, UTC.
    """

    run_id: str
    total_tokens: int = 0
    cost_usd: float | None = None
    resumed: bool = False
    at_ms: int = 0


class Rating(Struct, frozen=True, kw_only=True):
    """A person's rating of the work on an issue.

    Attributes:
        workflow: the name of the state directory, because a library may serve several.
        run_ids: the rated runs, the newest first.
        stars: 1 to 5.
        comment: may be empty.
        author: `operator`, or `visitor` for a caller without write access, from whose ratings nothing is
            learned.
        learn: whether it may be used to improve a skill.
    """

    workflow: str
    issue_id: str
    issue_identifier: str
    run_ids: tuple[str, ...]
    stars: int
    comment: str = ""
    author: str
    learn: bool = True


class StoredFeedback(Struct, frozen=True, kw_only=True):
    """A rating that is stored, and what was learned from it; `attempts` counts learning runs."""

    id: int
    rating: Rating
    learning: LearningState
    attempts: int
    reason: str | None
    learned: Learned | None
    at_ms: int


class SkillDraft(Struct, frozen=True, kw_only=True):
    """A skill file that an agent wrote.

    Attributes:
        base_version: the version of the skill that the agent got; 0 for a new skill.
        skill_id: the id of that skill; `None` for a new one.
    """

    text: SkillText
    base_version: int
    skill_id: int | None = None
