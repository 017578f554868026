"""All settings: their keys, types, defaults, and when a change takes effect.

A setting is one line of one model here:

    max_turns: Positive = session(20, "turns of one session")

The type says which values are valid; `live`, `session` or `restart` says when a changed value takes effect;
the text is shown in docs/workflow-file.md (`make settings`) and by `symphony check --keys`. All models are
frozen and strict, and their errors do not contain the invalid value.

Durations end in `_ms`. A reload makes a new `Settings`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Any, Final, Literal, Self, TypeVar, cast, get_args
from zoneinfo import ZoneInfo

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.dataclasses import dataclass as dataclass_with_checks
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)
from typing_extensions import override

from symphony.config.values import (
    AbsolutePath,
    AgentName,
    Choice,
    CronLine,
    Day,
    EnvNames,
    EnvValues,
    FetchTimeout,
    FilePath,
    Flag,
    GitName,
    Host,
    Hosts,
    HttpUrl,
    Labels,
    LowerName,
    ManifestAddress,
    MaskedMap,
    Name,
    NamedSections,
    Names,
    NonNegative,
    OpaqueMap,
    OpaqueTextOrMap,
    PhaseName,
    Port,
    Positive,
    QuietHours,
    RayAddress,
    RayLabels,
    RemotePath,
    Repository,
    Script,
    SecretValues,
    Sha256,
    Shape,
    ShellCommand,
    SkillNames,
    SkillsPath,
    SkillsPaths,
    SshOptions,
    StateLimits,
    States,
    Text,
    TextFlag,
    TimeZone,
    Usd,
    UserPath,
    UserPaths,
    Whole,
    Word,
    time_zone,
)
from symphony.domain import BudgetLimits, Price, normalise_labels
from symphony.scheduler import AgentRule, PhaseRule
from symphony.skills import ActivationMode, Format, Validation

OPAQUE_KEYS: Final = frozenset(
    {
        ("codex", "approval_policy"),
        ("codex", "turn_sandbox_policy"),
        ("acp", "system_meta"),
        ("worker", "ray", "runtime_env"),
    }
)
"""Maps that are passed to an agent or to Ray unchanged, including null values."""

NULLABLE_KEYS: Final = frozenset(
    {("agent", "skills", "user_path"), ("agent", "budget", "max_turns_without_progress")}
)
"""Keys with a default that can be switched off: for these, null means "none" and not "default"."""


# --- Fields ---


class Reload(StrEnum):
    """When a changed value takes effect."""

    LIVE = "live"
    SESSION = "session"
    RESTART = "restart"


def live(default: Any, meaning: str, **more: Any) -> Any:
    """A setting that takes effect at its next use."""
    return _setting(default, meaning, Reload.LIVE, **more)


def session(default: Any, meaning: str, **more: Any) -> Any:
    """A setting that takes effect in sessions that start later."""
    return _setting(default, meaning, Reload.SESSION, **more)


def restart(default: Any, meaning: str, **more: Any) -> Any:
    """A setting that takes effect after a restart."""
    return _setting(default, meaning, Reload.RESTART, **more)


def _setting(
    default: Any,
    meaning: str,
    reload: Reload,
    *,
    unset: str = "none",
    shown: str | None = None,
    repr: bool = True,  # noqa: A002 - as pydantic calls it
) -> Any:
    """A field of a section.

    Args:
        default: `...` for a required key.
        meaning: one line of Markdown for the documentation.
        reload: when a change takes effect.
        unset: the meaning of a default of `None`, in words.
        shown: the default as text, if it is known only when the file is read.
        repr: false for a value that may contain a secret.
    """
    extra: dict[str, Any] = {"reload": reload.value, "unset": unset, "shown": shown}
    return Field(default, description=meaning, repr=repr, json_schema_extra=extra)


class _ForWorkers:
    """Marks a setting that workers on other machines get."""


_Value = TypeVar("_Value")
ForWorkers = Annotated[_Value, _ForWorkers()]
"""The type of a setting, or of a section with all its settings, that workers on other machines get.

