"""Promise: the wheel works in an empty environment, and the README's commands lead to finished work there."""

import email
import json
import os
import re
import signal
import subprocess
import sys
import tarfile
import venv
import zipfile
from email.message import Message
from pathlib import Path

import pytest

from harness.bare import bare_environment
from harness.project import Project

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "symphony"
WORK = [
    {"write": "HELLO.md", "text": "Hello.\n"},
    {"commit": "Say hello"},
    {"tool": "board_move", "arguments": {"state": "Human Review"}},
]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


def _build(source: Path, target: Path, kind: str, **environment: str) -> Path:
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--target", kind, "--directory", str(target)],
        cwd=source,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (made,) = target.glob({"wheel": "*.whl", "sdist": "*.tar.gz"}[kind])
    return made


def _head() -> str | None:
    """The commit of the checkout; null where it is none."""
    asked = ["git", "-C", str(ROOT), "rev-parse", "HEAD"]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 and (ROOT / ".git").exists() else None


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _build(ROOT, tmp_path_factory.mktemp("dist"), "wheel")


@pytest.fixture
def installed(wheel: Path, place: Path) -> dict[str, str]:
    """The environment of somebody who has an empty virtual environment first on the path, and `codex`."""
    home, commands = place / "home", place / "commands"
    venv.create(home / "venv")
    commands.mkdir()
    agent = f'"{home}/venv/bin/python" -m symphony.testing.scripted_agent'
    pip = f'"{sys.executable}" -m pip --python "{home}/venv/bin/python" "$@"'  # one less to install
    for name, words in (("codex", agent), ("pip", pip)):
        (commands / name).write_text(f"#!/bin/sh\nexec {words}\n")
        (commands / name).chmod(0o755)
    return {
        **bare_environment(place),
        "PATH": f"{home}/venv/bin:{commands}:{os.environ['PATH']}",
        "PIP_CONSTRAINT": str(ROOT / ".ci" / "constraints.txt"),
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_NO_COMPILE": "0",  # as pip spells it: what a command imports is compiled then
        "NO_COLOR": "1",
        "WHEEL": str(wheel),
    }


