import re
import subprocess

import pytest

from symphony.agents.process import shell_argv


def script(command: str, *secrets: str) -> str:
    shell, flags, text = shell_argv(command, secrets)
    assert (shell, flags) == ("bash", "-lc")
    return text


@pytest.mark.conformance("A-1")
def test_the_command_stands_last_and_unchanged() -> None:
    command = "  X='a b' codex app-server | tee log  # why"
    assert script(command) == command


def test_a_plain_program_is_executed_in_place_of_the_shell() -> None:
    assert script("codex app-server") == (
        "declare -F -- codex >/dev/null || exec codex app-server\ncodex app-server"
    )


@pytest.mark.parametrize(
    "command", ["test -f x", "cd /", "command codex", "exec codex", "time codex", ". file"]
)
def test_what_belongs_to_the_shell_is_left_to_it(command: str) -> None:
    assert script(command) == command


@pytest.mark.conformance("A-1")
@pytest.mark.parametrize(
    "command", ["X=1 codex", "codex; true", "codex 'a'", "codex $X", "codex\ntrue", "~/codex", "a & b", "(a)"]
)
def test_anything_else_is_left_to_the_shell(command: str) -> None:
    assert "exec" not in script(command)


def test_secrets_are_unset_first_and_in_order() -> None:
    assert script("codex; true", "B", "A").splitlines() == ["unset -v A B || exit 78", "codex; true"]


def test_a_name_that_is_no_variable_cannot_become_code() -> None:
    assert script("codex; true", "A; rm -rf /", "1X", "") == "codex; true"


def test_the_daemons_search_path_comes_behind_that_of_the_profile() -> None:
    argv = shell_argv("codex; true", ["A"], search_path="/opt/it's here/bin:/bin")
    assert argv[2].splitlines() == ['PATH="$PATH:$1"; shift', "unset -v A || exit 78", "codex; true"]
    assert argv[3:] == ("bash", "/opt/it's here/bin:/bin"), "as an argument, so that no quoting is needed"


@pytest.mark.parametrize("command", ["claude", "X=1 claude | tee log"])
@pytest.mark.parametrize("search_path", [None, "/opt/bin"])
def test_arguments_follow_the_command_as_words_of_their_own(command: str, search_path: str | None) -> None:
    arguments = ("--say=two words", "$HOME; 'x'", "")
    argv = shell_argv(command, ("KEY",), search_path=search_path, arguments=arguments)
    assert argv[2].splitlines()[-1] == f'{command} "$@"'
    assert argv[-3:] == arguments
    assert argv[3:-3] == (("bash",) if search_path is None else ("bash", search_path))


@pytest.mark.parametrize(
    "command", ["printf '<%s>'", "f() { printf '<%s>' \"$@\"; }; f", "/usr/bin/printf %s,"]
)
@pytest.mark.parametrize("search_path", [None, "/opt/bin"])
def test_the_program_gets_them_unchanged(command: str, search_path: str | None) -> None:
    arguments = ("a b", "$HOME `x` \"'", "--", "ü")
    argv = shell_argv(command, (), search_path=search_path, arguments=arguments)
    done = subprocess.run(argv, check=True, capture_output=True, text=True)
    assert re.split(r"[<>,]+", done.stdout.strip("<>,")) == list(arguments)