A setting without the mark stays with the daemon.
"""


# --- Sections ---


class Section(BaseModel):
    """A section of the file. Unknown keys are ignored here; `validation` warns about them."""

    model_config = ConfigDict(
        frozen=True, strict=True, hide_input_in_errors=True, extra="ignore", defer_build=True
    )


_ITEM: Final = ConfigDict(hide_input_in_errors=True, extra="ignore", defer_build=True)
"""Of an item of a list that is a dataclass of another package; the types of its values are strict."""


class TrackerSettings(Section):
    """`tracker`: the board and the meaning of its states; `provider` is defined by the adapter.

    Literal secrets in `provider` are `Secret` objects, which are masked as text. States are `None` if the
    file does not have them; then the adapter's defaults apply, if it has any. `on_start` and `on_block` are
    states that the daemon moves issues to. `comment_on_delivery` says whether an issue gets a comment when
    its work is ready for review. `webhook_secret` switches webhooks on; it is `$NAME` or a literal secret,
    and not part of the repr.
    """

    kind: Name = live(..., "the tracker: one of [these](trackers/README.md)")
    provider: MaskedMap = live({}, "settings of that tracker; see its page")
    required_labels: Labels = live((), "an issue must carry all of them; a blank one matches nothing")
    active_states: States | None = live(
        None, "states in which an issue is worked on; an empty list means none", unset="the tracker's own"
    )
    terminal_states: States | None = live(
        None, "states of closed issues; they win over active states", unset="the tracker's own"
    )
    on_start: Name | None = live(
        None,
        "an active state that an issue is [moved to](#states-that-the-daemon-moves-issues-to) when a run "
        "starts",
    )
    on_block: Name | None = live(None, "a state that a blocked issue is moved to; it may not be terminal")
    comment_on_delivery: Flag = live(
        True,
        "one comment of the daemon on an issue whose work is [ready for "
        "review](operations.md#ready-for-review), unless the agent wrote one in that run",
    )
    webhook_secret: Name | None = live(
        None,
        "`$NAME` of the secret that the tracker's [webhooks](trackers/webhooks.md) are signed with; "
        "switches them on",
        repr=False,
    )


class PollingSettings(Section):
    """`polling`."""

    interval_ms: Positive = live(30_000, "time between polls")


class WorkspaceSettings(Section):
    """`workspace`: the directory of workspaces, what populates them, and how agents are confined.

    `root` and a local `repo` are absolute. Without `repo`, hooks populate workspaces. `repo` may be an
    address with credentials, so it is not part of the repr.
    """

    root: AbsolutePath = live(
        ...,
        "where workspaces live; relative to this file: [places](#where-workspaces-live)",
        shown="<temp>/symphony_workspaces",
    )
    repo: Repository | None = live(
        None, "URL or path of the repository to clone; none leaves that to `hooks.after_create`", repr=False
    )
    base_branch: GitName | None = live(None, "where an issue's branch begins", unset="the remote's HEAD")
    push: Literal["never", "origin"] = live(
        "never",
        "`origin` [pushes](#where-finished-work-goes) the issue's branch after each attempt; the default "
        "where `forge.open` asks for pull requests",
    )
    fetch_stall_timeout_ms: Positive = live(
        120_000,
        "a fetch without progress for this time is ended, which costs the attempt; raise it if git checks a "
        "large repository without output",
    )
    push_stall_timeout_ms: Positive = live(
        60_000,
        "a push without progress for this time is ended and tried again; raise it if hooks of the remote "
        "work longer without output",
    )
    keep_dirty: Flag = live(True, "keep a workspace with uncommitted work, even when its issue is closed")
    isolation: Literal["none", "bwrap"] = session(
        "none",
        "`bwrap` confines agents: they can write to the workspace, only read everything else, and not see "
        "other workspaces",
    )
    network: Literal["open", "closed"] = session(
        "open",
        "whether confined agents have a network; with `closed` they cannot reach a model on the network",
    )


class HooksSettings(Section):
    """`hooks`: shell scripts around a run; `timeout_ms` applies to each."""

    after_create: Script | None = live(None, "shell script in a new workspace; failure aborts its creation")
    before_run: Script | None = live(None, "before each attempt; failure aborts the attempt")
    after_run: Script | None = live(None, "after each attempt; failure is logged")
    before_remove: Script | None = live(None, "before a workspace is removed; failure is logged")
    timeout_ms: Positive = live(60_000, "limit of each hook; its whole process group ends then")
    env: EnvNames = live((), "[credentials](secrets.md#who-gets-a-secret) of the daemon that hooks get too")


class VerifyCommand(Section):
    """One of `verify.commands`: a script for bash, which stops at the first command that fails.

    Attributes:
        name: its name for people and the agent; the first line of the script if `None`.
        paths: globs of the changed files that it checks; all changes if empty.
    """

    name: Name | None = None
    run: Script
    timeout_ms: Positive = 600_000
    paths: Names = ()

    @property
    def title(self) -> str:
        """The name that is shown."""
        return self.name or next(iter(self.run.strip().splitlines()), "")[:60]


def _script_alone(value: object) -> object:
    return {"run": value} if isinstance(value, str) else value


VerifyCommands = Annotated[
    tuple[Annotated[VerifyCommand, BeforeValidator(_script_alone)], ...],
    Field(strict=False),
    Shape("list of scripts"),
]


class VerifySettings(Section):
    """`verify`: checks that the daemon runs before finished work is ready (docs/verification.md)."""

    commands: VerifyCommands = live(
        (),
        "[what is run](verification.md) on the delivered commit, in order: scripts for bash, or `name`, "
        "`run`, `timeout_ms` and `paths`; without any nothing is verified",
    )
    setup: Script | None = live(None, "a script that prepares a checkout that has nothing installed")
    setup_timeout_ms: Positive = live(600_000, "the longest that it may take")
    where: Literal["workspace", "clean"] = live(
        "workspace", "where they run: the agent's workspace, or a `clean` checkout of the delivered commit"
    )
    rounds: NonNegative = live(2, "how often the agent gets failures back before a person is asked")
    reviewer: AgentName | None = live(
        None,
        "an agent that [reads the issue and the change](verification.md#a-reviewer) once the commands have "
        "passed, in a separate session and checkout",
    )
    protect: Names = live(
        (), "globs of files that check the work; a change of them is shown beside the result"
    )
    artifacts: Names = live(
        (), "globs of [reports and pictures](verification.md#artifacts) that are kept with the run"
    )

    @property
    def is_set(self) -> bool:
        """Whether finished work is verified at all."""
        return bool(self.commands) or self.reviewer is not None


class RehearseSettings(Section):
    """`rehearse`: trial merges of finished branches (docs/how-to/rehearse-merges.md)."""

    verify: Flag = live(
        False,
        "the daemon runs `verify.commands` on [branches that merge](how-to/rehearse-merges.md), and finds "
        "the one that breaks them",
    )
    timeout_ms: Positive = live(3_600_000, "the longest that this, or `symphony rehearse --verify`, may take")


class ReviewSettings(Section):
    """`review`: what follows when a person approves finished work (docs/how-to/review.md)."""

    merge: Flag = live(
        False,
        "whether an [approval](how-to/review.md) merges the commit that was shown into the base branch of "
        "the local repository of `workspace.repo`: a fast-forward or a merge commit, never with a conflict "
        "or with uncommitted changes where that branch is checked out; without it, and without `forge`, "
        "the approval says which command merges",
    )


class BudgetSettings(Section):
    """`agent.budget`: limits per issue and per day, after which a person is asked; `None` for no limit.

    Tokens are the total that the agent reports; days are in UTC.
    """

    max_tokens_per_issue: Positive | None = live(
        None,
        "total tokens that an issue may use up; then it is stopped in mid-turn and a person is asked; also "
        "after 100 turns without reported tokens",
    )
    max_tokens_per_day: Positive | None = live(
        None,
        "total tokens of all issues on one day (UTC); then turns end, what was started is blocked until "
        "the next day, and nothing new starts; `symphony status` and the log (`day_budget_used`) name the"
        " issue and agent that used the last of it",
    )
    max_turns_per_issue: Positive | None = live(
        None, "turns of all attempts of an issue; then a person is asked"
    )
    max_turns_without_progress: Positive | None = live(
        2,
        "turns in a row without a commit, a changed file or a change at the tracker after which a run "
        "gets no further turn; null never ends a run for that",
    )
    max_attempts_without_progress: Positive = live(
        3, "attempts without a commit or changed file before a person is asked"
    )

    @property
    def limits(self) -> BudgetLimits:
        """The same for the scheduler."""
        return BudgetLimits(**self.model_dump())


class SkillsSettings(Section):
    """`agent.skills`: the catalog of skills in the prompt.

    `path` and `extra_paths` are below the workspace. `user_path`, one path or a list, is absolute or below
    the home of the daemon's user; `None` switches that scope off. Without `search_above`, all are listed.
    """

    enabled: Flag = live(True, "list skills; if off, no skill is read")
    path: SkillsPath = live(".symphony/skills", "where skills are, inside the workspace")
    user_path: UserPaths | None = live(
        ("~/.symphony/skills",),
        "skills of the account that the daemon runs as; of a list the earlier goes first; null switches "
        "them off",
        shown="~/.symphony/skills",
    )
    extra_paths: SkillsPaths = live((), "further directories of the workspace, such as `.agents/skills`")
    max_skills_in_prompt: Positive = live(
        50, "the maximum number of listed skills; the names of the others are logged"
    )
    max_prompt_chars: Positive = live(8_000, "the maximum number of characters of the whole list")
    format: Choice[Format] = live(Format.COMPACT, "how the list is written")
    validation: Choice[Validation] = live(Validation.LENIENT, "how much a file may differ from the format")
    comment_on: Literal["error", "warning", "never"] = live(
        "error", "how bad a problem must be for a comment on the issue"
    )
    name_fallback: Flag = live(False, "a missing name is that of the directory")
    reserved_words: SkillNames = live((), "words that no name may contain")
    include: SkillNames = live((), "exact names to list; empty for all")
    disabled_skills: SkillNames = live((), "exact names to leave out")
    for_people: Literal["hide", "show"] = live(
        "hide", "whether sessions get skills that are [for people](skills.md#skills-for-people)"
    )
    native: Literal["auto", "always"] = live(
        "auto", "how the agent's own list of skills is combined with this one; see [skills.md](skills.md)"
    )
    activation: Choice[ActivationMode] = live(
        ActivationMode.READ, "how a session gets at a skill: by reading the file, or by a tool"
    )
    search_above: Positive | None = live(
        None, "with more skills than this, sessions get a search tool instead of the list"
    )
    source: Literal["workspace", "base_branch"] = live(
        "workspace", "whose skills: those of the issue's branch, or those of the base branch"
    )


class InstructionsSettings(Section):
    """`agent.instructions`: modules of text for the system-level text, chosen by phase. Off without `source`.

    `path` is below the workspace; `agent.skills.source` decides whether it is read there or on the base
    branch. `fallback` is relative to the workflow file.
    """

    source: Literal["embedded", "local", "remote"] | None = live(
        None, "where [instructions](instructions.md) come from: this package, the repository, or an address"
    )
    path: SkillsPath = live(
        ".symphony/instructions", "for `local`: the directory of `manifest.yaml`, inside the workspace"
    )
    url: ManifestAddress | None = live(None, "for `remote`: the address of `manifest.yaml`")
    sha256: Sha256 | None = live(
        None, "the digest that the manifest and its modules must have", unset="any content"
    )
    fetch_timeout_ms: FetchTimeout = live(5_000, "for `remote`: how long a dispatch waits for the server")
    fallback: FilePath | None = live(
        None, "a file with one text, used if the source fails and was never read; relative to this file"
    )
    max_chars: Positive = live(
        16_000, "the maximum number of characters; modules beyond it are dropped from the end"
    )


@dataclass_with_checks(frozen=True, slots=True, kw_only=True, config=_ITEM)
class AgentRuleSettings(AgentRule):
    """One of `agent.rules`. Labels and states are trimmed and in lower case."""

    use: Name
    label: LowerName | None = None
    state: LowerName | None = None
    fallback: Name | None = None


@dataclass_with_checks(frozen=True, slots=True, kw_only=True, config=_ITEM)
class PhaseRuleSettings(PhaseRule):
    """One of `agent.phases.rules`. Labels and states are trimmed and in lower case."""

    phase: PhaseName
    label: LowerName | None = None
    state: LowerName | None = None


AgentRules = Annotated[tuple[AgentRuleSettings, ...], Field(strict=False), Shape("list of rules")]
PhaseRules = Annotated[tuple[PhaseRuleSettings, ...], Field(strict=False), Shape("list of rules")]


class PhasesSettings(Section):
    """`agent.phases`: the phase of the work on an issue, judged at the start of every turn."""

    default: PhaseName | None = live(None, "the [phase](phases.md) of issues without a matching rule")
    rules: PhaseRules = live(
        (), "the phase of issues with a label, in a state, or both: `phase`, `label`, `state`; first fit"
    )

    @property
    def names(self) -> tuple[str, ...]:
        """The phases that issues can be in, without duplicates: the default first."""
        found = (self.default, *(rule.phase for rule in self.rules))
        return tuple(dict.fromkeys(name for name in found if name is not None))


class LibrarySettings(Section):
    """`agent.library`: skills that are stored outside the repository, and learning from feedback.

    The library is `library.db` in the state directory, or the file `path`, which several daemons may share. A
    run does not wait for an unreadable library: it goes on without its skills, with a warning.
    """

    path: UserPath | None = restart(
        None,
        "file of the library, to share one with other daemons",
        unset="`library.db` in the state directory",
    )
    directory: SkillsPath = session(
        ".agents/skills", "where the [skills of the library](library.md) are written, inside the workspace"
    )
    sync: Literal["propose", "apply", "off"] = live(
        "propose",
        "the effect of an agent's changes there: proposals for a person, new versions, or nothing",
    )
    learning: Literal["on_feedback", "off"] = live(
        "on_feedback", "whether [feedback](learning.md) starts a learning run"
    )
    learner: AgentName | None = live(None, "the agent of learning runs", unset="the one that did the work")
    max_learning_turns: Positive = live(3, "turns of one learning run")
    max_learning_tokens: Positive = live(
        200_000, "a learning run that has used more tokens is stopped, and its feedback dropped"
    )
    check: Script | None = live(
        None,
        "judges work on a past issue when a proposal is [evaluated](library.md#evaluate-a-proposal): a shell "
        "command whose exit code 0 means good",
    )
    check_timeout_ms: Positive = live(600_000, "the longest that the check may take")
    max_evaluation_tokens: Positive = live(
        1_000_000, "a session of an evaluation that has used more tokens is stopped, and counts as failed"
    )


class AgentSettings(Section):
    """`agent`: scheduling limits and the choice of the agent.

    `kind` is a kind or a name in `agents`. The first of `rules` that matches an issue overrides it when a run
    starts. `fallback` is used while the agent is rate limited, out of credit or in an outage. Keys of
    `max_concurrent_agents_by_state` are trimmed and in lower case; invalid entries were removed with a
    warning.
    """

    kind: Name = session(
        "codex",
        "the agent that issues get: `codex`, `claude`, `acp`, `command`, or a name of `agents`; see "
        "[agents.md](agents.md)",
    )
    fallback: AgentName | None = session(
        None, "the agent that takes over while that one is rate limited, out of credit or in an outage"
    )
    rules: AgentRules = session(
        (),
        "other agents for issues with a label, in a state, or both; the first matching rule counts: "
        "[choosing](agents.md#choose-an-agent)",
    )
    max_concurrent_agents: Positive = live(10, "sessions at the same time")
    max_turns: Positive = session(20, "turns of one session")
    max_retry_backoff_ms: Positive = live(
        300_000, "longest wait before a retry: 10 s, 20 s, 40 s … up to this"
    )
    max_concurrent_agents_by_state: StateLimits = live({}, "the same per issue state")
    drain_timeout_ms: NonNegative = live(30_000, "how long running turns may go on after the first SIGTERM")
    budget: BudgetSettings = Field(default_factory=BudgetSettings)
    phases: PhasesSettings = Field(default_factory=PhasesSettings)
    skills: SkillsSettings = Field(default_factory=SkillsSettings)
    instructions: InstructionsSettings = Field(default_factory=InstructionsSettings)
    library: LibrarySettings = Field(default_factory=LibrarySettings)


class AgentSection(Section):
    """Keys of every agent's section; kinds from other packages add more (docs/adapters.md)."""

    model: Name | None = session(None, "model name", unset="the agent's own")
    home: Literal["operator", "private"] = session("operator", "`private`: a separate home")
    env: EnvNames = session((), "variables of the daemon that the agent also gets")
    library: SkillNames | None = session(
        None, "the only [skills of the library](library.md) that it gets; `[]` for none", unset="all"
    )
    ray_labels: RayLabels = session(
        {}, "labels of the Ray nodes that may run it, besides `worker.ray.labels`"
    )
    turn_timeout_ms: Positive = session(3_600_000, "silence within a turn")
    stall_timeout_ms: Whole = live(300_000, "as `codex.stall_timeout_ms`")


