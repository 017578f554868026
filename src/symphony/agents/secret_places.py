"""The places of people's secrets, which isolated agents cannot see.

`SECRET_PLACES` is the list of names in a home, by kind. No list can be complete, so `home: private` and a
separate user for the daemon are stronger. Tools and their settings stay visible, because builds need them.
The rest of this module finds secrets by what they are: files that variables name, git configurations, and the
sockets of other programs.
"""

import os
import re
import stat
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from msgspec import Struct

from symphony.domain import mask_credentials

# fmt: off
SECRET_PLACES: Final[Mapping[str, tuple[str, ...]]] = {
    "keys": (
        ".env", ".envrc", ".secrets", ".secret", ".credentials", ".tokens", ".config/environment.d",
        ".pam_environment",
        ".ssh", ".gnupg", ".pki", ".age", ".config/age", ".config/sops", ".minisign", ".signify", ".step",
        ".netrc", "_netrc", ".authinfo", ".authinfo.gpg", ".Xauthority", ".ICEauthority", ".krb5",
        ".k5login", ".putty", ".local/share/putty", ".config/putty", ".ray", ".vnc", ".config/tigervnc",
        ".davfs2", ".fetchmailrc", ".msmtprc", ".config/msmtp", ".mbsyncrc", ".offlineimaprc", ".muttrc",
        ".mutt", ".config/neomutt", ".smbcredentials", ".config/rustdesk", ".config/remmina",
        ".local/share/remmina",
    ),
    "password managers": (
        ".password-store", ".local/share/gopass", ".config/gopass", ".local/share/keyrings",
        ".kde/share/apps/kwallet", ".local/share/kwalletd", ".config/op", ".op", ".1password",
        ".config/1Password", ".config/Bitwarden", ".config/Bitwarden CLI", ".bitwarden-ssh-agent.sock",
        ".config/keepassxc", ".cache/keepassxc", ".keepass", ".config/KeePass", ".lastpass",
        ".local/share/lpass", ".config/lpass", ".config/rbw", ".local/share/rbw", ".config/Enpass",
        ".config/ProtonPass", ".config/Proton Pass", ".vault-token", ".vault", ".config/doppler",
        ".doppler", ".infisical", ".config/infisical", ".akeyless", ".chamber", ".aws-vault", ".awsvault",
    ),
    "clouds": (
        ".aws", ".azure", ".config/gcloud", ".gsutil", ".boto", ".s3cfg", ".s3curl", ".mc", ".oci",
        ".bluemix", ".aliyun", ".tccli", ".hcloud", ".config/hcloud", ".config/doctl", ".config/linode-cli",
        ".config/scw", ".config/exoscale", ".config/upctl", ".vultr-cli.yaml", ".config/rclone",
        ".rclone.conf", ".config/restic", ".config/borg", ".config/backblaze-b2", ".b2_account_info",
        ".ibmcloud", ".cf", ".config/openstack", ".config/packer", ".packer.d", ".terraform.d",
        ".terraformrc", ".tofurc", ".config/opentofu", ".pulumi/credentials.json", ".fly", ".netlify",
        ".config/netlify", ".vercel", ".local/share/com.vercel.cli", ".config/vercel", ".wrangler",
        ".config/.wrangler", ".cloudflared", ".config/configstore", ".railway", ".render", ".config/heroku",
        ".heroku", ".config/firebase", ".config/supabase", ".supabase", ".config/turso",
        ".config/planetscale", ".config/ngrok", ".config/ngrok2", ".ngrok2", ".databrickscfg",
        ".databricks", ".snowflake", ".snowsql", ".config/snowflake", ".dbt/profiles.yml", ".kaggle",
        ".config/kaggle", ".ansible/cp", ".ansible/galaxy_token", ".ansible_vault_pass", ".vault_pass",
        ".chef", ".puppetlabs", ".saltrc", ".config/sentry", ".sentryclirc", ".config/stripe",
        ".twilio-cli", ".config/tailscale",
    ),
    "containers and clusters": (
        ".docker", ".dockercfg", ".config/containers", ".config/helm", ".helm", ".kube", ".config/kube",
        ".minikube", ".config/k9s", ".config/argocd", ".argocd", ".config/flux", ".talos", ".config/oc",
        ".rancher", ".k3d", ".kind", ".colima", ".config/colima", ".lima", ".rd", ".orbstack", ".finch",
        ".podman", ".local/share/containers/podman", ".config/lxc", ".config/incus", ".multipass",
        ".vagrant.d",
    ),
    "forges and trackers": (
        ".config/gh", ".config/hub", ".config/glab-cli", ".config/glab", ".config/tea", ".config/berg",
        ".config/jira", ".config/.jira", ".jira.d", ".jira", ".acli", ".config/acli", ".config/linear",
        ".linear", ".config/bitbucket", ".git-credentials", ".config/git/credentials",
        ".git-credential-cache", ".cache/git/credential", ".config/git-credential-manager", ".gcm",
        ".gitcookies", ".hgrc", ".config/hg/hgrc", ".subversion/auth", ".arcrc", ".gitea",
        ".config/circleci", ".circleci", ".travis", ".config/buildkite", ".config/gist", ".gist",
    ),
    "package registries": (
        ".npmrc", ".yarnrc", ".yarnrc.yml", ".config/pnpm/rc", ".config/pnpm/auth.ini", ".bunfig.toml",
        ".config/.bunfig.toml", ".pypirc", ".config/pip", ".pip", ".config/uv",
        ".local/share/uv/credentials", ".config/pypoetry/auth.toml", ".config/pdm", ".config/hatch",
        ".condarc", ".conda/.condarc", ".anaconda", ".continuum", ".config/python_keyring",
        ".local/share/python_keyring", ".gem/credentials", ".local/share/gem/credentials", ".bundle/config",
        ".config/rubygems", ".cargo/credentials", ".cargo/credentials.toml", ".composer/auth.json",
        ".config/composer/auth.json", ".m2/settings.xml", ".m2/settings-security.xml",
        ".gradle/gradle.properties", ".sbt/.credentials", ".ivy2/.credentials", ".config/coursier",
        ".nuget/NuGet/NuGet.Config", ".config/NuGet", ".hex/hex.config", ".config/hex",
        ".pub-cache/credentials.json", ".config/dart/pub-credentials.json", ".pause", ".CRAN", ".Renviron",
        ".config/jfrog", ".jfrog", ".config/conan", ".conan/.conan.db", ".conan2/credentials.json",
        ".huggingface", ".cache/huggingface/token", ".wandb",
    ),
    "databases": (
        ".pgpass", ".pg_service.conf", ".my.cnf", ".mylogin.cnf", ".mariadb", ".mongorc.js", ".mongodb",
        ".rediscli_auth", ".redisclirc", ".clickhouse-client", ".cassandra", ".influxdbv2", ".sqlplus",
        ".dbvis", ".dbeaver", ".local/share/DBeaverData", ".config/pgcli", ".config/mycli",
        ".config/litecli", ".config/usql", ".duckdb/stored_secrets", ".local/share/pgadmin", ".pgadmin",
        ".odbc.ini", ".config/dsq", ".config/JetBrains", ".config/Beekeeper Studio",
    ),
    "histories": (
        ".bash_history", ".bash_sessions", ".zsh_history", ".zhistory", ".histfile", ".zsh_sessions",
        ".sh_history", ".ksh_history", ".mksh_history", ".ash_history", ".dash_history", ".history",
        ".tcsh_history", ".local/share/fish", ".config/fish/fish_history", ".local/share/nushell",
        ".config/nushell/history.txt", ".config/nushell/history.sqlite3", ".local/share/xonsh",
        ".xonsh_history", ".local/share/atuin", ".local/share/mcfly", ".local/share/powershell", ".elvish",
        ".local/state/elvish", ".local/state/bash", ".local/state/zsh", ".local/share/zsh",
        ".python_history", ".local/state/python_history", ".ipython", ".local/share/jupyter/runtime",
        ".jupyter", ".node_repl_history", ".deno_history", ".ts_node_repl_history", ".bun_repl_history",
        ".irb_history", ".irb-history", ".pry_history", ".local/share/irb", ".local/share/pry", ".Rhistory",
        ".julia/logs", ".ghc/ghci_history", ".local/share/ghci", ".erlang-history", ".cache/erlang-history",
        ".iex_history", ".scala_history", ".jshell_history", ".php_history", ".psysh", ".config/psysh",
        ".psql_history", ".local/state/psql_history", ".mysql_history", ".mariadb_history",
        ".sqlite_history", ".local/state/sqlite_history", ".duckdb_history", ".rediscli_history",
        ".mongo_history", ".mongosh", ".dbshell", ".clickhouse-client-history", ".cqlsh_history",
        ".usql_history", ".influx_history", ".pgcli", ".gdb_history", ".lesshst", ".local/state/lesshst",
        ".viminfo", ".local/state/vim", ".local/state/nvim", ".local/share/nvim/shada", ".wget-hsts",
        ".config/wgetrc", ".wgetrc", ".curlrc", ".config/curlrc", ".lftp", ".local/share/lftp",
        ".config/filezilla", ".ncftp", ".units_history", ".local/share/recently-used.xbel",
    ),
    "browsers, mail and chat": (
        ".mozilla", ".config/mozilla", ".thunderbird", ".librewolf", ".waterfox", ".tor-browser", ".zen",
        ".local/share/torbrowser", ".floorp", ".config/google-chrome", ".config/google-chrome-beta",
        ".config/google-chrome-unstable", ".config/chromium", ".config/BraveSoftware",
        ".config/microsoft-edge", ".config/microsoft-edge-beta", ".config/microsoft-edge-dev",
        ".config/vivaldi", ".config/opera", ".config/Opera", ".config/yandex-browser", ".config/falkon",
        ".local/share/falkon", ".config/qutebrowser", ".local/share/qutebrowser", ".local/share/epiphany",
        ".config/epiphany", ".config/Slack", ".config/discord", ".config/Signal", ".config/Element",
        ".config/teams", ".config/Microsoft", ".config/skypeforlinux", ".local/share/TelegramDesktop",
        ".config/telegram-desktop", ".config/WhatsApp", ".config/weechat", ".weechat", ".irssi", ".purple",
        ".config/evolution", ".local/share/evolution", ".config/geary", ".local/share/geary",
        ".config/goa-1.0", ".config/Postman", ".config/Insomnia", ".config/Bruno", ".config/spotify",
        ".config/obs-studio", "snap", ".var/app", ".local/share/flatpak/db",
    ),
    "editors": (
        ".config/Code", ".config/VSCodium", ".config/Code - OSS", ".vscode-server/data",
        ".vscode-oss-server/data", ".config/Cursor", ".cursor-server/data", ".config/Windsurf", ".windsurf",
        ".windsurf-server/data", ".codeium", ".config/zed", ".local/share/zed", ".config/sublime-text",
        ".emacs.d/server", ".config/emacs/server", ".local/share/JetBrains", ".config/github-copilot",
        ".local/share/code-server", ".config/code-server",
    ),
    "agents": (
        ".codex", ".claude", ".claude.json", ".config/claude", ".config/Claude", ".claude-code", ".gemini",
        ".config/gemini", ".antigravity", ".config/opencode", ".local/share/opencode",
        ".local/state/opencode", ".opencode.json", ".aider", ".aider.conf.yml", ".aider.input.history",
        ".aider.chat.history.md", ".config/aider", ".config/goose", ".local/share/goose",
        ".local/state/goose", ".qwen", ".cursor", ".config/cursor", ".copilot", ".config/copilot",
        ".config/amp", ".local/share/amp", ".factory", ".droid", ".crush", ".config/crush",
        ".local/share/crush", ".kimi", ".config/kimi", ".grok/auth.json", ".grok/user-settings.json",
        ".iflow", ".auggie", ".augment", ".continue", ".cline", ".roo", ".kilocode", ".kiro",
        ".local/share/amazon-q", ".local/share/kiro-cli", ".mistral", ".vibe", ".openhands",
        ".openhands-state", ".plandex-home", ".pi", ".config/io.datasette.llm", ".config/shell_gpt",
        ".config/fabric/.env", ".config/aichat", ".config/mods", ".config/tabnine", ".tabnine",
        ".sourcegraph", ".config/ollama", ".ollama/id_ed25519", ".ollama/history", ".openai",
        ".config/openai", ".anthropic", ".config/anthropic", ".config/openrouter", ".jules", ".warp",
        ".config/warp-terminal", ".local/state/warp-terminal", ".cagent",
    ),
}
# fmt: on
"""Places below a person's home, by kind; they need not exist."""


