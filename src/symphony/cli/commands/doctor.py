"""`symphony doctor`: checks everything that a daemon needs."""

import os
import re
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

import anyio
import click

from symphony import to_thread
from symphony.api.formatting import duration
from symphony.api.models import CHECKS, State
from symphony.cli.client import connect
from symphony.cli.commands import forge, hosts, tracker
from symphony.cli.commands.check import check_workflow, filter_message, unseen_skills
from symphony.cli.commands.clean import find_workspaces
from symphony.cli.commands.notify import targets_of
from symphony.cli.documents import Doctor
from symphony.cli.endpoint import UnreachableError, absence_notice, find_daemon
from symphony.cli.failures import CommandError, ExitCode, exit_code, printable
from symphony.cli.options import json_option, print_json, use_colour, workflow_argument
from symphony.cli.repository import git_output
from symphony.config import SecretFileError, WarningCode, read_secrets
from symphony.daemon.admission import open_store
from symphony.daemon.context import RuntimeContext, build_context
from symphony.daemon.diagnostics import (
    Check,
    CheckStatus,
    Finding,
    check_documents,
    error,
    failed,
    in_thread,
    machine_checks,
    nearest_directory,
    ok,
    run_checks,
    warning,
)
from symphony.daemon.preflight import preflight_agent
from symphony.daemon.runs.tracing import open_tracing
from symphony.daemon.runs.verification import Verifier
from symphony.daemon.state_dir import instance_of, journal_path, locate
from symphony.domain import Category, CheckRun, Redaction, Selection, SymphonyError, one_line, plural
from symphony.journal.reader import checkup
from symphony.processes.local import LocalHost
from symphony.revision import other_version, version_text
from symphony.workspaces import without_credentials

_EPILOG = """\b
Examples:
  symphony doctor                   check everything that `symphony run` would need here
  symphony doctor --verify          run verify.commands on the base commit, too
  symphony doctor ../app/WORKFLOW.md
  symphony doctor --json | jq '.checks[] | select(.status != "ok")'

Works with and without a running daemon, and changes nothing. Each check may take 20 seconds. The agent
starts once, to check its login and one sandboxed command. No model is called.

With --verify the commands of `verify` run once on the base commit, in a temporary checkout. A command that
fails there says nothing about the work of an agent.

Exit codes: 0 no error (there may be warnings), 1 errors, 3 the configuration, 4 a login, 5 the daemon does
not answer. The highest one counts.
"""
_COLOURS = {"ok": "green", "warning": "yellow", "error": "red"}
_CLEAR_LINE = "\r\x1b[2K"


@click.command(epilog=_EPILOG)
@workflow_argument
@click.option("--verify", is_flag=True, help="Run verify.commands on the base commit, too.")
@json_option
def doctor(workflow: Path, *, verify: bool, as_json: bool) -> int:
    """Check everything a daemon needs, and suggest repairs."""
    with _progress_line() as on_progress:
        report = diagnose(workflow, dict(os.environ), on_progress, run_verify=verify)
    if as_json:
        print_json(report)
    else:
        _print_report(report)
    return report.exit_code


@contextmanager
def _progress_line() -> Iterator[Callable[[Sequence[str]], None]]:
    """Show the names of unfinished checks in one line of a terminal, which is cleared at the end."""
    stream = sys.stderr
    if not stream.isatty() or os.environ.get("TERM") == "dumb":
        yield lambda _: None
        return

    def show(unfinished: Sequence[str]) -> None:
        text = one_line(f"checking: {', '.join(unfinished)}" if unfinished else "", 78)
        stream.write(f"{_CLEAR_LINE}{text}")
        stream.flush()

    try:
        yield show
    finally:
        stream.write(_CLEAR_LINE)
        stream.flush()


def _print_report(report: Doctor) -> None:
    colour = use_colour()
    width = max(len(check.name) for check in report.checks)
    for check in report.checks:
        status = click.style(f"{check.status:7}", fg=_COLOURS[check.status])
        click.echo(f"{status}  {check.name:{width}}  {printable(check.message)}", color=colour)
        if check.hint is not None:
            hint = click.style(f"hint: {printable(check.hint)}", dim=True)
            click.echo(f"{'':7}  {'':{width}}  {hint}", color=colour)
    counts = Counter(check.status for check in report.checks)
    problems = [plural(counts[status], status) for status in ("error", "warning") if counts[status]]
    click.echo(", ".join(problems) or "Everything is fine.")


