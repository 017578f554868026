"""What `symphony init` writes: the skeleton of WORKFLOW.md, and the pieces of each tracker and each agent.

`compose` puts them together. Nothing in here depends on the path of a checkout, and no piece holds a secret:
the file refers to variables.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Final
from urllib.parse import urlsplit

_PLAIN = re.compile(r"[A-Za-z_/][\w./+-]*|~/[\w./+-]*|https?://[\w./-]+(?::\d+)?[\w./-]*", re.ASCII)
_SCP = re.compile(r"(?:[^@/\s]+@)?([^:/@\s]+):([^\s]+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Remote:
    """A repository on a forge: `site` is the address of the forge, `path` the name of the repository."""

    site: str
    path: str

    @property
    def host(self) -> str:
        """The host of the site."""
        return urlsplit(self.site).hostname or ""


def remote_of(url: str) -> Remote | None:
    """Read the URL of a git remote; credentials in it are dropped. `None` for a path, or what is no URL."""
    try:
        parts = urlsplit(url.strip())
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    path = parts.path
    if parts.scheme not in {"http", "https", "ssh", "git"}:
        found = _SCP.fullmatch(url.strip())
        if found is None or "://" in url:
            return None
        host, path = found.groups()
    scheme = parts.scheme if parts.scheme in {"http", "https"} else "https"
    port = port if parts.scheme in {"http", "https"} else None
    path = path.strip("/").removesuffix(".git")
    if not host or "/" not in path:
        return None
    return Remote(site=f"{scheme}://{host}" + (f":{port}" if port else ""), path=path)


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """A setting of `tracker.provider` that only the user knows.

    Attributes:
        option: the option that gives it, without dashes.
        key: its key in the file.
        question: what is asked on a terminal.
        example: a value that the adapter takes.
        default: what holds where the key is left out; `None` where there must be one.
        suffix: what the address of the API has behind that of the site.
    """

    option: str
    key: str
    question: str
    example: str
    default: str | None = None
    suffix: str = ""

    def written(self, value: str) -> str | None:
        """The value as the file has it; `None` where the default says the same."""
        if not self.suffix:
            return value
        site = value.rstrip("/").removesuffix(self.suffix)
        return None if site == self.default else f"{site}{self.suffix}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """A variable that the file refers to; `invented` is a value of its form, to judge a file without it."""

    name: str
    source: str
    invented: str = "invented"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackerPieces:
    """One tracker.

    Attributes:
        title: what people call it.
        settings: the lines below `tracker`; `@PROVIDER@` stands for those of `values`, `@ON_BLOCK@` for that
            key.
        polling: the comment on the interval.
        values: what has to be asked.
        variables: what has to be set where the daemon starts.
        review: the state in which people look at finished work; `review_is_guessed` where a team may call it
            otherwise.
        move, comment: the tools that every session has.
        begin: how an issue comes to an agent; `{review}`, `{repo}` and so on are filled in.
    """

    title: str
    settings: str
    polling: str = "until a change there is seen, at most; webhooks make it quicker"
    values: tuple[Value, ...] = ()
    variables: tuple[Variable, ...] = ()
    review: str = "Human Review"
    review_is_guessed: bool = False
    move: str = "issue_move"
    comment: str = "issue_comment"
    begin: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """The agent of a file.

    Attributes:
        kind: its kind.
        settings: the section of that name.
        program: what has to be on PATH; `None` where that is not known.
        missing: the line that tells what to do where it is not.
        isolated: whether `workspace.isolation` has to hold it.
        tools: whether its sessions take tools; else the daemon moves the issue.
    """

    kind: str
    settings: str
    program: str | None = None
    missing: str = ""
    isolated: bool = False
    tools: bool = True


# --- trackers ---

_REPO = Value(option="repo", key="repo", question="Repository (owner/name)", example="octo-team/website")
_FORGEJO = """\
  kind: @KIND@
  active_states: [Todo, In Progress]
  terminal_states: [Done, closed]
@ON_BLOCK@
  provider:
@PROVIDER@
    token: $@TOKEN@
    states:
      source: labels          # an issue with the label status/todo is worked on, others are left alone
      labels: {Human Review: status/human-review}
    scope: issue              # what the raw tool `forgejo_api` may reach: issue, project, token or off"""
