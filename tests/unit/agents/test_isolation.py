import os
import socket
import sys
from pathlib import Path

import pytest

from symphony.agents.folders import CLAUDE_FOLDERS, CODEX_FOLDERS, AgentFolder, claude_project, located
from symphony.agents.isolation import Isolation


def told(argv: tuple[str, ...]) -> list[tuple[str, ...]]:
    """What bubblewrap is told, an option with its words each, up to the command."""
    options: list[tuple[str, ...]] = []
    for word in argv[argv.index("bwrap") + 1 : argv.index("--")]:
        if word.startswith("--"):
            options.append((word,))
        else:
            options[-1] = (*options[-1], word)
    return options


@pytest.fixture
def top(short_path: Path) -> Path:
    for name in ("root/MT-1", "root/MT-2", "root/.symphony/mirrors", "home/.ssh", "state/homes/codex"):
        (short_path / name).mkdir(parents=True)
    (short_path / "home" / ".netrc").touch()
    return short_path


def test_the_deeper_place_decides_and_of_one_the_more_open(top: Path) -> None:
    isolation = Isolation(
        hidden=(top / "root", top / "state", top / "home/.ssh", top / "home/.netrc", top / "home/.absent"),
        readable=(top / "root/.symphony/mirrors",),
    ).allowing(writable=[top / "state/homes/codex", top / "home/.ssh"])
    argv = isolation.wrap(["agent", "--flag"], cwd=top / "root/MT-1")
    assert argv[0] == "bwrap"
    assert argv[-2:] == ("agent", "--flag")
    options = told(argv)
    mounts = {"--tmpfs", "--bind", "--ro-bind"}
    places = {option[-1]: option[0] for option in options if option[0] in mounts}
    assert places[str(top / "root")] == "--tmpfs"
    assert places[str(top / "root/MT-1")] == "--bind"
    assert places[str(top / "root/.symphony/mirrors")] == "--ro-bind"
    assert places[str(top / "state")] == "--tmpfs"
    assert places[str(top / "state/homes/codex")] == "--bind"
    assert places[str(top / "home/.ssh")] == "--bind", "what the agent needs wins"
    assert places[str(top / "home/.netrc")] == "--ro-bind"
    assert str(top / "home/.absent") not in places
    order = [option[-1] for option in options if option[0] in mounts]
    assert order.index(str(top / "root")) < order.index(str(top / "root/MT-1"))
    closed = [option[1] for option in options if option[0] == "--remount-ro"]
    assert str(top / "root") in closed
    assert str(top / "home/.ssh") not in closed


def test_our_own_program_is_visible_wherever_it_lies(top: Path) -> None:
    """The relay of an agent's tools is a part of it, and somebody may install it below `/tmp`."""
    program = Path(sys.prefix).resolve()
    options = told(Isolation(hidden=(program.parent,)).wrap(["true"], cwd=top))
    hidden, shown = ("--tmpfs", str(program.parent)), ("--ro-bind", str(program), str(program))
    assert options.index(hidden) < options.index(shown)


def test_an_empty_file_stands_for_a_hidden_one(top: Path) -> None:
    argv = Isolation(hidden=(top / "home/.netrc",)).wrap(["true"], cwd=top)
    source = argv[argv.index(str(top / "home/.netrc")) - 1]
    assert Path(source).read_bytes() == b""


def test_links_are_followed_and_the_root_is_never_hidden(top: Path) -> None:
    (top / "link").symlink_to(top / "home/.ssh")
    (top / "all").symlink_to("/")
    argv = Isolation(hidden=(top / "link", top / "all")).wrap(["true"], cwd=top / "root")
    assert ("--tmpfs", str(top / "home/.ssh")) in told(argv)
    assert ("--tmpfs", "/") not in told(argv)


@pytest.mark.parametrize("user", [0, 1000])
def test_only_root_has_rights_to_take_away_from_the_kernel(
    monkeypatch: pytest.MonkeyPatch, top: Path, user: int
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: user)
    options = told(Isolation().wrap(["true"], cwd=top))
    assert (("--ro-bind", "/proc/sys", "/proc/sys") in options) is (user == 0)
    assert (("--cap-add", "CAP_SETFCAP") in options) is (user == 0)
    assert ("--cap-drop", "ALL") in options


def test_the_network_is_open_unless_told_otherwise(top: Path) -> None:
    assert ("--unshare-net",) not in told(Isolation().wrap(["true"], cwd=top))
    assert ("--unshare-net",) in told(Isolation(network=False).wrap(["true"], cwd=top))


MOUNTS = {"--tmpfs", "--bind", "--ro-bind", "--file", "--bind-data", "--symlink"}


def mounts(argv: tuple[str, ...]) -> dict[str, str]:
    """How each path is mounted."""
    return {option[-1]: option[0] for option in told(argv) if option[0] in MOUNTS}


