"""What of a person's home no isolated agent sees: logins, keys, wallets, histories, and other agents' homes.

A list of names cannot be complete, which is why `home: private` is the stronger choice; it holds what
programs in wide use keep there. Tools and settings stay: without them nothing builds.
"""

from pathlib import Path
from typing import Final

__all__ = ["hideaways"]

_KEYS: Final = (
    *(
        ".ssh",
        ".gnupg",
        ".password-store",
        ".local/share/keyrings",
        ".config/op",
        ".config/sops",
        ".config/age",
    ),
    *(".netrc", ".git-credentials", ".config/git/credentials", ".vault-token", ".pgpass", ".my.cnf"),
)
_CLOUDS: Final = (
    *(".aws", ".azure", ".config/gcloud", ".config/doctl", ".config/rclone", ".boto", ".s3cfg", ".oci"),
    *(".kube", ".docker", ".config/containers", ".terraform.d", ".terraformrc", ".fly", ".config/hcloud"),
)
_FORGES: Final = (
    *(".config/gh", ".config/glab-cli", ".config/hub", ".config/tea", ".config/jira", ".config/.jira"),
    *(
        ".npmrc",
        ".yarnrc.yml",
        ".pypirc",
        ".gem/credentials",
        ".cargo/credentials",
        ".cargo/credentials.toml",
    ),
    *(".m2/settings.xml", ".m2/settings-security.xml", ".gradle/gradle.properties", ".config/pip/pip.conf"),
)
_PERSON: Final = (
    *(".bash_history", ".zsh_history", ".python_history", ".node_repl_history", ".psql_history", ".lesshst"),
    *(".mozilla", ".thunderbird", ".config/google-chrome", ".config/chromium", ".config/BraveSoftware"),
)
_AGENTS: Final = (
    *(".codex", ".claude", ".claude.json", ".config/claude", ".gemini", ".config/opencode", ".aider"),
    *(".local/share/opencode", ".aider.conf.yml", ".config/goose", ".qwen", ".cursor", ".copilot"),
)


def hideaways(home: Path) -> tuple[Path, ...]:
    """The places below `home`; whether they exist is for others to see."""
    return tuple(home / name for name in (*_KEYS, *_CLOUDS, *_FORGES, *_PERSON, *_AGENTS))