_MOVED: Final = {
    ".config/": "XDG_CONFIG_HOME",
    ".local/share/": "XDG_DATA_HOME",
    ".local/state/": "XDG_STATE_HOME",
}


def secret_paths(environment: Mapping[str, str]) -> tuple[Path, ...]:
    """Return the paths of a person's home that no isolated agent sees; they need not exist."""
    if not environment.get("HOME"):
        return ()
    home = Path(environment["HOME"])
    names = [name for names in SECRET_PLACES.values() for name in names]
    moved = (
        Path(environment[variable], name.removeprefix(start))
        for start, variable in _MOVED.items()
        for name in names
        if environment.get(variable) and name.startswith(start)
    )
    return tuple(dict.fromkeys((*(home / name for name in names), *moved)))


# --- files that variables name ---------------------------------------------------------------------------

# Variables of other programs that name a file or directory with secrets and do not end with `FILE`.
_SECRET_VARIABLES: Final = frozenset(
    {
        *("GOOGLE_APPLICATION_CREDENTIALS", "KUBECONFIG", "DOCKER_CONFIG", "REGISTRY_AUTH", "NETRC"),
        *(
            "XAUTHORITY",
            "ICEAUTHORITY",
            "GNUPGHOME",
            "PASSWORD_STORE_DIR",
            "GH_CONFIG_DIR",
            "GLAB_CONFIG_DIR",
        ),
        *("NPM_CONFIG_USERCONFIG", "npm_config_userconfig", "NPM_CONFIG_GLOBALCONFIG", "AZURE_CONFIG_DIR"),
        *("CLOUDSDK_CONFIG", "CLAUDE_CONFIG_DIR", "CODEX_HOME", "GEMINI_CLI_HOME", "RAY_AUTH_TOKEN_PATH"),
        *("VAULT_CONFIG_PATH", "SOPS_AGE_KEY_DIR", "HISTFILE", "TF_CLI_CONFIG", "GEM_HOST_API_KEY_PATH"),
    }
)
_NAMING: Final = ("FILE", "_HISTORY")
_CERTIFICATE_WORDS: Final = frozenset(
    {"CERT", "CERTS", "CERTIFICATE", "CERTIFICATES", "CA", "CACERT", "CACERTS"}
)
_CERTIFICATE: Final = re.compile(rb"-----BEGIN (?:[A-Z0-9]+ )?CERTIFICATE-----")
_PRIVATE: Final = b"PRIVATE KEY"
_MAX_CERTIFICATE_BYTES: Final = 4_194_304


