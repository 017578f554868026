"""The content of `symphony init`: WORKFLOW.md, from a template for each tracker and each agent.

A WORKFLOW.md contains neither the path of a checkout nor a secret: it refers to variables.
"""

import json
import re
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Final
from urllib.parse import urlsplit

from msgspec import Struct

from symphony.agents.acp.profiles import PROFILES
from symphony.cli.found_checks import FoundCheck

_PLAIN = re.compile(r"[A-Za-z_/][\w./+-]*|~/[\w./+-]*|https?://[\w./-]+(?::\d+)?[\w./-]*", re.ASCII)
_EXAMPLE_CHECK = FoundCheck(run="make test", reason="your own command: nothing was found", sure=False)
_SCP = re.compile(r"(?:[^@/\s]+@)?([^:/@\s]+):([^\s]+)")


class Remote(Struct, frozen=True, kw_only=True):
    """A repository on a forge: `site` is the address of the forge, `path` the name of the repository."""

    site: str
    path: str

    @property
    def host(self) -> str:
        """The host name of the site."""
        return urlsplit(self.site).hostname or ""


def parse_remote(url: str) -> Remote | None:
    """Parse the URL of a git remote, without its credentials; None if it does not name a forge."""
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
    is_web = parts.scheme in {"http", "https"}
    scheme = parts.scheme if is_web else "https"
    path = path.strip("/").removesuffix(".git")
    if not host or "/" not in path:
        return None
    return Remote(site=f"{scheme}://{host}" + (f":{port}" if port and is_web else ""), path=path)


# --- trackers --------------------------------------------------------------------------------------------


class ProviderSetting(Struct, frozen=True, kw_only=True):
    """A setting of `tracker.provider` that only the user knows.

    Attributes:
        option: the command line option, without dashes.
        key: the key in the file.
        question: the prompt on a terminal.
        example: a value that the adapter accepts.
        default: used if the key is missing in the file; None if it must be given.
        suffix: appended to the address of the site to make that of the API.
    """

    option: str
    key: str
    question: str
    example: str
    default: str | None = None
    suffix: str = ""

    def file_value(self, value: str) -> str | None:
        """The value for the file; None if it equals the default."""
        if not self.suffix:
            return value
        site = value.rstrip("/").removesuffix(self.suffix)
        return None if site == self.default else f"{site}{self.suffix}"


class Variable(Struct, frozen=True, kw_only=True):
    """A variable that the file refers to.

    Attributes:
        source: where the user gets its value.
        placeholder: a value of the right form, to validate the file without the real one.
    """

    name: str
    source: str
    placeholder: str = "placeholder"


class TrackerTemplate(Struct, frozen=True, kw_only=True):
    """The parts of WORKFLOW.md, and of the messages of `init`, that depend on the tracker.

    Attributes:
        title: its name for people.
        issues: lines of `tracker` that select issues.
        provider: lines of `tracker.provider` behind those of `settings`; empty if there is no such section.
        polling: the comment on the interval.
        settings: what the user is asked for.
        variables: what must be set in the environment of the daemon.
        review: the state in which people look at finished work.
        review_may_differ: teams may have another name for it.
        move_tool, comment_tool: the tools that every session has.
        start: how an issue is given to an agent; `{repo}` and the other options are filled in.
    """

    title: str
    issues: str
    provider: str = ""
    polling: str = "until a change there is seen, at most; webhooks make it quicker"
    settings: tuple[ProviderSetting, ...] = ()
    variables: tuple[Variable, ...] = ()
    review: str = "Human Review"
    review_may_differ: bool = False
    move_tool: str = "issue_move"
    comment_tool: str = "issue_comment"
    start: str = ""


def _scope(tool: str) -> str:
    return (
        f"    scope: issue              # what the raw tool `{tool}` may reach: issue, project, token or off"
    )


_BY_LABEL = "  required_labels: [symphony] # only issues that carry all of these labels are worked on\n"
_REPO = ProviderSetting(
    option="repo", key="repo", question="Repository (owner/name)", example="octo-team/website"
)


def _forgejo(title: str, token: str, example: str) -> TrackerTemplate:
    url = ProviderSetting(option="url", key="url", question=f"Address of {title}", example=example)
    source = "one with read:user and write:issue: {url}/user/settings/applications"
    return TrackerTemplate(
        title=title,
        issues="""\
  active_states: [Todo, In Progress]
  terminal_states: [Done, closed]""",
        provider=f"""\
    token: ${token}
    states:
      source: labels          # an issue with the label status/todo is worked on, others are left alone
      labels: {{Human Review: status/human-review}}
{_scope("forgejo_api")}""",
        settings=(url, _REPO),
        variables=(Variable(name=token, source=source),),
        start=(
            "Create the labels status/todo, status/in-progress, status/human-review and status/done in "
            "{repo},\nbest as exclusive ones. An issue with the label status/todo is worked on."
        ),
    )


