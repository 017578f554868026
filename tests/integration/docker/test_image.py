"""The image of deploy/docker: built from a local base, started, healthy, at work, and stopped.

One test, as the image is built once: tests that run side by side would each build their own. At night it is
built with Ray too.
"""

import os
import re
import secrets
import signal
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from harness.container import BASE_VARIABLE, Builder, Container, Image
from harness.nightly import NIGHTLY
from harness.project import Project, until
from harness.real import require_container
from symphony import __version__

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
COMMIT = "abc1234"
HELD = "correct-horse-battery"
AGENT = "/opt/symphony/bin/python3 -m symphony.testing.scripted_agent"
DONE = {"tool": "board_move", "arguments": {"state": "Done"}}
NODE = "ray start --head --node-ip-address=127.0.0.1 --node-name=one --num-cpus=0 --include-dashboard=false"


@pytest.mark.timeout(1800 if NIGHTLY else 900)
def test_the_image_is_built_runs_unprivileged_does_its_work_and_stops(tmp_path: Path) -> None:
    require_container()
    with _built(tmp_path / "images") as image:
        _holds_what_runs_and_nothing_that_builds(image)
        _works_on_an_issue_as_nobody_special_and_stops_in_order(image, _project(tmp_path / "1", image))
        _says_in_one_line_what_is_wrong(image, _project(tmp_path / "2", image))
        _refuses_a_volume_that_cannot_be_written(image, _project(tmp_path / "3", image))
    if NIGHTLY:
        ray = re.search(r"^RAY_VERSION=(\S+)", (ROOT / ".ci/run").read_text(encoding="utf-8"), re.MULTILINE)
        assert ray
        with _built(tmp_path / "images with ray", EXTRA="[ray]", RAY=ray[1]) as image:
            worker = {"ray": {"address": "127.0.0.1:6379"}}
            _is_a_node_of_ray_and_its_daemon(image, _project(tmp_path / "4", image, worker=worker))


@contextmanager
def _built(folder: Path, **arguments: str) -> Iterator[Image]:
    folder.mkdir()
    builder = Builder(folder)
    base = builder.base(Path(os.environ[BASE_VARIABLE]))
    try:
        arguments |= {"BASE": base, "NODE": base, "AGENT": "none", "REVISION": COMMIT}
        yield builder.build(ROOT, ROOT / "deploy/docker/Dockerfile", **arguments)
    finally:
        builder.close()


def _project(root: Path, image: Image, **changes: Any) -> Project:
    """A repository with a board, and a state volume as an engine makes it: a copy of what the image has."""
    made = Project(root=root).create()
    changes |= {"workspace": {"root": "$SYMPHONY_WORKSPACES"}, "agent": {"drain_timeout_ms": 200}}
    made.workflow(command=AGENT, **changes)
    made.commit("Workflow")
    subprocess.run(["cp", "-a", f"{image.root}/var/lib/symphony", str(root / "volume")], check=True)
    (root / "secret").write_text(f"{HELD}\n", encoding="utf-8")
    (root / "secret").chmod(0o400)
    return made


def _container(image: Image, project: Project, **variables: str) -> Container:
    user, group = image.ids
    for path in (project.repo, *project.repo.rglob("*"), project.root / "secret"):
        os.chown(path, user, group, follow_symlinks=False)
    return Container(
        image,
        mounts={
            "/repo": project.repo,
            "/var/lib/symphony": project.root / "volume",
            "/run/secrets/linear": project.root / "secret",
        },
        environment={"LINEAR_API_KEY_FILE": "/run/secrets/linear", **variables},
    )


def _holds_what_runs_and_nothing_that_builds(image: Image) -> None:
    assert image.ids == (10001, 10001)
    assert image.config["StopSignal"] == "SIGTERM"
    assert image.config["Volumes"] == {"/var/lib/symphony": {}}
    assert image.config["Labels"]["org.opencontainers.image.revision"] == COMMIT
    places = [image.root / folder.lstrip("/") for folder in image.environment["PATH"].split(":")]
    for program in ("gcc", "cc", "make", "pip", "pip3", "npm"):
        assert not [place for place in places if (place / program).exists()], program
    for program in ("git", "ssh", "bwrap"):
        assert [place for place in places if (place / program).exists()], program
    assert not list((image.root / "opt/symphony/bin").glob("pip*"))
    assert not (image.root / "root/.cache").exists()
    assert not list((image.root / "var/lib/apt/lists").iterdir())
    volume = (image.root / "var/lib/symphony").stat()
    assert (volume.st_uid, stat.S_IMODE(volume.st_mode)) == (10001, 0o700)


