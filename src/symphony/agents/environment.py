"""The environment of an agent: an allow-list, because its tool shells show all of it to a model.

These variables pass:
- user and paths: `HOME`, `PATH`, `SHELL`, `USER`, `LOGNAME`, `TMPDIR`, `XDG_*`;
- language and terminal: `LANG`, `LANGUAGE`, `LC_*`, `TERM`, `TZ`;
- network: proxies and certificate stores;
- those that the backend names, such as its API keys.

Everything else stays out: tracker tokens, cloud credentials, `SSH_AUTH_SOCK`, `GIT_*`, `LD_*`, `BASH_ENV`.
What the workflow file refers to as a credential of the daemon stays out even if an agent's `env` names it.
Sessions are unattended, so git may neither ask questions nor open an editor.

An agent with a private home (`home: private`) inherits no login, MCP server, skill, instruction or setting of
the person who runs the daemon. A person logs the agent in there once. The home stays between sessions,
because agents keep their threads in it.
"""

import os
import re
import stat
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from symphony.agents.base import AgentError, BackendContext
from symphony.domain import CREDENTIALS, Blame, Category, Failure, disk_full_hint, is_disk_full
from symphony.processes.table import RUN_ID_VARIABLE

_PROXIES: Final = ("http_proxy", "https_proxy", "all_proxy", "no_proxy", "ftp_proxy")
_NAMES: Final = frozenset(
    {
        *("HOME", "PATH", "SHELL", "USER", "LOGNAME", "TMPDIR"),
        *("LANG", "LANGUAGE", "TERM", "TZ"),
        *("SSL_CERT_FILE", "SSL_CERT_DIR", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS"),
        *_PROXIES,
        *(name.upper() for name in _PROXIES),
    }
)
_PREFIXES: Final = ("LC_", "XDG_")
UNATTENDED: Final = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_EDITOR": "true",
    "GIT_SEQUENCE_EDITOR": "true",
    "GIT_PAGER": "cat",
}
"""Variables that keep git from asking questions and opening editors, even if a login profile sets others."""


AGENT_KEYS: Final = frozenset(
    {
        *("OPENAI_API_KEY", "OPENAI_ADMIN_KEY", "CODEX_API_KEY", "AZURE_OPENAI_API_KEY", "AZURE_API_KEY"),
        *(
            "ANTHROPIC_API_KEY",
            "ANTHROPIC_AUTH_TOKEN",
            "CLAUDE_CODE_OAUTH_TOKEN",
            "ANTHROPIC_FOUNDRY_API_KEY",
        ),
        *(
            "GEMINI_API_KEY",
            "GOOGLE_API_KEY",
            "GOOGLE_GENERATIVE_AI_API_KEY",
            "GOOGLE_APPLICATION_CREDENTIALS",
        ),
        *("OPENCODE_API_KEY", "OPENROUTER_API_KEY", "CURSOR_API_KEY", "AMP_API_KEY", "FACTORY_API_KEY"),
        *(
            "MISTRAL_API_KEY",
            "DEEPSEEK_API_KEY",
            "GROQ_API_KEY",
            "XAI_API_KEY",
            "COHERE_API_KEY",
            "CO_API_KEY",
        ),
        *("DASHSCOPE_API_KEY", "MOONSHOT_API_KEY", "KIMI_API_KEY", "MINIMAX_API_KEY", "ZAI_API_KEY"),
        *("ZHIPU_API_KEY", "ZHIPUAI_API_KEY", "TOGETHER_API_KEY", "TOGETHERAI_API_KEY", "FIREWORKS_API_KEY"),
        *("CEREBRAS_API_KEY", "PERPLEXITY_API_KEY", "NVIDIA_API_KEY", "VOYAGE_API_KEY", "OLLAMA_API_KEY"),
        *("HF_TOKEN", "HUGGINGFACE_API_KEY", "HUGGING_FACE_HUB_TOKEN", "REPLICATE_API_TOKEN"),
        *("LITELLM_API_KEY", "AI_GATEWAY_API_KEY", "AWS_BEARER_TOKEN_BEDROCK"),
    }
)
"""Variables with keys of agents and models. An agent gets its own keys and never those of others."""

