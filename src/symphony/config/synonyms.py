"""The names of other programs for this program's settings, as data.

`find_corrections` applies it to a file, for `symphony check` and `symphony init --from`. Names are compared
in lower case with underscores: `apiKey`, `api-key` and `API_KEY` are equal.
"""

from collections.abc import Mapping
from typing import Final

SECTIONS: Final[Mapping[str, str]] = {
    "claude_code": "claude",
    "claudecode": "claude",
    "codex_cli": "codex",
    "hook": "hooks",
    "http": "server",
    "openai_codex": "codex",
    "poll": "polling",
    "poller": "polling",
    "workers": "worker",
    "workspaces": "workspace",
}
"""Sections by other names."""

_INTERVAL: Final = "polling.interval_ms"
_KIND: Final = "tracker.kind"
_AGENTS: Final = "agent.max_concurrent_agents"

SETTINGS: Final[Mapping[str, str]] = {
    "tracker.type": _KIND,
    "tracker.name": _KIND,
    "tracker.adapter": _KIND,
    "tracker.backend": _KIND,
    "tracker.system": _KIND,
    "tracker_kind": _KIND,
    "tracker_type": _KIND,
    "issue_tracker": _KIND,
    "issue_tracker.kind": _KIND,
    "issue_tracker.type": _KIND,
    "tracker.labels": "tracker.required_labels",
    "tracker.label": "tracker.required_labels",
    "tracker.required_label": "tracker.required_labels",
    "tracker.include_labels": "tracker.required_labels",
    "tracker.trigger_label": "tracker.required_labels",
    "tracker.active_state": "tracker.active_states",
    "tracker.candidate_states": "tracker.active_states",
    "tracker.eligible_states": "tracker.active_states",
    "tracker.open_states": "tracker.active_states",
    "tracker.ready_states": "tracker.active_states",
    "tracker.states.active": "tracker.active_states",
    "tracker.states.terminal": "tracker.terminal_states",
    "tracker.states.done": "tracker.terminal_states",
    "tracker.closed_states": "tracker.terminal_states",
    "tracker.completed_states": "tracker.terminal_states",
    "tracker.done_states": "tracker.terminal_states",
    "tracker.final_states": "tracker.terminal_states",
    "tracker.terminal_state": "tracker.terminal_states",
    "tracker.in_progress_state": "tracker.on_start",
    "tracker.start_state": "tracker.on_start",
    "tracker.blocked_state": "tracker.on_block",
    "tracker.poll_interval_ms": _INTERVAL,
    "tracker.polling_interval_ms": _INTERVAL,
    "polling.poll_interval_ms": _INTERVAL,
    "polling.interval": _INTERVAL,
    "polling.every_ms": _INTERVAL,
    "agent.poll_interval_ms": _INTERVAL,
    "poll_interval_ms": _INTERVAL,
    "poll_interval": _INTERVAL,
    "polling_interval_ms": _INTERVAL,
    "polling_interval": _INTERVAL,
    "workspace.path": "workspace.root",
    "workspace.dir": "workspace.root",
    "workspace.directory": "workspace.root",
    "workspace.base_dir": "workspace.root",
    "workspace.root_dir": "workspace.root",
    "workspace.workspace_root": "workspace.root",
    "workspace_root": "workspace.root",
    "workspace_dir": "workspace.root",
    "workspace.repository": "workspace.repo",
    "workspace.repo_url": "workspace.repo",
    "workspace.repository_url": "workspace.repo",
    "workspace.clone_url": "workspace.repo",
    "workspace.git_url": "workspace.repo",
    "repository.url": "workspace.repo",
    "repository.clone_url": "workspace.repo",
    "repo.url": "workspace.repo",
    "repo_url": "workspace.repo",
    "workspace.branch": "workspace.base_branch",
    "workspace.default_branch": "workspace.base_branch",
    "workspace.main_branch": "workspace.base_branch",
    "repository.default_branch": "workspace.base_branch",
    "repository.base_branch": "workspace.base_branch",
    "repo.default_branch": "workspace.base_branch",
    "repo.base_branch": "workspace.base_branch",
    "git.base_branch": "workspace.base_branch",
    "agent.feature_base_branch": "workspace.base_branch",
    "hooks.on_create": "hooks.after_create",
    "hooks.post_create": "hooks.after_create",
    "hooks.setup": "hooks.after_create",
    "hooks.pre_run": "hooks.before_run",
    "hooks.post_run": "hooks.after_run",
    "hooks.pre_remove": "hooks.before_remove",
    "hooks.before_delete": "hooks.before_remove",
    "hooks.teardown": "hooks.before_remove",
    "hooks.timeout": "hooks.timeout_ms",
    "hooks.hook_timeout_ms": "hooks.timeout_ms",
    "agent.type": "agent.kind",
    "agent.name": "agent.kind",
    "agent.backend": "agent.kind",
    "agent.provider": "agent.kind",
    "agent.runner": "agent.kind",
    "agent.runtime": "agent.kind",
    "agent.engine": "agent.kind",
    "agent_kind": "agent.kind",
    "agent.concurrency": _AGENTS,
    "agent.max_agents": _AGENTS,
    "agent.max_concurrency": _AGENTS,
    "agent.max_concurrent": _AGENTS,
    "agent.max_concurrent_runs": _AGENTS,
    "agent.max_concurrent_issues": _AGENTS,
    "agent.max_concurrent_sessions": _AGENTS,
    "agent.max_parallel": _AGENTS,
    "agent.max_workers": _AGENTS,
    "agent.parallelism": _AGENTS,
    "concurrency": _AGENTS,
    "concurrency.max_agents": _AGENTS,
    "max_concurrency": _AGENTS,
    "concurrency.max": _AGENTS,
    "agent.max_concurrent_by_state": "agent.max_concurrent_agents_by_state",
    "agent.concurrency_by_state": "agent.max_concurrent_agents_by_state",
    "agent.max_iterations": "agent.max_turns",
    "agent.turn_limit": "agent.max_turns",
    "agent.max_turns_per_session": "agent.max_turns",
    "agent.max_retry_delay_ms": "agent.max_retry_backoff_ms",
    "agent.max_backoff_ms": "agent.max_retry_backoff_ms",
    "server.bind": "server.host",
    "server.address": "server.host",
    "server.bind_address": "server.host",
    "server.bind_host": "server.host",
    "server.hostname": "server.host",
    "server.listen": "server.host",
    "server.http_port": "server.port",
    "dashboard.port": "server.port",
    "dashboard.host": "server.host",
    "port": "server.port",
    "worker.hosts": "worker.ssh_hosts",
    "worker.ssh_host": "worker.ssh_hosts",
    "ssh.hosts": "worker.ssh_hosts",
    "ssh_hosts": "worker.ssh_hosts",
    "codex.cmd": "codex.command",
    "codex.bin": "codex.command",
    "codex.binary": "codex.command",
    "codex.executable": "codex.command",
    "codex.sandbox_mode": "codex.thread_sandbox",
    "codex.sandbox": "codex.thread_sandbox",
    "codex.sandbox_policy": "codex.turn_sandbox_policy",
    "codex.approval": "codex.approval_policy",
    "codex.ask_for_approval": "codex.approval_policy",
    "codex.reasoning_effort": "codex.effort",
    "codex.model_reasoning_effort": "codex.effort",
    "claude.cmd": "claude.command",
    "claude.bin": "claude.command",
    "claude.binary": "claude.command",
    "claude.executable": "claude.command",
    "claude.reasoning_effort": "claude.effort",
    "claude.permissions": "claude.permission_mode",
}
"""Settings by other names or at other places. A name in milliseconds also covers seconds and minutes."""