class CodexSettings(AgentSection):
    """`codex`: the app-server backend.

    `command` is a shell string and never changed. Without sandbox keys, the daemon's defaults apply.
    `turn_timeout_ms` limits silence, `read_timeout_ms` one request; `stall_timeout_ms` <= 0 disables it.
    """

    command: ShellCommand = session(
        "codex app-server", "shell command that starts the agent; never rewritten"
    )
    model: Name | None = session(None, "model name", unset="Codex's own")
    effort: Name | None = session(None, "how much the model thinks, in Codex's words", unset="Codex's own")
    home: Literal["operator", "private"] = session(
        "operator", "`private`: a separate home with its own login, which inherits nothing"
    )
    approval_policy: OpaqueTextOrMap = session(
        "never", "passed through; `symphony check` warns of what Codex 0.169 refuses"
    )
    thread_sandbox: Name = session("workspace-write", "passed through")
    turn_sandbox_policy: OpaqueMap | None = session(
        None, "passed through unchanged; see below", unset="our recipe"
    )
    on_approval: Literal["decline", "accept", "block"] = session(
        "decline", "the answer if the agent asks anyway: `decline`, `accept` or `block`"
    )
    read_timeout_ms: Positive = session(5_000, "one request to the agent")
    stall_timeout_ms: Whole = live(
        300_000, "silence after which a run is stopped and retried; 0 or less switches it off"
    )


