"""What the tests of real agents showed, as a table for people. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

__all__ = ["AGENTS", "BEGIN", "END", "Result", "agent_of", "placed", "table"]

AGENTS = ("codex", "claude", "codex-acp", "claude-agent-acp", "gemini", "opencode", "aider")
BEGIN, END = "<!-- results:begin -->\n", "<!-- results:end -->\n"
_PREFIX = "real_"
_MAX_REASON_CHARS = 160


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """How a test of an agent ended: `passed`, `failed` or `skipped`, and then why."""

    agent: str
    test: str
    outcome: str
    reason: str = ""


def agent_of(marks: Iterable[tuple[str, Sequence[object]]]) -> str | None:
    """Which agent a test drives, by its marks; null for a test of none."""
    for name, arguments in marks:
        if name == "real_acp" and arguments:
            return str(arguments[0])
        if name.removeprefix(_PREFIX) in AGENTS and name.startswith(_PREFIX):
            return name.removeprefix(_PREFIX)
    return None


def table(results: Sequence[Result], versions: Mapping[str, str], today: str) -> str:
    """A line for each agent: version, date, how much was shown, and what was not."""
    lines = ["| agent | version | date | shown | not shown |\n", "|---|---|---|---|---|\n"]
    for agent in AGENTS:
        mine = [result for result in results if result.agent == agent]
        passed = sum(result.outcome == "passed" for result in mine)
        shown = f"{passed} of {len(mine)}" if versions.get(agent) else "nothing"
        date = today if versions.get(agent) else ""
        version = versions.get(agent) or "not installed"
        lines.append(f"| {agent} | {version} | {date} | {shown} | {_not_shown(mine)} |\n")
    return "".join(lines)


def _not_shown(results: Sequence[Result]) -> str:
    """Failures by their tests, and each reason of a skip once."""
    failed = [f"failed: {_words(result.test)}" for result in results if result.outcome == "failed"]
    skipped = [result.reason[:_MAX_REASON_CHARS] for result in results if result.outcome == "skipped"]
    return "; ".join(dict.fromkeys([*failed, *skipped])).replace("|", "/")


def _words(test: str) -> str:
    return test.partition("[")[0].removeprefix("test_").replace("_", " ")


def placed(page: str, shown: str, only: str | None = None) -> str:
    """The page with the table between its marks, or with the line of `only` one agent in the table it has.

    Raises:
        ValueError: the page has no such marks.
    """
    before, found, rest = page.partition(BEGIN)
    earlier, ended, after = rest.partition(END)
    if not found or not ended:
        raise ValueError(f"the page has no place for the table: {BEGIN.strip()} … {END.strip()}")
    if only is not None:
        shown = _with_line(earlier, shown, f"| {only} |")
    return f"{before}{BEGIN}{shown}{END}{after}"


def _with_line(earlier: str, shown: str, begin: str) -> str:
    """The earlier table with the line of the new one that begins so."""
    (new,) = [line for line in shown.splitlines(keepends=True) if line.startswith(begin)]
    lines = earlier.splitlines(keepends=True)
    return "".join(new if line.startswith(begin) else line for line in lines)
