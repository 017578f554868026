"""Every command in a process of its own, where nothing is loaded yet: what it hides it must not need.

In the process of the tests a library that a command keeps out while it loads (`lean_imports`) may be there
already, so that nobody would see that the command cannot do without it. A process that has loaded the command
line alone forks for each command, which saves the start of an interpreter.
"""

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
import pytest

from harness.journalling import NOW, event, run, written
from harness.project import Project
from symphony.cli import main

_DEADLINE_S = 240  # sixty processes one after the other: seconds where nothing else runs
_FORKS = """
import json, os, sys, traceback
from symphony.cli import main
for given in json.load(sys.stdin):
    print("$ symphony", *given, file=sys.stderr, flush=True)
    if child := os.fork():
        print(json.dumps([given, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])]), flush=True)
        continue
    code = 70
    try:
        os.dup2(2, 1)
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
_IN_A_PROJECT = {
    ("check",): 0,
    ("clean", "--dry-run"): 0,
    ("doctor",): 0,
    ("explain", "SYM-1"): 0,
    ("issue", "list"): 0,
    ("logs", "SYM-1"): 0,
    ("service", "install", "--dry-run"): 0,
    ("service", "uninstall", "--dry-run"): 0,
    ("prompt", "SYM-1"): 0,
    ("skills", "check"): 0,
    ("skills", "list"): 0,
    ("skills", "report"): 0,
    ("skills", "search", "greet"): 0,
    ("status",): 0,
    ("tracker", "check"): 0,
    ("health",): 1,
    ("drain",): 5,
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


def _each(project: Project, commands: Sequence[Sequence[str]]) -> tuple[dict[tuple[str, ...], int], str]:
    """The exit code of each, and all that they said."""
    (project.root / "home").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", _FORKS],
        cwd=project.repo,
        env=project.env(),
        input=json.dumps(commands),
        capture_output=True,
        text=True,
        timeout=_DEADLINE_S,
        check=True,
    )
    told = [json.loads(line) for line in done.stdout.splitlines()]
    return {tuple(given): code for given, code in told}, done.stderr


@pytest.mark.timeout(_DEADLINE_S + 30)
def test_every_command_has_all_that_it_needs(tmp_path: Path) -> None:
    project = Project(root=tmp_path).create()
    project.workflow()
    project.issue("SYM-1", title="First")
    project.skill("greet")
    project.commit("Workflow")
    project.state_dir.mkdir()
    written(project.state_dir / "journal.db", run(1, ended_wall_ms=NOW, outcome="succeeded"), event(1))
    helps = [(*name, "--help") for name in _names(main, click.Context(main))]
    codes, said = _each(project, [*helps, *_IN_A_PROJECT])
    assert codes == {**dict.fromkeys(helps, 0), **_IN_A_PROJECT}, said
    assert said.count("Usage: symphony") == len(helps)
    assert "Traceback" not in said, said
