"""Commands run in the process of the tests."""

from click.testing import CliRunner, Result

from symphony.cli.main import main

__all__ = ["call"]


def call(*arguments: str) -> Result:
    """Run `symphony` with these arguments; an error is raised instead of printed."""
    done = CliRunner().invoke(main, arguments, standalone_mode=False)
    if done.exception is not None:
        raise done.exception
    return done
