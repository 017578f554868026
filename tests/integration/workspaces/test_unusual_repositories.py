"""Repositories that cannot be fetched whole, and filters that no clone brings along, are told of."""

import shlex
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import pytest

from symphony.config import HooksSettings
from symphony.domain import Blame, Category, Failure, Issue
from symphony.processes.local import LocalHost
from symphony.workspaces import Git, WorkspaceError, WorkspaceManager, missing_filters
from symphony.workspaces.repository import RepositoryTrial

pytestmark = pytest.mark.asyncio

GitCommand = Callable[..., str]
MakeManager = Callable[..., WorkspaceManager]
MakeIssue = Callable[[str], Issue]
Find = Callable[..., Awaitable[dict[str, bool]]]


@pytest.fixture
def upstream(repo: Path, git: GitCommand) -> Path:
    """A repository with some history, which gives away what is asked of it."""
    git(repo, "config", "uploadpack.allowFilter", "true")
    git(repo, "config", "uploadpack.allowAnySHA1InWant", "true")
    add_commits(repo, git)
    return repo


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Where a repository is tried."""
    path = tmp_path / "trial"
    path.mkdir()
    return path


def add_commits(repo: Path, git: GitCommand) -> None:
    for _ in range(3):
        with (repo / "README.md").open("a") as file:
            file.write("more\n")
        git(repo, "commit", "-qam", "more")


def clone(upstream: Path, git: GitCommand, *options: str) -> Path:
    target = upstream.parent / "clone"
    git(upstream.parent, "clone", "-q", *options, f"file://{upstream}", str(target))
    return target


def run_repair(hint: str, environment: dict[str, str], source: Path) -> None:
    """Carry out the command of a hint."""
    command = hint.split("`")[1]
    done = subprocess.run(
        ["sh", "-c", command], cwd=source, env=environment, check=False, capture_output=True
    )
    assert done.returncode == 0, done.stderr


async def failure_of(manager: WorkspaceManager, issue: Issue) -> Failure:
    with pytest.raises(WorkspaceError) as caught:
        await manager.prepare(issue, None)
    return caught.value.failure


async def trial_of(manager: WorkspaceManager, place: Path) -> RepositoryTrial | Failure:
    try:
        return await manager.try_repository(place)
    except WorkspaceError as error:
        return error.failure


@pytest.mark.parametrize(
    "options",
    [["--depth=1"], ["--filter=blob:none", "--no-checkout"], ["--filter=tree:0", "--sparse"]],
)
@pytest.mark.parametrize("form", ["{}", "file://{}"])
async def test_a_source_that_lacks_objects_is_refused_until_the_hint_is_followed(
    form: str,
    options: list[str],
    make_manager: MakeManager,
    upstream: Path,
    git: GitCommand,
    environment: dict[str, str],
    issue: MakeIssue,
    place: Path,
) -> None:
    source = clone(upstream, git, *options)
    manager = make_manager(repo=form.format(source))
    await manager.check_repository()
    tried = await trial_of(manager, place)
    assert isinstance(tried, Failure), "doctor says what a run says"
    failure = await failure_of(manager, issue("MT-1"))
    assert failure.category is Category.WORKSPACE_REPOSITORY
    assert failure.hint is not None
    assert (tried.category, tried.hint) == (failure.category, failure.hint)

    run_repair(failure.hint, environment, source)
    made = await manager.prepare(issue("MT-1"), None)
    assert made.base_commit == git(source, "rev-parse", "origin/main")
    add_commits(upstream, git)
    git(source, "fetch", "-q")
    git(source, "update-ref", "refs/heads/main", "origin/main")
    assert (await manager.prepare(issue("MT-2"), None)).base_commit == git(upstream, "rev-parse", "main")


async def test_a_source_that_becomes_shallow_between_two_runs_is_told_and_not_used_as_it_was(
    make_manager: MakeManager, upstream: Path, git: GitCommand, environment: dict[str, str], issue: MakeIssue
) -> None:
    source = clone(upstream, git)
    manager = make_manager(repo=str(source))
    await manager.prepare(issue("MT-1"), None)
    add_commits(upstream, git)
    git(source, "fetch", "-q", "--depth=1")
    git(source, "update-ref", "refs/heads/main", "origin/main")

    failure = await failure_of(manager, issue("MT-2"))

    assert (failure.blame, failure.retryable) == (Blame.CONFIG, False)
    assert failure.hint is not None
    run_repair(failure.hint, environment, source)
    assert (await manager.prepare(issue("MT-2"), None)).base_commit == git(upstream, "rev-parse", "main")


async def test_a_shallow_branch_beside_a_whole_base_hinders_nothing(
    make_manager: MakeManager, upstream: Path, git: GitCommand, issue: MakeIssue
) -> None:
    source = clone(upstream, git)
    manager = make_manager(repo=str(source))
    await manager.prepare(issue("MT-1"), None)
    git(upstream, "checkout", "-q", "-b", "other")
    add_commits(upstream, git)
    git(source, "fetch", "-q", "--depth=1", "origin", "other:other")

    assert (await manager.prepare(issue("MT-2"), None)).base_commit == git(source, "rev-parse", "main")


async def test_a_whole_repository_passes_its_trial_and_nothing_is_left(
    make_manager: MakeManager, upstream: Path, place: Path, root: Path
) -> None:
    tried = await trial_of(make_manager(repo=str(upstream)), place)

    assert tried == RepositoryTrial(missing=(), unusual=())
    assert not await anyio.Path(root).exists()


async def test_a_partial_clone_that_can_be_fetched_for_now_is_unusual(
    make_manager: MakeManager, upstream: Path, git: GitCommand, place: Path
) -> None:
    source = clone(upstream, git, "--filter=blob:limit=1m")

    tried = await trial_of(make_manager(repo=str(source)), place)

    assert isinstance(tried, RepositoryTrial)
    (trait,) = tried.unusual
    assert shlex.quote(str(source)) in trait.repair


# --- filters ---


@pytest.fixture
def find(repo: Path, git: GitCommand, environment: dict[str, str]) -> Find:
    """The filters that are missing with these attributes: each name, and whether the repository has it."""

    async def find(
        attributes: str, *, file: str = ".gitattributes", hook: str | None = None
    ) -> dict[str, bool]:
        write(repo / file, attributes)
        git(repo, "add", "-A")
        git(repo, "commit", "-q", "--allow-empty", "-m", "attributes")
        found = await missing_filters(
            Git(LocalHost(), environment, frozenset()), repo, "main", source=repo, hook=hook
        )
        assert all(missing.hint for missing in found)
        return {missing.name: missing.source is not None for missing in found}

    return find


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


CRYPT = "secret/* filter=git-crypt diff=git-crypt\n"


@pytest.mark.parametrize(
    ("attributes", "file", "hook", "own", "personal", "missing"),
    [
        (CRYPT, ".gitattributes", None, [], [], {"git-crypt": False}),
        (CRYPT, ".gitattributes", None, ["git-crypt"], [], {"git-crypt": True}),
        (CRYPT, "deep/er/.gitattributes", None, ["git-crypt"], [], {"git-crypt": True}),
        (CRYPT, ".git/info/attributes", None, ["git-crypt"], [], {"git-crypt": True}),
        ("[attr]hidden filter=age\n*.key hidden\n", ".gitattributes", None, ["age"], [], {"age": True}),
        ("*.bin\tfilter=lfs -text\n*.ipynb filter=nb\n", ".gitattributes", None, [], ["lfs"], {"nb": False}),
        ("a filter=with.dots\n", ".gitattributes", None, ["with.dots"], [], {"with.dots": True}),
        # the neighbours that need nothing
        (CRYPT, ".gitattributes", None, ["git-crypt"], ["git-crypt"], {}),
        (CRYPT, ".gitattributes", "git-crypt unlock ~/key", ["git-crypt"], [], {}),
        ("# a filter=x\n*.txt -filter\n*.md !filter text\n", ".gitattributes", None, [], [], {}),
        (CRYPT, "attributes.txt", None, [], [], {}),
        ("", ".gitattributes", None, ["unused"], [], {}),
    ],
)
async def test_filters_that_workspaces_will_not_have_are_found(
    *,
    attributes: str,
    file: str,
    hook: str | None,
    own: list[str],
    personal: list[str],
    missing: dict[str, bool],
    repo: Path,
    git: GitCommand,
    find: Find,
) -> None:
    for scope, names in (("--local", own), ("--global", personal)):
        for name in names:
            git(repo, "config", scope, f"filter.{name}.clean", "cat")

    assert await find(attributes, file=file, hook=hook) == missing


async def test_a_trial_finds_filters_of_a_repository_elsewhere(
    make_manager: MakeManager, repo: Path, git: GitCommand, place: Path
) -> None:
    write(repo / ".gitattributes", CRYPT)
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "attributes")
    hooks = HooksSettings.model_validate({"after_create": "npm install"})

    tried = await trial_of(make_manager(repo=f"file://{repo}", hooks=hooks), place)

    assert isinstance(tried, RepositoryTrial)
    assert [missing.name for missing in tried.missing] == ["git-crypt"]
