"""Every setting there is: its key, what its value must be, its default, and when a change takes effect.

A setting is one line of one model here:

    max_turns: Positive = session(20, "turns of one session")

The type says what is accepted, `live`, `session` or `restart` when a changed value takes effect, and the
sentence is what docs/workflow-file.md (`make settings`) and `symphony check --keys` say of it. All models are
frozen and strict, and no error of theirs holds what was found in the place of a value.

Reading the file, `$VAR`, paths and the wording of mistakes are `document`, `resolve` and `validate`.
Durations end in `_ms`. A reload makes a new `Settings`.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import reduce
from pathlib import Path, PurePosixPath
from types import UnionType
from typing import Annotated, Any, ClassVar, Final, Literal, Self, TypeVar, Union, cast, get_args, get_origin

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.fields import FieldInfo
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)
from typing_extensions import override

from symphony.config.secrets import mask_secrets
from symphony.domain import normalise_label, normalise_state

MAX_NUMBER: Final = 2**53 - 1
"""The largest number that every reader of JSON takes for what it is; a clock cannot wait for more either."""

OPAQUE_KEYS: Final = frozenset(
    {("codex", "approval_policy"), ("codex", "turn_sandbox_policy"), ("acp", "system_meta")}
)
"""Maps handed to the agent unchanged, nulls included."""

NULLABLE_KEYS: Final = frozenset(
    {("agent", "skills", "user_path"), ("agent", "budget", "max_turns_without_progress")}
)
"""Keys that have a default and can be switched off: there a null means "none" and not "default"."""


# --- what a setting says of itself -----------------------------------------------------------------------


class Reload(StrEnum):
    """When a changed value takes effect (CF, reload column)."""

    LIVE = "live"
    SESSION = "session"
    RESTART = "restart"


@dataclass(frozen=True, slots=True)
class Shape:
    """What a value must be, in the words of the documentation."""

    text: str


def live(default: Any, meaning: str, **more: Any) -> Any:
    """A setting whose changed value holds from its next use on."""
    return _setting(default, meaning, Reload.LIVE, **more)


def session(default: Any, meaning: str, **more: Any) -> Any:
    """A setting whose changed value holds for sessions that start later."""
    return _setting(default, meaning, Reload.SESSION, **more)


def restart(default: Any, meaning: str, **more: Any) -> Any:
    """A setting whose changed value holds when the daemon is started again."""
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
        default: `...` for a key that must be there.
        meaning: one line of Markdown for the documentation.
        reload: when a change takes effect.
        unset: what holds where the default is `None`, in words.
        shown: the default as a file would have it, where it is known only when the file is read.
        repr: false for what may hold a secret.
    """
    extra: dict[str, Any] = {"reload": reload.value, "unset": unset, "shown": shown}
    return Field(default, description=meaning, repr=repr, json_schema_extra=extra)


# --- kinds of values -------------------------------------------------------------------------------------

_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


def _without_nul(text: str) -> str:
    if "\0" in text:
        raise ValueError("must not contain a NUL character")
    return text


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("must not be blank")
    return text


def _variable(text: str) -> str:
    if _VARIABLE.fullmatch(text) is None:
        raise ValueError("must be the name of an environment variable")
    return text


def _no_option(text: str) -> str:
    """A value that a program would take for an option must not reach its command line."""
    if text.startswith("-"):
        raise ValueError("must not begin with a dash")
    return text


def _one_word(text: str) -> str:
    if len(text.split()) != 1 or text != text.strip():
        raise ValueError("must be one word, without blanks")
    return text


def _blank_is_none(text: str) -> str | None:
    return text if text.strip() else None


def _trimmed(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name.strip() for name in names if name.strip())


def _unique(names: tuple[str, ...]) -> tuple[str, ...]:
    """Blank and repeated hosts do not count."""
    return tuple(dict.fromkeys(_no_option(name.strip()) for name in names if name.strip()))


