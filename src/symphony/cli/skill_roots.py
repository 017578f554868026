"""Finds the workspace and the skill options that a run would have."""

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from typing import Any

import click

from symphony import config
from symphony import skills as agent_skills
from symphony.agents.registry import skill_places
from symphony.cli.failures import CommandError, ExitCode, warn
from symphony.cli.options import WORKFLOW_HELP, current_directory, nearest_workflow
from symphony.cli.repository import git, uncommitted_skills
from symphony.daemon.admission import judge
from symphony.daemon.context import skill_options
from symphony.domain import Failure, SymphonyError


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillsContext:
    """A workspace and the choices about its skills.

    Attributes:
        workspace: absolute.
        below: the same as a person would name it from the current directory.
        pinned: a run reads the base branch's commit in place of the folder (`source: base_branch`).
        cloned: sessions work in clones, so that they see what is committed.
        base_branch: the branch that clones begin at; `None` for the one that is checked out.
        listed: directories whose skills the agents list by themselves.
    """

    workspace: Path
    below: str
    options: agent_skills.SkillOptions
    pinned: bool = False
    cloned: bool = False
    base_branch: str | None = None
    listed: frozenset[str] = frozenset()

    def in_phase(self, phase: str | None) -> "SkillsContext":
        """The same for a phase of the work; `None` for that of the settings."""
        return self if phase is None else replace(self, options=replace(self.options, phase=phase))

    def load(self) -> agent_skills.SkillSet:
        """The skills, also if `enabled` is off: the user asked to see them."""
        options = replace(self.options, enabled=True)
        return agent_skills.with_advice(self.workspace, options, agent_skills.load(self.workspace, options))

    def block(self, skill_set: agent_skills.SkillSet) -> agent_skills.CatalogBlock:
        """What a run would list; nothing if `enabled` is off."""
        return (
            agent_skills.render(skill_set, self.options)
            if self.options.enabled
            else agent_skills.CatalogBlock(text=None)
        )

    def elsewhere(self, skill_set: agent_skills.SkillSet) -> tuple[agent_skills.FolderElsewhere, ...]:
        """Folders with skills that sessions do not see; none if `enabled` is off."""
        if not self.options.enabled:
            return ()
        return agent_skills.skills_elsewhere(self.workspace, self.options, skill_set, self.listed)

    def warn_of_elsewhere(self, skill_set: agent_skills.SkillSet) -> None:
        """Say which folders sessions do not see, and the setting that shows them."""
        if folders := self.elsewhere(skill_set):
            warn(f"{agent_skills.unseen_in(folders)}; {agent_skills.hint_for(self.options, folders)}")

    def uncommitted(self) -> frozenset[str]:
        """Paths of SKILL.md files, below the workspace, that no session sees before they are committed."""
        roots = (self.options.path, *self.options.extra_paths)
        unseen = uncommitted_skills(self.workspace, roots, self.base_branch) if self.cloned else None
        return frozenset() if unseen is None else frozenset(unseen.names)

    def warn_of_differences(self) -> None:
        """Report what a run would see differently."""
        if self.options.enabled and (unseen := self.uncommitted()):
            names = ", ".join(sorted(unseen))
            warn(f"sessions see only commits: git add and commit {names}")
        if not self.options.enabled:
            warn("agent.skills.enabled is false: sessions list no skills")
        elif self.pinned:
            warn("agent.skills.source is base_branch: sessions read its commit, and this is the folder")

    def home(self, *, user: bool) -> Path:
        """The directory that new skills go to; it need not be there yet.

        Raises:
            CommandError: there is none, it leads out of the workspace, or it is one skill itself.
        """
        if user and not self.options.user_paths:
            hint = "set agent.skills.user_path in WORKFLOW.md, or leave --user away"
            raise CommandError.of("there is no place for skills of a user", hint=hint)
        root = self.workspace / self.options.path
        if user:
            root = Path(self.options.user_paths[0]).expanduser()
        if not user and not _is_inside(root, self.workspace):
            hint = "name a path below the workspace, and no link out of it"
            raise CommandError.of(f"{self.options.path} leads out of the workspace", hint=hint)
        if (root / "SKILL.md").exists():
            raise CommandError.of(f"{root} is one skill itself", hint="name the directory above with --path")
        return root


