"""Which repository's skills are meant, and by which options: those that a run would have."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from symphony.cli.failures import CommandError, ExitCode, warn
from symphony.cli.git import git

if TYPE_CHECKING:
    from symphony.skills import Block, SkillOptions, SkillSet
    from symphony.workflow.settings import SkillsSettings

__all__ = ["SkillsPlace", "of_a_place"]

_WORKFLOW = "WORKFLOW.md"


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillsPlace:
    """A workspace and the choices about its skills.

    Attributes:
        workspace: absolute.
        below: the same as a person would name it from the current directory.
        pinned: a run reads the base branch's commit in place of the folder (`source: base_branch`).
    """

    workspace: Path
    below: str
    options: "SkillOptions"
    pinned: bool = False

    def load(self) -> "SkillSet":
        """The skills, also where `enabled` is off: whoever asks wants to see them."""
        from symphony.skills import load

        return load(self.workspace, replace(self.options, enabled=True))

    def block(self, skill_set: "SkillSet") -> "Block":
        """What a run would be told of them; nothing where `enabled` is off."""
        from symphony.skills import Block, render

        return render(skill_set, self.options) if self.options.enabled else Block(text=None)

    def warn_of_differences(self) -> None:
        """Say what a run would see otherwise."""
        if not self.options.enabled:
            warn("agent.skills.enabled is false: sessions are told of no skill")
        elif self.pinned:
            warn("agent.skills.source is base_branch: sessions read its commit, and this is the folder")

    def home(self, *, user: bool) -> Path:
        """The directory that new skills go to; it need not be there yet.

        Raises:
            CommandError: there is none, it leads out of the workspace, or it is one skill itself.
        """
        if user and self.options.user_path is None:
            hint = "set agent.skills.user_path in WORKFLOW.md, or leave --user away"
            raise CommandError.of("there is no place for skills of a user", hint=hint)
        below = self.options.user_path if user else self.options.path
        root = Path(below or "").expanduser() if user else self.workspace / self.options.path
        if not user and not _is_inside(root, self.workspace):
            hint = "name a path below the workspace, and no link out of it"
            raise CommandError.of(f"{self.options.path} leads out of the workspace", hint=hint)
        if (root / "SKILL.md").exists():
            raise CommandError.of(f"{root} is one skill itself", hint="name the directory above with --path")
        return root


def of_a_place(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--workspace`, `--path` and `--workflow`; the command gets them as one `place`."""

    @wraps(command)
    def run(
        *args: Any, workspace: Path | None, path: str | None, workflow: Path | None, **options: Any
    ) -> Any:
        return command(*args, place=_place(workspace, path, workflow, os.environ), **options)

    for option in (
        click.option(
            "--workflow",
            type=click.Path(path_type=Path, dir_okay=False),
            metavar="FILE",
            help="The WORKFLOW.md whose agent.skills holds.  [default: that of the workspace, if any]",
        ),
        click.option("--path", metavar="PATH", help="Where the skills are, below the workspace."),
        click.option(
            "--workspace",
            type=click.Path(path_type=Path, exists=True, file_okay=False),
            metavar="DIR",
            help="The repository.  [default: that of the current directory]",
        ),
    ):
        run = option(run)
    return run


def _place(
    workspace: Path | None, path: str | None, workflow: Path | None, environment: Mapping[str, str]
) -> SkillsPlace:
    start = Path.cwd() if workflow is None else workflow.absolute().parent
    base = _repository(start) if workspace is None else workspace.absolute()
    file = base / _WORKFLOW if workflow is None else workflow
    section = _section(file, environment, asked=workflow is not None)
    options = _bound(section)
    return SkillsPlace(
        workspace=base,
        below=os.path.relpath(base),
        options=options if path is None else replace(options, path=path),
        pinned=section.source == "base_branch",
    )


def _repository(directory: Path) -> Path:
    """The top of the repository that holds the directory; the directory itself where there is none."""
    if directory.is_dir():
        done = git(directory, "rev-parse", "--show-toplevel")
        if done.returncode == 0 and done.stdout.strip():
            return Path(done.stdout.removesuffix("\n"))
    return directory


def _bound(section: "SkillsSettings") -> "SkillOptions":
    from symphony.runtime.bound import options_of

    return options_of(section)


def _section(workflow: Path, environment: Mapping[str, str], *, asked: bool) -> "SkillsSettings":
    """`agent.skills` of a workflow file, whatever else is wrong with it; the defaults where it has none.

    Raises:
        CommandError: the file was asked for and cannot be read.
    """
    # Imported here: `--help` of any command stays fast.
    from symphony.cli.lean import lean_imports

    with lean_imports():
        from symphony.runtime.admission import judge
        from symphony.workflow.document import read_workflow_file
        from symphony.workflow.errors import WorkflowError
        from symphony.workflow.settings import AgentSettings, SkillsSettings

    if not asked and not workflow.exists():
        return SkillsSettings()
    try:
        judgement = judge(read_workflow_file(workflow), environment=environment, acknowledged=None)
    except WorkflowError as error:
        if asked:
            raise CommandError(error.failure, code=ExitCode.CONFIGURATION) from error
        failure = error.failure
    else:
        agent = judgement.sections.get("agent")
        if isinstance(agent, AgentSettings):
            return agent.skills
        failure = judgement.failures[0]
    place = "" if failure.where is None else f"{failure.where}: "
    warn(f"{place}{failure.message}; the defaults of agent.skills hold")
    return SkillsSettings()


def _is_inside(path: Path, workspace: Path) -> bool:
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(workspace))
