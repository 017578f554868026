"""Delivers committed work from a workspace to the mirror, the operator's local repository, and `origin`.

The mirror belongs to the daemon and accepts everything. The local repository and `origin` belong to people:
there a branch only moves forward, or away from a commit that the daemon itself put there.

If `workspace.repo` is a path, `origin` is the remote of that name in the local repository, else
`workspace.repo` itself. A push runs in the local repository, so that the operator's settings for the remote
apply (`pushurl`, `insteadOf`, `core.sshCommand`, credential helpers), but without its hooks. A login in the
address of `origin` is given to git separately (`split_login`).
"""

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Final

import structlog
from msgspec import Struct

from symphony import to_thread
from symphony.config import WorkspaceSettings
from symphony.domain import BRANCH_PREFIX, Blame, Category, DeliveredBranch, Failure, FileChange, WorkSize
from symphony.workspaces import git, model
from symphony.workspaces.files import temporary_directory
from symphony.workspaces.layout import Layout, resolve
from symphony.workspaces.mirror import FETCH, FETCH_FAR, UNCHECKED, Mirror
from symphony.workspaces.shadow import RefSnapshot, Shadow, open_shadow, read_ref_snapshot

_FETCH: Final = (*FETCH, "--no-tags")
_PUSH: Final = (
    *("-c", "remote.origin.mirror=false"),  # git refuses refspecs for a mirror
    # The progress output of git and the remote shows that a push makes headway.
    *("push", "--progress", "--no-verify", "--no-follow-tags", "--no-signed", "--recurse-submodules=no"),
)
_LONGEST_PUSH_MS: Final = 6 * 3_600_000
_TAKEN: Final = re.compile(r"'refs/heads/([^']+)' exists; ")
_CHECKED_OUT: Final = re.compile(r"checked out at '(.+)'")
FETCHED_BASES: Final = "refs/symphony/fetched/"
"""The prefix of the branches that `Publisher.fetch_base` fetched into the mirror."""

_PROBE_REF: Final = "refs/heads/symphony/doctor"  # for dry runs only
_PROBE_TIMEOUT_MS: Final = 15_000
_MAX_NAMED: Final = 5
_log = structlog.get_logger(__name__)


class BranchLocation(Struct, frozen=True, kw_only=True):
    """Where people find a delivered branch.

    Attributes:
        repository: a path, or an address without credentials.
        fetch: the command that fetches the branch into another clone; `None` if `repository` is the
            operator's own.
    """

    repository: str
    fetch: str | None


class TakenName(Struct, frozen=True, kw_only=True):
    """A branch of a local repository that prevents branches of issues, and the remedy."""

    message: str
    hint: str


def taken_names(repository: Path, listed: str) -> Iterator[TakenName]:
    """The branches that prevent branches of issues, from the output of `git for-each-ref` for `TAKEN_FORMAT`.

    Git allows no branch `a` beside `a/b`, and moves no branch that is checked out.
    """
    command = f"git -C {shlex.quote(str(repository))} branch -m"
    for line in listed.splitlines():
        name, _, worktree = line.partition(" ")
        below = name.removeprefix(BRANCH_PREFIX)
        if f"{name}/" == BRANCH_PREFIX:
            message = f"the branch {name} in {repository} keeps every branch {BRANCH_PREFIX}* out"
            yield TakenName(message=message, hint=rename_hint(name, command))
        elif "/" in below and below != name:
            kept_out = f"{BRANCH_PREFIX}{below.partition('/')[0]}"
            message = f"the branch {name} in {repository} keeps the branch {kept_out} out"
            yield TakenName(message=message, hint=rename_hint(name, command))
        elif worktree and below != name:
            message = f"{name} is checked out in {worktree}, where new work on its issue cannot be put"
            yield TakenName(message=message, hint="check out another branch there")


TAKEN_FORMAT: Final = "--format=%(refname:lstrip=2) %(worktreepath)"