class ClaudeSettings(AgentSection):
    """`claude`: Claude Code over stream-json.

    `on_approval` answers requests that the permission mode does not decide. With `home: private` the agent
    gets a configuration directory from the daemon. Timeouts are as in `codex`.
    """

    command: ShellCommand = session(
        "claude", "shell command that starts Claude Code; arguments are added to it"
    )
    model: Name | None = session(None, "model name", unset="Claude's own")
    effort: Name | None = session(None, "how much the model thinks, in Claude's words", unset="Claude's own")
    home: Literal["operator", "private"] = session(
        "operator", "`private`: a separate configuration directory"
    )
    permission_mode: Literal["default", "acceptEdits", "plan", "dontAsk", "bypassPermissions"] = session(
        "acceptEdits", "what it may do without asking, in Claude's words"
    )
    on_approval: Literal["decline", "accept", "block"] = session("decline", "the answer if it asks anyway")
    read_timeout_ms: Positive = session(30_000, "one request to the agent")


class AcpSettings(AgentSection):
    """`acp`: any agent that speaks the Agent Client Protocol.

    `profile` has the defaults for a known agent; other keys override them. `system_text` says how the system
    text is sent: `meta` (in session/new), `config` (as the profile defines), or `prompt` (before the first
    prompt, which works with every agent). `system_meta` is what `meta` adds to the request; `{envelope}` in
    it is replaced by the text. `mode` is set by `session/set_mode`. `usage_path` is the dotted path of the
    token counts in the answer to a prompt. `env_values` are variables with fixed values.
    """

    profile: Name = session("generic", "what is known of the agent; every other key overrides it")
    command: ShellCommand | None = session(None, "shell command that starts the agent", unset="the profile's")
    mode: Name | None = session(None, "the mode that a session is set to", unset="the agent's own")
    system_text: Literal["meta", "config", "prompt"] | None = session(
        None,
        "how the system-level text travels; `prompt` is in front of the first prompt",
        unset="the profile's",
    )
    on_approval: Literal["decline", "accept", "block"] = session("decline", "the answer when it asks")
    env_values: EnvValues = session({}, "variables with fixed values; none of them secret")
    system_meta: OpaqueMap | None = session(
        None,
        "what `meta` adds to the request for a session, with `{envelope}` where the text stands; passed "
        "on unchanged",
        unset="the profile's",
    )
    usage: Literal["turn", "last_call", "none"] | None = session(
        None, "what the token counts of a turn cover", unset="the profile's"
    )
    usage_path: Name | None = session(
        None,
        "where they are in the answer to a prompt, such as `_meta.quota.token_count`",
        unset="the profile's",
    )
    load: Flag | None = session(
        None, "whether a later process can go on with a session", unset="the profile's"
    )
    start_timeout_ms: Positive | None = session(
        None, "how long the agent may take to be ready", unset="the profile's"
    )
    read_timeout_ms: Positive = session(5_000, "one request to the agent")


