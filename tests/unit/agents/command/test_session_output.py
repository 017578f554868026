import signal
from typing import Any

import pytest

from symphony.agents.command.backend import CommandBackend
from symphony.agents.command.profiles import PROFILES, CommandProfile, command_of
from symphony.agents.command.session import TurnOutput
from symphony.agents.events import Activity, Text, TurnEnd, TurnStatus
from symphony.config import CommandSettings
from symphony.domain import Blame, Category, Failure

GENERIC, AIDER = PROFILES["generic"], PROFILES["aider"]


def failure(ended: TurnEnd) -> Failure:
    assert ended.status is TurnStatus.FAILED
    assert ended.failure is not None
    return ended.failure


# --- output ----------------------------------------------------------------------------------------------


def test_each_line_is_a_word_without_what_steers_a_terminal() -> None:
    output = TurnOutput(GENERIC)
    events = output.receive(b"\x1b[32mgreen\x1b[0m\n\n  two\twords \npart")
    assert events == [Activity(count=1), Text(message="green"), Text(message="  two\twords")]
    assert output.receive(b"ly\n") == [Text(message="partly")]
    assert output.receive(b"unfinished") == [Activity(count=1)]
    assert output.close() == [Text(message="unfinished")]
    assert output.close() == []
    assert failure(output.turn_end(1, "")).message == "the agent ended with exit code 1: unfinished"


def test_of_a_bar_of_progress_the_last_state_counts() -> None:
    assert TurnOutput(GENERIC).receive(b" 10%\r 50%\r100%\r\r\n") == [Text(message="100%")]


def test_of_many_lines_at_once_the_last_is_a_message_and_those_before_it_are_another_one() -> None:
    output = TurnOutput(GENERIC)
    events = output.receive(b"".join(b"%d\n" % number for number in range(1_000)))
    assert events == [Text(message="\n".join(map(str, range(999)))), Text(message="999")]


def test_a_line_without_end_is_a_sign_of_life_and_takes_no_room() -> None:
    output = TurnOutput(GENERIC)
    for _ in range(100):
        assert output.receive(b"x" * 65_536) == [Activity(count=1)]
    too_long, following = output.receive(b"\nnext\n")
    assert isinstance(too_long, Text)
    assert "6553600 bytes" in too_long.message
    assert following == Text(message="next")


def test_a_key_in_the_output_is_masked() -> None:
    (event,) = TurnOutput(GENERIC).receive(b"Authorization: Bearer abcdefghijklmnop123456\n")
    assert isinstance(event, Text)
    assert "abcdefghijklmnop123456" not in event.message


# --- the end ---------------------------------------------------------------------------------------------


def test_exit_code_0_is_a_turn_that_completed() -> None:
    assert TurnOutput(GENERIC).turn_end(0, "bye") == TurnEnd(status=TurnStatus.COMPLETED)


@pytest.mark.parametrize("code", [126, 127])
def test_a_program_that_is_not_there_is_known_by_its_exit_code(code: int) -> None:
    found = failure(TurnOutput(GENERIC).turn_end(code, "bash: my-agent: command not found"))
    assert found.category is Category.AGENT_NOT_FOUND
    assert found.blame is Blame.CONFIG
    assert found.message == "the agent's program was not found: bash: my-agent: command not found"
    assert found.hint == GENERIC.install_hint


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (1, "the agent ended with exit code 1: boom"),
        (200, "the agent ended with exit code 200: boom"),
        (-signal.SIGKILL, "the agent was ended by SIGKILL: boom"),
        (128 + signal.SIGTERM, "the agent was ended by SIGTERM: boom"),
    ],
)
def test_any_other_end_is_a_failed_turn_with_the_last_line(code: int, words: str) -> None:
    found = failure(TurnOutput(GENERIC).turn_end(code, "boom"))
    assert found.category is Category.TURN_FAILED
    assert found.message == words
    assert found.retryable


def test_without_a_last_line_the_exit_code_has_to_do() -> None:
    assert failure(TurnOutput(GENERIC).turn_end(3, "")).message == "the agent ended with exit code 3"