# --- the checks ------------------------------------------------------------------------------------------
#
# Those of `daemon.diagnostics`, the workflow, and what it refers to.

_MIB: Final = 1024**2
_CLOCK_TOLERANCE_MS: Final = 300_000
_MAX_NAMES: Final = 5
_MAX_PROBLEMS: Final = 3
_MAX_OUTPUT_LINES: Final = 20
_TRIAL_S: Final = 12.0  # with the rest of its check below `TIMEOUT_S`
_OTHER_CHECKS: Final = frozenset(
    {
        Category.AGENT_NOT_FOUND.value,
        Category.CODEX_NOT_FOUND.value,
        Category.SECRET_FILE.value,
        Category.WORKSPACE_REPOSITORY.value,
        WarningCode.EXPOSED_SECRET.value,
        WarningCode.FILTER_NOT_SET_UP.value,
        WarningCode.LFS_NOT_SET_UP.value,
        WarningCode.NO_REMOTE.value,
        WarningCode.SKILLS_ELSEWHERE.value,
    }
)
"""Problems of a workflow file that a check other than `workflow` reports, in more detail."""


def diagnose(
    workflow: Path,
    environment: Mapping[str, str],
    on_progress: Callable[[Sequence[str]], None],
    *,
    run_verify: bool = False,
) -> Doctor:
    """Run all checks.

    Args:
        workflow: the file of the daemon.
        environment: variables of the daemon.
        on_progress: receives the names of the checks that are not done yet.
        run_verify: run the commands of `verify` afterwards.
    """
    workflow, host = workflow.absolute(), LocalHost()
    with suppress(SecretFileError):  # reported by check_secrets
        environment = read_secrets(environment).environment
    state_dir = locate(workflow, environment)
    context: RuntimeContext | None = None
    invalid: SymphonyError | None = None
    try:
        store = open_store(workflow, environment, acknowledged=True)
        context = build_context(store.current(), host=host, environment=environment)
    except SymphonyError as raised:
        invalid = raised

    async def not_checked() -> list[Finding]:
        text = "not looked at, because WORKFLOW.md cannot be used"
        return [warning(text, "fix WORKFLOW.md first, then run this again")]

    def with_context(check: Callable[[RuntimeContext], Awaitable[Sequence[Finding]]]) -> Check:
        return not_checked if context is None else partial(check, context)

    checks: dict[str, Check] = {
        **machine_checks(host, environment, state_dir, context),
        "workflow": in_thread(check_workflow_file, workflow, environment, invalid),
        "repository": with_context(check_repository),
        "push": with_context(check_push),
        "agent": with_context(check_agents),
        "verify": with_context(check_verify),
        "tracker": with_context(check_tracker),
        "hosts": with_context(partial(check_hosts, environment=environment)),
        "forge": with_context(partial(check_forge, environment=environment)),
        "tracing": with_context(partial(check_tracing, environment=environment)),
        "lock": in_thread(check_lock, workflow, environment),
        "journal": in_thread(check_journal, journal_path(workflow, environment)),
        "processes": in_thread(check_processes, workflow, environment, state_dir),
        "workspaces": with_context(check_workspaces),
        "metrics": with_context(check_metrics),
        "notifications": in_thread(check_notifications, workflow, environment, context)
        if context
        else not_checked,
    }
    checks = {name: checks[name] for name in CHECKS}
    findings = anyio.run(partial(run_checks, checks, on_progress))
    if run_verify and context is not None:
        on_base = anyio.run(run_checks_on_base, context)
        findings = {**findings, "verify": on_base}
    return to_document(workflow, findings, Redaction() if context is None else context.redaction)