def _labels(names: tuple[str, ...]) -> tuple[str, ...]:
    """As issue labels, but a blank one stays: it is a label no issue has, so it matches nothing."""
    return tuple(dict.fromkeys(map(normalise_label, names)))


def _inside_workspace(text: str) -> str:
    path = PurePosixPath(text)
    if not text.strip() or path.is_absolute() or ".." in path.parts or text.startswith("~"):
        raise ValueError("must be a path inside the workspace: relative, not empty, without ..")
    return text


def _home_or_absolute(text: str) -> str:
    """Not taken from a workspace or from this file: it is the same directory for all sessions."""
    if not (text.startswith(("/", "~/")) or text == "~"):
        raise ValueError("must be an absolute path, or begin with ~/")
    return text


def _one_or_more(value: object) -> object:
    return (value,) if isinstance(value, str) else value


def _text_or_map(value: object) -> object:
    if not isinstance(value, str | dict):
        raise ValueError("must be text or a map")  # noqa: TRY004 - pydantic reports ValueError only
    return value


T = TypeVar("T")


def _json_safe(value: T) -> T:
    """The agent is spoken to in JSON, which knows neither `.nan` nor `.inf`."""
    try:
        json.dumps(value, allow_nan=False)
    except ValueError as error:
        raise ValueError("must not contain .nan or .inf") from error
    return value


def _true_or_false(text: object) -> bool:
    value = {"true": True, "false": False}.get(str(text).strip().lower())
    if value is None:
        raise ValueError("must be true or false")
    return value


Text = Annotated[str, AfterValidator(_without_nul), Shape("text")]
Name = Annotated[Text, AfterValidator(_not_blank)]
LowerName = Annotated[Name, AfterValidator(normalise_state)]
AgentName = Annotated[Name, Shape("name of an agent")]
GitName = Annotated[Name, AfterValidator(_no_option)]
Repository = Annotated[GitName, Shape("path or URL")]
Host = Annotated[Name, AfterValidator(_one_word)]
ShellCommand = Annotated[Name, Shape("shell command")]
Script = Annotated[Text, AfterValidator(_blank_is_none), Shape("script")]
VariableName = Annotated[Text, AfterValidator(_variable)]
AbsolutePath = Annotated[Path, Shape("path")]
SkillsPath = Annotated[Text, AfterValidator(_inside_workspace), Shape("relative path")]
UserPath = Annotated[Name, AfterValidator(_home_or_absolute)]

Flag = Annotated[bool, Shape("true or false")]
Whole = Annotated[int, Field(ge=-MAX_NUMBER, le=MAX_NUMBER), Shape("number")]
Positive = Annotated[int, Field(gt=0, le=MAX_NUMBER), Shape("number > 0")]
NonNegative = Annotated[int, Field(ge=0, le=MAX_NUMBER), Shape("number ≥ 0")]
Port = Annotated[int, Field(ge=0, le=65_535), Shape("number 0 to 65535")]

# A file has lists: `strict=False` takes them for tuples, and their items are judged as strictly as ever.
Names = Annotated[tuple[Text, ...], Field(strict=False), Shape("list of text")]
States = Annotated[Names, AfterValidator(_trimmed)]
Labels = Annotated[Names, AfterValidator(_labels)]
Hosts = Annotated[Names, AfterValidator(_unique)]
SkillNames = Annotated[tuple[Name, ...], Field(strict=False), Shape("list of text")]
EnvNames = Annotated[tuple[VariableName, ...], Field(strict=False), Shape("list of variable names")]
SkillsPaths = Annotated[tuple[SkillsPath, ...], Field(strict=False), Shape("list of relative paths")]
UserPaths = Annotated[
    tuple[UserPath, ...],
    Field(strict=False),
    BeforeValidator(_one_or_more),
    Shape("absolute path, or list of them"),
]