_FORGEJO_BEGIN = (
    "Create the labels status/todo, status/in-progress, status/human-review and status/done in {repo},\n"
    "best as exclusive ones. An issue with the label status/todo is worked on."
)
_FORGEJO_TOKEN = "one with read:user and write:issue: {url}/user/settings/applications"  # noqa: S105 - where it is made


def _forgejo(kind: str, title: str, token: str, example: str) -> TrackerPieces:
    return TrackerPieces(
        title=title,
        settings=_FORGEJO.replace("@KIND@", kind).replace("@TOKEN@", token),
        values=(Value(option="url", key="url", question=f"Address of {title}", example=example), _REPO),
        variables=(Variable(name=token, source=_FORGEJO_TOKEN),),
        begin=_FORGEJO_BEGIN,
    )


TRACKERS: Final[Mapping[str, TrackerPieces]] = {
    "markdown": TrackerPieces(
        title="files in this repository, without an account",
        settings="""\
  kind: markdown              # issues are files below .symphony/issues, one each
  # required_labels: [agent]  # only issues that carry all of these are worked on
  # active_states: [Todo, In Progress]
  # terminal_states: [Done, Cancelled]
@ON_BLOCK@""",
        polling="the board is also watched, so a saved issue is seen at once",
        move="board_move",
        comment="board_comment",
    ),
    "linear": TrackerPieces(
        title="Linear",
        settings="""\
  kind: linear
  required_labels: [symphony] # only issues that carry all of these labels are worked on
  active_states: [Todo, In Progress]
  terminal_states: [Done, Canceled, Duplicate]
@ON_BLOCK@
  provider:
@PROVIDER@
    api_key: $LINEAR_API_KEY
    scope: off                # `token` gives agents `linear_graphql`, with all that the key may do""",
        values=(
            Value(
                option="project",
                key="project_slug",
                question="Project (the last part of its address)",
                example="billing-a1b2c3d4e5f6",
            ),
        ),
        variables=(Variable(name="LINEAR_API_KEY", source="Linear, Settings, Security & access, API keys"),),
        review="In Review",
        review_is_guessed=True,
        begin="Give an issue of the project in Todo the label symphony: it is worked on.",
    ),
    "github": TrackerPieces(
        title="GitHub",
        settings="""\
  kind: github
  active_states: [Todo, In Progress]
  terminal_states: [Done]     # a closed issue is over as well
@ON_BLOCK@
  provider:
@PROVIDER@
    token: $GITHUB_TOKEN
    states:
      source: labels          # an issue with the label status:todo is worked on, others are left alone
      labels: {Human Review: "status:human-review"}
    scope: issue              # what the raw tool `github_api` may reach: issue, project, token or off""",
        values=(
            Value(
                option="url",
                key="api_url",
                question="Address of GitHub",
                example="https://github.example.com",
                default="https://github.com",
                suffix="/api/v3",
            ),
            _REPO,
        ),
        variables=(
            Variable(
                name="GITHUB_TOKEN",
                source="one that may read and write issues of {repo}: {url}/settings/tokens",
            ),
        ),
        begin="Give an issue of {repo} the label status:todo: it is worked on.",
    ),
    "gitlab": TrackerPieces(
        title="GitLab",
        settings="""\
  kind: gitlab
  active_states: [Todo, In Progress]
  terminal_states: [Done]     # a closed issue is over as well
@ON_BLOCK@
  provider:
@PROVIDER@
    api_key: $GITLAB_PAT
    states:
      source: labels          # an issue with the label workflow::todo is worked on, others are left alone
      labels: {Human Review: "workflow::human-review"}
    scope: issue              # what the raw tool `gitlab_api` may reach: issue, project, token or off""",
        values=(
            Value(
                option="url",
                key="api_url",
                question="Address of GitLab",
                example="https://gitlab.example.com",
                default="https://gitlab.com",
                suffix="/api/v4",
            ),
            Value(
                option="repo",
                key="project_path",
                question="Project (group/name)",
                example="platform/website",
            ),
        ),
        variables=(
            Variable(
                name="GITLAB_PAT",
                source="one with the scope api: {url}/-/user_settings/personal_access_tokens",
            ),
        ),
        begin="Give an issue of {repo} the label workflow::todo: it is worked on.",
    ),
    "jira": TrackerPieces(
        title="Jira Cloud",
        settings="""\
  kind: jira
  required_labels: [symphony] # only issues that carry all of these labels are worked on
  active_states: [To Do, In Progress]
  terminal_states: [Done]
@ON_BLOCK@
  provider:
@PROVIDER@
    email: $JIRA_EMAIL
    api_token: $JIRA_API_TOKEN
    scope: issue              # what the raw tool `jira_rest` may reach: issue, project, token or off""",
        values=(
            Value(
                option="url",
                key="base_url",
                question="Address of the site",
                example="https://team.atlassian.net",
            ),
            Value(option="project", key="project_key", question="Key of the project", example="PAY"),
        ),
        variables=(
            Variable(
                name="JIRA_EMAIL",
                source="the address of the account that the token belongs to",
                invented="somebody@example.test",
            ),
            Variable(
                name="JIRA_API_TOKEN",
                source="https://id.atlassian.com/manage-profile/security/api-tokens",
            ),
        ),
        review="In Review",
        review_is_guessed=True,
        begin="Give an issue of {project} in To Do the label symphony: it is worked on.",
    ),
    "asana": TrackerPieces(
        title="Asana",
        settings="""\
  kind: asana
  required_labels: [symphony] # only tasks that carry all of these tags are worked on
  active_states: [To do, Doing]
  terminal_states: [Done, completed]
@ON_BLOCK@
  provider:
@PROVIDER@
    api_key: $ASANA_PAT
    scope: issue              # what the raw tool `asana_api` may reach: issue, project, token or off""",
        values=(
            Value(
                option="project",
                key="project_gid",
                question="Number in the project's address",
                example="1201234567890",
            ),
        ),
        variables=(Variable(name="ASANA_PAT", source="https://app.asana.com/0/my-apps"),),
        review="Review",
        review_is_guessed=True,
        begin="Give a task in the section To do the tag symphony: it is worked on.",
    ),
    "forgejo": _forgejo("forgejo", "Forgejo", "FORGEJO_TOKEN", "https://codeberg.org"),
    "gitea": _forgejo("gitea", "Gitea", "GITEA_TOKEN", "https://git.example.org"),
    "redmine": TrackerPieces(
        title="Redmine",
        settings="""\
  kind: redmine
  required_labels: [symphony] # only issues of this category are worked on; Redmine has no labels
  active_states: [New, In Progress]
  terminal_states: [Closed, Rejected]
@ON_BLOCK@
  provider:
@PROVIDER@
    api_key: $REDMINE_API_KEY
    scope: issue              # what the raw tool `redmine_api` may reach: issue, project, token or off""",
        values=(
            Value(
                option="url",
                key="base_url",
                question="Address of Redmine",
                example="https://redmine.example.org",
            ),
            Value(
                option="project",
                key="project",
                question="Identifier in the project's address",
                example="billing",
            ),
        ),
        variables=(Variable(name="REDMINE_API_KEY", source="{url}/my/account"),),
        polling="until a change there is seen, at most",
        review="Resolved",
        review_is_guessed=True,
        begin="Give an issue of {project} in New the category symphony: it is worked on.",
    ),
}


