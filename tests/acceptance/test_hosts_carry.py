"""What travels to a host with a run, and back: skills of the library, instructions, and settings."""

import json
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

from harness.hosts import DONE
from harness.project import Project, scripted
from harness.shell import word
from harness.ssh import SshServer, ssh_server
from symphony.library.model import Authorship, SkillText
from symphony.library.store import LIBRARY_FILE, Library

pytestmark = pytest.mark.slow


@pytest.fixture
def server(tmp_path: Path) -> Iterator[SshServer]:
    with ssh_server(tmp_path / "build-1") as made:
        yield made


def test_library_and_instructions_of_the_daemon_reach_a_host(project: Project, server: SshServer) -> None:
    library = Library(project.state_dir / LIBRARY_FILE)
    text = SkillText(name="style", description="How to write.", when_to_use="", content="Be brief.\n")
    library.add(text, Authorship(author="ada"))
    project.write("rules.md", "Obey the rules of this house.\n")
    worker = {"ssh_hosts": [server.name], "ssh": server.section(sys.executable)}
    instructions = {"source": "local", "path": "nowhere", "fallback": "rules.md"}
    tracker = {"terminal_states": ["Closed"]}  # the workspace stays
    agent = {"instructions": instructions}
    project.workflow(command=scripted(), worker=worker, agent=agent, tracker=tracker)
    steps: list[dict[str, Any]] = [
        {"write": "work.txt", "text": "work\n"},
        {"commit": "Work"},
        {"append": ".agents/skills/style/SKILL.md", "text": "Say why.\n"},
        {"write": ".agents/skills/how_to_log.md", "text": "# Log in one line\n"},
        DONE,
    ]
    project.issue("SYM-1", steps, extra="labels: ['skill:style']\n")
    with project.daemon() as daemon:
        written = daemon.wait_for("library_skills_written", issue_identifier="SYM-1")
        assert written["versions"] == {"style": 1}
        replaced = daemon.wait_for("instructions_replaced", issue_identifier="SYM-1")
        assert replaced["by"] == "fallback"
        synced = daemon.wait_for("skills_synced", issue_identifier="SYM-1")
        assert (synced["created"], synced["updated"]) == (["how-to-log"], ["style"])
        daemon.wait_for("run_ended", issue_identifier="SYM-1")
        (skill,) = server.root.glob("*/workspaces/SYM-1/.agents/skills/style/SKILL.md")
        assert "Be brief.\nSay why." in skill.read_text()
        shown = json.loads(project.symphony("explain", "SYM-1", "--json").stdout)
        assert [one["library_version"] for one in shown["skills"]["listed"]] == [1]
        assert shown["instructions"]["origin"] == "fallback"
        assert shown["skills"]["synced"]["proposals"] == synced["proposals"]
    assert {one.text.name: one.base_version for one in library.proposals()} == {"style": 1, "how-to-log": 0}


def test_instructions_by_url_are_fetched_by_the_daemon_and_not_by_the_host(
    project: Project, server: SshServer, tmp_path: Path
) -> None:
    asked: list[str] = []

    class Rules(SimpleHTTPRequestHandler):
        @override
        def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
            del code, size
            asked.append(self.path)

    rules = tmp_path / "rules"
    rules.mkdir()
    (rules / "manifest.yaml").write_text('version: "1"\nskills: [{name: house, file: house.md}]\n')
    (rules / "house.md").write_text("Obey the rules of this house.\n")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Rules, directory=str(rules))) as served:
        thread = threading.Thread(target=served.serve_forever)
        thread.start()
        try:
            project.workflow(
                command=scripted(),
                worker={"ssh_hosts": [server.name], "ssh": server.section(sys.executable)},
                agent={
                    "instructions": {
                        "source": "remote",
                        "url": f"http://127.0.0.1:{served.server_port}/manifest.yaml",
                    }
                },
            )
            project.issue("SYM-1", [DONE])
            with project.daemon() as daemon:
                daemon.wait_for("run_ended", issue_identifier="SYM-1")
                shown = json.loads(project.symphony("explain", "SYM-1", "--json").stdout)
        finally:
            served.shutdown()
            thread.join()
    assert shown["instructions"]["origin"] == "source"
    assert [one["name"] for one in shown["instructions"]["modules"]] == ["house"]
    assert sorted(asked) == ["/house.md", "/manifest.yaml"]
    assert list(server.root.glob("*/state/instructions*")), "the host has a copy of its own"


def test_a_reviewer_works_on_the_host_of_the_workspace(project: Project, server: SshServer) -> None:
    where = project.root / "where"
    review = f"pwd >>{word(where)}; grep -Hn bad a.txt || true"
    project.workflow(
        command=scripted("--threads", str(project.root / "threads")),
        worker={"ssh_hosts": [server.name], "ssh": server.section(sys.executable)},
        agents={"critic": {"kind": "codex", "command": scripted("--review", review)}},
        verify={"reviewer": "critic"},
    )
    turns: list[list[Any]] = [
        [{"write": "a.txt", "text": f"{text}\n"}, {"commit": "Work"}, DONE] for text in ("bad", "good")
    ]
    project.issue("SYM-1", *turns)
    with project.daemon("--once") as daemon:
        assert daemon.end() == 0, daemon.log.read_text()
    results = [line["result"] for line in daemon.events() if line["event"] == "verified"]
    assert results == ["failed", "passed"], daemon.log.read_text()
    assert all(place.startswith(str(server.root)) for place in where.read_text().splitlines())
    assert project.git("show", "symphony/SYM-1:a.txt") == "good"