NONE: Final[Mapping[str, str]] = {
    "tracker.inactive_states": "leave it out: a state that is not listed starts nothing",
    "tracker.ignored_states": "leave it out: a state that is not listed starts nothing",
    "tracker.exclude_labels": "nothing excludes by label: keep such issues in a state that is not worked on",
    "tracker.excluded_labels": "nothing excludes by label: keep such issues in a state that is not worked on",
    "tracker.ignore_labels": "nothing excludes by label: keep such issues in a state that is not worked on",
    "tracker.skip_labels": "nothing excludes by label: keep such issues in a state that is not worked on",
    "tracker.query_filter": "there is no query: labels and states choose the issues",
    "tracker.query": "there is no query: labels and states choose the issues",
    "tracker.jql": "there is no query: labels and states choose the issues",
    "tracker.handoff_state": "the prompt says where an agent moves an issue that it has finished",
    "tracker.review_state": "the prompt says where an agent moves an issue that it has finished",
    "claude.max_turns": "agent.max_turns limits the turns of every agent's session",
    "claude.allowed_tools": "write the option into claude.command: --allowedTools",
    "agent.library.holdout": "remove it: `symphony library evaluate` tests a proposal",
    "agent.max_sessions": "there is no such limit for attempts: see agent.budget",
    "agent.stop_grace_ms": "leave it out: an agent has a fixed time to end",
    "agent.retry_base_delay_ms": "leave it out: the first retry waits 10 s",
    "agent.max_budget_usd": "limits are in tokens: agent.budget.max_tokens_per_issue",
    "claude.max_budget_usd": "limits are in tokens: agent.budget.max_tokens_per_issue",
    "logging": "the log is set on the command line: symphony run --help",
    "prompts": "the one prompt is below the second ---; texts per phase are agent.instructions",
    "policy": "no section of that name: approvals and sandboxes are set in the section of the agent",
}
"""Settings without a counterpart, and what to do instead. None of them resembles a setting here."""

