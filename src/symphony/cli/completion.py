"""`symphony completion`: the script by which a shell completes our commands, options and issues."""

import click

__all__ = ["completion"]

_EPILOG = """\b
Examples:
  source <(symphony completion bash)                                  in ~/.bashrc, or at once
  source <(symphony completion zsh)                                   in ~/.zshrc
  symphony completion fish > ~/.config/fish/completions/symphony.fish

Issues are completed with those that the daemon knows, or that lie on a Markdown board; no tracker is asked.
"""
_SHELLS = ("bash", "zsh", "fish")


@click.command(epilog=_EPILOG)
@click.argument("shell", type=click.Choice(_SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script that completes `symphony` in a shell."""
    from click.shell_completion import BashComplete, FishComplete, ZshComplete

    made = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}[shell]
    click.echo(made(ctx.find_root().command, {}, "symphony", "_SYMPHONY_COMPLETE").source())
