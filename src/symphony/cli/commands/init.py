"""`symphony init`: the files that make a repository ready, never overwriting one that is there."""

import os
import shlex
import shutil
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import click

from symphony.cli.commands.issue import numbers_of
from symphony.cli.failures import CommandError, ExitCode
from symphony.cli.main import CHANGED_DIRECTORY
from symphony.cli.options import current_directory
from symphony.cli.repository import git
from symphony.cli.scaffolding import (
    AGENTS,
    TRACKERS,
    Agent,
    Remote,
    TrackerPieces,
    Value,
    agent_of,
    compose,
    remote_of,
    scaffold,
)
from symphony.trackers.markdown import DEFAULT_PATH, DEFAULT_PREFIX

_EPILOG = """\b
Examples:
  symphony init                                      asks on a terminal; else a board of files, and Codex
  symphony init --tracker github --repo octo-team/website --agent claude
  symphony init --tracker jira --url https://team.atlassian.net --project PAY
  symphony init --acp gemini                         any agent of the Agent Client Protocol
  symphony init --command 'aider --yes --message-file {prompt_file}'
  symphony init --tracker linear --project billing-a1b2c3d4e5f6 --print

Nothing that exists is overwritten; run it again to add what is missing. Secrets are not written: the file
refers to variables, and the last lines say which to set. Without --repo the remote `origin` is looked at.
"""
_IGNORED = ".symphony/.gitignore"
_ISSUE = f"{DEFAULT_PATH}/SYM-1.md"
_SKILL = ".symphony/skills/example/SKILL.md"
_COMMITTED = ("WORKFLOW.md", _IGNORED, ".symphony/skills")
_FORGES = {"github", "gitlab", "forgejo", "gitea"}
_PUBLIC = {"github.com": "github", "gitlab.com": "gitlab", "codeberg.org": "forgejo"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Choice:
    """What the file is made of: `given` are the user's values by option, `provider` those of the file."""

    tracker: str
    agent: Agent
    given: Mapping[str, str]

    @property
    def pieces(self) -> TrackerPieces:
        return TRACKERS[self.tracker]

    @property
    def provider(self) -> Mapping[str, str]:
        written = {
            value.key: value.written(self.given[value.option])
            for value in self.pieces.values
            if value.option in self.given
        }
        return {key: value for key, value in written.items() if value is not None}

    def said(self, text: str) -> str:
        """A text with the values of the user in it."""
        defaults = {value.option: value.default or "" for value in self.pieces.values}
        return text.format(**{**defaults, **self.given})


@click.command(epilog=_EPILOG, short_help="Make a git repository ready.")
@click.option(
    "--tracker", type=click.Choice(list(TRACKERS)), help="Where issues come from (default: markdown)."
)
@click.option("--agent", "kind", type=click.Choice(list(AGENTS)), help="Who works on them (default: codex).")
@click.option("--repo", metavar="OWNER/NAME", help="The repository whose issues are meant.")
@click.option("--project", metavar="KEY", help="The project of Linear, Jira, Asana or Redmine.")
@click.option("--url", metavar="URL", help="The address of the tracker, where it is your own.")
@click.option(
    "--acp", "profile", metavar="PROFILE", help="The agent of --agent acp, such as gemini or opencode."
)
@click.option("--command", metavar="SHELL", help="The shell command of --agent command, or of --acp generic.")
@click.option("--print", "only_print", is_flag=True, help="Print WORKFLOW.md, and write nothing.")
def init(
    *,
    tracker: str | None,
    kind: str | None,
    profile: str | None,
    command: str | None,
    only_print: bool,
    **values: str | None,
) -> None:
    """Make a git repository ready: WORKFLOW.md, an example skill, and a first issue on a Markdown board."""
    root = _repository(current_directory())
    given: Mapping[str, str] = {
        name: _address(name, value) for name, value in values.items() if value is not None
    }
    workflow = root / "WORKFLOW.md"
    if not only_print and (workflow.exists() or workflow.is_symlink()):
        told = any((tracker, kind, profile, command, given))
        _add_what_is_missing(root, workflow, told=told)
        return
    asks = sys.stdin.isatty() and sys.stdout.isatty()
    if tracker is None:
        known = {name: pieces.title for name, pieces in TRACKERS.items()}
        tracker = _one_of(known, "Where do issues come from?", "Tracker") if asks else "markdown"
    given = _values(root, tracker, given, asks=asks)
    agent = _agent(kind, profile, command, asks=asks)
    choice = _Choice(tracker=tracker, agent=agent, given=given)
    text = _text(root, choice)
    if problem := _problem(root, choice, text):
        raise problem
    if only_print:
        click.echo(text, nl=False)
        return
    _write(workflow, text, shown="WORKFLOW.md")
    _write_others(root, tracker)
    click.echo(_next_steps(root, choice.agent, choice))


# --- what the file is made of: options, and on a terminal answers ---


def _one_of(known: Mapping[str, str], question: str, prompt: str, default: str | None = None) -> str:
    """Let a person choose by name; the first is the default."""
    click.echo(question)
    for name, what in known.items():
        click.echo(f"  {name:10}{what}")
    chosen: str = click.prompt(
        prompt, type=click.Choice(list(known)), default=default or next(iter(known)), show_choices=False
    )
    return chosen


def _values(root: Path, tracker: str, given: Mapping[str, str], *, asks: bool) -> Mapping[str, str]:
    """The values of a tracker by option: as given, else asked, else the repository of the remote `origin`."""
    pieces = TRACKERS[tracker]
    known = {value.option for value in pieces.values}
    if odd := sorted(given.keys() - known):
        hint = f"{tracker} takes {_options(known)}" if known else "name the tracker with --tracker"
        raise _misused(f"--{odd[0]} says nothing about the tracker {tracker}", hint)
    remote = remote_of(_asked(root, "remote", "get-url", "origin") or "")
    found: dict[str, str] = {}
    for value in pieces.values:
        suggested = _suggested(tracker, value, found, remote)
        if value.option in given:
            found[value.option] = given[value.option]
        elif asks:
            found[value.option] = _answer(root, tracker, value, found, suggested)
        elif value.option == "repo" and suggested is not None:
            found["repo"] = suggested
            click.echo(f"found    {suggested}, where `origin` leads; --repo names another one", err=True)
        elif value.default is None:
            example = f"symphony init --tracker {tracker} " + " ".join(
                f"--{each.option} {shlex.quote(given.get(each.option, each.example))}"
                for each in pieces.values
                if each.default is None or each.option in given
            )
            raise _misused(f"--{value.option} is missing: {value.question}", f"for example: {example}")
    return found


def _suggested(tracker: str, value: Value, found: Mapping[str, str], remote: Remote | None) -> str | None:
    """What the remote `origin` says of a value; `None` where it says nothing of this tracker."""
    if value.option == "url":
        if remote is not None and tracker in _FORGES and _PUBLIC.get(remote.host, tracker) == tracker:
            return remote.site
        return value.default
    if value.option != "repo" or remote is None:
        return None
    urls = (each.default for each in TRACKERS[tracker].values if each.option == "url")
    site = found.get("url") or next(urls, None) or ""
    return remote.path if (urlsplit(site).hostname or "") == remote.host else None


def _answer(root: Path, tracker: str, value: Value, found: Mapping[str, str], suggested: str | None) -> str:
    """Ask until the adapter takes the answer; what is not known yet is taken from the examples."""
    examples = {each.option: each.example for each in TRACKERS[tracker].values if each.default is None}

    def taken(answer: str) -> str:
        answer = _address(value.option, answer)
        choice = _Choice(
            tracker=tracker, agent=agent_of("codex"), given={**examples, **found, value.option: answer}
        )
        problem = _problem(root, choice, _text(root, choice))
        if problem is not None:
            message = problem.failure.message.removeprefix(f"--{value.option} ")
            raise click.UsageError(
                message if value.example in message else f"{message}, like {value.example}"
            )
        return answer

    answer: str = click.prompt(value.question, default=suggested, value_proc=taken)
    return answer


def _agent(kind: str | None, profile: str | None, command: str | None, *, asks: bool) -> Agent:
    """The agent that the options name, else the one that is asked for, else Codex."""
    if kind is None and profile is not None:
        kind = "acp"
    elif kind is None and command is not None:
        kind = "command"
    elif kind is None:
        installed = next((name for name in ("codex", "claude") if shutil.which(name)), None)
        kind = _one_of(AGENTS, "Who works on them?", "Agent", installed) if asks else "codex"
    if profile is not None and kind != "acp":
        raise _misused(f"--acp says nothing about --agent {kind}", "leave one of them out")
    if command is not None and kind not in {"acp", "command"}:
        hint = "it is for --agent command and --acp generic"
        raise _misused(f"--command says nothing about --agent {kind}", hint)
    if kind == "acp":
        profile = _profile(profile, command, asks=asks)
        if profile == "generic" and command is None:
            command = _command("The command that starts the agent", "my-agent --acp", asks=asks)
    if kind == "command" and command is None:
        command = _command("Shell command of one turn", "my-agent --task {prompt_file}", asks=asks)
    return agent_of(kind, profile=profile, command=command)


def _profile(profile: str | None, command: str | None, *, asks: bool) -> str:
    """The profile of an agent of kind `acp`; a command of the user's own is the generic one."""
    from symphony.agents.acp.profiles import PROFILES

    known = sorted(PROFILES)
    if profile is None and command is not None:
        return "generic"
    if profile is None and asks:
        chosen: str = click.prompt("Profile", type=click.Choice(known), default="gemini")
        return chosen
    if profile is None or profile not in PROFILES:
        what = "is missing: which agent?" if profile is None else f"knows no profile {profile[:60]!r}"
        raise _misused(f"--acp {what}", f"one of {', '.join(known)}")
    return profile


def _command(question: str, example: str, *, asks: bool) -> str:
    from symphony.agents.command import backend

    if not asks:
        hint = f"for example: --command {shlex.quote(example)}"
        raise _misused(f"--command is missing: {question.lower()}", hint)

    def taken(answer: str) -> str:
        if "{" in example and (problems := backend.placeholder_problems(answer)):
            raise click.UsageError(f"it {problems[0].problem}; {problems[0].hint}")
        return answer.strip()

    command: str = click.prompt(f"{question} (like {example})", value_proc=taken)
    return command


def _address(option: str, value: str) -> str:
    """The value of an option; an address that somebody typed may lack its https://."""
    value = value.strip()
    return f"https://{value}" if option == "url" and value and "://" not in value else value


def _options(names: Iterable[str]) -> str:
    return ", ".join(f"--{name}" for name in sorted(names))


def _misused(message: str, hint: str) -> CommandError:
    return CommandError.of(message, hint=hint, code=ExitCode.USAGE)


# --- the file ---


def _text(root: Path, choice: _Choice) -> str:
    branch = _asked(root, "symbolic-ref", "--short", "HEAD") or "main"
    return compose(choice.tracker, choice.agent, choice.provider, base_branch=branch)


def _problem(root: Path, choice: _Choice, text: str) -> CommandError | None:
    """What a start would refuse the file for, in words of the options; credentials are taken for granted."""
    from symphony.config import Stamp, WorkflowFile
    from symphony.daemon.admission import judge

    data = text.encode("utf-8", "surrogateescape")
    file = WorkflowFile(
        path=root / "WORKFLOW.md", data=data, stamp=Stamp(mtime_ns=0, size=len(data), sha256="")
    )
    variables = {variable.name: variable.invented for variable in choice.pieces.variables}
    failures = judge(file, environment={**os.environ, **variables}, acknowledged=None).failures
    if not failures:
        return None
    message, hint = failures[0].message, failures[0].hint or "symphony init --help"
    for value in choice.pieces.values:
        if message.startswith(f"tracker.provider.{value.key} "):
            message = message.replace(f"tracker.provider.{value.key}", f"--{value.option}", 1)
            hint = f"for example: --{value.option} {value.example}"
    return _misused(message.replace(f"{choice.agent.kind}.command ", "--command ", 1), hint)


def _repository(directory: Path) -> Path:
    done = git(directory, "rev-parse", "--show-toplevel")
    if "dubious ownership" in done.stderr:
        reason, *advice = (line.strip() for line in done.stderr.splitlines() if line.strip())
        raise CommandError.of(
            reason.removeprefix("fatal: "), hint=f"`{advice[-1]}`, or init as the user whose repository it is"
        )
    if done.returncode != 0:
        raise CommandError.of(
            f"{directory} is not in a git repository",
            hint="run `git init` there first, or name your repository with -C DIR",
        )
    return Path(done.stdout.strip())


def _asked(directory: Path, *arguments: str) -> str | None:
    done = git(directory, *arguments)
    return done.stdout.strip() if done.returncode == 0 else None


def _write_others(root: Path, tracker: str) -> None:
    """The example skill; for a board in this repository its first issue, and what keeps it out of commits."""
    if tracker == "markdown":
        numbers = numbers_of(root / DEFAULT_PATH, None, os.environ)
        if not _asked(root, "ls-files", "--", DEFAULT_PATH):
            _write(root / _IGNORED, scaffold("gitignore"), shown=_IGNORED)
        # Whoever deleted the first issue has its branch still, and another one would go on with it.
        if (root / _ISSUE).exists() or numbers.next(DEFAULT_PREFIX, frozenset()) == 1:
            _write(root / _ISSUE, scaffold("SYM-1.md"), shown=_ISSUE)
        numbers.note(DEFAULT_PREFIX, 1)
    _write(root / _SKILL, scaffold("SKILL.md"), shown=_SKILL)


def _add_what_is_missing(root: Path, workflow: Path, *, told: bool) -> None:
    """Beside a WORKFLOW.md that is there, whatever it says."""
    tracker, kind = _kinds(workflow)
    click.echo(f"{'kept':8} WORKFLOW.md")
    _write_others(root, tracker)
    if told:
        click.echo(
            "\nThe options changed nothing: WORKFLOW.md is there already, and is never overwritten."
            "\nAdd --print to see the file that they ask for."
        )
    click.echo(_next_steps(root, agent_of(kind) if kind in {"codex", "claude"} else None, None))


def _kinds(workflow: Path) -> tuple[str, str]:
    """The kinds of tracker and agent that a file names; those of the default where it cannot be read."""
    from symphony.frontmatter import FrontMatterError, Profile, load, split

    kinds = {"tracker": "markdown", "agent": "codex"}
    with suppress(OSError, FrontMatterError):
        fences = split(workflow.read_bytes())
        for section, value in (
            {} if fences is None else load(fences.front, profile=Profile.CORE).value.items()
        ):
            if section in kinds and isinstance(value, dict) and isinstance(value.get("kind"), str):
                kinds[section] = value["kind"]
    return kinds["tracker"], kinds["agent"]


def _write(target: Path, text: str, *, shown: str) -> None:
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        kept = target.exists() or target.is_symlink()
        if not kept:
            with target.open("x", encoding="utf-8") as file:
                file.write(text)
    except OSError as error:
        message = f"{target} cannot be written: {error.strerror}"
        raise CommandError.of(message, hint="look at the directory and its permissions") from error
    click.echo(f"{'kept' if kept else 'created':8} {shown}")


def _next_steps(root: Path, agent: Agent | None, choice: _Choice | None) -> str:
    """What to do now; `choice` is what the file was made of, `None` where it was there already."""
    from symphony.cli.main import program_name

    at_the_top = Path.cwd() == root.resolve() and CHANGED_DIRECTORY not in click.get_current_context().meta
    lines = [] if at_the_top else [f"cd {shlex.quote(str(root))}"]
    # Skills reach a session by way of the clone. The board does not: it stays in one place.
    committed = [name for name in _COMMITTED if (root / name).exists()]
    if _asked(root, "status", "--porcelain", "--", *committed) != "":
        lines.append(f"git add {' '.join(committed)} && git commit -m 'Add Symphony'")
    if agent is not None and agent.program is not None and shutil.which(agent.program) is None:
        lines.append(agent.missing)
    if agent is not None and agent.isolated and shutil.which("bwrap") is None:
        lines.append("sudo apt install bubblewrap    # holds what the agent does inside its workspace")
    symphony = program_name()
    lines.append(f"{symphony} check             # what is still wrong, if anything")
    ending = []
    if choice is not None and choice.tracker != "markdown":
        for variable in reversed(choice.pieces.variables):
            if not os.environ.get(variable.name):
                lines.insert(0, f"export {variable.name}=...    # {choice.said(variable.source)}")
        lines.append(f"{symphony} tracker check     # does it answer, and are the states there?")
        ending = ["", choice.said(choice.pieces.begin)]
    lines += [f"{symphony} run", f"{symphony} status --watch    # in another terminal"]
    return "\n".join(["", "Next:", *(f"  {line}" for line in lines), *ending])
