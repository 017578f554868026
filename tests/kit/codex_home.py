"""A real Codex for tests: find its binary, and give it a private home that points to the model server."""

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kit.binaries import NpmProgram

__all__ = ["CodexHome", "codex_home", "find_codex"]

_PROGRAM = NpmProgram(
    name="codex", variable="SYMPHONY_TEST_CODEX", package="@openai/codex", native="codex-*/vendor/*/bin/codex"
)
_CONFIG = """\
model = "{model}"
model_provider = "local"
{more}
[model_providers.local]
name = "local"
base_url = "{base_url}"
wire_api = "responses"
env_key = "LOCAL_KEY"
request_max_retries = 1
stream_max_retries = 1
stream_idle_timeout_ms = 20000
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class CodexHome:
    """A home that exists; `env` is what the agent needs to use it, `PATH` included and nothing else."""

    path: Path
    env: Mapping[str, str]


@contextmanager
def codex_home(base_url: str, *, model: str = "gpt-5.5", more: str = "") -> Iterator[CodexHome]:
    """A fresh home below /var/tmp, removed at the end; `more` is TOML for the top of its configuration.

    Codex refuses a home below the temp directory (its sandboxed commands then fail while turns "complete"),
    and pytest's folders are below /tmp: so this home is not, and `TMPDIR` is a folder beside it.
    """
    top = Path(tempfile.mkdtemp(prefix="symphony-codex-", dir="/var/tmp"))
    try:
        home, temp = top / "home", top / "tmp"
        home.mkdir()
        temp.mkdir()
        config = _CONFIG.format(model=model, base_url=base_url, more=more)
        (home / "config.toml").write_text(config, "utf-8")
        yield CodexHome(path=home, env=_env(home, temp))
    finally:
        shutil.rmtree(top, ignore_errors=True)


def find_codex(environ: Mapping[str, str] = os.environ) -> Path | None:
    """The Codex binary: `SYMPHONY_TEST_CODEX`, else `codex` on `PATH` (the native one first), else null."""
    return _PROGRAM.find(environ)


def _env(home: Path, temp: Path) -> Mapping[str, str]:
    return {
        "CODEX_HOME": str(home),
        "HOME": str(home),
        "LOCAL_KEY": "not-a-secret",
        "PATH": os.environ.get("PATH", os.defpath),
        "TMPDIR": str(temp),
    }
