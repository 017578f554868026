import os
import sys
from pathlib import Path

import pytest

from symphony.agents.isolation import Isolation, sensitive_paths


def told(argv: tuple[str, ...]) -> list[tuple[str, ...]]:
    """What bubblewrap is told, an option with its words each, up to the command."""
    options: list[tuple[str, ...]] = []
    for word in argv[1 : argv.index("--")]:
        if word.startswith("--"):
            options.append((word,))
        else:
            options[-1] = (*options[-1], word)
    return options


@pytest.fixture
def top(tmp_path: Path) -> Path:
    for name in ("root/MT-1", "root/MT-2", "root/.symphony/mirrors", "home/.ssh", "state/homes/codex"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "home" / ".netrc").touch()
    return tmp_path


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


def test_sensitive_paths_are_below_the_home_and_leave_tools_alone() -> None:
    names = {str(place.relative_to("/h")) for place in sensitive_paths(Path("/h"))}
    assert {".ssh", ".aws", ".netrc", ".config/gh", ".codex", ".claude", ".ray"} <= names
    assert names.isdisjoint(
        {".cargo", ".rustup", ".nvm", ".local", ".local/bin", ".config", ".gitconfig", "go"}
    )
