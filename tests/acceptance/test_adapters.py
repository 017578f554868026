"""Promise: a package can add trackers, agents and carriers, and a package that is broken harms no other."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from harness.project import Project
from harness.shell import word
from symphony.daemon.admission import ACKNOWLEDGEMENT

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "tests" / "adapter_package"
AGENT = """\
cat > prompt.txt
git add prompt.txt && git commit --quiet -m "Do what the prompt says"
echo hello
echo tool lines_done
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory into which pip has installed the package, built by its own pyproject.toml."""
    place = tmp_path_factory.mktemp("adapters")
    shutil.copytree(PACKAGE, place / "source", ignore=shutil.ignore_patterns("__pycache__"))
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    offline = ["--no-index", "--no-deps", "--no-build-isolation", "--target", str(place / "site")]
    subprocess.run([*command, *offline, str(place / "source")], check=True, capture_output=True)
    return place / "site"


def _write(project: Project, **sections: Any) -> None:
    (project.root / "agent.sh").write_text(AGENT)
    settings: dict[str, Any] = {
        "tracker": {"kind": "lines", "provider": {"file": "issues.txt"}},
        "workspace": {"root": str(project.workspaces), "repo": "."},
        "agent": {"kind": "stdin", "budget": {"max_tokens_per_issue": 5_000_000}},
        "stdin": {"command": f"sh {word(project.root / 'agent.sh')}"},
    }
    front = json.dumps({**settings, **sections}, indent=1)
    project.write("WORKFLOW.md", f"---\n{front}\n---\nDo {{{{ issue.title }}}}.\n")


def _symphony(project: Project, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A command in a process of its own: which packages are installed is read once in each."""
    return subprocess.run(
        [sys.executable, "-m", "symphony", *arguments],
        cwd=project.repo,
        env=project.env(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        stdin=subprocess.DEVNULL,
    )


def _problems(project: Project) -> list[Mapping[str, Any]]:
    done = _symphony(project, "check", "--json")
    found: list[Mapping[str, Any]] = json.loads(done.stdout)["problems"]
    return found


@pytest.mark.slow
def test_an_issue_of_another_tracker_is_worked_on_by_another_agent(project: Project, installed: Path) -> None:
    project.environment["PYTHONPATH"] = str(installed)
    _write(project)
    (project.repo / "issues.txt").write_text("L-1 Todo Greet people\nL-2 Backlog Rest\n")
    with project.daemon("--once", ACKNOWLEDGEMENT) as daemon:
        assert daemon.end() == 0, daemon.log.read_text()
    assert (project.repo / "issues.txt").read_text() == "L-1 Done Greet people\nL-2 Backlog Rest\n"
    assert project.branch_log("L-1") == ["Do what the prompt says"]
    assert "Do Greet people." in project.git("show", "symphony/L-1:prompt.txt")
    assert daemon.wait_for("agent_ready", agent="stdin", version="0.1")


@pytest.mark.slow
def test_a_run_of_another_agent_goes_to_another_machine_by_another_carrier(
    project: Project, installed: Path, reachable: Path
) -> None:
    machine = reachable / "machine"
    machine.mkdir()
    project.environment["PYTHONPATH"] = str(installed)
    _write(project, worker={"carrier": "folder", "folder": {"folders": [str(machine)]}})
    (project.repo / "issues.txt").write_text("L-1 Todo Greet people\n")
    with project.daemon("--once", ACKNOWLEDGEMENT) as daemon:
        assert daemon.end() == 0, daemon.log.read_text()
        assert daemon.wait_for("run_ended")["host"] == str(machine)
    assert (project.repo / "issues.txt").read_text() == "L-1 Done Greet people\n", "its tool ran here"
    assert project.branch_log("L-1") == ["Do what the prompt says"]
    assert list(machine.glob(".local/share/symphony-worker/*/repository.git/refs/heads/symphony/L-1"))
    assert not list(machine.glob(".local/share/symphony-worker/*/state/runs/*.json"))
    assert not list(project.workspaces.glob("L-1"))
    checked = json.loads(_symphony(project, "hosts", "check", "--json").stdout)["hosts"]
    assert [(one["name"], one["ok"]) for one in checked] == [(str(machine), True)]


@pytest.mark.slow
def test_its_settings_are_judged_like_all_others(project: Project, installed: Path) -> None:
    project.environment["PYTHONPATH"] = str(installed)
    _write(
        project,
        tracker={"kind": "lines", "provider": {"file": 7, "fil": "x"}},
        agents={"two": {"kind": "stdin", "max_lines": 0}},
        agent={"kind": "stdin", "fallback": "two"},
        stdin={"command": "sh", "max_lines": "many", "max_line": 1},
        worker={"carrier": "folder", "folder": {"folders": ["/a"], "lease_ms": 0, "folder": "x"}},
    )
    lines = (project.repo / "WORKFLOW.md").read_text().splitlines()
    problems = _problems(project)
    found = {(one["code"], lines[one["line"] - 1].strip().partition(":")[0]): one["hint"] for one in problems}
    assert ("invalid_tracker_config", '"file"') in found
    assert found["unknown_key", '"fil"'] == 'did you mean "file"?'
    assert found["unknown_key", '"max_line"'] == 'did you mean "max_lines"?'
    assert found["unknown_key", '"folder"'] == 'did you mean "folders"?'
    assert {key for code, key in found if code == "invalid_workflow_config"} == {'"max_lines"', '"lease_ms"'}
    assert len([one for one in problems if one["code"] == "invalid_workflow_config"]) == 3


@pytest.mark.slow
def test_its_keys_are_listed_and_a_near_spelling_is_told(project: Project, installed: Path) -> None:
    project.environment["PYTHONPATH"] = str(installed)
    keys = {one["name"]: one for one in json.loads(_symphony(project, "check", "--keys", "--json").stdout)}
    assert (keys["stdin.command"]["default"], keys["stdin.max_lines"]["default"]) == ("my-agent", "1000")
    assert keys["stdin.stall_timeout_ms"]["reload"] == "live"
    assert keys["worker.folder.lease_ms"]["default"] == "30000"
    _write(project, tracker={"kind": "linse"}, agent={"kind": "stdni"}, worker={"carrier": "foldre"})
    hints = [one["hint"] for one in _problems(project) if one["severity"] == "error"]
    assert [re.findall(r'did you mean "(\w+)"', hint) for hint in hints] == [["lines"], ["stdin"], ["folder"]]
    assert all("supported: " in hint for hint in hints)


CANNOT_BE_IMPORTED = {
    "symphony.carriers": "symphony_broken.failing:Carrier",
    "symphony.trackers": "symphony_broken.failing:KIND",
    "symphony.agents": "symphony_broken.failing:KIND",
}
RAISES_WHERE_IT_IS_MADE = {
    "symphony.carriers": "symphony_broken.raising:Carrier",
    "symphony.trackers": "symphony_broken.raising:TRACKER",
    "symphony.agents": "symphony_broken.raising:Agent",
}


def _broken(place: Path, entry_points: Mapping[str, str]) -> Path:
    """A package as pip would have left it, whose entry points lead nowhere good; their groups and values."""
    code = place / "symphony_broken"
    code.mkdir(parents=True)
    (code / "__init__.py").touch()
    (code / "failing.py").write_text("import a_module_that_is_not_there\n")
    (code / "raising.py").write_text(
        "from symphony.agents.base import AgentBackend, Capabilities\n"
        "from symphony.trackers.registry import TrackerKind\n"
        "from symphony.config import AgentSection\n"
        "class Tracker(TrackerKind):\n"
        "    def create(self, settings, place): raise LookupError('no luck')\n"
        "    def states(self, settings, place): raise LookupError('no luck')\n"
        "class Agent(AgentBackend):\n"
        "    settings_type = AgentSection\n"
        "    capabilities = Capabilities(system_block_at_start=False, client_tools=False,\n"
        "        absolute_usage=False, sandbox=False, resume=False)\n"
        "    @classmethod\n"
        "    def check_settings(cls, settings, *, isolated): raise LookupError('no luck')\n"
        "TRACKER = Tracker()\n"
        "class Carrier: pass\n"
    )
    facts = place / "symphony_broken-0.3.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: symphony-broken\nVersion: 0.3\n")
    told = "".join(f"[{group}]\nbroken = {value}\n" for group, value in entry_points.items())
    (facts / "entry_points.txt").write_text(told)
    return place