def test_of_an_agents_folder_only_login_and_threads_are_the_operators_own(top: Path) -> None:
    """All else is a copy, read-only, or in a folder in memory, whatever its name is."""
    home = top / "home"
    folder = home / ".codex"
    for name in ("skills", "sessions", "tmp", "unknown"):
        (folder / name).mkdir(parents=True)
    for name in ("auth.json", "config.toml", "AGENTS.md"):
        (folder / name).write_text(name)
    (folder / "notify.sh").write_text("#!/bin/sh\n")
    (folder / "notify.sh").chmod(0o755)
    (folder / "link.md").symlink_to(top / "home/.netrc")
    (home / ".claude.json").write_text("{}")
    folders = [
        *located(CODEX_FOLDERS, {"HOME": str(home)}, top),
        AgentFolder(path=home / ".claude.json", is_file=True),
    ]
    isolation = Isolation(hidden=(folder,)).allowing(folders=folders)
    argv = isolation.wrap(["agent"], cwd=top / "root/MT-1")
    found = {path.removeprefix(f"{home}/"): how for path, how in mounts(argv).items()}
    expected = {
        ".codex": "--tmpfs",
        ".codex/auth.json": "--bind",
        ".codex/sessions": "--bind",
        ".codex/archived_sessions": "--bind",
        ".codex/config.toml": "--file",
        ".codex/AGENTS.md": "--file",
        ".codex/notify.sh": "--ro-bind",
        ".codex/link.md": "--symlink",
        ".codex/skills": "--ro-bind",
        ".codex/unknown": "--ro-bind",
        ".claude.json": "--bind-data",
    }
    assert {name: how for name, how in found.items() if name.startswith((".codex", ".claude"))} == expected
    assert argv[0] == "bash"
    opened = argv[argv.index("bash", 1) + 1 : argv.index("bwrap")]
    assert set(opened) == {
        str(home / name) for name in (".codex/config.toml", ".codex/AGENTS.md", ".claude.json")
    }
    assert ("--remount-ro", str(folder)) not in told(argv)


def test_a_folder_that_is_missing_is_made_with_its_threads_and_nothing_else(top: Path) -> None:
    folders = (*CODEX_FOLDERS, *CLAUDE_FOLDERS)
    isolation = Isolation(folders=tuple(located(folders, {"HOME": str(top / "home")}, top)))
    argv = isolation.wrap(["agent"], cwd=top)
    assert mounts(argv)[str(top / "home/.codex/sessions")] == "--bind"
    assert argv[0] == "bwrap", "there is nothing to copy"
    made = {str(path.relative_to(top / "home")) for path in (top / "home").rglob("*")}
    assert ".codex/auth.json" not in made
    assert ".claude.json" not in made


def test_a_hidden_path_below_a_folder_stays_hidden(top: Path) -> None:
    """So do secrets of a home that is the folder of its agent."""
    isolation = Isolation(hidden=(top / "home/.ssh", top / "home/.netrc"))
    argv = isolation.allowing(folders=[AgentFolder(path=top / "home")]).wrap(["true"], cwd=top / "root")
    assert mounts(argv)[str(top / "home/.ssh")] == "--tmpfs"
    assert mounts(argv)[str(top / "home/.netrc")] == "--ro-bind"


def test_folders_are_where_variables_say() -> None:
    environ = {"HOME": "/h", "CODEX_HOME": "/c", "CLAUDE_CONFIG_DIR": "/k"}
    moved = [*located((*CODEX_FOLDERS, *CLAUDE_FOLDERS), environ, Path("/w/MT-1"))]
    assert [folder.path for folder in moved] == [Path("/c"), Path("/k")]
    usual = [*located((*CODEX_FOLDERS, *CLAUDE_FOLDERS), {"HOME": "/h"}, Path("/w/MT-1"))]
    assert [str(folder.path) for folder in usual] == ["/h/.codex", "/h/.claude", "/h/.claude.json"]
    assert "projects/-w-MT-1/" in usual[1].kept
    assert [*located(CODEX_FOLDERS, {}, Path("/"))] == []


def test_a_long_workspace_has_the_name_that_claude_gives_it() -> None:
    """The number is what `"/" + "a".repeat(250)` hashes to in JavaScript."""
    assert claude_project(Path("/a b/c.d")) == "-a-b-c-d"
    assert claude_project(Path("/" + "a" * 250)) == "-" + "a" * 199 + "-feo44x"


def test_sockets_and_pipes_of_others_are_covered_and_those_of_the_session_are_not(top: Path) -> None:
    places = {
        name: top / name for name in ("home/.x/agent.sock", "home/mixed/s", "root/MT-1/own.sock", "tools/s")
    }
    sockets = []
    for place in places.values():
        place.parent.mkdir(exist_ok=True)
        sockets.append(socket.socket(socket.AF_UNIX))
        sockets[-1].bind(str(place))
    (top / "home/mixed/file").touch()
    os.mkfifo(top / "home/mixed/pipe")
    isolation = Isolation(home=top / "home", readable=(top,), writable=(top / "tools",))
    found = mounts(isolation.wrap(["true"], cwd=top / "root/MT-1"))
    for each in sockets:
        each.close()
    assert found[str(top / "home/.x")] == "--tmpfs", "it holds nothing else, and a new socket is covered too"
    assert found[str(top / "home/mixed/s")] == found[str(top / "home/mixed/pipe")] == "--ro-bind"
    assert str(top / "root/MT-1/own.sock") not in found
    assert str(top / "tools/s") not in found


def test_a_session_that_only_reads_cannot_write_to_its_checkout(top: Path) -> None:
    cwd = top / "root/MT-1"
    isolation = Isolation(hidden=(top / "root",), read_only=True).allowing(writable=[top / "state"])
    options = told(isolation.wrap(["agent"], cwd=cwd))
    places = {option[-1]: option[0] for option in options if option[0] in {"--bind", "--ro-bind"}}
    assert places[str(cwd)] == "--ro-bind"
    assert places[str(top / "state")] == "--bind"
