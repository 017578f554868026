"""`make agents`: run the tests of every real agent, print what they showed, write it into docs/agents.md."""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import pytest

from real_agents.recorder import Recorder
from real_agents.results import AGENTS, placed, table

__all__ = ["main", "version_of"]

_ROOT = Path(__file__).parents[2]
_PAGE = _ROOT / "docs" / "agents.md"
_VERSION = re.compile(r"\d+\.\d+(?:\.\d+)?")
_VARIABLES = {
    "codex": "SYMPHONY_TEST_CODEX",
    "claude": "SYMPHONY_TEST_CLAUDE",
    "codex-acp": "SYMPHONY_TEST_CODEX_ACP",
    "claude-agent-acp": "SYMPHONY_TEST_CLAUDE_ACP",
    "gemini": "SYMPHONY_TEST_GEMINI",
    "opencode": "SYMPHONY_TEST_OPENCODE",
    "aider": "SYMPHONY_TEST_AIDER",
}
_TIMEOUT_S = 60


def version_of(program: str) -> str:
    """The version of an installed program: of its npm package, else what it says; empty for none."""
    if not program or not os.access(program, os.X_OK):
        return ""
    for folder in Path(program).resolve().parents:
        package = folder / "package.json"
        if package.is_file() and (
            found := _VERSION.match(json.loads(package.read_text()).get("version", ""))
        ):
            return found[0]
    said = subprocess.run(
        [program, "--version"], capture_output=True, text=True, check=False, timeout=_TIMEOUT_S
    )
    spoken = _VERSION.search(said.stdout)
    return spoken[0] if spoken else "unknown"


def _arguments(name: str) -> list[str]:
    marks = "real_codex or real_claude or real_aider or real_acp"
    own = f"--basetemp={Path(tempfile.gettempdir()) / name}"  # others may have left much
    places = [str(_ROOT / "tests" / kind) for kind in ("acceptance", "integration")]  # the others drive none
    return [own, "-q", "-p", "no:cacheprovider", "-m", marks, *places]


def main(argv: list[str]) -> int:
    """Exit code 0 where nothing failed; skips are no failures, and stand in the table with their reasons."""
    parser = argparse.ArgumentParser(prog="real_agents", description=__doc__)
    parser.add_argument("--only", choices=AGENTS, help="drive this agent alone, and write its line")
    given = parser.parse_args(argv)
    recorder = Recorder(given.only)
    code = pytest.main(_arguments(f"symphony-real-{given.only or 'agents'}"), plugins=[recorder])
    versions = {agent: version_of(os.environ.get(name, "")) for agent, name in _VARIABLES.items()}
    shown = table(recorder.results, versions, datetime.now(UTC).date().isoformat())
    sys.stdout.write(f"\n{shown}")
    if code in {pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED}:  # not of a run that was broken off
        _PAGE.write_text(placed(_PAGE.read_text("utf-8"), shown, given.only), "utf-8")
    return int(code)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