@pytest.mark.parametrize(
    "entry_points", [CANNOT_BE_IMPORTED, RAISES_WHERE_IT_IS_MADE], ids=["import", "creation"]
)
def test_a_broken_package_is_told_by_its_name_where_it_is_used(
    project: Project, tmp_path: Path, entry_points: Mapping[str, str]
) -> None:
    project.workflow(tracker={"kind": "broken"}, agent={"kind": "broken"}, worker={"carrier": "broken"})
    lines = (project.repo / "WORKFLOW.md").read_text().splitlines()
    project.environment["PYTHONPATH"] = str(_broken(tmp_path / "site", entry_points))
    problems = [one for one in _problems(project) if one["severity"] == "error"]
    assert [one["code"] for one in problems] == ["broken_adapter"] * 3
    assert all("symphony-broken 0.3" in one["message"] for one in problems)
    assert all('"broken"' in lines[one["line"] - 1] for one in problems)


@pytest.mark.slow
def test_a_broken_package_stops_a_daemon_that_needs_it_and_no_other(project: Project, tmp_path: Path) -> None:
    project.environment["PYTHONPATH"] = str(_broken(tmp_path / "site", CANNOT_BE_IMPORTED))
    project.workflow(agent={"kind": "broken"})
    done = _symphony(project, "run", "--once", ACKNOWLEDGEMENT)
    assert done.returncode == 3
    assert "broken_adapter" in done.stderr
    assert "Traceback" not in done.stderr
    project.workflow(broken={"command": "x"}, agents={"spare": {"kind": "broken", "command": "x"}})
    assert [one for one in _problems(project) if one["severity"] == "error"] == []
    assert _symphony(project, "run", "--once").returncode == 0
    assert _symphony(project, "check", "--keys").returncode == 0


def test_the_page_shows_the_package_that_is_tested() -> None:
    page = (ROOT / "docs" / "adapters.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```\w+\n# (\S+)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert [name for name, _ in blocks] == [
        "pyproject.toml",
        "symphony_lines/tracker.py",
        "symphony_lines/agent.py",
        "symphony_lines/carrier.py",
    ]
    for name, text in blocks:
        assert text == (PACKAGE / name).read_text(encoding="utf-8"), f"docs/adapters.md shows another {name}"