def named_secrets(environment: Mapping[str, str]) -> tuple[Path, ...]:
    """Return what variables name as secrets: files of `*FILE` and `*_HISTORY`, except certificates.

    A file is a certificate if the name of the variable says so and the file holds one without a private key.
    Reads the disk.
    """
    found: list[Path] = []
    for name, value in environment.items():
        listed = name in _SECRET_VARIABLES
        if not (listed or name.upper().endswith(_NAMING)):
            continue
        for part in value.split(os.pathsep) if name == "KUBECONFIG" else (value,):
            path = Path(part).expanduser() if part.startswith("~/") else Path(part).absolute()
            mode = mode_of(path)
            is_place = stat.S_ISREG(mode) or (listed and stat.S_ISDIR(mode))
            if part and is_place and not _is_certificate(name, path):
                found.append(path)
    return tuple(found)


def mode_of(path: Path) -> int:
    """Return the mode of a file behind a path; 0 if there is none that this user can reach."""
    try:
        return path.stat().st_mode
    except (OSError, ValueError):
        return 0


def _is_certificate(name: str, path: Path) -> bool:
    if _CERTIFICATE_WORDS.isdisjoint(name.upper().split("_")):
        return False
    try:
        with path.open("rb") as stream:
            data = stream.read(_MAX_CERTIFICATE_BYTES)
    except OSError:
        return False
    return _CERTIFICATE.search(data) is not None and _PRIVATE not in data


