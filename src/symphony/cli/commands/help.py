"""`symphony help`: the help of a command, for those who look for it there."""

import click

# `symphony completion`: the script by which a shell completes our commands, options and issues.


_COMPLETION_EPILOG = """\b
Examples:
  source <(symphony completion bash)                                  in ~/.bashrc, or at once
  source <(symphony completion zsh)                                   in ~/.zshrc
  symphony completion fish > ~/.config/fish/completions/symphony.fish

Issues are completed with those that the daemon knows, or that lie on a Markdown board; no tracker is asked.
"""
_SHELLS = ("bash", "zsh", "fish")


@click.command(epilog=_COMPLETION_EPILOG)
@click.argument("shell", type=click.Choice(_SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script that completes `symphony` in a shell."""
    from click.shell_completion import BashComplete, FishComplete, ZshComplete

    made = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}[shell]
    click.echo(made(ctx.find_root().command, {}, "symphony", "_SYMPHONY_COMPLETE").source())


_HELP_EPILOG = """\b
Examples:
  symphony help                     as `symphony --help`
  symphony help status              as `symphony status --help`
  symphony help skills import
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
            raise click.UsageError(f"{shown.command_path} is one command, without others below it", ctx)
        _, command, _ = group.resolve_command(shown, [name])
        assert command is not None  # noqa: S101 - else it raised
        shown = click.Context(command, info_name=name, parent=shown)
    click.echo(shown.get_help())
