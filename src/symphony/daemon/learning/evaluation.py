"""Evaluates a proposal: agents work on past issues again, without and with the change.

    past issue -> base commit -> throw-away repository, workspace and library -> worker -> check -> numbers
                                 (twice: without the change, with it)

A session is carried out by the same worker as a run, with the same settings, hooks, instructions and skills,
from the commit at which the delivered branch began. It has no tools of the tracker, and is neither recorded
in the journal nor delivered. Its files are removed at the end, even if the evaluation is cancelled.
"""

import os
import secrets
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

import anyio
from msgspec import Struct

from symphony import scheduler, to_thread
from symphony.agents.backend import run_as_agent
from symphony.daemon import frames
from symphony.daemon.context import RuntimeContext, build_context, scheduler_settings
from symphony.daemon.runs.tracing import RunTrace
from symphony.daemon.runs.worker import Worker
from symphony.daemon.state_dir import JOURNAL_FILE, StateDirectory, instance_of
from symphony.domain import Issue, SymphonyError, ToolResult
from symphony.files import try_lock
from symphony.journal.model import RunRecord
from symphony.journal.reader import open_reader
from symphony.journal.transcripts import TranscriptEntry
from symphony.library import model
from symphony.library.evaluation import Comparison, Evaluation, Trial
from symphony.library.store import LIBRARY_FILE, Library, library_path, wall_ms
from symphony.processes.base import Completed
from symphony.processes.local import LocalHost
from symphony.workspaces import (
    Git,
    GitError,
    common_dir,
    delete_tree,
    local_repository,
    mirror_path,
    read_ref,
    repository_config,
    split_login,
    write_git_dir,
)

MAX_TURNS: Final = 3
"""How many turns one session has at most; it ends after the first turn with which the check passes."""
_FOLDER: Final = "evaluations"
_BRANCH: Final = "main"
_ALL_RUNS: Final = 100_000
_SESSION_S: Final = 3_600.0
_COPY_TIMEOUT_MS: Final = 300_000
_PROBLEM_CHARS: Final = 300
_CHANGE: Final = model.Authorship(author="evaluation")


class PastIssue(Struct, frozen=True, kw_only=True):
    """A past issue that can be worked on again.

    Attributes:
        issue: the tracker's snapshot, in the state in which the work began.
        agent: the agent that works on it.
        source: its delivered work.
    """

    issue: Issue
    agent: str
    source: "Source"


class Source(Struct, frozen=True, kw_only=True):
    """Delivered work.

    Attributes:
        git_dir: the git directory with the commits.
        base: the commit at which the branch began.
        delivered: the commit that was delivered.
    """

    git_dir: Path
    base: str
    delivered: str


