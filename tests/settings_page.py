"""The tables of docs/workflow-file.md, from the models of the settings: `make settings` writes them anew.

`tests/unit/docs/test_references.py` reads the examples as workflows.
"""

from itertools import groupby
from pathlib import Path

from symphony.config import KEYS, Key

PAGE = Path(__file__).parents[1] / "docs" / "workflow-file.md"
BEGIN, END = "<!-- settings:begin -->\n", "<!-- settings:end -->"
EXAMPLES = {
    "tracker": """\
tracker:
  kind: github
  provider:
    repo: octo-team/website
    token: $GITHUB_TOKEN
    states: {source: labels}
  active_states: [Todo, In Progress]
  terminal_states: [Done]
  required_labels: [agent]""",
    "polling": """\
polling:
  interval_ms: 30000""",
    "workspace": """\
workspace:
  root: $SYMPHONY_STATE_DIR/workspaces
  repo: .
  push: origin
  isolation: bwrap""",
    "hooks": """\
hooks:
  after_create: uv sync
  before_run: git fetch origin
  timeout_ms: 120000""",
    "agent": """\
agent:
  kind: codex
  fallback: claude
  rules:
    - label: docs
      use: claude
  max_concurrent_agents: 4""",
    "agent.budget": """\
agent:
  budget:
    max_tokens_per_issue: 5000000
    max_tokens_per_day: 50000000""",
    "agent.skills": """\
agent:
  skills:
    path: .symphony/skills
    extra_paths: [.agents/skills]
    comment_on: warning""",
    "agents": """\
agents:
  reviewer:
    kind: claude
    model: opus""",
    "codex": """\
codex:
  model: gpt-5.1-codex
  effort: high
  env: [UV_CACHE_DIR]""",
    "claude": """\
claude:
  permission_mode: acceptEdits
  env: [ANTHROPIC_API_KEY]""",
    "acp": """\
acp:
  profile: gemini
  env: [GEMINI_API_KEY]""",
    "command": """\
command:
  command: ./agent.sh {prompt_file}
  turn_timeout_ms: 600000""",
    "server": """\
server:
  port: 8080""",
    "retention": """\
retention:
  max_age_days: 90""",
}
"""An example for each section that has one, by its heading."""


def current(page: str) -> str:
    """The page with the tables of today's settings."""
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    sections = (_section(name, list(keys)) for name, keys in groupby(KEYS.values(), _heading))
    return before + BEGIN + "\n" + "\n".join(sections) + "\n" + END + after


def _heading(key: Key) -> str:
    return key.name.rpartition(".")[0] or key.name


def _section(name: str, keys: list[Key]) -> str:
    example = f"```yaml\n{EXAMPLES[name]}\n```\n\n" if name in EXAMPLES else ""
    head = "| key | type | default | meaning | reload |\n|---|---|---|---|---|\n"
    return f"### `{name}`\n\n{example}{head}" + "".join(f"{_row(key)}\n" for key in keys)


def _row(key: Key) -> str:
    default = f"`{key.default}`" if key.default is not None else "required" if key.required else key.unset
    return f"| `{key.name}` | {key.shape} | {default} | {key.meaning} | {key.reload} |"


if __name__ == "__main__":
    PAGE.write_text(current(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