def to_document(workflow: Path, findings: Mapping[str, Sequence[Finding]], redaction: Redaction) -> Doctor:
    """The result; messages are masked."""
    codes = [exit_code_of(one) for several in findings.values() for one in several]
    code = max(codes, default=ExitCode.OK)
    return Doctor(
        workflow=str(workflow),
        ok=code is ExitCode.OK,
        exit_code=int(code),
        checks=check_documents(findings, redaction),
    )


def exit_code_of(finding: Finding) -> ExitCode:
    """What the command would exit with if this were the only finding."""
    if finding.status is not CheckStatus.ERROR:
        return ExitCode.OK
    cause = finding.cause
    if cause is None:
        return ExitCode.FAILURE
    code = cause.code if isinstance(cause, CommandError) else None
    return code or exit_code(cause.failure)


# --- the state of daemons --------------------------------------------------------------------------------


def check_lock(workflow: Path, environment: Mapping[str, str]) -> list[Finding]:
    """Whether a daemon serves the workflow, and whether it answers."""
    client = connect(workflow, environment)
    if client is None:
        notice = absence_notice(workflow, environment)
        if notice is None:
            return [ok("no daemon has it")]
        return [warning(notice, "`symphony status` shows more")]
    return daemon_findings(client.state(Selection(limit=0)), client.endpoint.pid)


def daemon_findings(state: State, pid: int) -> list[Finding]:
    """What a daemon reports about itself."""
    if state.health.status == "ok":
        findings = [ok(f"a daemon (pid {pid}) has it, and answers")]
    else:
        text = f"a daemon (pid {pid}) has it, and reports: {state.health.status}"
        findings = [warning(text, "`symphony status` shows why")]
    if (theirs := other_version(state.version, state.commit)) is not None:
        text = f"the daemon (pid {pid}) runs symphony {theirs}, and {version_text()} is installed"
        findings.append(warning(text, "restart the daemon when its runs allow it"))
    journal = state.journal
    if journal is not None and journal.state == "memory":
        text = f"the daemon (pid {pid}) keeps its journal only in memory: {journal.reason}"
        findings.append(warning(text, journal.hint or "`symphony status` shows why"))
    return findings


def check_journal(path: Path) -> list[Finding]:
    """Whether the journal is readable; a daemon without one works, and forgets everything at its end."""
    journal = checkup(path)
    if not journal.present:
        findings = [ok(f"{path} is made by the first `symphony run`")]
    elif journal.failure is not None:
        hint = "move it away; a new one loses the history and nothing else"
        findings = [warning(journal.failure.message, journal.failure.hint or hint)]
    else:
        size = f"{journal.bytes / _MIB:.1f} MiB"
        findings = [ok(f"{path} is sound (runs: {journal.runs}, claims: {journal.claims}, {size})")]
    newest = journal.newest_wall_ms
    if newest is not None and newest > time.time() * 1000 + _CLOCK_TOLERANCE_MS:
        hint = "the clock was set back, or was wrong before; old times are shown as they were recorded"
        findings.append(warning("its newest record is in the future", hint))
    if journal.aside:
        text = f"{len(journal.aside)} damaged before and set aside, such as {journal.aside[-1]}"
        findings.append(warning(text, "delete what you do not need; `symphony clean` does in time"))
    return findings


def check_processes(workflow: Path, environment: Mapping[str, str], state_dir: Path) -> list[Finding]:
    """Whether processes of a dead daemon are left."""
    try:
        if find_daemon(workflow, environment) is not None:
            return [ok("those of the runs belong to the daemon")]
    except UnreachableError:
        return [ok("there is a daemon that cannot be asked: they may be its own")]
    pids = sorted(one.pid for one in LocalHost(instance=instance_of(state_dir)).find_survivors())
    if not pids:
        return [ok("no dead daemon has left any")]
    shown = ", ".join(map(str, pids[:_MAX_NAMES])) + (" …" if len(pids) > _MAX_NAMES else "")
    text = f"a dead daemon has left {len(pids)} running: {shown}"
    return [warning(text, "the next `symphony run` ends them before it starts anything")]


# --- the workflow and what it refers to ------------------------------------------------------------------


