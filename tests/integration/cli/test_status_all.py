"""`symphony status --all`: real daemons in several states, and state directories of other users."""

import json
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from harness.project import Project, until
from harness.shell import word
from published.schemas import conforms_to
from symphony.daemon.state_dir import KNOWN_FOLDER


class Host:
    """Repositories of one user."""

    def __init__(self, root: Path) -> None:
        self.root, self.home = root, root / "home"
        self.homes = self.home / ".local" / "state" / "symphony"
        self.homes.mkdir(parents=True)

    def project(self, name: str, *, place: bool) -> Project:
        """A repository; with `place`, its state directory is given, otherwise it is the default one."""
        root = self.root / name
        environment = {"HOME": str(self.home), "XDG_STATE_HOME": ""}
        if not place:
            environment["SYMPHONY_STATE_DIR"] = ""
        project = Project(root=root, environment=environment).create()
        project.repo.rename(root / name)
        (root / "repo").symlink_to(name)
        project.workflow()
        return project

    def rows(self, project: Project) -> dict[str, Any]:
        """The rows of the daemons of this test, by name."""
        done = project.symphony("status", "--all", "--json")
        assert done.returncode == 0, done.stderr
        document: dict[str, Any] = json.loads(done.stdout)
        conforms_to("status-all", document)
        listed = (row for row in document["daemons"] if row["state_dir"].startswith(str(self.root)))
        return {row["name"]: row for row in listed}

    def skipped(self, project: Project) -> dict[str, str]:
        document = json.loads(project.symphony("status", "--all", "--json").stdout)
        return {each["path"]: each["reason"] for each in document["skipped"]}


@pytest.fixture
def host() -> Iterator[Host]:
    """Has a short path, because the path of a socket is limited."""
    with TemporaryDirectory(prefix="sym-", dir="/var/tmp", ignore_cleanup_errors=True) as place:
        yield Host(Path(place))


@pytest.fixture
def asker(tmp_path: Path, host: Host) -> Project:
    """A directory without a workflow, from which the command is run."""
    root = tmp_path / "asker"
    (root / "repo").mkdir(parents=True)
    return Project(
        root=root, environment={"HOME": str(host.home), "SYMPHONY_STATE_DIR": "", "XDG_STATE_HOME": ""}
    )


def test_every_daemon_of_the_user_is_listed_wherever_its_state_is(host: Host, asker: Project) -> None:
    app, web = host.project("app", place=True), host.project("web", place=False)
    app.issue("SYM-1", [{"ask_input": "Which?"}])
    assert host.rows(asker) == {}
    with app.daemon() as first, web.daemon() as second:
        first.wait_for("issue_blocked")
        second.wait_for("serving")
        found = until(lambda: _all_healthy(host.rows(asker)), first.log.read_text)
        assert list(found) == ["app", "web"]
        row = found["app"]
        assert (row["status"], row["pid"]) == ("running", first.process.pid)
        assert row["state_dir"] == str(app.state_dir)
        assert row["workflow"] == str((app.repo / "WORKFLOW.md").resolve())
        assert row["counts"] == {"running": 0, "retrying": 0, "blocked": 1, "waiting": 0, "ready": 0}
        assert row["version"] == "0.1.0"
        assert row["started_at"] is not None
        assert (row["message"], row["hint"]) == (None, None)
        second.signal(signal.SIGKILL)
        second.end()
        first.signal(signal.SIGSTOP)
        try:
            found = host.rows(asker)
        finally:
            first.signal(signal.SIGCONT)
        assert (found["app"]["status"], found["web"]["status"]) == ("silent", "dead")
        assert "did not answer within" in found["app"]["message"]
        command = f"symphony run {word((web.repo / 'WORKFLOW.md').resolve())}"
        assert found["web"]["hint"] == f"{command} ends its left-over processes, and continues its work"
        shown = asker.symphony("status", "--all").stdout
        assert "dead" in shown
        assert "healthy" in shown
        first.signal(signal.SIGTERM)
        assert first.end() == 0
    assert list(host.rows(asker)) == ["web"], "a daemon that shut down normally is not listed"


def _all_healthy(rows: dict[str, Any]) -> dict[str, Any] | None:
    healthy = [row for row in rows.values() if row["health"] == "ok"]
    return rows if len(healthy) == 2 and rows["app"]["counts"]["blocked"] == 1 else None