def test_secrets_in_a_last_line_are_masked() -> None:
    found = failure(TurnOutput(GENERIC).turn_end(1, "OPENAI_API_KEY=sk-abcdefghijklmnopqrstuvwxyz123456"))
    assert "abcdefghijklmnopqrstuvwxyz" not in found.message


def ended(*lines: str, profile: CommandProfile = AIDER) -> TurnEnd:
    """The end of a turn with exit code 0 that printed these lines."""
    output = TurnOutput(profile)
    output.receive("".join(f"{line}\n" for line in lines).encode())
    return output.turn_end(0, "")


@pytest.mark.parametrize(
    ("line", "category", "ours"),
    [
        ("litellm.AuthenticationError: AuthenticationError: no", Category.AGENT_AUTH, True),
        ("litellm.NotFoundError: OpenAIException - no such model", Category.TURN_FAILED, True),
        ("litellm.RateLimitError: slow down", Category.AGENT_RATE_LIMITED, False),
        ("litellm.ContextWindowExceededError: too long", Category.AGENT_CONTEXT_FULL, False),
        ("litellm.APIConnectionError: nobody there", Category.AGENT_UNAVAILABLE, False),
        ("litellm.Timeout: too slow", Category.AGENT_UNAVAILABLE, False),
    ],
)
def test_aider_ends_with_0_and_is_known_by_what_it_says(line: str, category: Category, *, ours: bool) -> None:
    found = failure(ended("Aider v0.86.2", line, "Check your API key."))
    assert found.category is category
    assert found.message == f"the agent said: {line}"
    assert found.retryable is not ours
    assert (found.blame is Blame.CONFIG) is ours


def test_an_error_that_it_got_over_is_none() -> None:
    finished = ended("litellm.RateLimitError: slow down", "Tokens: 815 sent, 11 received.")
    assert finished.status is TurnStatus.COMPLETED


def test_nothing_is_read_into_the_words_of_an_unknown_agent() -> None:
    assert ended("litellm.AuthenticationError: no", profile=GENERIC).status is TurnStatus.COMPLETED


# --- settings --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "key", "words"),
    [
        ({}, "command", "is required with the profile generic"),
        ({"profile": "aidr"}, "profile", "'aidr' does not exist"),
        ({"command": "x {promt_file}"}, "command", "no placeholder"),
        ({"command": "x --model {model}"}, "command", "holds {model}, and there is none"),
    ],
)
def test_settings_that_cannot_work_are_told_with_their_key(
    settings: dict[str, Any], key: str, words: str
) -> None:
    found = CommandBackend.check_settings(CommandSettings(**settings), isolated=False).errors
    assert found[0].key == key
    assert words in found[0].problem
    assert found[0].hint


@pytest.mark.parametrize(
    "settings",
    [
        {"command": "x {prompt_file}"},
        {"command": "x --model {model}", "model": "m"},
        {"profile": "aider"},
        {"profile": "aider", "model": "openai/gpt"},
        {"profile": "aider", "command": "my-aider {prompt_file}"},
    ],
)
def test_settings_that_can_work_need_no_word(settings: dict[str, Any]) -> None:
    assert CommandBackend.check_settings(CommandSettings(**settings), isolated=False).errors == ()


def test_a_model_is_passed_on_where_one_is_told() -> None:
    plain = command_of(CommandSettings(profile="aider"), AIDER)
    chosen = command_of(CommandSettings(profile="aider", model="m"), AIDER)
    assert plain is not None
    assert chosen is not None
    assert "--model" not in plain
    assert "--model {model}" in chosen
    assert command_of(CommandSettings(command="mine", model="m"), AIDER) == "mine"


def test_nothing_holds_a_command_but_an_isolation() -> None:
    assert CommandBackend.check_settings(CommandSettings(command="x"), isolated=True).no_sandbox is None
    open_command = CommandBackend.check_settings(CommandSettings(command="x"), isolated=False).no_sandbox
    open_profile = CommandBackend.check_settings(CommandSettings(profile="aider"), isolated=False).no_sandbox
    assert open_command is not None
    assert open_profile is not None
    assert (open_command.key, open_profile.key) == ("command", "profile")
