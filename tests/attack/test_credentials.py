"""The login in the address of a repository reaches git and nobody else.

It stands in no file below the workspace root, no command line, no hook's environment, and goes to no other
server; also where the login stands in `origin` of a local repository.
"""

import base64
import json
import os
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from urllib.parse import quote

import pytest
from anyio import to_thread

from harness.git_server import GitServer, git_server
from harness.project import Project
from harness.real import require_bubblewrap
from harness.shell import word
from harness.workspaces import delivered_branch
from symphony.config import (
    AGENT_SECTIONS,
    HooksSettings,
    Workflow,
    WorkflowFile,
    WorkspaceSettings,
    parse_workflow,
)
from symphony.daemon.context import build_context, build_isolation
from symphony.domain import Issue
from symphony.processes.local import LocalHost
from symphony.workspaces import Layout, Login, WorkspaceManager, split_login

USER = "bob"
PASSWORD = f"s3cret/of:Bob@home+1%{os.getpid()}"  # other test processes show theirs in `watched`
ISSUE = Issue(id="1", identifier="MT-1", title="A title", state="Todo", dispatchable=True)
FORMS = [
    PASSWORD,
    quote(PASSWORD),
    quote(PASSWORD, safe=""),
    base64.b64encode(PASSWORD.encode()).decode(),
    base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode(),
]

Make = Callable[..., WorkspaceManager]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    home = tmp_path / "home"
    home.mkdir()
    return {"PATH": os.environ["PATH"], "HOME": str(home)}