def locate_branch(
    settings: WorkspaceSettings, branch: str, *, pushed: bool, placed: bool = True
) -> BranchLocation | None:
    """Where a branch is or will be after its delivery; `None` if hooks populate workspaces.

    `pushed` says whether `origin` has it, `placed` whether a local repository does. Reads no repository.
    """
    repository = settings.repo
    if repository is None:
        return None
    if model.local_repository(repository) is not None:
        if placed:
            return BranchLocation(repository=repository, fetch=None)
        mirror = str(mirror_path(settings))
        fetch = f"git fetch {shlex.quote(mirror)} {shlex.quote(branch)} && git diff HEAD...FETCH_HEAD"
        return BranchLocation(repository=mirror, fetch=fetch)
    if pushed:
        fetch = f"git fetch origin {shlex.quote(branch)}"
        return BranchLocation(repository=git.without_credentials(repository), fetch=fetch)
    mirror = str(mirror_path(settings))
    fetch = f"git fetch {shlex.quote(mirror)} {shlex.quote(f'{branch}:{branch}')}"
    return BranchLocation(repository=mirror, fetch=fetch)


def mirror_path(settings: WorkspaceSettings) -> Path:
    """The mirror of `workspace.repo`, which must be set; the mirror need not exist."""
    try:
        root = resolve(settings.root)
    except OSError:  # an error is reported when the root is used
        root = settings.root
    return Layout(root).mirror(settings.repo or "")


def delivery_failure(message: str, *, hint: str | None = None) -> Failure:
    """The failure for work that stays in the workspace; the next run or removal tries again."""
    return Failure(
        category=Category.DELIVERY_FAILED,
        blame=Blame.WORKSPACE,
        message=f"the work could not be delivered and stays in the workspace: {message}",
        hint=hint,
    )


def push_failure(message: str, *, hint: str | None = None, retryable: bool = True) -> Failure:
    """The failure for a branch that is not on `origin`."""
    return Failure(
        category=Category.PUSH_FAILED, blame=Blame.WORKSPACE, message=message, hint=hint, retryable=retryable
    )


def branch_failure(message: str, *, hint: str | None = None, retryable: bool = True) -> Failure:
    """The failure for a branch that the local repository does not have."""
    return Failure(
        category=Category.BRANCH_NOT_PLACED,
        blame=Blame.WORKSPACE,
        message=message,
        hint=hint,
        retryable=retryable,
    )


def taken_name(text: str) -> str | None:
    """The branch that prevents another one, from git's message: `a` and `a/b` exclude each other."""
    found = _TAKEN.search(text)
    return None if found is None else found[1]


def rename_hint(taken: str, command: str) -> str:
    """What to do about a branch that prevents branches of issues; `command` renames a branch."""
    return f"rename it: `{command} {shlex.join((taken, 'old-' + taken.replace('/', '-')))}`"


class DeliverySource(Struct, frozen=True, kw_only=True):
    """A workspace to deliver; the attributes are as in `StoredRecord`."""

    path: Path
    branch: str
    base_commit: str | None
    git_hashes: Mapping[str, str] | None