class Evaluator:
    """Evaluates the proposals of one library, one at a time.

    Args:
        context: the workflow; its tracker is only asked for issues.
        environment: as for `build_context`.
        state_dir: has the journal, the library and, during an evaluation, all of its files.
        say: called with lines of progress.
    """

    def __init__(
        self,
        context: RuntimeContext,
        *,
        environment: Mapping[str, str],
        state_dir: Path,
        say: Callable[[str], None],
    ) -> None:
        self._context = context
        self._environment = environment
        self._state_dir = state_dir
        self._say = say
        self._library = Library(library_path(state_dir, context.settings.agent.library.path))
        self._git = Git(LocalHost(), environment, context.secret_names)

    async def run(self, number: int, count: int) -> model.Proposal:
        """Evaluate a proposal on at most `count` newest past issues; return it with the result.

        Raises:
            SymphonyError: it cannot be evaluated, or no agent can be started; nothing is stored.
        """
        settings = self._context.settings.agent
        if settings.library.check is None:
            raise model.LibraryError(
                "agent.library.check is not set: nothing can tell good work from bad",
                hint="set it in WORKFLOW.md to a command that judges a workspace, such as `make test`",
            )
        if not settings.skills.enabled:
            raise model.LibraryError(
                "agent.skills.enabled is false: sessions get no skills", hint="set it to true"
            )
        proposal = await to_thread.run_sync(self._proposal, number)
        past_issues = await self._past_issues(count, proposal.evidence.issue_id)
        if not past_issues:
            raise model.LibraryError(
                "there is no past issue to work on again",
                hint="an issue counts once a run has delivered commits of it and the tracker still has it",
            )
        async with self._directory() as directory:
            comparisons = [
                await self._compare(past, proposal, directory / str(index))
                for index, past in enumerate(past_issues, 1)
            ]
        found = Evaluation(
            check=settings.library.check,
            base_version=proposal.base_version,
            comparisons=tuple(comparisons),
            at_ms=wall_ms(),
        )
        return await to_thread.run_sync(self._library.record_evaluation, number, found)

    async def _compare(self, past: PastIssue, proposal: model.Proposal, place: Path) -> Comparison:
        shown = f"{past.issue.identifier} at {past.source.base[:9]}"

        async def trial(arm: str, text: model.SkillText | None) -> Trial:
            self._say(f"{shown}: {past.agent} works on it {arm} the change")
            found = await self._trial(past, proposal.text.name, text, place)
            self._say(f"{shown}: {arm} the change: {described(found)}")
            return found

        return Comparison(
            issue_identifier=past.issue.identifier,
            base_commit=past.source.base,
            agent=past.agent,
            without=await trial("without", proposal.before),
            changed=await trial("with", proposal.text),
        )

    def _proposal(self, number: int) -> model.Proposal:
        proposal = self._library.proposal(number)
        if proposal.state is not model.ProposalState.OPEN:
            raise model.LibraryError(
                f"proposal {number} is {proposal.state} already", hint="evaluate one that is open"
            )
        return proposal

    # --- past issues -------------------------------------------------------------------------------------

    async def _past_issues(self, count: int, learned_from: str | None) -> list[PastIssue]:
        """The newest past issues that can be worked on again, at most `count`."""
        workspace = self._context.settings.workspace
        past_issues: list[PastIssue] = []
        if workspace.repo is None:
            return past_issues
        runs = await to_thread.run_sync(self._runs)
        for past in past_work(runs, learned_from):
            source = await self._source(past)
            if source is None:
                self._say(f"{past.issue_identifier}: left out, as its branch is not known any more")
                continue
            found = await self._context.tracker.fetch_issues_by_ids({past.issue_id})
            issue = next((one for one in found if one.id == past.issue_id), None)
            if issue is None:
                self._say(f"{past.issue_identifier}: left out, as the tracker has it no more")
                continue
            agent = past.agent_name if past.agent_name in self._context.agents else None
            past_issues.append(
                PastIssue(
                    issue=replace(issue, state=past.issue_state or issue.state),
                    agent=agent or self._context.settings.agent.kind,
                    source=source,
                )
            )
            if len(past_issues) == count:
                break
        return past_issues

    def _runs(self) -> tuple[RunRecord, ...]:
        journal = self._state_dir / JOURNAL_FILE
        if not journal.exists():
            return ()
        with open_reader(journal) as reader:
            return reader.runs(limit=_ALL_RUNS)

    async def _source(self, past: RunRecord) -> Source | None:
        """The delivered work of a past run, if the mirror or a local repository still has it."""
        workspace = self._context.settings.workspace
        places = [await to_thread.run_sync(mirror_path, workspace)]
        local = local_repository(split_login(workspace.repo or "")[0])
        if local is not None and (git_dir := await to_thread.run_sync(common_dir, local)) is not None:
            places.append(git_dir)
        for git_dir in places:
            for ref in (f"refs/heads/{past.facts.branch}", f"refs/remotes/origin/{past.facts.branch}"):
                head = await to_thread.run_sync(read_ref, git_dir, ref)
                base = None if head is None else await self._base(git_dir, head, past.facts.work.commits)
                if head is not None and base is not None:
                    return Source(git_dir=git_dir, base=base, delivered=head)
        return None

    async def _base(self, git_dir: Path, head: str, commits: int) -> str | None:
        """Where a branch began; `None` unless all commits since then belong to the issue."""
        try:
            found = await self._git.trusted(
                "-C", git_dir, "rev-parse", "--verify", f"{head}~{commits}^{{commit}}"
            )
            base = found.decode().strip()
            count = await self._git.trusted("-C", git_dir, "rev-list", "--count", head, "--not", base)
        except GitError:
            return None
        return base if int(count) == commits else None

    # --- one session -------------------------------------------------------------------------------------

    async def _trial(self, past: PastIssue, name: str, text: model.SkillText | None, place: Path) -> Trial:
        """Let the agent work on the issue with this text of the skill, or without the skill.

        Raises:
            SymphonyError: the agent could not be started.
        """
        context = await self._throw_away(past, name, text, place)
        state_dir = StateDirectory(place / "state")
        await to_thread.run_sync(state_dir.create)
        try:
            return await _Session(
                context,
                past,
                state_dir=state_dir,
                place=place,
            ).run()
        finally:
            with anyio.CancelScope(shield=True):
                await to_thread.run_sync(_delete, place)

    async def _throw_away(
        self, past: PastIssue, name: str, text: model.SkillText | None, place: Path
    ) -> RuntimeContext:
        """The context of a session: its own repository, workspaces and library."""
        settings = self._context.settings
        branch = settings.workspace.base_branch or _BRANCH
        repository = place / "repository"
        await to_thread.run_sync(partial(place.mkdir, mode=0o700))
        write = partial(
            write_git_dir,
            repository,
            repository_config(past.source.base, bare=True),
            head=f"ref: refs/heads/{branch}",
            borrowed=[past.source.git_dir / "objects"],
        )
        try:
            await to_thread.run_sync(write)
            await self._git.trusted("-C", repository, "update-ref", f"refs/heads/{branch}", past.source.base)
        except GitError as error:
            raise model.LibraryError(f"the repository cannot be copied: {error}") from error
        agent = settings.agent.model_copy(
            update={"library": settings.agent.library.model_copy(update={"sync": "off"})}
        )
        workspace = settings.workspace.model_copy(
            update={
                "root": place / "workspaces",
                "repo": str(repository),
                "base_branch": branch,
                "push": "never",
            }
        )
        workflow = replace(
            self._context.workflow,
            settings=settings.model_copy(update={"agent": agent, "workspace": workspace}),
        )
        host = LocalHost(instance=instance_of(place))
        context = await to_thread.run_sync(
            partial(build_context, workflow, host=host, environment=self._environment)
        )
        await context.workspaces.check_root()
        library = await to_thread.run_sync(self._copy_library, past, name, text, place / LIBRARY_FILE)
        return replace(context, library=library)

    def _copy_library(self, past: PastIssue, name: str, text: model.SkillText | None, path: Path) -> Library:
        """A copy of the library with this text of the skill, which the issue gets; blocking."""
        self._library.backup(path)
        copy, issue = Library(path), past.issue
        try:
            present = copy.skill(name)
        except model.NotInLibraryError:
            if text is not None:
                copy.add(text, _CHANGE, origin=model.Origin.LEARNED)
        else:
            if text is None:
                copy.remove(name, _CHANGE)
            else:
                copy.edit(text, _CHANGE, base_version=present.version)
        configured = self._context.workflow.agents[past.agent].settings.library
        found = copy.resolve(
            issue=issue.identifier, labels=issue.labels, agent=past.agent, configured=configured
        )
        names = {one.name for one in found.skills} | ({name} if text is not None else set())
        copy.assign(model.TargetKind.ISSUE, issue.identifier, tuple(names))
        return copy

    @asynccontextmanager
    async def _directory(self) -> AsyncIterator[Path]:
        """The directory of this evaluation, removed at the end, after leftovers of a killed one."""
        with _alone(self._state_dir / f"{_FOLDER}.lock"):
            path = self._state_dir / _FOLDER
            await to_thread.run_sync(_delete, path)
            await to_thread.run_sync(partial(path.mkdir, mode=0o700, parents=True))
            try:
                yield path
            finally:
                with anyio.CancelScope(shield=True):
                    await to_thread.run_sync(_delete, path)


