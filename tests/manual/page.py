"""`symphony.1` as text: every command with its usage, options and examples, as its `--help` has them."""

from collections.abc import Iterator
from pathlib import Path

import click

from symphony import __version__
from symphony.cli.main import HELP_NAMES, main

__all__ = ["PAGE", "page"]


PAGE = Path(__file__).parents[2] / "docs" / "man" / "symphony.1"
_WIDTH = 100
_ENVIRONMENT = (
    ("SYMPHONY_STATE_DIR", "The state directory, instead of the one below ~/.local/state/symphony."),
    ("STATE_DIRECTORY", "The same, as a service manager gives it."),
    ("SYMPHONY_AGENT_SKILLS_ENABLED", "false: sessions list no skills."),
    ("NO_COLOR", "Set to anything: no colours."),
)
_FILES = (
    ("WORKFLOW.md", "Settings and prompt of a repository."),
    (".symphony/issues, .symphony/skills", "The Markdown board and the skills of a repository."),
    ("~/.local/state/symphony/NAME-DIGEST", "The state directory: journal, logs, lock and control socket."),
)
_EXITS = (
    ("0", "Done."),
    ("1", "Failure."),
    ("2", "The command line is wrong."),
    ("3", "The configuration is invalid."),
    ("4", "The agent or the tracker is not authenticated."),
    ("5", "The daemon cannot be reached, or there is none."),
    ("130", "Interrupted with Ctrl-C."),
)


def page() -> str:
    """The whole page; the same for the same commands and version."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield f'.TH SYMPHONY 1 "" "symphony {__version__}" "User Commands"'
    yield ".SH NAME"
    yield r"symphony \- turn tracker issues into supervised coding\-agent sessions"
    yield ".SH SYNOPSIS"
    yield r".B symphony"
    yield r"[\-C DIR] COMMAND [ARGUMENT]..."
    yield ".SH DESCRIPTION"
    yield _text(
        "A daemon, one per repository, that polls a board, clones a workspace per issue, runs a coding agent "
        "in it until the issue leaves its active states, and delivers the work as commits on a branch. "
        "symphony init makes a repository ready, symphony run is the daemon, and the other commands ask it "
        "or prepare it."
    )
    yield ".SH COMMANDS"
    for name, command, context in _commands(
        main, click.Context(main, info_name="symphony", help_option_names=HELP_NAMES)
    ):
        yield f".SS {_text(name)}"
        yield from _help(command, context)
    for title, rows in (("EXIT STATUS", _EXITS), ("ENVIRONMENT", _ENVIRONMENT), ("FILES", _FILES)):
        yield f".SH {title}"
        for term, words in rows:
            yield from (".TP", f".B {_text(term)}", _text(words))


def _commands(
    command: click.Command, context: click.Context
) -> Iterator[tuple[str, click.Command, click.Context]]:
    if not isinstance(command, click.Group):
        yield context.command_path, command, context
        return
    for name in command.list_commands(context):
        below = command.get_command(context, name)
        assert below is not None
        yield from _commands(below, click.Context(below, info_name=name, parent=context))


def _help(command: click.Command, context: click.Context) -> Iterator[str]:
    """What `--help` prints, in which nothing is filled or broken anew."""
    context.terminal_width = context.max_content_width = _WIDTH
    yield ".nf"
    for line in command.get_help(context).splitlines():
        yield _text(line.rstrip())
    yield ".fi"


def _text(text: str) -> str:
    """Text that troff prints as it is."""
    escaped = text.replace("\\", r"\e").replace("-", r"\-").replace("…", "...")
    return rf"\&{escaped}" if escaped.startswith((".", "'")) else escaped
