import os
import socket
from pathlib import Path

import pytest

from symphony.agents.secret_places import (
    SECRET_PLACES,
    git_configurations,
    look,
    named_secrets,
    secret_paths,
    unclean_git_configurations,
)

PEM = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
PLAIN = """\
[core]
\trepositoryformatversion = 0
\tbare = false ; a remark
[remote "origin"]
\turl = https://forge.example.invalid/team/auth-token-service.git
\tfetch = +refs/heads/*:refs/remotes/origin/*
[branch "feature/PROJ-1234-the-token-of-a-branch-with-a-long-name"]
\tmerge = refs/heads/feature/PROJ-1234-the-token-of-a-branch-with-a-long-name
\tremote = origin
[user]
\tname = Ada
\temail = ada@example.invalid
\tsigningkey = ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJb0p0p0p0p0p0p0p0p0p0p0p0p0
[remote "backup"]
\turl = ssh://git@forge.example.invalid/a.git
[submodule "lib"]
\turl = git@forge.example.invalid:lib.git
[credential]
\thelper = store
[alias]
\tst = status --short
[http]
\tsslVerify = true
"""


@pytest.mark.parametrize(
    "name",
    [
        *(
            ".ssh",
            ".aws",
            ".kube",
            ".netrc",
            ".npmrc",
            ".config/gh",
            ".config/op",
            ".codex",
            ".gemini",
            ".ray",
        ),
        *(".psql_history", ".pgpass", ".my.cnf", ".mysql_history", ".sqlite_history", ".python_history"),
        *(".node_repl_history", ".local/share/fish", ".zsh_history", ".Xauthority", "snap", ".var/app"),
        *(
            ".config/opencode",
            ".cursor",
            ".aider.conf.yml",
            ".copilot",
            ".config/amp",
            ".config/goose",
            ".qwen",
        ),
    ],
)
def test_usual_places_of_secrets_are_known(name: str) -> None:
    assert Path("/h", name) in secret_paths({"HOME": "/h"})


def test_tools_and_their_settings_stay_visible() -> None:
    """Of directories that hold programs, only the files with secrets are hidden."""
    hidden = {str(path.relative_to("/h")) for path in secret_paths({"HOME": "/h"})}
    tools = {
        *(
            ".cargo",
            ".cargo/bin",
            ".rustup",
            ".nvm",
            ".pyenv",
            ".local",
            ".local/bin",
            ".config",
            ".config/git",
        ),
        *(
            ".gitconfig",
            "go",
            ".bashrc",
            ".profile",
            ".gradle",
            ".m2",
            ".opencode",
            ".amp",
            ".grok",
            ".pulumi",
        ),
        *(".config/yarn", ".local/share/pnpm", ".bun", ".deno", ".volta", ".asdf", ".sdkman", ".dotnet"),
    }
    assert hidden.isdisjoint(tools)


def test_places_move_with_the_variables_that_move_them() -> None:
    found = secret_paths({"HOME": "/h", "XDG_CONFIG_HOME": "/c", "XDG_DATA_HOME": "/d"})
    assert {Path("/c/gh"), Path("/d/keyrings"), Path("/h/.config/gh"), Path("/h/.ssh")} <= set(found)
    assert secret_paths({}) == ()


def test_no_place_is_in_the_list_twice_or_below_another() -> None:
    names = [name for names in SECRET_PLACES.values() for name in names]
    assert len(names) == len(set(names))
    assert [name for name in names if {str(up) for up in Path(name).parents} & set(names)] == []


def test_every_file_that_a_variable_names_is_a_secret(tmp_path: Path) -> None:
    names = (
        "LINEAR_API_KEY_FILE",
        "SYMPHONY_OPERATOR_TOKEN_FILE",
        "AWS_SHARED_CREDENTIALS_FILE",
        "PGPASSFILE",
    )
    others = (
        "anything_file",
        "GOOGLE_APPLICATION_CREDENTIALS",
        "TLS_CLIENT_KEY_FILE",
        "MY_CA_TOKEN_FILE",
        "PSQL_HISTORY",
    )
    environment = {name: str(tmp_path / name) for name in (*names, *others)}
    for name in environment:
        (tmp_path / name).write_text("secret")
    (tmp_path / "both").write_text(PEM + "-----BEGIN EC PRIVATE KEY-----\n")
    environment["CLIENT_CERT_FILE"] = str(tmp_path / "both")
    environment["KUBECONFIG"] = f"{tmp_path}/absent:{tmp_path}/both"
    assert {path.name for path in named_secrets(environment)} == {*names, *others, "both"}


def test_certificates_and_what_is_no_file_are_none(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text(PEM)
    environment = {
        **dict.fromkeys(("SSL_CERT_FILE", "NIX_SSL_CERT_FILE", "TRACKER_CA_FILE"), str(tmp_path / "ca.pem")),
        "PATH_FILE": str(tmp_path),
        "NO_FILE": "",
        "NULL_FILE": "/dev/null",
        "ABSENT_FILE": str(tmp_path / "absent"),
        "HOME": str(tmp_path),
        "EDITOR": str(tmp_path / "ca.pem"),
    }
    assert named_secrets(environment) == ()


def test_a_clean_git_configuration_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "config").write_text(PLAIN + "[include]\n\tpath = more\n")
    (tmp_path / "more").write_text("[push]\n\tdefault = simple\n")
    assert unclean_git_configurations([tmp_path / "config", tmp_path / "absent"]) == ()