def _works_on_an_issue_as_nobody_special_and_stops_in_order(image: Image, project: Project) -> None:
    project.issue("SYM-1", [{"write": "work.txt", "text": "work\n"}, {"commit": "Work"}, DONE])
    project.issue("SYM-2", [{"write": "began", "text": ""}, {"wait_for": "/never"}])
    with _container(image, project).running(project.root / "log") as running:
        running.wait_for("serving")
        health = image.config["Healthcheck"]["Test"]
        assert health[0] == "CMD"
        done = running.inside(health[1:])
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        until(
            lambda: project.written_state("SYM-1") == "Done" or None,
            lambda: running.log.read_text(encoding="utf-8"),
        )
        began = project.root / "volume/workspaces/SYM-2/began"
        until(lambda: began.exists() or None, lambda: running.log.read_text(encoding="utf-8"))
        processes = running.processes()
        assert len(processes) >= 3, "init, daemon, agent"
        seen = [_has_no_rights(process.pid) for process in processes]
        assert seen.count(True) >= 3, "those that last were looked at"
        mounts = Path(f"/proc/{processes[0].pid}/mounts").read_text(encoding="utf-8").splitlines()
        assert [line.split()[3].split(",")[0] for line in mounts if line.split()[1] == "/"] == ["ro"]
        running.signal(signal.SIGTERM)
        assert running.end() == 0, running.log.read_text(encoding="utf-8")
        assert not [process for process in processes if process.is_running()]
    said = running.log.read_text(encoding="utf-8")
    assert HELD not in said
    log = ["git", "-c", f"safe.directory={project.repo}", "log", "--format=%s", "main..symphony/SYM-1"]
    assert subprocess.check_output(log, cwd=project.repo, text=True).split() == ["Work"]
    assert began.exists(), "work that was cut off is kept"


def _has_no_rights(pid: int) -> bool:
    """Look at a process from outside; false where it has ended meanwhile."""
    try:
        facts = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
        variables = Path(f"/proc/{pid}/environ").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return False
    assert set(re.findall(r"^Uid:\s+(.*)", facts, re.MULTILINE)[0].split()) == {"10001"}
    assert len(re.findall(r"^Cap(?:Prm|Eff|Bnd):\s+0*$", facts, re.MULTILINE)) == 3, facts
    assert re.search(r"^NoNewPrivs:\s+1$", facts, re.MULTILINE)
    assert HELD.encode() not in variables
    return True


def _says_in_one_line_what_is_wrong(image: Image, project: Project) -> None:
    container = _container(image, project)
    assert container.run(project.root / "health", "health")[0] == 5
    code, said = container.run(project.root / "version", "--version")
    assert (code, said.splitlines()[0]) == (0, f"symphony {__version__} (commit {COMMIT})")
    (project.root / "secret").write_text("\n", encoding="utf-8")
    code, said = container.run(project.root / "log")
    assert code == 3
    assert said.splitlines()[0] == (
        "error: the file of LINEAR_API_KEY, /run/secrets/linear, is empty [secret_file]"
    )


def _refuses_a_volume_that_cannot_be_written(image: Image, project: Project) -> None:
    container = _container(image, project)
    for path in (project.root / "volume", *(project.root / "volume").iterdir()):
        os.chown(path, 0, 0)
    code, said = container.run(project.root / "log")
    assert code != 0
    assert "Traceback" not in said
    assert said.splitlines()[0].startswith("error: ")
    assert "hint: " in said


def _is_a_node_of_ray_and_its_daemon(image: Image, project: Project) -> None:
    """Both in one container; the issue is there once the node is."""
    variables = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    with _container(image, project, **variables).running(project.root / "log") as running:
        running.wait_for("serving")
        started = running.inside([*NODE.split(), '--resources={"agent_slot": 1}'])
        assert started.returncode == 0, started.stdout + started.stderr
        issue = project.issue("SYM-1", [{"write": "work.txt", "text": "work\n"}, {"commit": "Work"}, DONE])
        os.chown(issue, *image.ids)
        assert running.wait_for("run_ended", outcome="succeeded")["host"] == "one"
        running.signal(signal.SIGTERM)
        assert running.end() == 0, running.log.read_text(encoding="utf-8")
    assert project.written_state("SYM-1") == "Done"
