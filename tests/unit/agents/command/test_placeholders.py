import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from symphony.agents.command.placeholders import (
    VARIABLES,
    placeholder_problems,
    shell_command,
    used_placeholders,
)


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("agent", "agent"),
        ("agent --task {prompt_file}", 'agent --task "${SYMPHONY_PROMPT_FILE}"'),
        ('agent "$(cat {prompt_file})"', 'agent "$(cat "${SYMPHONY_PROMPT_FILE}")"'),
        ('agent "in {workspace}/x"', 'agent "in ${SYMPHONY_WORKSPACE}/x"'),
        ("agent < {prompt_file} | tee {workspace}/log", None),
        ("agent --json '{{\"a\": 1}}'", "agent --json '{\"a\": 1}'"),
        ("agent ${HOME}/x ${A:-{b}} {model}", 'agent ${HOME}/x ${A:-{b}} "${SYMPHONY_MODEL}"'),
        (r"agent \{model} \" {issue}", None),
        ("f() {{ agent {issue}; }}; f", 'f() { agent "${SYMPHONY_ISSUE_IDENTIFIER}"; }; f'),
        ("echo 'it''s' {issue}", "echo 'it''s' \"${SYMPHONY_ISSUE_IDENTIFIER}\""),
        (r"echo 'a\' {issue}", "echo 'a\\' \"${SYMPHONY_ISSUE_IDENTIFIER}\""),
        ('echo "it\'s" `cat {prompt_file}`', None),
        ('(cd x; agent "$(basename "{issue}")")', None),
    ],
)
def test_a_placeholder_is_one_word_wherever_it_stands(command: str, expected: str | None) -> None:
    if r"\{" not in command:
        assert placeholder_problems(command) == ()
    if expected is not None:
        assert shell_command(command) == expected


def test_what_a_command_uses_is_known() -> None:
    assert used_placeholders("a {prompt_file} {{model}} ${issue} {title}") == {"prompt_file", "title"}


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("agent {promptfile}", "holds {promptfile}, which is no placeholder"),
        ("agent {prompt_file", "holds a single {"),
        ("agent prompt_file}", "holds a single }"),
        ("awk '{print $1}'", "holds a single {"),
        ("bash -c 'agent {prompt_file}'", "holds {prompt_file} in single quotes"),
        ("agent ${HOME", "holds ${ without its }"),
        ("agent {}", "holds a single {"),
        ("agent {prompt-file}", "holds a single {"),
    ],
)
def test_what_cannot_be_filled_in_is_told_with_what_to_do(command: str, words: str) -> None:
    found = placeholder_problems(command)
    assert words in found[0].problem
    assert found[0].hint


def test_every_problem_is_told() -> None:
    assert len(placeholder_problems("agent {one} {two} '{issue}' {")) == 4


HOSTILE = "$(touch made) `touch made` '; touch made; ' \" && touch made \\ {issue} ${HOME} * \n#"


@pytest.mark.parametrize(
    "command",
    [
        "printf %s {title}",
        'printf %s "{title}"',
        'printf %s "$(printf %s {title})"',
        'printf %s "$(printf %s "{title}")"',
        'printf %s "`printf %s {title}`"',
        "(printf %s {title})",
        "printf %s ''{title}''",
    ],
)
def test_a_shell_takes_no_text_of_an_issue_for_a_command(command: str, tmp_path: Path) -> None:
    environment = {"PATH": "/usr/bin:/bin", VARIABLES["title"]: HOSTILE}
    assert placeholder_problems(command) == ()
    done = subprocess.run(
        ["bash", "-c", shell_command(command)], cwd=tmp_path, env=environment, capture_output=True, check=True
    )
    assert done.stdout.decode() == HOSTILE
    assert list(tmp_path.iterdir()) == []


@given(st.text(alphabet="ab{}\"'`$()\\ ", max_size=30))
def test_any_text_is_judged_and_nothing_is_lost_of_a_sound_one(command: str) -> None:
    if not placeholder_problems(command):
        whole = shell_command(command)
        assert whole.count("{") <= command.count("{")
        assert whole.replace("{", "").replace("}", "") == command.replace("{", "").replace("}", "")
