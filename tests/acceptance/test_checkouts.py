"""Promise: two checkouts never share a workspace or a branch; the second has its own place or is refused."""

import json
from contextlib import ExitStack
from pathlib import Path

import pytest

from harness.project import Project, scripted, until

HAND_OVER = {"tool": "board_move", "arguments": {"state": "Human Review"}}
TAKEN = "workspace_root_taken"
CONFIGURATION = 3


class Checkouts:
    """A bare remote and checkouts of it, each with the usual places of one person's home."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.remote = place / "remote.git"

    def project(self, name: str) -> Project:
        home = {"HOME": str(self.place / "home"), "SYMPHONY_STATE_DIR": ""}
        return Project(root=self.place / name, environment=home)

    def first(self) -> Project:
        """A clone of the remote in which `init` was run, with what it wrote committed and pushed."""
        begun = Project(root=self.place / "seed").create()
        begun.git("rm", "--quiet", ".gitignore")
        begun.git("commit", "--quiet", "-m", "Nothing ignored")
        begun.git("clone", "--quiet", "--bare", ".", str(self.remote))
        first = self.clone("a", self.remote)
        done = first.symphony("init")
        assert done.returncode == 0, done.stderr
        (first.repo / ".symphony/issues/SYM-1.md").unlink()
        workflow = first.repo / "WORKFLOW.md"
        workflow.write_text(workflow.read_text().replace("codex app-server", scripted()))
        first.commit("Add Symphony")
        first.git("push", "--quiet", "origin", "main")
        return first

    def clone(self, name: str, source: Path) -> Project:
        made = self.project(name)
        made.root.mkdir()
        made.git("clone", "--quiet", str(source), str(made.repo), cwd=self.place)
        return self._identified(made)

    def worktree(self, name: str, of: Project) -> Project:
        made = self.project(name)
        of.git("worktree", "add", "--quiet", "--detach", str(made.repo))
        return made

    def submodule(self, name: str, of: Project) -> Project:
        """A superproject whose submodule `repo` is the checkout."""
        made = self.project(name)
        made.root.mkdir()
        made.git("init", "--quiet", cwd=made.root)
        allowed = ("-c", "protocol.file.allow=always")
        made.git(*allowed, "submodule", "add", "--quiet", str(of.repo), "repo", cwd=made.root)
        return self._identified(made)

    @staticmethod
    def _identified(made: Project) -> Project:
        made.git("config", "user.name", "Tester")
        made.git("config", "user.email", "tester@localhost")
        return made


@pytest.fixture
def checkouts(place: Path) -> Checkouts:
    return Checkouts(place)


def work(project: Project, text: str) -> None:
    project.issue("SYM-1", [{"write": f"{text}.txt", "text": text}, {"commit": f"Work of {text}"}, HAND_OVER])


def branches(project: Project) -> dict[str, list[str]]:
    """The branches of issues in a checkout's repository, with what was committed on each."""
    names = project.git("branch", "--format=%(refname:short)", "--list", "symphony/*").splitlines()
    return {name: project.git("log", "--format=%s", f"main..{name}").splitlines() for name in names}


def workspaces(project: Project) -> dict[str, Path]:
    """The workspaces of the checkout's own state directory."""
    done = project.symphony("check", "--json")
    root = Path(json.loads(done.stdout)["settings"]["workspace"]["root"])
    return {path.name: path for path in root.glob("SYM-*")}


@pytest.mark.slow
def test_each_checkout_works_in_its_own_place_on_its_own_branch(checkouts: Checkouts) -> None:
    first = checkouts.first()
    work(first, "first")
    assert first.once().returncode == 0
    assert branches(first) == {"symphony/SYM-1": ["Work of first"]}
    tip = first.git("rev-parse", "symphony/SYM-1")
    (theirs,) = workspaces(first).values()
    for name, second in {
        "clone of the remote": checkouts.clone("b", checkouts.remote),
        "clone of the first": checkouts.clone("c", first.repo),
        "worktree": checkouts.worktree("d", first),
        "submodule": checkouts.submodule("e", first),
    }.items():
        assert (second.repo / "WORKFLOW.md").read_bytes() == (first.repo / "WORKFLOW.md").read_bytes()
        work(second, "second")
        done = second.once()
        assert done.returncode == 0, (name, done.stderr)
        assert first.git("rev-parse", "symphony/SYM-1") == tip, "the branch of the first is untouched"
        (here,) = [log for log in branches(second).values() if log != ["Work of first"]]
        assert here == ["Work of second"], "nothing of the first is below the work of the second"
        (ours,) = workspaces(second).values()
        assert ours.parent != theirs.parent, name
        assert (theirs / "first.txt").exists()
        assert not (theirs / "second.txt").exists()
        assert not (ours / "first.txt").exists()
        assert first.git("status", "--porcelain") == second.git("status", "--porcelain") == "", name