TRACKERS: Final[Mapping[str, str]] = {
    "file": "markdown",
    "files": "markdown",
    "folder": "markdown",
    "filesystem": "markdown",
    "kanban": "markdown",
    "local": "markdown",
    "local_file": "markdown",
    "local_files": "markdown",
    "md": "markdown",
    "codeberg": "forgejo",
    "gh": "github",
    "github_issue": "github",
    "github_issues": "github",
    "github_project": "github",
    "github_projects": "github",
    "github_projects_v2": "github",
    "github_project_v2": "github",
    "gitlab_issues": "gitlab",
    "jira_cloud": "jira",
    "atlassian": "jira",
    "linear_app": "linear",
    "in_memory": "memory",
}
"""Kinds of trackers by other names."""

PROJECT_TRACKERS: Final = frozenset(
    {"github_project", "github_projects", "github_projects_v2", "github_project_v2"}
)
"""Trackers with their states in a GitHub project."""

AGENTS: Final[Mapping[str, tuple[str, str | None]]] = {
    "aider": ("command", "aider"),
    "anthropic": ("claude", None),
    "claude_cli": ("claude", None),
    "claude_code": ("claude", None),
    "claudecode": ("claude", None),
    "codex_app_server": ("codex", None),
    "codex_cli": ("codex", None),
    "openai_codex": ("codex", None),
    "gemini": ("acp", "gemini"),
    "gemini_cli": ("acp", "gemini"),
    "opencode": ("acp", "opencode"),
}
"""Kinds of agents by other names, with the profile that goes with them."""

PROVIDER: Final[Mapping[str, Mapping[str, str]]] = {
    "linear": {"credential": "api_key", "project": "project_slug", "address": "endpoint"},
    "github": {"credential": "token", "repository": "repo", "address": "api_url"},
    "gitlab": {
        "credential": "api_key",
        "repository": "project_path",
        "project": "project_path",
        "address": "api_url",
    },
    "jira": {
        "credential": "api_token",
        "project": "project_key",
        "address": "base_url",
        "account": "email",
    },
    "asana": {"credential": "api_key", "project": "project_gid", "address": "endpoint"},
    "forgejo": {"credential": "token", "repository": "repo", "address": "url"},
    "gitea": {"credential": "token", "repository": "repo", "address": "url"},
    "redmine": {"credential": "api_key", "project": "project", "address": "base_url"},
    "markdown": {"folder": "path"},
}
"""Per kind of tracker: the key of each thing in `tracker.provider`."""

THINGS: Final[Mapping[str, frozenset[str]]] = {
    "credential": frozenset(
        {
            *("access_token", "api_key", "api_token", "apikey", "auth_token", "key", "pat"),
            *("personal_access_token", "private_token", "token"),
        }
    ),
    "repository": frozenset(
        {
            *("full_name", "project", "project_path", "project_slug", "repo", "repo_full_name", "repo_name"),
            *("repo_path", "repo_slug", "repository"),
        }
    ),
    "project": frozenset(
        {"project", "project_gid", "project_id", "project_key", "project_path", "project_slug", "slug"}
    ),
    "address": frozenset(
        {
            *("api_base_url", "api_endpoint", "api_url", "base_url", "endpoint", "host", "instance_url"),
            *("server_url", "site", "site_url", "url"),
        }
    ),
    "account": frozenset({"account", "email", "user", "user_email", "username"}),
    "folder": frozenset(
        {
            *("board", "board_dir", "board_path", "board_root", "dir", "directory", "folder", "issues_dir"),
            *("issues_path", "path", "root"),
        }
    ),
}
"""Other programs' names for these things."""

