"""Every command in a process of its own, where nothing is loaded yet: it imports all that it needs.

In the process of the tests another command may have imported a module already, which would hide that this one
forgets to. A process that has loaded the command line and libraries forks for each command, which saves the
start of an interpreter. Where the subject is another one, that process has loaded everything.
"""

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
import pytest

from harness.journalling import NOW, event, run, written
from harness.nightly import NIGHTLY
from harness.project import Project
from symphony.cli.main import main

_DEADLINE_S = 240  # a hundred processes one after the other: seconds where nothing else runs
_FORKS = """
import gc, importlib, json, os, pkgutil, sys, traceback
import symphony
from symphony.cli.main import main
kind, loaded = sys.argv[1:3]
if loaded:
    for module in pkgutil.walk_packages(symphony.__path__, "symphony."):
        if not module.name.endswith("__main__") and "demo_content" not in module.name:
            importlib.import_module(module.name)
for name in sys.argv[3:]:
    importlib.import_module(name)
gc.collect()
gc.freeze()  # else every fork visits, and thereby copies, all that is loaded
for given in json.load(sys.stdin):
    print("$ symphony", *given, file=sys.stderr, flush=True)
    if child := os.fork():
        print(json.dumps([given, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])]), flush=True)
        continue
    code = 70
    try:
        os.dup2(2, 1)
        if kind == "nobody reads":
            reading, writing = os.pipe()
            os.close(reading)
            os.dup2(writing, 1)
        elif kind == "no input":
            os.close(0)
            sys.stdin = None
        main(given, prog_name="symphony")
    except SystemExit as end:
        code = end.code or 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
"""
_LIBRARIES = (
    () if NIGHTLY else ("anyio", "httpx", "liquid", "pydantic_settings", "rich.table", "structlog", "yaml")
)
"""What is loaded before: the imports of our own modules are the subject."""
_IN_A_PROJECT = {
    ("check",): 0,
    ("clean", "--dry-run"): 0,
    ("doctor",): 0,
    ("explain", "SYM-1"): 0,
    ("issue", "list"): 0,
    ("library", "assignments"): 0,
    ("library", "list"): 0,
    ("library", "proposals"): 0,
    ("logs", "SYM-1"): 0,
    ("transcript", "SYM-1"): 0,
    ("service", "install"): 0,
    ("service", "uninstall"): 0,
    ("prompt", "SYM-1"): 0,
    ("skills", "check"): 0,
    ("skills", "list"): 0,
    ("skills", "report"): 0,
    ("skills", "search", "greet"): 0,
    ("status",): 0,
    ("tracker", "check"): 0,
    ("diff", "SYM-1"): 1,
    ("drain",): 5,
    ("health",): 5,
    ("pause",): 5,
    ("refresh",): 5,
    ("stop", "SYM-1"): 5,
}
"""Without a daemon, which those that order need."""


def _names(command: click.Command, ctx: click.Context, *above: str) -> Iterator[tuple[str, ...]]:
    yield above
    if isinstance(command, click.Group):
        for name in command.list_commands(ctx):
            below = command.get_command(ctx, name)
            assert below is not None
            yield from _names(below, ctx, *above, name)


def _each(
    project: Project,
    commands: Sequence[Sequence[str]],
    *,
    cwd: Path | None = None,
    kind: str = "",
    loaded: bool = False,
) -> tuple[dict[tuple[str, ...], int], str]:
    """The exit code of each, and all that they said."""
    (project.root / "home").mkdir(exist_ok=True)
    done = subprocess.run(
        [sys.executable, "-c", _FORKS, kind, "loaded" if loaded else "", *_LIBRARIES],
        cwd=cwd or project.repo,
        env=project.env(),
        input=json.dumps(commands),
        capture_output=True,
        text=True,
        timeout=_DEADLINE_S,
        check=True,
    )
    told = [json.loads(line) for line in done.stdout.splitlines()]
    return {tuple(given): code for given, code in told}, done.stderr


