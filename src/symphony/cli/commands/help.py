"""`symphony help` and `symphony completion`."""

import click
from click.shell_completion import BashComplete, FishComplete, ZshComplete

_HELP_EPILOG = """\b
Examples:
  symphony help                     the same as `symphony --help`
  symphony help status              the same as `symphony status --help`
  symphony help skills import
"""
_COMPLETION_EPILOG = """\b
Examples:
  source <(symphony completion bash)                                  in ~/.bashrc, or at once
  source <(symphony completion zsh)                                   in ~/.zshrc
  symphony completion fish > ~/.config/fish/completions/symphony.fish

Completes the issues that the daemon knows or that are on a Markdown board; sends no request to a tracker.
"""


def _complete(ctx: click.Context, argument: click.Parameter, incomplete: str) -> list[str]:
    command = ctx.find_root().command
    for name in ctx.params.get(str(argument.name)) or ():
        below = command.get_command(ctx, name) if isinstance(command, click.Group) else None
        if below is None:
            return []
        command = below
    names = command.list_commands(ctx) if isinstance(command, click.Group) else []
    return [name for name in names if name.startswith(incomplete)]


@click.command(name="help", epilog=_HELP_EPILOG)
@click.argument("names", metavar="[COMMAND]...", nargs=-1, shell_complete=_complete)
@click.pass_context
def help_(ctx: click.Context, names: tuple[str, ...]) -> None:
    """Show the help of a command."""
    shown = ctx.find_root()
    for name in names:
        group = shown.command
        if not isinstance(group, click.Group):
            raise click.UsageError(f"{shown.command_path} has no subcommands", ctx)
        _, command, _ = group.resolve_command(shown, [name])
        assert command is not None  # noqa: S101 - resolve_command raises for an unknown name
        shown = click.Context(command, info_name=name, parent=shown)
    click.echo(shown.get_help())


@click.command(epilog=_COMPLETION_EPILOG)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the shell completion script."""
    shells = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}
    click.echo(shells[shell](ctx.find_root().command, {}, "symphony", "_SYMPHONY_COMPLETE").source())
