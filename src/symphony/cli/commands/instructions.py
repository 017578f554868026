"""`symphony instructions`: write the modules of instructions, look at them, and compose those of a phase."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import anyio
import click
from msgspec import Struct

from symphony import skills
from symphony.cli import documents
from symphony.cli.failures import CommandError, ExitCode, warn
from symphony.cli.formatting import cell, console_for, print_blocks, table
from symphony.cli.main import LazyGroup
from symphony.cli.options import current_directory, json_option, nearest_workflow, print_json
from symphony.cli.skill_roots import agent_failures, agent_sections, place_options, repository_top
from symphony.config import InstructionsSettings
from symphony.daemon.instruction_store import InstructionStore
from symphony.daemon.state_dir import locate
from symphony.domain import Failure, one_line, plural

# --- which instructions ----------------------------------------------------------------------------------


class InstructionsContext(Struct, frozen=True, kw_only=True):
    """The instructions of a repository and the settings for them.

    Attributes:
        repository: absolute.
        workflow: the workflow file, which need not exist.
        settings: with a source, also if sessions get no instructions.
        unused: whether sessions get no instructions.
        phases: the phases that issues can have; empty if they have none.
        refused: why `symphony run` refuses the section `agent` of the workflow file.
    """

    repository: Path
    workflow: Path
    settings: InstructionsSettings
    phases: tuple[str, ...]
    unused: bool
    refused: tuple[Failure, ...] = ()

    @property
    def place(self) -> str:
        """Where the manifest is, as a person would name it."""
        if self.settings.source == "remote":
            return self.settings.url or ""
        return "embedded" if self.settings.source == "embedded" else self.settings.path

    def load(self) -> skills.Selector:
        """The instructions as the source has them now; nothing is written."""
        if self.unused:
            source = self.settings.source
            warn(f"agent.instructions.source is not set: sessions get no instructions; shown: {source}")
        copies = locate(self.workflow, os.environ) / "instructions"
        store = InstructionStore(self.settings, base_dir=self.workflow.absolute().parent, copies=copies)
        found = anyio.run(store.fetch) if self.settings.source == "remote" else self.repository
        return store.load(found, shared=True, keep=False)


def _place(path: str | None, workflow: Path | None, environment: Mapping[str, str]) -> InstructionsContext:
    """The settings of the workflow file; without a source, those of the repository or what is embedded."""
    repository = repository_top(current_directory() if workflow is None else workflow.absolute().parent)
    agent, *_ = agent_sections(workflow, environment)
    settings, chosen = agent.instructions, {}
    if path is not None:
        chosen = {"source": "local", "path": path}
    elif settings.source is None:
        there = (repository / settings.path / skills.MANIFEST_FILE).exists()
        chosen = {"source": "local" if there else "embedded"}
    return InstructionsContext(
        repository=repository,
        workflow=workflow or nearest_workflow(),
        settings=settings.model_copy(update=chosen),
        phases=agent.phases.names,
        unused=path is None and settings.source is None,
        refused=agent_failures(workflow, environment),
    )


_instructions_options = place_options(
    _place, "A directory of the repository with a manifest.yaml.  [default: agent.instructions]"
)


def _report(selector: skills.Selector, problems: tuple[skills.Problem, ...]) -> None:
    """Print problems on stderr, and what was used in place of the source."""
    for one in problems:
        click.echo(_line(one), err=True)
    if selector.origin is not skills.InstructionOrigin.SOURCE:
        warn(f"the source cannot be used; sessions get: {selector.origin.value}")


def _line(problem: skills.Problem) -> str:
    words = (f"{problem.where}:", problem.severity.value, problem.code, problem.message, problem.hint)
    return one_line(" ".join(words), 1_000)


def _fails(problems: tuple[skills.Problem, ...], *, strict: bool = False) -> bool:
    return any(strict or one.severity is skills.Severity.ERROR for one in problems)


# --- commands --------------------------------------------------------------------------------------------

_INIT_EPILOG = """\b
Examples:
  symphony instructions init
  symphony instructions init --path prompts/skills