@pytest.mark.parametrize(
    "text",
    [
        '[http "https://forge.example.invalid/"]\n\textraheader = x: y\n',
        "[http]\n\textraHeader = AUTHORIZATION: basic eDp5\n",
        "[HTTP]\n\tcookieFile = /c\n",
        "[http]\n\tproxy = http://me:word@proxy.example.invalid\n",
        '[remote "o"]\n\turl = https://abcdef@forge.example.invalid/a.git\n',
        '[remote "o"]\n\tpushurl = https://me:word@forge.example.invalid/a.git\n',
        '[remote "o"]\n\turl = ssh://me:word@forge.example.invalid/a.git\n',
        '[remote "o"]\n\turl = https://forge.example.invalid/a.git?private_token=abcdefgh\n',
        '[remote "o"]\n\turl = https://forge.example.invalid/0123456789abcdef0123456789abcdef/a.git\n',
        '[url "https://abcdef@forge.example.invalid/"]\n\tinsteadOf = https://forge.example.invalid/\n',
        "[credential]\n\thelper = !echo password=word\n",
        '[credential "https://forge.example.invalid"]\n\tusername = word\n',
        "[github]\n\ttoken = word\n",
        "[sendemail]\n\tsmtppass = word\n",
        "[user]\n\tpassword = word\n",
        "[alias]\n\tup = !curl -u me:word https://forge.example.invalid\n",
        "[core]\n\tsshCommand = sshpass -p word ssh\n",
        "[core]\n\tbare = false # glpat-0123456789abcdefghij\n",
        "# the token: ghp_0123456789abcdefghijklmnopqrstuvwxyz\n",
        "[whatever]\n\tkey = value\n",
        "not a configuration\n",
        '[core] bare = false\n[remote "o"] url = https://abc\\\ndef@forge.example.invalid/a.git\n',
    ],
)
def test_one_that_is_not_known_to_be_clean_is_hidden(tmp_path: Path, text: str) -> None:
    """In its own right, beside clean sections, and where another one includes it."""
    files = {name: tmp_path / name for name in ("alone", "beside", "including", "included")}
    files["alone"].write_text(text)
    files["beside"].write_text(PLAIN + text)
    files["including"].write_text(PLAIN + '[includeIf "gitdir:~/work/"]\n\tpath = included\n')
    files["included"].write_text(text)
    found = unclean_git_configurations([files["alone"], files["beside"], files["including"]])
    assert set(found) == {files["alone"], files["beside"], files["included"]}


def test_files_of_secrets_that_a_configuration_names_are_hidden_too(tmp_path: Path) -> None:
    (tmp_path / "config").write_text(
        "[http]\n\tcookieFile = cookies\n\tsslKey = key\n[credential]\n\thelper = store --file=logins\n"
    )
    names = {"cookies": "a b c\n", "key": "-----BEGIN KEY-----\n", "logins": "https://me:word@x.invalid\n"}
    for name, text in names.items():
        (tmp_path / name).write_text(text)
    found = {path.name for path in unclean_git_configurations([tmp_path / "config"])}
    assert found == {"config", *names}


def test_submodules_and_worktrees_have_configurations_too(tmp_path: Path) -> None:
    git = tmp_path / "repo" / ".git"
    names = ("config", "modules/lib/config", "modules/a/b/modules/c/config", "worktrees/w/config.worktree")
    for name in names:
        (git / name).parent.mkdir(parents=True, exist_ok=True)
        (git / name).write_text("[core]\n")
    assert {git / name for name in names} <= set(git_configurations(git))
    (git / "worktrees/w/commondir").write_text("../..\n")
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree/.git").write_text(f"gitdir: {git}/worktrees/w\n")
    found = {Path(os.path.realpath(path)) for path in git_configurations(tmp_path / "tree/.git")}
    assert git / "config" in found


def test_sockets_pipes_and_repositories_are_found_by_a_look(short_path: Path) -> None:
    tmp_path = short_path
    (tmp_path / "src/a/.git").mkdir(parents=True)
    (tmp_path / "mixed").mkdir()
    (tmp_path / "mixed/file").touch()
    os.mkfifo(tmp_path / "mixed/pipe")
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(tmp_path / "mixed/s"))
        found = look(tmp_path)
        assert {tmp_path / "mixed/s", tmp_path / "mixed/pipe"} <= set(found.sockets)
        assert tmp_path / "mixed/file" not in found.sockets
        assert tmp_path / "src/a/.git" in found.git_dirs
        assert tmp_path / "mixed/s" in look(None).sockets, "the kernel lists it wherever it is"