def _note(place: Path, **changes: object) -> None:
    place.mkdir(parents=True, exist_ok=True)
    fields = {"socket": str(place / "control.sock"), "pid": os.getpid(), "workflow": f"{place}/WORKFLOW.md"}
    (place / "control.json").write_text(json.dumps(fields | changes))


def test_a_stale_socket_is_distinguished_from_a_dead_daemon(host: Host, asker: Project) -> None:
    _note(host.homes / "stale")
    with closing(socket.socket(socket.AF_UNIX)) as left:
        left.bind(str(host.homes / "stale" / "control.sock"))
    _note(host.homes / "mute")
    (host.homes / "lock-only").mkdir()
    (host.homes / "lock-only" / "lock").write_text(json.dumps({"pid": os.getpid()}))
    _note(host.homes / "gone", pid=2**22 - 3)
    found = host.rows(asker)
    assert {name: row["status"] for name, row in found.items()} == {
        "gone": "dead",
        "lock-only": "silent",
        "mute": "silent",
        "stale": "silent",
    }
    assert "Connection refused" in found["stale"]["message"]
    assert "No such file" in found["mute"]["message"]
    assert "has no control socket" in found["lock-only"]["message"]
    assert found["gone"]["started_at"] is None


def test_malformed_files_do_not_hide_a_daemon(host: Host, asker: Project) -> None:
    places = host.homes
    (places / "a-file").write_text("x")
    (places / "a-link").symlink_to("/etc")
    (places / "empty").mkdir()
    for number, content in enumerate(
        (b"", b"[", b"[]", b'{"socket": 7, "pid": 1}', b"\xff" * 99, b"[" * 60_000)
    ):
        (places / f"odd-{number}").mkdir()
        (places / f"odd-{number}" / "control.json").write_bytes(content)
        (places / f"odd-{number}" / "lock").write_bytes(content)
    (places / "pipe").mkdir()
    os.mkfifo(places / "pipe" / "control.json")
    os.mkfifo(places / "pipe" / "lock")
    (places / "folder" / "control.json").mkdir(parents=True)
    known = places / KNOWN_FOLDER
    known.mkdir()
    (known / "a.json").write_text("{")
    os.mkfifo(known / "b.json")
    (known / "c.json").write_text(json.dumps({"state_dir": str(places / "nowhere")}))
    (known / "d.json").write_text(json.dumps({"state_dir": str(places / "empty")}))
    (known / "e.json").symlink_to("e.json")
    _note(places / "good", pid=2**22 - 3, workflow="/srv/\x1b[31mred\n/WORKFLOW.md")
    found = host.rows(asker)
    assert [row["status"] for row in found.values()] == ["dead"]
    shown = asker.symphony("status", "--all")
    assert shown.returncode == 0, shown.stderr
    assert "\x1b" not in shown.stdout
    skipped = host.skipped(asker)
    assert skipped[str(known / "e.json")] == "Too many levels of symbolic links"
    assert skipped[str(places / "folder")] == "Is a directory"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_root_ignores_state_directories_that_another_user_planted(host: Host, asker: Project) -> None:
    _note(host.homes / "theirs", pid=2**22 - 3)
    os.chown(host.homes / "theirs", 65_534, 65_534)
    _note(host.homes / "planted", pid=2**22 - 3)
    os.chown(host.homes / "planted" / "control.json", 65_534, 65_534)
    assert host.rows(asker) == {}
    assert host.skipped(asker)[str(host.homes / "theirs")] == "it belongs to nobody"


def test_all_and_one_workflow_exclude_each_other(asker: Project) -> None:
    done = asker.symphony("status", "--all", "--workflow", "WORKFLOW.md")
    assert done.returncode == 2
    assert "give one of them" in done.stderr


@pytest.mark.slow
def test_watching_repeats_the_list(host: Host, asker: Project) -> None:
    _note(host.homes / "gone", pid=2**22 - 3)
    with asker.start("status", "--all", "--watch", "--interval", "0.1", "--json") as process:
        assert process.stdout is not None
        lines = [json.loads(process.stdout.readline()) for _ in range(2)]
        process.send_signal(signal.SIGINT)
        process.communicate()
    assert process.returncode == 0
    for document in lines:
        conforms_to("status-all", document)
    with asker.start("status", "--all", "--watch", "--interval", "0.1") as process:
        assert process.stdout is not None
        assert next(line for line in process.stdout if line.startswith("DAEMON"))
        process.send_signal(signal.SIGINT)
        process.communicate()
    assert process.returncode == 0