@pytest.mark.slow
def test_they_stay_apart_while_daemons_of_all_of_them_run(checkouts: Checkouts) -> None:
    first = checkouts.first()
    all_of_them = {
        "first": first,
        "clone": checkouts.clone("b", checkouts.remote),
        "worktree": checkouts.worktree("c", first),
    }
    with ExitStack() as running:
        daemons = [running.enter_context(project.daemon()) for project in all_of_them.values()]
        for daemon in daemons:
            daemon.wait_for("serving")
        for name, project in all_of_them.items():
            work(project, name)
        until(
            lambda: {one.written_state("SYM-1") for one in all_of_them.values()} == {"Human Review"} or None,
            lambda: "\n".join(daemon.log.read_text() for daemon in daemons),
        )
        for daemon in daemons:
            daemon.process.terminate()
            assert daemon.end() == 0, daemon.log.read_text()
    found = [log for project in (first, all_of_them["clone"]) for log in branches(project).values()]
    assert sorted(found) == [["Work of clone"], ["Work of first"], ["Work of worktree"]]


def share_a_root(project: Project, root: Path, **workspace: object) -> None:
    project.workflow(workspace={"root": str(root), **workspace})


def test_a_second_checkout_of_a_repository_is_refused_in_a_common_root(checkouts: Checkouts) -> None:
    first, root = checkouts.first(), checkouts.place / "common"
    second = checkouts.worktree("b", first)
    for project in (first, second):
        share_a_root(project, root)
    work(first, "first")
    assert first.once().returncode == 0
    work(second, "second")
    told = str(first.repo / "WORKFLOW.md")
    done = second.once()
    assert (done.returncode, TAKEN in done.stderr, told in done.stderr) == (CONFIGURATION, True, True)
    assert "hint: set workspace.root" in done.stderr
    assert second.written_state("SYM-1") == "Todo"
    checked = second.symphony("check", "--json")
    (problem,) = [one for one in json.loads(checked.stdout)["problems"] if one["severity"] == "error"]
    assert (checked.returncode, problem["code"], told in problem["message"]) == (CONFIGURATION, TAKEN, True)
    assert told in second.symphony("doctor").stdout
    assert first.symphony("check").returncode == 0
    assert branches(first) == {"symphony/SYM-1": ["Work of first"]}


@pytest.mark.slow
def test_two_repositories_share_a_root_and_no_workspace(checkouts: Checkouts) -> None:
    first, root = checkouts.first(), checkouts.place / "common"
    second = checkouts.clone("b", checkouts.remote)
    for project, name in ((first, "first"), (second, "second")):
        share_a_root(project, root)
        work(project, name)
        done = project.once()
        assert done.returncode == 0, done.stderr
    assert branches(first) == {"symphony/SYM-1": ["Work of first"]}
    ((branch, log),) = branches(second).items()
    assert log == ["Work of second"]
    other = branch.removeprefix("symphony/")
    assert sorted(path.name for path in root.glob("SYM-*")) == ["SYM-1", other]
    assert other.startswith("SYM-1-")
    # Whoever ends an issue removes its own workspace and no other one.
    assert first.symphony("issue", "move", "SYM-1", "Done").returncode == 0
    assert second.symphony("clean").returncode == 0
    assert sorted(path.name for path in root.glob("SYM-*")) == ["SYM-1", other]
    assert first.symphony("clean").returncode == 0
    assert [path.name for path in root.glob("SYM-*")] == [other]
    # The directory is free now, and the second goes on where its work is.
    second.issue("SYM-1", [{"run": "cp second.txt more"}, {"commit": "More of second"}, HAND_OVER])
    assert second.once().returncode == 0
    assert branches(second) == {branch: ["More of second", "Work of second"]}


def test_of_two_that_start_at_the_same_moment_one_is_refused(checkouts: Checkouts) -> None:
    first, root = checkouts.first(), checkouts.place / "common"
    both = [first, checkouts.worktree("b", first)]
    for project in both:
        share_a_root(project, root)
    with ExitStack() as running:
        daemons = [running.enter_context(project.daemon()) for project in both]

        def decided() -> list[str] | None:
            told = [
                "serving" if any(line["event"] == "serving" for line in daemon.events()) else "refused"
                for daemon in daemons
                if daemon.process.poll() is not None
                or any(line["event"] == "serving" for line in daemon.events())
            ]
            return sorted(told) if len(told) == len(daemons) else None

        outcome = until(decided, lambda: "\n".join(daemon.log.read_text() for daemon in daemons))
        assert outcome == ["refused", "serving"]
        (refused,) = [daemon for daemon in daemons if daemon.process.poll() is not None]
        assert refused.end() == CONFIGURATION
        assert TAKEN in refused.log.read_text()