TRACKERS: Final[Mapping[str, TrackerTemplate]] = {
    "markdown": TrackerTemplate(
        title="files in this repository, without an account",
        issues="""\
  # required_labels: [agent]  # only issues that carry all of these are worked on
  # active_states: [Todo, In Progress]
  # terminal_states: [Done, Cancelled]""",
        polling="the board is also watched, so a saved issue is seen at once",
        move_tool="board_move",
        comment_tool="board_comment",
    ),
    "linear": TrackerTemplate(
        title="Linear",
        issues=_BY_LABEL
        + """\
  active_states: [Todo, In Progress]
  terminal_states: [Done, Canceled, Duplicate]""",
        provider="""\
    api_key: $LINEAR_API_KEY
    scope: off                # `token` gives agents `linear_graphql`, with all that the key may do""",
        settings=(
            ProviderSetting(
                option="project",
                key="project_slug",
                question="Project (the last part of its address)",
                example="billing-a1b2c3d4e5f6",
            ),
        ),
        variables=(Variable(name="LINEAR_API_KEY", source="Linear, Settings, Security & access, API keys"),),
        review="In Review",
        review_may_differ=True,
        start="Give an issue of the project in Todo the label symphony: it is worked on.",
    ),
    "github": TrackerTemplate(
        title="GitHub",
        issues="""\
  active_states: [Todo, In Progress]
  terminal_states: [Done]     # a closed issue is terminal too""",
        provider=f"""\
    token: $GITHUB_TOKEN
    states:
      source: labels          # an issue with the label status:todo is worked on, others are left alone
      labels: {{Human Review: "status:human-review"}}
{_scope("github_api")}""",
        settings=(
            ProviderSetting(
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
        start="Give an issue of {repo} the label status:todo: it is worked on.",
    ),
    "gitlab": TrackerTemplate(
        title="GitLab",
        issues="""\
  active_states: [Todo, In Progress]
  terminal_states: [Done]     # a closed issue is terminal too""",
        provider=f"""\
    api_key: $GITLAB_PAT
    states:
      source: labels          # an issue with the label workflow::todo is worked on, others are left alone
      labels: {{Human Review: "workflow::human-review"}}
{_scope("gitlab_api")}""",
        settings=(
            ProviderSetting(
                option="url",
                key="api_url",
                question="Address of GitLab",
                example="https://gitlab.example.com",
                default="https://gitlab.com",
                suffix="/api/v4",
            ),
            ProviderSetting(
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
        start="Give an issue of {repo} the label workflow::todo: it is worked on.",
    ),
    "jira": TrackerTemplate(
        title="Jira Cloud",
        issues=_BY_LABEL
        + """\
  active_states: [To Do, In Progress]
  terminal_states: [Done]""",
        provider=f"""\
    email: $JIRA_EMAIL
    api_token: $JIRA_API_TOKEN
{_scope("jira_rest")}""",
        settings=(
            ProviderSetting(
                option="url",
                key="base_url",
                question="Address of the site",
                example="https://team.atlassian.net",
            ),
            ProviderSetting(
                option="project", key="project_key", question="Key of the project", example="PAY"
            ),
        ),
        variables=(
            Variable(
                name="JIRA_EMAIL",
                source="the address of the account that the token belongs to",
                placeholder="user@example.test",
            ),
            Variable(
                name="JIRA_API_TOKEN",
                source="https://id.atlassian.com/manage-profile/security/api-tokens",
            ),
        ),
        review="In Review",
        review_may_differ=True,
        start="Give an issue of {project} in To Do the label symphony: it is worked on.",
    ),
    "asana": TrackerTemplate(
        title="Asana",
        issues="""\
  required_labels: [symphony] # only tasks that carry all of these tags are worked on
  active_states: [To do, Doing]
  terminal_states: [Done, completed]""",
        provider=f"""\
    api_key: $ASANA_PAT
{_scope("asana_api")}""",
        settings=(
            ProviderSetting(
                option="project",
                key="project_gid",
                question="Number in the project's address",
                example="1201234567890",
            ),
        ),
        variables=(Variable(name="ASANA_PAT", source="https://app.asana.com/0/my-apps"),),
        review="Review",
        review_may_differ=True,
        start="Give a task in the section To do the tag symphony: it is worked on.",
    ),
    "forgejo": _forgejo("Forgejo", "FORGEJO_TOKEN", "https://codeberg.org"),
    "gitea": _forgejo("Gitea", "GITEA_TOKEN", "https://git.example.org"),
    "redmine": TrackerTemplate(
        title="Redmine",
        issues="""\
  required_labels: [symphony] # only issues of this category are worked on; Redmine has no labels
  active_states: [New, In Progress]
  terminal_states: [Closed, Rejected]""",
        provider=f"""\
    api_key: $REDMINE_API_KEY
{_scope("redmine_api")}""",
        settings=(
            ProviderSetting(
                option="url",
                key="base_url",
                question="Address of Redmine",
                example="https://redmine.example.org",
            ),
            ProviderSetting(
                option="project",
                key="project",
                question="Identifier in the project's address",
                example="billing",
            ),
        ),
        variables=(Variable(name="REDMINE_API_KEY", source="{url}/my/account"),),
        polling="until a change there is seen, at most",
        review="Resolved",
        review_may_differ=True,
        start="Give an issue of {project} in New the category symphony: it is worked on.",
    ),
}


# --- agents ----------------------------------------------------------------------------------------------


class AgentTemplate(Struct, frozen=True, kw_only=True):
    """The parts of WORKFLOW.md, and of the messages of `init`, that depend on the agent.

    Attributes:
        settings: the section of its kind.
        program: what must be on PATH; None if that is unknown.
        install: the shell line, or comment, that is printed if the program is missing.
        needs_isolation: the agent has no sandbox of its own.
        has_tools: sessions can move and comment on issues; otherwise the daemon moves them.
    """

    kind: str
    settings: str
    program: str | None = None
    install: str = ""
    needs_isolation: bool = False
    has_tools: bool = True


AGENTS: Final[Mapping[str, str]] = {
    "codex": "OpenAI Codex",
    "claude": "Claude Code",
    "acp": "Gemini CLI, OpenCode or any other that speaks the Agent Client Protocol",
    "command": "a shell command that is run once a turn, such as aider",
}
"""Kinds of agents and their names for people."""


def agent_template(kind: str, *, profile: str | None = None, command: str | None = None) -> AgentTemplate:
    """The template of an agent.

    Args:
        kind: a key of `AGENTS`.
        profile: the profile of an `acp` agent.
        command: the shell command of a `command` agent, or of an `acp` agent.
    """
    match kind:
        case "acp":
            return _acp_template(profile or "generic", command)
        case "claude":
            return AgentTemplate(
                kind=kind,
                settings="""\
claude:
  command: claude
  # model: sonnet
  on_approval: decline        # it edits and commits; to let it run tests as well, write accept here, and
                              # isolation: bwrap below workspace, which then confines it""",
                program="claude",
                install="npm install -g @anthropic-ai/claude-code && claude auth login    # not there yet",
            )
        case "command":
            return AgentTemplate(
                kind=kind,
                settings=f"""\
command:
  command: {scalar(command or "")}
  # env: [OPENAI_API_KEY]     # variables of the daemon that it gets besides the common ones""",
                needs_isolation=True,
                has_tools=False,
            )
        case _:
            return AgentTemplate(
                kind=kind,
                settings="codex:\n  command: codex app-server",
                program="codex",
                install="npm install -g @openai/codex && codex login    # the agent is not installed yet",
            )


def _acp_template(name: str, command: str | None) -> AgentTemplate:
    profile = PROFILES[name]
    program = (command or profile.command or "").split(maxsplit=1)[:1]
    has_sandbox = name == "codex-acp" and command is None
    if has_sandbox:
        approval = "decline        # its own sandbox confines it; requests beyond that are declined"
    else:
        approval = "accept         # it may do what it asks for; workspace.isolation confines it"
    command_line = f"\n  command: {scalar(command)}" if command else ""
    return AgentTemplate(
        kind="acp",
        settings=f"""\
acp:
  profile: {name}{command_line}
  # model: NAME               # one that it offers
  on_approval: {approval}""",
        program=program[0] if program else None,
        install=f"# {''.join(program)} is not on PATH: {profile.install_hint}",
        needs_isolation=not has_sandbox,
    )


# --- WORKFLOW.md -----------------------------------------------------------------------------------------

_ISOLATION = """\
  isolation: bwrap            # agents see their workspace and little else; needs bubblewrap
"""
_BUDGET_IN_TOKENS = """\
    max_tokens_per_issue: 5000000  # cached ones included; then a person is asked
    # max_tokens_per_day: 50000000 # of all issues together"""
_BUDGET_IN_TURNS = """\
    max_turns_per_issue: 10          # a command reports no tokens; then a person is asked
    max_attempts_without_progress: 2 # a person is also asked after two runs in a row without a change"""
_WITH_TOOLS = """\
- Tell people what matters with the `{comment}` tool, briefly.
- When the work is finished, or when you need a decision, move the issue to `{review}` with the
  `{move}` tool. As long as it stays in an active state you will be asked to go on."""
_OTHER_STATES = """
  If there is no such state, the answer of the tool names the existing ones: take the one in which people look
  at finished work."""
_WITHOUT_TOOLS = """\
- You have no tool that reaches the issue: put what people should know into the messages of your commits.
- When the work is finished, change nothing more. You are asked again until nothing changes any more; then
  the issue goes to `{review}`, where a person looks at it."""


def compose_workflow(
    tracker: str,
    agent: AgentTemplate,
    provider: Mapping[str, str],
    *,
    base_branch: str,
    skill_folders: Sequence[str] = (),
    show_folders: bool = False,
    checks: Sequence[FoundCheck] = (),
) -> str:
    """The text of WORKFLOW.md.

    Args:
        tracker: a key of `TRACKERS`.
        agent: who works.
        provider: values of the user by their keys in the file.
        base_branch: the branch that workspaces begin at.
        skill_folders: further folders with skills; a comment offers them unless `show_folders`.
        show_folders: whether sessions see them.
        checks: what the repository says of its tests; a comment offers what is not sure.
    """
    template = TRACKERS[tracker]
    if agent.has_tools:
        comment = "where an issue goes that waits for a person"
        ending = _WITH_TOOLS + (_OTHER_STATES if template.review_may_differ else "")
    else:
        comment = "the agent has no tools: the daemon moves it"
        ending = _WITHOUT_TOOLS
    on_block = f"{'  # ' if agent.has_tools else '  '}on_block: {template.review}"
    lines = [template.issues, f"{on_block:<29} # {comment}"]
    if template.provider:
        values = [f"    {key}: {scalar(value)}" for key, value in provider.items()]
        lines += ["  provider:", *values, template.provider]
    kind = f"  kind: {tracker}"
    if tracker == "markdown":
        kind = f"{kind:<29} # issues are files below .symphony/issues, one each"
    parts = {
        "@TRACKER@": "\n".join([kind, *lines]),
        "@POLLING@": template.polling,
        "@BASE_BRANCH@": scalar(base_branch),
        "@ISOLATION@": _ISOLATION if agent.needs_isolation else "",
        "@VERIFY@": _verify(checks),
        "@AGENT@": agent.kind,
        "@SKILL_FOLDERS@": _skill_folders(skill_folders, show=show_folders),
        "@MAX_TURNS@": "20" if agent.has_tools else "1",
        "@BUDGET@": _BUDGET_IN_TOKENS if agent.has_tools else _BUDGET_IN_TURNS,
        "@SETTINGS@": agent.settings,
        "@ENDING@": ending.format(
            move=template.move_tool, comment=template.comment_tool, review=template.review
        ),
    }
    return re.sub(r"@[A-Z_]+@", lambda found: parts[found[0]], scaffold("WORKFLOW.md"))


def _skill_folders(folders: Sequence[str], *, show: bool) -> str:
    if not folders:
        return ""
    paths = ", ".join(map(scalar, folders))
    offer = "" if show else "   # take the # away to show the skills there as well"
    return f"\n    {'' if show else '# '}extra_paths: [{paths}]{offer}"


def _verify(checks: Sequence[FoundCheck]) -> str:
    """The section `verify`, as a comment if nothing of it is sure."""
    sure = any(check.sure for check in checks)
    lines = [f"{'verify:':<29} # runs on finished work, and must pass before it is ready", "  commands:"]
    for check in checks or (_EXAMPLE_CHECK,):
        item = f"    {'# ' if sure and not check.sure else ''}- {check.run}"
        lines.append(f"{item:<29} # {check.reason}")
    if sure:
        return "\n".join(lines)
    return "\n".join(f"# {line.replace('  #', '#', 1)}" for line in lines)


def scaffold(name: str) -> str:
    """The text of a file in the package's `scaffold` directory."""
    return (resources.files("symphony.cli") / "scaffold" / name).read_text(encoding="utf-8")


def scalar(text: str) -> str:
    """The text as a YAML scalar, quoted if YAML could read it as something else."""
    plain = _PLAIN.fullmatch(text) and text.lower() not in {"true", "false", "null"}
    return text if plain else json.dumps(text, ensure_ascii=False)