# --- agents ---

AGENTS: Final[Mapping[str, str]] = {
    "codex": "OpenAI Codex",
    "claude": "Claude Code",
    "acp": "Gemini CLI, OpenCode or any other that speaks the Agent Client Protocol",
    "command": "a shell command that is run once a turn, such as aider",
}
"""The kinds of agents and what they are."""


def agent_of(kind: str, *, profile: str | None = None, command: str | None = None) -> Agent:
    """The pieces of an agent: `profile` is that of `acp`, `command` the one of `command` or of `acp`."""
    match kind:
        case "acp":
            return _acp(profile or "generic", command)
        case "claude":
            return Agent(
                kind=kind,
                settings="""\
claude:
  command: claude
  # model: sonnet
  on_approval: decline        # it edits and commits; to let it run tests as well, write accept here, and
                              # isolation: bwrap below workspace, which then holds it""",
                program="claude",
                missing="npm install -g @anthropic-ai/claude-code && claude auth login    # not there yet",
            )
        case "command":
            return Agent(
                kind=kind,
                settings=f"""\
command:
  command: {scalar(command or "")}
  # env: [OPENAI_API_KEY]     # variables of the daemon that it gets besides the common ones""",
                isolated=True,
                tools=False,
            )
        case _:
            return Agent(
                kind=kind,
                settings="codex:\n  command: codex app-server",
                program="codex",
                missing="npm install -g @openai/codex && codex login    # the agent is not installed yet",
            )


