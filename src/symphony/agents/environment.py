"""The environment of an agent: an allow-list, because its tool shells show all of it to a model (AG20).

What passes, and why:
- who and where: `HOME`, `PATH`, `SHELL`, `USER`, `LOGNAME`, `TMPDIR`, `XDG_*`;
- how to speak: `LANG`, `LANGUAGE`, `LC_*`, `TERM`, `TZ`;
- how to reach the network: proxies and certificate stores;
- what the backend names: for Codex its home, its OpenAI variables, and the `env_key` variables of the model
  providers in the operator's own config.toml, which cannot work without them.

Nobody sits at the terminal, so git is told not to ask and not to open an editor.

Everything else stays out: tracker tokens, cloud credentials, `SSH_AUTH_SOCK`, `GIT_*`, `LD_*`, `BASH_ENV`.
Names that a tracker declares secret stay out even when they are on the list or asked for by a workflow.

A home of the daemon's own (`home: private`) inherits nothing of the operator's: no login, MCP server, skill,
instruction or setting of the person who runs the daemon reaches such an agent (DESIGN 9). A person logs the
agent in there once. A home stays between sessions, because agents keep their threads in it.
"""

import os
import re
import stat
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

from symphony.agents.base import AgentError, BackendContext
from symphony.domain import Blame, Category, Failure, disk_full_hint, is_disk_full
from symphony.processes.table import RUN_ID_VARIABLE

_PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy", "ftp_proxy")
_NAMES = frozenset(
    {
        *("HOME", "PATH", "SHELL", "USER", "LOGNAME", "TMPDIR"),
        *("LANG", "LANGUAGE", "TERM", "TZ"),
        *("SSL_CERT_FILE", "SSL_CERT_DIR", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS"),
        *_PROXIES,
        *(name.upper() for name in _PROXIES),
    }
)
_PREFIXES = ("LC_", "XDG_")
_UNATTENDED = {"GIT_TERMINAL_PROMPT": "0", "GIT_EDITOR": "true", "GIT_PAGER": "cat"}

KEYS: Final = frozenset(
    {
        *("OPENAI_API_KEY", "CODEX_API_KEY", "AZURE_OPENAI_API_KEY", "AZURE_API_KEY"),
        *("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"),
        *("GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_APPLICATION_CREDENTIALS"),
        *("OPENCODE_API_KEY", "OPENROUTER_API_KEY", "CURSOR_API_KEY", "AMP_API_KEY", "FACTORY_API_KEY"),
        *("MISTRAL_API_KEY", "DEEPSEEK_API_KEY", "GROQ_API_KEY", "XAI_API_KEY", "COHERE_API_KEY"),
        *("DASHSCOPE_API_KEY", "MOONSHOT_API_KEY", "ZAI_API_KEY", "TOGETHER_API_KEY", "FIREWORKS_API_KEY"),
        *("CEREBRAS_API_KEY", "PERPLEXITY_API_KEY", "HF_TOKEN", "AWS_BEARER_TOKEN_BEDROCK"),
    }
)
"""The variables in which keys of agents and of models are kept: no agent gets those of another (AG20).

The allow-list leaves them out; this is for login profiles, which bring them back.
"""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", re.ASCII)
_ELSEWHERE = re.compile(r"XDG_(?:CONFIG|DATA|STATE|CACHE)_HOME|XDG_RUNTIME_DIR", re.ASCII)
_HINT = "set SYMPHONY_STATE_DIR to a directory that this user can write"


def child_environment(
    parent: Mapping[str, str],
    *,
    run_id: str,
    agent_names: Collection[str] = (),
    extra: Mapping[str, str] | None = None,
    secret_names: Collection[str] = (),
) -> dict[str, str]:
    """The variables a child gets: the allowed ones of `parent`, then `extra`, never one of `secret_names`.

    `agent_names` are further names that the backend needs. `SYMPHONY_RUN_ID` is always ours, so that a
    successor finds what this run started (DESIGN 10).
    """
    passed = {name: value for name, value in parent.items() if _allowed(name) or name in agent_names}
    passed.update(extra or {})
    kept = {name: value for name, value in passed.items() if name not in secret_names}
    return {**_UNATTENDED, **kept, RUN_ID_VARIABLE: run_id}


def _allowed(name: str) -> bool:
    return name in _NAMES or name.startswith(_PREFIXES)


def foreign_keys(own: Collection[str]) -> frozenset[str]:
    """Those that an agent whose variables are `own` never sees."""
    return KEYS - frozenset(own)


# --- homes of the daemon's own ---------------------------------------------------------------------------


def private_home(context: BackendContext, name: str, *, outside_temp: bool = False) -> Path:
    """The home of the agent called `name`, made for this user alone (mode 0700) if need be; blocking.

    `outside_temp` is for agents that refuse a home below the temp directory, which of theirs is ours too.

    Raises:
        AgentError: `state_directory`; it cannot be made, is not ours, or lies where the agent refuses it.
    """
    home = context.homes / name
    if not _NAME.fullmatch(name):
        raise _unusable(
            f"an agent called {name[:60]!r} can have no home", hint="use letters, digits and . _ -"
        )
    temp = temp_directory(context.environ)
    if outside_temp and Path(os.path.realpath(home)).is_relative_to(os.path.realpath(temp)):
        hint = f"{_HINT} and that is not below {temp}"
        raise _unusable(f"the agent's home {home} lies below the temp directory {temp}", hint=hint)
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        facts = home.lstat()
        if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.geteuid():
            raise _unusable(f"the agent's home {home} is not a directory of this user")
        for place in (context.homes, home):
            place.chmod(0o700)
    except OSError as error:
        hint = disk_full_hint(home) if is_disk_full(error) else _HINT
        raise _unusable(f"the agent's home {home} cannot be made: {error.strerror}", hint=hint) from error
    return home


def at_home(environ: Mapping[str, str], home: Path) -> dict[str, str]:
    """The variables of a program that lives in `home`: nothing points to what the operator has elsewhere."""
    passed = {name: value for name, value in environ.items() if not _ELSEWHERE.fullmatch(name)}
    return {**passed, "HOME": str(home)}


def temp_directory(environ: Mapping[str, str]) -> Path:
    """Where programs with these variables keep temporary files."""
    return Path(environ.get("TMPDIR") or "/tmp")  # noqa: S108 - where others look, nothing is made here


def _unusable(message: str, *, hint: str = _HINT) -> AgentError:
    failure = Failure(
        category=Category.STATE_DIRECTORY, blame=Blame.HOST, message=message, retryable=False, hint=hint
    )
    return AgentError(failure)