class CommandSettings(AgentSection):
    """`command`: one program call per turn; its exit code and the changed tree are the result.

    `command` is a shell string in which `{prompt_file}`, `{envelope_file}`, `{issue}` and `{model}` are
    replaced by quoted words. `profile` names a known program, whose command is the default.
    """

    profile: Name = session("generic", "what is known of the program; every other key overrides it")
    command: ShellCommand | None = session(
        None,
        "shell command of one turn, with `{prompt_file}`, `{envelope_file}`, `{issue}` and `{model}` for "
        "quoted words",
        unset="the profile's",
    )
    model: Name | None = session(None, "what `{model}` stands for", unset="the agent's own")


class ServerSettings(Section):
    """`server`: the HTTP API and the pages on TCP. A port switches them on; 0 is any free port."""

    port: Port | None = restart(
        None, "the [HTTP API](api.md) listens here; 0 takes a free port; none means no TCP port at the start"
    )
    host: Host = restart("127.0.0.1", "address to listen on")
    on_demand: Flag = restart(
        True, "`symphony open` may open a free port on the loopback interface where no port is set"
    )
    public_reads: Flag = restart(
        False,
        "everybody on this machine may read, agents too; `false`: the token or a signed-in browser is needed",
    )


class CarrierSettings(Section):
    """Keys of every carrier's section; carriers from other packages add more (docs/adapters.md)."""

    remote_root: RemotePath = live(
        ".local/share/symphony-worker",
        "the directory of this daemon on a host, absolute or relative to the home; workspaces are in it",
    )
    lease_ms: Positive = live(
        30_000,
        "a worker that hears nothing from the daemon for this time ends its agent; a new attempt waits",
    )


class SshSettings(CarrierSettings):
    """`worker.ssh`: how to reach hosts, and the paths on them."""

    command: GitName = live("ssh", "the ssh client, OpenSSH's")
    options: SshOptions = live((), "further options of the client, such as `-i`, `/path/of/key`")
    python: RemotePath | None = live(
        None,
        "the Python on a host that has this release of symphony",
        unset="`venv/bin/python` in `remote_root`, which `symphony hosts prepare` makes",
    )