@pytest.mark.slow
@pytest.mark.timeout(_DEADLINE_S + 30)
def test_every_help_has_all_that_it_needs(tmp_path: Path) -> None:
    project = Project(root=tmp_path).create()
    names = [*_names(main, click.Context(main))]
    for loaded in (False, True):  # what stands below a group seldom needs more than the group
        helps = [(*name, "--help") for name in names if loaded == (len(name) > 1 and not NIGHTLY)]
        codes, said = _each(project, helps, loaded=loaded)
        assert codes == dict.fromkeys(helps, 0), said
        assert said.count("Usage: symphony") == len(helps)
        assert "Traceback" not in said, said


@pytest.mark.slow
@pytest.mark.timeout(_DEADLINE_S + 30)
def test_every_command_has_all_that_it_needs(tmp_path: Path) -> None:
    project = Project(root=tmp_path).create()
    project.workflow()
    project.issue("SYM-1", title="First")
    project.skill("greet")
    project.commit("Workflow")
    project.state_dir.mkdir()
    written(project.state_dir / "journal.db", run(1, ended_wall_ms=NOW, outcome="succeeded"), event(1))
    codes, said = _each(project, [*_IN_A_PROJECT])
    assert codes == _IN_A_PROJECT, said
    assert "Traceback" not in said, said


# --- where nothing is as it should be ---

_ISSUE = "SYM-77"
_CODES: dict[tuple[str, ...], tuple[int, int, int]] = {
    ("answer", _ISSUE, "Blue"): (5, 5, 5),
    ("check",): (3, 3, 0),
    ("clean", "--dry-run"): (3, 3, 0),
    ("drain",): (5, 5, 5),
    ("explain", _ISSUE): (3, 3, 1),
    ("health",): (5, 5, 5),
    ("health", "--json"): (5, 5, 5),
    ("init",): (1, 1, 0),
    ("issue", "list"): (1, 0, 0),
    ("issue", "show", _ISSUE): (1, 1, 1),
    ("issue", "move", _ISSUE, "Done"): (1, 1, 1),
    ("issue", "comment", _ISSUE, "Hello"): (1, 1, 1),
    ("library", "accept", "7"): (3, 3, 1),
    ("library", "assign", "--issue", _ISSUE, "nothing"): (3, 3, 1),
    ("library", "edit", "nothing"): (3, 3, 1),
    ("library", "import", "nowhere"): (2, 2, 2),
    ("library", "list"): (3, 3, 0),
    ("library", "promote", "nothing"): (3, 3, 1),
    ("library", "show", "nothing"): (3, 3, 1),
    ("library", "sync", _ISSUE): (3, 3, 1),
    ("logs", _ISSUE): (3, 1, 1),
    ("transcript", _ISSUE): (3, 1, 1),
    ("pause",): (5, 5, 5),
    ("prompt", _ISSUE): (3, 3, 1),
    ("refresh",): (5, 5, 5),
    ("replay", "nowhere"): (2, 2, 2),
    ("resume",): (5, 5, 5),
    ("retry", _ISSUE): (5, 5, 5),
    ("run", "--once", "--workflow", "nowhere.md"): (3, 3, 3),
    ("service", "install"): (3, 3, 0),
    ("skills", "list"): (0, 0, 0),
    ("skills", "show", "nothing"): (1, 1, 1),
    ("skills", "report"): (3, 1, 1),
    ("skills", "import", "nowhere"): (1, 1, 1),
    ("status",): (3, 3, 0),
    ("status", "--json"): (3, 3, 0),
    ("stop", _ISSUE): (5, 5, 5),
    ("tracker", "check"): (3, 3, 0),
    ("tracker", "comment", _ISSUE, "Hello"): (3, 3, 1),
    ("tracker", "move", _ISSUE, "Done"): (3, 3, 1),
    ("unblock", _ISSUE): (5, 5, 5),
}
"""Exit codes in an empty directory without git, with an invalid WORKFLOW.md there, and in a sound repository:
no daemon runs, and nobody knows the issue."""