class Publisher:
    """Delivers work of one repository.

    Args:
        mirror: receives all work.
        push: whether `origin` gets it too.
        stall_ms: a push is ended after this time without headway.
    """

    def __init__(self, mirror: Mirror, *, push: bool, stall_ms: int) -> None:
        self._stall_ms = stall_ms
        self._git = mirror.git
        self._mirror = mirror
        self._local = model.local_repository(mirror.repository)
        self._push = push

    async def deliver(self, source: DeliverySource) -> model.Delivery:
        """Deliver the committed work of a workspace.

        Never raises for mistakes of the agent or of git; the result has a `failure` instead. File modes in
        the workspace are not changed, because they can be part of the work.
        """
        seen = await to_thread.run_sync(read_ref_snapshot, source.path, source.git_hashes)
        warnings = tuple(f".git/{name} is not as it was made; it is not used" for name in seen.changed)
        delivery = model.Delivery(head=seen.head, warnings=warnings)
        path = shlex.quote(str(source.path))
        repair = f"see what the agent did to {source.path} (`chmod -R u+rwX {path}` gives rights back)"
        if seen.head is None:
            problem = seen.problem or ".git/HEAD names no commit"
            return replace(delivery, failure=delivery_failure(problem, hint=repair))
        try:
            return await self._deliver(source, seen, seen.head, delivery)
        except (git.GitError, OSError) as error:
            hint = git.hint_of(error, self._mirror.path.parent, repair)
            return replace(delivery, failure=delivery_failure(str(error), hint=hint))

    async def _deliver(
        self, source: DeliverySource, seen: RefSnapshot, checked_out: str, delivery: model.Delivery
    ) -> model.Delivery:
        ref, head, warning = f"refs/heads/{source.branch}", checked_out, None
        in_mirror = await to_thread.run_sync(git.read_ref, self._mirror.path, ref)
        known = in_mirror or source.base_commit
        if not seen.tips.get(ref) == head == known:
            async with open_shadow(
                self._git,
                self._mirror.layout.staging,
                source.path,
                head,
                git_hashes=source.git_hashes,
                objects=self._mirror.objects,
            ) as shadow:
                head, warning = await self._choose_head(shadow, source.branch, seen, head)
                if head != known:
                    await shadow.point_at(head)
                    await self._git.isolated(
                        "-C", self._mirror.path, *_FETCH, shadow.git_dir, f"+{shadow.tip}:{ref}"
                    )
        delivery = _with_warning(replace(delivery, head=head), warning)
        if in_mirror is None and head == source.base_commit:
            return delivery  # without a commit there is no branch
        return await self.publish(delivery, source.branch, head, source.base_commit)

    async def publish(
        self, delivery: model.Delivery, branch: str, head: str, base_commit: str | None
    ) -> model.Delivery:
        """Copy a branch of the mirror to the local repository; `push` copies it to `origin`.

        Raises:
            GitError, OSError: the mirror cannot be read.
        """
        # How many commits the branch has beyond its start, or beyond everything in the repository.
        since = base_commit or "--remotes"
        count = await self._git.isolated("-C", self._mirror.path, "rev-list", "--count", head, "--not", since)
        files = await self._diff(base_commit, head)
        pushed = self._push and (
            await self._last_head(branch, "pushed") == head or await self._is_merged(branch, head)
        )
        delivered = DeliveredBranch(
            branch=branch,
            head=head,
            work=WorkSize.of(int(count), files),
            branch_failure=await self.place(branch),
            pushed=pushed,
            to_push=self._push and not pushed,
        )
        delivery = replace(
            delivery,
            work=delivered.work,
            files=files,
            delivered=delivered if delivered.work.commits else None,
        )
        if base_commit is None:
            return delivery
        return _with_warning(delivery, await self._embedded(base_commit, head))

    async def _choose_head(
        self, shadow: Shadow, branch: str, seen: RefSnapshot, head: str
    ) -> tuple[str, str | None]:
        """The commit to deliver, and a warning about the choice.

        Agents create their own branches. `HEAD` counts as the work as long as it continues the issue's
        branch.
        """
        own = seen.tips.get(f"refs/heads/{branch}")
        where = seen.head_branch or "a detached HEAD"
        if own == head:
            return head, None
        if own is None or await self._git.is_ancestor(shadow.git_dir, own, head):
            return head, f"the work was on {where}; delivered as {branch}"
        return own, f"{where} does not go on from {branch}; only {branch} was delivered"

    async def _diff(self, base_commit: str | None, head: str) -> tuple[FileChange, ...]:
        if base_commit is None:
            return ()
        diff = ("diff", *model.NUMSTAT, base_commit, head, "--")
        try:
            return model.parse_numstat(await self._git.isolated("-C", self._mirror.path, *diff))
        except git.GitError as error:
            _log.warning("changes_unknown", head=head, reason=str(error))
            return ()

    async def _embedded(self, base_commit: str, head: str) -> str | None:
        """A warning about nested repositories that are committed as links without a submodule entry."""
        try:
            listing = await self._git.isolated(
                "-C", self._mirror.path, "diff", "--raw", "--no-renames", "-z", base_commit, head, "--"
            )
        except git.GitError:  # the changes are unknown, and the log says so
            return None
        records = listing.split(b"\0")
        links = [name for entry, name in pairwise(records) if entry.split(b" ")[1:2] == [b"160000"]]
        if not links:
            return None
        keys = ("--blob", f"{head}:.gitmodules", "-z", "--get-regexp", r"^submodule\..*\.path$")
        try:
            modules = await self._git.isolated("-C", self._mirror.path, "config", *keys)
        except git.GitError:  # there is no such file
            modules = b""
        known = {entry.partition(b"\n")[2] for entry in modules.split(b"\0")}
        names = [name.decode("utf-8", "replace") for name in links if name not in known]
        if not names:
            return None
        return (
            f"{', '.join(names[:_MAX_NAMED])}: a repository of its own, of which the branch has a link and no"
            " file; let the agent delete its .git and commit the files"
        )

    async def place(self, branch: str) -> Failure | None:
        """Copy a delivered branch to the local repository, whose receive hooks do not run.

        Commits of people on the branch are never overwritten. A branch that people deleted comes back only
        with new work.

        Returns:
            `None` if it has the mirror's commit, or if there is no local repository. Never raises for an
            error of git.
        """
        repository, ref = self._local, f"refs/heads/{branch}"
        if repository is None:
            return None
        try:
            head = await to_thread.run_sync(git.read_ref, self._mirror.path, ref)
            if head is None:
                return branch_failure(f"there is no delivered branch {branch}", retryable=False)
            if await self._is_merged(branch, head):
                return None
            found = await self._find_local(repository, branch)
            last = await self._last_head(branch, "repository")
            if last == head and found is None:
                return branch_failure(
                    f"{branch} was deleted or renamed in {repository}",
                    hint=f"bring it back: {self._fetch_command(repository, branch, branch)}",
                    retryable=False,
                )
            if found != head and not await self._contains(repository, ref, head):
                await self._fetch_into(repository, ref, replaceable=found is not None and found == last)
            await self._remember_head(branch, "repository", head)
        except (git.GitError, OSError) as error:
            message = f"{branch} was left alone in {repository}: {error}"
            return branch_failure(message, hint=self._place_hint(repository, branch, error))
        return None

    async def _find_local(self, repository: Path, branch: str) -> str | None:
        """The commit of a branch in the operator's repository; `None` if it is not there.

        Raises:
            GitError: a branch exists whose name differs only in case, on a file system that ignores case.
        """
        ref = f"refs/heads/{branch}"
        found = await self._refs(repository, ref)
        ask = ("config", "--type=bool", "--default=false", "core.ignoreCase")
        if ref not in found and await self._git.trusted("-C", repository, *ask) == b"true\n":
            heads = await self._refs(repository, "refs/heads/")
            if same := next((name for name in heads if name.casefold() == ref.casefold()), None):
                raise git.GitError(f"'{same}' exists; its name differs in upper and lower case only")
        return found.get(ref)

    async def _refs(self, repository: Path, pattern: str, *options: str) -> dict[str, str]:
        """The refs of the operator's repository that match, with their commits."""
        show = ("for-each-ref", "--format=%(objectname) %(refname)", *options, pattern)
        output = (await self._git.trusted("-C", repository, *show)).decode("utf-8", "surrogateescape")
        return {name: commit for commit, _, name in (line.partition(" ") for line in output.splitlines())}

    async def _contains(self, repository: Path, ref: str, head: str) -> bool:
        """Whether a branch of the operator's repository has a commit."""
        try:
            return ref in await self._refs(repository, ref, "--contains", head)
        except git.GitError:  # this is how git reports that the repository lacks the commit
            return False

    async def _fetch_into(self, repository: Path, ref: str, *, replaceable: bool) -> None:
        """Fetch a branch of the mirror into the operator's repository; replace a `replaceable` one."""
        fetch = ("-C", repository, *_FETCH, "--verbose", self._mirror.path)  # a quiet fetch hides refusals
        try:
            await self._git.trusted(*fetch, f"{ref}:{ref}")
        except git.GitError as error:
            if not (replaceable and _is_rejected(error)):
                raise
            await self._git.trusted(*fetch, f"+{ref}:{ref}")

    def _place_hint(self, repository: Path, branch: str, error: Exception) -> str | None:
        """What a person can do about a branch that the local repository refused."""
        text = _output(error)
        if (taken := taken_name(text)) is not None:
            return rename_hint(taken, f"git -C {shlex.quote(str(repository))} branch -m")
        if found := _CHECKED_OUT.search(text):
            pull = f"git -C {shlex.quote(found[1])} pull --ff-only {shlex.quote(str(self._mirror.path))}"
            return f"get the work there, `{pull} {shlex.quote(branch)}`, or check out another branch there"
        if found := git.LOCKED.search(text):
            return f"see that no git is at work in {repository}, and delete {found[1]}"
        if _is_rejected(error):
            aside = self._fetch_command(repository, branch, f"{branch}-delivered")
            return f"someone else changed {branch} there: rename or merge theirs, or get the work by {aside}"
        return git.hint_of(error, repository, f"see that this user may write to {repository}")

    def _fetch_command(self, repository: Path, branch: str, target: str) -> str:
        words = ("git", "-C", str(repository), "fetch", str(self._mirror.path), f"{branch}:{target}")
        return f"`{shlex.join(words)}`"

    async def push(self, branch: str) -> Failure | None:
        """Push a delivered branch to `origin`; commits of other people on it are never overwritten.

        Returns:
            `None` if `origin` has the mirror's commit. Never raises for an error of git or of the remote.
        """
        try:
            head = await to_thread.run_sync(git.read_ref, self._mirror.path, f"refs/heads/{branch}")
            if head is None:
                return push_failure(f"there is no delivered branch {branch}", retryable=False)
            last = await self._last_head(branch, "pushed")
            if last == head or await self._is_merged(branch, head):
                return None
            destinations = await self._destinations()
            if not destinations:
                return self._no_origin()
            if self._local is not None:  # the local branch may lack commits that the push needs
                await self._git.trusted("-C", self._local, *_FETCH, self._mirror.path, f"refs/heads/{branch}")
            where, refspec = self._local or self._mirror.path, f"{head}:refs/heads/{branch}"
            try:
                await self._push_refspec(where, destinations, refspec)
            except git.GitError as error:
                if last is None or not _is_rejected(error):
                    raise
                lease = f"--force-with-lease=refs/heads/{branch}:{last}"
                await self._push_refspec(where, destinations, refspec, lease)
            await self._remember_head(branch, "pushed", head)
        except (git.GitError, OSError) as error:
            message = f"{branch} could not be pushed to origin: {error}"
            return push_failure(message, hint=self._push_hint(branch, error))
        return None

    def _push_hint(self, branch: str, error: Exception) -> str | None:
        text = _output(error)
        if _is_rejected(error):
            return f"someone else changed {branch} on origin: delete or rename it there, or merge it"
        if isinstance(error, git.SilentError):
            longer = "if its hooks need longer, raise workspace.push_stall_timeout_ms"
            return f"see whether origin answers; {longer}"
        if (taken := taken_name(text)) is not None:
            return f"rename or delete the branch {taken} on origin"
        if "! [remote rejected]" in text or "aborted by hook" in text:
            return f"origin refuses {branch}: see its protected branches and hooks"
        return git.hint_of(error, self._mirror.path.parent, self._login_hint())

    async def fetch_base(self, branch: str) -> str:
        """Fetch a branch of `origin` into the mirror, whose objects every workspace has; return its commit.

        A local repository may be behind `origin`, so it gets the branch as by `git fetch origin BRANCH`.

        Raises:
            GitError, OSError: it could not be fetched.
        """
        options = ("--no-tags", "--refmap=", "--recurse-submodules=no")
        source, kept = f"refs/heads/{branch}", f"{FETCHED_BASES}{branch}"
        if self._local is None:
            fetch = ("-C", self._mirror.path, *UNCHECKED, *FETCH_FAR, *options)
            remote, refspec = self._mirror.repository, f"+{source}:{kept}"
            await self._git.fetch(*fetch, remote, refspec, login=self._git.login)
        else:
            url = await self._git.trusted("-C", self._local, "remote", "get-url", "origin")
            address, login = model.split_login(url.decode("utf-8", "surrogateescape").strip())
            remote = "origin" if login is None else address
            tracking = f"refs/remotes/origin/{branch}"
            refspec = f"+{source}:{tracking}"
            update = ("-C", self._local, *FETCH_FAR, *options)
            await self._git.fetch(*update, remote, refspec, login=login)
            await self._git.trusted(
                "-C", self._mirror.path, *UNCHECKED, *FETCH, *options, self._local, f"+{tracking}:{kept}"
            )
        commit = await to_thread.run_sync(git.read_ref, self._mirror.path, kept)
        if commit is None:
            raise git.GitError(f"{branch} was fetched and is missing")
        return commit

    async def delete(self, branch: str, head: str) -> model.Removal:
        """Delete a merged branch from `origin` and from the local repository.

        Each of them loses it only if the daemon put it at `head` and it is still there. A branch that is
        already gone, because a forge may delete it itself, is no failure, so a repetition changes nothing.
        The mirror keeps the branch and records that it is merged, so new work on the issue begins at the
        base.

        Raises:
            GitError, OSError: it is unknown whether the branch is deleted.
        """
        reasons, removed = list[str](), False
        for place in ("pushed", "repository"):
            last = await self._last_head(branch, place)
            if last is None:
                continue
            reason = None
            if last != head:
                reason = f"the daemon put another commit on {branch} than was merged"
            else:
                await self._remember_head(branch, "merged", head)
                if place == "pushed":
                    reason = await self._delete_pushed(branch, head)
                elif self._local is not None:
                    reason = await self._delete_local(self._local, branch, head)
            if reason is None:
                ref = f"refs/symphony/{place}/{branch}"
                await self._git.isolated("-C", self._mirror.path, "update-ref", "-d", ref)
                removed = True
            else:
                reasons.append(reason)
        return model.Removal(removed=removed, kept_reason="; ".join(dict.fromkeys(reasons)) or None)

    async def _delete_pushed(self, branch: str, head: str) -> str | None:
        """Delete the branch from `origin`; return why it was kept."""
        where, ref = self._local or self._mirror.path, f"refs/heads/{branch}"
        for remote, login in await self._destinations():
            look = ("ls-remote", "--", remote, ref)
            shown = await self._git.over_network("-C", where, *look, login=login)
            if not shown:
                continue
            try:
                lease = f"--force-with-lease={ref}:{head}"
                await self._push_refspec(where, [(remote, login)], f":{ref}", lease)
            except git.GitError as error:
                if _is_rejected(error):
                    return f"{branch} on origin has newer commits"
                if "! [remote rejected]" in str(error):
                    return f"origin does not let {branch} be deleted: {error}"
                raise
        return None

    async def _delete_local(self, repository: Path, branch: str, head: str) -> str | None:
        """Delete the branch from the operator's repository; return why it was kept."""
        ref = f"refs/heads/{branch}"
        show = ("for-each-ref", "--format=%(objectname) %(worktreepath)", ref)
        shown = await self._git.trusted("-C", repository, *show)
        found, _, worktree = shown.decode("utf-8", "surrogateescape").strip().partition(" ")
        if worktree:
            return f"{branch} is checked out in {worktree}"
        if found not in {"", head}:
            return f"{branch} in {repository} has changed"
        if found:
            await self._git.trusted("-C", repository, "update-ref", "--no-deref", "-d", ref, head)
        return None

    async def probe(self) -> Failure | None:
        """Check by a dry run whether `origin` accepts branches; changes nothing.

        Returns:
            `None` if it does, as far as a dry run can tell.
        """
        try:
            destinations = await self._destinations()
            if not destinations:
                return self._no_origin()
            if self._local is not None:
                await self._dry_run(self._local, destinations, "HEAD")
                return None
            async with temporary_directory(None, "symphony-push-") as scratch:
                refs = await self._mirror.look()
                config = git.repository_config(next(iter(refs.branches.values()), None), bare=True)
                await to_thread.run_sync(git.write_git_dir, scratch, config)
                identity = ("-c", "user.name=symphony", "-c", "user.email=symphony@localhost")
                tree = await self._git.trusted("-C", scratch, "mktree", "--missing")  # it belongs to no entry
                commit = ("commit-tree", "-m", "never pushed", tree.decode().strip())
                made = await self._git.trusted("-C", scratch, *identity, *commit)
                await self._dry_run(scratch, destinations, made.decode().strip())
        except model.WorkspaceError as error:
            return error.failure
        except (git.GitError, OSError) as error:
            hint = self._push_hint(f"{BRANCH_PREFIX}*", error)
            return push_failure(f"origin does not accept branches: {error}", hint=hint)
        return None

    async def _destinations(self) -> list[tuple[str, model.Login | None]]:
        """The remotes to push to, each with its login; empty if the local repository has no `origin`."""
        if self._local is None:
            return [(self._mirror.repository, self._git.login)]
        try:
            urls = await self._git.trusted(
                "-C", self._local, "remote", "get-url", "--push", "--all", "origin"
            )
        except git.GitError:
            return []
        found = [model.split_login(line) for line in urls.decode("utf-8", "surrogateescape").splitlines()]
        return found if any(login for _, login in found) else [("origin", None)]

    async def _push_refspec(
        self,
        where: Path,
        destinations: list[tuple[str, model.Login | None]],
        refspec: str,
        *options: str,
        timeout_ms: int | None = None,
    ) -> None:
        for remote, login in destinations:
            push = (*_PUSH, *options, "--", remote, refspec)
            limit_ms = timeout_ms or _LONGEST_PUSH_MS
            await self._git.trusted(
                "-C", where, *push, timeout_ms=limit_ms, login=login, silence_ms=self._stall_ms
            )

    async def _dry_run(
        self, where: Path, destinations: list[tuple[str, model.Login | None]], commit: str
    ) -> None:
        timeout_ms = min(_PROBE_TIMEOUT_MS, self._git.network_timeout_ms)
        taken = f"refs/heads/{BRANCH_PREFIX.removesuffix('/')}"
        for remote, login in destinations:
            look = ("-C", where, "ls-remote", "--", remote, taken)
            if await self._git.trusted(*look, timeout_ms=timeout_ms, login=login):
                raise git.GitError(f"'{taken}' exists; it keeps every branch {BRANCH_PREFIX}* out")
        refspec = f"+{commit}:{_PROBE_REF}"
        await self._push_refspec(where, destinations, refspec, "--dry-run", timeout_ms=timeout_ms)

    async def _last_head(self, branch: str, place: str) -> str | None:
        """The commit that the daemon itself put on the branch in the local repository or on `origin`."""
        return await to_thread.run_sync(git.read_ref, self._mirror.path, f"refs/symphony/{place}/{branch}")

    async def _remember_head(self, branch: str, place: str, head: str) -> None:
        ref = f"refs/symphony/{place}/{branch}"
        await self._git.isolated("-C", self._mirror.path, "update-ref", ref, head)

    async def _is_merged(self, branch: str, head: str) -> bool:
        """Whether the branch is merged and deleted; the delivery before a removal must not restore it."""
        return await self._last_head(branch, "merged") == head

    def _no_origin(self) -> Failure:
        return push_failure(
            f"{self._local} has no remote `origin` to push to",
            hint="add one with `git remote add origin URL`, or set workspace.push: never",
        )

    def _login_hint(self) -> str:
        where = "origin" if self._local else shlex.quote(git.without_credentials(self._mirror.repository))
        inside = f" in {self._local}" if self._local else ""
        return (
            f"see whether this user can push there: `git push --dry-run {where} HEAD:symphony/test`{inside}"
        )


def _is_rejected(error: Exception) -> bool:
    """Whether git refused to overwrite the remote branch. A refusal by the remote has another text."""
    return "! [rejected]" in _output(error)


def _output(error: Exception) -> str:
    return error.output if isinstance(error, git.GitError) else str(error)


def _with_warning(delivery: model.Delivery, warning: str | None) -> model.Delivery:
    return delivery if warning is None else replace(delivery, warnings=(*delivery.warnings, warning))
