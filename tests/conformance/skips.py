"""The skips that are permitted, each with its reason. Any other skipped test fails the check.

A test may be skipped for want of something that a package brings, if its reason names the package. CI installs
these packages: with `SYMPHONY_REQUIRE_REAL=1` such a skip is a failure.
"""

import re
from collections import Counter
from dataclasses import dataclass

import pytest

REQUIRE_REAL = "SYMPHONY_REQUIRE_REAL"
_NAMES_A_PACKAGE = re.compile(r"no .+ \((Debian|npm|PyPI): .+\)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Skip:
    """Tests that say `reason` may be skipped, because of `why`; never where the real thing is `required`."""

    reason: str
    why: str
    required: bool = False


PERMITTED = (
    Skip(reason="root may write everywhere", why="the case needs a user whom permissions hold"),
    Skip(reason="this user is not in the user database", why="a container may run as any number"),
    Skip(reason="only root can give a file to somebody else", why="the case needs root"),
    Skip(reason="only root can give a directory away", why="the case needs root", required=True),
    Skip(reason="only root can build and run an image here", why="the case needs root", required=True),
    Skip(reason="no Ray cluster: its network namespaces take root", why="the case needs root", required=True),
    Skip(reason="no network namespaces here: they take root", why="the case needs root", required=True),
    Skip(reason="nothing can be booted: that takes root", why="the case needs root", required=True),
    Skip(reason="no Python that an ordinary user may run", why="root's own may be the only one", required=True),
    Skip(reason="no home in which this user may write", why="a sandbox hides temp directories anyway", required=True),
    Skip(reason="no /proc", why="Linux alone has it", required=True),
    Skip(reason="there is no /dev/full", why="Linux alone has it", required=True),
    Skip(reason="this machine has no user namespaces to take away", why="the case needs a host that has them"),
    Skip(reason="no mount namespace to make a small disk in", why="the case needs a host that has them"),
    Skip(reason="a corpus of skills is not part of the repository (set SYMPHONY_SKILL_CORPUS)", why="skills of others are not ours to hand on"),
    Skip(reason="the schemas of the vendors are not part of the repository (set SYMPHONY_VENDOR_SCHEMAS)", why="what vendors publish is theirs to hand on"),
    Skip(reason="this git clones repositories of other users", why="the case needs a git that refuses them"),
    Skip(reason="only root may mount /proc so that it hides processes", why="the case needs root", required=True),
    Skip(reason="no namespace in which /proc can be mounted", why="a container may lack the right to one"),
    Skip(reason="no PID namespace can be made", why="a container may lack the right to one"),
    Skip(reason="no control group that this user may divide", why="the case needs a group of one's own, or root's"),
    Skip(reason="nothing can be booted: no mount namespace of its own", why="a container may lack the right to one"),
    Skip(reason="the tree to boot has another Python than these tests, which could not load their libraries", why="libraries are made for one Python"),
    Skip(reason="not a git checkout, so there is nothing to clone", why="an unpacked archive has no history"),
    Skip(reason="no gemini: `make agents` installs it, and names it in SYMPHONY_TEST_GEMINI", why="a real agent that CI does not install"),
    Skip(reason="no opencode: `make agents` installs it, and names it in SYMPHONY_TEST_OPENCODE", why="a real agent that CI does not install"),
    Skip(reason="no codex-acp: `make agents` installs it, and names it in SYMPHONY_TEST_CODEX_ACP", why="a real agent that CI does not install"),
    Skip(reason="no claude-agent-acp: `make agents` installs it, and names it in SYMPHONY_TEST_CLAUDE_ACP", why="a real agent that CI does not install"),
    Skip(reason="no aider: `make agents` installs it, and names it in SYMPHONY_TEST_AIDER", why="a real agent that CI does not install"),
    Skip(reason="its model judges what would be asked: the codex backend shows this", why="codex-acp asks otherwise"),
    Skip(reason="the agent has no resume, as its capabilities say", why="Gemini CLI goes on with no session"),
    Skip(reason="no permission for bubblewrap to make user namespaces on this machine", why="the case needs a host that permits them", required=True),
)  # fmt: skip


def objection(reason: str, *, require_real: bool) -> str | None:
    """Why a skip for that reason is not permitted; None where it is."""
    for skip in PERMITTED:
        if skip.reason == reason:
            return f"{REQUIRE_REAL} is set" if skip.required and require_real else None
    if _NAMES_A_PACKAGE.fullmatch(reason):
        return f"{REQUIRE_REAL} is set" if require_real else None
    return "no such skip is permitted; see tests/conformance/skips.py"


def reason_of(report: pytest.TestReport) -> str:
    """Why a test was skipped, or why it was expected to fail."""
    match report.longrepr:
        case (_, _, str(text)):
            return text.removeprefix("Skipped: ")
        case other:
            return f"expected to fail: {getattr(report, 'wasxfail', '') or other}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """List each reason of skipped tests once, with their number."""
    counted = Counter(map(reason_of, terminalreporter.getreports("skipped")))
    if counted:
        terminalreporter.section("skipped tests")
    for reason, count in sorted(counted.items()):
        terminalreporter.write_line(f"{count:4} skipped: {reason}")