Map = Annotated[dict[str, Any], Shape("map")]
MaskedMap = Annotated[Map, AfterValidator(mask_secrets)]
EnvValues = Annotated[dict[VariableName, Text], Shape("map of variable name to text")]
StateLimits = Annotated[dict[str, Positive], Shape("map of state to number > 0")]
NamedSections = Annotated[dict[str, Any], Shape("map of name to settings")]
OpaqueMap = Annotated[Map, AfterValidator(_json_safe)]
OpaqueTextOrMap = Annotated[
    str | dict[str, Any], BeforeValidator(_text_or_map), AfterValidator(_json_safe), Shape("text or map")
]


# --- the sections of a file ------------------------------------------------------------------------------


class Section(BaseModel):
    """A map of a file. Unknown keys are warned about by `validate`, not refused."""

    model_config = ConfigDict(frozen=True, strict=True, hide_input_in_errors=True, extra="ignore")


class TrackerSettings(Section):
    """`tracker`: which board, and which of its states mean what. `provider` belongs to the adapter.

    Secrets that stand in `provider` literally are held as `Secret`, whose text form is masked.
    States are null where the file does not name them: then the adapter's defaults hold, if it has any.
    `on_start` and `on_block` are states that the daemon moves issues to. `comment_on_delivery` says whether
    an issue gets a comment when its work is ready for review. `webhook_secret` switches webhooks on; it is
    `$NAME` or, against all advice, the secret itself, and no part of the text form.
    """

    kind: Name = live(..., "the tracker: one of [these](trackers/README.md)")
    provider: MaskedMap = live({}, "settings of that tracker, as its page tells them")
    required_labels: Labels = live((), "an issue must carry all of them; a blank one matches nothing")
    active_states: States | None = live(
        None, "states in which an issue is worked on; an empty list means none", unset="the tracker's own"
    )
    terminal_states: States | None = live(
        None, "states in which an issue is over; wins over active", unset="the tracker's own"
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
    """`workspace`: where workspaces live, what populates them, and what holds an agent inside.

    `root` and a local `repo` are absolute after resolution. `repo` null leaves population to the hooks; it
    may be an address with credentials, so it is no part of the text form.
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
        "never", "`origin` [pushes](#where-finished-work-goes) the issue's branch after each attempt"
    )
    keep_dirty: Flag = live(True, "keep a workspace that holds uncommitted work, even when its issue is over")
    isolation: Literal["none", "bwrap"] = session(
        "none",
        "`bwrap` encloses agents: the workspace can be written to, everything else only read, and other "
        "workspaces not be seen",
    )
    network: Literal["open", "closed"] = session(
        "open",
        "whether enclosed agents have a network; `closed` leaves them without any model that is elsewhere",
    )


class HooksSettings(Section):
    """`hooks`: shell scripts around a run, null where there is none; `timeout_ms` holds for each."""

    after_create: Script | None = live(None, "shell script in a new workspace; failure aborts its creation")
    before_run: Script | None = live(None, "before each attempt; failure aborts the attempt")
    after_run: Script | None = live(None, "after each attempt; failure is logged")
    before_remove: Script | None = live(None, "before a workspace is removed; failure is logged")
    timeout_ms: Positive = live(60_000, "limit of each hook; its whole process group ends then")


class BudgetSettings(Section):
    """`agent.budget`: what an issue, and a day, may use up before a person is asked; null is without limit.

    Tokens are those that the agent reports as total; days are those of UTC.
    """

    max_tokens_per_issue: Positive | None = live(
        None, "total tokens that an issue may use up; then it is stopped in mid-turn and a person is asked"
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


class SkillsSettings(Section):
    """`agent.skills`: the catalog of skills in the envelope.

    `path` and `extra_paths` are below the workspace. Each of `user_path`, which may be a single text, is
    absolute or below the home of the account that the daemon runs as; null switches that scope off.
    `search_above` null means that all are listed.
    """

    enabled: Flag = live(True, "list skills; off means that nothing is looked for")
    path: SkillsPath = live(".symphony/skills", "where skills are, inside the workspace")
    user_path: UserPaths | None = live(
        ("~/.symphony/skills",),
        "skills of the account that the daemon runs as; of a list the earlier goes first; null switches "
        "them off",
        shown="~/.symphony/skills",
    )
    extra_paths: SkillsPaths = live((), "further directories of the workspace, such as `.agents/skills`")
    max_skills_in_prompt: Positive = live(50, "at most so many are listed; the rest is logged by name")
    max_prompt_chars: Positive = live(8_000, "at most so many characters in the whole list")
    format: Literal["compact", "full", "xml"] = live("compact", "how the list is written")
    validation: Literal["lenient", "strict"] = live("lenient", "how much a file may differ from the format")
    comment_on: Literal["error", "warning", "never"] = live(
        "error", "how bad a problem must be for a comment on the issue"
    )
    name_fallback: Flag = live(False, "a missing name is that of the directory")
    reserved_words: SkillNames = live((), "words that no name may contain")
    include: SkillNames = live((), "exact names to list; empty for all")
    disabled_skills: SkillNames = live((), "exact names to leave out")
    native: Literal["auto", "always"] = live(
        "auto", "what becomes of the agent's own list of skills; see [skills.md](skills.md)"
    )
    activation: Literal["read", "tool"] = live(
        "read", "how a session gets at a skill: by reading the file, or by a tool"
    )
    search_above: Positive | None = live(
        None, "beyond so many skills a tool searches them instead of a full list"
    )
    source: Literal["workspace", "base_branch"] = live(
        "workspace", "whose skills: those of the issue's branch, or those of the base branch"
    )


class AgentRule(Section):
    """One of `agent.rules`: `use` an agent for issues with a label, in a state, or both (all that is told).

    Labels and states are trimmed and lower-cased. `fallback` null means `agent.fallback`.
    """

    use: Name
    label: LowerName | None = None
    state: LowerName | None = None
    fallback: Name | None = None


AgentRules = Annotated[tuple[AgentRule, ...], Field(strict=False), Shape("list of rules")]


class AgentSettings(Section):
    """`agent`: limits of scheduling, and which agent runs.

    `kind` is a kind or a name of `agents`. The first of `rules` that fits an issue chooses instead of it,
    when a run starts; `fallback` takes over while the agent is rate limited or out of credit.
    Keys of `max_concurrent_agents_by_state` are trimmed and lower-cased; entries that are not a number
    greater than 0 were left out with a warning.
    """

    kind: Name = session(
        "codex",
        "the agent that issues get: `codex`, `claude`, `acp`, `command`, or a name of `agents`; see "
        "[agents.md](agents.md)",
    )
    fallback: AgentName | None = session(
        None, "who takes over while that agent is rate limited or out of credit"
    )
    rules: AgentRules = session(
        (),
        "other agents for issues with a label, in a state, or both; the first rule that fits holds: "
        "[choosing](agents.md#choosing)",
    )
    max_concurrent_agents: Positive = live(10, "sessions at the same time")
    max_turns: Positive = session(20, "turns of one session")
    max_retry_backoff_ms: Positive = live(
        300_000, "longest wait before a retry: 10 s, 20 s, 40 s … up to this"
    )
    max_concurrent_agents_by_state: StateLimits = live({}, "the same per issue state")
    drain_timeout_ms: NonNegative = live(30_000, "how long running turns may go on after the first SIGTERM")
    budget: BudgetSettings = Field(default_factory=BudgetSettings)
    skills: SkillsSettings = Field(default_factory=SkillsSettings)


class AgentSection(Section):
    """What the section of every agent has; kinds from other packages add keys (docs/adapters.md)."""

    model: Name | None = session(None, "model name", unset="the agent's own")
    home: Literal["operator", "private"] = session("operator", "`private`: a home of the daemon's own")
    env: EnvNames = session((), "variables of the daemon that it gets too")
    turn_timeout_ms: Positive = session(3_600_000, "silence within a turn")
    stall_timeout_ms: Whole = live(300_000, "as `codex.stall_timeout_ms`")


class CodexSettings(AgentSection):
    """`codex`: the app-server backend.

    `command` is a shell string and never rewritten. Null sandbox keys mean our recipe.
    `turn_timeout_ms` limits silence, `read_timeout_ms` one request; `stall_timeout_ms` <= 0 disables.
    """

    command: ShellCommand = session(
        "codex app-server", "shell command that starts the agent; never rewritten"
    )
    model: Name | None = session(None, "model name", unset="Codex's own")
    effort: Name | None = session(None, "how much the model thinks, in Codex's words", unset="Codex's own")
    home: Literal["operator", "private"] = session(
        "operator", "`private`: a home of the daemon's own, with a login of its own and nothing inherited"
    )
    env: EnvNames = session((), "variables of the daemon that it gets too")
    approval_policy: OpaqueTextOrMap = session(
        "never", "passed through; `symphony check` warns of what Codex 0.169 refuses"
    )
    thread_sandbox: Name = session("workspace-write", "passed through")
    turn_sandbox_policy: OpaqueMap | None = session(
        None, "passed through unchanged; see below", unset="our recipe"
    )
    on_approval: Literal["decline", "accept", "block"] = session(
        "decline", "`decline`, `accept` or `block` if the agent asks all the same"
    )
    turn_timeout_ms: Positive = session(3_600_000, "silence within a turn")
    read_timeout_ms: Positive = session(5_000, "one request to the agent")
    stall_timeout_ms: Whole = live(
        300_000, "silence after which a run is stopped and retried; 0 or less switches it off"
    )


class ClaudeSettings(AgentSection):
    """`claude`: Claude Code over stream-json.

    `on_approval` answers what the agent's permission mode leaves open. `home: private` gives it a
    configuration directory of the daemon's own. Times as in `codex`.
    """

    command: ShellCommand = session(
        "claude", "shell command that starts Claude Code; arguments are added to it"
    )
    model: Name | None = session(None, "model name", unset="Claude's own")
    effort: Name | None = session(None, "how much the model thinks, in Claude's words", unset="Claude's own")
    home: Literal["operator", "private"] = session(
        "operator", "`private`: a configuration directory of the daemon's own"
    )
    permission_mode: Literal["default", "acceptEdits", "plan", "dontAsk", "bypassPermissions"] = session(
        "acceptEdits", "what it may do without asking, in Claude's words"
    )
    on_approval: Literal["decline", "accept", "block"] = session(
        "decline", "the answer when it asks all the same"
    )
    env: EnvNames = session((), "variables of the daemon that it gets too")
    turn_timeout_ms: Positive = session(3_600_000, "silence within a turn")
    read_timeout_ms: Positive = session(30_000, "one request to the agent")
    stall_timeout_ms: Whole = live(300_000, "as `codex.stall_timeout_ms`")


class AcpSettings(AgentSection):
    """`acp`: any agent that speaks the Agent Client Protocol.

    `profile` names what is known of an agent; every other key overrides the profile, null means its value.
    `system_text` says how the envelope travels: `meta` (session/new), `config` (the profile's own way) or
    `prompt`, in front of the first prompt, which every agent takes. `system_meta` is what `meta` adds to the
    request, with `{envelope}` where the text stands. `mode` is set by `session/set_mode`. `usage_path` leads
    to the token counts in the answer to a prompt, with dots; `env_values` are variables with fixed values.
    """

    profile: Name = session("generic", "what is known of the agent; every other key overrides it")
    command: ShellCommand | None = session(None, "shell command that starts the agent", unset="the profile's")
    model: Name | None = session(None, "model name", unset="the agent's own")
    home: Literal["operator", "private"] = session("operator", "`private`: a home of the daemon's own")
    mode: Name | None = session(None, "the mode that a session is set to", unset="the agent's own")
    system_text: Literal["meta", "config", "prompt"] | None = session(
        None,
        "how the system-level text travels; `prompt` is in front of the first prompt",
        unset="the profile's",
    )
    on_approval: Literal["decline", "accept", "block"] = session("decline", "the answer when it asks")
    env: EnvNames = session((), "variables of the daemon that it gets too")
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
    turn_timeout_ms: Positive = session(3_600_000, "silence within a turn")
    read_timeout_ms: Positive = session(5_000, "one request to the agent")
    stall_timeout_ms: Whole = live(300_000, "as `codex.stall_timeout_ms`")


class CommandSettings(AgentSection):
    """`command`: a one-shot program per turn, whose exit code and changed tree are the result.

    `command` is a shell string in which `{prompt_file}`, `{envelope_file}`, `{issue}` and `{model}` stand for
    quoted words; `profile` names a known program, whose command is used where none is told.
    """

    profile: Name = session("generic", "what is known of the program; every other key overrides it")
    command: ShellCommand | None = session(
        None,
        "shell command of one turn, with `{prompt_file}`, `{envelope_file}`, `{issue}` and `{model}` for "
        "quoted words",
        unset="the profile's",
    )
    model: Name | None = session(None, "what `{model}` stands for", unset="the agent's own")
    home: Literal["operator", "private"] = session("operator", "`private`: a home of the daemon's own")
    env: EnvNames = session((), "variables of the daemon that it gets too")
    turn_timeout_ms: Positive = session(3_600_000, "silence within a turn")
    stall_timeout_ms: Whole = live(300_000, "as `codex.stall_timeout_ms`")


class ServerSettings(Section):
    """`server`: the HTTP API on TCP. A port, 0 for a free one, switches it on."""

    port: Port | None = restart(
        None, "the [HTTP API](api.md) listens here; 0 takes a free port; none means no TCP port"
    )
    host: Host = restart("127.0.0.1", "address to listen on; others than this machine's own need a token")


class WorkerSettings(Section):
    """`worker`: other machines to run sessions on; none means this one.

    This version has no such workers. What starts a daemon must refuse a list that is not empty, because
    falling back to this machine would run agents where nobody asked for them.
    """

    ssh_hosts: Hosts = live(
        (), "machines to run sessions on; this version has none and refuses a list that is not empty"
    )
    max_concurrent_agents_per_host: Positive | None = live(None, "sessions at the same time on one of them")


class ObservabilitySettings(Section):
    """`observability`: the reference's live view in a terminal, which this version does not have."""

    dashboard_enabled: Flag = restart(
        True, "for a live view in a terminal; this version has none, `symphony status --watch` shows the same"
    )
    refresh_ms: Positive = restart(1_000, "how often that view takes new facts; read by nothing yet")
    render_interval_ms: Positive = restart(
        16, "shortest time between two pictures of it; read by nothing yet"
    )


class RetentionSettings(Section):
    """`retention`: how much of what ended runs left is kept; the newest stays, and all of live runs.

    `max_log_bytes` is of all agents' stderr logs together, `max_journal_bytes` of the journal's file.
    """

    max_age_days: Positive = live(
        30,
        "what ended runs left (journal, stderr logs) is kept so long; see [`symphony "
        "clean`](commands.md#symphony-clean)",
    )
    max_runs: Positive = live(1_000, "so many ended runs are remembered in the journal")
    max_log_bytes: Positive = live(104_857_600, "the agents' stderr logs together; the oldest go first")
    max_journal_bytes: Positive = live(268_435_456, "the journal's file; the oldest runs go first")


# --- the whole, and where it comes from ------------------------------------------------------------------


class FrontMatterSource(PydanticBaseSettingsSource):
    """The front matter of a file, as `validate` prepared it."""

    def __init__(self, settings_cls: type[BaseSettings], front_matter: Mapping[str, Any]) -> None:
        super().__init__(settings_cls)
        self._front_matter = front_matter

    @override
    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        return self._front_matter[field_name], field_name, False

    @override
    def __call__(self) -> dict[str, Any]:
        known = self.settings_cls.model_fields.items()
        return {name: self.get_field_value(of, name)[0] for name, of in known if name in self._front_matter}


class EnvironmentSource(EnvSettingsSource):
    """The variables of a given environment, secrets from files among them, and not those of the process."""

    def __init__(self, settings_cls: type[BaseSettings], environment: Mapping[str, str]) -> None:
        super().__init__(settings_cls)
        self.env_vars = environment


class _Given(BaseSettings):
    """Settings with one source, which is given: neither the process nor another file is read."""

    model_config = SettingsConfigDict(frozen=True, strict=True, hide_input_in_errors=True, extra="ignore")

    source: ClassVar[type[FrontMatterSource] | type[EnvironmentSource]]

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        """What a front matter, or an environment, means.

        Raises:
            pydantic.ValidationError: everything that is wrong; its text holds no value.
        """
        values: dict[str, Any] = {"given": given}
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
        given = cast("InitSettingsSource", init_settings).init_kwargs["given"]
        return (cls.source(settings_cls, given),)


class Variables(_Given):
    """The variables that override keys of the file, each called `SYMPHONY_` and its field.

    There is one, and no other variable changes a setting.
    """

    model_config = SettingsConfigDict(
        case_sensitive=True, alias_generator=lambda field: f"SYMPHONY_{field.upper()}"
    )
    source = EnvironmentSource

    agent_skills_enabled: Annotated[bool, BeforeValidator(_true_or_false)] | None = None


class Settings(_Given):
    """The whole front matter, typed and resolved.

    `agents` holds, by name, a `kind` and what differs from the section of that kind (`agents.named_agents`).
    """

    source = FrontMatterSource

    tracker: TrackerSettings
    workspace: WorkspaceSettings
    polling: PollingSettings = Field(default_factory=PollingSettings)
    hooks: HooksSettings = Field(default_factory=HooksSettings)
    agent: AgentSettings = Field(default_factory=AgentSettings)
    agents: NamedSections = session(
        {}, "agents by names of their own: a `kind`, and what differs from the section of that kind"
    )
    codex: CodexSettings = Field(default_factory=CodexSettings)
    claude: ClaudeSettings = Field(default_factory=ClaudeSettings)
    acp: AcpSettings = Field(default_factory=AcpSettings)
    command: CommandSettings = Field(default_factory=CommandSettings)
    server: ServerSettings = Field(default_factory=ServerSettings)
    worker: WorkerSettings = Field(default_factory=WorkerSettings)
    observability: ObservabilitySettings = Field(default_factory=ObservabilitySettings)
    retention: RetentionSettings = Field(default_factory=RetentionSettings)


# Every key of the front matter as one table, made from the models: name, shape, default, reload class.


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One key.

    Attributes:
        name: dotted, as people write it (`agent.max_turns`).
        shape: what its value must be.
        default: as it would stand in the file; `None` where leaving it out means nothing is set.
        unset: what holds where there is no default, in words.
        required: it has no default.
        reload: when a change takes effect.
        meaning: one line of Markdown, with links as docs/workflow-file.md has them.
    """

    name: str
    shape: str
    default: str | None
    unset: str
    required: bool
    reload: Reload
    meaning: str


def sections(model: type[Section] | type[Settings]) -> Mapping[str, type[Section]]:
    """The sections that a model holds, by their names."""
    fields = model.model_fields.items()
    return {
        name: field.annotation
        for name, field in fields
        if isinstance(field.annotation, type) and issubclass(field.annotation, Section)
    }


def keys_of(model: type[Section] | type[Settings], prefix: str = "") -> Iterator[Key]:
    """The keys of a model and of the sections in it; those that it inherits come last."""
    below = sections(model)
    own = [name for name in model.__annotations__ if name in model.model_fields]
    for name in dict.fromkeys((*own, *model.model_fields)):
        if name in below:
            yield from keys_of(below[name], f"{prefix}{name}.")
        else:
            yield _key(f"{prefix}{name}", model.model_fields[name])


def _key(name: str, field: FieldInfo) -> Key:
    told = field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}
    shown, required = told.get("shown"), field.is_required()
    default = None if required else _written(field.get_default(call_default_factory=True))
    return Key(
        name=name,
        shape=_shape(field.annotation, field.metadata),
        default=str(shown) if shown else default,
        unset=str(told.get("unset", "none")),
        required=required and not shown,
        reload=Reload(str(told.get("reload", Reload.SESSION))),
        meaning=field.description or "",
    )


def _shape(annotation: Any, marks: Sequence[object]) -> str:
    """The outermost mark, as an alias may carry one that another alias overrides; choices by their names."""
    for mark in reversed(marks):
        if isinstance(mark, Shape):
            return mark.text
    inside = get_args(annotation)
    if get_origin(annotation) is Annotated:
        return _shape(inside[0], inside[1:])
    if get_origin(annotation) is Literal:
        return ", ".join(f"`{value}`" for value in inside)
    if get_origin(annotation) in {Union, UnionType}:
        return _shape(inside[0], ())
    return str(getattr(annotation, "__name__", annotation))


def _written(value: object) -> str | None:
    match value:
        case None:
            return None
        case bool():
            return str(value).lower()
        case ():
            return "[]"
        case _:
            return str(value)


KEYS: Final[Mapping[str, Key]] = {key.name: key for key in keys_of(Settings)}
"""In the order of the models."""


def value_of(settings: Settings, name: str) -> Any:
    """The value of a key by its dotted name."""
    return reduce(getattr, name.split("."), settings)


def changed_keys(before: Settings, after: Settings, reload: Reload) -> tuple[str, ...]:
    """The keys of one reload class whose values differ."""
    return tuple(
        key.name
        for key in KEYS.values()
        if key.reload is reload and value_of(before, key.name) != value_of(after, key.name)
    )


# The agents of a workflow by name: kinds, and what `agents` calls by names of its own.
#
# A kind is a name too: its settings are its section. A named agent has the section of its kind as defaults,
# and its own keys over them.


AgentKinds = Mapping[str, type[AgentSection]]
"""The kinds of agents that are installed, and the model of each one's section.

To look a model up may import the package of the kind, which raises `SymphonyError` for one that is broken.
"""

AGENT_SECTIONS: Final[AgentKinds] = {
    name: model for name, model in sections(Settings).items() if issubclass(model, AgentSection)
}
"""Those whose sections are part of `Settings`, which takes no look at their packages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedAgent:
    """One agent that an issue may be given to; `settings` are of its `kind`, and `own` names its own keys."""

    name: str
    kind: str
    settings: AgentSection
    own: frozenset[str] = field(default=frozenset(), repr=False, compare=False)

    @property
    def section(self) -> str:
        """Where its keys are written: `codex`, or `agents.fast`."""
        return self.name if self.name == self.kind else f"agents.{self.name}"


def named_agent(name: str, values: Mapping[str, Any], base: AgentSection) -> NamedAgent:
    """One of `agents`: its own values over those of its kind's section.

    Raises:
        pydantic.ValidationError: a value is wrong, which the review of the file tells before.
    """
    judged = type(base).model_validate(values)
    own = {key: getattr(judged, key) for key in judged.model_fields_set}
    settings = base.model_copy(update=own)
    return NamedAgent(name=name, kind=values["kind"], settings=settings, own=frozenset(own))


def requested_agents(agent: AgentSettings) -> tuple[str, ...]:
    """The names of those that some issue may be given to: the default first, once each."""

    def names() -> Iterator[str | None]:
        yield from (agent.kind, agent.fallback)
        for rule in agent.rules:
            yield from (rule.use, rule.fallback)

    return tuple(dict.fromkeys(name for name in names() if name is not None))