class RaySettings(CarrierSettings):
    """`worker.ray`: a Ray cluster whose nodes run sessions. An address switches it on."""

    address: RayAddress | None = live(None, "the cluster, as `host:port`")
    namespace: Name = live("symphony", "where the actors of runs have their names")
    slots_resource: Name = live(
        "agent_slot",
        "the resource of the nodes of which a session takes one: `--resources='{\"agent_slot\": 4}'`",
    )
    labels: RayLabels = live({}, "labels of the nodes that may run sessions")
    autoscaler: Flag = live(
        False, "the cluster starts nodes for runs that wait: one whose labels no node has waits for a node"
    )
    runtime_env: OpaqueMap = live(
        {}, "the runtime environment of the actors, in Ray's words; passed on unchanged"
    )
    python: Name | None = live(
        None,
        "a Python on this machine with this release and the cluster's version of Ray",
        unset="that of the daemon",
    )


class WorkerSettings(Section):
    """`worker`: other machines that run sessions; without any, this machine does.

    The section of a carrier from another package is kept as it is: `daemon.carriers` validates it.
    """

    model_config = ConfigDict(extra="allow")

    carrier: Name | None = live(
        None,
        "what leads to them: `ssh`, `ray`, or [one of another package](adapters.md#a-carrier)",
        unset="`ray` where `worker.ray.address` is set, `ssh` where there are `ssh_hosts`",
    )
    ssh_hosts: Hosts = live(
        (),
        "[machines that run sessions](hosts.md): `host`, `user@host`, `user@host:port`; none for this one",
    )
    max_concurrent_agents_per_host: Positive | None = live(None, "sessions at the same time on one of them")
    ssh: SshSettings = Field(default_factory=SshSettings)
    ray: RaySettings = Field(default_factory=RaySettings)
    env: EnvNames = live((), "variables of the daemon that agents and hooks on hosts get too, as secrets")

    @property
    def carrier_kind(self) -> str | None:
        """The carrier; `None` if runs are carried out on this machine."""
        implied = {"ray": self.ray.address is not None, "ssh": bool(self.ssh_hosts)}
        return self.carrier or next((kind for kind, is_set in implied.items() if is_set), None)


class ObservabilitySettings(Section):
    """`observability`: the live view that `symphony run` shows in a terminal.

    The reference implementation shows it by default; here it is off, because it hides the lines of the log.
    """

    dashboard_enabled: Flag = restart(
        False,
        "`symphony run` in a terminal shows the view of `symphony status --watch`, and logs to a file: "
        "`log/symphony.log` in `--logs-root`, else in the state directory",
    )
    refresh_ms: Positive = restart(1_000, "how often that view takes new facts; at least 100")
    render_interval_ms: Positive = restart(16, "the shortest time between two pictures of it")


NotifyEvent = Literal[
    "ready",
    "question",
    "blocked",
    "budget",
    "tracker_down",
    "agent_limited",
    "skills",
    "pull_request",
    "base_broken",
    "daemon_down_soon",
]
"""What a person can be notified of."""

NOTIFY_EVENTS: Final[tuple[NotifyEvent, ...]] = get_args(NotifyEvent)
"""The names of all events."""


class NotifySettings(Section):
    """One of `notify`: where notifications go (docs/notifications.md).

    `url` and `secret` are `$NAME` or literal secrets, and not part of the repr. `slack` and `webhook` need a
    `url`, `command` needs a `command`.
    """

    name: Word
    kind: Literal["slack", "webhook", "command"]
    on: Annotated[tuple[NotifyEvent, ...], Field(strict=False)] = NOTIFY_EVENTS
    url: Name | None = Field(None, repr=False)
    secret: Name | None = Field(None, repr=False)
    command: Annotated[tuple[Name, ...], Field(strict=False)] = ()
    timeout_ms: Positive = 10_000
    gather_ms: NonNegative = 5_000
    remind_after_ms: Positive = 86_400_000
    quiet_hours: QuietHours | None = None
    page_url: Name | None = None


NotifyTargets = Annotated[tuple[NotifySettings, ...], Field(strict=False), Shape("list of targets")]


class ScheduleSettings(Section):
    """One of `schedules`: a recurring issue (docs/how-to/recurring-issues.md).

    `title` and the body are Liquid templates. The body is `body`, or the content of `file`, a path from the
    directory of WORKFLOW.md. `state` is the first active one by default.
    """

    name: Word
    cron: CronLine
    timezone: TimeZone = Field(default="UTC", validate_default=True)
    title: Name
    body: Text | None = None
    file: FilePath | None = None
    state: Name | None = None
    labels: States = ()
    skip_while_open: Flag = True

    @property
    def zone(self) -> ZoneInfo:
        """The time zone of the cron line."""
        return time_zone(self.timezone)


Schedules = Annotated[tuple[ScheduleSettings, ...], Field(strict=False), Shape("list of schedules")]


class ForgeFeedbackSettings(Section):
    """`forge.feedback`: which feedback on its pull request the agent gets, in further turns."""

    ci: Flag = live(True, "the agent gets [failed checks](forges.md#feedback), in at most 3 turns")
    review: Flag = live(
        True,
        "the agent gets comments of people with write access and of `forge.reviewers`, in at most 3 turns",
    )
    conflict: Flag = live(True, "the agent gets conflicts with the base branch, in at most 2 turns")


class LandLimits(Section):
    """`forge.land_limits`: limits for changes that the daemon lands."""

    labels: Names = live((), "labels that it must have, besides an approval by a person")
    max_changed_lines: Positive | None = live(None, "the most lines added and removed together")
    paths: Names = live((), "the only files and directories that it may change; all of them if empty")