def check_workflow_file(
    workflow: Path, environment: Mapping[str, str], invalid: SymphonyError | None
) -> list[Finding]:
    """Whether the file is usable; `invalid` is the reason why a daemon cannot be built from it."""
    hint = "`symphony check` lists every problem"
    if invalid is not None:
        more = len(getattr(invalid, "failures", (invalid.failure,))) - 1
        finding = failed(invalid, hint)
        return [replace(finding, message=finding.message + (f" (and {more} more)" if more else ""))]
    report = check_workflow(workflow, environment)
    problems = [problem for problem in report.problems if problem.code not in _OTHER_CHECKS]
    errors = [problem for problem in problems if problem.severity == "error"]
    if errors:
        first, more = errors[0], len(errors) - 1
        location = first.path if first.line is None else f"{first.path}:{first.line}"
        text = f"{location}: {first.message}" + (f" (and {more} more)" if more else "")
        return [warning(text, first.hint or hint)]
    if problems:
        return [warning(f"{report.path} is usable, with {plural(len(problems), 'warning')}", hint)]
    return [ok(f"{report.path} is usable")]


async def check_repository(context: RuntimeContext) -> list[Finding]:
    """Whether workspaces can be cloned: fetches and checks out the same as a run."""
    workspace = context.settings.workspace
    if workspace.repo is None:
        return [ok("workspace.repo is not set: hooks fill the workspaces")]
    await context.workspaces.check_repository()
    branch = f", from {workspace.base_branch}" if workspace.base_branch else ""
    place = await to_thread.run_sync(_temporary_directory, workspace.root)
    trial = None
    try:
        with anyio.move_on_after(_TRIAL_S):
            trial = await context.workspaces.try_repository(place)
    finally:
        with anyio.CancelScope(shield=True):
            await to_thread.run_sync(partial(shutil.rmtree, place, ignore_errors=True))
    if trial is None:
        unfinished = f"{workspace.repo} answers{branch}; a clone was not finished within {_TRIAL_S:g} s"
        return [ok(unfinished), *await check_signing(context)]
    shown = workspace.base_branch or "the base branch"
    elsewhere = await to_thread.run_sync(
        lambda: [*unseen_skills(context.settings, context.workflow.agents, where=None)]
    )
    return [
        ok(f"{workspace.repo} can be cloned{branch}"),
        *(warning(f"{workspace.repo}: {trait.message}", trait.repair) for trait in trial.unusual),
        *(warning(filter_message(shown, missing), missing.hint) for missing in trial.missing),
        *(warning(one.message, one.hint or "") for one in elsewhere),
        *await check_signing(context),
    ]


async def check_push(context: RuntimeContext) -> list[Finding]:
    """Whether `origin` accepts a branch, by a dry run with the user's credentials."""
    workspace = context.settings.workspace
    if workspace.push != "origin" or workspace.repo is None:
        return [ok("not asked for: workspace.push or workspace.repo is not set")]
    failure = await context.workspaces.check_push()
    if failure is None:
        return [ok("origin accepts branches in a dry run")]
    return [warning(failure.message, failure.hint or "read the output of `git push`")]


async def check_signing(context: RuntimeContext) -> list[Finding]:
    """A signature that is tried and fails, where git's configuration asks for signed commits."""
    failure = await context.workspaces.check_signing()
    if failure is None:
        return []
    return [warning(failure.message, failure.hint or "read the output of `git commit -S`")]


async def check_agents(context: RuntimeContext) -> list[Finding]:
    """The preflight of every agent: program, version, login, one command in its sandbox."""
    if context.carrier is not None:
        return [ok("agents run on other machines, and are looked at by their first run")]
    findings = []
    place = await to_thread.run_sync(_temporary_directory, context.settings.workspace.root)
    try:
        for name in context.agents:
            result = await preflight_agent(context, name, place, mark="doctor")
            label = "" if len(context.agents) == 1 else f"{name}: "
            version = f"{result.agent} {result.version}"
            findings.append(ok(f"{label}{version} passes the check before the first dispatch"))
            hint = "the agent works; read its message"
            findings += [warning(f"{label}{notice}", hint) for notice in result.notices]
    finally:
        with anyio.CancelScope(shield=True):
            await to_thread.run_sync(partial(shutil.rmtree, place, ignore_errors=True))
    return findings


