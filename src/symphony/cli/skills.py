"""`symphony skills`: look at the skills of a repository, write new ones, exchange them with other places."""

import click

from symphony.cli.lazy import LazyGroup

__all__ = ["skills"]

_EPILOG = """\b
Examples:
  symphony skills list                    which skills a session would be told of
  symphony skills check --strict          what is wrong with them, as a linter tells it
  symphony skills new release-notes --when "A version is being prepared."
  symphony skills import ../other-repo

Needs no daemon and no tracker. The options are those of `agent.skills` in WORKFLOW.md, if there is one.
"""
_COMMANDS = {
    "list": ("symphony.cli.skills_read:list_", "List the skills and who is told of them."),
    "show": ("symphony.cli.skills_read:show", "Show one skill."),
    "search": ("symphony.cli.skills_read:search", "Find skills by words."),
    "check": ("symphony.cli.skills_read:check", "Tell what is wrong with the skills."),
    "prompt": ("symphony.cli.skills_read:prompt", "Print what a session is told."),
    "report": ("symphony.cli.skills_report:report", "Show how often skills were used."),
    "new": ("symphony.cli.skills_new:new", "Write a new skill."),
    "import": ("symphony.cli.skills_import:import_", "Copy skills from somewhere else."),
    "export": ("symphony.cli.skills_export:export", "Copy skills to somewhere else."),
}


@click.group(
    cls=LazyGroup,
    sections={"Commands": _COMMANDS},
    invoke_without_command=True,
    epilog=_EPILOG,
    short_help="Work with the skills of a repository.",
)
@click.pass_context
def skills(ctx: click.Context) -> None:
    """Work with the skills of a repository: folders with a SKILL.md, in .symphony/skills."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())