# --- git configurations ----------------------------------------------------------------------------------

_MAX_CONFIG_BYTES: Final = 1_048_576
_MAX_MODULES: Final = 10_000
_SECTION: Final = re.compile(r'\[\s*([A-Za-z0-9.-]+)(?:\s+"((?:[^"\\]|\\.)*)")?\s*\]')
_CLEAN_SECTIONS: Final = frozenset(
    {
        *(
            "add",
            "advice",
            "am",
            "apply",
            "author",
            "blame",
            "branch",
            "bundle",
            "checkout",
            "clone",
            "color",
        ),
        *(
            "column",
            "commit",
            "commitgraph",
            "committer",
            "core",
            "diff",
            "difftool",
            "extensions",
            "feature",
        ),
        *(
            "fetch",
            "filter",
            "format",
            "fsck",
            "gc",
            "gpg",
            "grep",
            "gui",
            "help",
            "http",
            "index",
            "init",
            "interactive",
        ),
        *("lfs", "log", "mailinfo", "maintenance", "merge", "mergetool", "notes", "pack", "pager", "pretty"),
        *("protocol", "pull", "push", "rebase", "receive", "remote", "repack", "rerere", "safe", "sequence"),
        *("showbranch", "splitindex", "stash", "status", "submodule", "tag", "tar", "transfer", "ui", "url"),
        *(
            "uploadpack",
            "user",
            "versionsort",
            "worktree",
            "alias",
            "delta",
            "rewrite",
            "trailer",
            "credential",
        ),
    }
)
_HELPER: Final = re.compile(r"(?:cache|store|libsecret|osxkeychain|manager(?:-core)?)?")
_STORE: Final = re.compile(r"--file[=\s]\s*(\S+)")
_PUBLIC_KEY: Final = ("user", "signingkey")
_SECRET_FILES: Final = frozenset({"cookiefile", "sslkey"})
_KEY: Final = re.compile(r"[A-Za-z][A-Za-z0-9-]*")
_TELLTALE: Final = re.compile(
    r"(?i)token|secret|pass|header|cookie|auth(?!or)|bearer|basic|private|credential"
)
_USER_IN_ADDRESS: Final = re.compile(r"(?i)([a-z][a-z0-9+.-]*)://([^\s/@]+)@")
_SSH: Final = frozenset({"ssh", "git+ssh", "ssh+git"})
_LONG_WORD: Final = re.compile(r"(?=[A-Za-z+=]*[0-9])[A-Za-z0-9+=]{32,}")