def _acp(name: str, command: str | None) -> Agent:
    # Imported here: only this kind has profiles to look up.
    from symphony.agents.acp.profiles import PROFILES

    profile = PROFILES[name]
    started = command or profile.command
    approval = "accept         # it may do what it asks for; workspace.isolation holds it"
    if sandboxed := name == "codex-acp" and command is None:
        approval = "decline        # its own sandbox holds it, and what it asks for beyond that is declined"
    own = f"\n  command: {scalar(command)}" if command else ""
    return Agent(
        kind="acp",
        settings=f"""\
acp:
  profile: {name}{own}
  # model: NAME               # one that it offers
  on_approval: {approval}""",
        program=started.split()[0] if started else None,
        missing=f"# {(started or '').partition(' ')[0]} is not on PATH: {profile.install_hint}",
        isolated=not sandboxed,
    )


# --- the file ---

_ISOLATION = """\
  isolation: bwrap            # agents see their workspace and little else; needs bubblewrap
"""
_BUDGET_IN_TOKENS = """\
    max_tokens_per_issue: 5000000  # cached ones included; then a person is asked
    # max_tokens_per_day: 50000000 # of all issues together"""
_BUDGET_IN_TURNS = """\
    max_turns_per_issue: 10          # a command tells no tokens; then a person is asked
    max_attempts_without_progress: 2 # and so it is once two runs in a row have changed nothing"""
_WITH_TOOLS = """\
- Tell people what matters with the `{comment}` tool, briefly.
- When the work is finished, or when you need somebody's decision, move the issue to `{review}` with the
  `{move}` tool. As long as it stays in an active state you will be asked to go on."""
_OTHER_STATES = """
  Where there is no such state the answer of the tool names those there are: take the one in which people look
  at finished work."""
_WITHOUT_TOOLS = """\
- You have no tool that reaches the issue: what people should know stands in the messages of your commits.
- When the work is finished, change nothing more. You are asked again until nothing changes any more; then
  the issue goes to `{review}`, where a person looks at it."""


def compose(tracker: str, agent: Agent, provider: Mapping[str, str], *, base_branch: str) -> str:
    """WORKFLOW.md for a tracker and an agent; `provider` are the values of the user, by their keys."""
    pieces = TRACKERS[tracker]
    if agent.tools:
        on_block = (
            f"  # on_block: {pieces.review}".ljust(29) + " # where an issue goes that waits for a person"
        )
        ending = _WITH_TOOLS + (_OTHER_STATES if pieces.review_is_guessed else "")
    else:
        on_block = f"  on_block: {pieces.review}".ljust(29) + " # the agent has no tools: the daemon moves it"
        ending = _WITHOUT_TOOLS
    lines = "\n".join(f"    {key}: {scalar(value)}" for key, value in provider.items())
    parts = {
        "@TRACKER@": _filled(pieces.settings, {"@ON_BLOCK@": on_block, "@PROVIDER@": lines}),
        "@POLLING@": pieces.polling,
        "@BASE_BRANCH@": scalar(base_branch),
        "@ISOLATION@": _ISOLATION if agent.isolated else "",
        "@AGENT@": agent.kind,
        "@MAX_TURNS@": "20" if agent.tools else "1",
        "@BUDGET@": _BUDGET_IN_TOKENS if agent.tools else _BUDGET_IN_TURNS,
        "@SETTINGS@": agent.settings,
        "@ENDING@": ending.format(move=pieces.move, comment=pieces.comment, review=pieces.review),
    }
    return _filled(scaffold("WORKFLOW.md"), parts)


def _filled(text: str, parts: Mapping[str, str]) -> str:
    return re.sub(r"@[A-Z_]+@", lambda place: parts[place[0]], text)


def scaffold(name: str) -> str:
    """A file of the scaffold."""
    return (resources.files("symphony.cli") / "scaffold" / name).read_text(encoding="utf-8")


def scalar(text: str) -> str:
    """The text as a YAML scalar: quoted where YAML could take it for something else than this text."""
    plain = _PLAIN.fullmatch(text) and text.lower() not in {"true", "false", "null"}
    return text if plain else json.dumps(text, ensure_ascii=False)