class _Session:
    """The session of one trial: handles the frames of a worker, as the daemon does for a run."""

    def __init__(
        self,
        context: RuntimeContext,
        past: PastIssue,
        *,
        state_dir: StateDirectory,
        place: Path,
    ) -> None:
        self._context = context
        self._past = past
        self._agent = context.agent(past.agent)
        self._copy = place / "checked"
        self._run_id = f"evaluation-{secrets.token_hex(6)}"
        self._phase = scheduler.phase_of(past.issue, scheduler_settings(context))
        command = scheduler.StartRun(
            run_id=self._run_id, issue=past.issue, attempt=None, agent=past.agent, phase=self._phase
        )
        self._worker = Worker(
            frames.Start(command=command),
            self._on_frame,
            context=context,
            state_dir=state_dir,
            transcript=_NoTranscript(),
            trace=RunTrace(),
        )
        self._give, self._ended_turns = anyio.create_memory_object_stream[int](MAX_TURNS + 1)
        self._workspace: Path | None = None
        self._launched = False
        self._since_s: float | None = None  # `None` while the agent does not work
        self._seconds = 0.0
        self._turns = self._tokens = 0
        self._problem: str | None = "no turn came to its end"
        self._stopped: str | None = None
        self._outcome = scheduler.Outcome(kind=scheduler.OutcomeKind.CANCELED)

    async def run(self) -> Trial:
        """Carry out the session.

        Raises:
            SymphonyError: the agent could not be started.
        """
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._direct)
            tasks.start_soon(self._limit)
            await self._worker.run()
            tasks.cancel_scope.cancel()
        self._give.close()
        self._ended_turns.close()
        if not self._launched:
            raise (
                SymphonyError(self._outcome.failure)
                if self._outcome.failure
                else model.LibraryError("no agent")
            )
        problem = self._stopped
        if problem is None and self._outcome.failure is not None:
            problem = self._outcome.failure.line
        if problem is None and self._outcome.progress is False:
            problem = "the agent changed nothing"
        problem = problem or self._problem
        return Trial(
            passed=problem is None,
            seconds=round(self._seconds, 1),
            turns=self._turns,
            tokens=self._tokens,
            problem=problem and self._context.redaction.line(problem, _PROBLEM_CHARS),
        )

    def _on_frame(self, frame: frames.WorkerFrame) -> None:
        match frame:
            case frames.Report(report=report):
                self._workspace = (
                    None if report.facts.workspace_path is None else Path(report.facts.workspace_path)
                )
                self._tokens = report.facts.tokens.total_tokens
                if report.stage is scheduler.RunStage.STREAMING_TURN and not self._launched:
                    self._launched, self._since_s = True, anyio.current_time()
                most = self._context.settings.agent.library.max_evaluation_tokens
                if self._tokens > most:
                    self._stop(f"it used more than {most:,} tokens")
            case frames.TurnFinished(turn=turn):
                self._pause()
                self._give.send_nowait(turn)
            case frames.CommentsAsked() | frames.ConversationOpened() | frames.SkillsLoaded():
                self._worker.on_frame(frames.RequestAnswered(request=frame.request))
            case frames.ToolCallAsked():
                refused = ToolResult.error("an evaluation has no tools of the tracker")
                self._worker.on_frame(frames.RequestAnswered(request=frame.request, result=refused))
            case frames.RunOutcome(outcome=outcome):
                self._pause()
                self._outcome = outcome
            case _:
                pass

    def _pause(self) -> None:
        """Stop the clock."""
        if self._since_s is not None:
            self._seconds += anyio.current_time() - self._since_s
            self._since_s = None

    def _stop(self, reason: str) -> None:
        if self._stopped is None:
            self._stopped = reason
            self._worker.on_frame(frames.Stop())

    async def _direct(self) -> None:
        """Judge the work after each turn, and direct the worker."""
        most = min(MAX_TURNS, self._context.settings.agent.max_turns)
        async for turn in self._ended_turns:
            self._turns = turn
            self._problem = await self._judge()
            issue, run_id = self._past.issue, self._run_id
            if self._problem is None or turn >= most:
                self._worker.on_frame(
                    frames.Finish(
                        command=scheduler.FinishRun(run_id=run_id, reason=scheduler.FinishReason.MAX_TURNS)
                    )
                )
            else:
                self._since_s = anyio.current_time()
                go_on = scheduler.ContinueRun(run_id=run_id, issue=issue, turn=turn + 1, phase=self._phase)
                self._worker.on_frame(frames.Continue(command=go_on))

    async def _judge(self) -> str | None:
        """Run the check in a copy of the workspace, so that it leaves nothing for the agent to read."""
        settings = self._context.settings.agent.library
        assert self._workspace is not None  # noqa: S101 - reported before the first turn
        assert settings.check is not None  # noqa: S101 - there would be no evaluation
        try:
            copied = await LocalHost().run(
                ("cp", "-a", "--", str(self._workspace), str(self._copy)),
                env={"PATH": os.defpath},
                timeout_ms=_COPY_TIMEOUT_MS,
            )
            if copied.exit_code != 0 or copied.timed_out:
                return "the workspace cannot be copied"
            done = await run_as_agent(
                self._agent,
                settings.check,
                run_id=self._run_id,
                cwd=self._copy,
                timeout_ms=settings.check_timeout_ms,
                variables={
                    "SYMPHONY_ISSUE_ID": self._past.issue.id,
                    "SYMPHONY_ISSUE_IDENTIFIER": self._past.issue.identifier,
                    "SYMPHONY_WORKSPACE": str(self._copy),
                    "SYMPHONY_ATTEMPT": "0",
                    "SYMPHONY_DELIVERED_REPOSITORY": str(self._past.source.git_dir),
                    "SYMPHONY_DELIVERED_COMMIT": self._past.source.delivered,
                },
                repositories=(self._past.source.git_dir,),
            )
        except OSError as error:
            return f"the check could not be started: {error}"
        else:
            return self._problem_of(done, settings.check_timeout_ms)
        finally:
            with anyio.CancelScope(shield=True):
                await to_thread.run_sync(_delete, self._copy)

    def _problem_of(self, done: Completed, timeout_ms: int) -> str | None:
        if done.timed_out:
            return f"the check did not end within {timeout_ms} ms"
        if done.exit_code == 0:
            return None
        output = (done.stderr + done.stdout).decode("utf-8", "replace")
        shown = self._context.redaction.line(output, _PROBLEM_CHARS, joint=" | ")
        return f"the check ended with status {done.exit_code}{f': {shown}' if shown else ''}"

    async def _limit(self) -> None:
        """End a session that takes too long; a cancelled session gets little time to end."""
        try:
            await anyio.sleep(_SESSION_S)
        except anyio.get_cancelled_exc_class():
            self._worker.on_frame(frames.Hurry())
            raise
        self._stop(f"it took longer than {_SESSION_S / 60:g} minutes")
        await anyio.sleep_forever()


