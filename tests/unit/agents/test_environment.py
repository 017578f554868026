import os
from pathlib import Path

import anyio
import pytest

from symphony.agents.base import BackendContext
from symphony.agents.codex.backend import (
    CODEX_VARIABLES,
    CodexBackend,
    codex_home,
    codex_skill_roots,
    provider_variables,
)
from symphony.agents.environment import child_environment
from symphony.config import CodexSettings
from symphony.processes.local import LocalHost

PARENT = {
    "HOME": "/h",
    "PATH": "/bin",
    "LC_ALL": "C",
    "XDG_RUNTIME_DIR": "/run/x",
    "HTTPS_PROXY": "p",
    "https_proxy": "p",
    "SSL_CERT_FILE": "c",
    "LINEAR_API_KEY": "secret",
    "GITHUB_TOKEN": "secret",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "SSH_AUTH_SOCK": "s",
    "LD_PRELOAD": "l",
    "BASH_ENV": "b",
    "PYTHONPATH": "p",
    "OPENAI_API_KEY": "k",
    "SYMPHONY_RUN_ID": "theirs",
}


UNATTENDED = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_EDITOR": "true",
    "GIT_SEQUENCE_EDITOR": "true",
    "GIT_PAGER": "cat",
}


def test_only_what_is_allowed_passes() -> None:
    passed = child_environment(PARENT, run_id="r1", agent_names=CODEX_VARIABLES)
    assert set(passed) == {
        *("HOME", "PATH", "LC_ALL", "XDG_RUNTIME_DIR", "HTTPS_PROXY", "https_proxy", "SSL_CERT_FILE"),
        *("OPENAI_API_KEY", "SYMPHONY_RUN_ID"),
        *UNATTENDED,
    }
    assert passed["SYMPHONY_RUN_ID"] == "r1"


def test_what_a_workflow_asks_for_is_added() -> None:
    expected = {"CI": "1", "SYMPHONY_RUN_ID": "r", **UNATTENDED, "GIT_PAGER": "less"}
    assert child_environment({}, run_id="r", extra={"CI": "1", "GIT_PAGER": "less"}) == expected


@pytest.mark.conformance("A-14")
def test_a_secret_never_passes_whoever_asks() -> None:
    passed = child_environment(
        PARENT,
        run_id="r",
        agent_names={"OPENAI_API_KEY"},
        extra={"LINEAR_API_KEY": "again", "SYMPHONY_RUN_ID": "forged"},
        secret_names={"LINEAR_API_KEY", "OPENAI_API_KEY", "HOME"},
    )
    assert not {"LINEAR_API_KEY", "OPENAI_API_KEY", "HOME"} & set(passed)
    assert passed["SYMPHONY_RUN_ID"] == "r"


def test_the_home_of_codex_is_named_or_below_home() -> None:
    assert str(codex_home({"CODEX_HOME": "/c", "HOME": "/h"})) == "/c"
    assert str(codex_home({"HOME": "/h"})) == "/h/.codex"
    assert codex_home({"CODEX_HOME": ""}) is None


def test_variables_of_model_providers_are_found() -> None:
    config = """
        model = "m"
        [model_providers.a]
        env_key = "A_KEY"
        [model_providers.b]
        env_http_headers = { "X-Org" = "B_ORG" }
        [model_providers.c]
        env_key = 3
        [mcp_servers.x]
        bearer_token_env_var = "NOT_THIS"
    """
    assert provider_variables(config) == {"A_KEY", "B_ORG"}


def test_a_configuration_that_cannot_be_read_names_none() -> None:
    assert provider_variables("= broken") == frozenset()
    assert provider_variables("model_providers = 3") == frozenset()
    assert provider_variables("[model_providers]\nx = 1") == frozenset()


def backend(home: Path) -> CodexBackend:
    context = BackendContext(
        host=LocalHost(), environ={"CODEX_HOME": str(home)}, secret_names=frozenset(), homes=home / "homes"
    )
    return CodexBackend(settings=CodexSettings(), context=context)


@pytest.mark.asyncio
async def test_variables_of_providers_are_read_from_the_home_once(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text('[model_providers.a]\nenv_key = "A_KEY"\n', "utf-8")
    codex = backend(tmp_path)
    assert await codex.own_variables() == CODEX_VARIABLES | {"A_KEY"}
    file.write_text("", "utf-8")
    assert "A_KEY" in await codex.own_variables()


@pytest.mark.asyncio
async def test_a_configuration_that_an_agent_replaced_by_a_pipe_or_a_device_blocks_nothing(
    tmp_path: Path,
) -> None:
    file = tmp_path / "config.toml"
    assert await backend(tmp_path).own_variables() == CODEX_VARIABLES
    os.mkfifo(file)
    with anyio.fail_after(60):
        assert await backend(tmp_path).own_variables() == CODEX_VARIABLES
    file.unlink()
    file.symlink_to("/dev/zero")
    with anyio.fail_after(60):
        assert await backend(tmp_path).own_variables() == CODEX_VARIABLES
    file.unlink()
    file.mkdir()
    assert await backend(tmp_path).own_variables() == CODEX_VARIABLES


def test_skills_are_found_in_the_workspace_at_home_and_in_etc() -> None:
    roots = codex_skill_roots({"HOME": "/h", "CODEX_HOME": "/c"})
    assert roots.workspace == (".agents/skills", ".codex/skills")
    assert [str(root) for root in roots.host] == ["/h/.agents/skills", "/c/skills", "/etc/codex/skills"]
    assert [str(root) for root in codex_skill_roots({}).host] == ["/etc/codex/skills"]
