import os
import stat
from pathlib import Path

import anyio
import pytest

from symphony.agents.base import AgentError, BackendContext
from symphony.agents.codex.backend import (
    CODEX_VARIABLES,
    CodexBackend,
    codex_home,
    codex_skill_roots,
    provider_variables,
)
from symphony.agents.environment import child_environment, private_home
from symphony.config import CodexSettings
from symphony.domain import Category
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


def context(homes: Path, **environ: str) -> BackendContext:
    return BackendContext(host=LocalHost(), environ=environ, secret_names=frozenset(), homes=homes)


def test_a_home_is_made_for_this_user_alone(tmp_path: Path) -> None:
    home = private_home(context(tmp_path / "state" / "homes"), "codex")
    assert home == tmp_path / "state" / "homes" / "codex"
    assert [stat.S_IMODE(place.stat().st_mode) for place in (home, home.parent)] == [0o700, 0o700]


def test_a_home_that_is_there_keeps_what_is_in_it_and_is_closed_again(tmp_path: Path) -> None:
    home = private_home(context(tmp_path), "codex")
    (home / "auth.json").write_text("{}", "utf-8")
    home.chmod(0o755)
    assert private_home(context(tmp_path), "codex") == home
    assert (home / "auth.json").exists()
    assert stat.S_IMODE(home.stat().st_mode) == 0o700


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", ".hidden", "a\nb"])
def test_a_name_that_would_leave_the_directory_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(AgentError) as caught:
        private_home(context(tmp_path / "homes"), name)
    assert caught.value.failure.category is Category.STATE_DIRECTORY
    assert not (tmp_path / "homes").exists()


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "codex").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(AgentError, match="not a directory of this user"):
        private_home(context(tmp_path), "codex")


def test_a_file_in_the_way_is_told_with_a_hint(tmp_path: Path) -> None:
    (tmp_path / "homes").write_text("", "utf-8")
    with pytest.raises(AgentError) as caught:
        private_home(context(tmp_path / "homes"), "codex")
    assert "Not a directory" in caught.value.failure.message
    assert "SYMPHONY_STATE_DIR" in str(caught.value.failure.hint)


def test_a_home_below_the_temp_directory_is_refused_only_where_the_agent_would(tmp_path: Path) -> None:
    place = context(tmp_path / "homes", TMPDIR=str(tmp_path))
    assert private_home(place, "claude").is_dir()
    with pytest.raises(AgentError, match="lies below the temp directory"):
        private_home(place, "codex", outside_temp=True)
    assert not (tmp_path / "homes" / "codex").exists()
    elsewhere = context(tmp_path / "homes", TMPDIR=str(tmp_path / "t"))
    assert private_home(elsewhere, "codex", outside_temp=True).is_dir()