async def check_verify(context: RuntimeContext) -> list[Finding]:
    """The commands of `verify`; they take long, so they run only on request."""
    commands = context.settings.verify.commands
    if not commands:
        return [ok("nothing is run on finished work: verify.commands is not set")]
    return [
        ok(f"{plural(len(commands), 'command')}; `symphony doctor --verify` runs them on the base commit")
    ]


async def run_checks_on_base(context: RuntimeContext) -> list[Finding]:
    """Run `verify.commands` on the base commit; each that does not pass there is an error."""
    verify, workspace = context.settings.verify, context.settings.workspace
    if not verify.commands or workspace.repo is None:
        what = "verify.commands" if not verify.commands else "workspace.repo"
        return [warning(f"nothing was run: {what} is not set", "docs/verification.md has an example")]
    if context.carrier is not None:
        return [ok("not run: agents and checks run on other machines")]
    place = await to_thread.run_sync(_temporary_directory, workspace.root)
    findings: list[Finding] = []
    try:
        tree, base = await context.workspaces.clone_base(place)
        click.echo(f"verify: {plural(len(verify.commands), 'command')} on {base[:12]}", err=True)
        verifier = Verifier(
            context=context,
            agent=context.settings.agent.kind,
            run_id="doctor",
            on_start=lambda name: click.echo(f"verify: {printable(name)} runs", err=True),
            on_check=lambda check: findings.append(_finding_of_check(check, base)),
        )
        await verifier.check_base(tree)
    except SymphonyError as raised:
        findings.append(failed(raised, "run `git fetch` in the repository and read its output"))
    finally:
        with anyio.CancelScope(shield=True):
            await to_thread.run_sync(partial(shutil.rmtree, place, ignore_errors=True))
    return findings


def _finding_of_check(check: CheckRun, base: str) -> Finding:
    """The result of one command on the base commit, with the end of its output on stderr if it failed."""
    took = duration(check.duration_ms / 1_000)
    click.echo(f"verify: {printable(check.name)} {printable(check.ended)}, after {took}", err=True)
    if check.passed:
        return ok(f"{check.name} passes on {base[:12]}, in {took}")
    for line in check.output_tail.splitlines()[-_MAX_OUTPUT_LINES:]:
        click.echo(f"  {printable(line)}", err=True)
    hint = "make it pass on the base branch, or change verify.commands: nothing can be verified by it"
    return error(f"{check.name} {check.ended} on {base[:12]}, after {took}", hint)


def _temporary_directory(root: Path) -> Path:
    """A directory near the workspaces: what a sandbox permits depends on the location."""
    try:
        return Path(tempfile.mkdtemp(prefix=".symphony-doctor-", dir=nearest_directory(root)))
    except OSError:
        return Path(tempfile.mkdtemp(prefix="symphony-doctor-"))


async def check_tracker(context: RuntimeContext) -> list[Finding]:
    """The result of `symphony tracker check`, with one poll as the daemon would send it."""
    found = await tracker.check_tracker(context)
    states = ", ".join(context.active_states) or "no state at all"
    findings = [ok(f"{found.kind} answers: {plural(found.issues, 'issue')} in {states}")]
    for problem in found.problems[:_MAX_PROBLEMS]:
        make = error if problem.severity == "error" else warning
        findings.append(make(problem.message, problem.hint))
    more = len(found.problems) - _MAX_PROBLEMS
    if more > 0:
        text = f"{more} more records or states are wrong"
        findings.append(warning(text, "`symphony tracker check` shows them"))
    return findings


async def check_forge(context: RuntimeContext, *, environment: Mapping[str, str]) -> list[Finding]:
    """The result of `symphony forge check`. Work goes on without a forge, so nothing here is an error."""
    if context.settings.forge.kind is None:
        return [ok("off: forge.kind is not set")]
    try:
        found = await forge.check_forge(context, environment)
    except SymphonyError as raised:
        failure = raised.failure
        return [warning(failure.message, failure.hint or "`symphony forge check` tells more")]
    if not found.ok:
        return [
            warning(f"the token lacks {each}", "docs/forges.md lists the rights that it needs")
            for each in found.missing
        ]
    if context.settings.forge.opens and (elsewhere := await to_thread.run_sync(_other_origin, context)):
        return [
            warning(
                f"branches are pushed to {elsewhere}, and forge.repo is {found.repo}",
                "a pull request needs its branch in that repository: correct `origin` or forge.repo",
            )
        ]
    return [ok(f"{found.kind} answers as {found.login}, {found.repo}")]