class ForgeSettings(Section):
    """`forge`: where pull requests are (docs/forges.md).

    `token` and `webhook_secret` are `$NAME` or literal secrets.
    """

    kind: Literal["github", "gitlab", "forgejo"] | None = live(
        None, "where [pull requests](forges.md) are; Gitea is `forgejo`"
    )
    repo: Name | None = live(None, "the repository there: `owner/name`, or the path of a GitLab project")
    token: Name | None = live(None, "`$NAME` of a token that may write to the repository", repr=False)
    webhook_secret: Name | None = live(
        None,
        "`$NAME` of the secret that the forge's [webhooks](forges.md#webhooks) are signed with; switches "
        "them on",
        repr=False,
    )
    url: HttpUrl | None = live(
        None,
        "address of the API: `https://git.example.org/api/v3` (GitHub), `…/api/v4` (GitLab), or of the "
        "Forgejo site; else that of github.com, gitlab.com or codeberg.org",
    )
    open: Literal["never", "draft", "ready"] = live(
        "draft",
        "whether the daemon [opens pull requests](forges.md#pull-requests-of-the-daemon) of finished work, "
        "and how; it then also pushes the branches. With `never` those of "
        "[agents](forges.md#pull-requests-of-agents) are watched",
    )
    base: GitName | None = live(
        None,
        "the branch that the work is to be merged into",
        unset="`workspace.base_branch`, else the branch at the remote's HEAD",
    )
    title: Name = live(
        "{{ issue.identifier }}: {{ issue.title }}",
        "[template](forges.md#title-and-text) of the title of a pull request",
    )
    body: Name | None = live(
        None,
        "[template](forges.md#title-and-text) of its text, between the link to the issue and a marker",
        unset="the agent's summary, diffstat, cost",
    )
    labels: Names = live((), "labels of a new pull request")
    reviewers: Names = live(
        (),
        "logins that are asked to review a new pull request; the agent gets their comments, also of bots",
    )
    feedback: ForgeFeedbackSettings = Field(default_factory=ForgeFeedbackSettings)
    on_feedback: Name | None = live(
        None,
        "a state that an issue is moved to when its agent gets feedback; in an active one turns go on",
        unset="it stays where it is",
    )
    merged_state: Name | None = live(
        None,
        "a state that an issue is moved to when its pull request is merged, unless it has new work",
        unset="it stays where it is",
    )
    delete_branch: Flag = live(
        True,
        "whether the branch of a merged pull request is [deleted](forges.md#after-the-merge), if it is as "
        "the daemon pushed it",
    )
    checks_grace_ms: NonNegative = live(
        120_000, "how long after a push checks may take to appear; until then no checks mean nothing"
    )
    poll_interval_ms: Positive = live(60_000, "time between two looks at all open pull requests")
    required_checks: Names = live(
        (), "checks that must have passed, by name, besides those that the forge requires"
    )
    land: Literal["never", "auto", "queue"] = live(
        "never",
        "whether the daemon has the forge merge [what is settled](forges.md#landing): at once, or by its "
        "merge queue",
    )
    land_limits: LandLimits = Field(default_factory=LandLimits)

    @property
    def watches(self) -> bool:
        """Whether the daemon watches pull requests, its own or those of others."""
        return self.kind is not None and self.repo is not None

    @property
    def opens(self) -> bool:
        """Whether the daemon also opens pull requests."""
        return self.watches and self.open != "never"


class TracingSettings(Section):
    """`tracing`: traces of runs by OpenTelemetry; needs the extra `otel`.

    Literal secrets in `headers` are `Secret` objects, which are masked as text.
    """

    endpoint: HttpUrl | None = restart(
        None, "where [traces](tracing.md) are sent by OTLP over HTTP: `http://127.0.0.1:4318/v1/traces`"
    )
    headers: SecretValues = restart({}, "headers of each request; `$NAME` for a secret", repr=False)
    content: Flag = restart(False, "traces carry commands, results and messages, with secrets masked")


class RetentionSettings(Section):
    """`retention`: limits for the data of ended runs; the newest data, and that of live runs, always stays.

    `max_log_bytes` is the total of transcripts and of agents' stderr logs, `max_journal_bytes` the size of
    the journal.
    """

    max_age_days: Positive = live(
        30,
        "how long the journal, transcripts and stderr logs keep ended runs; see [`symphony "
        "clean`](commands.md#symphony-clean)",
    )
    max_runs: Positive = live(1_000, "the maximum number of ended runs in the journal")
    max_log_bytes: Positive = live(
        104_857_600, "transcripts and the agents' stderr logs together; the oldest go first"
    )
    max_journal_bytes: Positive = live(268_435_456, "the journal's file; the oldest runs go first")


@dataclass_with_checks(frozen=True, slots=True, kw_only=True, config=_ITEM)
class PriceSettings(Price):
    """One price of a model in `pricing`."""

    since: Day | None = Field(None, alias="from")
    input: Usd
    output: Usd
    cache_read: Usd | None = None
    cache_write: Usd | None = None


ModelPrices = Annotated[tuple[PriceSettings, ...], Field(strict=False)]
Pricing = Annotated[dict[Name, ModelPrices], Shape("map of model to price")]


# --- Settings and their sources ---