class _NoTranscript:
    """Drops all entries (`EntryWriter`)."""

    problem: str | None = None

    def write(self, entries: Sequence[TranscriptEntry]) -> None:
        """Drop entries."""

    def close(self) -> None:
        """Do nothing."""


def described(trial: Trial) -> str:
    """A trial in a line, for people."""
    result = "passed" if trial.passed else f"failed ({trial.problem})"
    return f"{result}, {trial.seconds:g} s, turns {trial.turns}, tokens {trial.tokens:,}"


def past_work(runs: Iterable[RunRecord], learned_from: str | None = None) -> tuple[RunRecord, ...]:
    """The latest delivery of each issue, the newest first.

    Args:
        runs: the newest first.
        learned_from: the id of the issue from which the proposal comes. It is the last one, because it says
            little about other issues.
    """
    found: dict[str, RunRecord] = {}
    for run in runs:
        if run.delivered and run.facts.work.commits and run.facts.branch is not None:
            found.setdefault(run.issue_id, run)
    return tuple(sorted(found.values(), key=lambda one: one.issue_id == learned_from))


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """Hold a lock file.

    Raises:
        LibraryError: another evaluation has it.
    """
    descriptor = os.open(lock, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        if not try_lock(descriptor):
            raise model.LibraryError("another evaluation is under way", hint="wait for its end")
        yield
    finally:
        os.close(descriptor)


def _delete(path: Path) -> None:
    if os.path.lexists(path):
        delete_tree(path)