LINEAR_ALIASES: Final = ("endpoint", "api_key", "project_slug", "assignee")
"""Keys of Linear that are accepted directly below `tracker` too, as in the specification."""

OWNERS: Final = frozenset({"group", "namespace", "org", "organization", "owner", "repo_owner"})
NAMES: Final = frozenset({"name", "project", "repo", "repo_name", "repository"})
"""Two keys that together name a repository."""

PROVIDER_PLACES: Final = frozenset({"auth", "config", "connection", "options", "settings"})
"""Maps inside `tracker`, besides `provider`, in which other programs keep a tracker's settings."""

GITHUB_STATES: Final[Mapping[str, str]] = {
    "project_number": "project",
    "state_field": "field",
    "status_field": "field",
    "project_owner": "owner",
}
"""Settings of a GitHub project, in `tracker.provider.states`."""

GENERIC: Final = frozenset(
    {
        *("base_branch", "check_timeout_ms", "fetch_timeout_ms", "lease_ms", "max_age_days", "max_chars"),
        *("max_runs", "page_url", "timeout_ms", "webhook_secret"),
    }
)
"""Names too vague or too common to look up in other sections; single words count as such too."""

UNITS: Final[Mapping[str, int]] = {
    "ms": 1,
    "millis": 1,
    "milliseconds": 1,
    "s": 1_000,
    "sec": 1_000,
    "secs": 1_000,
    "seconds": 1_000,
    "m": 60_000,
    "min": 60_000,
    "mins": 60_000,
    "minutes": 60_000,
    "h": 3_600_000,
    "hours": 3_600_000,
}
"""Milliseconds in each unit, as the end of a name (`interval_seconds`) or of a value (`30s`)."""

SANDBOXES: Final[Mapping[str, str]] = {
    "danger_full_access": "dangerFullAccess",
    "read_only": "readOnly",
    "workspace_write": "workspaceWrite",
}
"""The types of `codex.turn_sandbox_policy`, by the words of `codex.thread_sandbox`."""

OTHER_HOOK_VARIABLES: Final[Mapping[str, str]] = {
    "ISSUE_ID": "SYMPHONY_ISSUE_ID",
    "ISSUE_IDENTIFIER": "SYMPHONY_ISSUE_IDENTIFIER",
    "ISSUE_KEY": "SYMPHONY_ISSUE_IDENTIFIER",
    "IDENTIFIER": "SYMPHONY_ISSUE_IDENTIFIER",
    "TICKET_ID": "SYMPHONY_ISSUE_IDENTIFIER",
    "TASK_ID": "SYMPHONY_ISSUE_IDENTIFIER",
    "WORKSPACE": "SYMPHONY_WORKSPACE",
    "WORKSPACE_DIR": "SYMPHONY_WORKSPACE",
    "WORKSPACE_PATH": "SYMPHONY_WORKSPACE",
    "ATTEMPT": "SYMPHONY_ATTEMPT",
    "RUN_ATTEMPT": "SYMPHONY_ATTEMPT",
    "RUN_ID": "SYMPHONY_RUN_ID",
}
"""The variables of hooks, by the part of the name after another program's prefix."""

HOOK_PREFIXES: Final = (
    *("CYRUS_", "DETENT_", "FABRIK_", "KATA_", "LORENZ_", "OPENSYMPHONY_", "RISOLUTO_", "SORTIE_"),
    "SYMPHONY_",
)
"""Prefixes of other programs' variables; hooks get those of this program."""

ISSUE_FIELDS: Final[Mapping[str, str]] = {
    "assignee": "assignee_id",
    "blockers": "blocked_by",
    "body": "description",
    "branch": "branch_name",
    "html_url": "url",
    "key": "identifier",
    "link": "url",
    "number": "identifier",
    "status": "state",
    "summary": "title",
    "tags": "labels",
    "text": "description",
}
"""Fields of an issue by other names."""

ISSUES: Final = frozenset({"item", "task", "ticket", "work_item"})
"""The variable `issue` by other names."""

VENDORS: Final = frozenset(
    {
        *("anthropic", "asana", "atlassian", "aws", "azure", "bitbucket", "claude", "codeberg", "codex"),
        *("discord", "forgejo", "gemini", "gh", "gitea", "github", "gitlab", "google", "jira", "linear"),
        *("notion", "openai", "redmine", "slack", "trello"),
    }
)
"""Words in a variable's name that identify its service."""
