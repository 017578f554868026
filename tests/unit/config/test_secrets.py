import os
from pathlib import Path

import pytest

from symphony.cli.failures import ExitCode, exit_code
from symphony.config import (
    MAX_BYTES,
    SecretFileError,
    is_secret_variable,
    read_secrets,
    signing_key,
    variables_from_files,
)
from symphony.domain import Category


def _file(place: Path, content: bytes | str = "s3cret\n", *, mode: int = 0o400) -> Path:
    place.write_bytes(content if isinstance(content, bytes) else content.encode())
    place.chmod(mode)
    return place


def _refused(environment: dict[str, str]) -> list[str]:
    with pytest.raises(SecretFileError) as refused:
        read_secrets(environment)
    for failure in refused.value.failures:
        assert failure.category is Category.SECRET_FILE
        assert failure.hint
        assert exit_code(failure) is ExitCode.CONFIGURATION
    return [failure.message for failure in refused.value.failures]


@pytest.mark.parametrize(
    ("content", "value"),
    [("abc", "abc"), ("abc\n", "abc"), ("abc\r\n", "abc"), ("a\nb\n\n", "a\nb\n"), ("\ufeffabc\n", "abc")],
)
def test_a_file_stands_for_the_variable(tmp_path: Path, content: str, value: str) -> None:
    file = _file(tmp_path / "key", content)
    secrets = read_secrets({"HOME": "/h", "LINEAR_API_KEY_FILE": str(file)})
    assert secrets.environment == {
        "HOME": "/h",
        "LINEAR_API_KEY": value,
        "LINEAR_API_KEY_FILE": str(file),
    }
    assert secrets.sources == {"LINEAR_API_KEY": file}


@pytest.mark.parametrize(
    "variable",
    [
        "SSL_CERT_FILE",
        "SSL_KEY_FILE",
        "AWS_WEB_IDENTITY_TOKEN_FILE",
        "AZURE_FEDERATED_TOKEN_FILE",
        "_FILE",
        "FILE",
    ],
)
def test_files_that_are_no_secret_of_ours_are_left_alone(variable: str) -> None:
    given = {variable: "/does/not/exist", "EMPTY_TOKEN_FILE": ""}
    assert read_secrets(given).environment == given


def test_names_that_hold_a_secret_are_known_by_their_ending() -> None:
    held = {
        name
        for name in ("OPENAI_API_KEY", "GH_TOKEN", "A_PAT", "PATH", "KEYS", "TOKEN")
        if is_secret_variable(name)
    }
    assert held == {"OPENAI_API_KEY", "GH_TOKEN", "A_PAT"}


def test_the_directory_of_credentials_names_variables(tmp_path: Path) -> None:
    _file(tmp_path / "LINEAR_API_KEY", "one\n")
    _file(tmp_path / "secret_OPENAI_API_KEY", "two\n")
    _file(tmp_path / "notes.txt", "three")
    _file(tmp_path / "LOCALE", "four")
    secrets = read_secrets({"CREDENTIALS_DIRECTORY": str(tmp_path)})
    assert {name: secrets.environment[name] for name in secrets.sources} == {
        "LINEAR_API_KEY": "one",
        "OPENAI_API_KEY": "two",
    }
    assert secrets.environment["OPENAI_API_KEY_FILE"] == str(tmp_path / "secret_OPENAI_API_KEY")


def test_a_variable_beside_a_file_that_says_something_else_is_refused(tmp_path: Path) -> None:
    file = _file(tmp_path / "key", "of the file")
    messages = _refused({"GH_TOKEN": "of the variable", "GH_TOKEN_FILE": str(file)})
    assert messages == [
        f"GH_TOKEN is given twice, and not the same: by the file {file} and by the variable itself"
    ]


def test_a_credential_beside_another_file_is_refused(tmp_path: Path) -> None:
    credentials = tmp_path / "credentials"
    credentials.mkdir()
    inside, outside = _file(credentials / "GH_TOKEN", "one"), _file(tmp_path / "key", "two")
    [message] = _refused({"GH_TOKEN_FILE": str(outside), "CREDENTIALS_DIRECTORY": str(credentials)})
    assert str(inside) in message
    assert str(outside) in message


def test_what_says_the_same_twice_is_no_conflict(tmp_path: Path) -> None:
    file = _file(tmp_path / "GH_TOKEN", "one")
    given = {"GH_TOKEN_FILE": str(file), "CREDENTIALS_DIRECTORY": str(tmp_path)}
    once = read_secrets(given).environment
    assert read_secrets(once).environment == once


