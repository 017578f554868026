"""`symphony init`: writes the files that make a repository ready, and never overwrites a file."""

import os
import shlex
import shutil
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

import click

from symphony.agents.acp.profiles import PROFILES
from symphony.agents.command.placeholders import placeholder_problems
from symphony.agents.registry import skill_places
from symphony.cli.failures import CommandError, ExitCode, printable
from symphony.cli.found_checks import FoundCheck, found_checks
from symphony.cli.main import CHANGED_DIRECTORY, program_name
from symphony.cli.migration import migrate
from symphony.cli.options import current_directory
from symphony.cli.repository import git
from symphony.cli.scaffolding import (
    AGENTS,
    TRACKERS,
    AgentTemplate,
    ProviderSetting,
    Remote,
    TrackerTemplate,
    agent_template,
    compose_workflow,
    parse_remote,
    scaffold,
)
from symphony.config import WorkflowFile, WorkflowReport, read_workflow_file
from symphony.daemon.admission import judge
from symphony.daemon.issue_numbers import used_numbers
from symphony.domain import BOARD_PATH
from symphony.files import write_atomic
from symphony.frontmatter import FrontMatterError, Profile, load, split
from symphony.skills import SkillOptions, skills_elsewhere, unseen_in
from symphony.skills import load as load_skills
from symphony.trackers.markdown import DEFAULT_PREFIX