def git_configurations(git_dir: Path) -> Iterator[Path]:
    """Yield the configurations of a repository, of its worktrees and its submodules; reads the disk.

    `git_dir` may be the file that leads from a worktree or a submodule to its repository.
    """
    if stat.S_ISREG(mode_of(git_dir)):
        led = _first_line(git_dir).removeprefix("gitdir:").strip()
        git_dir = git_dir.parent / led
    if common := _first_line(git_dir / "commondir"):
        git_dir = git_dir / common
    yield from (git_dir / name for name in ("config", "config.worktree", "credentials", ".git-credentials"))
    looked = 0
    for name in ("modules", "worktrees"):
        for folder, folders, files in os.walk(git_dir / name):
            folders[:] = [each for each in folders if each not in {"objects", "refs", "logs"}]
            yield from (Path(folder, each) for each in files if each in {"config", "config.worktree"})
            looked += 1
            if looked > _MAX_MODULES:
                return


def _first_line(file: Path) -> str:
    try:
        with file.open("rb") as stream:
            return stream.readline(_MAX_CONFIG_BYTES).decode("utf-8", "surrogateescape").rstrip("\n")
    except OSError:
        return ""


def unclean_git_configurations(files: Iterable[Path]) -> tuple[Path, ...]:
    """Return the files, including files that they name, that may contain a secret; reads the disk."""
    found: list[Path] = []
    waiting, seen = deque(files), set[Path]()
    while waiting:
        file = waiting.popleft()
        if file in seen or not stat.S_ISREG(mode_of(file)):
            continue
        seen.add(file)
        try:
            with file.open("rb") as stream:
                text = stream.read(_MAX_CONFIG_BYTES + 1).decode("utf-8", "replace")
        except OSError:
            continue
        included: list[str] = []
        if len(text) > _MAX_CONFIG_BYTES or not _is_clean(text, included):
            found.append(file)
        for path in included:
            expanded = Path(path).expanduser() if path.startswith("~") else file.parent / path
            waiting.append(expanded)
    return tuple(found)


def _is_clean(text: str, included: list[str]) -> bool:
    """Return whether nothing in a configuration can be a secret; the paths that it names are added.

    Only known sections and plain values count as clean. In doubt a configuration is not.
    """
    clean, section = True, ""
    included += _STORE.findall(text)
    for line in re.sub(r"\\\r?\n", "", text).splitlines():
        rest = line.strip()
        while (head := _SECTION.match(rest)) is not None:
            section = head[1].lower()
            clean = clean and section.partition(".")[0] in {*_CLEAN_SECTIONS, "include", "includeif"}
            clean = clean and _is_plain(head[2] or "")
            rest = rest[head.end() :].strip()
        if not rest or rest[0] in "#;":
            clean = clean and _is_plain(rest)
            continue
        key, _, value = (part.strip() for part in rest.partition("="))
        if section in {"include", "includeif"} and key.lower() == "path":
            included.append(value.strip('"'))
        elif key.lower() in _SECRET_FILES:
            included.append(value.strip('"'))
            clean = False
        elif (section, key.lower()) == _PUBLIC_KEY:
            continue
        elif not (_KEY.fullmatch(key) and _is_plain(value) and _is_plain_key(section, key, value)):
            clean = False
    return clean