Writes the embedded modules and their manifest. Edit and commit them. Overwrites nothing.

Exit codes: 0 written, 1 the directory has files already.
"""
_LIST_EPILOG = """\b
Examples:
  symphony instructions list
  symphony instructions list --phase TEST
  symphony instructions list --json | jq -r .sha256      for agent.instructions.sha256

Exit codes: 0 shown, 1 the source has an error (shown below the table).
"""
_COMPOSE_EPILOG = """\b
Examples:
  symphony instructions compose --phase TEST
  symphony instructions compose --json | jq .dropped

Prints exactly the text of a session, with a line break after it, or nothing if there are no instructions.

Exit codes: 0 composed, 1 the source has an error.
"""
_CHECK_EPILOG = """\b
Examples:
  symphony instructions check
  symphony instructions check --strict
  symphony instructions check --path prompts/skills

Exit codes: 0 nothing wrong, 1 errors (with --strict also warnings).
"""


@click.command(epilog=_INIT_EPILOG, short_help="Write modules of instructions to edit.")
@json_option
@_instructions_options
def init(*, place: InstructionsContext, as_json: bool) -> None:
    """Write a manifest and modules of instructions into the repository."""
    repository, path = place.repository, place.settings.path
    target = repository / path
    if not Path(os.path.realpath(target)).is_relative_to(os.path.realpath(repository)):
        hint = "name a directory below the repository, and no link out of it"
        raise CommandError.of(f"{path} leads out of the repository", hint=hint)
    names = sorted(file.name for file in skills.EMBEDDED.iterdir() if file.suffix in {".md", ".yaml"})
    taken = [name for name in names if os.path.lexists(target / name)]
    if taken:
        hint = "nothing was written; remove them, or choose another directory with --path"
        raise CommandError.of(f"{target} has files of these names: {', '.join(taken)}", hint=hint)
    try:
        target.mkdir(parents=True, exist_ok=True)
        for name in names:
            with (target / name).open("xb") as file:
                file.write((skills.EMBEDDED / name).read_bytes())
    except OSError as error:
        hint = "look at the directory and its permissions"
        raise CommandError.of(f"{target} cannot be written: {error.strerror}", hint=hint) from error
    if as_json:
        print_json(documents.NewInstructions(path=str(target), files=tuple(names)))
        return
    for name in names:
        click.echo(target / name)
    hint = (
        f"edit and commit them, then set agent.instructions: {{source: local, path: {path}}} in WORKFLOW.md"
    )
    click.echo(f"hint: {hint}", err=True)


@click.command(name="list", epilog=_LIST_EPILOG, short_help="List the modules, and those of a phase.")
@click.option("--phase", metavar="PHASE", help="Mark the modules of this phase.  [default: all phases]")
@json_option
@_instructions_options
def list_(*, phase: str | None, place: InstructionsContext, as_json: bool) -> int:
    """List the modules in their order, and whether a session of the phase gets them."""
    selector = place.load()
    composed = selector.compose(phase)
    chosen = {module.name for module in composed.modules}
    modules = tuple(
        documents.ShownModule.of(module, chars=len(module.text), selected=module.name in chosen)
        for module in selector.modules
    )
    if as_json:
        print_json(
            documents.InstructionListing(
                source=place.settings.source or "",
                place=place.place,
                origin=selector.origin.value,
                sha256=selector.sha256,
                phase=phase,
                modules=modules,
                dropped=composed.dropped,
                problems=selector.problems,
            )
        )
    else:
        _print_table(modules, composed)
        _report(selector, selector.problems)
        if selector.sha256 is not None:
            click.echo(
                f"{plural(len(modules), 'module')} of {place.place}, sha256 {selector.sha256}", err=True
            )
    return ExitCode.FAILURE if _fails(selector.problems) else ExitCode.OK


def _print_table(modules: tuple[documents.ShownModule, ...], composed: skills.Composition) -> None:
    rows = table("NAME", "PRIORITY", "PHASES", "CHARS", "SELECTED", fold={"PHASES"})
    for one in modules:
        selected = "yes" if one.selected else "dropped" if one.name in composed.dropped else "no"
        row = (one.name, one.priority, " ".join(one.phases) or "all", one.chars, selected)
        rows.add_row(*map(cell, row))
    if modules:
        print_blocks(console_for(), rows)


@click.command(epilog=_COMPOSE_EPILOG, short_help="Print the instructions of a phase.")
@click.option("--phase", metavar="PHASE", help="The phase.  [default: the modules of all phases]")
@json_option
@_instructions_options
def compose(*, phase: str | None, place: InstructionsContext, as_json: bool) -> int:
    """Print exactly the instructions that a session of the phase gets."""
    selector = place.load()
    composed = selector.compose(phase)
    if as_json:
        print_json(
            documents.ComposedInstructions(
                phase=phase,
                text=composed.text,
                chars=len(composed.text or ""),
                modules=tuple(module.name for module in composed.modules),
                dropped=composed.dropped,
                origin=selector.origin.value,
                problems=selector.problems,
            )
        )
    else:
        _report(selector, selector.problems)
        if composed.dropped:
            warn(f"over agent.instructions.max_chars, dropped: {', '.join(composed.dropped)}")
        if composed.text is not None:
            sys.stdout.flush()
            sys.stdout.buffer.write(f"{composed.text}\n".encode())
            sys.stdout.buffer.flush()
    return ExitCode.FAILURE if _fails(selector.problems) else ExitCode.OK


@click.command(epilog=_CHECK_EPILOG, short_help="Report mistakes in the instructions.")
@click.option("--strict", is_flag=True, help="Fail on warnings, too.")
@json_option
@_instructions_options
def check(*, strict: bool, place: InstructionsContext, as_json: bool) -> int:
    """Report all mistakes in the manifest, the modules and their phases."""
    has_source = place.settings.source != "remote" or place.settings.url is not None
    selector = place.load() if has_source else skills.Selector()
    manifest = f"{place.place}/{skills.MANIFEST_FILE}" if place.settings.source != "remote" else place.place
    shared = place.settings.source != "local"
    phases = skills.check_phases(selector, place.phases, manifest, shared=shared)
    found = (*selector.problems, *phases)
    problems = (*map(_refusal, place.refused), *found)
    if as_json:
        print_json(documents.InstructionProblems(problems=problems))
    else:
        for one in problems:
            click.echo(_line(one))
        counted = (plural(len(selector.modules), "module"), plural(len(problems), "problem"))
        click.echo(", ".join(counted), err=True)
    failed = bool(place.refused) or _fails(found, strict=strict)
    return ExitCode.FAILURE if failed else ExitCode.OK


def _refusal(failure: Failure) -> skills.Problem:
    path, _, line = (failure.where or "").rpartition(":")
    return skills.Problem(
        path=path if line.isdecimal() else failure.where or "WORKFLOW.md",
        severity=skills.Severity.ERROR,
        code=failure.category.value,
        line=int(line) if line.isdecimal() else None,
        column=None,
        message=failure.message,
        hint=failure.hint or "`symphony check` lists every problem",
    )


_EPILOG = """\b
Examples:
  symphony instructions init                  write modules into .symphony/instructions to edit them
  symphony instructions list --phase TEST     which modules a session of the phase gets
  symphony instructions compose --phase TEST  exactly its text
  symphony instructions check                 reports mistakes, like a linter

Needs no daemon and no tracker. The settings are those of `agent.instructions` in WORKFLOW.md.
"""
_COMMANDS = {
    "init": ("instructions:init", "Write modules of instructions to edit."),
    "list": ("instructions:list_", "List the modules, and those of a phase."),
    "compose": ("instructions:compose", "Print the instructions of a phase."),
    "check": ("instructions:check", "Report mistakes in the instructions."),
}


instructions = LazyGroup(
    "instructions",
    sections={"Commands": _COMMANDS},
    help="Work with instructions: modules of text that sessions get by the phase of the work.",
    short_help="Manage the instructions for phases of the work.",
    epilog=_EPILOG,
)
