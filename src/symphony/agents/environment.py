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
"""

from collections.abc import Collection, Mapping

from symphony.hosts.processes import RUN_ID_VARIABLE

__all__ = ["child_environment"]

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