ALL_CREDENTIALS: Final = CREDENTIALS | AGENT_KEYS
"""Variables that authenticate at any service. A child gets only its own and those passed on by name.

The allow-list leaves them out, but a login profile could bring them back.
"""

_AGENT_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", re.ASCII)
_XDG_LOCATIONS: Final = re.compile(r"XDG_(?:CONFIG|DATA|STATE|CACHE)_HOME|XDG_RUNTIME_DIR", re.ASCII)
_HOME_HINT: Final = "set SYMPHONY_STATE_DIR to a directory that this user can write"


def child_environment(
    parent: Mapping[str, str],
    *,
    run_id: str,
    agent_names: Collection[str] = (),
    extra: Mapping[str, str] | None = None,
    secret_names: Collection[str] = (),
) -> dict[str, str]:
    """Return the variables of a child: the allowed ones of `parent`, then `extra`, without `secret_names`.

    `agent_names` are further allowed names. `SYMPHONY_RUN_ID` always holds the run id, by which a later
    daemon finds the processes of the run.
    """
    passed = {
        name: value
        for name, value in parent.items()
        if name in _NAMES or name in agent_names or name.startswith(_PREFIXES)
    }
    passed.update(extra or {})
    kept = {name: value for name, value in passed.items() if name not in secret_names}
    return {**UNATTENDED, **kept, RUN_ID_VARIABLE: run_id}


def private_home(context: BackendContext, name: str, *, outside_temp: bool = False) -> Path:
    """Make the private home of an agent if need be, for this user alone (mode 0700); blocking.

    `outside_temp` refuses a home below the temp directory, which some agents do not accept.

    Raises:
        AgentError: `state_directory`.
    """
    home = context.homes / name
    if not _AGENT_NAME.fullmatch(name):
        message = f"an agent called {name[:60]!r} can have no home"
        raise _home_error(message, hint="use letters, digits and . _ -")
    temp = temp_directory(context.environ)
    if outside_temp and Path(os.path.realpath(home)).is_relative_to(os.path.realpath(temp)):
        message = f"the agent's home {home} lies below the temp directory {temp}"
        raise _home_error(message, hint=f"{_HOME_HINT} and that is not below {temp}")
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = home.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
            raise _home_error(f"the agent's home {home} is not a directory of this user")
        for directory in (context.homes, home):
            directory.chmod(0o700)
    except OSError as error:
        raise _write_error(home, error) from error
    return home


def write_home_file(home: Path, name: str, text: str) -> None:
    """Write a file of a private home unless it exists; blocking. Raises `AgentError`: `state_directory`."""
    file = home / name
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with suppress(FileExistsError), file.open("x", encoding="utf-8") as stream:
            stream.write(text)
    except OSError as error:
        raise _write_error(file, error) from error


def _write_error(path: Path, error: OSError) -> AgentError:
    """Return the error for a private home that cannot be written."""
    hint = disk_full_hint(path) if is_disk_full(error) else _HOME_HINT
    return _home_error(f"the agent's home cannot be written: {path}: {error.strerror}", hint=hint)


def private_environment(environ: Mapping[str, str], home: Path) -> dict[str, str]:
    """Return the variables of a program that lives in `home`, without the operator's own XDG locations."""
    passed = {name: value for name, value in environ.items() if not _XDG_LOCATIONS.fullmatch(name)}
    return {**passed, "HOME": str(home)}


def temp_directory(environ: Mapping[str, str]) -> Path:
    """Return where programs with these variables keep temporary files."""
    return Path(environ.get("TMPDIR") or "/tmp")  # noqa: S108 - only compared


def _home_error(message: str, *, hint: str = _HOME_HINT) -> AgentError:
    failure = Failure(
        category=Category.STATE_DIRECTORY, blame=Blame.HOST, message=message, retryable=False, hint=hint
    )
    return AgentError(failure)
