"""Runs `verify.commands` on the delivered commit of a run.

The commands come from the operator but run the agent's code, so they run like the agent's own commands, in
its environment and isolation. They see exactly the delivered commit. Uncommitted work, and a command that
changes tracked files, count as failures. A failed command is tried once on the base commit, in a separate
checkout. The answer is stored for the commit and the command.
"""

import re
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Final

import structlog
from msgspec import Struct

from symphony import domain, to_thread
from symphony.agents.base import RunsCommands
from symphony.config import VerifyCommand
from symphony.daemon.context import RuntimeContext
from symphony.daemon.runs.artifacts import find_artifacts
from symphony.files import read_regular, write_atomic
from symphony.processes.base import Completed
from symphony.workspaces import Delivery, GitError, Layout, Workspace, delete_old_entries

# More than is kept, because secrets are masked before the cut.
_MAX_OUTPUT_BYTES: Final = 4 * domain.MAX_CHECK_OUTPUT_CHARS
_MAX_PATCH_BYTES: Final = 4 * 1024 * 1024
_KEEP_BASELINES_S: Final = 30 * 24 * 3_600
_FAILS: Final = b"fails\n"
_PASSES: Final = b"passes"
_STRICT: Final = "exec </dev/null 2>&1\nset -eo pipefail\n"
_log = structlog.get_logger(__name__)