def place_options(
    find: Callable[[str | None, Path | None, Mapping[str, str]], Any], path_help: str
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add `--path` and `--workflow`; the command gets what `find` makes of them as `place`."""
    path_option = click.option("--path", metavar="PATH", help=path_help)
    workflow_type = click.Path(path_type=Path, dir_okay=False)
    workflow_option = click.option("--workflow", type=workflow_type, metavar="FILE", help=WORKFLOW_HELP)

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(command)
        def run(*args: Any, path: str | None, workflow: Path | None, **options: Any) -> Any:
            return command(*args, place=find(path, workflow, os.environ), **options)

        return path_option(workflow_option(run))

    return add


def _place(path: str | None, workflow: Path | None, environment: Mapping[str, str]) -> SkillsContext:
    """The repository is that of the named file, else that of the current directory."""
    base = repository_top(current_directory() if workflow is None else workflow.absolute().parent)
    agent, clones, agents = agent_sections(workflow, environment)
    section = agent.skills
    options = skill_options(section, agent.phases.default)
    return SkillsContext(
        workspace=base,
        below=os.path.relpath(base),
        options=options if path is None else replace(options, path=path),
        pinned=section.source == "base_branch",
        cloned=clones is not None and clones.repo is not None,
        base_branch=None if clones is None else clones.base_branch,
        listed=_listed(agents),
    )


def _listed(agents: Iterable[config.NamedAgent]) -> frozenset[str]:
    try:
        return skill_places(agents)
    except SymphonyError:  # the package of an agent is missing; `symphony check` says so
        return frozenset()


skills_options = place_options(
    _place, "The folder of the skills in the repository.  [default: agent.skills.path]"
)


def repository_top(directory: Path) -> Path:
    """The top of the repository with the directory; the directory itself if there is none."""
    if directory.is_dir():
        done = git(directory, "rev-parse", "--show-toplevel")
        if done.returncode == 0 and done.stdout.strip():
            return Path(done.stdout.removesuffix("\n"))
    return directory


def agent_sections(
    workflow: Path | None, environment: Mapping[str, str]
) -> tuple[config.AgentSettings, config.WorkspaceSettings | None, tuple[config.NamedAgent, ...]]:
    """`agent`, `workspace` and the agents of a workflow file, even if other parts are invalid.

    Without a section `agent` the defaults; `workspace` is `None` if unknown. The environment overrides both.

    Args:
        workflow: a file that the user asked for; `None` for the nearest one.
        environment: variables of the command.

    Raises:
        CommandError: the file was asked for and cannot be read, or a variable says nothing that can be meant.
    """
    try:
        enabled = config.Variables.of(environment).agent_skills_enabled
    except ValueError as error:
        hint = "set it to true or false, or unset it"
        message = "SYMPHONY_AGENT_SKILLS_ENABLED must be true or false"
        raise CommandError.of(message, hint=hint, code=ExitCode.CONFIGURATION) from error
    skills = config.SkillsSettings(enabled=config.SkillsSettings().enabled if enabled is None else enabled)
    defaults, file = config.AgentSettings(skills=skills), workflow or nearest_workflow()
    if workflow is None and not file.exists():
        return defaults, None, ()
    try:
        judgement = judge(config.read_workflow_file(file), environment=environment, acknowledged=None)
    except config.WorkflowError as error:
        if workflow is not None:
            raise CommandError(error.failure, code=ExitCode.CONFIGURATION) from error
        failure = error.failure
    else:
        agent = judgement.sections.get("agent")
        if isinstance(agent, config.AgentSettings):
            workspace = judgement.sections.get("workspace")
            agents = tuple(judgement.agents.values())
            return agent, workspace if isinstance(workspace, config.WorkspaceSettings) else None, agents
        failure = judgement.failures[0]
    place = "" if failure.where is None else f"{failure.where}: "
    warn(f"{place}{failure.message}; the defaults of agent are used")
    return defaults, None, ()


def agent_failures(workflow: Path | None, environment: Mapping[str, str]) -> tuple[Failure, ...]:
    """Why `symphony run` refuses the instructions and phases of a workflow file, or all of `agent`.

    Empty without a file.
    """
    file = workflow or nearest_workflow()
    try:
        judgement = judge(config.read_workflow_file(file), environment=environment, acknowledged=None)
    except config.WorkflowError as error:
        return error.failures if file.exists() else ()
    if isinstance(judgement.sections.get("agent"), config.AgentSettings):
        keys = ("agent.instructions", "agent.phases")
        return tuple(one for one in judgement.failures if one.message.startswith(keys))
    return tuple(one for one in judgement.failures if one.message.startswith("agent")) or judgement.failures


def _is_inside(path: Path, workspace: Path) -> bool:
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(workspace))