class Variables(BaseSettings):
    """Environment variables that override keys of the file, named `SYMPHONY_` and the field in upper case."""

    model_config = SettingsConfigDict(
        frozen=True,
        strict=True,
        hide_input_in_errors=True,
        extra="ignore",
        defer_build=True,
        case_sensitive=True,
        alias_generator=lambda field: f"SYMPHONY_{field.upper()}",
    )

    agent_skills_enabled: TextFlag | None = None

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Self:
        """Validate an environment.

        Raises:
            pydantic.ValidationError: everything that is wrong; its text holds no value.
        """
        values: dict[str, Any] = {"given": environment}
        return cls(**values)

    @classmethod
    @override
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Read only the given environment, including secrets from files."""
        source = EnvSettingsSource(settings_cls)
        source.env_vars = cast("InitSettingsSource", init_settings).init_kwargs["given"]
        return (source,)


class Settings(Section):
    """The whole front matter, typed and resolved.

    `agents` has, by name, a `kind` and the keys that differ from the section of that kind (`named_agent`).
    """

    tracker: TrackerSettings
    workspace: ForWorkers[WorkspaceSettings]
    polling: PollingSettings = Field(default_factory=PollingSettings)
    hooks: ForWorkers[HooksSettings] = Field(default_factory=HooksSettings)
    verify: ForWorkers[VerifySettings] = Field(default_factory=VerifySettings)
    rehearse: RehearseSettings = Field(default_factory=RehearseSettings)
    agent: ForWorkers[AgentSettings] = Field(default_factory=AgentSettings)
    agents: ForWorkers[NamedSections] = session(
        {}, "agents by names of their own: a `kind`, and what differs from the section of that kind"
    )
    codex: ForWorkers[CodexSettings] = Field(default_factory=CodexSettings)
    claude: ForWorkers[ClaudeSettings] = Field(default_factory=ClaudeSettings)
    acp: ForWorkers[AcpSettings] = Field(default_factory=AcpSettings)
    command: ForWorkers[CommandSettings] = Field(default_factory=CommandSettings)
    server: ServerSettings = Field(default_factory=ServerSettings)
    worker: WorkerSettings = Field(default_factory=WorkerSettings)
    observability: ObservabilitySettings = Field(default_factory=ObservabilitySettings)
    forge: ForgeSettings = Field(default_factory=ForgeSettings)
    review: ReviewSettings = Field(default_factory=ReviewSettings)
    tracing: TracingSettings = Field(default_factory=TracingSettings)
    retention: RetentionSettings = Field(default_factory=RetentionSettings)
    pricing: ForWorkers[Pricing] = live(
        {}, "what models cost where agents do not report it: [costs.md](costs.md)"
    )
    notify: NotifyTargets = live(
        (), "where people are [notified](notifications.md) of what needs them; a target that is wrong is off"
    )

    schedules: Schedules = live(
        (), "[issues that are filed again and again](how-to/recurring-issues.md), each by a cron line"
    )

    @property
    def deciding_labels(self) -> frozenset[str]:
        """The labels in settings that select issues, agents, phases or changes to land. They are normalised.

        The labels `skill:<name>` (`SKILL_LABEL_PREFIX`) have an effect too.
        """
        of_rules = (
            *(rule.label for rule in self.agent.rules),
            *(rule.label for rule in self.agent.phases.rules),
        )
        given = (*self.tracker.required_labels, *of_rules, *self.forge.land_limits.labels)
        return frozenset(normalise_labels(label for label in given if label is not None))

    def for_workers(self) -> dict[str, Any]:
        """The front matter of the settings with the mark `ForWorkers`, as far as the file has them."""
        marked = marked_for_workers(type(self))
        return self.model_dump(mode="json", exclude_unset=True, by_alias=True, include=marked)


def marked_for_workers(model: type[Section]) -> dict[str, Any]:
    """The marked settings of a model in the form of pydantic's `include`: nested maps by name."""
    below = {name: marked_for_workers(section) for name, section in sections(model).items()}
    whole = {
        name: True
        for name, field in model.model_fields.items()
        if any(isinstance(mark, _ForWorkers) for mark in field.metadata)
    }
    return {name: names for name, names in below.items() if names} | whole


def sections(model: type[Section]) -> Mapping[str, type[Section]]:
    """The sections of a model, by name."""
    fields = model.model_fields.items()
    return {
        name: field.annotation
        for name, field in fields
        if isinstance(field.annotation, type) and issubclass(field.annotation, Section)
    }


# --- Agents ---
#
# A kind is a name too: its settings are its section. A named agent has the section of its kind as defaults,
# and its own keys over them.


AgentKinds = Mapping[str, type[AgentSection]]
"""The kinds of agents that are installed, and the model of each one's section.

Looking a model up may import the package of the kind; a broken package raises `SymphonyError`.
"""

AGENT_SECTIONS: Final[AgentKinds] = {
    name: model for name, model in sections(Settings).items() if issubclass(model, AgentSection)
}
"""Kinds whose sections are part of `Settings`, so their packages need not be loaded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedAgent:
    """One agent that can be chosen for an issue; `own` are the keys that differ from its kind's section."""

    name: str
    kind: str
    settings: AgentSection
    own: frozenset[str] = field(default=frozenset(), repr=False, compare=False)

    @property
    def section(self) -> str:
        """The section of its keys: `codex`, or `agents.fast`."""
        return self.name if self.name == self.kind else f"agents.{self.name}"


def named_agent(name: str, values: Mapping[str, Any], base: AgentSection) -> NamedAgent:
    """One of `agents`: the section of its kind with its own values.

    Raises:
        pydantic.ValidationError: a value is invalid; validation reports it earlier.
    """
    valid = type(base).model_validate(values)
    own = {key: getattr(valid, key) for key in valid.model_fields_set}
    settings = base.model_copy(update=own)
    return NamedAgent(name=name, kind=values["kind"], settings=settings, own=frozenset(own))


def requested_agents(agent: AgentSettings, verify: VerifySettings) -> tuple[str, ...]:
    """The names of the agents that can get work: the default first, without duplicates."""

    def names() -> Iterator[str | None]:
        yield from (agent.kind, agent.fallback)
        for rule in agent.rules:
            yield from (rule.use, rule.fallback)
        yield agent.library.learner
        yield verify.reviewer

    return tuple(dict.fromkeys(name for name in names() if name is not None))
