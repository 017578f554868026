"""Codex's home directory: where it is, what else it reads at home, which variables it asks for."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from symphony.agents.base import AgentError, OwnSkillRoots, Surroundings
from symphony.agents.homes import private_home
from symphony.domain.failures import Blame, Category, Failure

__all__ = [
    "CODEX_VARIABLES",
    "CREDENTIAL_VARIABLES",
    "codex_home",
    "provider_variables",
    "settle",
    "skill_roots",
]

CREDENTIAL_VARIABLES = frozenset({"OPENAI_API_KEY", "CODEX_API_KEY"})
CODEX_VARIABLES = CREDENTIAL_VARIABLES | {
    "CODEX_HOME",
    "OPENAI_BASE_URL",
    "OPENAI_ORGANIZATION",
    "OPENAI_PROJECT",
}


_FIRST_CONFIG = """\
# Codex, as the daemon runs it here, reads this file and no other of yours. It was written once and is
# yours to edit: a model provider, an MCP server that agents may use. Codex adds the workspaces it trusts.
"""


def settle(around: Surroundings, name: str) -> Path:
    """Make the private home of an agent, with an empty configuration if there is none; blocking.

    Below the temp directory Codex makes no helper programs, and patches then fail in silence.

    Raises:
        AgentError: `state_directory`.
    """
    home = private_home(around, name, outside_temp=True)
    try:
        with (home / "config.toml").open("x", encoding="utf-8") as stream:
            stream.write(_FIRST_CONFIG)
    except FileExistsError:
        pass
    except OSError as error:
        message = f"the agent's home {home} cannot be written to: {error.strerror}"
        failure = Failure(category=Category.STATE_DIRECTORY, blame=Blame.HOST, message=message)
        raise AgentError(failure) from error
    return home


def codex_home(env: Mapping[str, str]) -> Path | None:
    """`$CODEX_HOME`, else `~/.codex`; null without a home."""
    if env.get("CODEX_HOME"):
        return Path(env["CODEX_HOME"])
    return Path(env["HOME"]) / ".codex" if env.get("HOME") else None


def skill_roots(env: Mapping[str, str]) -> OwnSkillRoots:
    """The directories that Codex scans: up to six levels deep, through links to directories.

    Those that ship with it lie below a hidden directory of the last but one.
    """
    own = codex_home(env)
    host = [Path(env["HOME"]) / ".agents/skills"] if env.get("HOME") else []
    host += [] if own is None else [own / "skills"]
    return OwnSkillRoots(
        workspace=(".agents/skills", ".codex/skills"), host=(*host, Path("/etc/codex/skills"))
    )


def provider_variables(config: str) -> frozenset[str]:
    """Names of the variables that the model providers of a config.toml read: `env_key`, `env_http_headers`.

    The operator named them for Codex, and a provider cannot work without them. A file that cannot be read
    names none; Codex itself complains about it.
    """
    if not config:
        return frozenset()
    import tomllib  # noqa: PLC0415 - only a configuration that there is needs it

    try:
        providers = tomllib.loads(config).get("model_providers")
    except tomllib.TOMLDecodeError:
        return frozenset()
    tables = providers.values() if isinstance(providers, dict) else ()
    return frozenset(name for table in tables if isinstance(table, dict) for name in _names(table))


def _names(table: Mapping[str, Any]) -> list[str]:
    headers = table.get("env_http_headers")
    named = [table.get("env_key"), *(headers.values() if isinstance(headers, dict) else ())]
    return [name for name in named if isinstance(name, str) and name]
