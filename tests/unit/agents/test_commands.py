import shlex
from typing import Any

import pytest

from symphony.agents.commands import shown_command

SCRIPTS = [
    "git status",
    "git commit -m \"one 'two'\"",
    "echo 'it''s'",
    "python - <<'EOF'\nprint(\"x\")\nEOF",
    "echo $HOME '$HOME' \"$HOME\" \\' done",
    "'",
    "printf '%s' \"a\"",
]


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("shell", ["/bin/bash -lc", "bash -c", "sh -c", "/usr/bin/zsh -lc"])
def test_of_a_shell_with_a_script_the_script_is_shown_exactly(shell: str, script: str) -> None:
    words = [*shell.split(), script]
    assert shown_command(words) == script
    assert shown_command(shlex.join(words)) == script
    doubled = script.replace("\\", "\\\\").replace('"', '\\"').replace("$", "\\$").replace("`", "\\`")
    assert shown_command(f'{shell} "{doubled}"') == script


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("git log --format='%s'", "git log --format='%s'"),
        ("bash script.sh 'a'", "bash script.sh 'a'"),
        ("bash -lc 'unfinished", "bash -lc 'unfinished"),
        ("bash -lc 'echo $0' name", "bash -lc 'echo $0' name"),
        ("env -c 'x'", "env -c 'x'"),
        (["git", "commit", "-m", "two words"], "git commit -m 'two words'"),
        (["bash", "-c"], "bash -c"),
        ([], ""),
        ("", ""),
        (None, ""),
        (7, ""),
    ],
)
def test_any_other_command_stays_as_it_is(command: Any, shown: str) -> None:
    assert shown_command(command) == shown
