"""Skills written by others: those that ship inside the real Codex load as they are.

They are embedded in its binary, which writes them into its home when it starts.
"""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from harness.real import require_codex
from kit.codex_home import codex_home
from symphony.skills import Severity, SkillOptions, Validation, load, render

pytestmark = pytest.mark.real_codex

SHIPPED = {"imagegen", "openai-docs", "review-agent", "skill-creator", "skill-installer"}


@pytest.fixture
def shipped(tmp_path: Path) -> Path:
    """A workspace whose `skills` are those of the installed Codex."""
    codex = require_codex()
    with codex_home("http://127.0.0.1:1") as home:
        server = subprocess.Popen(
            [codex, "app-server"],
            env=dict(home.env),
            cwd=tmp_path,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            written = home.path / "skills" / ".system"
            _wait_for(written)
            written.rename(tmp_path / "skills")
        finally:
            server.send_signal(signal.SIGKILL)
            server.communicate()
    return tmp_path


def _wait_for(written: Path) -> None:
    """Until all of them can be read; directories and files appear a moment before their contents."""
    deadline = time.monotonic() + 30
    options = SkillOptions(path=written.name)
    while not {skill.name for skill in load(written.parent, options).skills} >= SHIPPED:
        assert time.monotonic() < deadline, "Codex did not write its skills"
        os.sched_yield()


def test_the_skills_of_codex_load_unmodified(shipped: Path) -> None:
    options = SkillOptions(path="skills")
    found = load(shipped, options)
    assert {skill.name for skill in found.skills} >= SHIPPED
    assert [one for one in found.problems if one.severity is Severity.ERROR] == []
    for_people = {skill.name for skill in found.skills if skill.for_people}
    assert for_people == {"review-agent"}, "Codex itself does not offer it to its agent"
    assert set(render(found, options).listed) >= SHIPPED - for_people


def test_all_but_their_own_extra_files_pass_the_strict_profile(shipped: Path) -> None:
    strict = load(shipped, SkillOptions(path="skills", validation=Validation.STRICT))
    assert {skill.name for skill in strict.skills} >= SHIPPED