@pytest.fixture
def git(environment: dict[str, str]) -> Callable[..., str]:
    def run(where: Path, *arguments: str) -> str:
        who = ("-c", "user.name=Ann", "-c", "user.email=ann@example.org")
        done = subprocess.run(
            ["git", *who, *arguments], cwd=where, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    return run


@pytest.fixture
def server(tmp_path: Path, git: Callable[..., str]) -> Iterator[GitServer]:
    """A server with one repository, `x.git`, that asks for the login."""
    served = tmp_path / "served"
    served.mkdir()
    git(served, "init", "-q", "--bare", "-b", "main", "x.git")
    git(tmp_path, "clone", "-q", str(served / "x.git"), "first")
    git(tmp_path / "first", "commit", "-q", "--allow-empty", "-m", "first")
    git(tmp_path / "first", "push", "-q", "origin", "HEAD:main")
    with git_server(served, f"{USER}:{PASSWORD}") as serving:
        yield serving


@pytest.fixture
def make(tmp_path: Path, environment: dict[str, str]) -> Make:
    def made(repo: str, *, hooks: HooksSettings | None = None, **settings: object) -> WorkspaceManager:
        given = {"root": tmp_path / "root", "repo": repo, "push": "origin", **settings}
        return WorkspaceManager(
            LocalHost(),
            WorkspaceSettings.model_validate(given),
            hooks or HooksSettings(),
            environment,
            frozenset(),
            workflow=tmp_path / "WORKFLOW.md",
        )

    return made


def with_login(server: GitServer) -> str:
    return f"http://{USER}:{quote(PASSWORD, safe='')}@127.0.0.1:{server.port}/x.git"


@contextmanager
def watched() -> Iterator[set[str]]:
    """The command lines of all processes of this machine while the context lasts, as far as one sees them."""
    lines: set[str] = set()
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.002):
            for entry in Path("/proc").glob("[0-9]*"):
                try:
                    lines.add(
                        (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
                    )
                except OSError:
                    continue

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield lines
    finally:
        over.set()
        thread.join()


def leaks(root: Path) -> list[str]:
    """The files and links below a directory that hold the password, and those whose names do."""
    found = []
    for path in root.rglob("*"):
        content = path.read_bytes().decode("latin-1") if path.is_file() else ""
        if any(form in content or form in str(path) for form in FORMS):
            found.append(str(path))
    return found


async def worked_on(manager: WorkspaceManager, git: Callable[..., str]) -> None:
    """Everything that speaks with the server: look, clone, fetch, deliver and push."""
    await manager.check_root()
    await manager.check_repository()
    assert await manager.check_push() is None
    workspace = await manager.prepare(ISSUE, None)
    for message in ("one", "two"):
        git(workspace.path, "commit", "-q", "--allow-empty", "-m", message)
        assert delivered_branch(await manager.deliver(workspace)).to_push
        assert await manager.push("symphony/MT-1") is None
        assert delivered_branch(await manager.deliver(workspace)).pushed


@pytest.mark.asyncio
async def test_the_login_of_an_address_is_in_no_file_and_no_command_line(
    make: Make, server: GitServer, git: Callable[..., str], tmp_path: Path
) -> None:
    with watched() as lines:
        await worked_on(make(with_login(server)), git)

    assert git(server.root / "x.git", "log", "-1", "--format=%s", "symphony/MT-1") == "two"
    assert any("git" in line and server.address in line for line in lines)
    assert [line for line in lines if any(form in line for form in FORMS)] == []
    assert leaks(tmp_path) == []


@pytest.mark.slow
@pytest.mark.asyncio
async def test_the_login_in_origin_of_a_local_repository_is_in_no_command_line(
    make: Make, server: GitServer, git: Callable[..., str], tmp_path: Path
) -> None:
    local = tmp_path / "local"
    git(tmp_path, "clone", "-q", str(server.root / "x.git"), "local")
    git(local, "remote", "set-url", "origin", with_login(server))

    with watched() as lines:
        await worked_on(make(str(local)), git)

    assert git(server.root / "x.git", "log", "-1", "--format=%s", "symphony/MT-1") == "two"
    assert any("git" in line and server.address in line for line in lines)
    assert [line for line in lines if any(form in line for form in FORMS)] == []
    assert leaks(tmp_path) == [str(local / ".git" / "config")]  # the operator's own


@pytest.mark.asyncio
async def test_a_redirection_to_another_server_takes_no_login_along(make: Make, server: GitServer) -> None:
    with git_server(server.root, "eve:another") as other:
        server.elsewhere = other.address
        manager = make(with_login(server))
        await manager.check_root()
        with pytest.raises(Exception, match="cannot be fetched"):
            await manager.check_repository()
        assert other.seen == []


@pytest.mark.asyncio
async def test_helpers_of_the_operator_neither_answer_first_nor_keep_the_login(
    make: Make, server: GitServer, git: Callable[..., str], tmp_path: Path
) -> None:
    kept = tmp_path / "kept"
    helper = f"!f() {{ cat >> {kept}; echo username=eve; echo password=wrong-one; }}; f"
    git(tmp_path, "config", "--global", "credential.helper", helper)

    await make(with_login(server)).check_repository()

    assert not kept.exists()


@pytest.mark.asyncio
async def test_a_user_without_a_password_leaves_the_password_to_the_operators_helpers(
    make: Make, server: GitServer, git: Callable[..., str], tmp_path: Path
) -> None:
    helper = f"!f() {{ grep -q username={USER} && echo 'password={PASSWORD}'; }}; f"
    git(tmp_path, "config", "--global", "credential.helper", helper)

    await make(f"http://{USER}@127.0.0.1:{server.port}/x.git").check_repository()

    assert server.seen


@pytest.mark.asyncio
async def test_a_hook_sees_nothing_of_it(make: Make, server: GitServer, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    hooks = HooksSettings(after_create=f"env > {word(seen)}; git config --list >> {word(seen)}")
    manager = make(with_login(server), hooks=hooks)
    await manager.check_root()

    await manager.prepare(ISSUE, None)

    assert "SYMPHONY_ISSUE_ID" in seen.read_text()
    assert [form for form in FORMS if form in seen.read_text()] == []
    assert "SYMPHONY_REPO" not in seen.read_text()


@pytest.mark.asyncio
async def test_what_an_earlier_start_left_is_cleaned_and_its_clones_go_on(
    make: Make, server: GitServer, git: Callable[..., str], tmp_path: Path
) -> None:
    manager = make(with_login(server))
    await manager.check_root()
    workspace = await manager.prepare(ISSUE, None)
    git(workspace.path, "commit", "-q", "--allow-empty", "-m", "one")
    await manager.deliver(workspace)
    layout = Layout(tmp_path / "root")
    old = layout.mirrors / f"{'0' * 40}.git"
    layout.mirror(with_login(server)).rename(old)
    for path in (old / "config", layout.record("MT-1")):
        path.write_text(path.read_text().replace(server.address + "/x.git", with_login(server)))
    (workspace.path / ".git" / "objects" / "info" / "alternates").write_text(f"{old / 'objects'}\n")
    assert len(leaks(tmp_path / "root")) == 2

    manager = make(with_login(server))
    await manager.check_root()

    assert leaks(tmp_path / "root") == []
    git(workspace.path, "commit", "-q", "--allow-empty", "-m", "two")
    again = await manager.prepare(ISSUE, 1)
    assert (again.path, again.created_now) == (workspace.path, False)
    assert delivered_branch(await manager.deliver(again)).to_push
    assert await manager.push("symphony/MT-1") is None
    assert git(server.root / "x.git", "log", "-1", "--format=%s", "symphony/MT-1") == "two"


@pytest.mark.asyncio
async def test_the_record_of_a_workspace_that_was_there_before_holds_no_login(
    make: Make, server: GitServer, tmp_path: Path
) -> None:
    manager = make(with_login(server))
    await manager.check_root()
    (tmp_path / "root" / "MT-1").mkdir()
    (tmp_path / "root" / "MT-1" / "file").touch()

    await manager.prepare(ISSUE, None)

    assert Layout(tmp_path / "root").record("MT-1").is_file()
    assert leaks(tmp_path / "root") == []


def test_a_daemon_and_its_commands_show_it_nowhere(server: GitServer, tmp_path: Path) -> None:
    """From the look at the repository to the push: files, command lines, and what an agent finds in `env`."""
    project = Project(root=tmp_path / "project", environment={"REPO_URL": with_login(server)}).create()
    project.workflow(workspace={"repo": "$REPO_URL", "push": "origin"})
    over = {"tool": "board_move", "arguments": {"state": "Human Review"}}
    look = f"{{ env; git config --list; }} > {word(tmp_path)}/seen"
    project.issue("SYM-1", [{"run": look}, {"write": "a", "text": "a"}, {"commit": "Work"}, over])

    with watched() as lines:
        said = [project.symphony(*words) for words in (["check"], ["doctor", "--json"], ["run", "--once"])]

    assert said[2].returncode == 0, said[2].stderr
    checks = {check["name"]: check["status"] for check in json.loads(said[1].stdout)["checks"]}
    assert (checks["repository"], checks["push"]) == ("ok", "ok")
    assert "Work" in project.git("log", "--format=%s", "symphony/SYM-1", cwd=server.root / "x.git")
    shown = "".join(f"{one.stdout}{one.stderr}" for one in said)
    assert [form for form in FORMS if form in shown] == []
    assert [line for line in lines if any(form in line for form in FORMS)] == []
    assert any("git" in line and server.address in line for line in lines)
    assert (tmp_path / "seen").stat().st_size > 0
    assert leaks(tmp_path) == []


def workflow_of(tmp_path: Path, environment: Mapping[str, str], workspace: str) -> Workflow:
    text = f"---\ntracker: {{kind: memory}}\nworkspace: {{{workspace}}}\n---\nGo.\n"
    file = WorkflowFile(path=tmp_path / "WORKFLOW.md", data=text.encode())
    return parse_workflow(file, environment=environment, tracker_kinds={"memory"}, agent_kinds=AGENT_SECTIONS)


@pytest.mark.asyncio
@pytest.mark.parametrize("local", [False, True])
async def test_an_enclosed_agent_reads_no_login(
    make: Make,
    server: GitServer,
    git: Callable[..., str],
    tmp_path: Path,
    environment: dict[str, str],
    local: bool,  # noqa: FBT001 - a parameter
) -> None:
    """In the mirror there is none, and the configuration of a local repository that has one is empty."""
    require_bubblewrap()
    repo = with_login(server)
    if local:
        git(tmp_path, "clone", "-q", str(server.root / "x.git"), "local")
        git(tmp_path / "local", "remote", "set-url", "origin", repo)
        repo = str(tmp_path / "local")
    manager = make(repo)
    await manager.check_root()
    workspace = await manager.prepare(ISSUE, None)
    own = workflow_of(tmp_path, environment, f'root: {tmp_path}/root, repo: "{repo}", isolation: bwrap')
    isolation = await to_thread.run_sync(build_isolation, own, environment)
    assert isolation is not None
    forms = [word for form in FORMS for word in ("-e", form)]
    looking = 'git log --format=%s; git status --short; ls "$0" >&2; grep -rlF "$@" "$0"; echo end'
    argv = await to_thread.run_sync(
        partial(
            isolation.allowing(readable=[tmp_path]).wrap,  # it lies in the private temp directory
            ["sh", "-c", looking, str(tmp_path), *forms],
            cwd=workspace.path,
        )
    )

    done = await LocalHost().run(argv, cwd=workspace.path, env=environment, timeout_ms=60_000)

    assert done.stdout.decode() == "first\nend\n"
    assert b"root" in done.stderr


def test_a_variable_that_holds_the_address_is_a_secret(tmp_path: Path) -> None:
    """Hooks and agents do not get it, and its password is masked."""
    address = "https://bob:Zx9qL7wRt4@forge.example.invalid/x.git"
    environment = {"HOME": str(tmp_path), "PATH": os.environ["PATH"], "REPO_URL": address}
    workflow = workflow_of(tmp_path, environment, f"root: {tmp_path}/root, repo: $REPO_URL")

    bound = build_context(workflow, host=LocalHost(), environment=environment)

    assert "REPO_URL" in bound.secret_names
    assert "Zx9qL7wRt4" not in bound.redaction.text("the password is Zx9qL7wRt4 here")


@pytest.mark.parametrize(
    ("address", "clean", "login"),
    [
        ("https://a:b@host/x", "https://host/x", ("https://host", "a", "b")),
        ("https://a:b@c@host:8443/x", "https://host:8443/x", ("https://host:8443", "a", "b@c")),
        ("HTTPS://a%40b:c%2Fd@host/x@y", "HTTPS://host/x@y", ("https://host", "a@b", "c/d")),
        ("https://token@host/x", "https://host/x", ("https://host", "token", None)),
        ("https://token:@host/x", "https://host/x", ("https://host", "token", "")),
        ("https://a:b%0Ahost=evil@host/x", "https://host/x", None),
        ("https://host/x@y", "https://host/x@y", None),
        ("ssh://git@host/x", "ssh://git@host/x", None),
        ("ssh://git:pw@host/x", "ssh://git@host/x", None),
        ("git@host:x", "git@host:x", None),
        ("/a:b@c/x", "/a:b@c/x", None),
    ],
)
def test_an_address_is_taken_apart(
    address: str, clean: str, login: tuple[str, str, str | None] | None
) -> None:
    assert split_login(address) == (clean, None if login is None else Login(*login))