_EPILOG = """\b
Examples:
  symphony init                                      asks on a terminal; else a Markdown board and Codex
  symphony init --tracker github --repo octo-team/website --agent claude
  symphony init --tracker jira --url https://team.atlassian.net --project PAY
  symphony init --acp gemini                         any agent of the Agent Client Protocol
  symphony init --command 'aider --yes --message-file {prompt_file}'
  symphony init --tracker linear --project billing-a1b2c3d4e5f6 --print
  symphony init --from ../app/SORTIE.md              convert a file of the reference or of another program

Overwrites no file, except with --from and --force. Run it again to add missing files. Writes no secrets:
the file refers to variables, and the last lines of the output say which to set. Without --repo it uses the
remote `origin`.
"""
_GITIGNORE = ".symphony/.gitignore"
_ISSUE = f"{BOARD_PATH}/SYM-1.md"
_SKILL = ".symphony/skills/example/SKILL.md"
_COMMITTED = ("WORKFLOW.md", _GITIGNORE, ".symphony/skills")
_FORGES = {"github", "gitlab", "forgejo", "gitea"}
_PUBLIC_HOSTS = {"github.com": "github", "gitlab.com": "gitlab", "codeberg.org": "forgejo"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Choice:
    """What WORKFLOW.md is made of; `values` are the user's values by option."""

    tracker: str
    agent: AgentTemplate
    values: Mapping[str, str]
    skill_folders: tuple[str, ...] = ()
    show_folders: bool = False
    checks: tuple[FoundCheck, ...] = ()

    @property
    def template(self) -> TrackerTemplate:
        return TRACKERS[self.tracker]

    def workflow(self, root: Path) -> str:
        """The text of WORKFLOW.md."""
        given = [setting for setting in self.template.settings if setting.option in self.values]
        values = {setting.key: setting.file_value(self.values[setting.option]) for setting in given}
        provider = {key: value for key, value in values.items() if value is not None}
        branch = _git_output(root, "symbolic-ref", "--short", "HEAD") or "main"
        return compose_workflow(
            self.tracker,
            self.agent,
            provider,
            base_branch=branch,
            skill_folders=self.skill_folders,
            show_folders=self.show_folders,
            checks=self.checks,
        )

    def fill_in(self, text: str) -> str:
        """A message with the user's values."""
        defaults = {setting.option: setting.default or "" for setting in self.template.settings}
        return text.format(**{**defaults, **self.values})


@click.command(epilog=_EPILOG, short_help="Set up a git repository.")
@click.option(
    "--tracker", type=click.Choice(list(TRACKERS)), help="Where issues come from (default: markdown)."
)
@click.option(
    "--agent", "kind", type=click.Choice(list(AGENTS)), help="The agent that works on them (default: codex)."
)
@click.option("--repo", metavar="OWNER/NAME", help="The repository that has the issues.")
@click.option("--project", metavar="KEY", help="The project of Linear, Jira, Asana or Redmine.")
@click.option("--url", metavar="URL", help="The address of your own tracker.")
@click.option(
    "--acp", "profile", metavar="PROFILE", help="The agent of --agent acp, such as gemini or opencode."
)
@click.option("--command", metavar="SHELL", help="The shell command of --agent command, or of --acp generic.")
@click.option(
    "--from",
    "source",
    metavar="FILE",
    help="Convert a WORKFLOW.md of the reference or of another program.",
)
@click.option("--force", is_flag=True, help="Replace existing files that differ.")
@click.option("--print", "only_print", is_flag=True, help="Print WORKFLOW.md, and write nothing.")
def init(
    *,
    tracker: str | None,
    kind: str | None,
    profile: str | None,
    command: str | None,
    source: str | None,
    force: bool,
    only_print: bool,
    **values: str | None,
) -> None:
    """Set up a git repository: WORKFLOW.md, an example skill, and a first issue on a Markdown board."""
    root = _repository(current_directory())
    given: Mapping[str, str] = {
        name: _complete_url(name, value) for name, value in values.items() if value is not None
    }
    workflow = root / "WORKFLOW.md"
    if source is not None:
        if any((tracker, kind, profile, command, given)):
            raise _usage_error("--from goes with --force and --print only", "the file says the rest")
        _convert(Path(source), workflow, force=force, only_print=only_print)
        return
    if force:
        raise _usage_error(
            "--force is for --from only", "edit WORKFLOW.md, or convert a file with --from FILE"
        )
    if not only_print and (workflow.exists() or workflow.is_symlink()):
        _add_missing_files(root, workflow, has_options=any((tracker, kind, profile, command, given)))
        return
    ask = sys.stdin.isatty() and sys.stdout.isatty()
    if tracker is None:
        titles = {name: template.title for name, template in TRACKERS.items()}
        tracker = _ask_choice(titles, "Where do issues come from?", "Tracker") if ask else "markdown"
    given = _provider_values(root, tracker, given, ask=ask)
    agent = _choose_agent(kind, profile, command, ask=ask)
    choice = _Choice(tracker=tracker, agent=agent, values=given, checks=found_checks(root))
    choice = _with_skill_folders(root, choice, ask=ask)
    for check in choice.checks:
        offer = "verify in the file runs it" if check.sure else "verify in the file offers it"
        click.echo(f"found    {check.run} ({check.reason}); {offer}", err=True)
    if problem := _validate(root, choice):
        raise problem
    if only_print:
        click.echo(choice.workflow(root), nl=False)
        return
    _write(workflow, choice.workflow(root), name="WORKFLOW.md")
    _write_other_files(root, tracker)
    _print_next_steps(root, agent, choice)


# --- another program's file -----------------------------------------------------------------------------


def _convert(source: Path, workflow: Path, *, force: bool, only_print: bool) -> None:
    """Write WORKFLOW.md from a file of the reference or of another program, and list the differences."""
    exists = workflow.exists() or workflow.is_symlink()
    if exists and not force and not only_print:
        hint = "--print shows what would be written, --force replaces it"
        raise CommandError.of(f"{workflow} exists, and is left alone", hint=hint)
    done = migrate(read_workflow_file(source), target=workflow, environment=os.environ)
    if only_print:
        click.echo(done.text, nl=False)
    else:
        _replace(workflow, done.text)
        click.echo(f"{'replaced' if exists else 'created':8} WORKFLOW.md")
    notes = [("changed", text) for text in done.changes] + [("left out", text) for text in done.left_out]
    notes += [("decide", text) for text in done.decisions]
    for what, text in notes:
        click.echo(f"{what:8} {printable(text)}", err=only_print)
    if not notes:
        click.echo("nothing was to be changed", err=only_print)
    unset = [name for name in done.variables if not os.environ.get(name)]
    steps = [*(f"export {name}=..." for name in unset), f"{program_name()} check"]
    click.echo("\n".join(["", "Next:", *(f"  {step}" for step in steps)]), err=only_print)


def _replace(path: Path, text: str) -> None:
    """Write a file whole or not at all; a link is replaced, not followed."""
    try:
        write_atomic(path, text.encode(errors="surrogateescape"))
    except OSError as error:
        message = f"{path} cannot be written: {error.strerror}"
        raise CommandError.of(message, hint="look at the directory and its permissions") from error


# --- the tracker -----------------------------------------------------------------------------------------


def _ask_choice(titles: Mapping[str, str], question: str, prompt: str, default: str | None = None) -> str:
    click.echo(question)
    for name, title in titles.items():
        click.echo(f"  {name:10}{title}")
    answer: str = click.prompt(
        prompt, type=click.Choice(list(titles)), default=default or next(iter(titles)), show_choices=False
    )
    return answer


def _provider_values(root: Path, tracker: str, given: Mapping[str, str], *, ask: bool) -> Mapping[str, str]:
    """The tracker's values by option: from the options, from a question, or from the remote `origin`."""
    settings = TRACKERS[tracker].settings
    options = {setting.option for setting in settings}
    if unknown := sorted(given.keys() - options):
        takes = ", ".join(f"--{option}" for option in sorted(options))
        hint = f"{tracker} takes {takes}" if options else "name the tracker with --tracker"
        raise _usage_error(f"--{unknown[0]} is not an option of the tracker {tracker}", hint)
    remote = parse_remote(_git_output(root, "remote", "get-url", "origin") or "")
    values: dict[str, str] = {}
    for setting in settings:
        suggested = _suggestion(tracker, setting, values, remote)
        if setting.option in given:
            values[setting.option] = given[setting.option]
        elif ask:
            values[setting.option] = _ask_value(root, tracker, setting, values, suggested)
        elif setting.option == "repo" and suggested is not None:
            values["repo"] = suggested
            click.echo(
                f"found    {suggested}, the repository of `origin`; --repo names another one", err=True
            )
        elif setting.default is None:
            example = " ".join(
                f"--{each.option} {shlex.quote(given.get(each.option, each.example))}"
                for each in settings
                if each.default is None or each.option in given
            )
            raise _usage_error(
                f"--{setting.option} is missing: {setting.question}",
                f"for example: symphony init --tracker {tracker} {example}",
            )
    return values


def _suggestion(
    tracker: str, setting: ProviderSetting, values: Mapping[str, str], remote: Remote | None
) -> str | None:
    """A default for a question; the remote `origin` counts if it is on the tracker's site."""
    if setting.option == "url":
        if remote is not None and tracker in _FORGES and _PUBLIC_HOSTS.get(remote.host, tracker) == tracker:
            return remote.site
        return setting.default
    if setting.option != "repo" or remote is None:
        return None
    defaults = (each.default for each in TRACKERS[tracker].settings if each.option == "url")
    site = values.get("url") or next(defaults, None) or ""
    return remote.path if (urlsplit(site).hostname or "") == remote.host else None


def _ask_value(
    root: Path, tracker: str, setting: ProviderSetting, values: Mapping[str, str], suggested: str | None
) -> str:
    """Ask until the adapter accepts the answer; later values are taken from the examples meanwhile."""
    examples = {each.option: each.example for each in TRACKERS[tracker].settings if each.default is None}

    def accept(answer: str) -> str:
        answer = _complete_url(setting.option, answer)
        values_so_far = {**examples, **values, setting.option: answer}
        choice = _Choice(tracker=tracker, agent=agent_template("codex"), values=values_so_far)
        if problem := _validate(root, choice):
            message = problem.failure.message.removeprefix(f"--{setting.option} ")
            example = "" if setting.example in message else f", like {setting.example}"
            raise click.UsageError(f"{message}{example}")
        return answer

    answer: str = click.prompt(setting.question, default=suggested, value_proc=accept)
    return answer


def _complete_url(option: str, value: str) -> str:
    """The value of an option; an address may lack its https://."""
    value = value.strip()
    return f"https://{value}" if option == "url" and value and "://" not in value else value


# --- the agent -------------------------------------------------------------------------------------------


def _choose_agent(kind: str | None, profile: str | None, command: str | None, *, ask: bool) -> AgentTemplate:
    """The agent of the options, or of an answer; without both, Codex."""
    if kind is None and profile is not None:
        kind = "acp"
    elif kind is None and command is not None:
        kind = "command"
    elif kind is None:
        installed = next((name for name in ("codex", "claude") if shutil.which(name)), None)
        kind = _ask_choice(AGENTS, "Who works on them?", "Agent", installed) if ask else "codex"
    if profile is not None and kind != "acp":
        raise _usage_error(f"--acp does not go with --agent {kind}", "remove one of them")
    if command is not None and kind not in {"acp", "command"}:
        hint = "it is for --agent command and --acp generic"
        raise _usage_error(f"--command does not go with --agent {kind}", hint)
    if kind == "acp":
        profile = _choose_profile(profile, command, ask=ask)
        if profile == "generic" and command is None:
            command = _ask_command("The command that starts the agent", "my-agent --acp", ask=ask)
    if kind == "command" and command is None:
        command = _ask_command("Shell command of one turn", "my-agent --task {prompt_file}", ask=ask)
    return agent_template(kind, profile=profile, command=command)


def _choose_profile(profile: str | None, command: str | None, *, ask: bool) -> str:
    known = sorted(PROFILES)
    if profile is None and command is not None:
        return "generic"
    if profile is None and ask:
        answer: str = click.prompt("Profile", type=click.Choice(known), default="gemini")
        return answer
    if profile is None or profile not in PROFILES:
        reason = "is missing: which agent?" if profile is None else f"has no profile {profile[:60]!r}"
        raise _usage_error(f"--acp {reason}", f"one of {', '.join(known)}")
    return profile


def _ask_command(question: str, example: str, *, ask: bool) -> str:
    if not ask:
        hint = f"for example: --command {shlex.quote(example)}"
        raise _usage_error(f"--command is missing: {question.lower()}", hint)

    def accept(answer: str) -> str:
        if "{" in example and (problems := placeholder_problems(answer)):
            raise click.UsageError(f"it {problems[0].problem}; {problems[0].hint}")
        return answer.strip()

    command: str = click.prompt(f"{question} (like {example})", value_proc=accept)
    return command


def _usage_error(message: str, hint: str) -> CommandError:
    return CommandError.of(message, hint=hint, code=ExitCode.USAGE)


def _with_skill_folders(root: Path, choice: _Choice, *, ask: bool) -> _Choice:
    """The choice with the folders of skills that the agent would not see, shown if the user says so."""
    options, listed = SkillOptions(), skill_places(_judge(root, choice).agents.values())
    folders = skills_elsewhere(root, options, load_skills(root, options), listed)
    if not folders:
        return choice
    paths = tuple(one.path for one in folders)
    if ask:
        show = click.confirm(f"By default {unseen_in(folders)}. Show them?", default=True)
    else:
        show = False
        click.echo(
            f"found    {unseen_in(folders)}; agent.skills.extra_paths in the file offers them", err=True
        )
    return replace(choice, skill_folders=paths, show_folders=show)


# --- the files -------------------------------------------------------------------------------------------


def _validate(root: Path, choice: _Choice) -> CommandError | None:
    """Why a start would reject the file, in terms of the options; variables need not be set yet."""
    failures = _judge(root, choice).failures
    if not failures:
        return None
    message, hint = failures[0].message, failures[0].hint or "symphony init --help"
    for setting in choice.template.settings:
        key = f"tracker.provider.{setting.key}"
        if message.startswith(f"{key} "):
            message = message.replace(key, f"--{setting.option}", 1)
            hint = f"for example: --{setting.option} {setting.example}"
    return _usage_error(message.replace(f"{choice.agent.kind}.command ", "--command ", 1), hint)


def _judge(root: Path, choice: _Choice) -> WorkflowReport:
    data = choice.workflow(root).encode("utf-8", "surrogateescape")
    file = WorkflowFile(path=root / "WORKFLOW.md", data=data)
    placeholders = {variable.name: variable.placeholder for variable in choice.template.variables}
    return judge(file, environment={**os.environ, **placeholders}, acknowledged=None)


def _repository(directory: Path) -> Path:
    done = git(directory, "rev-parse", "--show-toplevel")
    if "dubious ownership" in done.stderr:
        reason, *advice = (line.strip() for line in done.stderr.splitlines() if line.strip())
        hint = f"`{advice[-1]}`, or run this as the owner of the repository"
        raise CommandError.of(reason.removeprefix("fatal: "), hint=hint)
    if done.returncode != 0:
        hint = "run `git init` there first, or name your repository with -C DIR"
        raise CommandError.of(f"{directory} is not in a git repository", hint=hint)
    return Path(done.stdout.strip())


def _git_output(directory: Path, *arguments: str) -> str | None:
    done = git(directory, *arguments)
    return done.stdout.strip() if done.returncode == 0 else None


def _write_other_files(root: Path, tracker: str) -> None:
    """The example skill; for a Markdown board also its first issue, and the file that keeps it out of git."""
    if tracker == "markdown":
        numbers = used_numbers(root / BOARD_PATH, None, os.environ)
        if not _git_output(root, "ls-files", "--", BOARD_PATH):
            _write(root / _GITIGNORE, scaffold("gitignore"), name=_GITIGNORE)
        # A first issue that was deleted stays so: a new one would continue on its branch.
        if (root / _ISSUE).exists() or numbers.next(DEFAULT_PREFIX, frozenset()) == 1:
            _write(root / _ISSUE, scaffold("SYM-1.md"), name=_ISSUE)
        numbers.note(DEFAULT_PREFIX, 1)
    # Who has skills needs no example, and an example that was deleted stays so.
    skills = (root / _SKILL).parents[1]
    if (root / _SKILL).exists() or not (skills.exists() or _git_output(root, "log", "-1", "--", _SKILL)):
        _write(root / _SKILL, scaffold("SKILL.md"), name=_SKILL)


def _write(path: Path, text: str, *, name: str) -> None:
    """Create a file, unless there is one, and print which of both."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        exists = path.exists() or path.is_symlink()
        if not exists:
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
    except OSError as error:
        message = f"{path} cannot be written: {error.strerror}"
        raise CommandError.of(message, hint="look at the directory and its permissions") from error
    click.echo(f"{'kept' if exists else 'created':8} {name}")


def _add_missing_files(root: Path, workflow: Path, *, has_options: bool) -> None:
    """For a repository with a WORKFLOW.md: write the other files that are missing."""
    kinds = {"tracker": "markdown", "agent": "codex"}
    with suppress(OSError, FrontMatterError):  # `symphony check` reports what is wrong with the file
        fences = split(workflow.read_bytes())
        front = {} if fences is None else load(fences.front, profile=Profile.CORE).value
        for section in kinds:
            value = front.get(section)
            if isinstance(value, dict) and isinstance(value.get("kind"), str):
                kinds[section] = value["kind"]
    click.echo(f"{'kept':8} WORKFLOW.md")
    _write_other_files(root, kinds["tracker"])
    if has_options:
        click.echo(
            "\nThe options have no effect: WORKFLOW.md exists, and is never overwritten."
            "\nAdd --print to see the file for these options."
        )
    agent = agent_template(kinds["agent"]) if kinds["agent"] in {"codex", "claude"} else None
    _print_next_steps(root, agent, None)


def _print_next_steps(root: Path, agent: AgentTemplate | None, choice: _Choice | None) -> None:
    """Print what to do now; `choice` is None if WORKFLOW.md existed before."""
    changed_directory = CHANGED_DIRECTORY in click.get_current_context().meta
    in_shell_directory = Path.cwd() == root.resolve() and not changed_directory
    steps = [] if in_shell_directory else [f"cd {shlex.quote(str(root))}"]
    # Skills reach a session with the clone. The board does not: it stays in one place.
    committed = [name for name in _COMMITTED if (root / name).exists()]
    if _git_output(root, "status", "--porcelain", "--", *committed) != "":
        steps.append(f"git add {' '.join(committed)} && git commit -m 'Add Symphony'")
    if agent is not None and agent.program is not None and shutil.which(agent.program) is None:
        steps.append(agent.install)
    if agent is not None and agent.needs_isolation and shutil.which("bwrap") is None:
        steps.append("sudo apt install bubblewrap    # confines the agent to its workspace")
    symphony = program_name()
    steps.append(f"{symphony} check             # reports remaining mistakes")
    start: Iterable[str] = ()
    if choice is not None and choice.tracker != "markdown":
        unset = [variable for variable in choice.template.variables if not os.environ.get(variable.name)]
        exports = [f"export {variable.name}=...    # {choice.fill_in(variable.source)}" for variable in unset]
        steps = [
            *exports,
            *steps,
            f"{symphony} tracker check     # does it answer, and are the states there?",
        ]
        start = ("", choice.fill_in(choice.template.start))
    steps += [f"{symphony} run", f"{symphony} status --watch    # in another terminal"]
    click.echo("\n".join(["", "Next:", *(f"  {step}" for step in steps), *start]))
