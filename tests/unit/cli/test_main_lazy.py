import errno
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import symphony.cli
from harness.programs import printed
from harness.rings import mostly_slow
from symphony.cli.failures import CommandError, ExitCode, exit_code
from symphony.cli.main import LazyGroup, main
from symphony.domain import Blame, Category, Failure
from symphony.revision import version_text


@click.command()
def interrupted() -> None:
    raise click.Abort


@click.command()
@click.pass_context
def seven(ctx: click.Context) -> None:
    ctx.exit(7)


@click.command()
def failing() -> None:
    raise CommandError(
        Failure(category=Category.INTERNAL, blame=Blame.CONFIG, message="two\nlines", where="f:1")
    )


LAZY = {
    "version": ("runs:RUN_SUMS", "No command."),
    "issue": ("issue:issue", "Issues."),
}


def group() -> LazyGroup:
    made = LazyGroup("x", sections={"Some": LAZY})
    for command in (interrupted, seven, failing):
        made.add_command(command)
    return made


def test_every_lazy_name_can_be_imported() -> None:
    context = click.Context(main)
    for name in main.list_commands(context):
        assert isinstance(main.get_command(context, name), click.Command)


def test_the_help_of_the_program_says_of_every_command_what_that_says_of_itself() -> None:
    context = click.Context(main)
    for rows in symphony.cli.main.SECTIONS.values():
        for name, (_, line) in rows.items():
            command = main.get_command(context, name)
            assert command is not None
            assert command.get_short_help_str(200) == line


def test_the_help_of_the_program_imports_no_command() -> None:
    code = (
        "import sys; from symphony.cli.main import main; main(['--help'], standalone_mode=False); "
        "sys.exit(repr([name for name in sys.modules if name.startswith('symphony.cli.')]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    titles = [line for line in done.stdout.splitlines() if line[:1].isalpha() and line.endswith(":")]
    assert titles == ["Options:", "Start:", "Watch:", "Steer:", "Board:", "Upkeep:"]
    assert done.stderr == "['symphony.cli.failures', 'symphony.cli.main']\n"


ASKING = ("explain", "health", "logs", "open", "outbox", "prompt", "runs", "status", "steer", "transcript")


def test_asking_a_daemon_imports_neither_its_log_nor_its_scheduler_nor_its_settings() -> None:
    needless = ("structlog", "pydantic", "pydantic_core", "pydantic_settings", "liquid")
    imports = ", ".join(f"symphony.cli.commands.{name}" for name in ASKING)
    assert printed(f"import {imports}, sys; print(sorted({{*{needless!r}}} & {{*sys.modules}}))") == "[]\n"
    assert (
        printed("import symphony.cli.queries, sys; print('symphony.scheduler' in sys.modules)") == "False\n"
    )


def test_commands_of_a_group_itself_are_shown_behind_its_sections() -> None:
    shown = CliRunner().invoke(group(), ["-h"]).stdout
    assert shown.index("Some:") < shown.index("issue        Issues.") < shown.index("Commands:\n  failing")


@pytest.mark.parametrize(
    ("arguments", "unbuffered"),
    mostly_slow([(("check",), "1"), (("--help",), ""), (("check", "--json"), "")]),
)
def test_an_output_that_takes_nothing_more_is_told_in_one_line(
    arguments: tuple[str, ...], unbuffered: str, tmp_path: Path
) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "symphony", *arguments],
            cwd=tmp_path,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        )
    assert done.returncode == 1
    assert done.stderr == (
        "error: the output cannot be written: No space left on device\n"
        "hint: check its destination and the free space there\n"
    )


def test_without_any_output_a_command_works_all_the_same() -> None:
    command = '"$0" -m symphony --version >&-'
    done = subprocess.run(["sh", "-c", command, sys.executable], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_failure_of_a_file_names_the_file_and_shows_no_stack() -> None:
    @click.command()
    def writing() -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "/var/x")

    made = LazyGroup("x")
    made.add_command(writing)
    done = CliRunner().invoke(made, ["writing"])
    assert (done.exit_code, len(done.stderr.splitlines())) == (1, 2)
    assert "/var/x: No space left on device" in done.stderr


def test_the_bare_program_shows_its_help_and_its_version() -> None:
    assert "issue" in CliRunner().invoke(main, []).stdout
    assert CliRunner().invoke(main, ["-V"]).stdout == CliRunner().invoke(main, ["--version"]).stdout
    assert CliRunner().invoke(main, ["-V"]).stdout == f"symphony {version_text()}\n"


def test_lazy_and_eager_commands_are_listed_together() -> None:
    assert group().list_commands(click.Context(group())) == [
        "failing",
        "interrupted",
        "issue",
        "seven",
        "version",
    ]


def test_a_name_that_is_no_command_is_a_programming_error() -> None:
    with pytest.raises(TypeError, match="not a command"):
        group().get_command(click.Context(group()), "version")


@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        ("interrupted", 130, "stopped\n"),
        ("seven", 7, ""),
        ("failing", 3, "error: f:1: two lines\n"),
        ("nope", 2, "error: x has no command 'nope'\nhint: `x --help` lists the commands\n"),
        ("seen", 2, "error: x has no command 'seen'\nhint: did you mean `x seven`?\n"),
    ],
)
def test_a_failure_gives_its_code_and_no_stack(command: str, code: int, said: str) -> None:
    result = CliRunner().invoke(group(), [command])
    assert (result.exit_code, result.stderr) == (code, said)


def test_embedded_use_lets_exceptions_through() -> None:
    with pytest.raises(CommandError):
        group().main(["failing"], standalone_mode=False)


@pytest.mark.parametrize(
    ("category", "blame", "code"),
    [
        (Category.TRACKER_STATUS, Blame.TRACKER, ExitCode.FAILURE),
        (Category.INVALID_TRACKER_CONFIG, Blame.CONFIG, ExitCode.CONFIGURATION),
        (Category.MISSING_TRACKER_SECRET, Blame.CONFIG, ExitCode.AUTHENTICATION),
        (Category.AGENT_AUTH, Blame.AGENT, ExitCode.AUTHENTICATION),
    ],
)
def test_exit_codes_follow_the_failure(category: Category, blame: Blame, code: ExitCode) -> None:
    assert exit_code(Failure(category=category, blame=blame, message="x")) is code