class Verifier(Struct, frozen=True, kw_only=True):
    """Verifies deliveries of one run.

    Attributes:
        context: settings, workspaces and agents.
        agent: the agent that did the work.
        run_id: marks the processes of the commands.
        on_artifact: stores a file that the commands left, by its name; raises `SymphonyError`.
        on_start: called with each command that begins.
        on_check: called with each command that has ended or was skipped.
    """

    context: RuntimeContext
    agent: str
    run_id: str
    on_check: Callable[[domain.CheckRun], None]
    on_artifact: Callable[[str, bytes], Awaitable[None]] | None = None
    on_start: Callable[[str], None] = lambda _: None

    async def verify(self, workspace: Workspace, delivery: Delivery, identifier: str) -> domain.Verification:
        """The result for the delivered head of an issue. Without a commit there is nothing to check.

        Raises:
            SymphonyError: the checkout cannot be made.
        """
        settings, head = self.context.settings.verify, delivery.head
        if head is None or delivery.delivered is None:
            if delivery.left is None:
                return domain.Verification(head=head or "")
            return domain.Verification(head=head or "", problem=_uncommitted(delivery))
        changed = [file.path for file in delivery.files]
        patch = await self.context.workspaces.patch(identifier, max_bytes=_MAX_PATCH_BYTES)
        found = domain.Verification(
            head=head,
            protected_changes=tuple(matching(changed, settings.protect))[: domain.MAX_NAMED_CHANGES],
            weakened=tuple(weakened_tests(patch.content))[: domain.MAX_NAMED_CHANGES]
            if patch is not None
            else (),
        )
        if delivery.left is not None:
            return replace(found, problem=_uncommitted(delivery))
        if settings.where == "clean":
            async with self.context.workspaces.checkout(workspace, head) as tree:
                found = await self.check(found, tree, changed, set_up=True)
        else:
            found = await self.check(found, workspace.path, changed, set_up=False)
        return found if found.passed else await self._compare_with_base(found, workspace)

    async def check(
        self,
        found: domain.Verification,
        tree: Path,
        changed: Sequence[str] | None,
        *,
        set_up: bool,
        only: Collection[str] | None = None,
        objects: Path | None = None,
    ) -> domain.Verification:
        """The result with the checks in a checkout of its head.

        Args:
            found: names the head.
            tree: the checkout.
            changed: the changed files; `None` for all, so that every command runs.
            set_up: whether `verify.setup` runs first.
            only: the names of the commands to run; all if `None`.
            objects: the object store with the head, if it is not the mirror's.
        """
        checks = await self._checks(tree, changed, set_up=set_up, only=only)
        artifacts = await self._keep_artifacts(tree)
        try:
            problem = await self.context.workspaces.differs_from(tree, found.head, objects=objects)
        except (GitError, OSError) as error:
            problem = f"whether they changed the work is unknown: {error}"
        return replace(
            found,
            checks=tuple(checks),
            artifacts=artifacts,
            problem=None if problem is None else f"the commands changed the files that they check: {problem}",
        )

    async def _keep_artifacts(self, tree: Path) -> tuple[domain.KeptFile, ...]:
        """Store the files that `verify.artifacts` names; a file that cannot be stored fails no check."""
        globs, redaction = self.context.settings.verify.artifacts, self.context.redaction
        if not globs or self.on_artifact is None:
            return ()
        found = find_artifacts(tree, lambda path: any(matching([path], globs)), redaction)
        kept = list[domain.KeptFile]()
        while (one := await to_thread.run_sync(next, found, None)) is not None:
            file, data = one
            try:
                if data is not None:
                    await self.on_artifact(file.name, data)
                kept.append(file)
            except domain.SymphonyError as error:
                _log.warning("artifact_not_kept", file=file.name, reason=error.failure.line)
        _log.info("artifacts_kept", files=len(kept), bytes=sum(each.size or 0 for each in kept))
        return tuple(kept)

    async def check_base(self, tree: Path) -> Sequence[domain.CheckRun]:
        """Run every command, regardless of its paths, in a checkout of the base without `verify.setup`."""
        return await self._checks(tree, None, set_up=True)

    async def _checks(
        self,
        tree: Path,
        changed: Sequence[str] | None,
        *,
        set_up: bool,
        only: Collection[str] | None = None,
    ) -> Sequence[domain.CheckRun]:
        """Run the commands as `check` says, after `setup`."""
        settings, checks = self.context.settings.verify, list[domain.CheckRun]()
        if set_up and settings.setup is not None:
            setup = VerifyCommand(name="setup", run=settings.setup, timeout_ms=settings.setup_timeout_ms)
            checks.append(await self._run(setup, tree))
        if all(check.passed for check in checks):
            for command in settings.commands:
                if only is not None and command.title not in only:
                    continue
                if command.paths and changed is not None and not any(matching(changed, command.paths)):
                    checks.append(domain.CheckRun(name=command.title, skipped=True))
                    self.on_check(checks[-1])
                else:
                    checks.append(await self._run(command, tree))
        return checks

    async def _run(self, command: VerifyCommand, tree: Path) -> domain.CheckRun:
        self.on_start(command.title)
        begun = time.monotonic()
        check = await self._ended(command, tree)
        check = replace(check, duration_ms=int((time.monotonic() - begun) * 1000))
        self.on_check(check)
        return check

    async def _ended(self, command: VerifyCommand, tree: Path) -> domain.CheckRun:
        backend, name = self.context.agent(self.agent), command.title
        if not isinstance(backend, RunsCommands):
            return domain.CheckRun(
                name=name, problem=f"could not be run: the agent {self.agent} runs no commands"
            )
        try:
            done = await backend.run_command(
                _STRICT + command.run,
                run_id=self.run_id,
                timeout_ms=command.timeout_ms,
                cwd=tree,
                max_output_bytes=_MAX_OUTPUT_BYTES,
                keep_end=True,
            )
        except (domain.SymphonyError, OSError) as error:
            return domain.CheckRun(name=name, problem=f"could not be started: {error}")
        problem = f"did not end within {command.timeout_ms} ms" if done.timed_out else None
        return domain.CheckRun(
            name=name,
            exit_code=None if done.timed_out else done.exit_code,
            output_tail=self._tail(done),
            problem=problem,
        )

    def _tail(self, done: Completed) -> str:
        text = domain.plain_text((done.stdout + done.stderr).decode("utf-8", "replace"))
        return self.context.redaction.text(text)[-domain.MAX_CHECK_OUTPUT_CHARS :]

    # --- the base ----------------------------------------------------------------------------------------

    async def _compare_with_base(
        self, found: domain.Verification, workspace: Workspace
    ) -> domain.Verification:
        """The result, with how the failed commands behave on the base commit.

        Commands that cannot run there tell nothing.
        """
        base, commands = workspace.base_commit, {each.title: each for each in self._commands}
        failed = [
            commands[check.name] for check in found.checks if not check.passed and check.name in commands
        ]
        if base is None or base == found.head or not failed:
            return found
        files = {each.title: Layout(workspace.path.parent).baseline(base, each.run) for each in failed}
        async with self.context.workspaces.baselines:  # another run may be trying the same commit
            known = await to_thread.run_sync(partial(_read_baselines, files))
            if untried := [each for each in failed if each.title not in known]:
                try:
                    async with self.context.workspaces.checkout(workspace, base) as tree:
                        known = {**known, **await self._try_base(base, untried, tree, files)}
                except domain.SymphonyError as error:
                    _log.warning("base_not_checked", reason=error.failure.line)
        checks = tuple(replace(check, fails_on_base=known.get(check.name)) for check in found.checks)
        return replace(found, checks=checks, base=base)

    @property
    def _commands(self) -> tuple[VerifyCommand, ...]:
        return self.context.settings.verify.commands

    async def _try_base(
        self, base: str, commands: Iterable[VerifyCommand], tree: Path, files: Mapping[str, Path]
    ) -> Mapping[str, bool]:
        """Whether each command fails on the base, by name, without commands that cannot run."""
        settings, found = self.context.settings.verify, dict[str, bool]()
        if settings.setup is not None:
            setup = VerifyCommand(name="setup", run=settings.setup, timeout_ms=settings.setup_timeout_ms)
            if not (await self._ended(setup, tree)).passed:
                _log.warning("base_not_checked", reason="verify.setup fails on the base commit")
                return found
        for command in commands:
            check = await self._ended(command, tree)
            _log.info("base_checked", check=check.name, result=check.ended, commit=base)
            if check.exit_code is not None and check.exit_code >= 0:
                found[command.title] = not check.passed
                content = _FAILS if found[command.title] else _PASSES
                await to_thread.run_sync(_write_baseline, files[command.title], content)
        return found