def _other_origin(context: RuntimeContext) -> str | None:
    """Where branches are pushed if the address does not end with `forge.repo`; a path is not judged."""
    repo = context.settings.workspace.repo or ""
    address = git_output(Path(repo), "remote", "get-url", "--push", "origin") if Path(repo).is_dir() else repo
    shown = without_credentials((address or "").strip())
    if "://" not in shown and ":" not in shown:
        return None
    path = re.split(r"[:/]", shown.removesuffix("/").removesuffix(".git"))
    wanted = str(context.settings.forge.repo).split("/")
    same = [part.lower() for part in path[-len(wanted) :]] == [part.lower() for part in wanted]
    return None if same else shown


async def check_hosts(context: RuntimeContext, *, environment: Mapping[str, str]) -> list[Finding]:
    """The result of `symphony hosts check`; an error only if no host can be used."""
    found = (await hosts.check_hosts(context, (), environment)).hosts
    if not found:
        return [ok("sessions run on this machine")]
    make = warning if any(host.ok for host in found) else error
    return [
        ok(f"{host.name}: {host.version}")
        if host.problem is None
        else make(
            f"{host.name}: {host.problem.removeprefix(f'{host.name}: ')}",
            host.hint or "`symphony hosts check` tells more",
        )
        for host in found
    ]


async def check_tracing(context: RuntimeContext, *, environment: Mapping[str, str]) -> list[Finding]:
    """Whether the collector of traces takes a request."""

    def send() -> list[Finding]:
        tracing = open_tracing(context, "", environment)
        if tracing is None:
            return [ok("off: tracing.endpoint is not set")]
        failure = tracing.check()
        tracing.close()
        endpoint = context.settings.tracing.endpoint
        if failure is None:
            return [ok(f"{endpoint} takes traces")]
        hint = "see whether the collector runs, and whether tracing.endpoint is its URL"
        return [warning(f"traces are not taken: {failure}", hint)]

    return await to_thread.run_sync(send)


async def check_workspaces(context: RuntimeContext) -> list[Finding]:
    """Whether there are workspaces of issues that are in a terminal state."""
    found = await find_workspaces(context)
    names = [workspace.record.identifier for workspace in found if workspace.ended]
    if not names:
        return [ok(f"{len(found)} there, none of a closed issue")]
    text = f"{len(names)} of {len(found)} are of issues that are over: {', '.join(names[:_MAX_NAMES])}"
    return [warning(text, "`symphony clean --dry-run` shows which it would remove, and why others stay")]


async def check_metrics(context: RuntimeContext) -> list[Finding]:
    """Where Prometheus can scrape the daemon."""
    server = context.settings.server
    if server.port is None:
        return [ok("GET /metrics on the control socket; server.port opens it for Prometheus")]
    return [ok(f"GET /metrics on {server.host} port {server.port or '(any free one)'}, with operator.token")]


def check_notifications(
    workflow: Path, environment: Mapping[str, str], context: RuntimeContext
) -> list[Finding]:
    """The targets of `notify`, and how the deliveries of a running daemon went."""
    client = None
    with suppress(UnreachableError):  # reported by check_lock
        client = connect(workflow, environment)
    targets = targets_of(context, environment)
    if client is not None:
        targets = client.state(Selection(limit=0)).notifications
    if not targets:
        return [ok("no one is notified: WORKFLOW.md has no notify")]
    findings = []
    for target in targets:
        problem = target.problem or target.failure
        if problem is not None:
            hint = f"`symphony notify test {target.name}` tries it from here"
            findings.append(warning(f"{target.name} ({target.kind}): {problem}", hint))
        else:
            last = "" if target.delivered_at is None else f", last delivery {target.delivered_at}"
            findings.append(ok(f"{target.name} ({target.kind}) is on{last}"))
    return findings