def test_an_empty_variable_is_as_none(tmp_path: Path) -> None:
    file = _file(tmp_path / "key", "one")
    assert read_secrets({"GH_TOKEN": "", "GH_TOKEN_FILE": str(file)}).environment["GH_TOKEN"] == "one"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty"),
        (b" \n\n", "is empty"),
        (b"x" * (MAX_BYTES + 1), "has more than 64 KiB"),
        (b"a\0b", "NUL"),
        (b"\xff\xfe", "UTF-8"),
    ],
)
def test_a_file_that_can_hold_no_secret_is_refused(tmp_path: Path, content: bytes, said: str) -> None:
    file = _file(tmp_path / "key", content)
    [message] = _refused({"GH_TOKEN_FILE": str(file)})
    assert message.startswith(f"the file of GH_TOKEN, {file}, ")
    assert said in message


def test_a_secret_may_have_as_many_bytes_as_the_limit_says(tmp_path: Path) -> None:
    file = _file(tmp_path / "key", b"x" * MAX_BYTES)
    assert len(read_secrets({"GH_TOKEN_FILE": str(file)}).environment["GH_TOKEN"]) == MAX_BYTES


def test_what_is_no_file_is_refused_and_never_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    messages = _refused(
        {
            "A_TOKEN_FILE": str(tmp_path / "missing"),
            "B_TOKEN_FILE": str(tmp_path),
            "C_TOKEN_FILE": str(tmp_path / "pipe"),
            "D_TOKEN_FILE": "/dev/null",
            "CREDENTIALS_DIRECTORY": str(tmp_path / "nowhere"),
        }
    )
    assert [message.split(", ")[-1] for message in messages[:4]] == [
        "cannot be read: No such file or directory",
        "is not a file",
        "is not a file",
        "is not a file",
    ]
    assert (
        messages[4]
        == f"the directory of credentials {tmp_path / 'nowhere'} cannot be read: No such file or directory"
    )


def test_no_message_holds_a_value(tmp_path: Path) -> None:
    file = _file(tmp_path / "key", b"hunter2-hunter2\0")
    other = _file(tmp_path / "other", "hunter3-hunter3")
    said = _refused({"A_TOKEN_FILE": str(file), "B_TOKEN_FILE": str(other), "B_TOKEN": "hunter4-hunter4"})
    assert "hunter" not in " ".join(said)


def test_a_home_and_a_link_are_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "link").symlink_to(_file(tmp_path / "key", "one"))
    assert read_secrets({"GH_TOKEN_FILE": "~/link"}).environment["GH_TOKEN"] == "one"


def test_files_that_others_can_reach_are_told(reachable: Path) -> None:
    open_one = _file(reachable / "open", mode=0o644)
    closed = reachable / "closed"
    closed.mkdir(mode=0o700)
    given = {
        "A_TOKEN_FILE": str(open_one),
        "B_TOKEN_FILE": str(_file(reachable / "shut", mode=0o440)),
        "C_TOKEN_FILE": str(_file(closed / "hidden", mode=0o644)),
    }
    assert read_secrets(given).exposed == (open_one,)


def test_a_file_that_only_its_descriptor_names_is_out_of_reach_for_others(reachable: Path) -> None:
    """What a shell makes of `3<<<"$token"`: an open file whose name is gone."""
    file = _file(reachable / "gone", "hunter2", mode=0o644)
    with file.open() as opened:
        file.unlink()
        secrets = read_secrets({"A_TOKEN_FILE": f"/dev/fd/{opened.fileno()}"})
    assert secrets.environment["A_TOKEN"] == "hunter2"
    assert secrets.exposed == ()


def test_what_a_container_runtime_mounted_is_not_told(
    reachable: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("symphony.config.secrets._MOUNTED", reachable)
    assert read_secrets({"A_TOKEN_FILE": str(_file(reachable / "open", mode=0o444))}).exposed == ()


def test_the_names_that_came_from_files_can_be_told_later(tmp_path: Path) -> None:
    given = {"A_TOKEN_FILE": str(_file(tmp_path / "key")), "B_TOKEN": "b", "SSL_CERT_FILE": "/c"}
    assert variables_from_files(read_secrets(given).environment) == {"A_TOKEN"}
    assert variables_from_files(given) == frozenset()


@pytest.mark.parametrize(
    ("secret", "key"), [("k" * 16, b"k" * 16), ("whsec_a2tra2tra2tra2tra2traw==", b"k" * 16)]
)
def test_a_signing_key_is_text_or_base64(secret: str, key: bytes) -> None:
    assert signing_key(secret) == key


@pytest.mark.parametrize("secret", ["", "k" * 15, "whsec_", "whsec_a2tr", "whsec_no base64 at all, but long"])
def test_what_can_be_forged_or_read_in_two_ways_signs_nothing(secret: str) -> None:
    with pytest.raises(ValueError, match=r"bytes|base64"):
        signing_key(secret)