def _told_in_two_lines(said: str, codes: dict[tuple[str, ...], int]) -> None:
    """Each failure is an error with a hint, behind warnings; `check` and `--json` tell it on stdout."""
    assert "Traceback" not in said, said
    for part in said.split("$ symphony ")[1:]:
        given, *lines = part.splitlines()
        code = next(code for words, code in codes.items() if " ".join(words) == given)
        errors = [number for number, line in enumerate(lines) if line.startswith("error: ")]
        if code and not given.startswith("check") and "--json" not in given:
            assert len(errors) == 1, part
            assert lines[errors[0] + 1].startswith("hint: "), part
            assert all(line.startswith("warning: ") for line in lines[: errors[0]]), part
            assert len(lines) == errors[0] + 2, part


@pytest.mark.timeout(_DEADLINE_S + 30)
@pytest.mark.parametrize("place", ["invalid", "empty", "a directory", "sound"])
def test_what_fails_says_so_in_two_lines_and_by_its_exit_code(tmp_path: Path, place: str) -> None:
    project = Project(root=tmp_path).create()
    project.workflow()
    bare = tmp_path / "bare"
    bare.mkdir()
    if place == "invalid":
        (bare / "WORKFLOW.md").write_text("---\ntracker: {kind: markdown\n---\nHello\n", encoding="utf-8")
    elif place == "a directory":
        (bare / "WORKFLOW.md").mkdir()
    if place in {"invalid", "a directory"}:
        (bare / ".symphony" / "issues").mkdir(parents=True)
    column = {"empty": 0, "sound": 2}.get(place, 1)
    cwd = project.repo if place == "sound" else bare
    codes, said = _each(project, [*_CODES], cwd=cwd, loaded=not NIGHTLY)
    assert codes == {words: row[column] for words, row in _CODES.items()}, said
    _told_in_two_lines(said, codes)


@pytest.mark.slow
@pytest.mark.timeout(_DEADLINE_S + 30)
def test_an_output_that_nobody_reads_ends_a_command_without_a_word(tmp_path: Path) -> None:
    project = Project(root=tmp_path).create()
    project.workflow()
    project.issue("SYM-1", title="First")
    commands = [
        ("--help",),
        ("check",),
        ("check", "--json"),
        ("completion", "bash"),
        ("explain", "SYM-1"),
        ("help", "run"),
        ("issue", "list"),
        ("issue", "show", "SYM-1"),
        ("prompt", "SYM-1"),
        ("skills", "list", "--json"),
        ("status",),
        ("status", "--json"),
        ("status", "--watch", "--interval", "0.1"),
        ("status", "--all"),
        ("tracker", "check"),
    ]
    codes, said = _each(project, commands, kind="nobody reads", loaded=True)
    assert codes == dict.fromkeys(commands, 1)
    assert said == "".join(f"$ symphony {' '.join(words)}\n" for words in commands)


@pytest.mark.slow
@pytest.mark.timeout(_DEADLINE_S + 30)
def test_an_input_that_is_closed_is_told(tmp_path: Path) -> None:
    project = Project(root=tmp_path).create()
    project.workflow()
    project.issue("SYM-1", title="First")
    expected = {
        ("answer", "SYM-1", "-"): 2,
        ("issue", "comment", "SYM-1", "-"): 2,
        ("issue", "new", "Title", "--file", "-"): 2,
        ("tracker", "comment", "SYM-1", "-F", "-"): 2,
        ("issue", "list"): 0,
        ("status",): 0,
    }
    codes, said = _each(project, [*expected], kind="no input", loaded=True)
    assert codes == expected
    _told_in_two_lines(said, codes)
    assert said.count("error: standard input is closed\n") == 4