def _read_baselines(files: Mapping[str, Path]) -> Mapping[str, bool]:
    read = {name: read_regular(path, len(_FAILS)) for name, path in files.items()}
    return {name: content == _FAILS for name, content in read.items() if content is not None}


def _write_baseline(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    delete_old_entries(path.parent, older_than_s=_KEEP_BASELINES_S)
    write_atomic(path, content)


def _uncommitted(delivery: Delivery) -> str:
    left = delivery.left
    what = "" if left is None else f": {left.reason} ({left.look})"
    return f"there is work that no commit of the branch holds{what}"


# --- paths and hints ---


def matching(paths: Iterable[str], globs: Iterable[str]) -> Iterator[str]:
    """The paths that match a glob: `*` stays in a directory, `**` does not, `docs/` is all below it."""
    patterns = [_pattern(glob) for glob in globs]
    return (path for path in paths if any(pattern.fullmatch(path) for pattern in patterns))


@lru_cache(maxsize=1_000)
def _pattern(glob: str) -> re.Pattern[str]:
    made = ""
    for part in re.findall(r"\*\*/|\*\*|\*|\?|.", glob.removeprefix("./"), re.DOTALL):
        made += {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}.get(part, re.escape(part))
    return re.compile(f"{made}.*" if glob.endswith("/") else made, re.DOTALL)


_TEST: Final = re.compile(
    r"^\s*(?:async\s+)?(?:def\s+(test\w*)|func\s+(Test\w+)|(?:fn|function|void)\s+(test\w*)"
    r"|(?:it|test)\(\s*[\"'`]([^\"'`]{1,100}))"
)
_SKIP: Final = re.compile(
    r"pytest\.(?:mark\.)?(?:skip|skipif|xfail)\b|unittest\.skip|\b(?:it|test|describe)\.(?:skip|todo|only)\b"
    r"|\b(?:xit|xdescribe|xtest)\(|\bt\.Skip\w*\(|#\[ignore|@(?:Disabled|Ignore)\b|\bskip:\s*true"
)


def weakened_tests(patch: bytes) -> Iterator[str]:
    """Tests that a patch removes or newly skips, as hints for people: `tests/test_a.py: test_b is gone`.

    Only lines are examined. A test that was renamed or moved to another file is listed as gone.
    """
    path, gone, added, skips = "", dict[str, str](), set[str](), list[str]()
    for line in patch.decode("utf-8", "replace").splitlines():
        if line.startswith("diff --git "):
            path = line.rsplit(" ", 1)[-1]
        elif line.startswith("-") and not line.startswith("--- "):
            if (found := _TEST.match(line[1:])) is not None:
                gone[next(filter(None, found.groups()))] = path
        elif line.startswith("+") and not line.startswith("+++ "):
            if (found := _TEST.match(line[1:])) is not None:
                added.add(next(filter(None, found.groups())))
            if _SKIP.search(line) is not None:
                skips.append(f"{path}: {line[1:].strip()[:100]}")
    yield from (f"{where}: {name} is gone" for name, where in gone.items() if name not in added)
    yield from skips
