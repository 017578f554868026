"""Adapters are found by the metadata of packages, and nothing of one is imported before it is used."""

import importlib
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from symphony.adapters import AdapterError, AdapterRegistry
from symphony.domain import Category

GROUP = "symphony.tests"


def text_of(found: object) -> str:
    if not isinstance(found, str):
        raise TypeError("no text")
    return found


def package(site: Path, name: str, entry_points: str) -> None:
    facts = site / f"{name.replace('-', '_')}-1.2.dist-info"
    facts.mkdir(parents=True)
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n")
    (facts / "entry_points.txt").write_text(entry_points)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


@pytest.fixture
def adapters() -> AdapterRegistry[str]:
    return AdapterRegistry(GROUP, label="thing", check=text_of)


def test_names_are_known_without_importing_anything(site: Path, adapters: AdapterRegistry[str]) -> None:
    package(site, "one", f"[{GROUP}]\nb = nowhere:X\na = sys:platform\n")
    assert adapters.names == ("a", "b")
    assert adapters.load("a") == sys.platform
    with pytest.raises(KeyError):
        adapters.load("c")


@pytest.mark.parametrize("value", ["nowhere:X", "sys:nothing", "sys:path", "not a value"])
def test_what_cannot_be_loaded_is_told_with_its_package(
    site: Path, adapters: AdapterRegistry[str], value: str
) -> None:
    package(site, "one-two", f"[{GROUP}]\na = {value}\n")
    with pytest.raises(AdapterError) as caught:
        adapters.load("a")
    assert caught.value.failure.category is Category.BROKEN_ADAPTER
    assert "one-two 1.2" in caught.value.failure.message


def test_a_malformed_adapter_hides_no_other_one_of_its_package(
    site: Path, adapters: AdapterRegistry[str]
) -> None:
    with suppress(ImportError):  # OpenTelemetry brings it; it takes over the finding, and is strict
        importlib.import_module("importlib_metadata")
    package(site, "one", f"[{GROUP}]\na = not a value\nb = sys:platform\n")
    assert adapters.names == ("a", "b")
    assert adapters.load("b") == sys.platform


def test_a_kind_of_two_packages_is_told_with_both_where_it_is_used(
    site: Path, adapters: AdapterRegistry[str]
) -> None:
    package(site, "one", f"[{GROUP}]\na = sys:platform\nb = sys:platform\n")
    package(site, "two", f"[{GROUP}]\na = sys:byteorder\n")
    assert adapters.load("b") == sys.platform
    with pytest.raises(AdapterError, match=r"one 1\.2 and two 1\.2"):
        adapters.load("a")


def test_the_first_of_two_copies_of_a_package_counts(
    site: Path, adapters: AdapterRegistry[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    package(site, "one", f"[{GROUP}]\na = sys:byteorder\n")
    first = site / "first"
    package(first, "One", f"[{GROUP}]\na = sys:platform\n")
    monkeypatch.syspath_prepend(first)
    assert adapters.load("a") == sys.platform


def test_metadata_that_cannot_be_read_hides_no_other_package(
    site: Path, adapters: AdapterRegistry[str]
) -> None:
    package(site, "broken", f"[{GROUP}]\nno equals sign\n")
    package(site, "one", f"[{GROUP}]\na = sys:platform\n")
    assert adapters.load("a") == sys.platform


def test_only_the_adapters_that_a_workflow_uses_are_imported() -> None:
    script = """\
import sys
from pathlib import Path
from symphony.daemon.admission import judge
from symphony.config import WorkflowFile
data = b"---\\ntracker: {kind: memory}\\n---\\nx"
file = WorkflowFile(path=Path("/repo/WORKFLOW.md"), data=data)
assert judge(file, environment={"HOME": "/h"}, acknowledged=None).workflow is not None
for package in ("symphony.trackers", "symphony.agents"):
    print(*sorted({name.split(".")[2] for name in sys.modules if name.startswith(package + ".")}))
"""
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    trackers, agents = (set(line.split()) for line in done.stdout.splitlines())
    assert "memory" in trackers
    assert trackers.isdisjoint({"linear", "github", "gitlab", "jira", "forgejo", "asana", "redmine"})
    assert "codex" in agents
    assert agents.isdisjoint({"claude", "acp", "command"})