def _is_plain_key(section: str, key: str, value: str) -> bool:
    if section.partition(".")[0] == "credential":
        return key.lower() == "helper" and _HELPER.fullmatch(value.strip('"')) is not None
    if section == "alias":
        return not value.strip('"').startswith("!")
    return _TELLTALE.search(key) is None


def _is_plain(value: str) -> bool:
    """Return whether a value has the shape of no credential; in an address only ssh may name a user."""
    users = _USER_IN_ADDRESS.findall(value)
    if not all(scheme.lower() in _SSH and ":" not in user for scheme, user in users):
        return False
    anonymous = _USER_IN_ADDRESS.sub(r"\1://", value)
    is_command = " " in value and _TELLTALE.search(value) is not None
    return not is_command and _LONG_WORD.search(value) is None and mask_credentials(anonymous) == anonymous


# --- findings on the disk -------------------------------------------------------------------------

_SOCKETS: Final = Path("/proc/net/unix")
_MAX_ENTRIES: Final = 5_000
_PLACES: Final = ("/var", "/srv", "/opt")
_GIT: Final = ".git"


class FoundPlaces(Struct, frozen=True, kw_only=True):
    """The findings on the disk.

    Attributes:
        sockets: sockets and named pipes, or directories that contain nothing else; state directories of
            running daemons.
        git_dirs: git directories.
    """

    sockets: tuple[Path, ...]
    git_dirs: tuple[Path, ...]


def look(home: Path | None) -> FoundPlaces:
    """Look for the sockets, named pipes and repositories that programs inside could reach; reads the disk.

    The kernel lists the sockets of this network namespace. Sockets of other namespaces, or with a relative
    path, are found in the upper levels of the home and of `/var`.
    """
    found = dict.fromkeys(path for path in _listed_sockets() if _is_special(path))
    git_dirs: list[Path] = []
    for top in (*(() if home is None else (str(home),)), *_PLACES):
        for path in _notable(top):
            if path.endswith(_GIT):
                git_dirs.append(Path(path))
            else:
                found[path] = None
    return FoundPlaces(sockets=tuple(dict.fromkeys(map(_cover, found))), git_dirs=tuple(git_dirs))


def _cover(path: str) -> Path:
    """Return a socket's directory if it holds nothing else, so that a later socket is covered too.

    The state directory of another daemon is returned too, because its journal and its token are secrets.
    """
    folder = Path(os.path.realpath(os.path.dirname(path)))  # noqa: PTH120 - a path of any bytes
    if path.endswith("/control.sock") and (folder / "control.json").is_file():
        return folder
    with suppress(OSError):
        if all(_is_special(str(each)) for each in folder.iterdir()):
            return folder
    return folder / os.path.basename(path)  # noqa: PTH119 - as above


def _listed_sockets() -> Iterator[str]:
    with suppress(OSError):
        for line in _SOCKETS.read_text("utf-8", "surrogateescape").splitlines()[1:]:
            words = line.split(maxsplit=7)
            if len(words) == 8 and words[7].startswith("/"):  # noqa: PLR2004 - the columns of the table
                yield words[7]


def _is_special(path: str) -> bool:
    try:
        mode = os.lstat(path).st_mode
    except (OSError, ValueError):
        return False
    return stat.S_ISSOCK(mode) or stat.S_ISFIFO(mode)


def _notable(top: str) -> Iterator[str]:
    """Yield sockets, pipes and git directories below a directory, upper levels first, within a bound."""
    waiting, looked = deque([top]), 0
    while waiting and looked < _MAX_ENTRIES:
        with suppress(OSError), os.scandir(waiting.popleft()) as entries:
            for entry in entries:
                looked += 1
                if entry.is_symlink():
                    continue
                if entry.name.endswith(_GIT):
                    yield entry.path
                elif entry.is_dir():
                    waiting.append(entry.path)
                elif not entry.is_file() and _is_special(entry.path):
                    yield entry.path