def _shell(line: str, env: dict[str, str], cwd: Path) -> str:
    done = subprocess.run(
        ["bash", "-ec", line],
        cwd=cwd,
        env=env,
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
    return done.stdout


def _steps() -> list[str]:
    """The commands of the README's path into one's own repository."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = [block for _, block in re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)]
    return [str(line) for block in blocks if "pip install" in block for line in block.splitlines()]


def test_the_readme_is_followed_literally_and_what_it_installs_is_complete(
    installed: dict[str, str], place: Path
) -> None:
    project = Project(root=place, environment=installed).create()
    (project.repo / ".symphony" / "issues").rmdir()
    *steps, run, watch = _steps()
    assert [step.split("#")[0].split()[1] for step in steps if step.startswith("symphony")] == [
        *("init", "check", "doctor", "issue", "run", "diff")
    ]
    for step in steps:
        if step.startswith("symphony run --once"):
            _say_what_to_do(project)
        _shell(step.replace("/path/to/this/checkout", installed["WHEEL"]), installed, project.repo)
    for issue in ("SYM-1", "SYM-2"):
        assert project.written_state(issue) == "Human Review"
        assert project.branch_log(issue) == ["Say hello"]
    with (
        _going_on(run, installed, project.repo) as daemon,
        _going_on(watch, installed, project.repo) as shown,
    ):
        lines = iter(shown.stdout or ())
        assert next(line for line in lines if line.startswith("Daemon ")), "status sees the daemon"
        shown.send_signal(signal.SIGINT)
        daemon.send_signal(signal.SIGTERM)
        daemon.communicate()
        assert (shown.wait(), daemon.returncode) == (0, 0)
    _has_all_that_it_needs(installed, place)


def _say_what_to_do(project: Project) -> None:
    """What a person would write for a model, and here for an agent without one."""
    for issue in ("SYM-1", "SYM-2"):
        with (project.repo / ".symphony" / "issues" / f"{issue}.md").open("a") as file:
            file.write(f"\n```scripted\n{json.dumps([WORK])}\n```\n")


def _going_on(line: str, env: dict[str, str], cwd: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        ["bash", "-c", f"exec {line}"],
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def _has_all_that_it_needs(installed: dict[str, str], place: Path) -> None:
    head = _head()
    commit = "" if head is None else f" (commit {head[:7]})"
    assert _shell("symphony --version", installed, place) == f"symphony 0.1.0{commit}\n"
    assert _shell("python -m symphony --version", installed, place) == f"symphony 0.1.0{commit}\n"
    assert "symphony/DEMO-4" in _shell("symphony demo --dir demo", installed, place)
    listed = _shell("pip list --format freeze", installed, place)
    assert "hatchling" not in listed
    assert (place / "home" / "venv" / "share" / "man" / "man1" / "symphony.1").is_file()
    typed = "from symphony.skills import load; import symphony; print(symphony.__version__)"
    assert _shell(f"python -Werror -c '{typed}'", installed, place) == "0.1.0\n"
    _completes(installed, place / "demo" / "repo")


def _completes(env: dict[str, str], cwd: Path) -> None:
    """As bash would ask, with the function that our script defines."""
    script = (
        "source <(symphony completion bash); COMP_WORDS=(symphony explain DEMO-); COMP_CWORD=2; "
        '_symphony_completion symphony; echo "${COMPREPLY[@]}"'
    )
    assert _shell(script, env, cwd) == "DEMO-1 DEMO-2 DEMO-3 DEMO-4\n"


# --- what is in it ---


def _names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if name.startswith("symphony/")}


def _sources() -> set[str]:
    files = (path for path in PACKAGE.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {f"symphony/{path.relative_to(PACKAGE)}" for path in files}


def _metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return email.message_from_bytes(archive.read(name))


def test_every_file_of_the_package_is_in_it(wheel: Path) -> None:
    assert _names(wheel) - {"symphony/COMMIT"} == _sources()
    assert {"symphony/py.typed", "symphony/cli/scaffold/WORKFLOW.md"} <= _names(wheel)


def test_it_has_no_part_of_the_test_kit(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        tops = {name.split("/")[0] for name in archive.namelist() if ".dist-info/" not in name}
    assert tops == {"symphony", "symphony_orchestrator-0.1.0.data"}
    assert not any("simulator" in name or "model_server" in name for name in _names(wheel))


def test_it_says_what_it_is(wheel: Path) -> None:
    told = _metadata(wheel)
    assert (told["Name"], told["Version"]) == ("symphony-orchestrator", "0.1.0")
    assert (told["License-Expression"], told["License-File"]) == ("Apache-2.0", "LICENSE")
    assert told["Description-Content-Type"] == "text/markdown"
    assert told.get_payload(decode=True) == (ROOT / "README.md").read_bytes()
    assert told["Requires-Python"] == ">=3.11"
    with zipfile.ZipFile(wheel) as archive:
        (licence,) = [name for name in archive.namelist() if name.endswith("licenses/LICENSE")]
        assert "Apache License" in archive.read(licence).decode()


def test_the_source_archive_makes_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    archive = _build(ROOT, tmp_path / "sdist", "sdist")
    with tarfile.open(archive) as opened:
        opened.extractall(tmp_path, filter="data")
    again = _build(tmp_path / archive.name.removesuffix(".tar.gz"), tmp_path / "wheel", "wheel")
    assert _names(again) == _names(wheel)
    with zipfile.ZipFile(wheel) as one, zipfile.ZipFile(again) as other:
        for name in _names(wheel):
            assert one.read(name) == other.read(name), name


def test_a_build_without_git_is_told_the_commit(tmp_path: Path) -> None:
    archive = _build(ROOT, tmp_path / "sdist", "sdist")
    with tarfile.open(archive) as opened:
        opened.extractall(tmp_path, filter="data")
    tree = tmp_path / archive.name.removesuffix(".tar.gz")
    (tree / "src" / "symphony" / "COMMIT").unlink(missing_ok=True)
    bare = _build(tree, tmp_path / "bare", "wheel", SYMPHONY_COMMIT="")
    assert "symphony/COMMIT" not in _names(bare)
    told = _build(tree, tmp_path / "told", "wheel", SYMPHONY_COMMIT="0123456789abcdef")
    with zipfile.ZipFile(told) as opened_wheel:
        assert opened_wheel.read("symphony/COMMIT") == b"0123456789abcdef\n"
