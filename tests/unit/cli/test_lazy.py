import click
import pytest
from click.testing import CliRunner

import symphony.cli
from symphony import __version__
from symphony.cli import main
from symphony.cli.failures import CommandError, ExitCode, exit_code
from symphony.cli.lazy import LazyGroup
from symphony.domain.failures import Blame, Category, Failure


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


def group() -> LazyGroup:
    made = LazyGroup("x", lazy={"version": "symphony:__version__", "issue": "symphony.cli.issue:issue"})
    for command in (interrupted, seven, failing):
        made.add_command(command)
    return made


def test_every_lazy_name_can_be_imported() -> None:
    context = click.Context(main)
    for name in symphony.cli.COMMANDS:
        assert isinstance(main.get_command(context, name), click.Command)


def test_the_bare_program_shows_its_help_and_its_version() -> None:
    assert "issue" in CliRunner().invoke(main, []).stdout
    assert CliRunner().invoke(main, ["--version"]).stdout == f"symphony, version {__version__}\n"


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
        ("nope", 2, "error: No such command 'nope'.\nhint: x --help\n"),
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
